/* SPDX-License-Identifier: Apache-2.0
 * What people and programs read about a plan. */
#include "spank_machine.h"

#include "../../spank/explain.h"
#include "../../spank/models.h"
#include "../../spank/svg.h"

static char line[EXPLAIN_LINE];

static void bandwidths_are_those_of_the_whole_name(void **state)
{
	(void)state;
	assert_int_equal(model_bandwidth("Tesla V100-SXM2-16GB"), 900);
	assert_int_equal(model_bandwidth("NVIDIA A100-SXM4-80GB"), 2039);
	assert_int_equal(model_bandwidth("GA100 [A100 SXM4 40GB]"), 1555);
	assert_int_equal(model_bandwidth("NVIDIA H100 80GB HBM3"), 3350);
	assert_int_equal(model_bandwidth("NVIDIA H100 PCIe"), 2039);
	assert_int_equal(model_bandwidth("NVIDIA L4"), 300);
	assert_int_equal(model_bandwidth("NVIDIA L40S"), 864);
	assert_int_equal(model_bandwidth("NVIDIA GH200 480GB"), 4000);
	assert_int_equal(model_bandwidth("NVIDIA A1000"), 0);
	assert_int_equal(model_bandwidth(""), 0);
}

static void two_models(const char *first, const char *second, int tasks)
{
	static const int where[] = { 0, 0, 1 };
	struct plan plan;

	make_machine(2, 1, 4, 1, where, 3, false);
	snprintf(node->gpu[0].model, sizeof node->gpu[0].model, "%s", first);
	snprintf(node->gpu[1].model, sizeof node->gpu[1].model, "%s", first);
	snprintf(node->gpu[2].model, sizeof node->gpu[2].model, "%s", second);
	ask_for(tasks, POLICY_SOCKET, ORDER_PACK);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	explain_mixture(node, request, &plan, line, sizeof line);
	plan_free(&plan);
}

static void the_slower_of_different_gpus_is_named(void **state)
{
	(void)state;
	two_models("NVIDIA A100-SXM4-80GB", "Tesla T4", 3);
	assert_string_equal(line, "the slower GPU here is 0000:03:00.0, a Tesla T4 with 320 GB/s of memory bandwidth (NVIDIA A100-SXM4-80GB: 2039): in each step all ranks wait for it");
	two_models("Tesla T4", "NVIDIA A100-SXM4-80GB", 3);
	assert_non_null(strstr(line, "the slower GPU here is 0000:01:00.0, a Tesla T4 "));
	two_models("NVIDIA A100-SXM4-80GB", "NVIDIA Next", 3);
	assert_non_null(strstr(line, "this step has different GPUs"));
	two_models("Tesla T4", "Tesla T4", 3);
	assert_string_equal(line, "");
	two_models("", "Tesla T4", 3);
	assert_string_equal(line, "");
	two_models("NVIDIA A100-SXM4-80GB", "Tesla T4", 2); /* which no task uses */
	assert_string_equal(line, "");
}

static void json(char *buf, size_t size)
{
	struct plan plan;
	FILE *f = fmemopen(buf, size, "w");

	assert_non_null(f);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	explain_json(f, node, request, &plan);
	fclose(f);
	plan_free(&plan);
}

