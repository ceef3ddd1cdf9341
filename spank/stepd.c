/* SPDX-License-Identifier: Apache-2.0
 * In slurmstepd before the tasks are forked: capture what Slurm gave the step and plan once for the node. Some user id
 * of this process is root: nothing is started here, and no path is opened that a user could name. */
#include "plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "explain.h"
#include "inventory.h"
#include "step.h"
#include "tasks.h"
#include "variables.h"

/* Cleared; NULL where there is none. */
static void *shared_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Batch, interactive and extern steps are never bound. */
static bool is_special_step(spank_t spank)
{
	uint32_t id = 0;

	if (spank_get_item(spank, S_JOB_STEPID, &id) == ESPANK_SUCCESS)
		return id >= SLURM_MAX_NORMAL_STEP_ID;
	step_fail(EXIT_INTERNAL, "Slurm does not say which step this is");
	return true;
}

/* ---- capture ------------------------------------------------------------------------------------- */

/* The PUs of these cores, which Slurm counts as hwloc does: package by package over the whole machine. */
static struct cpuset cpus_of_cores(const struct node *node, const struct cpuset *cores)
{
	struct cpuset cpus = { 0 };
	for (int i = 0; i < node->pus; i++)
		if (cpuset_has(cores, node->pu[i].core))
			cpuset_add(&cpus, node->pu[i].cpu);
	return cpus;
}

/* What slurmstepd itself makes of a list of cores, for its own cpusets: only it knows whether slurm.conf counts cores as the machine
 * does, or each hardware thread as one ("CPUs=16" and nothing else). It takes the machine's CPUs to be numbered without gaps. */
static bool cpus_as_slurm(const struct node *node, char *list, struct cpuset *cpus)
{
	int (*translate)(char *, char **) = (int (*)(char *, char **))dlsym(RTLD_DEFAULT, "xcpuinfo_abs_to_mac");
	char *text = NULL;

	for (int i = 0; i < node->pus; i++)
		if (node->pu[i].cpu >= node->pus)
			return false;
	/* Slurm frees the text with an allocator of its own: some bytes are left to the end of the process */
	return translate && translate(list, &text) == SLURM_SUCCESS && text && !cpulist_parse(text, cpus);
}

/* Empty where Slurm does not say. */
static struct cpuset cpus_of_item(spank_t spank, const struct node *node, spank_item_t item)
{
	char *list = NULL;
	struct cpuset cores, cpus = { 0 };

	if (spank_get_item(spank, item, &list) != ESPANK_SUCCESS || !list || cpulist_parse(list, &cores))
		return cpus;
	if (!cpus_as_slurm(node, list, &cpus) && cpuset_next(&cores, node->cores) < 0)
		cpus = cpus_of_cores(node, &cores);
	return cpuset_and(&cpus, &node->allowed);
}

/* CPUs of the step; of the job where Slurm does not say. Empty, and the step has failed, where neither is known: other
 * jobs may be on the rest of the machine. */
static struct cpuset capture_cpus(spank_t spank, const struct node *node)
{
	static const spank_item_t items[] = { S_JOB_ALLOC_CORES, S_STEP_ALLOC_CORES, S_JOB_ALLOC_CORES };

	for (size_t i = step.options.whole_job ? 0 : 1; i < sizeof items / sizeof *items; i++) {
		struct cpuset cpus = cpus_of_item(spank, node, items[i]);
		if (!cpuset_empty(&cpus))
			return cpus;
	}
	step_fail(EXIT_INTERNAL, "the step's cores are not among this machine's: do Sockets, CoresPerSocket and ThreadsPerCore in slurm.conf agree with slurmd -C?");
	return (struct cpuset){ 0 };
}

/* Whether the plan counts on more than the step's own cores. */
static bool is_widened(spank_t spank)
{
	const struct cpuset own = cpus_of_item(spank, step.node, S_STEP_ALLOC_CORES);
	return step.options.whole_job && !cpuset_empty(&own) && !cpuset_within(&step.request->allowed, &own);
}

/* GPUs that Slurm divides further (shards, MPS) are not ours to hand out. The variable that says so; NULL: none does. */
static const char *gpus_are_divided(spank_t spank)
{
	static const char *const variables[] = { "SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" };
	char buf[64];

	for (int i = 0; i < 2 - step.options.own_mps; i++)
		if (job_variable(spank, variables[i], buf, sizeof buf))
			return variables[i];
	return NULL;
}

