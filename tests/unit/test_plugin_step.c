/* SPDX-License-Identifier: Apache-2.0
 * The plugin on a node, without Slurm: this program plays slurmstepd. It counts what the plugin starts and loads, and
 * makes each call that the plugin makes fail in turn. */
#include "test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

enum { TASKS_MAX = 8, NAMES = 64, VALUE = 2048, TEXT = 8192, BROKEN = 3000 };

/* What came of one task. */
struct outcome {
	int rc;            /* of slurm_spank_task_init; -1 until it returns */
	char variables[TEXT];
	cpu_set_t cpus;
	bool bound;        /* sched_setaffinity was called and took */
};

/* Shared by the processes of one step. */
static struct record {
	int init_rc, user_rc, calls, loads, starts, lines;
	char line[512];    /* the last one */
	struct outcome task[TASKS_MAX];
} *record;

static int tasks, local_task, fail_at; /* fail_at: which call fails, 0 none */
static uint32_t step_id;
static bool armed;                     /* calls are the plugin's, not this program's */
static struct { char name[64], value[VALUE]; } variable[NAMES];
static struct outcome *now;            /* of the task that this process is */
static char dir[1024];

/* ---- Slurm --------------------------------------------------------------------------------------- */

int slurm_spank_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_user_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_task_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_exit(spank_t spank, int argc, char *argv[]);

/* True for the one call that is to fail. */
static bool fails(void)
{
	if (!armed || ++record->calls != fail_at)
		return false;
	errno = EIO;
	return true;
}

static void keep_line(const char *format, va_list args)
{
	vsnprintf(record->line, sizeof record->line, format, args);
	if (getenv("TEST_SHOW"))
		print_message("# %s\n", record->line);
	record->lines++;
}

void slurm_error(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	keep_line(format, args);
	va_end(args);
}

void slurm_spank_log(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	keep_line(format, args);
	va_end(args);
}

spank_context_t spank_context(void)
{
	return S_CTX_REMOTE;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank, (void)option;
	return fails() ? (spank_err_t)BROKEN : ESPANK_SUCCESS;
}

static int find(const char *name)
{
	for (int i = 0; i < NAMES; i++)
		if (!strcmp(variable[i].name, name))
			return i;
	return -1;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	int i = find(name);
	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	if (i >= 0 && !overwrite)
		return ESPANK_ENV_EXISTS;
	i = i >= 0 ? i : find("");
	snprintf(variable[i].name, sizeof variable[i].name, "%s", name);
	snprintf(variable[i].value, sizeof variable[i].value, "%s", value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	int i = find(name);
	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	if (i >= 0)
		variable[i].name[0] = '\0';
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buf, int size)
{
	int i = find(name);
	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	if (i < 0)
		return ESPANK_ENV_NOEXIST;
	if (strlen(variable[i].value) >= (size_t)size)
		return ESPANK_NOSPACE;
	strcpy(buf, variable[i].value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	static char cores[] = "0-7";
	uint32_t local = 0;
	va_list args;

	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	va_start(args, item);
	if (item == S_JOB_LOCAL_TO_GLOBAL_ID)
		local = va_arg(args, uint32_t);
	void *out = va_arg(args, void *);
	va_end(args);
	switch (item) {
	case S_JOB_STEPID: *(uint32_t *)out = step_id; break;
	case S_JOB_LOCAL_TASK_COUNT: *(uint32_t *)out = (uint32_t)tasks; break;
	case S_JOB_LOCAL_TO_GLOBAL_ID: *(uint32_t *)out = local; break;
	case S_TASK_ID: *(int *)out = local_task; break;
	case S_JOB_ALLOC_CORES:
	case S_STEP_ALLOC_CORES: *(char **)out = cores; break;
	default: return ESPANK_BAD_ARG;
	}
	return ESPANK_SUCCESS;
}

/* ---- the system ---------------------------------------------------------------------------------- */

/* The linker sends the plugin's calls here (Makefile, PLUGIN_WRAPS). */
#define WRAP(type, name, failure, parameters, arguments) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		return fails() ? failure : __real_##name arguments; \
	}

WRAP(void *, malloc, NULL, (size_t n), (n))
WRAP(void *, calloc, NULL, (size_t n, size_t m), (n, m))
WRAP(int, open, -1, (const char *path, int flags), (path, flags))
WRAP(int, openat, -1, (int at, const char *path, int flags), (at, path, flags))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP(int, fstat, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, stat, -1, (const char *path, struct stat *st), (path, st))
WRAP(ssize_t, read, -1, (int fd, void *buf, size_t n), (fd, buf, n))
WRAP(int, gethostname, -1, (char *name, size_t n), (name, n))
WRAP(int, access, -1, (const char *path, int mode), (path, mode))
WRAP(void *, dlopen, NULL, (const char *name, int mode), (name, mode))

static int (*load_topology)(void *);

static int count_load(void *topology)
{
	record->loads++;
	return fails() ? -1 : load_topology(topology);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	void *symbol = fails() ? NULL : __real_dlsym(library, name), *counting = NULL;
	int (*count)(void *) = count_load;
	if (!symbol || strcmp(name, "hwloc_topology_load"))
		return symbol;
	memcpy(&load_topology, &symbol, sizeof symbol);
	memcpy(&counting, &count, sizeof counting);
	return counting;
}

/* The step is on a machine that this one is not: its binding is recorded, not done. */
int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set);
int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
	(void)pid;
	if (fails())
		return -1;
	memcpy(&now->cpus, set, size < sizeof now->cpus ? size : sizeof now->cpus);
	now->bound = true;
	return 0;
}

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	(void)pid;
	if (fails())
		return -1;
	memset(set, 0, size);
	memcpy(set, &now->cpus, size < sizeof now->cpus ? size : sizeof now->cpus);
	return 0;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	(void)number;
	return fails() ? -1 : 0;
}

