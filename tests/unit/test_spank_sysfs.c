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
	/* next to a whole socket: of no NUMA node */
	assert_int_equal(gpu_at("0000:01:00.0")->at.numa, -1);
	assert_int_equal(gpu_at("0000:01:00.0")->at.package, 0);
	assert_int_equal(gpu_at("0000:01:00.0")->minor, -1);
	for (int n = 0; n < 2; n++)
		assert_int_equal(node->nic[n].down, !!strcmp(node->nic[n].name, "mlx5_1"));
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
		cmocka_unit_test(a_machine_without_a_bus_has_no_devices),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
