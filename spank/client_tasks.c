/* SPDX-License-Identifier: Apache-2.0
 * In srun: how many tasks each component of the command line gets, and whether its job has the CPUs for them. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slurm_nodes.h"
#include "tasks.h"

/* From 23.11 on srun takes the -c of sbatch and salloc again. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define CPUS_PER_TASK_VARIABLE "SLURM_CPUS_PER_TASK"
#else
#define CPUS_PER_TASK_VARIABLE "SRUN_CPUS_PER_TASK"
#endif

/* The command line that is being counted, and what was asked for. */
static const struct argv_scan *scan;
static bool put_gres; /* SLURM_GRES, for srun to read */
static const struct options *options;

static const char *said(int component, const char *option)
{
	return argv_value(scan, component, option);
}

static const char *own_variable(const char *name, int group)
{
	char full[128];
	snprintf(full, sizeof full, "%s_HET_GROUP_%d", name, group);
	return group >= 0 ? getenv(full) : NULL;
}

/* A variable as srun reads it for one group of a heterogeneous job. */
static const char *group_variable(const char *name, int group)
{
	const char *value = own_variable(name, group);
	return value ? value : getenv(name);
}

static const char *said_or_set(int component, const char *option, const char *variable, int group)
{
	const char *value = said(component, option);
	return value ? value : group_variable(variable, group);
}

/* --ntasks-per-gpu, which --ntasks-per-tres also means. */
static const char *tasks_of_gpu(int component, int group)
{
	const char *value = said(component, "ntasks-per-gpu");
	if (!value)
		value = said_or_set(component, "ntasks-per-tres", "SLURM_NTASKS_PER_TRES", group);
	return value ? value : group_variable("SLURM_NTASKS_PER_GPU", group);
}

/* --jobid of a job that this srun is not in: nothing here says what that has. */
static bool is_other_job(int component)
{
	const char *job = said(component, "jobid"), *own = getenv("SLURM_JOB_ID");
	return job && (!own || strcmp(job, own));
}

enum { SOURCES = 6, TRES = SOURCES - 1, GRES = TRES - 1 };
static const struct {
	const char *option, *variable;
	size_t field;
} source[SOURCES] = {
	{ "gpus", "SLURM_GPUS", offsetof(struct step_words, gpus) },
	{ "gpus-per-node", "SLURM_GPUS_PER_NODE", offsetof(struct step_words, gpus_per_node) },
	{ "gpus-per-task", "SLURM_GPUS_PER_TASK", offsetof(struct step_words, gpus_per_task) },
	{ "gpus-per-socket", "SLURM_GPUS_PER_SOCKET", offsetof(struct step_words, gpus_per_socket) },
	[GRES] = { "gres", "SLURM_STEP_GRES", offsetof(struct step_words, gres) },
	[TRES] = { "tres-per-task", "SLURM_TRES_PER_TASK", offsetof(struct step_words, tres_per_task) },
};

static bool names_gpus(int component)
{
	bool names = false;
	for (int i = 0; i < SOURCES; i++) {
		const char *value = said(component, source[i].option);
		/* --tres-per-task=cpu:8 and --gres=craynetwork:1 say nothing of GPUs, --gres=none does */
		names |= value && (i < GRES || count_gres_gpus(value) || !strcasecmp(value, "none"));
	}
	return names;
}

/* --tres-per-task=cpu=8 leaves the step the job's GPUs. */
static const char *gpu_word(int i, int component, int group, bool on_command_line)
{
	const char *here = said(component, source[i].option);
	return on_command_line || (here && (i == GRES || strstr(here, "gres"))) ? here : group_variable(source[i].variable, group);
}

static bool has_gpus(const struct step_words *w)
{
	return gpus_of_each_task(w) || w->gpus || w->gpus_per_node || w->gpus_per_socket || (w->gres && count_gres_gpus(w->gres));
}

static void gpu_words(struct step_words *w, int component, int group)
{
	bool on_command_line = names_gpus(component);

	for (int i = 0; i < SOURCES; i++)
		*(const char **)((char *)w + source[i].field) = gpu_word(i, component, group, on_command_line);
	if (!on_command_line && !w->gres)
		w->gres = group_variable("SLURM_GRES", group);
	bool known = true;
	if (!on_command_line && !w->gres && !has_gpus(w) && !is_other_job(component))
		w->gres = slurm_job_gres(group, &known);
	/* of a heterogeneous job these are the first group's */
	bool on_node = (group <= 0 || !getenv("SLURM_HET_SIZE")) && (getenv("SLURM_JOB_GPUS") || getenv("SLURM_GPUS_ON_NODE"));
	w->hidden_gpus = !known || is_other_job(component) || (getenv("SLURM_JOB_ID") && on_node);
}

