/* SPDX-License-Identifier: Apache-2.0
 * The plugin's part on a node: what tasks get, what it starts and loads, and what comes of every call that can fail. */
#include "plugin_host.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Even CPUs are socket 0, odd ones socket 1. */
static bool on_socket(int socket, const cpu_set_t *cpus)
{
	for (int cpu = 0; cpu < 8; cpu++)
		if (!CPU_ISSET(cpu, cpus) != (cpu % 2 != socket))
			return false;
	return true;
}

static void every_task_is_bound(void **state)
{
	(void)state;
	assert_int_equal(run_step(words, 4, 0), 0);
	for (int t = 0; t < 4; t++) {
		const struct outcome *o = &record->task[t];
		assert_int_equal(o->rc, 0);
		assert_true(o->bound);
		assert_true(on_socket(t % 2, &o->cpus)); /* GPUs alternate */
		assert_non_null(strstr(o->variables, t % 2 ? "HVD_CPUS=1,3,5,7\n" : "HVD_CPUS=0,2,4,6\n"));
		assert_non_null(strstr(o->variables, "CUDA_VISIBLE_DEVICES=GPU-"));
		assert_null(strstr(o->variables, "SLURM_HVD_STEP"));
	}
	assert_string_not_equal(record->task[0].variables, record->task[1].variables);
}

/* A Slurm that shows a copy of the environment, or does not show it: the tasks get the same, only later. */
static void variables_do_not_depend_on_how_they_are_written(void **state)
{
	static struct outcome good[TASKS_MAX];
	(void)state;
	assert_int_equal(run_step("joined,hide-gpus,gpu,nic=hint,deadline=9", TASKS_MAX, 0), 0);
	memcpy(good, record->task, sizeof good);
	assert_null(strstr(good[0].variables, "SLURM_HVD_"));
	assert_non_null(strstr(good[0].variables, "\nHVD_DEADLINE=9\n"));
	assert_non_null(strstr(good[0].variables, "\nHVD_KEYS=HVD_DEADLINE=9\n"));
	/* to NCCL a name is a beginning, unless = stands before it */
	assert_non_null(strstr(good[0].variables, "NCCL_IB_HCA==mlx5_0\n"));
	assert_non_null(strstr(good[0].variables, "UCX_NET_DEVICES=mlx5_0:1\n"));
	shows_a_copy = true;
	assert_int_equal(run_step("joined,hide-gpus,gpu,nic=hint,deadline=9", TASKS_MAX, 0), 0);
	shows_a_copy = false;
	for (int t = 0; t < TASKS_MAX; t++)
		assert_string_equal(good[t].variables, record->task[t].variables);
	assert_string_not_equal(good[0].variables, good[1].variables);
	/* what the user had set so before is none of the step's */
	spank_setenv(NULL, "HVD_DEADLINE", "9", 1);
	assert_int_equal(run_step("joined,hide-gpus,gpu,deadline=9,on_death=continue,trace=/tmp/t", 1, 0), 0);
	spank_unsetenv(NULL, "HVD_DEADLINE");
	assert_non_null(strstr(record->task[0].variables, "\nHVD_DEADLINE=9\n"));
	assert_non_null(strstr(record->task[0].variables, "\nHVD_KEYS=HVD_ON_DEATH=continue,HVD_TRACE=/tmp/t\n"));
	/* one card is too little for several GPUs */
	visible = "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000001";
	assert_int_equal(run_step("hide-gpus,socket,nic=hint,gpus-per-task=2", 1, 0), 0);
	visible = NULL;
	assert_non_null(strstr(record->task[0].variables, "HVD_NIC=mlx5_0\n"));
	assert_null(strstr(record->task[0].variables, "NCCL_IB_HCA"));
	assert_null(strstr(record->task[0].variables, "UCX_NET_DEVICES"));
}

static void change_topology(const char *sed)
{
	char command[2600];
	snprintf(command, sizeof command, "sed -i '%s' '%s/topology.xml'", sed, dir);
	assert_int_equal(system(command), 0);
}

