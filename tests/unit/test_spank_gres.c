/* SPDX-License-Identifier: Apache-2.0
 * gres.conf against the machine, and the picture of a plan. */
#include "test.h"

#include "../../spank/selfcheck.h"
#include "../../spank/svg.h"

static struct node *node;
static struct gres_conf conf;
static char error[512], printed[8192];

static int prepare(void **state)
{
	(void)state;
	node = calloc(1, sizeof *node);
	return node ? 0 : -1;
}

static int release(void **state)
{
	(void)state;
	free(node);
	return 0;
}

/* Two packages of two cores, a GPU on each. */
static void make_machine(void)
{
	memset(node, 0, sizeof *node);
	node->pus = node->cores = 4;
	node->packages = node->gpus = 2;
	for (int c = 0; c < 4; c++) {
		node->pu[c] = (struct pu){ .cpu = c, .core = c };
		cpuset_add(&node->package[c / 2].cpus, c);
		cpuset_add(&node->allowed, c);
	}
	for (int g = 0; g < 2; g++) {
		struct gpu *gpu = &node->gpu[g];
		gpu->minor = g;
		gpu->at = (struct locality){ .order = (uint64_t)g + 1, .package = g, .numa = -1, .cpus = node->package[g].cpus };
		snprintf(gpu->at.pci, sizeof gpu->at.pci, "0000:%02d:00.0", g + 1);
	}
}

static enum numbers numbers; /* of plugstack.conf */

static int check(const char *text)
{
	FILE *f = fmemopen(printed, sizeof printed, "w");
	assert_non_null(f);
	if (gres_conf_parse(text, "n1", &conf, error, sizeof error))
		fail_msg("%s", error);
	int wrong = selfcheck(node, &conf, numbers, f);
	fclose(f);
	return wrong;
}

static void names_with_ranges(void **state)
{
	(void)state;
	assert_true(hostlist_has("gpu[01-16],login", "gpu07"));
	assert_false(hostlist_has("gpu[01-16]", "gpu7"));
	assert_false(hostlist_has("gpu[01-16]", "gpu17"));
	assert_true(hostlist_has("gpu[01-128]", "gpu100")); /* scontrol show hostnames */
	assert_false(hostlist_has("gpu[01-128]", "gpu007"));
	assert_true(hostlist_has("gpu[1-16]", "gpu12"));
	assert_false(hostlist_has("gpu[1-16]", "gpu05"));
	assert_true(hostlist_has("gpu[1-3,5]x", "gpu5x"));
	assert_false(hostlist_has("gpu[1-3,5]x", "gpu4x"));
	assert_true(hostlist_has("a,b,n1", "n1"));
	assert_false(hostlist_has("n1", "n11"));
	assert_false(hostlist_has("n11", "n1"));
	assert_false(hostlist_has("xn1", "n1"));
	assert_false(hostlist_has("n[a]", "n1"));
	assert_false(hostlist_has("n[2x1]", "n1"));
	assert_false(hostlist_has("n[", "n1"));
	assert_false(hostlist_has("", "n1"));
}