/* As many nodes as --nodelist or --nodefile name, "0" with a file that cannot be read; NULL: neither is said. */
static const char *count_hosts(const char *nodelist, const char *nodefile)
{
	static char text[16];
	const char *file = nodelist && strchr(nodelist, '/') ? nodelist : nodefile;
	int hosts = file ? slurm_hosts_in_file(file) : nodelist ? slurm_hosts(nodelist) : 0;

	snprintf(text, sizeof text, "%d", hosts);
	return file || hosts > 0 ? text : NULL;
}

static void read_words(struct step_words *w, int component, int group)
{
	gpu_words(w, component, group);
	w->nodes = said(component, "nodes");
	/* components inside an ordinary job do not have all its nodes */
	if (!w->nodes && !(scan->components > 1 && getenv("SLURM_JOB_ID") && !getenv("SLURM_HET_SIZE")))
		w->nodes = group_variable(group_variable("SLURM_NNODES", group) ? "SLURM_NNODES" : "SLURM_JOB_NUM_NODES", group);
	if (!w->nodes)
		w->nodes = count_hosts(said(component, "nodelist"), said(component, "nodefile"));
	w->ntasks = said_or_set(component, "ntasks", "SLURM_NTASKS", group);
	if (!w->ntasks)
		w->ntasks = group_variable("SLURM_NPROCS", group);
	w->ntasks_per_node = said(component, "ntasks-per-node");
	if (!w->ntasks_per_node)
		w->ntasks_per_node = group_variable("SLURM_NTASKS_PER_NODE", group);
	w->ntasks_per_gpu = tasks_of_gpu(component, group);
	w->ntasks_per_socket = said(component, "ntasks-per-socket");
	w->ntasks_per_core = said(component, "ntasks-per-core");
	w->in_job = getenv("SLURM_JOB_ID") || is_other_job(component);
	w->group = options->gpus_per_task;
	w->share = options->share || w->ntasks_per_gpu;
}

struct lack {
	const char *host;
	int tasks, need, cpus; /* tasks there, CPUs that each needs, CPUs that are there */
	int all;               /* tasks of the step */
	bool counted;          /* the CPUs are one node's, or the same on all */
	const char *beside;    /* " in place of --cpus-per-task", where the job was asked for with what takes no --cpus-per-gpu beside it; else "" */
	int cpus_per_gpu;      /* to ask for; 0: there are no GPUs */
	int fewer;             /* tasks that some of the job's nodes have CPUs for, or all of them, where their GPUs came with tasks: more CPUs would not put more there; 0: no cure */
};

/* Fewer CPUs for each task help where there is one for each; else the job has to be larger. */
static void refuse_cpus(const struct lack *l, int gpus)
{
	char what[128], cure[128], line[640];

	if (gpus && l->cpus < l->tasks)
		snprintf(what, sizeof what, "%d GPU%s", gpus, gpus == 1 ? "" : "s");
	else
		snprintf(what, sizeof what, "%d task%s of %d CPU%s", l->tasks, l->tasks == 1 ? "" : "s", l->need, l->need == 1 ? "" : "s");
	if (l->cpus >= l->tasks && l->counted)
		snprintf(cure, sizeof cure, "type -c %d", l->cpus / l->tasks);
	else if (l->cpus >= l->tasks)
		snprintf(cure, sizeof cure, "type a smaller -c");
	else if (l->fewer)
		snprintf(cure, sizeof cure, "type -n %d", l->fewer);
	else if (l->cpus_per_gpu)
		snprintf(cure, sizeof cure, "%s #SBATCH --cpus-per-gpu=%d%s", *l->beside ? "write" : "add", l->cpus_per_gpu, l->beside);
	else
		snprintf(cure, sizeof cure, "the job needs #SBATCH --ntasks=%d --cpus-per-task=%d", l->all, l->need);
	snprintf(line, sizeof line, "%s: %s but %d CPU%s: %s", l->host, what, l->cpus, l->cpus == 1 ? "" : "s", cure);
	client_refuse(line);
}

