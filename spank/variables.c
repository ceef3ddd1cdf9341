/* SPDX-License-Identifier: Apache-2.0 */
#include "variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "plugin.h"
#include "step.h"
#include "text.h"

enum variable { POLICY, CPUS, NUMA, THREADS, OPENMP, NIC, NCCL_NIC, UCX_NIC, GPU, VISIBLE, DEVICE_ORDER, VARIABLES };

enum { ROOM_TO_CHANGE = 64 /* bytes that a text may grow by where each task makes its own plan */ };

static const struct {
	const char *name;
	const char *room;  /* the entry that is prepared, where it is another: a longer name, and so with room for any text */
	bool default_only; /* the user's own value stays */
} variables[VARIABLES] = {
	[POLICY] = { "HVD_POLICY", NULL, false },
	[CPUS] = { "HVD_CPUS", NULL, false },
	[NUMA] = { "HVD_NUMA", NULL, false },
	[THREADS] = { "HVD_THREADS", NULL, false },
	[OPENMP] = { "OMP_NUM_THREADS", NULL, true },
	[NIC] = { "HVD_NIC", NULL, false },
	[NCCL_NIC] = { "NCCL_IB_HCA", NULL, true },
	[UCX_NIC] = { "UCX_NET_DEVICES", NULL, true },
	[GPU] = { "HVD_GPU", NULL, false },
	/* Slurm sets or removes this one in every task, between the fork and us */
	[VISIBLE] = { "CUDA_VISIBLE_DEVICES", "SLURM_HVD_VISIBLE_DEVICES", false },
	[DEVICE_ORDER] = { "CUDA_DEVICE_ORDER", NULL, false },
};

static struct {
	int tasks;
	char *(*text)[VARIABLES];  /* [tasks] NULL: the task does not get that variable */
	bool ready[VARIABLES];     /* its room is in the environment, large enough for any task's text */
	bool users_own[VARIABLES]; /* the user has set it */
	bool is_copy;              /* Slurm shows a copy of the environment: writing to it is in vain */
} prepared;

static const char *room_of(int v)
{
	return variables[v].room ? variables[v].room : variables[v].name;
}

/* ---- texts --------------------------------------------------------------------------------------- */

_Static_assert(TASK_MAX_DEVICES * DEVICE_TOKEN <= CPULIST_TEXT, "a list of devices has room where a list of CPUs has");

static const char *devices_text(const struct task_plan *task, bool tokens, char *buf)
{
	size_t at = 0;
	for (int i = 0; i < task->devices; i++)
		at += (size_t)snprintf(buf + at, CPULIST_TEXT - at, "%s%s", i ? "," : "",
			tokens ? step.devices.token[task->device[i]] : device_pci(step.node, step.request, task->device[i]));
	return task->devices ? buf : NULL;
}

static const char *nic_text(const struct task_plan *task, bool hint, const char *begin, char *buf)
{
	/* a different NCCL_IB_HCA per rank narrows NCCL's own search: on request only, and never several GPUs to one card */
	if (task->nic < 0 || (hint && (!step.options.nic_hint || task->devices > 1)))
		return NULL;
	snprintf(buf, CPULIST_TEXT, "%s%s", begin, step.node->nic[task->nic].name);
	return buf;
}

/* UCX wants a port as well. */
static const char *nic_port_text(const struct task_plan *task, char *buf)
{
	if (!nic_text(task, true, "", buf))
		return NULL;
	const size_t length = strlen(buf);
	snprintf(buf + length, CPULIST_TEXT - length, ":%d", step.node->nic[task->nic].port);
	return buf;
}

/* The variable's text for this task, in buf (CPULIST_TEXT bytes) or constant; NULL: the task does not get it. */
static const char *text_of(enum variable v, const struct task_plan *task, const struct cpuset *cpus, char *buf)
{
	static const char *const policy[] = { "socket", "numa", "gpu", "none" };

	switch (v) {
	case POLICY:
		return policy[step.options.policy];
	case CPUS:
		return cpulist_print(cpus, buf, CPULIST_TEXT);
	case NUMA:
		return cpuset_empty(&task->numa) ? NULL : cpulist_print(&task->numa, buf, CPULIST_TEXT);
	case THREADS:
	case OPENMP:
		snprintf(buf, CPULIST_TEXT, "%d", task->threads);
		return buf;
	case NIC:
		return nic_text(task, false, "", buf);
	case NCCL_NIC: /* without the = it would be all cards whose names begin so: mlx5_1, mlx5_10, mlx5_11 */
		return nic_text(task, true, "=", buf);
	case UCX_NIC:
		return nic_port_text(task, buf);
	case GPU:
		return devices_text(task, false, buf);
	case VISIBLE:
		if (step.options.keep_gpus) /* with hide-gpus some releases unset it in every task */
			return step.options.hide_gpus && *step.visible ? step.visible : NULL;
		return devices_text(task, true, buf);
	case DEVICE_ORDER:
		return task->devices && step.devices.by_index && !step.options.keep_gpus ? "PCI_BUS_ID" : NULL;
	case VARIABLES:
		break;
	}
	return NULL;
}