/* Also where each task makes its own plan, and where it can only be set late. */
static void what_the_user_has_set_stays(void **state)
{
	static const char *const own[][2] = { { "OMP_NUM_THREADS", "77" }, { "NCCL_IB_HCA", "mine" }, { "UCX_NET_DEVICES", "mine:1" } };
	static const char *const steps[] = { "joined,hide-gpus,gpu,nic=hint", "joined,hide-gpus,keep-cpus,gpu,nic=hint" };
	(void)state;
	for (size_t i = 0; i < 3; i++)
		spank_setenv(NULL, own[i][0], own[i][1], 1);
	for (size_t s = 0; s < 4; s++) {
		shows_a_copy = s % 2;
		assert_int_equal(run_step(steps[s / 2], 2, 0), 0);
		for (size_t i = 0; i < 3; i++) {
			char line[64];
			snprintf(line, sizeof line, "\n%s=%s\n", own[i][0], own[i][1]);
			assert_non_null(strstr(record->task[1].variables, line));
		}
	}
	shows_a_copy = false;
	for (size_t i = 0; i < 3; i++)
		spank_unsetenv(NULL, own[i][0]);
	/* and the order by which the numbers count that Slurm gave */
	assert_int_equal(run_step("keep-gpus,socket,ids=index", 1, 0), 0);
	assert_null(strstr(record->task[0].variables, "CUDA_DEVICE_ORDER"));
}

/* A card of two ports, whose cable is in the second. */
static void ucx_is_told_the_port_with_the_link(void **state)
{
	(void)state;
	change_topology("s|\\(name=\"mlx5_0\".*\\)/>|\\1><info name=\"Port1State\" value=\"1\"/><info name=\"Port2State\" value=\"4\"/></object>|");
	assert_int_equal(run_step("joined,hide-gpus,gpu,nic=hint", 1, 0), 0);
	change_topology("s|<info name=\"Port.*</object>||; s|\\(name=\"mlx5_0\".*\\)>|\\1/>|");
	assert_non_null(strstr(record->task[0].variables, "NCCL_IB_HCA==mlx5_0\n"));
	assert_non_null(strstr(record->task[0].variables, "UCX_NET_DEVICES=mlx5_0:2\n"));
}

/* spank_setenv clears 256 KiB a call, which all tasks of a node would do at once: what they get has its room before the fork, also
 * where only the task sees what the user bound it to. */
static void tasks_set_no_variable(void **state)
{
	static const char *const steps[] = { "joined,hide-gpus,gpu,nic=hint", "joined,hide-gpus,keep-cpus,gpu,nic=hint", "joined,keep-gpus,gpu,nic=hint" };
	(void)state;
	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		assert_int_equal(run_step(steps[s], TASKS_MAX, 0), 0);
		for (int t = 0; t < TASKS_MAX; t++) {
			const struct outcome *o = &record->task[t];
			assert_int_equal(o->rc, 0);
			assert_non_null(strstr(o->variables, "HVD_CPUS="));
			if (o->sets)
				fail_msg("%s: task %d set %d variables:\n%s", steps[s], t, o->sets, o->variables);
		}
	}
	shows_a_copy = true;
	assert_int_equal(run_step(steps[0], 1, 0), 0);
	shows_a_copy = false;
	assert_true(record->task[0].sets > 3); /* the counter counts */
}

static void a_gpu_in_use_is_named_with_its_user(void **state)
{
	(void)state;
	driver_answers = true;
	assert_int_equal(run_step("joined,hide-gpus,socket", 2, 0), 0);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, "GPU 0000:15:00.0 already holds memory of "));
	assert_non_null(strstr(record->line, "(pid 1, uid "));
	assert_non_null(strstr(record->line, ", 3.0 GiB)"));
	assert_null(strchr(strchr(record->line, ')'), ',')); /* and of nobody else: the step's own tasks are not news */
	/* placement alone asks no driver, unless the user wants to know */
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_int_equal(record->lines, 0);
	assert_int_equal(run_step("hide-gpus,socket,verbose", 2, 0), 0);
	assert_non_null(strstr(record->line, "GPU 0000:15:00.0 already holds memory of "));
	driver_answers = false;
	assert_int_equal(run_step("joined,hide-gpus,socket", 2, 0), 0);
	assert_int_equal(record->lines, 0);
}

/* There libnvidia-ml.so.1 would be whatever the user has in the image, in a process with slurmstepd's memory and slurmd's log open. */
static void in_a_container_no_library_is_opened(void **state)
{
	int status;
	pid_t child = fork();
	(void)state;
	if (!child)
		_exit(unshare(CLONE_NEWUSER) != 0);
	if (waitpid(child, &status, 0) != child || status)
		skip_because("user namespaces are not allowed here");
	driver_answers = in_container = true;
	assert_int_equal(run_step("joined,hide-gpus,socket", 2, 0), 0);
	driver_answers = in_container = false;
	assert_int_equal(record->lines, 0);
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-"));
}

