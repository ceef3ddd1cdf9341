/* SPDX-License-Identifier: Apache-2.0
 * The plugin's part on a node where a step cannot be placed, or not well: the line that it gets, its status, and who else ends. */
#include "plugin_host.h"

/* As from a newer plugin on srun's host. */
static void words_of_another_version(void **state)
{
	(void)state;
	assert_int_equal(run_step("hide-gpus,sockets", 2, 0), 64);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, ": SLURM_HVD_STEP: unknown key 'sockets', the nearest known one is 'socket': is spank_hvd.so where srun runs another version than here?"));
	/* whoever asked for nothing does not suffer */
	assert_int_equal(run_step("by-site,sockets", 2, 0), 0);
	assert_int_equal(record->lines, 0);
	assert_false(record->task[0].bound);
}

/* Numbers that this machine does not have: nothing is taken that may be another job's. */
static void cores_of_another_machine_are_refused(void **state)
{
	(void)state;
	strcpy(step_cores, "8-11");
	assert_int_equal(run_step(words, 2, 0), 70);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, "the step's cores are not among this machine's"));
	strcpy(step_cores, "2-3,4-5");
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	strcpy(step_cores, "0-7");
	/* cores are counted socket by socket: 2 and 3 are CPUs 4 and 6 */
	assert_int_equal(CPU_COUNT(&record->task[0].cpus), 2);
	assert_true(CPU_ISSET(4, &record->task[0].cpus) && CPU_ISSET(6, &record->task[0].cpus));
	assert_true(CPU_ISSET(1, &record->task[1].cpus) && CPU_ISSET(3, &record->task[1].cpus));
	/* one of the first socket for the two tasks there, three of the second */
	strcpy(step_cores, "3-6");
	assert_int_equal(run_step("hide-gpus,socket", 4, 0), 0);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, ": 2 tasks share 1 core near their GPUs, of the step's 4: give the job more cores"));
	/* which nobody asked for */
	assert_int_equal(run_step("by-site,socket", 4, 0), 0);
	assert_int_equal(record->lines, 0);
	for (int t = 0; t < 4; t++) {
		assert_false(record->task[t].bound);
		assert_non_null(strstr(record->task[t].variables, "HVD_POLICY=none\n"));
		assert_non_null(strstr(record->task[t].variables, "CUDA_VISIBLE_DEVICES=GPU-"));
	}
	/* some of them are not here */
	strcpy(step_cores, "4-8");
	assert_int_equal(run_step(words, 2, 0), 70);
	strcpy(step_cores, "0-7");
}