static bool says_one_thread(const char *threads, const char *hint)
{
	return (threads && !strcmp(threads, "1")) || strcasestr(hint ? hint : "", "nomultithread");
}

/* One thread of each core, typed in a job that counts them all: how many of its CPUs that leaves is not known here. */
static bool leaves_threads(int component, int group)
{
	return says_one_thread(said(component, "threads-per-core"), said(component, "hint")) &&
		!says_one_thread(group_variable("SLURM_THREADS_PER_CORE", group), group_variable("SLURM_HINT", group));
}

/* Slurm's own message about this names neither the node nor the cure. */
static void check_cpus(const struct step_words *w, const struct step_size *size, int tasks, int component, int group)
{
	const char *counts = group_variable("SLURM_JOB_CPUS_PER_NODE", group), *each = said_or_set(component, "cpus-per-task", CPUS_PER_TASK_VARIABLE, group);
	const char *nodelist = group_variable("SLURM_JOB_NODELIST", group);
	/* without a number for each node, Slurm puts tasks where CPUs are */
	bool alike = size->per_node || w->ntasks_per_node;
	const int hosts = nodelist ? slurm_hosts(nodelist) : 0, nodes = size->nodes < hosts ? size->nodes : hosts;
	int position = 0, cpus = counts ? sum_of_largest(counts, nodes) : -1, per_node, need = each && atoi(each) > 0 ? atoi(each) : 1;
	char host[256], first[256];

	if (is_other_job(component) || cpus < 0 || nodes < 1 || tasks < 1 || said(component, "overcommit") || getenv("SLURM_OVERCOMMIT"))
		return;
	/* of the job's nodes Slurm takes some that have enough */
	if (alike)
		cpus -= sum_of_largest(counts, nodes - 1);
	per_node = alike ? (tasks + size->nodes - 1) / size->nodes : tasks;
	if ((int64_t)per_node * need <= cpus)
		return;
	smallest_count(counts, &position);
	if (nodes < hosts && alike)
		snprintf(host, sizeof host, "one of the nodes");
	else if (nodes < hosts)
		snprintf(host, sizeof host, "%d node%s", nodes, nodes == 1 ? "" : "s");
	else
		slurm_host(nodelist, alike ? position : -1, host, sizeof host);
	const struct lack lack = {
		.host = host, .tasks = per_node, .need = need, .cpus = cpus, .all = tasks,
		.counted = (alike || size->nodes == 1) && !leaves_threads(component, group),
		.beside = group_variable("SLURM_CPUS_PER_TASK", group) ? " in place of --cpus-per-task" :
			group_variable("SLURM_NTASKS_PER_SOCKET", group) ? " in place of --ntasks-per-socket" : "",
		.cpus_per_gpu = size->gpus > 0 ? slurm_cpus_per_gpu(slurm_host(nodelist, position, first, sizeof first), need > 8 ? need : 8) : 0,
		.fewer = (nodes < hosts || !names_gpus(component)) && gpus_of_each_task(w) && !w->gpus && !w->gpus_per_node ? cpus / need * (alike ? size->nodes : 1) : 0,
	};
	refuse_cpus(&lack, size->gpus > 0 && !w->share ? per_node * w->group : 0);
}

/* A step without GPUs has one task per package, as far as there are CPUs for them. `have_gpus`: of such nodes some have GPUs. */
static int packages_for_tasks(int component, int group, bool *have_gpus)
{
	if (is_other_job(component))
		return slurm_packages_per_node(NULL, false, have_gpus);
	const char *counts = group_variable("SLURM_JOB_CPUS_PER_NODE", group), *of_job = group_variable("SLURM_JOB_NODELIST", group);
	const char *partition = said_or_set(component, "partition", "SLURM_PARTITION", group);
	char *of_partition = of_job ? NULL : slurm_nodes_of_partitions(partition);
	/* who names no partition may have forgotten it with the GPUs */
	int position, cpus = counts ? smallest_count(counts, &position) : -1, packages = slurm_packages_per_node(of_job ? of_job : of_partition, !of_job && !partition, have_gpus);

	free(of_partition);
	return cpus > 0 && cpus < packages ? cpus : packages;
}

static void set_word(const char *name, int group, const char *text)
{
	char full[64];

	snprintf(full, sizeof full, group < 0 ? "%s" : "%s_HET_GROUP_%d", name, group);
	client_set(full, text, true);
}

