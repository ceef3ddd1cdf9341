/* SPDX-License-Identifier: Apache-2.0
 * In srun, sbatch and salloc, before Slurm reads its command line: find our words in it, carry --gpu-bind=socket past
 * Slurm's own check, set what the step needs through the variables that Slurm reads next. */
#include "plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "argv.h"
#include "slurm_nodes.h"
#include "tasks.h"

/* Where Slurm itself keeps a plugin's option for the sruns of a job. */
#define INHERITED "SLURM_SPANK__SLURM_SPANK_OPTION_hvd_"

/* From 23.11 on srun takes the -c of sbatch and salloc again. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define CPUS_PER_TASK_VARIABLE "SLURM_CPUS_PER_TASK"
#else
#define CPUS_PER_TASK_VARIABLE "SRUN_CPUS_PER_TASK"
#endif

static struct {
	int argc;
	char **argv;
	bool steps;                 /* srun; otherwise sbatch or salloc */
	const struct site *site;
	struct argv_scan scan;
	struct options options;     /* what is in force */
	struct options asked;       /* of that, what was said for this command, without the site's defaults */
	bool alias;                 /* --gpu-bind=socket was said */
	bool bind;                  /* a binding is in force */
} client;

/* glibc hands main's own argv to constructors: what is changed in it here is what Slurm will read. */
__attribute__((constructor)) static void keep_command_line(int argc, char **argv)
{
	client.argc = argc;
	client.argv = argv;
}

void client_refuse(const char *line)
{
	fprintf(stderr, "hvd: %s\n", line);
	exit(EXIT_USAGE);
}

static void refuse_if(bool wrong, const char *line)
{
	if (wrong)
		client_refuse(line);
}

const char *client_text(const char *text)
{
	return text && strcmp(text, "(null)") ? text : "";
}

/* ---- the command line ---------------------------------------------------------------------------- */

/* Slurm's own table, made by its own function, knows every option of this very release and of the other plugins. */
static int scan_as_slurm(void)
{
	struct option *(*create)(void *, char **) = (struct option *(*)(void *, char **))dlsym(RTLD_DEFAULT, "slurm_option_table_create");
	void (*destroy)(struct option *) = (void (*)(struct option *))dlsym(RTLD_DEFAULT, "slurm_option_table_destroy");
	void *opt = dlsym(RTLD_DEFAULT, "opt");
	char *letters = NULL;

	if (!create || !destroy || !opt)
		return -1;
	struct option *table = create(opt, &letters);
	if (!table || !letters)
		return -1;
	/* Slurm frees `letters` with an allocator of its own: a few bytes are left to the end of the process */
	int rc = argv_scan(client.argc, client.argv, table, letters, client.steps, &client.scan);
	destroy(table);
	return rc;
}

static int scan_by_own_table(void)
{
	struct option table[ARGV_MAX_KNOWN];
	char letters[3 * 64];

	argv_known(client.steps ? PROGRAM_SRUN : !strcmp(program_invocation_short_name, "salloc") ? PROGRAM_SALLOC : PROGRAM_SBATCH, table, letters);
	return argv_scan(client.argc, client.argv, table, letters, client.steps, &client.scan);
}

static const char *said(int component, const char *option)
{
	return argv_value(&client.scan, component, option);
}

/* Said in any component. */
static const char *said_anywhere(const char *option)
{
	const char *value = NULL;
	for (int c = 0; c < client.scan.components && !value; c++)
		value = said(c, option);
	return value;
}

/* One plugin option holds for the whole command: Slurm hands the nodes one value of it. */
static const char *said_once(const char *option)
{
	const char *value = said_anywhere(option);
	for (int c = 0; c < client.scan.components; c++) {
		const char *other = said(c, option);
		if (other && strcmp(other, value)) {
			char line[256];
			snprintf(line, sizeof line, "--%s differs between the components of one command: start them as separate steps", option);
			client_refuse(line);
		}
	}
	return value;
}

static bool is_alias(const char *gpu_bind)
{
	/* the second form is what #SBATCH lines can say: Slurm takes it for "none" */
	return gpu_bind && client.site->aliases && (!strcmp(gpu_bind, "socket") || !strcmp(gpu_bind, "none:socket"));
}