/* What -n says of the whole step does not tell where the tasks go. */
static void a_refusal_names_what_helps_this_step(void **state)
{
	static const char pairs[] = "joined,hide-gpus,socket,gpus-per-task=2";
	(void)state;
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_non_null(strstr(record->line, ": 4 tasks with 2 GPUs each but 4 GPUs on this node: type -n 2, or"));
	step_nodes = 2;
	step_tasks = 4;
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_non_null(strstr(record->line, " on this node: type --ntasks-per-node=2, or"));
	/* where the nodes differ, and each task has several GPUs, inside a job nothing that is typed helps */
	step_tasks = 6;
	assert_int_equal(run_step("joined,hide-gpus,whole-job,socket,gpus-per-task=2", 4, 0), 64);
	assert_non_null(strstr(record->line, " on this node: type -n 4 --ntasks-per-node=2 if all nodes have 4 GPUs, else type --gpus-per-node=6 --ntasks-per-node=3, or"));
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_non_null(strstr(record->line, " on this node: type -n 4 --ntasks-per-node=2 if all nodes have 4 GPUs, else submit the job with --gpus-per-node=6 --ntasks-per-node=3, or"));
	/* beside which Slurm takes no --gpus-per-node */
	assert_int_equal(run_step("joined,hide-gpus,socket,gpus-per-task=2,by-gres", 4, 0), 64);
	assert_non_null(strstr(record->line, ", else submit the job with --gpus-per-node=6 --ntasks-per-node=3 in place of --gres, or"));
	/* of two nodes, the second here, the first has the GPUs of four tasks: in blocks of four, two are left for this one */
	step_node = 1;
	spank_setenv(NULL, "SLURM_JOB_CPUS_PER_NODE", "4(x2)", 1);
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_non_null(strstr(record->line, " on this node: type -m plane=4, or submit the job with --gpus-per-node=6 --ntasks-per-node=3 if all nodes have 6 GPUs, or"));
	/* unless a node has not the CPUs for it */
	spank_setenv(NULL, "SLURM_CPUS_PER_TASK", "2", 1);
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_null(strstr(record->line, "plane"));
	spank_unsetenv(NULL, "SLURM_CPUS_PER_TASK");
	/* nor of the first, where the second has more */
	step_node = 0;
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_null(strstr(record->line, "plane"));
	step_node = 1;
	spank_setenv(NULL, "SLURM_JOB_CPUS_PER_NODE", "5,1", 1);
	visible = "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000001";
	assert_int_equal(run_step("joined,hide-gpus,whole-job,socket", 4, 0), 64);
	assert_non_null(strstr(record->line, "4 tasks but 2 GPUs on this node: type --cpus-per-gpu=1, or type --gpus-per-node=3 --ntasks-per-node=3 if all nodes have 3 GPUs"));
	/* one task a node is Slurm's number, as with --ntasks-per-core=1 alone, and none of srun's for all GPUs */
	step_tasks = 2;
	spank_setenv(NULL, "SLURM_JOB_CPUS_PER_NODE", "1(x2)", 1);
	assert_int_equal(run_step("joined,hide-gpus,whole-job,socket", 1, 0), 64);
	assert_non_null(strstr(record->line, "1 task but 2 GPUs on this node: type -n 4 --ntasks-per-node=2 if all nodes have 2 GPUs, else type --gpus-per-node=1 --ntasks-per-node=1"));
	step_tasks = 6;
	spank_setenv(NULL, "SLURM_JOB_CPUS_PER_NODE", "5,1", 1);
	visible = NULL;
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_null(strstr(record->line, "plane"));
	spank_unsetenv(NULL, "SLURM_JOB_CPUS_PER_NODE");
	step_node = 0;
	step_tasks = 5;
	assert_int_equal(run_step(pairs, 4, 0), 64);
	assert_non_null(strstr(record->line, " but 4 GPUs on this node: type -n 4 --ntasks-per-node=2 if all nodes have 4 GPUs, or --hvd-bind=share"));
	/* of three nodes that differ, tasks that are told where to go one by one get what there is */
	step_nodes = 3;
	step_tasks = 7;
	visible = "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000001";
	assert_int_equal(run_step("joined,hide-gpus,socket", 4, 0), 64);
	assert_non_null(strstr(record->line, ": 4 tasks but 2 GPUs on this node: type -n 6 --ntasks-per-node=2 if all nodes have 2 GPUs, else -m arbitrary -w with each node's name once for each of its GPUs, or"));
	visible = NULL;
	step_nodes = 2;
	step_tasks = 5;
	/* without --hvd, more tasks than GPUs are too many */
	assert_int_equal(run_step(pairs + 3, 4, 0), 64);
	step_nodes = 1;
	step_tasks = 0;
}

/* An hwloc description that anybody could have written decides nothing: hwloc reads it in slurmstepd. */
static void a_description_that_others_can_write_is_refused(void **state)
{
	char topology[1100], proc[1100];
	(void)state;
	snprintf(topology, sizeof topology, "%s/topology.xml", dir);
	snprintf(proc, sizeof proc, "%s/proc", dir);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? proc : topology;
		assert_int_equal(chmod(path, i ? 0777 : 0666), 0);
		assert_int_equal(run_step(words, 2, 0), 70);
		assert_int_equal(chmod(path, i ? 0755 : 0644), 0);
		assert_int_equal(record->lines, 1);
		assert_non_null(strstr(record->line, " is writable by others than its owner: chmod go-w: see topology= and proc= in plugstack.conf"));
	}
}