/* ---- a step -------------------------------------------------------------------------------------- */

static void task(int local)
{
	local_task = local;
	now = &record->task[local];
	armed = true;
	int rc = slurm_spank_task_init((spank_t)variable, 0, NULL);
	armed = false;
	for (int i = 0; i < NAMES; i++)
		if (variable[i].name[0])
			snprintf(now->variables + strlen(now->variables), TEXT - strlen(now->variables), "%s=%s\n", variable[i].name, variable[i].value);
	now->rc = rc;
}

static void start(const char *wishes)
{
	char topology[1100], proc[1100], *argv[] = { topology, proc };

	snprintf(topology, sizeof topology, "topology=%s/topology.xml", dir);
	snprintf(proc, sizeof proc, "proc=%s/proc", dir);
	spank_setenv(NULL, "SLURM_HVD_STEP", wishes, 1);
	spank_setenv(NULL, "SLURM_CPU_BIND_TYPE", "mask_cpu:", 1);
	spank_setenv(NULL, "SLURM_CPU_BIND_LIST", "0x2,0x1", 1);
	spank_setenv(NULL, "SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7", 1);
	spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7", 1);
	variable[find("SLURM_STEP_GPUS")].value[2 * tasks - 1] = '\0';
	variable[find("CUDA_VISIBLE_DEVICES")].value[2 * tasks - 1] = '\0';
	armed = true;
	record->init_rc = slurm_spank_init((spank_t)variable, 2, argv);
	record->user_rc = slurm_spank_user_init((spank_t)variable, 2, argv);
	armed = false;
}

/* A whole step in processes of its own, as Slurm has it. Returns the status of the worst task. */
static int run_step(const char *wishes, int count, int call_to_fail)
{
	int status, worst = 0;
	pid_t stepd;

	memset(record, 0, sizeof *record);
	for (int t = 0; t < TASKS_MAX; t++)
		record->task[t].rc = -1;
	tasks = count;
	fail_at = call_to_fail;
	fflush(NULL);
	if ((stepd = fork()) == 0) {
		start(wishes);
		for (int t = 0; t < count; t++) {
			pid_t pid = fork();
			if (!pid) {
				task(t);
				_exit(0);
			}
			if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
				_exit(255); /* a task died of a signal */
			worst = WEXITSTATUS(status) > worst ? WEXITSTATUS(status) : worst;
		}
		armed = true;
		slurm_spank_exit((spank_t)variable, 0, NULL);
		_exit(worst);
	}
	assert_int_equal(waitpid(stepd, &status, 0), stepd);
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 255)
		fail_msg("with call %d failing: a process died of a signal", call_to_fail);
	return WEXITSTATUS(status);
}