static void an_instance_is_placed_as_the_gpu_it_is_cut_from(void **state)
{
	(void)state;
	visible = "MIG-1b000000,MIG-15000000";
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	/* nobody says where they are: Slurm's order, all CPUs */
	assert_non_null(strstr(record->task[0].variables, "CUDA_VISIBLE_DEVICES=MIG-1b000000\n"));
	assert_int_equal(CPU_COUNT(&record->task[0].cpus), 8);
	driver_answers = true;
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[0].variables, "CUDA_VISIBLE_DEVICES=MIG-15000000\n"));
	assert_non_null(strstr(record->task[0].variables, "HVD_GPU=0000:15:00.0\n"));
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=MIG-1b000000\n"));
	assert_true(on_socket(0, &record->task[0].cpus));
	assert_true(on_socket(1, &record->task[1].cpus));
	/* who is on that GPU's other instances is no news */
	visible = "MIG-GPU-c0de0000-0000-4000-8000-000000000000/3/0,MIG-GPU-c0de0000-0000-4000-8000-000000000000/4/0";
	assert_int_equal(run_step("joined,hide-gpus,socket", 2, 0), 0);
	assert_int_equal(record->lines, 0);
	assert_non_null(strstr(record->task[1].variables, "HVD_GPU=0000:15:00.0\n"));
	driver_answers = false;
	visible = NULL;
}

/* A thread percentage that srun knows to be of the user's own MPS. Slurm's stays on its GPUs, of which it can have several. */
static void mps_of_slurm_keeps_its_gpu_and_the_users_is_placed(void **state)
{
	(void)state;
	unsets_visible = true;
	spank_setenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
	assert_int_equal(run_step("joined,hide-gpus,own-mps,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-"));
	assert_int_equal(run_step(words, 2, 0), 0);
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=0,1\n"));
	/* whoever counted on a GPU for each task sees which variable it was */
	for (int count = 1; count <= 2; count++) {
		assert_int_equal(run_step("hide-gpus,share,socket", count, 0), 0);
		assert_int_equal(record->lines, count - 1);
	}
	assert_non_null(strstr(record->line, ": Slurm divides this step's GPUs further (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE): they stay as Slurm gave them to its 2 tasks"));
	assert_int_equal(run_step("hide-gpus,share,socket", 1, 0), 0);
	assert_non_null(strstr(record->task[0].variables, "CUDA_VISIBLE_DEVICES=0\n"));
	assert_non_null(strstr(record->task[0].variables, "HVD_GPU=0000:"));
	spank_unsetenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	unsets_visible = false;
}

/* A list that a shell's profile or the job's first node has left is none of the step's, however many GPUs the node shows. */
static void a_list_that_is_not_from_slurm_is_no_gpu(void **state)
{
	static const char *const lists[] = { "0", "7", "GPU-c0de0000-0000-4000-8000-000000000000", "GPU-of-another-node", "-1" };
	(void)state;
	without_gres = true;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		char line[128];
		visible = lists[i];
		assert_int_equal(run_step(i % 2 ? "joined,keep-gpus,socket" : words, 2, 0), 0);
		snprintf(line, sizeof line, "CUDA_VISIBLE_DEVICES=%s, which is not from Slurm", visible);
		/* "-1" says that there is none; the table has a line for each task */
		assert_int_equal(record->lines, i % 2 ? 1 : i == 4 ? 2 : 3);
		if (i % 2)
			assert_non_null(strstr(record->line, line));
		assert_true(record->task[1].bound);
		assert_null(strstr(record->task[1].variables, "HVD_GPU="));
		snprintf(line, sizeof line, "CUDA_VISIBLE_DEVICES=%s\n", visible);
		assert_non_null(strstr(record->task[1].variables, line));
	}
	/* what is printed is also in slurmd's log, in which nobody is to write lines of his own */
	visible = "7\n[2026-01-01] error: \033[31mdrained\302\233";
	assert_int_equal(run_step("joined,keep-gpus,socket", 1, 0), 0);
	assert_non_null(strstr(record->line, "CUDA_VISIBLE_DEVICES=7?[2026-01-01] error: ?[31mdrained??, which is not from Slurm"));
	assert_int_equal(run_step("by-site,socket", 1, 0), 0);
	assert_int_equal(record->lines, 0);
	visible = "0";
	assert_int_equal(run_step("hide-gpus,none", 1, 0), 0);
	assert_null(strstr(record->task[0].variables, "HVD_GPU="));
	assert_non_null(strstr(record->task[0].variables, "HVD_THREADS=1\n")); /* of the one CPU that Slurm has bound it to */
	assert_int_equal(run_step("joined,hide-gpus,none", 1, 0), 0);
	assert_non_null(strstr(record->task[0].variables, "HVD_THREADS=1\n"));
	/* MPS of Slurm's sets the list alone */
	visible = NULL;
	spank_setenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
	assert_int_equal(run_step("hide-gpus,share,socket", 1, 0), 0);
	assert_non_null(strstr(record->task[0].variables, "HVD_GPU=0000:"));
	spank_unsetenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	without_gres = false;
}

