/* SPDX-License-Identifier: Apache-2.0
 * A node without Slurm: the test program plays slurmstepd, with its functions, its environment and its processes. It
 * counts what the plugin loads, and makes the call fail that a test wants to fail. */
#ifndef TESTS_PLUGIN_HOST_H
#define TESTS_PLUGIN_HOST_H

#include "test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

enum { TASKS_MAX = 8, NAMES = 64, VALUE = 32768, TEXT = 8192, BROKEN = 3000 };

/* What srun --hvd --hvd-bind=socket,verbose tells the nodes of a step. */
static const char words[] = "joined,hide-gpus,socket,verbose";

/* What came of one task. */
struct outcome {
	int rc;            /* of slurm_spank_task_init; -1 until it returns */
	char variables[TEXT];
	cpu_set_t cpus;
	bool bound;        /* sched_setaffinity was called and took */
	int sets;          /* calls of spank_setenv */
};

/* Shared by the processes of one step. */
static struct record {
	int init_rc, user_rc, calls, loads, starts, lines, kills;
	int put;           /* variables that hwloc would have left in the environment */
	char line[512];    /* the last one */
	struct outcome task[TASKS_MAX];
} *record;

static int tasks, local_task, fail_at; /* fail_at: which call fails, 0 none */
static uint32_t step_id, step_nodes = 1, step_node, step_tasks; /* the whole step's; 0 tasks: Slurm does not say */
static int confined = -1;              /* the local task that may open no GPU */
static const char *closed = "";        /* N of each /dev/nvidiaN that no task may open */
static char step_cores[16] = "0-7";    /* as Slurm counts them */
static char job_cores[16];              /* the job's; empty: the same */
static const char *step_cpus;          /* what slurmstepd makes of its cores; NULL: it has no such function */
static const char *visible;            /* CUDA_VISIBLE_DEVICES as Slurm sets it; NULL: the numbers of the first GPUs */
static char *site_word;                 /* one more of plugstack.conf's */
static bool without_gres;               /* a node without gres/gpu: that variable is not Slurm's */
static unsigned cpuset = ~0U;           /* CPUs that a cpuset leaves the tasks, a bit each */
static bool armed;                     /* calls are the plugin's, not this program's */
static char entries[NAMES][VALUE];      /* "NAME=value"; empty: free */
static char *environment[NAMES + 1];   /* those that are used: what S_JOB_ENV shows */
static const char *bind_type = "rank";  /* SLURM_CPU_BIND_TYPE */
static bool spread_out;                 /* Slurm has bound the first half of the tasks to CPU 1, the others to CPU 0; else in turn */
static bool unsets_visible;            /* as Slurm up to 23.02 does in a task with --gpu-bind=none */
static bool binds_gpus;                 /* as Slurm does with --gpu-bind=single:1 */
static bool shows_a_copy;              /* S_JOB_ENV shows a copy of it */
static bool in_container;              /* a plugin before this one, such as pyxis, has put the task into a user namespace */
static struct outcome *now;            /* of the task that this process is */
static char dir[1024];

/* ---- Slurm --------------------------------------------------------------------------------------- */

int slurm_spank_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_user_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_task_post_fork(spank_t spank, int argc, char *argv[]);
int slurm_spank_task_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_task_exit(spank_t spank, int argc, char *argv[]);
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

/* Position in environment[], or -1. */
static int find(const char *name)
{
	size_t n = strlen(name);
	for (int i = 0; environment[i]; i++)
		if (!strncmp(environment[i], name, n) && environment[i][n] == '=')
			return i;
	return -1;
}

