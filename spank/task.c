/* SPDX-License-Identifier: Apache-2.0
 * In each task, as the user and after all of Slurm's own binding: apply the plan. */
#include "plugin.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cores.h"
#include "explain.h"
#include "nvml.h"
#include "step.h"
#include "variables.h"

enum { PREFERRED_MANY = 5 /* MPOL_PREFERRED_MANY, Linux 5.15 */ };

/* ---- choices of the user, which only the task can see ---------------------------------------------- */

/* Confined devices can be told from the task: it may not open those that are not the step's. */
static bool may_open(int gpu)
{
	return !*step.device_file[gpu] || !access(step.device_file[gpu], R_OK | W_OK) || errno != EPERM;
}

/* The node's GPUs that this task may open, in bus order "0,2", where it may not open all of them; "" where it may. */
static char *openable_gpus(char *list, size_t size)
{
	bool confined = false;

	*list = '\0';
	for (int g = 0; g < step.node->gpus; g++) {
		size_t n = strlen(list);
		if (!*step.device_file[g] || !may_open(g))
			confined = true;
		else
			snprintf(list + n, size - n, "%s%d", n ? "," : "", g);
	}
	if (!confined)
		*list = '\0';
	return list;
}

/* Of the openable GPUs those that numbers count among them, "1" of "2,3": tasks that share their step's devices
 * (--gres-flags=allow-task-sharing) may open more than their own. */
static void keep_numbered(char *openable, size_t size, const char *numbers)
{
	struct cpuset wanted, open, kept = { 0 };
	int position = 0;

	if (!numbers || cpulist_parse(numbers, &wanted) || cpulist_parse(openable, &open) || cpuset_next(&wanted, cpuset_count(&open)) >= 0)
		return;
	for (int g = cpuset_next(&open, 0); g >= 0; g = cpuset_next(&open, g + 1))
		if (cpuset_has(&wanted, position++))
			cpuset_add(&kept, g);
	*openable = '\0';
	for (int g = cpuset_next(&kept, 0); g >= 0; g = cpuset_next(&kept, g + 1)) {
		size_t n = strlen(openable);
		snprintf(openable + n, size - n, "%s%d", n ? "," : "", g);
	}
}

/* The GPUs that Slurm bound this task to. Where the task may not open all of the node's devices, numbers count among
 * those it may open. */
static int bound_devices(spank_t spank, struct step_devices *out, char *error, size_t size)
{
	static char visible[LONG_VALUE];
	char openable[STEP_MAX_DEVICES * 6];
	const char *list = step.devices.count ? job_variable(spank, "CUDA_VISIBLE_DEVICES", visible, sizeof visible) : NULL;
	const bool confined = *openable_gpus(openable, sizeof openable);

	if (!list && step.options.hide_gpus && *step.visible)
		list = step.visible;
	if (confined)
		keep_numbered(openable, sizeof openable, list);
	int rc = step_devices(step.node, confined ? NUMBERS_BUS : (enum numbers)step.site->numbers, confined ? openable : NULL, list,
		step.options.ids == IDS_INDEX, out, error, size);
	return rc || out->in_doubt ? -1 : 0;
}

/* What Slurm, or the user, has bound the tasks of the node to; NULL where that is nothing, or not known of all. */
static const struct cpuset *bound_masks(spank_t spank, int local)
{
	char type[64] = "";
	const char *bound = job_variable(spank, "SLURM_CPU_BIND_TYPE", type, sizeof type);
	bool known = step.masks;

	if (bound && !strncmp(bound, "none", 4))
		return NULL;
	for (int t = 0; known && t < step.request->tasks; t++)
		known = !cpuset_empty(&step.masks[t]);
	if (!known && local == 0 && step.options.keep_cpus && !step.options.by_site)
		slurm_spank_log("hvd: %s: which CPUs the tasks have is not known: their GPUs may be far", step.host);
	return known ? step.masks : NULL;
}

/* NULL in a user namespace other than slurmstepd's: libraries there are those of a container, which the user brings, and code of the user's
 * must not run in this process, which still has slurmstepd's memory and open files. */