/* However --cpu-bind says it: CPUs stay, and each task has a GPU of their socket. */
static void gpus_follow_the_cpus_that_tasks_have(void **state)
{
	(void)state;
	spread_out = true;
	assert_int_equal(run_step("joined,hide-gpus,keep-cpus,socket", 4, 0), 0);
	for (int t = 0; t < 4; t++) {
		assert_non_null(strstr(record->task[t].variables, t < 2 ? "HVD_CPUS=1\n" : "HVD_CPUS=0\n"));
		assert_non_null(strstr(record->task[t].variables, ((const char *[]){ "HVD_GPU=0000:1b:", "HVD_GPU=0000:27:", "HVD_GPU=0000:15:", "HVD_GPU=0000:21:" })[t]));
	}
	assert_int_equal(record->lines, 0);
	spread_out = false;
	/* who chooses both hears where they do not fit */
	visible = "GPU-c0de0000-0000-4000-8000-000000000000";
	assert_int_equal(run_step("keep-gpus,keep-cpus,socket", 1, 0), 0);
	assert_non_null(strstr(record->line, "no core on the socket of GPU 0000:15:00.0, so its data travels between sockets: leave out --cpu-bind"));
	assert_non_null(strstr(record->task[0].variables, "HVD_NUMA=1\n"));
	visible = NULL;
	/* Slurm has not bound them */
	bind_type = "none";
	assert_int_equal(run_step("hide-gpus,keep-cpus,socket", 2, 0), 0);
	assert_null(strstr(record->task[0].variables, "HVD_NUMA="));
	bind_type = "rank";
}

/* A step of two GPUs, one on each socket of four cores. */
static void threads_are_a_share_of_the_cores_also_where_slurm_binds_gpus(void **state)
{
	(void)state;
	binds_gpus = true;
	assert_int_equal(run_step("keep-gpus,socket", 2, 0), 0);
	for (int t = 0; t < 2; t++) {
		assert_true(on_socket(t, &record->task[t].cpus));
		assert_non_null(strstr(record->task[t].variables, "HVD_THREADS=3\n"));
	}
	/* so does --gpus-per-task, of which only the task's environment tells */
	spank_setenv(NULL, "SLURMD_TRES_BIND", "gres/gpu:single:1", 1);
	assert_int_equal(run_step("by-site,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=1\n"));
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0); /* which srun has switched off */
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-"));
	spank_setenv(NULL, "SLURMD_TRES_BIND", "gres/gpu:none", 1);
	assert_int_equal(run_step("by-site,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-"));
	spank_unsetenv(NULL, "SLURMD_TRES_BIND");
	binds_gpus = false;
	/* one to which Slurm shows none has none of the step's */
	unsets_visible = true;
	assert_int_equal(run_step("keep-gpus,socket", 2, 0), 0);
	unsets_visible = false;
	assert_null(strstr(record->task[1].variables, "HVD_GPU="));
	/* each sees both, and all cores are for both */
	assert_int_equal(run_step("keep-gpus,socket", 2, 0), 0);
	for (int t = 0; t < 2; t++)
		assert_non_null(strstr(record->task[t].variables, "HVD_THREADS=3\n"));
}

static void steps_that_overlap_say_so(void **state)
{
	(void)state;
	assert_int_equal(run_step("hide-gpus,overlap,socket", 2, 0), 0);
	assert_string_equal(record->line, "hvd: --overlap: other steps of this job may be using the same GPUs");
}

static void count_start(int signal)
{
	(void)signal;
	record->starts++;
}