static int make_machine_files(void **state)
{
	char command[2600];
	(void)state;
	const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
	char *here = build[0] == '/' ? NULL : getcwd(NULL, 0);
	snprintf(dir, sizeof dir, "%s%s%s/tests/tmp/step.%d", here ? here : "", here ? "/" : "", build, (int)getpid());
	free(here);
	snprintf(command, sizeof command, "mkdir -p '%s' && contrib/cluster/make_inventory cores=4 gpus=8 gpu_order=interleave core_order=interleave numa=package '%s'", dir, dir);
	record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return record == MAP_FAILED || system(command) ? -1 : 0;
}

static int remove_machine_files(void **state)
{
	char command[1100];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) ? -1 : 0;
}

/* ---- what is shown ------------------------------------------------------------------------------- */

static const char words[] = "on,hide-gpus,socket,verbose";

static void every_task_is_bound(void **state)
{
	(void)state;
	assert_int_equal(run_step(words, 4, 0), 0);
	for (int t = 0; t < 4; t++) {
		const struct outcome *o = &record->task[t];
		assert_int_equal(o->rc, 0);
		assert_true(o->bound);
		/* even CPUs are socket 0, odd ones socket 1; GPUs alternate */
		for (int cpu = 0; cpu < 8; cpu++)
			assert_int_equal(CPU_ISSET(cpu, &o->cpus), cpu % 2 == t % 2);
		assert_non_null(strstr(o->variables, "CUDA_VISIBLE_DEVICES=GPU-"));
		assert_null(strstr(o->variables, "SLURM_HVD_STEP"));
	}
	assert_string_not_equal(record->task[0].variables, record->task[1].variables);
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
			slurm_spank_exit((spank_t)variable, 0, NULL);
		} else {
			fork();
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) == 0;
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

static bool same(const struct outcome *a, const struct outcome *b)
{
	return a->rc == b->rc && a->bound == b->bound && CPU_EQUAL(&a->cpus, &b->cpus) && !strcmp(a->variables, b->variables);
}

/* Whatever fails, the node's part returns 0, so that Slurm drains nothing; a task is as it should be, or there is a
 * line, or it has ended with a status that says why. */
static void no_failing_call_does_harm(void **state)
{
	static const char *const steps[] = { "on,hide-gpus,socket", "hide-gpus,gpu,nic=hint", "on,keep-cpus,socket", "keep-gpus,numa" };
	static struct outcome good[2];
	(void)state;

	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		int ended = 0;
		assert_int_equal(run_step(steps[s], 2, 0), 0);
		int usual_lines = record->lines, calls = record->calls;
		memcpy(good, record->task, sizeof good);
		assert_true(calls > 60);
		for (int call = 1; call <= calls; call++) {
			int status = run_step(steps[s], 2, call);
			assert_int_equal(record->init_rc, 0);
			assert_int_equal(record->user_rc, 0);
			bool told = record->lines > usual_lines, all_same = same(&record->task[0], &good[0]) && same(&record->task[1], &good[1]);
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
	(void)state;
	assert_int_equal(run_step("by-site,socket", 2, 0), 0);
	assert_true(record->task[1].bound);
	for (int call = 1, calls = record->calls; call <= calls; call++) {
		assert_int_equal(run_step("by-site,socket", 2, call), 0);
		assert_int_equal(record->user_rc, 0);
		for (int t = 0; t < 2; t++)
			assert_int_equal(record->task[t].rc, 0);
	}
}

/* A step without our words, a batch script, and an interactive shell are left alone. */
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
}

int main(void)
{
	const struct CMUnitTest tests_of_steps[] = {
		cmocka_unit_test(every_task_is_bound),
		cmocka_unit_test(a_step_starts_nothing_and_loads_the_topology_once),
		cmocka_unit_test(no_failing_call_does_harm),
		cmocka_unit_test(a_default_of_the_site_never_speaks),
		cmocka_unit_test(other_steps_are_left_alone),
	};
	return cmocka_run_group_tests(tests_of_steps, make_machine_files, remove_machine_files);
}