/* ---- in slurmstepd ------------------------------------------------------------------------------- */

static int keep_texts(void)
{
	char buf[CPULIST_TEXT];

	prepared.text = calloc((size_t)step.plan.tasks, sizeof *prepared.text);
	prepared.tasks = prepared.text ? step.plan.tasks : 0;
	for (int t = 0; t < prepared.tasks; t++)
		for (int v = 0; v < VARIABLES; v++) {
			const struct task_plan *task = &step.plan.task[t];
			const char *text = text_of((enum variable)v, task, cpuset_empty(&task->cpus) ? &step.request->allowed : &task->cpus, buf);
			if (text && !(prepared.text[t][v] = strdup(text)))
				return -1;
		}
	return prepared.text ? 0 : -1;
}

static const char *longest_text(int v)
{
	const char *longest = NULL;
	for (int t = 0; t < prepared.tasks; t++) {
		const char *text = prepared.text[t][v];
		if (text && (!longest || strlen(text) > strlen(longest)))
			longest = text;
	}
	return longest;
}

/* Whether a task that makes its own plan may get a variable that the plan before the fork gives to none. */
static bool may_be_given(enum variable v)
{
	switch (v) {
	case CPUS:
	case NUMA:
		return true;
	case NIC:
		return step.node->nics > 0;
	case NCCL_NIC:
	case UCX_NIC:
		return step.node->nics > 0 && step.options.nic_hint;
	default:
		return false;
	}
}

/* What an entry is made with: as long as any task's text, longer where that is not known yet; NULL: no task gets the variable. */
static const char *room_text(int v)
{
	static char room[CPULIST_TEXT];
	const char *longest = longest_text(v);

	if (!step.per_task || (!longest && !may_be_given((enum variable)v)))
		return longest;
	size_t length = longest ? strlen(longest) : 0;
	/* a task that --gpu-bind=none leaves alone has all GPUs of the step */
	length = v == GPU ? (size_t)step.request->devices * (length + 1) : length + ROOM_TO_CHANGE;
	length = length < sizeof room ? length : sizeof room - 1;
	memset(room, '?', length);
	room[length] = '\0';
	return room;
}

static bool is_named(const char *entry, const char *name)
{
	while (*name && *entry == *name) {
		entry++;
		name++;
	}
	return !*name && *entry == '=';
}

/* The prepared entries of the job's environment; after the fork each task has its own. They were added last. */
static void find_rooms(spank_t spank, char *room[VARIABLES])
{
	char **environment = NULL;
	int missing = 0, n = 0;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || !environment)
		return;
	while (environment[n])
		n++;
	for (int v = 0; v < VARIABLES; v++)
		missing += prepared.ready[v];
	while (missing > 0 && --n >= 0)
		for (int v = 0; v < VARIABLES; v++)
			if (prepared.ready[v] && !room[v] && is_named(environment[n], room_of(v))) {
				room[v] = environment[n];
				missing--;
			}
}

/* Whether Slurm reads back what is written into the environment that it shows; else that is a copy. */
static bool is_read_back(spank_t spank)
{
	static char now[CPULIST_TEXT];
	char *room[VARIABLES] = { NULL }, first;

	find_rooms(spank, room);
	if (!room[THREADS])
		return false;
	char *text = room[THREADS] + sizeof "HVD_THREADS=" - 1;
	first = *text;
	*text = first == '?' ? '!' : '?';
	bool seen = spank_getenv(spank, "HVD_THREADS", now, sizeof now) == ESPANK_SUCCESS && *now == *text;
	*text = first;
	return seen;
}

static bool set(spank_t spank, const char *name, const char *text, bool default_only, bool *users_own)
{
	spank_err_t rc = spank_setenv(spank, name, text, !default_only);
	*users_own = rc == ESPANK_ENV_EXISTS;
	return rc == ESPANK_SUCCESS || (default_only && *users_own);
}

