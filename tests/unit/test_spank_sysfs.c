/* SPDX-License-Identifier: Apache-2.0
 * The devices of the running machine, read from a tree like /sys that the test writes. */
#include "spank_machine.h"

#include "../../spank/sysfs.h"

#include <sys/stat.h>
#include <unistd.h>

static char dir[512];

static int begin(void **state)
{
	snprintf(dir, sizeof dir, "%s/tests/tmp/sysfs.%d", getenv("BUILD") ? getenv("BUILD") : "build", (int)getpid());
	return prepare(state);
}

static int end(void **state)
{
	char command[600];
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) ? -1 : release(state);
}

static void write_file(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_file(const char *text, const char *format, ...)
{
	char path[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(path, sizeof path, format, args);
	va_end(args);
	for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* A device at the end of a way of bridges, and the link to it in the flat directory. */
static void device(const char *sys, const char *way, const char *pci, const char *vendor, const char *class, const char *cpus)
{
	char link[1024], target[1024];

	write_file(vendor, "%s/devices/%s/%s/vendor", sys, way, pci);
	write_file(class, "%s/devices/%s/%s/class", sys, way, pci);
	write_file(cpus, "%s/devices/%s/%s/local_cpulist", sys, way, pci);
	write_file("", "%s/bus/pci/devices/.keep", sys);
	snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sys, pci);
	snprintf(target, sizeof target, "../../../devices/%s/%s", way, pci);
	assert_int_equal(symlink(target, link), 0);
}

static void card(const char *sys, const char *way, const char *pci, const char *name, const char *state)
{
	write_file(state, "%s/devices/%s/%s/infiniband/%s/ports/1/state", sys, way, pci, name);
}

static const struct gpu *gpu_at(const char *pci)
{
	for (int g = 0; g < node->gpus; g++)
		if (!strcmp(node->gpu[g].at.pci, pci))
			return &node->gpu[g];
	fail_msg("no GPU %s", pci);
	return NULL;
}

static void gpus_and_cards_are_found_and_decoys_are_not(void **state)
{
	static const int nowhere[1];
	char sys[600];
	(void)state;

	snprintf(sys, sizeof sys, "%s/sysfs", dir);
	/* 2 sockets × 2 NUMA nodes × 2 cores: CPUs 0-1, 2-3 | 4-5, 6-7 */
	make_machine(2, 2, 2, 1, nowhere, 0, false);
	node->nics = 0;
	device(sys, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0", "0000:83:00.0", "0x10de\n", "0x030200\n", "6-7\n");
	device(sys, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0", "0000:84:00.0", "0x15b3\n", "0x020700\n", "6-7\n");
	card(sys, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0", "0000:84:00.0", "mlx5_1", "4: ACTIVE\n");
	device(sys, "pci0000:00/0000:00:01.0", "0000:01:00.0", "0x10de\n", "0x030000\n", "0-3\n");
	device(sys, "pci0000:00/0000:00:02.0", "0000:02:00.0", "0x15b3\n", "0x020000\n", "0-1\n");
	card(sys, "pci0000:00/0000:00:02.0", "0000:02:00.0", "rocep2s0", "1: DOWN\n");
	/* decoys: the GPU's audio function, a management controller's display, virtual functions of both */
	device(sys, "pci0000:00/0000:00:01.0", "0000:01:00.1", "0x10de\n", "0x040300\n", "0-3\n");
	device(sys, "pci0000:00/0000:00:03.0", "0000:03:00.0", "0x1a03\n", "0x030000\n", "0-1\n");
	device(sys, "pci0000:80", "0000:80:1f.0", "0x10de\n", "0x030200\n", "6-7\n");
	write_file("", "%s/devices/pci0000:80/0000:80:1f.0/physfn", sys);
	device(sys, "pci0000:00", "0000:00:1f.1", "0x15b3\n", "0x020000\n", "0-1\n");
	card(sys, "pci0000:00", "0000:00:1f.1", "mlx5_9", "4: ACTIVE\n");
	write_file("", "%s/devices/pci0000:00/0000:00:1f.1/physfn", sys);
	/* and things that are hardly devices */
	device(sys, "pci0000:00", "0000:00:1e.0", "", "", "");
	write_file("x", "%s/bus/pci/devices/README", sys);

	assert_int_equal(read_pci_devices(sys, node), 0);
	assert_int_equal(node->gpus, 2);
	assert_int_equal(node->nics, 2);
	assert_int_equal(gpu_at("0000:83:00.0")->at.numa, 3);
	assert_int_equal(gpu_at("0000:83:00.0")->at.package, 1);
	assert_int_equal(gpu_at("0000:83:00.0")->at.bridges, 4);
	/* ranks follow the bus */
	assert_true(gpu_at("0000:01:00.0")->at.order < gpu_at("0000:83:00.0")->at.order);
	/* next to a whole socket: of no NUMA node */
	assert_int_equal(gpu_at("0000:01:00.0")->at.numa, -1);
	assert_int_equal(gpu_at("0000:01:00.0")->at.package, 0);
	assert_int_equal(gpu_at("0000:01:00.0")->minor, -1);
	for (int n = 0; n < 2; n++) {
		const bool up = !strcmp(node->nic[n].name, "mlx5_1");
		assert_int_equal(node->nic[n].port, up);
		assert_int_equal(node->nic[n].at.numa, up ? 3 : 0);
	}
}

/* The card behind the GPU's own switch, before one that is as near to the same CPUs. */
static void a_switch_brings_gpu_and_card_together(void **state)
{
	static const int nowhere[1];
	char sys[600];
	struct plan plan;
	(void)state;

	snprintf(sys, sizeof sys, "%s/switch", dir);
	make_machine(1, 1, 4, 1, nowhere, 0, false);
	node->nics = 0;
	device(sys, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0000:03:00.0", "0x10de", "0x030200", "0-3");
	device(sys, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", "0000:04:00.0", "0x15b3", "0x020700", "0-3");
	card(sys, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", "0000:04:00.0", "mlx5_near", "4: ACTIVE");
	device(sys, "pci0000:00/0000:00:00.5", "0000:00:05.0", "0x15b3", "0x020700", "0-3");
	card(sys, "pci0000:00/0000:00:00.5", "0000:00:05.0", "mlx5_far", "4: ACTIVE");
	assert_int_equal(read_pci_devices(sys, node), 0);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_string_equal(node->nic[plan.task[0].nic].name, "mlx5_near");
	plan_free(&plan);
}

static const struct nic *card_named(const char *name)
{
	for (int n = 0; n < node->nics; n++)
		if (!strcmp(node->nic[n].name, name))
			return &node->nic[n];
	fail_msg("no card %s", name);
	return NULL;
}

static void a_card_has_its_first_port_with_a_link_and_none_only_where_all_say_so(void **state)
{
	static const int nowhere[1];
	const char *longest = "an_adapter_with_32_letters_in_it", *way = "pci0000:00";
	char sys[600], fits[32];
	(void)state;

	snprintf(sys, sizeof sys, "%s/ports", dir);
	snprintf(fits, sizeof fits, "%.31s", longest);
	make_machine(1, 1, 4, 1, nowhere, 0, false);
	node->nics = 0;
	for (int n = 1; n <= 5; n++) {
		char pci[16];
		snprintf(pci, sizeof pci, "0000:00:%02x.0", n);
		device(sys, way, pci, "0x15b3", "0x020700", "0-3");
	}
	card(sys, way, "0000:00:01.0", "second_port", "1: DOWN");
	write_file("4: ACTIVE", "%s/devices/%s/0000:00:01.0/infiniband/second_port/ports/2/state", sys, way);
	card(sys, way, "0000:00:02.0", "last_port", "1: DOWN");
	write_file("4: ACTIVE", "%s/devices/%s/0000:00:02.0/infiniband/last_port/ports/4/state", sys, way);
	card(sys, way, "0000:00:03.0", "silent", "");
	write_file("3: ARMED", "%s/devices/%s/0000:00:04.0/infiniband/armed/ports/2/state", sys, way);
	/* names are kept whole or not at all */
	card(sys, way, "0000:00:05.0", longest, "4: ACTIVE");
	card(sys, way, "0000:00:05.0", fits, "4: ACTIVE");
	assert_int_equal(read_pci_devices(sys, node), 0);
	assert_int_equal(node->nics, 5);
	assert_int_equal(card_named("second_port")->port, 2);
	assert_int_equal(card_named("last_port")->port, 4);
	assert_int_equal(card_named("silent")->port, 1);
	assert_int_equal(card_named(fits)->port, 1);
	assert_int_equal(card_named("armed")->port, 0);
}

/* Firmware that names no CPUs, or none that there are: near to all. */
static void a_device_without_cpus_is_near_all_of_them(void **state)
{
	static const char *const cpus[] = { "0-1", "", "\n", "none" };
	static const int nowhere[1];
	char sys[600], pci[16];
	(void)state;

	snprintf(sys, sizeof sys, "%s/nowhere", dir);
	make_machine(2, 1, 2, 1, nowhere, 0, false);
	node->nics = 0;
	for (int n = 0; n < 5; n++) {
		snprintf(pci, sizeof pci, "0000:%02x:00.0", n + 1);
		device(sys, "pci0000:00", pci, "0x10de", "0x030200", n < 4 ? cpus[n] : "");
	}
	snprintf(sys + strlen(sys), sizeof sys - strlen(sys), "/devices/pci0000:00/%s/local_cpulist", pci);
	assert_int_equal(unlink(sys), 0);
	snprintf(sys, sizeof sys, "%s/nowhere", dir);
	assert_int_equal(read_pci_devices(sys, node), 0);
	assert_int_equal(node->gpus, 5);
	for (int g = 0; g < 5; g++) {
		const struct locality *at = &node->gpu[g].at;
		const bool first = !strcmp(at->pci, "0000:01:00.0");
		assert_true(cpuset_equal(&at->cpus, first ? &node->package[0].cpus : &node->allowed));
		assert_int_equal(at->package, first ? 0 : -1);
	}
}

/* The directory that was being read has left the lowest number. */
static int second_free_file(void)
{
	const int first = dup(0), second = dup(0);
	close(first);
	close(second);
	return second;
}

/* More of everything than there is room for: cards and bridges beyond that are left out, GPUs never. */
static void a_machine_beyond_all_limits_is_refused_and_no_file_stays_open(void **state)
{
	static const int nowhere[1];
	char sys[600], way[256] = "pci0000:00", pci[16];
	const int free_before = second_free_file();
	(void)state;

	snprintf(sys, sizeof sys, "%s/limits", dir);
	make_machine(1, 1, 4, 1, nowhere, 0, false);
	node->nics = 0;
	for (int n = 0; n < NODE_MAX_NICS + 6; n++) {
		snprintf(pci, sizeof pci, "0000:00:%02x.%d", n / 8, n % 8);
		device(sys, "pci0000:00", pci, "0x15b3", "0x020700", "0-3");
		card(sys, "pci0000:00", pci, pci + 5, "4: ACTIVE");
	}
	for (int n = 0; n < NODE_MAX_BRIDGES + 2; n++)
		snprintf(way + strlen(way), sizeof way - strlen(way), "/0000:%02x:1f.0", n);
	for (int n = 0; n < NODE_MAX_GPUS; n++) {
		snprintf(pci, sizeof pci, "0001:%02x:00.0", n);
		device(sys, way, pci, "0x10de", "0x030200", "0-3");
	}
	assert_int_equal(read_pci_devices(sys, node), 0);
	assert_int_equal(node->nics, NODE_MAX_NICS);
	assert_int_equal(node->gpus, NODE_MAX_GPUS);
	assert_int_equal(node->gpu[0].at.bridges, NODE_MAX_BRIDGES);
	device(sys, way, "0001:ff:00.0", "0x10de", "0x030200", "0-3");
	node->gpus = node->nics = 0;
	assert_int_equal(read_pci_devices(sys, node), -1);
	assert_int_equal(second_free_file(), free_before);
}

static void a_machine_without_a_bus_has_no_devices(void **state)
{
	static const int nowhere[1];
	(void)state;
	make_machine(1, 1, 1, 1, nowhere, 0, false);
	node->nics = 0;
	assert_int_equal(read_pci_devices("/dev/null", node), 0);
	assert_int_equal(node->gpus + node->nics, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpus_and_cards_are_found_and_decoys_are_not),
		cmocka_unit_test(a_switch_brings_gpu_and_card_together),
		cmocka_unit_test(a_card_has_its_first_port_with_a_link_and_none_only_where_all_say_so),
		cmocka_unit_test(a_device_without_cpus_is_near_all_of_them),
		cmocka_unit_test(a_machine_beyond_all_limits_is_refused_and_no_file_stays_open),
		cmocka_unit_test(a_machine_without_a_bus_has_no_devices),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