static int capture_devices(spank_t spank, int tasks)
{
	static char global[LONG_VALUE];
	const char *numbers = job_variable(spank, "SLURM_STEP_GPUS", global, sizeof global);
	const char *names = job_variable(spank, "CUDA_VISIBLE_DEVICES", step.visible, sizeof step.visible);

	const char *divided = gpus_are_divided(spank);
	const bool speaks = !step.options.by_site && global_rank(spank, 0) == 0;

	/* gres/gpu sets both, and takes away both; on a node without it the second is what srun was started with */
	if (names && !numbers && !divided && !step.broken) {
		if (speaks && strcmp(names, "-1"))
			slurm_spank_log("hvd: %s: Slurm gave this step no GPU: CUDA_VISIBLE_DEVICES=%.128s, which is not from Slurm, is not counted", step.host, names);
		names = NULL;
		step.visible[0] = '\0';
	}
	if (!step.broken && step_devices(step.node, (enum numbers)step.site->numbers, numbers, names, step.options.ids == IDS_INDEX, &step.devices, step.doubt, sizeof step.doubt))
		step_fail(EXIT_INTERNAL, step.doubt);
	if (divided)
		step.options.keep_gpus = 1;
	if (divided && speaks && !step.broken && !step.chosen_gpus && step.devices.count && tasks > 1)
		slurm_spank_log("hvd: %s: Slurm divides this step's GPUs further (%s): they stay as Slurm gave them to its %d tasks", step.host, divided, tasks);
	return step.broken ? -1 : 0;
}

static void name_device_files(void)
{
	for (int g = 0; g < step.node->gpus; g++)
		if (step.node->gpu[g].minor >= 0)
			snprintf(step.device_file[g], sizeof step.device_file[g], "/dev/nvidia%d", step.node->gpu[g].minor);
}

static void fill_request(spank_t spank, int tasks)
{
	struct request *r = step.request;
	char hint[64], each[64];

	*r = (struct request){
		.tasks = tasks,
		.policy = step.options.keep_cpus ? POLICY_NONE : (enum policy)step.options.policy,
		.order = (enum order)step.options.order,
		.no_smt = step.options.no_smt,
		.share = step.options.share || step.options.keep_gpus,
		.gpus_per_task = step.options.gpus_per_task,
		.allowed = capture_cpus(spank, step.node),
		.job = cpus_of_item(spank, step.node, S_JOB_ALLOC_CORES),
		.cpus_by_task = spank_getenv(spank, "SLURM_CPUS_PER_TASK", each, sizeof each) == ESPANK_SUCCESS,
	};
	step_name_devices();
	if (!options_given(&step.options, "smt") && job_variable(spank, "SLURM_HINT", hint, sizeof hint) && !strcmp(hint, "nomultithread"))
		r->no_smt = true;
}

/* ---- plan ---------------------------------------------------------------------------------------- */

/* With the policy none and without --hvd, tasks that have another number of GPUs than one each keep all of them. */
static bool leaves_gpus(int tasks)
{
	const struct options *o = &step.options;
	return !o->hvd && !o->by_site && o->policy == POLICY_NONE && !o->share && !options_given(o, "gpus-per-task") && tasks != step.devices.count;
}

/* Whether the CPUs of the job's first two nodes are enough for so many tasks: those of -n alone are where the tasks are now. */
static bool have_cpus(spank_t spank, int first, int second)
{
	char text[64];
	int cpus[2], known = spank_getenv(spank, "SLURM_JOB_CPUS_PER_NODE", text, sizeof text) == ESPANK_SUCCESS ? sscanf(text, "%d,%d", &cpus[0], &cpus[1]) : 0;

	return known > 0 && step_cpus_of(spank, first) <= cpus[0] && step_cpus_of(spank, second) <= cpus[known - 1]; /* both, in "8(x2)" */
}

/* Where two nodes have different numbers of GPUs, and the step as many tasks as both together: the tasks of the first node, so many
 * that -m plane= puts the others on the second; 0 where that does not help. */