struct export {
	spank_t spank;
	bool failed;
	struct text ours; /* without those that the user had set to the same */
};

static void export_key(const char *name, const char *value, void *data)
{
	static char own[LONG_VALUE];
	struct export *e = data;

	if (spank_getenv(e->spank, name, own, sizeof own) != ESPANK_SUCCESS || strcmp(own, value))
		text_add(&e->ours, "%s%s=%s", e->ours.used ? "," : "", name, value);
	e->failed |= spank_setenv(e->spank, name, value, 1) != ESPANK_SUCCESS;
}

void variables_prepare(spank_t spank)
{
	char ours[4096] = "";
	struct export e = { spank, false, { ours, sizeof ours, 0 } };

	if (keep_texts()) {
		step_fail(EXIT_INTERNAL, "out of memory");
		return;
	}
	for (int v = 0; v < VARIABLES; v++) {
		const char *text = room_text(v);
		if (!text)
			continue;
		e.failed |= !set(spank, room_of(v), text, variables[v].default_only, &prepared.users_own[v]);
		prepared.ready[v] = !prepared.users_own[v];
	}
	prepared.is_copy = !is_read_back(spank);
	if (step.options.hvd)
		options_export(&step.options, export_key, &e);
	if (*ours)
		e.failed |= spank_setenv(spank, KEYS_VARIABLE, ours, 1) != ESPANK_SUCCESS;
	/* what must not reach a step that a task may start */
	e.failed |= step.options.hide_gpus && (spank_unsetenv(spank, "SLURM_GPU_BIND") != ESPANK_SUCCESS || spank_unsetenv(spank, "SLURM_TRES_BIND") != ESPANK_SUCCESS);
	e.failed |= step.options.own_gres && spank_unsetenv(spank, "SLURM_GRES") != ESPANK_SUCCESS;
	if (e.failed)
		step_fail(EXIT_INTERNAL, "a variable cannot be set for the tasks");
}

void variables_free(void)
{
	for (int t = 0; t < prepared.tasks; t++)
		for (int v = 0; v < VARIABLES; v++)
			free(prepared.text[t][v]);
	free(prepared.text);
	prepared.text = NULL;
	prepared.tasks = 0;
}

/* ---- in a task ----------------------------------------------------------------------------------- */

/* The variable in its room, if there is enough of it. */
static bool write_over(spank_t spank, int v, char *room, const char *text)
{
	const char *name = variables[v].name;
	size_t n = strlen(name), length = strlen(text);

	if (!room || prepared.is_copy || n + 1 + length > strlen(room))
		return false;
	/* the one that Slurm has set would stand before it */
	if (variables[v].room && spank_unsetenv(spank, name) != ESPANK_SUCCESS)
		return false;
	memcpy(room, name, n);
	room[n] = '=';
	memcpy(room + n + 1, text, length + 1);
	return true;
}

int variables_give(spank_t spank, int local, const struct task_plan *task, const struct cpuset *cpus)
{
	static char buf[CPULIST_TEXT]; /* on the stack it would be two pages that the task touches first */
	char *const *texts = local >= 0 && local < prepared.tasks ? prepared.text[local] : NULL;
	bool planned_cpus = cpuset_equal(cpus, &task->cpus), failed = false, ignored;
	char *room[VARIABLES] = { NULL };

	find_rooms(spank, room);
	for (int v = 0; v < VARIABLES; v++) {
		const bool by_cpus = v == CPUS || v == THREADS || v == OPENMP;
		const char *text = texts && (!by_cpus || planned_cpus) ? texts[v] : text_of((enum variable)v, task, cpus, buf);
		if (prepared.users_own[v] || (text && write_over(spank, v, room[v], text)))
			continue;
		if (text)
			failed |= !set(spank, variables[v].name, text, variables[v].default_only && !prepared.ready[v], &ignored);
		if (prepared.ready[v] && (!text || variables[v].room))
			failed |= spank_unsetenv(spank, room_of(v)) != ESPANK_SUCCESS;
	}
	return failed ? -1 : 0;
}

void variables_take_back(spank_t spank)
{
	for (int v = 0; v < VARIABLES; v++)
		if (prepared.ready[v])
			spank_unsetenv(spank, room_of(v));
	if (step.options.hvd)
		spank_unsetenv(spank, KEYS_VARIABLE);
}