static struct nvml *open_driver(void)
{
	struct stat now;
	return fstatat(step.proc, "self/ns/user", &now, 0) || now.st_ino != step.users ? NULL : nvml_open();
}

/* "MIG-UUID" does not say which GPU it is cut from. The driver does, if it answers. */
static void find_instances(void)
{
	struct nvml *nvml = step.devices.unplaced ? open_driver() : NULL;
	char pci[16];

	for (int d = 0; nvml && d < step.devices.count; d++)
		if (step.devices.gpu[d] < 0 && !nvml_parent(nvml, step.devices.token[d], pci))
			step.devices.gpu[d] = gpu_by_address(step.node, pci);
	nvml_close(nvml);
}

/* Each rank of a world computes on the first GPU that it sees. `all`: the step's, of which this task sees `seen`; 0: none is hidden from it. */
static void warn_same_gpus(int local, int tasks, int all, int seen)
{
	if (local == 0 && step.options.hvd && step.chosen_gpus && !step.options.share && seen != 1 && tasks > 1 && (seen ? seen : all) * tasks > all)
		slurm_spank_log("hvd: %s: --gpu-bind or --accel-bind, the step's or the job's, shows several of the %d GPUs to each of %d tasks: type --gpu-bind=socket instead to give each its own",
			step.host, all, tasks);
}

/* Whether the step's GPU d is one of this task's, from which none is hidden where it has no list. */
static bool sees(const struct step_devices *own, int d)
{
	bool seen = !own->count;

	for (int k = 0; k < own->count; k++)
		seen |= step.devices.gpu[d] == own->gpu[k] && (!is_instance(own->token[k]) || !strcmp(step.devices.token[d], own->token[k]));
	return seen;
}

/* The last task of the node to come here names the GPUs that none of them sees. */
static void tell_unseen(const struct step_devices *own)
{
	struct plan left = { 0 };
	char line[EXPLAIN_LINE];

	if (!step.shared || step.options.by_site || step.devices.in_doubt)
		return;
	for (int d = 0; d < step.devices.count; d++)
		if (sees(own, d))
			__atomic_fetch_or(&step.shared->seen.word[d / 64], UINT64_C(1) << (d % 64), __ATOMIC_SEQ_CST);
	if (__atomic_add_fetch(&step.shared->told, 1, __ATOMIC_SEQ_CST) < step.request->tasks)
		return;
	for (int d = 0; d < step.devices.count; d++)
		if (!cpuset_has(&step.shared->seen, d))
			cpuset_add(&left.idle, d);
	if (*explain_idle(step.node, step.request, &left, line, sizeof line))
		slurm_spank_log("hvd: %s: %s", step.host, line);
}

/* How many of the node's tasks these CPUs are for, where each has as many of the step's GPUs: those are counted to which no CPU of the step is nearer. */
static int tasks_at(const struct cpuset *cpus, const int *gpu, int gpus, int tasks)
{
	int here = 0;

	for (int i = 0; i < gpus; i++)
		here += gpu[i] < 0 || gpu_distance(step.node, cpus, gpu[i]) <= gpu_distance(step.node, &step.request->allowed, gpu[i]);
	return here ? (tasks * here + gpus - 1) / gpus : tasks;
}

/* The task's share of cores that so many tasks use; one is left to communication. */
static int threads_of(const struct cpuset *cpus, int tasks)
{
	const struct cpuset cores = cores_of(step.node, cpus);
	const int share = cpuset_count(&cores) / tasks;

	return share > 1 ? share - 1 : 1;
}