static void differences_are_named_with_their_cure(void **state)
{
	(void)state;
	make_machine();
	assert_int_equal(check("Name=gpu File=/dev/nvidia0 Cores=0-1\nName=gpu File=/dev/nvidia1 Cores=2-3\n"), 0);
	assert_non_null(strstr(printed, "nothing to change"));
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0-1] Cores=0-1\n"), 1);
	assert_non_null(strstr(printed, "line 1, /dev/nvidia1: WRONG: 0000:02:00.0 has Cores=0-1, but its socket has the cores 2-3: write Cores=2-3"));
	/* right as far as the machine goes; Slurm from 24.11 on drains the node unless this is what it counts as a socket */
	assert_int_equal(check("Name=gpu File=/dev/nvidia0 Cores=0-1\nName=gpu File=/dev/nvidia1 Cores=2\n"), 0);
	assert_non_null(strstr(printed, "line 2, /dev/nvidia1: 0000:02:00.0, Cores=2: on its socket, but Slurm from 24.11 on drains a node where they are not all of what it counts as a socket, by default 2-3\n"));
	assert_int_equal(check("# Name=gpu File=/dev/nvidia1\nNodeName=n[2-9] Name=gpu File=/dev/nvidia0\nnodename=n1 name=gpu file=/dev/nvidia0\n"), 2);
	assert_non_null(strstr(printed, "line 3, /dev/nvidia0: WRONG: 0000:01:00.0 has no Cores="));
	assert_non_null(strstr(printed, "gres.conf names 1 GPU, and there are 2"));
	assert_int_equal(check("AutoDetect=nvml\n"), 0);
	assert_non_null(strstr(printed, "gres.conf asks the driver (AutoDetect)"));
	/* Slurm takes spaces around the = */
	assert_int_equal(check("AutoDetect = nvml\n"), 0);
	assert_int_equal(check(" Name =gpu\tFile= /dev/nvidia0 Cores = \"0-1\"\nNodeName=\"n1\" Name = \"gpu\" File = /dev/nvidia1 Cores=2-3 =\n"), 0);
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0-1] Cores=0-1\nName=gpu File=/dev/nvidia7\n"), 2);
	assert_non_null(strstr(printed, "line 2, /dev/nvidia7: WRONG: the driver shows no such GPU\n"));
	assert_int_equal(gres_conf_parse("Name=gpu File=/dev/others0", "n1", &conf, error, sizeof error), -1);
	assert_int_equal(check("Name=gpu File=/dev/nvidia0 Cores=\nName=gpu File=/dev/nvidia1 Cores=2-3\n"), 1);
	assert_non_null(strstr(printed, "line 1, /dev/nvidia0: WRONG: 0000:01:00.0 has no Cores="));
	/* slurmd: "duplicate device file name" */
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia1 Cores=2-3\nAutoDetect=nvml\n"), 1);
	assert_non_null(strstr(printed, "line 2, /dev/nvidia1: WRONG: line 1 has it already: take it out of one of them\n"));
}

static void cores_are_left_out_where_they_are_known(void **state)
{
	(void)state;
	make_machine();
	assert_int_equal(check("AutoDetect=nvml\nName=gpu Type=h100 File=/dev/nvidia[0-1]\n"), 0);
	assert_non_null(strstr(printed, "line 2, /dev/nvidia1: 0000:02:00.0, no Cores=: as good as Cores=2-3\n"));
	/* what stands there counts all the same */
	assert_int_equal(check("AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-1] Cores=0-1\n"), 1);
	/* one socket */
	node->packages = 1;
	cpuset_add(&node->package[0].cpus, 2);
	cpuset_add(&node->package[0].cpus, 3);
	node->gpu[1].at.package = 0;
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0-1]\n"), 0);
	assert_non_null(strstr(printed, "as good as Cores=0-3\n"));
}

/* gres.conf(5): what is said for a node holds before what is said for all; rsmi and the like find no NVIDIA GPU. */
static void who_is_asked_for_the_gpus(void **state)
{
	static const char *const none[] = { "AutoDetect=off\n", "AutoDetect=rsmi\n", "NodeName=n[1-3] AutoDetect=off\nAutoDetect=nvml\n",
		"AutoDetect=nvml\nNodeName=n[1-3] AutoDetect=off\n", "AutoDetect=off\nNodeName=n2 AutoDetect=nvml\n" };
	static const char *const driver[] = { "AutoDetect=NVML\n", "AutoDetect=nvidia\n", "NodeName=n1 AutoDetect=nvml\nAutoDetect=off\n",
		"AutoDetect=off\nNodeName=n1 AutoDetect=nvml\n", "AutoDetect=nvml\nNodeName=n2 AutoDetect=off\n" };
	(void)state;
	make_machine();
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		if (check(none[i]) != 1 || !strstr(printed, "gres.conf names 0 GPUs, and there are 2"))
			fail_msg("%s: %s", none[i], printed);
	for (size_t i = 0; i < sizeof driver / sizeof *driver; i++)
		if (check(driver[i]) != 0)
			fail_msg("%s: %s", driver[i], printed);
}