/* Replaces the option's word (and its value, if that is a word of its own) by --hvd-bind. */
static void rewrite(const struct argv_option *o, const char *text)
{
	char *word = NULL;
	if (!o->value || strchr(client.argv[o->slot], '=')) {
		if (asprintf(&word, "--hvd-bind=%s", text) < 0)
			client_refuse("out of memory");
		client.argv[o->slot] = word;
		return;
	}
	client.argv[o->slot] = strdup("--hvd-bind");
	client.argv[o->slot + 1] = strdup(text);
	refuse_if(!client.argv[o->slot] || !client.argv[o->slot + 1], "out of memory");
}

static void rewrite_aliases(void)
{
	char text[4096];

	if (!client.alias)
		return;
	options_print(&client.asked, SCOPE_BIND, text, sizeof text);
	for (int i = 0; i < client.scan.options; i++) {
		const struct argv_option *o = &client.scan.option[i];
		if (!strcmp(o->name, "hvd-bind") || (!strcmp(o->name, "gpu-bind") && is_alias(o->value)))
			rewrite(o, text);
	}
}

/* ---- what is asked for --------------------------------------------------------------------------- */

static void parse_or_refuse(int scope, const char *name, const char *text)
{
	char error[512];
	if (options_parse(&client.asked, scope, name, text, error, sizeof error) ||
	    options_parse(&client.options, scope, name, text, error, sizeof error))
		client_refuse(error);
}

/* The variable in which this client takes --gpu-bind from the environment. */
static const char *gpu_bind_variable(void)
{
	return client.steps ? "SLURM_GPU_BIND" : !strcmp(program_invocation_short_name, "salloc") ? "SALLOC_GPU_BIND" : "SBATCH_GPU_BIND";
}

static void read_alias(void)
{
	const char *value = said_anywhere("gpu-bind"), *variable = gpu_bind_variable();

	for (int c = 0; c < client.scan.components; c++)
		client.alias |= is_alias(said(c, "gpu-bind"));
	if (!value && is_alias(getenv(variable))) {
		client.alias = true;
		unsetenv(variable);
		if (!client.steps)
			setenv(INHERITED "hvd_bind", "socket", 0);
	}
	if (client.alias)
		parse_or_refuse(SCOPE_BIND, "--gpu-bind", "socket");
}

/* Command line, else what sbatch or salloc were given, else SLURM_HVD and SLURM_HVD_BIND. */
static const char *text_of(const char *option, const char *inherited, const char *variable, bool inherit)
{
	const char *text = said_once(option);
	if (!text && inherit)
		text = getenv(inherited);
	if (!text && inherit && client.steps)
		text = getenv(variable);
	return text ? client_text(text) : NULL;
}

static void read_options(void)
{
	const char *hvd = text_of("hvd", INHERITED "hvd", "SLURM_HVD", true);

	client.asked = options_default();
	client.options = client.site->defaults;
	if (hvd)
		parse_or_refuse(SCOPE_HVD, "--hvd", hvd);
	client.options.hvd = hvd && !client.asked.off;

	read_alias();
	/* --hvd=off on this command also drops a binding that was inherited with it */
	const char *bind = text_of("hvd-bind", INHERITED "hvd_bind", "SLURM_HVD_BIND", !client.asked.off);
	if (bind)
		parse_or_refuse(SCOPE_BIND, "--hvd-bind", bind);
	client.bind = bind || client.alias || client.options.hvd;
	if (!client.bind && client.site->enable == ENABLE_ALWAYS && !client.asked.off) {
		client.bind = true;
		client.options.by_site = 1;
	}
}

/* ---- what the user chose of Slurm's own ---------------------------------------------------------- */

/* True if the text of --cpu-bind holds more than wishes about printing. */
static bool is_choice(const char *text)
{
	while (text && *text) {
		size_t n = strcspn(text, ",");
		bool print = (n == 1 && (*text == 'v' || *text == 'q')) || (n == 5 && !strncmp(text, "quiet", n)) || (n == 7 && !strncmp(text, "verbose", n));
		if (n && !print)
			return true;
		text += n + (text[n] == ',');
	}
	return false;
}