/* CPUs near the GPUs that this task has, unless the user chose these, too. */
static int follow_gpus(spank_t spank, int local, struct plan *plan)
{
	static struct step_devices own;
	struct request *r = step.request;
	const int tasks = r->tasks, gpus = step.devices.count;
	int gpu[STEP_MAX_DEVICES], users = 0;
	char error[512];

	if (bound_devices(spank, &own, error, sizeof error)) {
		step_fail(EXIT_INTERNAL, error);
		return -1;
	}
	warn_same_gpus(local, tasks, gpus, own.count);
	tell_unseen(&own);
	memcpy(gpu, step.devices.gpu, sizeof gpu);
	step.devices = own;
	find_instances();
	step_name_devices();
	const struct cpuset *masks = step.options.keep_cpus ? bound_masks(spank, local) : NULL;
	if (masks) {
		r->fixed = &masks[local];
		for (int t = 0; t < tasks; t++)
			users += cpuset_intersects(&masks[t], r->fixed);
	}
	r->tasks = 1;
	r->gpus_per_task = step.devices.count ? step.devices.count : 1;
	if (place_tasks(step.node, r, plan)) {
		step_fail(EXIT_INTERNAL, plan->refusal);
		return -1;
	}
	const struct cpuset *cpus = cpuset_empty(&plan->task[0].cpus) ? &r->allowed : &plan->task[0].cpus;
	plan->task[0].threads = threads_of(cpus, users ? users : tasks_at(cpus, gpu, gpus, tasks));
	return 0;
}

/* A step that asked for nothing keeps its CPUs where the plan would leave one of its tasks a smaller share of the cores. */
static void keep_share(struct plan *plan)
{
	struct request *r = step.request;
	const enum policy policy = r->policy;
	struct plan left;
	bool less = false;

	r->policy = POLICY_NONE;
	place_tasks(step.node, r, &left);
	for (int t = 0; t < left.tasks; t++)
		less |= plan->task[t].cores + 1e-6 < left.task[t].cores;
	plan_free(less ? plan : &left);
	if (less) {
		*plan = left;
		step.options.policy = POLICY_NONE;
	} else {
		r->policy = policy;
	}
}

/* GPUs near the CPUs that the tasks have, where the user chose these: every task works out the same plan for all. */
static int plan_again(spank_t spank, int local, struct plan *plan)
{
	int rc;

	find_instances();
	step_name_devices();
	const struct cpuset *masks = step.masks ? bound_masks(spank, local) : NULL;
	step.request->fixed = step.options.keep_cpus ? masks : NULL;
	step.request->found = masks;
	rc = place_tasks(step.node, step.request, plan);
	if (rc)
		step_fail(EXIT_USAGE, plan->refusal);
	else if (step.options.by_site && !step.options.keep_cpus)
		keep_share(plan);
	return rc;
}

static struct task_plan *plan_in_task(spank_t spank, int local)
{
	char line[EXPLAIN_LINE], rank[RANK_NAME];
	int rc;

	plan_free(&step.plan);
	rc = step.options.keep_gpus ? follow_gpus(spank, local, &step.plan) : plan_again(spank, local, &step.plan);
	if (rc)
		return NULL;
	int index = step.options.keep_gpus ? 0 : local;
	if (step.options.verbose && local == step.site->verbose_max)
		slurm_spank_log("hvd: %s: no line for further tasks (verbose-max=%d in plugstack.conf)", step.host, step.site->verbose_max);
	if (step.options.verbose && local < step.site->verbose_max)
		slurm_spank_log("hvd: %s on %s: %s", rank_name(spank, local, rank), step.host,
			explain_task(step.node, step.request, &step.plan, index, line, sizeof line));
	if (local == 0 && !step.options.keep_gpus && !step.options.by_site)
		step_warn_idle(spank);
	if (step.options.by_site || step.options.policy == POLICY_NONE)
		return &step.plan.task[index];
	if (!step.options.keep_gpus)
		step_warn_distance(spank, local);
	else if (*explain_distance(step.node, step.request, &step.plan, index, line, sizeof line))
		slurm_spank_log("hvd: %s on %s: %s", rank_name(spank, local, rank), step.host, line);
	return &step.plan.task[index];
}

/* ---- apply --------------------------------------------------------------------------------------- */

/* Returns the CPUs that the task may then run on. */
static struct cpuset apply_cpus(const struct task_plan *task)
{
	struct cpuset real = { 0 };
	bool planned = !cpuset_empty(&task->cpus);
	char list[512], wanted[512];