/* Without AutoDetect Slurm counts GPUs as the lines come. */
static void another_order_of_the_lines_is_wrong(void **state)
{
	static const char swapped[] = "Name=gpu File=/dev/nvidia1 Cores=2-3\nName=gpu File=/dev/nvidia0 Cores=0-1\n";
	(void)state;
	make_machine();
	assert_int_equal(check(swapped), 1);
	assert_non_null(strstr(printed, "in the order of these lines: write one for each, in bus order: File=/dev/nvidia0, File=/dev/nvidia1\n"));
	assert_non_null(strstr(printed, "1 thing to change"));
	/* the driver's order is another one than theirs */
	char text[sizeof swapped + 32];
	snprintf(text, sizeof text, "AutoDetect=nvml\n%s", swapped);
	assert_int_equal(check(text), 0);
	/* and as they come in a line */
	node->gpu[1].at.package = 0;
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0,1] Cores=0-1\n"), 0);
	assert_int_equal(check("Name=gpu File=/dev/nvidia[1,0] Cores=0-1\n"), 1);
	assert_non_null(strstr(printed, "line 1, /dev/nvidia1: 0000:02:00.0, Cores=0-1: on its socket\nline 1, /dev/nvidia0: "));
	assert_non_null(strstr(printed, "in the order of these lines: write one for each, in bus order: File=/dev/nvidia0, File=/dev/nvidia1\n"));
	assert_int_equal(check("Name=gpu File=/dev/nvidia1,/dev/nvidia[0] Cores=0-1\n"), 1);
}

/* Steps are refused there until plugstack.conf says which order Slurm's is. */
static void device_numbers_in_another_order_than_the_bus(void **state)
{
	static const struct {
		const char *gres;
		enum numbers right;
		const char *word;
	} cases[] = {
		{ "AutoDetect=nvml\n", NUMBERS_BUS, "in bus order: write numbers=bus" },
		{ "AutoDetect=nvidia\n", NUMBERS_MINOR, "by device file: write numbers=minor" },
		{ "Name=gpu File=/dev/nvidia[0-2]\n", NUMBERS_MINOR, "numbers=minor" },
		{ "Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n", NUMBERS_BUS, "numbers=bus" },
		{ "Name=gpu File=/dev/nvidia[2,0-1]\n", NUMBERS_BUS, "numbers=bus" },
		{ "Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia2\n", NUMBERS_UNKNOWN,
			"in bus order: File=/dev/nvidia2, File=/dev/nvidia0, File=/dev/nvidia1, and numbers=bus in plugstack.conf" },
	};
	(void)state;
	make_machine();
	node->gpus = 3;
	node->gpu[2] = node->gpu[1];
	for (int g = 0; g < 3; g++) {
		node->gpu[g].minor = (g + 2) % 3;
		node->gpu[g].at.package = -1; /* cores are another matter */
	}
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (numbers = NUMBERS_UNKNOWN; numbers <= NUMBERS_MINOR; numbers++) {
			bool good = numbers && numbers == cases[i].right;
			if (check(cases[i].gres) != !good || !strstr(printed, cases[i].word) != good)
				fail_msg("%s with %d: %s", cases[i].gres, numbers, printed);
			assert_non_null(strstr(printed, "is number 0 on the bus and /dev/nvidia2"));
			assert_int_equal(strstr(printed, "/dev/nvidia0: 0000:02:00.0: the machine does not say which socket it is on\n") != NULL, strstr(cases[i].gres, "File") != NULL);
		}
	numbers = NUMBERS_UNKNOWN;
}

