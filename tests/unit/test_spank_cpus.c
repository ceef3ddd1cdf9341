/* SPDX-License-Identifier: Apache-2.0
 * Which CPUs, NICs and companions tasks get where GPUs alone do not say it. */
#include "spank_machine.h"

#include "../../spank/cores.h"

static struct plan placed(int tasks, enum policy policy)
{
	struct plan plan;
	ask_for(tasks, policy, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	return plan;
}

static void without_gpus_a_task_gets_the_domain_of_its_piece_and_a_nic_there(void **state)
{
	(void)state;
	make_machine(2, 2, 2, 1, NULL, 0, false);
	for (int n = 0; n < node->nics; n++) /* not the order of tasks */
		node->nic[n].at.order = (uint64_t)(64 - n);
	struct plan plan = placed(8, POLICY_NUMA); /* one core each */
	for (int t = 0; t < 8; t++) {
		assert_true(cpuset_equal(&plan.task[t].cpus, &node->numa[t / 2].cpus));
		assert_int_equal(node->nic[plan.task[t].nic].at.numa, t / 2);
	}
	plan_free(&plan);
	plan = placed(8, POLICY_SOCKET);
	for (int t = 0; t < 8; t++) {
		assert_true(cpuset_equal(&plan.task[t].cpus, &node->package[t / 4].cpus));
		assert_int_equal(node->nic[plan.task[t].nic].at.package, t / 4);
	}
	plan_free(&plan);
	plan = placed(3, POLICY_GPU); /* pieces of all eight cores */
	assert_int_equal(cpuset_count(&plan.task[0].cpus) + cpuset_count(&plan.task[1].cpus) + cpuset_count(&plan.task[2].cpus), 8);
	for (int t = 0; t < 3; t++) {
		struct cpuset piece = piece_of(node, &node->allowed, t, 3);
		assert_true(cpuset_equal(&plan.task[t].cpus, &piece));
	}
	plan_free(&plan);
}

/* Also where two tasks have half of a domain each, as four on six NUMA nodes. */
static void without_gpus_no_core_is_left_to_nobody(void **state)
{
	(void)state;
	for (int numas = 1; numas <= 3; numas++)
		for (int cores = 1; cores <= 4; cores++)
			for (int tasks = 1; tasks <= 14; tasks++)
				for (int socket = 0; socket < 2; socket++) {
					struct cpuset all = { 0 };
					make_machine(2 + numas % 2, numas, cores, 1 + cores % 2, NULL, 0, false);
					struct plan plan = placed(tasks, socket ? POLICY_SOCKET : POLICY_NUMA);
					for (int t = 0; t < tasks; t++)
						all = cpuset_or(&all, &plan.task[t].cpus);
					plan_free(&plan);
					if (!cpuset_equal(&all, &node->allowed))
						fail_msg("%d tasks on %d packages of %d NUMA nodes of %d cores", tasks, node->packages, numas, cores);
				}
}

static void where_the_job_has_no_core_beside_the_gpu_the_next_level_is_taken(void **state)
{
	static const int where[] = { 0 };
	struct plan plan;
	(void)state;
	make_machine(2, 2, 2, 1, where, 1, false);
	ask_for(1, POLICY_GPU, ORDER_SPREAD);
	request->allowed = cpuset_or(&node->numa[1].cpus, &node->package[1].cpus);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_true(cpuset_equal(&plan.task[0].cpus, &node->numa[1].cpus)); /* of the GPU's package, not of the other */
	assert_int_equal(plan.task[0].distance, 1);
	plan_free(&plan);
}

static void an_unbound_task_is_as_far_as_the_cores_of_the_job(void **state)
{
	static const int where[] = { 0 };
	struct plan plan;
	(void)state;
	make_machine(2, 1, 2, 1, where, 1, false);
	for (int far = 0; far < 2; far++) {
		ask_for(1, POLICY_NONE, ORDER_SPREAD);
		if (far)
			request->allowed = node->package[1].cpus;
		assert_int_equal(place_tasks(node, request, &plan), 0);
		assert_true(cpuset_empty(&plan.task[0].cpus));
		assert_int_equal(plan.task[0].distance, far ? 2 : 0);
		plan_free(&plan);
	}
}

static void cpus_that_the_user_bound_stay_as_they_are(void **state)
{
	static const int where[] = { 0, 1 };
	struct plan plan;
	(void)state;
	make_machine(2, 1, 2, 2, where, 2, false);
	for (int policy = POLICY_SOCKET; policy <= POLICY_NONE; policy++) {
		struct cpuset fixed[] = { node->package[1].cpus, node->package[0].cpus };
		ask_for(2, (enum policy)policy, ORDER_SPREAD);
		request->fixed = fixed;
		request->no_smt = true;
		assert_int_equal(place_tasks(node, request, &plan), 0);
		for (int t = 0; t < 2; t++) {
			assert_true(cpuset_equal(&plan.task[t].cpus, &fixed[t]));
			assert_int_equal(plan.task[t].device[0], 1 - t);
		}
		plan_free(&plan);
	}
}

static void a_task_with_gpus_on_two_packages_has_the_cpus_of_both(void **state)
{
	static const int where[] = { 0, 1, 2 };
	struct plan plan;
	(void)state;
	make_machine(3, 1, 2, 1, where, 3, false);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	struct cpuset both = cpuset_or(&node->package[0].cpus, &node->package[1].cpus);
	assert_true(cpuset_equal(&plan.task[0].cpus, &both));
	plan_free(&plan);
}

static void groups_are_dealt_out_of_free_gpus_within_packages(void **state)
{
	static const int odd[] = { 0, 1, 1 }, crossed[] = { 0, 2, 1, 3 };
	struct plan plan;
	(void)state;
	make_machine(1, 2, 2, 1, odd, 3, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), -1); /* the pair of NUMA node 1 leaves one alone */
	assert_string_equal(plan.refusal, "2 tasks with 2 GPUs each but 3 GPUs");
	make_machine(2, 2, 2, 1, crossed, 4, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 2; t++) {
		assert_int_equal(plan.task[t].device[0], t);
		assert_int_equal(plan.task[t].device[1], t + 2);
	}
	plan_free(&plan);
}

