/* SPDX-License-Identifier: Apache-2.0
 * From Slurm's and the driver's texts to GPUs of the node. */
#include "test.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../spank/devices.h"
#include "../../spank/inventory.h"
#include "../../spank/nvidia.h"

static struct node *node;
static struct step_devices *step;
static char error[512];

static int prepare(void **state)
{
	(void)state;
	node = calloc(1, sizeof *node);
	step = calloc(1, sizeof *step);
	return node && step ? 0 : -1;
}

static int release(void **state)
{
	(void)state;
	free(node);
	free(step);
	return 0;
}

/* Four GPUs in bus order; minors as given. */
static void machine(int m0, int m1, int m2, int m3, bool uuids)
{
	int minor[] = { m0, m1, m2, m3 };
	memset(node, 0, sizeof *node);
	for (node->gpus = 0; node->gpus < 4; node->gpus++) {
		struct gpu *g = &node->gpu[node->gpus];
		g->at.order = (uint64_t)(node->gpus + 1) << 8;
		snprintf(g->at.pci, sizeof g->at.pci, "0000:%02x:00.0", node->gpus + 1);
		g->minor = minor[node->gpus];
		if (uuids)
			snprintf(g->uuid, sizeof g->uuid, "GPU-%caaaaaaa-0000-0000-0000-00000000000%c", '0' + node->gpus / 2, '0' + node->gpus);
	}
}

static enum numbers numbers; /* as plugstack.conf says */

static void translates(const char *global, const char *visible, bool index, const char *gpus, const char *tokens)
{
	char have_gpus[64] = "", have_tokens[512] = "";
	if (step_devices(node, numbers, global, visible, index, step, error, sizeof error) || step->in_doubt)
		fail_msg("%s", error);
	for (int i = 0; i < step->count; i++) {
		sprintf(have_gpus + strlen(have_gpus), "%s%d", i ? "," : "", step->gpu[i]);
		sprintf(have_tokens + strlen(have_tokens), "%s%s", i ? "," : "", step->token[i]);
	}
	assert_string_equal(have_gpus, gpus);
	assert_string_equal(have_tokens, tokens);
}

static void refuses(const char *global, const char *visible, const char *line)
{
	assert_int_equal(step_devices(node, numbers, global, visible, false, step, error, sizeof error), -1);
	assert_string_equal(error, line);
	assert_int_equal(step->count, 0);
}

static void numbers_become_uuids(void **state)
{
	(void)state;
	machine(0, 1, 2, 3, true);
	translates("1,3", "1,3", false, "1,3", "GPU-0aaaaaaa-0000-0000-0000-000000000001,GPU-1aaaaaaa-0000-0000-0000-000000000003");
	/* confined: the visible numbers count among the step's own devices */
	translates("1,3", "0,1", false, "1,3", "GPU-0aaaaaaa-0000-0000-0000-000000000001,GPU-1aaaaaaa-0000-0000-0000-000000000003");
	assert_false(step->by_index);
	translates(NULL, NULL, false, "", "");
	translates("", "", false, "", "");
	translates(NULL, "NoDevFiles", false, "", "");
	translates(NULL, "-1", false, "", "");
}

static void numbers_as_numbers(void **state)
{
	(void)state;
	machine(0, 1, 2, 3, true);
	translates("1,3", "1,3", true, "1,3", "1,3");
	translates("1,3", "0,1", true, "1,3", "0,1");
	translates("3,1", "0,1", true, "3,1", "1,0");
	assert_true(step->by_index && !step->no_uuid);
	machine(0, 1, 2, 3, false);
	translates("2", "2", false, "2", "2");
	assert_true(step->by_index && step->no_uuid);
	machine(-1, -1, -1, -1, false);
	translates("2", "0", false, "2", "0");
}

/* Slurm counts each instance: behind a divided GPU its numbers are not ours. */
static void numbers_behind_a_divided_gpu_are_in_doubt(void **state)
{
	(void)state;
	machine(0, 1, 2, 3, true);
	node->gpu[1].divided = true;
	translates("0", "0", false, "0", "GPU-0aaaaaaa-0000-0000-0000-000000000000");
	refuses("1", "0", "Slurm may mean another one by GPU 1, since GPUs before it are divided into instances: divide all of this node's, or none");
	refuses("2", "0", "Slurm may mean another one by GPU 2, since GPUs before it are divided into instances: divide all of this node's, or none");
	/* with seven instances before it, the third GPU is the ninth */
	refuses("8", "0", "Slurm may mean another one by GPU 8, since GPUs before it are divided into instances: divide all of this node's, or none");
}