/* Slurm leaves its own binding of a task in SLURM_CPU_BIND and beside it in SLURM_CPU_BIND_TYPE; a user sets only the first. */
static const char *environment_choice(const char *variable, const char *companion)
{
	return getenv(companion) ? NULL : getenv(variable);
}

static void keep_choices(struct options *o)
{
	const char *cpus = said_anywhere("cpu-bind"), *memory = said_anywhere("mem-bind"), *gpus = said_anywhere("gpu-bind");

	o->keep_cpus = is_choice(cpus ? cpus : environment_choice("SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE"));
	o->keep_memory = is_choice(memory ? memory : environment_choice("SLURM_MEM_BIND", "SLURM_MEM_BIND_TYPE"));
	if (!gpus)
		gpus = getenv("SLURM_GPU_BIND");
	o->keep_gpus = is_choice(gpus) && !client.alias;
	/* since 23.11 the same can be said as --tres-bind=gres/gpu:… */
	const char *any = said_anywhere("tres-bind");
	o->keep_gpus |= strstr(any ? any : "", "gpu") != NULL;
}

static void set_unless(const char *option, const char *variable, const char *value)
{
	if (!said_anywhere(option))
		setenv(variable, value, 0);
}

/* ---- number of tasks ----------------------------------------------------------------------------- */

/* A variable as srun reads it for one group of a heterogeneous job. */
static const char *group_variable(const char *name, int group)
{
	char full[128];
	snprintf(full, sizeof full, "%s_HET_GROUP_%d", name, group);
	const char *value = group >= 0 ? getenv(full) : NULL;
	return value ? value : getenv(name);
}

static const char *said_or_set(int component, const char *option, const char *variable, int group)
{
	const char *value = said(component, option);
	return value ? value : group_variable(variable, group);
}

static void gpu_words(struct step_words *w, int component, int group)
{
	static const struct {
		const char *option, *variable;
		size_t field;
	} source[] = {
		{ "gpus", "SLURM_GPUS", offsetof(struct step_words, gpus) },
		{ "gpus-per-node", "SLURM_GPUS_PER_NODE", offsetof(struct step_words, gpus_per_node) },
		{ "gpus-per-task", "SLURM_GPUS_PER_TASK", offsetof(struct step_words, gpus_per_task) },
		{ "gpus-per-socket", "SLURM_GPUS_PER_SOCKET", offsetof(struct step_words, gpus_per_socket) },
		{ "gres", "SLURM_STEP_GRES", offsetof(struct step_words, gres) },
		{ "tres-per-task", "SLURM_TRES_PER_TASK", offsetof(struct step_words, tres_per_task) },
	};
	bool on_command_line = false;

	for (size_t i = 0; i < sizeof source / sizeof *source; i++)
		on_command_line |= said(component, source[i].option) != NULL;
	for (size_t i = 0; i < sizeof source / sizeof *source; i++)
		*(const char **)((char *)w + source[i].field) = on_command_line ? said(component, source[i].option) : group_variable(source[i].variable, group);
	if (!on_command_line && !w->gres)
		w->gres = group_variable("SLURM_GRES", group);
	if (!on_command_line && !w->gres)
		w->gres = group_variable(GRES_VARIABLE, group);
	w->hidden_gpus = getenv("SLURM_JOB_ID") && (getenv("SLURM_JOB_GPUS") || getenv("SLURM_GPUS_ON_NODE"));
}

static void read_words(struct step_words *w, int component, int group)
{
	gpu_words(w, component, group);
	w->nodes = said(component, "nodes");
	if (!w->nodes)
		w->nodes = group_variable(group_variable("SLURM_NNODES", group) ? "SLURM_NNODES" : "SLURM_JOB_NUM_NODES", group);
	w->ntasks = said_or_set(component, "ntasks", "SLURM_NTASKS", group);
	if (!w->ntasks)
		w->ntasks = group_variable("SLURM_NPROCS", group);
	w->ntasks_per_node = said_or_set(component, "ntasks-per-node", "SLURM_NTASKS_PER_NODE", group);
	w->ntasks_per_gpu = said_or_set(component, "ntasks-per-gpu", "SLURM_NTASKS_PER_GPU", group);
	w->ntasks_per_other = said(component, "ntasks-per-socket") ? "" : said(component, "ntasks-per-core");
	w->group = client.options.gpus_per_task;
	w->share = client.options.share || w->ntasks_per_gpu;
}