/* From here on this process can start nothing: what it tries is counted. */
static bool forbid_starts(void)
{
	static struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __NR_fork
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fork, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_vfork, 4, 0),
#endif
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_execve, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	signal(SIGSYS, count_start);
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Runs all callbacks of a step of 8 tasks, or something that starts a process, in one process that may start none. */
static bool counted(bool a_step)
{
	int status;
	pid_t pid;

	memset(record, 0, sizeof *record);
	tasks = TASKS_MAX;
	fail_at = 0;
	fflush(NULL);
	if ((pid = fork()) == 0) {
		if (!forbid_starts())
			_exit(1);
		if (a_step) {
			start(words);
			for (int t = 0; t < tasks; t++)
				task(t);
			slurm_spank_exit((spank_t)environment, 0, NULL);
		} else {
			fork();
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) /* glibc 2.43 blocks all signals while it forks, and this one then kills */
		record->starts++;
	else
		assert_true(WIFEXITED(status));
	return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

static void a_step_starts_nothing_and_loads_the_topology_once(void **state)
{
	(void)state;
	if (!counted(false))
		skip_because("this kernel does not let a process give up starting others");
	assert_int_equal(record->starts, 1); /* the counter counts */
	assert_true(counted(true));
	for (int t = 0; t < TASKS_MAX; t++)
		assert_int_equal(record->task[t].rc, 0);
	assert_int_equal(record->starts, 0);
	assert_int_equal(record->loads, 1);
}

/* … of a library that is closed again. */
static void the_environment_is_left_without_text_of_hwloc(void **state)
{
	(void)state;
	unsetenv("ZES_ENABLE_SYSMAN");
	assert_int_equal(run_step("joined,hide-gpus,socket", 1, 0), 0);
	assert_int_equal(record->loads, 1);
	assert_int_equal(record->put, 0);
	assert_null(strstr(record->task[0].variables, "ZES_ENABLE_SYSMAN"));
}

static bool same(const struct outcome *a, const struct outcome *b)
{
	return a->rc == b->rc && a->bound == b->bound && CPU_EQUAL(&a->cpus, &b->cpus) && !strcmp(a->variables, b->variables);
}

/* Whatever fails, the node's part returns 0, so that Slurm drains nothing; a task is as it should be, or there is a
 * line, or it has ended with a status that says why. */
static void no_failing_call_does_harm(void **state)
{
	static const char *const steps[] = { "joined,hide-gpus,socket", "hide-gpus,gpu,nic=hint", "joined,keep-cpus,socket", "keep-gpus,numa" };
	static struct outcome good[2];
	(void)state;

	driver_answers = true;
	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		int ended = 0;
		assert_int_equal(run_step(steps[s], 2, 0), 0);
		char usual_line[sizeof record->line];
		int usual_lines = record->lines, calls = record->calls;
		strcpy(usual_line, record->line);
		memcpy(good, record->task, sizeof good);
		assert_true(calls > 60);
		for (int call = 1; call <= calls; call++) {
			int status = run_step(steps[s], 2, call);
			assert_int_equal(record->init_rc, 0);
			assert_int_equal(record->user_rc, 0);
			bool told = record->lines > usual_lines || (record->lines && strcmp(record->line, usual_line));
			bool all_same = same(&record->task[0], &good[0]) && same(&record->task[1], &good[1]);
			if (status && ((status != 64 && status != 70) || !record->lines))
				fail_msg("%s, call %d failing: status %d, %d lines", steps[s], call, status, record->lines);
			if (!status && !told && !all_same)
				fail_msg("%s, call %d failing: a task is not as it should be, and nobody says so:\n%s", steps[s], call, record->task[0].variables);
			ended += status != 0;
		}
		print_message("# %s: %d calls, %d of them end the step\n", steps[s], calls, ended);
		assert_true(ended > 20 && ended < calls);
	}
}

/* Where only the site wants tasks to be bound, nothing ends a step or talks to its user. */
static void a_default_of_the_site_never_speaks(void **state)
{
	static const char *const steps[] = { "by-site,socket", "by-site,socket,keep-cpus", "by-site,socket,keep-gpus" };
	(void)state;
	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		assert_int_equal(run_step(steps[s], 2, 0), 0);
		assert_true(record->task[1].bound == (s != 1));
		for (int call = 1, calls = record->calls; call <= calls; call++) {
			assert_int_equal(run_step(steps[s], 2, call), 0);
			assert_int_equal(record->user_rc, 0);
			for (int t = 0; t < 2; t++)
				assert_int_equal(record->task[t].rc, 0);
			/* before the node knows who wants the binding it may say what it cannot read */
			if (record->lines && !strstr(record->line, "SLURM_HVD_STEP cannot be read") && !strstr(record->line, "Slurm takes no more options"))
				fail_msg("%s, call %d failing: %s", steps[s], call, record->line);
		}
	}
}