static const char *value_of(const char *name)
{
	int i = find(name);
	return i < 0 ? NULL : strchr(environment[i], '=') + 1;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	int i = find(name), e = 0;
	(void)spank;
	if (armed && now)
		now->sets++;
	if (fails())
		return (spank_err_t)BROKEN;
	if (i >= 0 && !overwrite)
		return ESPANK_ENV_EXISTS;
	while (i < 0 && e < NAMES - 1 && entries[e][0])
		e++;
	for (int last = 0; i < 0; last++)
		if (!environment[last]) {
			environment[last] = entries[e];
			i = last;
		}
	snprintf(environment[i], VALUE, "%s=%s", name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	int i = find(name);
	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	if (i >= 0)
		environment[i][0] = '\0';
	for (; i >= 0 && environment[i]; i++)
		environment[i] = environment[i + 1];
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buf, int size)
{
	const char *value = value_of(name);
	(void)spank;
	if (fails())
		return (spank_err_t)BROKEN;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	if (strlen(value) >= (size_t)size)
		return ESPANK_NOSPACE;
	strcpy(buf, value);
	return ESPANK_SUCCESS;
}

static char **shown_environment(void)
{
	static char copies[NAMES][VALUE], *copy[NAMES + 1];
	for (int i = 0; i <= NAMES; i++)
		copy[i] = environment[i] ? memcpy(copies[i], environment[i], VALUE) : NULL;
	return shows_a_copy ? copy : environment;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
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
	case S_JOB_ID: *(uint32_t *)out = 42; break;
	case S_JOB_NODEID: *(uint32_t *)out = step_node; break;
	case S_JOB_NNODES: *(uint32_t *)out = step_nodes; break;
	case S_JOB_TOTAL_TASK_COUNT: *(uint32_t *)out = step_tasks; break;
	case S_JOB_STEPID: *(uint32_t *)out = step_id; break;
	case S_JOB_LOCAL_TASK_COUNT: *(uint32_t *)out = (uint32_t)tasks; break;
	case S_JOB_LOCAL_TO_GLOBAL_ID: *(uint32_t *)out = local; break;
	case S_JOB_ENV: *(char ***)out = shown_environment(); break;
	case S_TASK_ID: *(int *)out = local_task; break;
	case S_TASK_PID: *(pid_t *)out = 1; break;
	case S_JOB_ALLOC_CORES: *(char **)out = *job_cores ? job_cores : step_cores; break;
	case S_STEP_ALLOC_CORES: *(char **)out = step_cores; break;
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
WRAP(char *, strdup, NULL, (const char *text), (text))
WRAP(int, open, -1, (const char *path, int flags), (path, flags))
WRAP(int, openat, -1, (int at, const char *path, int flags), (at, path, flags))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP(int, fstat, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, stat, -1, (const char *path, struct stat *st), (path, st))
WRAP(ssize_t, read, -1, (int fd, void *buf, size_t n), (fd, buf, n))
WRAP(int, gethostname, -1, (char *name, size_t n), (name, n))

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
	if (fails())
		return -1;
	if (!now || (local_task != confined && !strchr(closed, path[strlen(path) - 1])))
		return __real_access(path, mode);
	errno = EPERM;
	return -1;
}

/* ---- the NVIDIA driver --------------------------------------------------------------------------- */

static bool driver_answers;
static char driver; /* the handle of its library */

static int answer(void)
{
	return 0;
}

/* GPUs are pointers to their bus number, instances have 0x100 added to it; their names begin with it: "MIG-1b000000". */
static int by_address(const char *address, void **device)
{
	*device = (void *)(uintptr_t)strtoul(address + 5, NULL, 16);
	return 0;
}

static int by_uuid(const char *uuid, void **device)
{
	*device = (void *)(uintptr_t)(strtoul(uuid + 4, NULL, 16) >> 24 | 0x100);
	return 0;
}

static int parent(void *instance, void **device)
{
	*device = (void *)((uintptr_t)instance & 0xff);
	return 0;
}

static int pci_info(void *device, void *info)
{
	sprintf((char *)info + 36, "00000000:%02X:00.0", (unsigned)(uintptr_t)device);
	return 0;
}

/* On GPU 15 somebody else and a task of this step; nobody on the others. */
static int processes(void *device, unsigned *count, void *info)
{
	struct { unsigned pid; unsigned long long memory; unsigned parts[2]; } *p = info;
	if ((uintptr_t)device != 0x15) {
		*count = 0;
		return 0;
	}
	*count = 2;
	p[0].pid = 1;
	p[0].memory = 3ULL << 30;
	p[1].pid = (unsigned)getppid();
	p[1].memory = ~0ULL;
	return 0;
}

static void *driver_symbol(const char *name)
{
	static const struct { const char *name; void *function; } symbols[] = {
		{ "nvmlInit_v2", answer }, { "nvmlShutdown", answer }, { "nvmlDeviceGetHandleByPciBusId_v2", by_address },
		{ "nvmlDeviceGetHandleByUUID", by_uuid }, { "nvmlDeviceGetComputeRunningProcesses_v3", processes },
		{ "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", parent }, { "nvmlDeviceGetPciInfo_v3", pci_info },
	};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
		if (!strcmp(symbols[i].name, name))
			return symbols[i].function;
	return NULL;
}

/* This machine's own driver is never asked. */
void *__real_dlopen(const char *name, int mode);
void *__wrap_dlopen(const char *name, int mode);
void *__wrap_dlopen(const char *name, int mode)
{
	if (fails())
		return NULL;
	record->put += !strncmp(name, "libhwloc", 8) && !getenv("ZES_ENABLE_SYSMAN"); /* as hwloc 2.7 does */
	return strcmp(name, "libnvidia-ml.so.1") ? __real_dlopen(name, mode) : driver_answers ? &driver : NULL;
}

int __real_dlclose(void *library);
int __wrap_dlclose(void *library);
int __wrap_dlclose(void *library)
{
	return library == &driver ? 0 : __real_dlclose(library);
}

/* ---- topology loads and binding ------------------------------------------------------------------ */

static int (*load_topology)(void *);

static int count_load(void *topology)
{
	record->loads++;
	return fails() ? -1 : load_topology(topology);
}

/* slurm_kill_job_step(), whose parameters are others in each release. */
static int count_kill(void)
{
	record->kills++;
	return 0;
}

/* slurmstepd's own translation of a list of cores. */
static int translate_cores(char *cores, char **cpus)
{
	assert_string_equal(cores, step_cores);
	*cpus = step_cpus ? strdup(step_cpus) : NULL;
	return *cpus ? 0 : -1;
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	const bool fails_now = fails();
	void *symbol = fails_now ? NULL : library == &driver ? driver_symbol(name) : __real_dlsym(library, name), *counting = NULL;
	int (*count)(void *) = count_load, (*kill_step)(void) = count_kill, (*translate)(char *, char **) = translate_cores;
	if (!fails_now && !strcmp(name, "slurm_kill_job_step")) {
		memcpy(&counting, &kill_step, sizeof counting);
		return counting;
	}
	if (!fails_now && step_cpus && !strcmp(name, "xcpuinfo_abs_to_mac")) {
		memcpy(&counting, &translate, sizeof counting);
		return counting;
	}
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
	cpu_set_t left;
	(void)pid;
	if (fails())
		return -1;
	CPU_ZERO(&left);
	for (int cpu = 0; cpu < 8; cpu++)
		if (CPU_ISSET_S(cpu, size, set) && cpuset >> cpu & 1)
			CPU_SET(cpu, &left);
	if (!CPU_COUNT(&left)) {
		errno = EINVAL;
		return -1;
	}
	now->cpus = left;
	now->bound = true;
	return 0;
}

/* Where Slurm has bound a task. */
static int bound_cpu(int local)
{
	return spread_out ? local < tasks / 2 : local % 2 == 0;
}

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	if (fails())
		return -1;
	memset(set, 0, size);
	if (pid)
		CPU_SET_S(bound_cpu(local_task), size, set);
	else
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

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void task(int local)
{
	int n = 0;

	local_task = local;
	now = &record->task[local];
	CPU_SET(bound_cpu(local), &now->cpus);
	if (unsets_visible)
		spank_unsetenv(NULL, "CUDA_VISIBLE_DEVICES");
	if (binds_gpus)
		spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", (char[]){ (char)('0' + local), '\0' }, 1);
	if (in_container && unshare(CLONE_NEWUSER))
		_exit(1);
	armed = true;
	int rc = slurm_spank_task_init((spank_t)environment, 0, NULL);
	armed = false;
	while (environment[n])
		n++;
	qsort(environment, (size_t)n, sizeof *environment, by_text);
	for (int i = 0; i < n; i++)
		snprintf(now->variables + strlen(now->variables), TEXT - strlen(now->variables), "%s\n", environment[i]);
	now->rc = rc;
}

static void start(const char *wishes)
{
	char topology[1100], proc[1100], *argv[] = { topology, proc, site_word }, gpus[] = "0,1,2,3,4,5,6,7";

	gpus[2 * tasks - 1] = '\0';
	snprintf(topology, sizeof topology, "topology=%s/topology.xml", dir);
	snprintf(proc, sizeof proc, "proc=%s/proc", dir);
	spank_setenv(NULL, "SLURM_HVD_STEP", wishes, 1);
	spank_setenv(NULL, "SLURM_CPU_BIND_TYPE", bind_type, 1);
	if (!without_gres)
		spank_setenv(NULL, "SLURM_STEP_GPUS", gpus, 1);
	spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", visible ? visible : gpus, 1);
	armed = true;
	record->init_rc = slurm_spank_init((spank_t)environment, 2 + (site_word != NULL), argv);
	record->user_rc = slurm_spank_user_init((spank_t)environment, 2 + (site_word != NULL), argv);
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
		pid_t pid[TASKS_MAX];
		int go[TASKS_MAX][2];
		char word;
		start(wishes);
		for (int t = 0; t < count; t++)
			if (pipe(go[t]) || !(pid[t] = fork())) {
				if (__real_read(go[t][0], &word, 1) == 1)
					task(t);
				_exit(0);
			}
		for (local_task = 0; local_task < count; local_task++) {
			armed = true;
			slurm_spank_task_post_fork((spank_t)environment, 0, NULL);
			armed = false;
		}
		for (int t = 0; t < count; t++) {
			if (write(go[t][1], "", 1) != 1 || waitpid(pid[t], &status, 0) != pid[t] || !WIFEXITED(status))
				_exit(255); /* a task died of a signal */
			worst = WEXITSTATUS(status) > worst ? WEXITSTATUS(status) : worst;
			armed = true;
			slurm_spank_task_exit((spank_t)environment, 0, NULL);
			armed = false;
		}
		armed = true;
		slurm_spank_exit((spank_t)environment, 0, NULL);
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

#endif