static void names_stay_as_they_are(void **state)
{
	(void)state;
	machine(0, 1, 2, 3, true);
	translates("0,1", "GPU-1aaaaaaa-0000-0000-0000-000000000002,GPU-0aaaaaaa-0000-0000-0000-000000000000", true, "2,0",
		"GPU-1aaaaaaa-0000-0000-0000-000000000002,GPU-0aaaaaaa-0000-0000-0000-000000000000");
	translates(NULL, "MIG-GPU-1aaaaaaa-0000-0000-0000-000000000003/7/0,MIG-GPU-1aaaaaaa-0000-0000-0000-000000000003/8/0", false, "3,3",
		"MIG-GPU-1aaaaaaa-0000-0000-0000-000000000003/7/0,MIG-GPU-1aaaaaaa-0000-0000-0000-000000000003/8/0");
	/* the newer form does not say which GPU it is cut from: that is known where only one is divided */
	translates("0", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab", false, "-1", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab");
	assert_true(step->unplaced);
	node->gpu[2].divided = true;
	translates("0", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab", false, "2", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab");
	assert_false(step->unplaced);
	node->gpu[0].divided = true;
	translates("0", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab", false, "-1", "MIG-2f1c2a8e-5d6f-5b0c-9d0e-0123456789ab");
}

static void doubts_are_told(void **state)
{
	(void)state;
	machine(0, 1, 2, 3, true);
	refuses("4", "4", "the step has GPU '4', but this node shows 4 GPUs");
	refuses("1,1", "1,1", "the step has GPU 1 twice");
	refuses("1,", "1", "the step's list of GPUs is not understood: 1,");
	refuses("x", "x", "the step has GPU 'x', which this node's driver does not show");
	refuses("x", "0", "the step has GPU 'x', but this node shows 4 GPUs");
	refuses(NULL, "GPU-ffffffff", "the step has GPU 'GPU-ffffffff', which this node's driver does not show");
	refuses(NULL, "GPU-0aaaaaaa", "the step has GPU 'GPU-0aaaaaaa', which this node's driver does not show"); /* two begin so */
	node->gpus = 1; /* what begins every name is none */
	refuses(NULL, "GPU-", "the step has GPU 'GPU-', which this node's driver does not show");
	/* device numbers in another order than the bus: which one does Slurm mean? */
	machine(1, 0, 2, 3, true);
	static const char *const doubtful[] = { "0", "1", "0,2", "3,1", "0,2,3" };
	for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
		assert_int_equal(step_devices(node, numbers, doubtful[i], "0", false, step, error, sizeof error), 0);
		assert_true(step->in_doubt);
		assert_non_null(strstr(error, "by bus order, and Slurm may mean another one: hvd-map selfcheck tells which numbers=… plugstack.conf needs"));
	}
	/* the same ones, whichever it is */
	translates("2", "2", false, "2", "GPU-1aaaaaaa-0000-0000-0000-000000000002");
	translates("0,1", "0,1", false, "0,1", "GPU-0aaaaaaa-0000-0000-0000-000000000000,GPU-0aaaaaaa-0000-0000-0000-000000000001");
	translates("2,0,1,3", "0,1,2,3", true, "2,0,1,3", "2,0,1,3");
	assert_false(step->in_doubt);
	/* as many as are left are not the step's where one is missing, or where instances count */
	machine(0, 1, 2, 4, true);
	assert_int_equal(step_devices(node, numbers, "0,1,2,3", "0,1,2,3", false, step, error, sizeof error), 0);
	assert_true(step->in_doubt);
	machine(0, 1, 3, 2, true);
	node->gpu[0].divided = true;
	assert_int_equal(step_devices(node, numbers, "2,3", "0,1", false, step, error, sizeof error), 0);
	assert_true(step->in_doubt);
	machine(1, 0, 2, 3, true);
	/* the site says which */
	numbers = NUMBERS_BUS;
	translates("0,1", "0,1", false, "0,1", "GPU-0aaaaaaa-0000-0000-0000-000000000000,GPU-0aaaaaaa-0000-0000-0000-000000000001");
	node->gpu[0].divided = true; /* that of Slurm's first number, and nobody knows how many more */
	refuses("1", "1", "Slurm may mean another one by GPU 1, since GPUs before it are divided into instances: divide all of this node's, or none");
	machine(1, 0, 2, 3, true);
	numbers = NUMBERS_MINOR;
	translates("0", "0", false, "1", "GPU-0aaaaaaa-0000-0000-0000-000000000001");
	translates("1", "0", true, "0", "0");
	refuses("4", "4", "the step has GPU '4', but this node shows 4 GPUs");
	node->gpu[0].divided = true; /* which is /dev/nvidia1 */
	translates("0", "0", false, "1", "GPU-0aaaaaaa-0000-0000-0000-000000000001");
	refuses("2", "2", "Slurm may mean another one by GPU 2, since GPUs before it are divided into instances: divide all of this node's, or none");
	machine(-1, -1, -1, -1, true);
	translates("1", "1", false, "1", "GPU-0aaaaaaa-0000-0000-0000-000000000001");
	numbers = NUMBERS_UNKNOWN;
}