	if (planned && step.options.keep_cpus)
		return task->cpus;
	if (planned && sched_setaffinity(0, sizeof task->cpus, (const cpu_set_t *)&task->cpus) && !step.options.by_site)
		slurm_spank_log("hvd: %s: CPUs %s cannot be set (%s): they stay as Slurm set them", step.host,
			cpulist_print(&task->cpus, wanted, sizeof wanted), strerror(errno));
	if (sched_getaffinity(0, sizeof real, (cpu_set_t *)&real))
		return task->cpus;
	if (planned && step.options.verbose && !cpuset_equal(&real, &task->cpus) && cpuset_within(&real, &task->cpus))
		slurm_spank_log("hvd: %s: a cpuset leaves CPUs %s of %s", step.host, cpulist_print(&real, list, sizeof list),
			cpulist_print(&task->cpus, wanted, sizeof wanted));
	return real;
}

/* Preferred, not bound: a strict binding gets jobs killed when one node's memory is full. */
static void apply_memory(const struct task_plan *task)
{
	if (cpuset_empty(&task->numa) || step.options.keep_memory)
		return;
	if (!syscall(SYS_set_mempolicy, PREFERRED_MANY, task->numa.word, (unsigned long)CPUSET_MAX))
		return;
	struct cpuset first = { 0 };
	cpuset_add(&first, cpuset_next(&task->numa, 0));
	/* fails on a machine described by a file that has nodes which are not there: then there is nothing to prefer */
	if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, first.word, (unsigned long)CPUSET_MAX) && step.options.verbose)
		slurm_spank_log("hvd: %s: no memory preferred: %s", step.host, strerror(errno));
}

/* Slurm hands out GPUs to tasks by itself where --gpus-per-task implies it and nobody asked us for a binding. */
static bool slurm_bound_gpus(spank_t spank)
{
	static char bind[LONG_VALUE];
	return !step.options.hide_gpus && job_variable(spank, "SLURMD_TRES_BIND", bind, sizeof bind) && !strstr(bind, "none");
}

/* The first of these GPUs that this task may not open; -1 none, or GPUs are not given by number. */
static int closed_gpu(const struct step_devices *d)
{
	bool known = true;
	int closed = -1;

	for (int i = d->count - 1; i >= 0; i--) {
		known &= d->gpu[i] >= 0 && !is_instance(d->token[i]);
		if (known && !may_open(d->gpu[i]))
			closed = d->gpu[i];
	}
	return known ? closed : -1;
}

/* What Slurm lets the tasks of a step open are its GPUs, however Slurm numbers them: those of several types in the order of Gres= in
 * slurm.conf, or of device files that are not in bus order. Every task of the node sees the same ones and plans with them. */
static int plan_with_open_gpus(int local)
{
	static struct step_devices open;
	char list[STEP_MAX_DEVICES * 6], error[512], line[640];
	const int closed = closed_gpu(&step.devices);
	const bool wrong = closed >= 0 || step.devices.in_doubt;
	/* numbers of device files can be the node's, or count among the open ones only: in bus order that is not the same */
	const bool recount = step.devices.by_index && step.site->numbers == NUMBERS_MINOR;
	const bool confined = (wrong || recount) && *openable_gpus(list, sizeof list);

	if (step.options.keep_gpus || (!wrong && !confined))
		return 0;
	/* names, which stay as they are, can be of closed ones */
	if (!confined ||
	    step_devices(step.node, NUMBERS_BUS, list, step.visible, step.options.ids == IDS_INDEX, &open, error, sizeof error) ||
	    open.count != step.devices.count || closed_gpu(&open) >= 0) {
		snprintf(line, sizeof line, "GPU %s is %s, which this task may not open: is gres.conf right, and do its types follow each other as in Gres= of slurm.conf?",
			closed < 0 ? "" : step.node->gpu[closed].at.pci, closed < 0 ? "" : step.device_file[closed]);
		step_fail(EXIT_INTERNAL, !step.devices.in_doubt ? line : local == 0 ? step.doubt : NULL);
		return -1;
	}
	if (local == 0 && closed >= 0 && !step.devices.in_doubt && !step.options.by_site)
		slurm_spank_log("hvd: %s: GPU %s is not this step's, whatever was said of it: tasks get those that they may open (hvd-map selfcheck tells how Slurm numbers them)",
			step.host, step.node->gpu[closed].at.pci);
	step.devices = open;
	step_name_devices();
	step.per_task = true;
	return 0;
}