static int tasks_of_first(spank_t spank, int here, int all)
{
	uint32_t node = 0;

	if (!step.options.hvd || step_number(spank, S_JOB_NNODES) != 2 || spank_get_item(spank, S_JOB_NODEID, &node) != ESPANK_SUCCESS)
		return 0;
	int first = node ? all - here : here;
	return first < all && first > all - first && have_cpus(spank, first, all - first) ? first : 0;
}

/* With --hvd, one task per GPU is the rule; srun refuses where it can count, the node where only it can. Without, no more
 * tasks than GPUs. */
static int check_counts(spank_t spank)
{
	const struct request *r = step.request;
	const int groups = r->devices / r->gpus_per_task;
	char each[32] = "", cure[384] = "", line[512], value[16], text[256], limits[WITHOUT_LIMITS], per_node[PER_NODE];

	if (!groups || r->share || r->tasks == groups || (!step.options.hvd && r->tasks < groups))
		return 0;
	const int nodes = step_number(spank, S_JOB_NNODES), all = step_number(spank, S_JOB_TOTAL_TASK_COUNT);
	const bool share = r->tasks > groups;
	if (nodes == 1)
		snprintf(cure, sizeof cure, ": type -n %d%s%s", groups, step_per_node(spank, groups, per_node), step_limits(limits));
	else if (all == groups * nodes) {
		snprintf(cure, sizeof cure, ": type --ntasks-per-node=%d%s", groups, step_limits(limits));
		if (!step.options.hvd) /* nobody has counted the GPUs of all nodes */
			snprintf(cure + strlen(cure), sizeof cure - strlen(cure), " if all nodes have %d GPU%s", r->devices, r->devices == 1 ? "" : "s");
	}
	else {
		/* a node does not see how many GPUs the others have; but of two it can tell, since srun has counted the tasks of both */
		const bool of_gpu = job_variable(spank, "SLURM_NTASKS_PER_GPU", value, sizeof value), counted = !*step_limits(limits) && !of_gpu;
		const int first = counted ? tasks_of_first(spank, groups, all) : 0;
		/* where srun took as many CPUs as tasks, wherever they were, no task can move; one CPU for each GPU takes them where the GPUs are. One
		 * task a node is not a number that it counted */
		const bool full = step.options.hvd && step.options.whole_job && r->gpus_per_task == 1 && all > nodes &&
			spank_getenv(spank, "SLURM_JOB_CPUS_PER_NODE", text, sizeof text) == ESPANK_SUCCESS && sum_of_largest(text, nodes) == all;
		int n = first ? snprintf(cure, sizeof cure, ": type -m plane=%d", first) :
			full ? snprintf(cure, sizeof cure, ": type --cpus-per-gpu=1") :
			snprintf(cure, sizeof cure, ": type -n %d --ntasks-per-node=%d%s if all nodes have %d GPU%s", groups * nodes, groups, limits, r->devices, r->devices == 1 ? "" : "s");
		/* srun counted the tasks of all nodes' GPUs: each can be sent to its own, whatever nodes the job has */
		if (nodes > 2 && !full && step.options.hvd && !step.options.whole_job && r->gpus_per_task == 1)
			snprintf(cure + n, sizeof cure - (size_t)n, ", else -m arbitrary -w with each node's name once for each of its GPUs");
		else if (all % nodes == 0 && !step.options.per_socket && !step.options.per_core) {
			const int equal = all / nodes * r->gpus_per_task;
			n += snprintf(cure + n, sizeof cure - (size_t)n, ", %s %s --gpus-per-node=%d --ntasks-per-node=%d%s%s", first || full ? "or" : "else",
				step.options.whole_job ? "type" : "submit the job with", equal, all / nodes, step.options.by_gres ? " in place of --gres" : "", without_limits(false, false, of_gpu || step.options.per_gpu, limits));
			if (first || full)
				snprintf(cure + n, sizeof cure - (size_t)n, " if all nodes have %d GPU%s", equal, equal == 1 ? "" : "s");
		}
	}
	if (r->gpus_per_task > 1)
		snprintf(each, sizeof each, " with %d GPUs each", r->gpus_per_task);
	snprintf(line, sizeof line, "%d task%s%s but %d GPU%s on this node%s%s", r->tasks, r->tasks == 1 ? "" : "s", each, r->devices, r->devices == 1 ? "" : "s",
		cure, !share ? "" : *cure ? ", or --hvd-bind=share" : ": type --hvd-bind=share");
	step_fail(EXIT_USAGE, line);
	return -1;
}