static void set_count(const char *name, int group, int count)
{
	char text[16];

	snprintf(text, sizeof text, "%d", count);
	if (count)
		set_word(name, group, text);
}

/* As this component's own, or not if `drop`; mixed: it can name other things than GPUs, too. */
static void keep_word(const char *variable, bool mixed, bool drop, int group)
{
	char full[128], old[128], rest[4096];
	const char *value = group_variable(variable, group);

	snprintf(full, sizeof full, group < 0 ? "%s" : "%s_HET_GROUP_%d", variable, group);
	snprintf(old, sizeof old, "%s_PACK_GROUP_%d", variable, group);
	if (value && drop) {
		unsetenv(old);
		unsetenv(full);
		value = mixed ? without_gpus(value, rest, sizeof rest) : NULL;
	}
	if (value && *value)
		client_set(full, value, true);
}

/* Of the job's words, which srun reads beside those of the line, and which beat them on the nodes: a component that names GPUs
 * itself, in one group of a heterogeneous job or else group -1, has none; another one has its own. */
static void keep_words_of_job(int component, int group)
{
	for (int i = 0; i < SOURCES; i++)
		keep_word(source[i].variable, i >= GRES, names_gpus(component), group);
	keep_word("SLURM_GRES", true, names_gpus(component), group);
}

static void drop_words_for_all(void)
{
	for (int i = 0; i < SOURCES; i++)
		unsetenv(source[i].variable);
	unsetenv("SLURM_GRES");
}

/* Where --hvd is the job's, a step that is no training may have nothing to do with it. */
static void refuse_size(const char *refusal)
{
	bool typed = false;
	char line[512];

	for (int c = 0; c < scan->components; c++)
		typed |= said(c, "hvd") != NULL;
	snprintf(line, sizeof line, "%s%s", refusal, typed ? "" : strchr(refusal, ':') ? ", or --hvd=off" : ": type --hvd=off to do without");
	client_refuse(line);
}

/* Slurm refuses that in a job and takes it for none outside, or, where CPUs come with the job's GPUs, for all of these. */
static void refuse_none_of_some(int component)
{
	const char *gres = said(component, "gres");
	char line[256];

	for (int i = 0; gres && !strcasecmp(gres, "none") && i < SOURCES; i++) {
		const char *value = said(component, source[i].option);
		if (i == GRES || !value || !strcmp(value, "0") || (i == TRES && !count_gres_gpus(value)))
			continue;
		snprintf(line, sizeof line, "--gres=none and --%s=%.64s contradict each other: type one of them", source[i].option, value);
		client_refuse(line);
	}
}

/* A step on CPUs is what few want where there are GPUs. */
static void tell_no_gpus(void)
{
	fprintf(stderr, "hvd: %s no GPU, so its tasks compute on CPUs: for GPUs %s --gpus-per-node=N\n", getenv("SLURM_JOB_ID") ? "this job asked for" : "this asks for",
		getenv("SLURM_JOB_ID") ? "add #SBATCH" : "type");
}

/* Where GPUs are asked for by task alone Slurm starts one task a node, and the other GPUs of a larger job stand idle. */
static void tell_more_gpus(int component, int group)
{
	struct step_words step = { 0 }, job;
	struct step_size here, all;
	bool known;

	read_words(&step, component, group);
	if (!names_gpus(component) || !gpus_of_each_task(&step) || step.gpus || step.gpus_per_node || step.gpus_per_socket || step.gres || is_other_job(component) ||
	    step.ntasks || step.ntasks_per_node || step.ntasks_per_gpu || step.ntasks_per_socket || step.ntasks_per_core)
		return;
	job = step;
	job.nodes = group_variable("SLURM_JOB_NUM_NODES", group);
	for (int i = 0; i < SOURCES; i++)
		*(const char **)((char *)&job + source[i].field) = group_variable(source[i].variable, group);
	if (!has_gpus(&job) && !(job.gres = group_variable("SLURM_GRES", group)))
		job.gres = slurm_job_gres(group, &known);
	if (!step_size(&step, &here) && !step_size(&job, &all) && all.nodes == here.nodes && all.tasks > here.tasks)
		fprintf(stderr, "hvd: this step has %d GPU%s of its job's %d: for all of them type -n %d\n", here.gpus, here.gpus == 1 ? "" : "s", all.gpus, all.tasks);
}

/* By these words of the job Slurm would give a step that asks for no GPU all of the job's again. */
static const char *const by_gpu[] = { "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES" };