/* Slurm's numbers count from 0 without a gap; where the device files' do not, Slurm's 2 is not /dev/nvidia2. */
static void device_numbers_with_a_gap_are_not_slurms(void **state)
{
	static const int minors[][4] = { { 0, 2, 3, 4 }, { 1, 2, 3, 4 }, { 2, 5, 0, 1 } };
	char line[256];
	(void)state;
	numbers = NUMBERS_MINOR;
	for (size_t i = 0; i < sizeof minors / sizeof *minors; i++)
		for (int number = 0; number < 4; number++) {
			const char text[] = { (char)('0' + number), '\0' };
			machine(minors[i][0], minors[i][1], minors[i][2], minors[i][3], true);
			snprintf(line, sizeof line, "which one is Slurm's GPU %d is not known by numbers=minor, since the numbers of this node's /dev/nvidia files have a gap: "
				"hvd-map selfcheck tells what to write", number);
			refuses(text, "0", line);
		}
	numbers = NUMBERS_UNKNOWN;
}

static void any_list_has_an_answer(void **state)
{
	static const char *const pieces[] = { "0", "1", "3", ",", "GPU-", "0aaaaaaa", "MIG-", "/", "-", " ", "99999", "\xff" };
	unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 3;
	(void)state;
	print_message("# SEED=%u\n", seed);
	machine(0, 1, 2, 3, true);
	for (int i = 0; i < 20000; i++) {
		char text[2][200] = { "", "" };
		for (int k = 0; k < 2; k++)
			for (int n = rand_r(&seed) % 12; n > 0; n--)
				strcat(text[k], pieces[(unsigned)rand_r(&seed) % (sizeof pieces / sizeof *pieces)]);
		error[0] = '\0';
		int rc = step_devices(node, (enum numbers)(i / 2 % 3), i % 3 ? text[0] : NULL, text[1], i % 2, step, error, sizeof error);
		assert_true(rc ? error[0] && !step->count : step->count >= 0 && (!step->in_doubt || error[0]));
		for (int d = 0; d < step->count; d++)
			assert_true(step->gpu[d] >= -1 && step->gpu[d] < 4 && step->token[d][0]);
	}
}

/* ---- the driver's files -------------------------------------------------------------------------- */

static void information_files(void **state)
{
	struct nvidia_gpu g;
	(void)state;
	nvidia_parse_information("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 45\nGPU UUID: \t GPU-8a1b2c3d-0000-1111-2222-333344445555\n"
		"Video BIOS: \t 92.00\nBus Location: \t 0000:15:00.0\nDevice Minor: \t 7\nGPU Excluded:\t No\n", &g);
	assert_string_equal(g.model, "NVIDIA A100-SXM4-40GB");
	assert_string_equal(g.uuid, "GPU-8a1b2c3d-0000-1111-2222-333344445555");
	assert_int_equal(g.minor, 7);
	/* before the device is first opened */
	nvidia_parse_information("GPU UUID: \t GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?\nDevice Minor: \t 0", &g);
	assert_string_equal(g.uuid, "");
	assert_int_equal(g.minor, 0);
	nvidia_parse_information("Device Minor: \t -3\nDevice Minor:", &g);
	assert_int_equal(g.minor, -1);
	nvidia_parse_information("", &g);
	assert_int_equal(g.minor, -1);
}