static void tasks_go_by_the_bus_whatever_order_slurm_names_gpus_in(void **state)
{
	static const int where[] = { 0, 0, 0, 0 };
	struct plan plan;
	(void)state;
	make_machine(1, 1, 4, 1, where, 4, false);
	for (int shift = 0; shift < 4; shift++) {
		ask_for(4, POLICY_SOCKET, ORDER_SPREAD);
		for (int d = 0; d < 4; d++)
			request->device[d] = shift < 2 ? (d + shift + 1) % 4 : (4 - d + shift) % 4;
		assert_int_equal(place_tasks(node, request, &plan), 0);
		for (int t = 0; t < 4; t++)
			assert_int_equal(request->device[plan.task[t].device[0]], t);
		plan_free(&plan);
	}
}

static void near_is_the_whole_numa_node(void **state)
{
	static const int where[] = { 0 };
	struct cpuset other = { 0 };
	(void)state;
	make_machine(1, 2, 2, 1, where, 1, false);
	node->gpu[0].at.cpus = (struct cpuset){ 0 };
	cpuset_add(&node->gpu[0].at.cpus, 0);
	cpuset_add(&other, 1);
	assert_int_equal(gpu_distance(node, &other, 0), 0);
	assert_int_equal(gpu_distance(node, &node->numa[1].cpus, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_gpus_a_task_gets_the_domain_of_its_piece_and_a_nic_there),
		cmocka_unit_test(without_gpus_no_core_is_left_to_nobody),
		cmocka_unit_test(where_the_job_has_no_core_beside_the_gpu_the_next_level_is_taken),
		cmocka_unit_test(an_unbound_task_is_as_far_as_the_cores_of_the_job),
		cmocka_unit_test(cpus_that_the_user_bound_stay_as_they_are),
		cmocka_unit_test(a_task_with_gpus_on_two_packages_has_the_cpus_of_both),
		cmocka_unit_test(groups_are_dealt_out_of_free_gpus_within_packages),
		cmocka_unit_test(tasks_go_by_the_bus_whatever_order_slurm_names_gpus_in),
		cmocka_unit_test(near_is_the_whole_numa_node),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