/* By SLURM_GPUS a step on some of its job's nodes asks for the GPUs of all of them, which Slurm has no clear word for. */
static void refuse_gpus_of_other_nodes(const struct step_words *w, int component, int group)
{
	const char *job = group_variable("SLURM_JOB_NUM_NODES", group);
	char line[128];

	if (is_other_job(component) || names_gpus(component) || !w->gpus || w->gpus_per_node || !w->nodes || !job)
		return;
	const int all = count_nodes(job), here = count_nodes(w->nodes), gpus = count_gpus(w->gpus);
	if (here < 1 || here >= all || slurm_job_gpus(group) != gpus)
		return;
	snprintf(line, sizeof line, "this job's %d GPUs are on %d nodes, and this step on %d: type --gpus=N, too", gpus, all, here);
	refuse_size(line);
}

/* Whether GPUs are asked for in one number for all nodes together, of at most one type, and in no other way. */
static bool only_in_all(const struct step_words *w)
{
	return w->gpus && count_gpus(w->gpus) > 0 && !strchr(w->gpus, ',') && !w->gpus_per_node && !w->gpus_per_task && !w->gpus_per_socket && !w->gres && !w->tres_per_task;
}

/* "gpu:a100:2", of --gpus=a100:4: so many, after `begin`. */
static const char *of_each(const char *begin, const char *gpus, int count, char text[128])
{
	const char *colon = strchr(gpus, ':');

	snprintf(text, 128, "%s%.*s%d", begin, colon ? (int)(colon + 1 - gpus) : 0, gpus, count);
	return text;
}

/* Of a step's --gpus, for all its nodes together, those of each where its job has as many on every one: left to itself, Slurm deals a
 * step's tasks to the nodes evenly, and its GPUs not. As --gres takes them; NULL where nothing is known to be even. */
static const char *even_gpus(const struct step_words *w, int component, int group)
{
	static char text[128];
	bool known;

	if (!getenv("SLURM_JOB_ID") || is_other_job(component) || !said(component, "gpus") || !w->nodes || !only_in_all(w) || group_variable("SLURM_GRES", group))
		return NULL;
	const int nodes = count_nodes(w->nodes), all = count_gpus(w->gpus);
	if (nodes < 2 || all % nodes)
		return NULL;
	const char *of_job = slurm_job_gres(group, &known);
	return of_job && count_gres_gpus(of_job) >= all / nodes ? of_each("gpu:", w->gpus, all / nodes, text) : NULL;
}

/* Outside of a job the same of GPUs and tasks of each node that go together, where Slurm would give one node more GPUs than the other. */
static void deal_as_tasks(const struct step_words *w, int group)
{
	const int all = w->gpus ? count_gpus(w->gpus) : 0, each = w->ntasks_per_node ? atoi(w->ntasks_per_node) * w->group : 0;
	char text[128];

	if (w->in_job || w->share || !only_in_all(w) || each <= 0 || all <= each || all % each || (w->nodes && count_nodes(w->nodes) != all / each) ||
	    (w->ntasks && atoi(w->ntasks) != all / w->group))
		return;
	set_word("SLURM_GPUS_PER_NODE", group, of_each("", w->gpus, each, text));
}

/* Sets the tasks of one component, in one group of a heterogeneous job or else group -1, as far as Slurm is not to decide. */
static void size_step(int component, int group)
{
	struct step_words words = { 0 };
	struct step_size size;

	refuse_none_of_some(component);
	read_words(&words, component, group);
	refuse_gpus_of_other_nodes(&words, component, group);
	const char *even = even_gpus(&words, component, group);
	if (even) { /* Slurm 24.11 does not read SLURM_GPUS_PER_NODE where --gpus is typed */
		set_word("SLURM_GRES", group, even);
		words.gpus_per_node = even + strlen("gpu:");
		put_gres = true;
	}
	if (step_size(&words, &size))
		refuse_size(size.refusal);
	deal_as_tasks(&words, group);
	const bool none = !size.gpus && names_gpus(component);
	for (size_t i = 0; i < sizeof by_gpu / sizeof *by_gpu; i++)
		keep_word(by_gpu[i], false, none, group);
	if (none)
		words.ntasks_per_gpu = said(component, "ntasks-per-gpu");
	if (!size.gpus && !words.ntasks && !words.ntasks_per_node && !words.ntasks_per_socket && !words.ntasks_per_core) {
		bool have_gpus;
		words.packages_per_node = packages_for_tasks(component, group, &have_gpus);
		step_size(&words, &size);
		if (have_gpus && !names_gpus(component) && !is_other_job(component))
			tell_no_gpus();
		if (!size.tasks && !words.ntasks_per_gpu)
			fprintf(stderr, "hvd: no GPU in this step, and how many sockets its nodes have is not known: one task per node\n");
	}
	int tasks = size.tasks ? size.tasks : words.ntasks ? atoi(words.ntasks) : 0;
	check_cpus(&words, &size, tasks, component, group);
	set_count("SLURM_NTASKS", group, size.tasks);
	/* without it Slurm fills the first nodes with as many tasks as they have CPUs */
	if (!said(component, "ntasks-per-node"))
		set_count("SLURM_NTASKS_PER_NODE", group, size.per_node);
}