static void pci_addresses(void **state)
{
	unsigned long long order;
	char text[16];
	(void)state;
	assert_int_equal(pci_parse("0000:15:00.0", &order, text), 0);
	assert_int_equal(order, 0x1500);
	assert_int_equal(pci_parse("00000035:03:1F.7", &order, text), 0);
	assert_string_equal(text, "0035:03:1f.7");
	assert_int_equal(order, 0x3503ff);
	assert_int_equal(pci_parse("", &order, text), -1);
	assert_int_equal(pci_parse("15:00.0", &order, text), -1);
	assert_int_equal(pci_parse("0000:15:00.8", &order, text), -1);
	assert_int_equal(pci_parse("0000:15:20.0", &order, text), -1);
	assert_int_equal(pci_parse("0000:15:00.0x", &order, text), -1);
	assert_int_equal(pci_parse("..", &order, text), -1);
}

/* ---- a node described by files ------------------------------------------------------------------- */

static char dir[512];

static int make_files(void **state)
{
	char command[1400];
	(void)state;
	snprintf(dir, sizeof dir, "%s/tests/tmp/inventory.%d", getenv("BUILD") ? getenv("BUILD") : "build", (int)getpid());
	snprintf(command, sizeof command, "mkdir -p '%s' && contrib/cluster/make_inventory cores=4 threads=2 gpus=4 nics=2 gpu_order=1,0,0,1 core_order=interleave numa=package minors=0,1,2,3 '%s'",
		dir, dir);
	return system(command) ? -1 : 0;
}

static int remove_files(void **state)
{
	char command[600];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) ? -1 : 0;
}

static int load(bool trusted_only)
{
	char topology[600], proc[600];
	snprintf(topology, sizeof topology, "%s/topology.xml", dir);
	snprintf(proc, sizeof proc, "%s/proc", dir);
	struct inventory_source source = { .topology = topology, .proc = proc, .trusted_only = trusted_only };
	return inventory_load(&source, node, error, sizeof error);
}

static void the_files_are_read(void **state)
{
	static const int package[] = { 1, 0, 0, 1 };
	char text[64];
	(void)state;
	assert_int_equal(load(true), 0);
	assert_string_equal(error, "");
	assert_int_equal(node->pus, 16);
	assert_int_equal(node->cores, 8);
	assert_int_equal(node->packages, 2);
	assert_int_equal(node->numas, 2);
	assert_int_equal(node->gpus, 4); /* the board controller is none */
	assert_int_equal(node->nics, 4);
	for (int g = 0; g < 4; g++) {
		assert_int_equal(node->gpu[g].at.package, package[g]);
		assert_int_equal(node->gpu[g].at.numa, package[g]);
		assert_int_equal(node->gpu[g].minor, g);
	}
	assert_string_equal(node->gpu[1].at.pci, "0000:1b:00.0");
	assert_string_equal(cpulist_print(&node->package[0].cpus, text, sizeof text), "0,2,4,6,8,10,12,14");
	/* core 1 is the second of the first package */
	assert_int_equal(node->pu[2].cpu, 2);
	assert_int_equal(node->pu[3].cpu, 10);
}