/* Where cpusets hold a step of srun --exclusive to its own cores (ConstrainCores=yes), these are what there is to plan with. A cpuset cuts
 * whatever mask is set, and every task of the node is in the same one. */
static void plan_with_open_cpus(int local)
{
	struct request *r = step.request;
	struct cpuset mask, open;

	if (!step.widened || sched_getaffinity(0, sizeof mask, (cpu_set_t *)&mask) || sched_setaffinity(0, sizeof r->allowed, (const cpu_set_t *)&r->allowed))
		return;
	const bool unknown = sched_getaffinity(0, sizeof open, (cpu_set_t *)&open);
	sched_setaffinity(0, sizeof mask, (const cpu_set_t *)&mask);
	if (unknown || !cpuset_within(&open, &r->allowed) || cpuset_equal(&open, &r->allowed))
		return;
	const int all = cpuset_count(&r->allowed), each = all / r->tasks;
	if (local == 0 && !step.options.by_site && !r->cpus_by_task && each * r->tasks > cpuset_count(&open))
		slurm_spank_log("hvd: %s: srun --exclusive leaves the step %d of its job's %d CPUs: type -c %d", step.host, cpuset_count(&open), all, each);
	r->allowed = open;
}

/* One task a node tells who else is on the step's GPUs: in a step for training, or where the user wants to know. */
static void name_other_users(int local)
{
	struct nvml *nvml = NULL;
	char line[EXPLAIN_LINE];

	if (local == 0 && step.request->devices && !step.options.by_site && (step.options.hvd || step.options.verbose))
		nvml = open_driver();
	/* tasks of this step that are further along descend from the same slurmstepd */
	for (int d = 0; nvml && d < step.request->devices; d++)
		if (*nvml_users(nvml, device_name(step.node, step.request, d), getppid(), line, sizeof line))
			slurm_spank_log("hvd: %s: %s", step.host, line);
	nvml_close(nvml);
}

static void apply(spank_t spank, int local, const struct task_plan *task)
{
	struct task_plan own = *task;
	struct cpuset cpus = apply_cpus(task), cores = cores_of(step.node, &cpus);
	const int room = cpuset_count(&cores) - 1; /* one is left to communication */

	apply_memory(task);
	if (cpuset_empty(&task->cpus) && own.threads > room) /* counted among the step's CPUs, of which Slurm may have left this task fewer */
		own.threads = room > 1 ? room : 1;
	if (variables_give(spank, step.per_task ? -1 : local, &own, &cpus))
		step_fail(EXIT_INTERNAL, "a variable cannot be set in the task");
}

static void bind_task(spank_t spank)
{
	int local = 0;

	if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS || local < 0 || local >= step.plan.tasks) {
		step_fail(EXIT_INTERNAL, "Slurm does not say which task this is");
		return;
	}
	if (!step.options.keep_gpus && slurm_bound_gpus(spank)) {
		step.per_task = true;
		step.options.keep_gpus = 1;
		if (local == 0 && !step.options.by_site)
			slurm_spank_log("hvd: %s: Slurm has bound GPUs to tasks by itself: they stay, and CPUs follow them", step.host);
	}
	if (plan_with_open_gpus(local))
		return;
	plan_with_open_cpus(local);
	name_other_users(local);
	const struct task_plan *task = step.per_task ? plan_in_task(spank, local) : &step.plan.task[local];
	if (!step.broken && task)
		apply(spank, local, task);
}

int stepd_task_init(spank_t spank)
{
	if (step.active)
		bind_task(spank);
	/* the exit status of a required plugin's failure would not be ours, and an optional one's failure is ignored */
	if (step.failure)
		_exit(step.failure);
	/* only the site wanted a binding: the task runs without */
	if (step.broken)
		variables_take_back(spank);
	return 0;
}