/* slurm.conf can count each hardware thread as a core: then the third of them is not this machine's third core. */
static void cores_are_those_that_slurm_means(void **state)
{
	(void)state;
	strcpy(step_cores, "2-5");
	step_cpus = "1-2,5-6";
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[0].variables, "HVD_CPUS=2,6\n"));
	assert_non_null(strstr(record->task[1].variables, "HVD_CPUS=1,5\n"));
	strcpy(step_cores, "0-15");
	step_cpus = "0-7";
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->task[1].variables, "HVD_CPUS=1,3,5,7\n"));
	step_cpus = NULL;
	strcpy(step_cores, "0-7");
}

/* srun --exclusive: the job has all cores, its step two of each socket, which ConstrainCores=yes holds it to, or not. */
static void cores_of_the_job_that_a_cpuset_denies_are_not_planned_with(void **state)
{
	(void)state;
	strcpy(job_cores, "0-7");
	strcpy(step_cores, "0-1,4-5");
	assert_int_equal(run_step("hide-gpus,whole-job,socket,verbose", 2, 0), 0);
	for (int t = 0; t < 2; t++) {
		assert_true(on_socket(t, &record->task[t].cpus));
		assert_non_null(strstr(record->task[t].variables, "HVD_THREADS=3\n"));
	}
	cpuset = 0x0f;
	assert_int_equal(run_step("hide-gpus,whole-job,socket", 2, 0), 0);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, ": srun --exclusive leaves the step 4 of its job's 8 CPUs: type -c 4"));
	for (int t = 0; t < 2; t++) {
		assert_int_equal(CPU_COUNT(&record->task[t].cpus), 2);
		assert_non_null(strstr(record->task[t].variables, t ? "HVD_CPUS=1,3\n" : "HVD_CPUS=0,2\n"));
		assert_non_null(strstr(record->task[t].variables, t ? "HVD_NUMA=1\n" : "HVD_NUMA=0\n"));
		assert_non_null(strstr(record->task[t].variables, "HVD_THREADS=1\n"));
	}
	/* who typed a -c wants no other */
	spank_setenv(NULL, "SLURM_CPUS_PER_TASK", "2", 1);
	assert_int_equal(run_step("hide-gpus,whole-job,socket", 2, 0), 0);
	spank_unsetenv(NULL, "SLURM_CPUS_PER_TASK");
	assert_int_equal(record->lines, 0);
	/* what there is may be far, and is planned all the same */
	cpuset = 0x55;
	assert_int_equal(run_step("hide-gpus,whole-job,socket", 2, 0), 0);
	assert_non_null(strstr(record->line, "no core on the socket of GPU 0000:1b:00.0"));
	for (int t = 0; t < 2; t++) {
		assert_int_equal(CPU_COUNT(&record->task[t].cpus), 4);
		assert_non_null(strstr(record->task[t].variables, "HVD_NUMA=0\n"));
	}
	assert_int_equal(run_step("by-site,whole-job,socket", 2, 0), 0);
	assert_int_equal(record->lines, 0);
	cpuset = ~0U;
	/* what was tried to find that out is undone where the CPUs are the user's choice */
	assert_int_equal(run_step("hide-gpus,whole-job,keep-cpus,socket", 2, 0), 0);
	for (int t = 0; t < 2; t++) {
		assert_int_equal(CPU_COUNT(&record->task[t].cpus), 1);
		assert_true(CPU_ISSET(!t, &record->task[t].cpus));
	}
	*job_cores = '\0';
	strcpy(step_cores, "0-7");
}