/* Slurm's own message about this names neither the node nor the cure. */
static void check_cpus(const struct step_words *w, const struct step_size *size, int tasks, int component, int group)
{
	const char *counts = group_variable("SLURM_JOB_CPUS_PER_NODE", group), *each = said_or_set(component, "cpus-per-task", CPUS_PER_TASK_VARIABLE, group);
	const char *nodelist = group_variable("SLURM_JOB_NODELIST", group);
	int position = 0, cpus = counts ? smallest_count(counts, &position) : -1, per_node, need = each && atoi(each) > 0 ? atoi(each) : 1;
	char host[256], line[512];

	if (cpus < 0 || size->nodes < 1 || tasks < 1 || said(component, "overcommit") || getenv("SLURM_OVERCOMMIT") || !nodelist)
		return;
	per_node = (tasks + size->nodes - 1) / size->nodes;
	if (per_node * need <= cpus)
		return;
	slurm_host(nodelist, position, host, sizeof host);
	if (size->gpus > 0)
		snprintf(line, sizeof line, "%s: %d GPU%s but %d CPU%s: add #SBATCH --cpus-per-gpu=%d", host, per_node * w->group, per_node * w->group == 1 ? "" : "s",
			cpus, cpus == 1 ? "" : "s", slurm_cpus_per_gpu(host, need > 8 ? need : 8));
	else
		snprintf(line, sizeof line, "%s: %d task%s of %d CPU%s but %d CPU%s: add #SBATCH --cpus-per-task=%d", host, per_node, per_node == 1 ? "" : "s",
			need, need == 1 ? "" : "s", cpus, cpus == 1 ? "" : "s", need);
	client_refuse(line);
}

/* A step without GPUs has one task per package, as far as there are CPUs for them. */
static int packages_for_tasks(int group)
{
	const char *counts = group_variable("SLURM_JOB_CPUS_PER_NODE", group);
	int position, cpus = counts ? smallest_count(counts, &position) : -1, packages = slurm_packages_per_node(group_variable("SLURM_JOB_NODELIST", group));

	return cpus > 0 && cpus < packages ? cpus : packages;
}

/* Returns the tasks of one component and group, 0 where Slurm is to decide. */
static int size_step(int component, int group)
{
	struct step_words words = { 0 };
	struct step_size size;

	read_words(&words, component, group);
	if (step_size(&words, &size))
		client_refuse(size.refusal);
	if (!size.gpus && !words.ntasks && !words.ntasks_per_node && !words.ntasks_per_other) {
		words.packages_per_node = packages_for_tasks(group);
		step_size(&words, &size);
		if (!size.tasks)
			fprintf(stderr, "hvd: no GPU in this step, and how many sockets its nodes have is not known: one task per node\n");
	}
	int tasks = size.tasks ? size.tasks : words.ntasks ? atoi(words.ntasks) : 0;
	check_cpus(&words, &size, tasks, component, group);
	return size.tasks;
}

static void set_tasks(const char *name, int tasks)
{
	char text[16];
	snprintf(text, sizeof text, "%d", tasks);
	if (tasks)
		setenv(name, text, 1);
}

/* Groups of "0,2-3", as --het-group takes them. */
static void size_groups(int component, const char *groups)
{
	struct cpuset set;
	refuse_if(cpulist_parse(groups, &set) != 0, "--het-group: a list such as 0,1 expected");
	for (int g = cpuset_next(&set, 0); g >= 0; g = cpuset_next(&set, g + 1)) {
		char name[64];
		snprintf(name, sizeof name, "SLURM_NTASKS_HET_GROUP_%d", g);
		set_tasks(name, size_step(component, g));
	}
}