static void json_is_as_in_the_contract(void **state)
{
	static const int where[] = { 0, 1 };
	char text[1024];
	(void)state;

	make_machine(2, 1, 2, 1, where, 2, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	json(text, sizeof text);
	assert_string_equal(text, "[{\"task\":0,\"gpus\":[\"0000:01:00.0\"],\"cpus\":\"0-1\",\"numa\":[0],\"package\":[0],\"nic\":\"mlx5_0\",\"threads\":1,\"distance\":0},\n"
		" {\"task\":1,\"gpus\":[\"0000:02:00.0\"],\"cpus\":\"2-3\",\"numa\":[1],\"package\":[1],\"nic\":\"mlx5_2\",\"threads\":1,\"distance\":0}]\n");
	request->tasks = 1;
	request->gpus_per_task = 2;
	json(text, sizeof text);
	assert_non_null(strstr(text, "\"gpus\":[\"0000:01:00.0\",\"0000:02:00.0\"]"));
	request->tasks = 2;
	request->gpus_per_task = 1;
	/* an instance goes by its own name, wherever it is cut from */
	request->instance[1] = "MIG-2f1c2a8e";
	json(text, sizeof text);
	assert_non_null(strstr(text, "{\"task\":1,\"gpus\":[\"MIG-2f1c2a8e\"],\"cpus\":\"2-3\""));
	/* and is placed anywhere where that is not known */
	request->device[1] = -1;
	json(text, sizeof text);
	assert_non_null(strstr(text, "{\"task\":1,\"gpus\":[\"MIG-2f1c2a8e\"],\"cpus\":\"0-3\""));
	/* none: [] and null */
	request->devices = node->nics = 0;
	json(text, sizeof text);
	assert_non_null(strstr(text, "{\"task\":0,\"gpus\":[],\"cpus\":\"0-1\",\"numa\":[0],\"package\":[0],\"nic\":null,\"threads\":1,\"distance\":null}"));
}

static void an_instance_of_unknown_place_is_near_nothing(void **state)
{
	static const int where[] = { 0, 1 };
	static const char unknown[] = ": which GPU the instance is cut from is not known: ";
	struct plan plan;
	(void)state;

	make_machine(2, 1, 2, 1, where, 2, false);
	for (int policy = POLICY_SOCKET; policy <= POLICY_GPU; policy++) {
		ask_for(1, (enum policy)policy, ORDER_SPREAD);
		request->gpus_per_task = 2; /* one of them is known */
		request->device[1] = -1;
		request->instance[1] = "MIG-2f1c2a8e";
		assert_int_equal(place_tasks(node, request, &plan), 0);
		explain_task(node, request, &plan, 0, line, sizeof line);
		assert_non_null(strstr(line, "GPU MIG-2f1c2a8e, CPUs 0-3, "));
		assert_non_null(strstr(line, unknown));
		assert_string_equal(strstr(line, unknown) + sizeof unknown - 1, policy == POLICY_GPU ? "its share of the step's CPUs" : "the step's CPUs");
		plan_free(&plan);
	}
}

static void names_are_escaped(void **state)
{
	static const int where[] = { 0, 0 };
	char text[4096] = "";
	struct plan plan;
	(void)state;

	make_machine(1, 1, 2, 1, where, 2, false);
	strcpy(node->nic[0].name, "a\"\\<&\n");
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->instance[1] = "MIG-\"<";
	json(text, sizeof text);
	assert_non_null(strstr(text, "\"nic\":\"a\\\"\\\\<&\\u000a\""));
	assert_non_null(strstr(text, "\"gpus\":[\"MIG-\\\"<\"]"));
	FILE *f = fmemopen(text, sizeof text, "w");
	assert_non_null(f);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	draw_svg(f, node, request, &plan);
	fclose(f);
	plan_free(&plan);
	assert_non_null(strstr(text, ">NIC a\"\\&lt;&amp;?</text>"));
	assert_non_null(strstr(text, "task 1: GPU MIG-\"&lt; of "));
	/* instances of one GPU stand in its box */
	request->device[1] = 0;
	f = fmemopen(text, sizeof text, "w");
	assert_non_null(f);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	draw_svg(f, node, request, &plan);
	fclose(f);
	plan_free(&plan);
	assert_non_null(strstr(text, ">task 0 and 1 other</text>"));
	assert_non_null(strstr(text, ">idle</text>"));
}

static void a_line_fits_its_buffer(void **state)
{
	static const int where[] = { 0 };
	struct plan plan;
	char small[24];
	(void)state;

	make_machine(1, 1, 2, 1, where, 1, false);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_string_equal(explain_task(node, request, &plan, 0, line, sizeof line), "GPU 0000:01:00.0, CPUs 0-1, NUMA 0, NIC mlx5_0, 1 thread: the GPU's socket");
	assert_string_equal(explain_task(node, request, &plan, 0, small, sizeof small), "GPU 0000:01:00.0, CPUs ");
	plan_free(&plan);
	ask_for(1, POLICY_NONE, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_string_equal(explain_task(node, request, &plan, 0, line, sizeof line), "GPU 0000:01:00.0, NIC mlx5_0, 1 thread: CPUs as Slurm set them");
	plan_free(&plan);
	/* the usual one is large enough for a task with as many GPUs as can be */
	static const int all[NODE_MAX_GPUS];
	make_machine(1, 1, 2, 1, all, NODE_MAX_GPUS, false);
	for (int g = 0; g < NODE_MAX_GPUS; g++)
		snprintf(node->gpu[g].uuid, sizeof node->gpu[g].uuid, "GPU-c0de0000-0000-4000-8000-0000000000%02d", g);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = NODE_MAX_GPUS;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_non_null(strstr(explain_task(node, request, &plan, 0, line, sizeof line), ": the GPU's socket"));
	plan_free(&plan);
}

/* Two GPUs on the first socket and one between them on the second, all of one task, and cores of the first socket only. */
static void the_farthest_gpu_is_named_with_what_helps(void **state)
{
	static const int where[] = { 0, 1, 0 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 2, 1, where, 3, false);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 3;
	request->allowed = node->package[0].cpus;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	static const char far[] = "no core on the socket of GPU 0000:02:00.0, so its data travels between sockets: ";
	struct { struct cpuset job; bool by_task; const char *cure; } cases[] = {
		{ { { 0 } }, false, "give the job more cores with --cpus-per-gpu=N, or whole nodes with sbatch --exclusive" },
		{ request->allowed, false, "give the job more cores with --cpus-per-gpu=N, or whole nodes with sbatch --exclusive" },
		{ request->allowed, true, "give the job more cores with a larger -c, or whole nodes with sbatch --exclusive" },
		{ node->allowed, true, "the job has more cores than this step, also there: type -c N, the CPUs of each task" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		request->job = cases[i].job;
		request->cpus_by_task = cases[i].by_task;
		explain_distance(node, request, &plan, 0, line, sizeof line);
		assert_memory_equal(line, far, sizeof far - 1);
		assert_string_equal(line + sizeof far - 1, cases[i].cure);
	}
	plan_free(&plan);
}

/* Two GPUs on each of two sockets. */
static void tasks_with_too_few_cores_near_their_gpus_are_told(void **state)
{
	static const int where[] = { 0, 0, 1, 1 };
	struct { int first, last; const char *line; } cases[] = {
		{ 3, 6, "2 tasks share 1 core near their GPUs, of the step's 4: give the job more cores with --cpus-per-gpu=N, or whole nodes with sbatch --exclusive" },
		{ 2, 5, "" },
		{ 3, 5, "" }, /* there are not enough anyway */
	};
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 4, false);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ask_for(4, POLICY_SOCKET, ORDER_SPREAD);
		request->allowed = (struct cpuset){ 0 };
		for (int cpu = cases[i].first; cpu <= cases[i].last; cpu++)
			cpuset_add(&request->allowed, cpu);
		assert_int_equal(place_tasks(node, request, &plan), 0);
		assert_string_equal(explain_crowd(node, request, &plan, line, sizeof line), cases[i].line);
		plan_free(&plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bandwidths_are_those_of_the_whole_name),
		cmocka_unit_test(the_slower_of_different_gpus_is_named),
		cmocka_unit_test(json_is_as_in_the_contract),
		cmocka_unit_test(an_instance_of_unknown_place_is_near_nothing),
		cmocka_unit_test(names_are_escaped),
		cmocka_unit_test(a_line_fits_its_buffer),
		cmocka_unit_test(the_farthest_gpu_is_named_with_what_helps),
		cmocka_unit_test(tasks_with_too_few_cores_near_their_gpus_are_told),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