/* srun keeps the -n that was typed beside an --ntasks-per-node: both have to be said. */
static void idle_gpus_come_with_what_uses_them(void **state)
{
	(void)state;
	visible = "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000001,"
		"GPU-c0de0000-0000-4000-8000-000000000002,GPU-c0de0000-0000-4000-8000-000000000003";
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->line, ": type -n 4, or --hvd-bind=gpus-per-task=2"));
	assert_int_equal(run_step("hide-gpus,socket", 3, 0), 0);
	assert_string_equal(strchr(strstr(record->line, ": type"), ' '), " type -n 4"); /* four are not three times as many */
	/* a world has a task for each */
	assert_int_equal(run_step(words, 2, 0), 64);
	assert_non_null(strstr(record->line, ": 2 tasks but 4 GPUs on this node: type -n 4"));
	step_nodes = 2;
	step_tasks = 4;
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->line, ": type -n 8 --ntasks-per-node=4, or --hvd-bind=gpus-per-task=2, if all nodes have 4 GPUs"));
	assert_int_equal(run_step("hide-gpus,socket,ntasks-per-socket,ntasks-per-gpu", 2, 0), 0);
	assert_non_null(strstr(record->line, ": type -n 8 --ntasks-per-node=4 and no --ntasks-per-socket --ntasks-per-gpu, or --hvd-bind="));
	/* the other node has one task, and not two */
	step_tasks = 3;
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_string_equal(strstr(record->line, ": type"), ": type -n 8 --ntasks-per-node=4 if all nodes have 4 GPUs");
	/* no more tasks than the job has CPUs for, and however many CPUs each is said to need */
	step_tasks = 4;
	spank_setenv(NULL, "SLURM_JOB_CPUS_PER_NODE", "4(x2)", 1);
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->line, ": type -n 8 "));
	for (int i = 0; i < 2; i++) {
		spank_setenv(NULL, "SLURM_CPUS_PER_TASK", i ? "536870912" : "2", 1);
		assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
		assert_string_equal(strstr(record->line, ": type"), ": type --hvd-bind=gpus-per-task=2 if all nodes have 4 GPUs");
	}
	spank_unsetenv(NULL, "SLURM_CPUS_PER_TASK");
	spank_unsetenv(NULL, "SLURM_JOB_CPUS_PER_NODE");
	visible = NULL;
	step_nodes = 1;
	step_tasks = 0;
}

/* Tasks of other nodes would wait for ever for those that are refused here. */
static void a_refusal_ends_the_step_if_others_wait(void **state)
{
	(void)state;
	spank_setenv(NULL, "SLURM_STEP_NUM_TASKS", "4", 1);
	assert_int_equal(run_step("hide-gpus,socket,gpus-per-task=2", 3, 0), 64);
	assert_int_equal(record->kills, 1);
	strcpy(step_cores, "8-11");
	assert_int_equal(run_step(words, 2, 0), 70);
	assert_int_equal(record->kills, 1);
	/* nobody else is there, nothing is wrong, or only the site wanted a binding */
	assert_int_equal(run_step(words, 4, 0), 70);
	assert_int_equal(record->kills, 0);
	assert_int_equal(run_step("by-site,socket", 2, 0), 0);
	assert_int_equal(record->kills, 0);
	strcpy(step_cores, "0-7");
	assert_int_equal(run_step(words, 2, 0), 0);
	assert_int_equal(record->kills, 0);
	spank_unsetenv(NULL, "SLURM_STEP_NUM_TASKS");
}

/* Those on its own node would wait, too. */
static void a_refusal_of_one_task_ends_the_others(void **state)
{
	(void)state;
	spank_setenv(NULL, "SLURM_STEP_NUM_TASKS", "3", 1);
	for (confined = 0; confined < 3; confined++) {
		assert_int_equal(run_step(words, 3, 0), 70);
		assert_non_null(strstr(record->line, "which this task may not open"));
		assert_int_equal(record->kills, 1);
	}
	confined = 0;
	assert_int_equal(run_step("by-site,socket", 3, 0), 0);
	assert_int_equal(record->kills, 0);
	spank_setenv(NULL, "SLURM_STEP_NUM_TASKS", "1", 1);
	assert_int_equal(run_step(words, 1, 0), 70);
	assert_int_equal(record->kills, 0);
	confined = -1;
	spank_unsetenv(NULL, "SLURM_STEP_NUM_TASKS");
}

int main(void)
{
	const struct CMUnitTest tests_of_refusals[] = {
		cmocka_unit_test(words_of_another_version),
		cmocka_unit_test(cores_of_another_machine_are_refused),
		cmocka_unit_test(a_refusal_names_what_helps_this_step),
		cmocka_unit_test(a_description_that_others_can_write_is_refused),
		cmocka_unit_test(idle_gpus_come_with_what_uses_them),
		cmocka_unit_test(a_refusal_ends_the_step_if_others_wait),
		cmocka_unit_test(a_refusal_of_one_task_ends_the_others),
	};
	return cmocka_run_group_tests(tests_of_refusals, make_machine_files, remove_machine_files);
}