/* Slurm numbers by position, so that these numbers are not its own. */
static void device_numbers_with_a_gap(void **state)
{
	static const char *const by_file[] = { "AutoDetect=nvidia\n", "Name=gpu File=/dev/nvidia[0,2-3]\n" };
	(void)state;
	make_machine();
	node->gpus = 3;
	node->gpu[2] = node->gpu[1];
	for (int g = 0; g < 3; g++) {
		node->gpu[g].minor = (int[]){ 2, 3, 0 }[g];
		node->gpu[g].at.package = -1;
	}
	for (numbers = NUMBERS_UNKNOWN; numbers <= NUMBERS_MINOR; numbers++) {
		for (size_t i = 0; i < sizeof by_file / sizeof *by_file; i++) {
			assert_int_equal(check(by_file[i]), 1);
			assert_non_null(strstr(printed, "by device file, whose numbers have a gap: write lines without AutoDetect, one for each, in bus order: "
				"File=/dev/nvidia2, File=/dev/nvidia3, File=/dev/nvidia0, and numbers=bus in plugstack.conf\n"));
		}
		assert_int_equal(check("Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia3\nName=gpu File=/dev/nvidia0\n"), numbers != NUMBERS_BUS);
	}
	/* a gap alone leaves the order of the bus */
	node->gpu[0].minor = 1;
	node->gpu[1].minor = 2;
	node->gpu[2].minor = 3;
	for (numbers = NUMBERS_UNKNOWN; numbers <= NUMBERS_MINOR; numbers++) {
		assert_int_equal(check(by_file[0]), numbers != NUMBERS_BUS);
		assert_int_equal(strstr(printed, "write numbers=bus in plugstack.conf") != NULL, numbers != NUMBERS_BUS);
	}
	numbers = NUMBERS_UNKNOWN;
}

static void lines_are_read_as_slurm_reads_them(void **state)
{
	(void)state;
	make_machine();
	assert_int_equal(check("Name=gpu \\\n\tFile=/dev/nvidia0 \\\nCores=0-1 # of socket 0\nName=gpu File=\"/dev/nvidia1\" Cores=2-3"), 0);
	assert_non_null(strstr(printed, "line 1, /dev/nvidia0: "));
	assert_non_null(strstr(printed, "line 4, /dev/nvidia1: "));
	assert_int_equal(check("Name=gpu File=/dev/nvidia0,/dev/nvidia1"), 2); /* no Cores= */
	assert_non_null(strstr(printed, "line 1, /dev/nvidia1: WRONG"));
	assert_int_equal(check("Name=gpu File=/dev/nvidia[0],/dev/nvidia[1]"), 2);
	assert_int_equal(check("Name=gpu File=/dev/nvidia0 Cores=0-1\ninclude gpus.conf\n"), 0);
	assert_non_null(strstr(printed, "line 2: include and MultipleFiles= are not read here"));
	assert_int_equal(check("Name=gpu File=/dev/nvidia1 Cores=2-3\nName=gpu File=/dev/nvidia0 Cores=0-1\ninclude gpus.conf\n"), 0);
	assert_int_equal(check("Name=gpu File=/dev/nvidia0 Cores=0-1\n"), 1);
	assert_int_equal(check("Name=gpu Type=b File=/dev/nvidia0 Cores=0-1\nName=gpu Type=a File=/dev/nvidia1 Cores=2-3\n"), 0);
	assert_non_null(strstr(printed, "let it say Gres=gpu:b:1,gpu:a:1\n"));
	check("Name=gpu Type=b File=/dev/nvidia[0-1]\nName=gpu Type=a File=/dev/nvidia2\n");
	assert_non_null(strstr(printed, "let it say Gres=gpu:b:2,gpu:a:1\n"));
	assert_int_equal(check("Name=gpu Type=b File=/dev/nvidia0 Cores=0-1\nName=gpu Type=b File=/dev/nvidia1 Cores=2-3\n"), 0);
	assert_null(strstr(printed, "types"));
	assert_int_equal(check("Name=gpu Type=nvidia_rtx_pro_6000_blackwell_server_edition File=/dev/nvidia0 Cores=0-1\n"
			       "Name=gpu Type=nvidia_rtx_pro_6000_blackwell_server_edition_mig_1g.24gb File=/dev/nvidia1 Cores=2-3\n"), 0);
	assert_non_null(strstr(printed, "let it say Gres=gpu:nvidia_rtx_pro_6000_blackwell_server_edition:1,gpu:nvidia_rtx_pro_6000_blackwell_server_edition_mig_1g.24gb:1\n"));
	node->gpus = 0;
	assert_int_equal(check("NodeName=n2 Name=gpu File=/dev/nvidia0\n"), 0);
	assert_string_equal(printed, "this node has no NVIDIA GPU\nnothing to change\n");
}