/* Placement only: what ran without us runs with --hvd-bind=none. */
static void the_policy_none_leaves_gpus_where_numbers_differ(void **state)
{
	static const char two[] = "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000003";
	(void)state;
	unsets_visible = true;
	visible = two;
	for (int t = 1; t <= 4; t++) {
		assert_int_equal(run_step("hide-gpus,none", t, 0), 0);
		/* Slurm has bound task 0 to socket 1 */
		assert_non_null(strstr(record->task[0].variables, t == 2 ? "CUDA_VISIBLE_DEVICES=GPU-c0de0000-0000-4000-8000-000000000003\n" : two));
		if (t == 2)
			assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-c0de0000-0000-4000-8000-000000000000\n"));
	}
	/* what the user asks for is another thing */
	assert_int_equal(run_step("hide-gpus,none,share", 4, 0), 0);
	assert_null(strstr(record->task[0].variables, two));
	assert_int_equal(run_step("hide-gpus,none,gpus-per-task=2", 4, 0), 64);
	assert_int_equal(run_step("joined,hide-gpus,none", 4, 0), 64);
	/* who asks to be left alone hears nothing of CPUs that are far */
	strcpy(step_cores, "0");
	assert_int_equal(run_step("hide-gpus,none", 4, 0), 0);
	assert_int_equal(record->lines, 0);
	assert_int_equal(run_step("hide-gpus,none", 2, 0), 0);
	assert_int_equal(record->lines, 0);
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_int_equal(record->lines, 1);
	assert_non_null(strstr(record->line, "--cpus-per-gpu=N"));
	spank_setenv(NULL, "SLURM_CPUS_PER_TASK", "1", 1);
	assert_int_equal(run_step("hide-gpus,socket", 2, 0), 0);
	assert_non_null(strstr(record->line, "with a larger -c, or"));
	spank_unsetenv(NULL, "SLURM_CPUS_PER_TASK");
	strcpy(step_cores, "0-7");
	visible = NULL;
	unsets_visible = false;
}

/* Where slurm.conf has the types of GPUs in another order than gres.conf, Slurm's numbers are not the bus's; what it lets tasks
 * open is right. */
static void gpus_that_tasks_may_open_are_the_steps(void **state)
{
	static const char *const steps[] = { "hide-gpus,socket", "by-site,socket" };
	(void)state;
	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		closed = "0134567";
		assert_int_equal(run_step(steps[s], 1, 0), 0);
		assert_int_equal(record->lines, s ? 0 : 1);
		if (!s)
			assert_non_null(strstr(record->line, "is not this step's, whatever was said of it"));
		assert_non_null(strstr(record->task[0].variables, "CUDA_VISIBLE_DEVICES=GPU-c0de0000-0000-4000-8000-000000000002\n"));
		assert_true(on_socket(0, &record->task[0].cpus));
		closed = "024567"; /* of the first two numbers, 0 and 1, one is right */
		assert_int_equal(run_step(steps[s], 2, 0), 0);
		assert_non_null(strstr(record->task[0].variables, "CUDA_VISIBLE_DEVICES=GPU-c0de0000-0000-4000-8000-000000000001\n"));
		assert_non_null(strstr(record->task[1].variables, "CUDA_VISIBLE_DEVICES=GPU-c0de0000-0000-4000-8000-000000000003\n"));
		assert_true(on_socket(1, &record->task[0].cpus) && on_socket(1, &record->task[1].cpus));
		/* Slurm lets a step open as many as it gives it */
		closed = "014567";
		assert_int_equal(run_step(steps[s], 1, 0), s ? 0 : 70);
		assert_null(strstr(record->task[0].variables, "HVD_")); /* of what was prepared for it */
	}
	/* a name means one GPU only */
	visible = "GPU-c0de0000-0000-4000-8000-000000000000";
	closed = "0134567";
	assert_int_equal(run_step("hide-gpus,socket", 1, 0), 70);
	assert_non_null(strstr(record->line, "which this task may not open"));
	visible = NULL;
	closed = "";
}

/* Unasked, a task that Slurm gives several GPUs keeps them, also where only the task can see which they are, or which CPUs. */
static void unasked_a_task_keeps_all_its_gpus(void **state)
{
	static const char *const names[] = { "GPU-c0de0000-0000-4000-8000-000000000000,GPU-c0de0000-0000-4000-8000-000000000002", "MIG-1b000000,MIG-15000000" };
	static const char *const steps[] = { "by-site,socket", "by-site,socket,keep-cpus" };
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		char all[128];
		visible = names[i / 2];
		snprintf(all, sizeof all, "CUDA_VISIBLE_DEVICES=%s\n", visible);
		assert_int_equal(run_step(steps[i % 2], 1, 0), 0);
		if (!strstr(record->task[0].variables, all))
			fail_msg("%s:\n%s", steps[i % 2], record->task[0].variables);
	}
	/* and is as it would be without us, whatever the site says of other steps */
	visible = names[0];
	assert_int_equal(run_step("by-site,none", 1, 0), 0);
	assert_null(strstr(record->task[0].variables, "HVD_"));
	assert_int_equal(run_step("by-site,socket,gpus-per-task=2", 2, 0), 0);
	assert_null(strstr(record->task[0].variables, "HVD_"));
	visible = NULL;
}