/* Whether srun reads the variables of groups, too. */
static bool has_groups(int component)
{
	return scan->components > 1 || getenv("SLURM_HET_SIZE") || said(component, "het-group");
}

/* The groups of one component: "0,2-3", as --het-group takes them, or the one of its own number. */
static void for_each_group(int component, void (*use)(int component, int group))
{
	const char *groups = said(component, "het-group");
	struct cpuset set = { 0 };

	if (!has_groups(component) || (groups && cpulist_parse(groups, &set))) {
		use(component, -1);
		return;
	}
	if (!groups)
		cpuset_add(&set, component);
	for (int g = cpuset_next(&set, 0); g >= 0; g = cpuset_next(&set, g + 1))
		use(component, g);
}

void client_each_component(const struct argv_scan *command_line, void (*use)(int component, int group))
{
	scan = command_line;
	for (int c = 0; c < scan->components; c++)
		for_each_group(c, use);
}

bool client_has_gpus(int component, int group)
{
	struct step_words words = { 0 };

	gpu_words(&words, component, group);
	return has_gpus(&words);
}

bool client_may_have_gpus(int component, int group)
{
	struct step_words words = { 0 };

	gpu_words(&words, component, group);
	return has_gpus(&words) || (words.hidden_gpus && !names_gpus(component));
}

bool client_has_gpus_by_gres(int component, int group)
{
	struct step_words words = { 0 };

	gpu_words(&words, component, group);
	return words.gres && count_gres_gpus(words.gres) > 0;
}

void client_read_groups(const struct argv_scan *command_line, bool fixed, int *gpus_per_task, bool *share)
{
	int first = 0;

	scan = command_line;
	*gpus_per_task = 0;
	*share = false;
	for (int c = 0; c < scan->components; c++) {
		struct step_words words = { 0 };
		const char *groups = said(c, "het-group");
		int group = groups ? atoi(groups) : has_groups(c) ? c : -1;

		gpu_words(&words, c, group);
		int each = gpus_of_each_task(&words);
		const char *of_gpu = tasks_of_gpu(c, group);
		/* one that does not say it has one GPU for each task, or no GPU */
		int here = each ? each : has_gpus(&words);
		if (!fixed && here && first && here != first)
			client_refuse("--gpus-per-task differs between the components of one command: start them as separate steps");
		first = first ? first : here;
		*gpus_per_task = each ? each : *gpus_per_task;
		*share |= of_gpu && atoi(of_gpu) > 1;
	}
}

bool client_count_tasks(const struct argv_scan *command_line, const struct options *asked)
{
	bool named = false;

	scan = command_line;
	options = asked;
	for (int c = 0; c < scan->components; c++) {
		struct cpuset set;
		if (said(c, "het-group") && cpulist_parse(said(c, "het-group"), &set))
			client_refuse("--het-group: a list such as 0,1 expected");
	}
	for (int c = 0; c < scan->components; c++)
		named |= names_gpus(c) && (getenv("SLURM_JOB_ID") || said(c, "jobid"));
	for (int c = 0; named && c < scan->components; c++)
		for_each_group(c, tell_more_gpus);
	for (int c = 0; named && c < scan->components; c++)
		for_each_group(c, keep_words_of_job);
	if (named && has_groups(0))
		drop_words_for_all();
	for (int c = 0; c < scan->components; c++)
		for_each_group(c, size_step);
	for (size_t i = 0; named && has_groups(0) && i < sizeof by_gpu / sizeof *by_gpu; i++)
		unsetenv(by_gpu[i]);
	return put_gres;
}