/* slurmd reads lines of any length, and so values. */
static void long_lines_are_read_whole(void **state)
{
	static char text[40000];
	size_t n = (size_t)snprintf(text, sizeof text, "NodeName=x0");

	(void)state;
	make_machine();
	for (int i = 1; n < 12000; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, ",x%d", i);
	snprintf(text + n, sizeof text - n, ",n1 Name=gpu File=/dev/nvidia0");
	assert_int_equal(gres_conf_parse(text, "n1", &conf, error, sizeof error), 0);
	assert_int_equal(conf.gpus, 1);
	/* each device by its name, and so each core: no list is cut */
	n = (size_t)snprintf(text, sizeof text, "Name=gpu File=");
	for (int i = 0; i < 64; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s/dev/nvidia%d", i ? "," : "", i);
	n += (size_t)snprintf(text + n, sizeof text - n, " Cores=0");
	for (int i = 1; i < 400; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, ",%d", i);
	snprintf(text + n, sizeof text - n, " \\\n Type=h200\n");
	assert_int_equal(gres_conf_parse(text, "n1", &conf, error, sizeof error), 0);
	assert_int_equal(conf.gpus, 64);
	assert_int_equal(conf.gpu[63].minor, 63);
	assert_int_equal(cpuset_count(&conf.gpu[63].cores), 400);
	assert_string_equal(conf.gpu[63].type, "h200");
}

static void bad_lines_are_named(void **state)
{
	(void)state;
	assert_int_equal(gres_conf_parse("\nName=gpu File=/dev/nvidiaX\n", "n1", &conf, error, sizeof error), -1);
	assert_string_equal(error, "line 2: File=/dev/nvidiaX: /dev/nvidiaN or /dev/nvidia[N-M] expected");
	assert_int_equal(gres_conf_parse("Name=gpu File=/dev/nvidia0 Cores=a", "n1", &conf, error, sizeof error), -1);
	assert_string_equal(error, "line 1: Cores=a: a list such as 0-15 expected");
	static const char *const files[] = { "nvidia[0", "nvidia[0,", "nvidia[0,]", "nvidia[0]x", "nvidia0]", "nvidia[]", "nvidia[0],1", "nvidia0,", "nvidia" };
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char text[64];
		snprintf(text, sizeof text, "Name=gpu File=/dev/%s", files[i]);
		if (gres_conf_parse(text, "n1", &conf, error, sizeof error) != -1 || !strstr(error, "expected"))
			fail_msg("%s: %s", text, error);
	}
	assert_int_equal(gres_conf_parse("Name=gpu File=/dev/nvidia[0-999]", "n1", &conf, error, sizeof error), -1);
	assert_string_equal(error, "line 1: more than 64 GPUs");
}

static void the_picture_names_every_gpu_and_task(void **state)
{
	static struct request request;
	struct plan plan;
	FILE *f;
	(void)state;

	make_machine();
	request = (struct request){ .tasks = 1, .gpus_per_task = 1, .devices = 2, .device = { 0, 1 }, .allowed = node->allowed };
	assert_int_equal(place_tasks(node, &request, &plan), 0);
	f = fmemopen(printed, sizeof printed, "w");
	assert_non_null(f);
	draw_svg(f, node, &request, &plan);
	fclose(f);
	plan_free(&plan);
	assert_int_equal(strncmp(printed, "<svg ", 5), 0);
	assert_non_null(strstr(printed, "GPU 0000:01:00.0</text>"));
	assert_non_null(strstr(printed, "GPU 0000:02:00.0</text>"));
	assert_non_null(strstr(printed, ">idle</text>"));
	assert_non_null(strstr(printed, "task 0: GPU 0000:01:00.0, CPUs 0-1"));
	assert_non_null(strstr(printed, "</svg>"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_with_ranges),
		cmocka_unit_test(differences_are_named_with_their_cure),
		cmocka_unit_test(cores_are_left_out_where_they_are_known),
		cmocka_unit_test(who_is_asked_for_the_gpus),
		cmocka_unit_test(another_order_of_the_lines_is_wrong),
		cmocka_unit_test(device_numbers_in_another_order_than_the_bus),
		cmocka_unit_test(device_numbers_with_a_gap),
		cmocka_unit_test(lines_are_read_as_slurm_reads_them), cmocka_unit_test(long_lines_are_read_whole),
		cmocka_unit_test(bad_lines_are_named),
		cmocka_unit_test(the_picture_names_every_gpu_and_task),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