static void divided_gpus_are_known(void **state)
{
	char command[1400];
	(void)state;
	snprintf(command, sizeof command, "mkdir -p '%s/proc/capabilities/gpu1/mig' '%s/proc/capabilities/gpu2/mig/gi7/ci0'", dir, dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(load(true), 0);
	for (int g = 0; g < 4; g++)
		assert_int_equal(node->gpu[g].divided, g == 2);
}

static void gpus_without_a_driver_are_left_out(void **state)
{
	char command[700];
	(void)state;
	snprintf(command, sizeof command, "rm -r '%s/proc/gpus/0000:15:00.0'", dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(load(true), 0);
	assert_int_equal(node->gpus, 3);
	assert_string_equal(error, "GPU 0000:15:00.0 is not run by the NVIDIA driver: left out");
	assert_string_equal(node->gpu[0].at.pci, "0000:1b:00.0");
	snprintf(command, sizeof command, "rm -r '%s/proc/gpus'", dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(load(true), 0);
	assert_int_equal(node->gpus, 4);
	assert_non_null(strstr(error, "UUIDs and device numbers are unknown"));
	assert_int_equal(node->gpu[0].minor, -1);
}

static void files_that_others_can_write_are_refused(void **state)
{
	char topology[600], proc[600];
	(void)state;
	snprintf(topology, sizeof topology, "%s/topology.xml", dir);
	snprintf(proc, sizeof proc, "%s/proc", dir);
	assert_int_equal(chmod(proc, 0775), 0);
	assert_int_equal(load(true), -1);
	assert_non_null(strstr(error, "proc is writable by others than its owner: chmod go-w"));
	assert_int_equal(load(false), 0);
	assert_int_equal(chmod(proc, 0755), 0);
	assert_int_equal(chmod(topology, 0664), 0);
	assert_int_equal(load(true), -1);
	assert_non_null(strstr(error, "topology.xml is writable by others than its owner: chmod go-w"));
	assert_int_equal(load(false), 0);
	assert_int_equal(chmod(topology, 0644), 0);
	if (getuid() == 0) {
		assert_int_equal(chown(topology, 4242, -1), 0);
		assert_int_equal(load(true), -1);
		assert_non_null(strstr(error, "topology.xml belongs to uid 4242: it must belong to root"));
		assert_int_equal(chown(topology, 0, -1), 0);
	}
	unlink(topology);
	assert_int_equal(load(true), -1);
	assert_non_null(strstr(error, "topology.xml: No such file or directory"));
	FILE *f = fopen(topology, "w");
	fputs("<topology", f);
	fclose(f);
	chmod(topology, 0644);
	assert_int_equal(load(true), -1);
	assert_non_null(strstr(error, "topology.xml: not an hwloc 2 topology"));
}

static void the_running_machine(void **state)
{
	struct inventory_source source = { 0 };
	(void)state;
	if (inventory_load(&source, node, error, sizeof error))
		fail_msg("%s", error);
	assert_true(node->pus >= 1 && node->cores >= 1 && node->cores <= node->pus);
	assert_int_equal(node->pus >= sysconf(_SC_NPROCESSORS_ONLN), 1);
}

/* hwloc would open what HWLOC_PLUGINS_PATH (or its own directory) holds, in slurmstepd as root, and take another
 * machine for this one. */
static void neither_plugins_nor_variables_of_hwloc(void **state)
{
	struct inventory_source source = { 0 };
	char topology[600], event[4096];
	int watcher = inotify_init1(IN_NONBLOCK);
	(void)state;

	assert_true(watcher >= 0);
	assert_true(inotify_add_watch(watcher, dir, IN_OPEN) >= 0);
	closedir(opendir(dir));
	assert_true(read(watcher, event, sizeof event) > 0); /* opening is seen */
	assert_int_equal(inventory_load(&source, node, error, sizeof error), 0);
	int pus = node->pus, cores = node->cores;
	snprintf(topology, sizeof topology, "%s/topology.xml", dir);
	setenv("HWLOC_PLUGINS_PATH", dir, 1);
	setenv("HWLOC_XMLFILE", topology, 1);
	assert_int_equal(inventory_load(&source, node, error, sizeof error), 0);
	assert_string_equal(getenv("HWLOC_XMLFILE"), topology); /* and nobody else misses them */
	unsetenv("HWLOC_PLUGINS_PATH");
	unsetenv("HWLOC_XMLFILE");
	assert_int_equal(read(watcher, event, sizeof event), -1);
	assert_int_equal(node->pus, pus);
	assert_int_equal(node->cores, cores);
	close(watcher);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_become_uuids),
		cmocka_unit_test(numbers_as_numbers),
		cmocka_unit_test(numbers_behind_a_divided_gpu_are_in_doubt),
		cmocka_unit_test(names_stay_as_they_are),
		cmocka_unit_test(doubts_are_told),
		cmocka_unit_test(device_numbers_with_a_gap_are_not_slurms),
		cmocka_unit_test(any_list_has_an_answer),
		cmocka_unit_test(information_files),
		cmocka_unit_test(pci_addresses),
		cmocka_unit_test_setup_teardown(the_files_are_read, make_files, remove_files),
		cmocka_unit_test_setup_teardown(divided_gpus_are_known, make_files, remove_files),
		cmocka_unit_test_setup_teardown(neither_plugins_nor_variables_of_hwloc, make_files, remove_files),
		cmocka_unit_test_setup_teardown(gpus_without_a_driver_are_left_out, make_files, remove_files),
		cmocka_unit_test_setup_teardown(files_that_others_can_write_are_refused, make_files, remove_files),
		cmocka_unit_test(the_running_machine),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