static void print_table(spank_t spank)
{
	char line[EXPLAIN_LINE], rank[RANK_NAME];

	for (int t = 0; t < step.plan.tasks && t < step.site->verbose_max; t++)
		slurm_spank_log("hvd: %s on %s: %s", rank_name(spank, t, rank), step.host, explain_task(step.node, step.request, &step.plan, t, line, sizeof line));
	const int more = step.plan.tasks - step.site->verbose_max;
	if (more > 0)
		slurm_spank_log("hvd: %s: %d more task%s (verbose-max=%d in plugstack.conf)", step.host, more, more == 1 ? "" : "s", step.site->verbose_max);
}

static void report(spank_t spank, const char *note)
{
	char line[EXPLAIN_LINE];

	if (step.options.verbose && !step.per_task)
		print_table(spank);
	if (step.options.verbose && *note)
		slurm_spank_log("hvd: %s: %s", step.host, note);
	if (step.options.by_site)
		return;
	if (step.devices.no_uuid)
		slurm_spank_log("hvd: %s: no UUIDs from the driver: GPUs are named by index", step.host);
	if (step.options.overlap && step.request->devices && global_rank(spank, 0) == 0)
		slurm_spank_log("hvd: --overlap: other steps of this job may be using the same GPUs");
	if (!step.devices.in_doubt && *explain_mixture(step.node, step.request, &step.plan, line, sizeof line))
		slurm_spank_log("hvd: %s: %s", step.host, line);
	if (step.per_task)
		return;
	step_warn_distance(spank, -1);
	if (*explain_crowd(step.node, step.request, &step.plan, line, sizeof line))
		slurm_spank_log("hvd: %s: %s", step.host, line);
	step_warn_idle(spank);
}

/* Whether it counts which CPUs the tasks have: the policy none, too, deals GPUs by them, and who asked for nothing is not to have fewer. */
static bool looks_at_cpus(void)
{
	const struct options *o = &step.options;
	return o->keep_cpus || (step.devices.count && !o->keep_gpus && (o->policy == POLICY_NONE || o->by_site));
}

static void make_plan(spank_t spank)
{
	const struct inventory_source source = {
		.topology = step.site->topology[0] ? step.site->topology : NULL,
		.proc = step.site->proc[0] ? step.site->proc : NULL,
		.trusted_only = true,
	};
	char note[512] = "";
	uint32_t tasks = 0;

	step.node = calloc(1, sizeof *step.node);
	step.request = calloc(1, sizeof *step.request);
	if (!step.node || !step.request || spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS || !tasks) {
		step_fail(EXIT_INTERNAL, "no memory, or Slurm does not say how many tasks start here");
		return;
	}
	if (inventory_load(&source, step.node, note, sizeof note)) {
		if (source.topology || source.proc)
			snprintf(note + strlen(note), sizeof note - strlen(note), ": see topology= and proc= in plugstack.conf");
		step_fail(EXIT_INTERNAL, note);
		return;
	}
	name_device_files();
	step.chosen_gpus = step.options.keep_gpus;
	if (capture_devices(spank, (int)tasks))
		return;
	if (leaves_gpus((int)tasks))
		step.options.keep_gpus = 1;
	step.per_task = looks_at_cpus() || step.options.keep_gpus || step.devices.unplaced || step.devices.in_doubt;
	if (looks_at_cpus())
		step.masks = shared_memory(tasks * sizeof *step.masks);
	fill_request(spank, (int)tasks);
	step.widened = is_widened(spank);
	step.per_task |= step.widened;
	if (step.broken || check_counts(spank))
		return;
	/* a task that Slurm gives several GPUs may want them all, and one without needs nothing: unasked, only the plain case is bound */
	if (step.options.by_site && (!step.request->devices || (step.request->tasks != step.request->devices && !step.options.keep_gpus)))
		return;
	if (place_tasks(step.node, step.request, &step.plan)) {
		step_fail(EXIT_USAGE, step.plan.refusal);
		return;
	}
	step.active = !step.broken;
	if (step.active)
		variables_prepare(spank);
	if (step.active)
		report(spank, note);
}