/* Of a step's devices, which all of its tasks may open, Slurm's numbers say which are the task's. */
static void numbers_of_a_task_count_among_what_it_may_open(void **state)
{
	static const char *const numbers[] = { "0", "1", "0,1", "1,0", "2" };
	static const char *const gpus[] = { "0000:21:00.0", "0000:27:00.0", "0000:21:00.0,0000:27:00.0", "0000:21:00.0,0000:27:00.0", "0000:21:00.0,0000:27:00.0" };
	(void)state;
	closed = "014567";
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		char line[64];
		visible = numbers[i];
		assert_int_equal(run_step("keep-gpus,socket", 1, 0), 0);
		snprintf(line, sizeof line, "HVD_GPU=%s\n", gpus[i]);
		if (!strstr(record->task[0].variables, line))
			fail_msg("%s: %s", numbers[i], record->task[0].variables);
		snprintf(line, sizeof line, "CUDA_VISIBLE_DEVICES=%s\n", numbers[i]);
		assert_non_null(strstr(record->task[0].variables, line));
	}
	visible = NULL;
	closed = "";
}

/* A step without our words, a batch script, and an interactive shell are left alone, and all on a node that says never. */
static void other_steps_are_left_alone(void **state)
{
	(void)state;
	assert_int_equal(run_step("", 2, 0), 0);
	assert_false(record->task[0].bound);
	step_id = SLURM_BATCH_SCRIPT;
	assert_int_equal(run_step(words, 2, 0), 0);
	step_id = 0;
	assert_false(record->task[0].bound);
	assert_int_equal(record->loads, 0);
	site_word = "enable=never";
	assert_int_equal(run_step(words, 2, 0), 0);
	site_word = NULL;
	assert_false(record->task[0].bound);
	assert_int_equal(record->loads, 0);
}

int main(void)
{
	const struct CMUnitTest tests_of_steps[] = {
		cmocka_unit_test(every_task_is_bound),
		cmocka_unit_test(variables_do_not_depend_on_how_they_are_written),
		cmocka_unit_test(what_the_user_has_set_stays),
		cmocka_unit_test(ucx_is_told_the_port_with_the_link),
		cmocka_unit_test(tasks_set_no_variable),
		cmocka_unit_test(a_gpu_in_use_is_named_with_its_user),
		cmocka_unit_test(in_a_container_no_library_is_opened),
		cmocka_unit_test(an_instance_is_placed_as_the_gpu_it_is_cut_from),
		cmocka_unit_test(mps_of_slurm_keeps_its_gpu_and_the_users_is_placed),
		cmocka_unit_test(a_list_that_is_not_from_slurm_is_no_gpu),
		cmocka_unit_test(gpus_follow_the_cpus_that_tasks_have),
		cmocka_unit_test(threads_are_a_share_of_the_cores_also_where_slurm_binds_gpus),
		cmocka_unit_test(steps_that_overlap_say_so),
		cmocka_unit_test(a_step_starts_nothing_and_loads_the_topology_once),
		cmocka_unit_test(the_environment_is_left_without_text_of_hwloc),
		cmocka_unit_test(no_failing_call_does_harm),
		cmocka_unit_test(a_default_of_the_site_never_speaks),
		cmocka_unit_test(cores_are_those_that_slurm_means),
		cmocka_unit_test(cores_of_the_job_that_a_cpuset_denies_are_not_planned_with),
		cmocka_unit_test(the_policy_none_leaves_gpus_where_numbers_differ),
		cmocka_unit_test(gpus_that_tasks_may_open_are_the_steps),
		cmocka_unit_test(unasked_a_task_keeps_all_its_gpus),
		cmocka_unit_test(numbers_of_a_task_count_among_what_it_may_open),
		cmocka_unit_test(other_steps_are_left_alone),
	};
	return cmocka_run_group_tests(tests_of_steps, make_machine_files, remove_machine_files);
}