static void size_components(void)
{
	bool het = client.scan.components > 1 || getenv("SLURM_HET_SIZE");

	for (int c = 0; c < client.scan.components; c++) {
		const char *groups = said(c, "het-group");
		char own[16];
		snprintf(own, sizeof own, "%d", c);
		if (het || groups)
			size_groups(c, groups ? groups : own);
		else
			set_tasks("SLURM_NTASKS", size_step(c, -1));
	}
}

/* ---- the step ------------------------------------------------------------------------------------ */

/* A task that starts a step of its own must not hand it its own placement. */
static void drop_inherited(void)
{
	static const char *const placement[] = { "HVD_GPU", "HVD_CPUS", "HVD_NUMA", "HVD_NIC", "HVD_POLICY", "HVD_THREADS" };
	const char *threads = getenv("HVD_THREADS"), *openmp = getenv("OMP_NUM_THREADS");

	if (threads && openmp && !strcmp(threads, openmp))
		unsetenv("OMP_NUM_THREADS");
	for (size_t i = 0; i < sizeof placement / sizeof *placement; i++)
		unsetenv(placement[i]);
	unsetenv(STEP_VARIABLE);
}

static void prepare_step(void)
{
	struct options *o = &client.options;
	char text[4096], carried[4200];

	keep_choices(o);
	if (!o->by_site && !o->keep_gpus) {
		/* also overrides what --gpus-per-task implies: a device cgroup per task, which NCCL cannot work across */
		setenv("SLURM_GPU_BIND", "none", 1);
		o->hide_gpus = 1;
	}
	if (o->hvd) {
		set_unless("mpi", "SLURM_MPI_TYPE", "pmix");
		size_components();
		if (o->on_death == DEATH_CONTINUE) {
			set_unless("kill-on-bad-exit", "SLURM_KILL_BAD_EXIT", "0");
			set_unless("no-kill", "SLURM_NO_KILL", "set");
		}
	}
	/* srun --exclusive gives its step the cores of -c only, although nobody else can use the others */
	o->whole_job = !getenv("SLURM_JOB_ID");
	o->overlap = said_anywhere("overlap") || getenv("SLURM_OVERLAP");
	options_print(o, SCOPE_HVD | SCOPE_BIND, text, sizeof text);
	snprintf(carried, sizeof carried, "%s%s%s%s%s%s%s%s%s", o->hvd ? "on," : "", o->by_site ? "by-site," : "", o->keep_cpus ? "keep-cpus," : "",
		o->keep_gpus ? "keep-gpus," : "", o->keep_memory ? "keep-memory," : "", o->whole_job ? "whole-job," : "",
		o->overlap ? "overlap," : "", o->hide_gpus ? "hide-gpus," : "", *text ? text : "socket");
	setenv(STEP_VARIABLE, carried, 1);
}

int client_init(const struct site *site)
{
	client.site = site;
	client.steps = spank_context() == S_CTX_LOCAL;
	if (client.steps)
		drop_inherited();
	if (!client.argv) {
		fprintf(stderr, "hvd: this system does not show plugins the command line: only --hvd-bind works\n");
		return 0;
	}
	if (scan_as_slurm() && scan_by_own_table())
		return 0;
	/* salloc's own shell step, and scrontab, are nobody's training */
	if ((client.steps && said_anywhere("interactive")) || !strcmp(program_invocation_short_name, "scrontab"))
		return 0;
	read_options();
	rewrite_aliases();
	if (client.steps && client.bind)
		prepare_step();
	return 0;
}

int client_leave_for_job(void)
{
	char *(*get)(void *, const char *) = (char *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "slurm_option_get");
	void *opt = dlsym(RTLD_DEFAULT, "opt");
	char *gres = get && opt ? get(opt, "gres") : NULL;
	char *gpu_bind = get && opt ? get(opt, "gpu-bind") : NULL;

	/* from a script's #SBATCH line, which no plugin sees; up to 23.02 Slurm itself hands it on to the sruns */
	if (is_alias(gpu_bind))
		setenv(INHERITED "hvd_bind", "socket", 0);
	if (gres && *gres && strcmp(gres, "unset"))
		setenv(GRES_VARIABLE, gres, 1);
	else
		unsetenv(GRES_VARIABLE);
	return 0;
}