/* True if srun said what this step is to get. Where that cannot be read, a step that never asked must not suffer. */
static bool read_wishes(spank_t spank, char *text, int size)
{
	spank_err_t rc = spank_getenv(spank, STEP_VARIABLE, text, size);

	if (rc != ESPANK_SUCCESS && rc != ESPANK_ENV_NOEXIST)
		slurm_spank_log("hvd: %s: " STEP_VARIABLE " cannot be read: nothing is bound", step.host);
	return rc == ESPANK_SUCCESS && *text;
}

/* Words that this node does not know: between two installations srun's host can have a newer plugin. */
static void refuse_wishes(const char *text, const char *error)
{
	char line[640];

	step.options.by_site = strstr(text, "by-site") != NULL;
	snprintf(line, sizeof line, "%s: is spank_hvd.so where srun runs another version than here?", error);
	step_fail(EXIT_USAGE, line);
}

/* For tasks that a plugin before this one, such as pyxis, has put into a container: what that shows as /proc may be anything. */
static void note_namespace(void)
{
	struct stat own;

	step.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	step.users = fstatat(step.proc, "self/ns/user", &own, 0) ? 0 : own.st_ino;
}

int stepd_user_init(spank_t spank, const struct site *site)
{
	static char text[LONG_VALUE];
	char error[512];

	step.site = site;
	step.options = options_default();
	if (gethostname(step.host, sizeof step.host - 1))
		strcpy(step.host, "?");
	step.host[strcspn(step.host, ".")] = '\0';
	if (!read_wishes(spank, text, sizeof text))
		return 0;
	step.shared = shared_memory(sizeof *step.shared);
	if (options_parse(&step.options, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, STEP_VARIABLE, text, error, sizeof error))
		refuse_wishes(text, error);
	/* no task is to see it, nor to hand it to a step that it starts */
	else if (spank_unsetenv(spank, STEP_VARIABLE) != ESPANK_SUCCESS)
		step_fail(EXIT_INTERNAL, "a variable cannot be set for the tasks");
	else if (!is_special_step(spank)) {
		note_namespace();
		make_plan(spank);
	}
	return 0;
}

/* Slurm has bound the task, and lets none of them go on before all are bound. */
static void keep_mask(spank_t spank)
{
	int local = -1;
	pid_t pid;

	if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS || local < 0 || local >= step.plan.tasks || spank_get_item(spank, S_TASK_PID, &pid) != ESPANK_SUCCESS)
		return;
	struct cpuset *mask = &step.masks[local];
	/* where nothing confines a task, it has others' cores in it */
	if (!sched_getaffinity(pid, sizeof *mask, (cpu_set_t *)mask) && !step.options.keep_cpus)
		*mask = cpuset_and(mask, &step.request->allowed);
}

void stepd_task_forked(spank_t spank)
{
	static int forked;

	if (step.masks)
		keep_mask(spank);
	if (++forked == step.plan.tasks)
		variables_take_back(spank);
}

/* Tasks beside these `few` would wait in MPI_Init for those that were refused. The way of Slurm's own mpi/pmix. */
static void end_step(spank_t spank, int few)
{
	__typeof__(slurm_kill_job_step) *kill_step = (__typeof__(slurm_kill_job_step) *)dlsym(RTLD_DEFAULT, "slurm_kill_job_step");
	uint32_t job, id;
	char all[16]; /* with those of other components */

	step.ended = true;
	if (!kill_step || !job_variable(spank, "SLURM_STEP_NUM_TASKS", all, sizeof all) || atoi(all) <= few)
		return;
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_STEPID, &id) != ESPANK_SUCCESS)
		return;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
	slurm_step_id_t whole = SLURM_STEP_ID_INITIALIZER;
	whole.job_id = job;
	whole.step_id = id;
	kill_step(&whole, SIGKILL, 0);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
	kill_step(job, id, SIGKILL, 0);
#else
	kill_step(job, id, SIGKILL);
#endif
}

void stepd_task_exit(spank_t spank)
{
	if (step.shared && step.shared->refused && !step.failure && !step.ended)
		end_step(spank, 1);
}

void stepd_exit(spank_t spank)
{
	if (step.shared && step.shared->refused && !step.ended)
		end_step(spank, step_number(spank, S_JOB_LOCAL_TASK_COUNT));
	variables_free();
	plan_free(&step.plan);
	free(step.request);
	free(step.node);
	step.request = NULL;
	step.node = NULL;
	step.active = false;
}
