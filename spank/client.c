/* SPDX-License-Identifier: Apache-2.0
 * In srun, sbatch and salloc, before Slurm reads its command line: find our words in it, carry --gpu-bind=socket past
 * Slurm's own check, set what the step needs through the variables that Slurm reads next. */
#include "plugin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "cpulist.h"
#include "slurm_nodes.h"
#include "tres_bind.h"

/* Where Slurm itself keeps a plugin's option for the sruns of a job. */
#define INHERITED "SLURM_SPANK__SLURM_SPANK_OPTION_hvd_"

static struct {
	int argc;
	char **argv;
	bool steps;                 /* srun; otherwise sbatch or salloc */
	bool too_long;              /* the command line was not read */
	const struct site *site;
	struct argv_scan scan;
	struct options options;     /* what is in force */
	struct options asked;       /* of that, what was said for this command, without the site's defaults */
	bool alias;                 /* --gpu-bind=socket was said */
	bool bind;                  /* a binding is in force */
	char *inherited;            /* by sbatch and salloc: the --hvd-bind of the job that they are called from */
	bool says_binding;          /* --hvd-bind was said to this command, or in its script */
	bool binds_gpus;            /* a component binds GPUs in Slurm's words */
	bool binds_own, leaves_own; /* of the components with GPUs, one does so, one does not */
	bool by_gres;               /* a component has them by --gres */
	bool gpus_of_node;          /* CUDA_VISIBLE_DEVICES is Slurm's of the node that this runs on */
} client;

/* glibc hands main's own argv to constructors: what is changed in it here is what Slurm will read. */
__attribute__((constructor)) static void keep_command_line(int argc, char **argv)
{
	client.argc = argc;
	client.argv = argv;
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

void client_refuse_too_long(void)
{
	char line[128];

	snprintf(line, sizeof line, "a command line of more than %d options, or %d components, is not read", ARGV_MAX_OPTIONS, ARGV_MAX_COMPONENTS);
	refuse_if(client.too_long, line);
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

/* The words of --hvd-bind that a value of --gpu-bind, "[verbose,]socket", stands for; NULL where it is Slurm's. */
static const char *alias_of(const char *gpu_bind)
{
	const bool verbose = gpu_bind && !strncmp(gpu_bind, "verbose,", 8);
	const char *type = verbose ? gpu_bind + 8 : gpu_bind;

	/* the second form is what #SBATCH lines can say: Slurm takes it for "none" */
	if (!type || !client.site->aliases || (strcmp(type, "socket") && strcmp(type, "none:socket")))
		return NULL;
	return verbose ? "socket,verbose" : "socket";
}

static bool is_alias(const char *gpu_bind)
{
	return alias_of(gpu_bind) != NULL;
}

/* Replaces the option's word (and its value, if that is a word of its own). */
static void rewrite(const struct argv_option *o, const char *name, const char *text)
{
	const bool one = !o->value || strchr(client.argv[o->slot], '=');
	char *word = NULL;
	refuse_if(asprintf(&word, one ? "--%s=%s" : "--%s", name, text) < 0, "out of memory");
	client.argv[o->slot] = word;
	if (!one)
		client.argv[o->slot + 1] = strdup(text);
	refuse_if(!one && !client.argv[o->slot + 1], "out of memory");
}

/* Of several --gpu-bind the last one counts: Slurm must see neither our word nor what our word replaced. */
static void rewrite_aliases(void)
{
	char text[4096];

	options_print(&client.asked, SCOPE_BIND, text, sizeof text);
	for (int i = 0; i < client.scan.options; i++) {
		const struct argv_option *o = &client.scan.option[i];
		const char *last = said(o->component, "gpu-bind");
		if (!strcmp(o->name, "gpu-bind") ? is_alias(last) : client.alias && !strcmp(o->name, "hvd-bind"))
			rewrite(o, "hvd-bind", text);
		else if (!strcmp(o->name, "gpu-bind") && is_alias(o->value))
			rewrite(o, "gpu-bind", last);
	}
}

/* ---- what is asked for --------------------------------------------------------------------------- */

static void parse_or_refuse(int scope, const char *name, const char *text)
{
	char error[512];
	if (options_help(scope, text, stdout)) {
		const int lost = fflush(stdout);
		fputs(lost ? "hvd: the output cannot be written\n" : "", stderr);
		exit(lost ? EXIT_FAILURE : 0);
	}
	if (options_parse(&client.asked, scope, name, text, error, sizeof error) ||
	    options_parse(&client.options, scope, name, text, error, sizeof error))
		client_refuse(error);
}

/* The variable in which this client takes --gpu-bind from the environment. */
static const char *gpu_bind_variable(void)
{
	return client.steps ? "SLURM_GPU_BIND" : !strcmp(program_invocation_short_name, "salloc") ? "SALLOC_GPU_BIND" : "SBATCH_GPU_BIND";
}

/* The groups of a heterogeneous job that this command reads the variables of. */
static bool uses_group(int group)
{
	for (int c = 0; c < client.scan.components; c++) {
		const char *groups = said(c, "het-group");
		struct cpuset set;
		if (groups ? !cpulist_parse(groups, &set) && cpuset_has(&set, group) : c == group)
			return true;
	}
	return false;
}

/* A variable in every spelling that srun reads one after the other: plain with `at` -1, then by groups, of which jobs have two. */
enum { SPELLINGS = 2 * ARGV_MAX_COMPONENTS };
static const char *spelt(const char *name, int at, char *buf, size_t size)
{
	if (at >= 0 && !uses_group(at / 2))
		return NULL;
	snprintf(buf, size, at < 0 ? "%s" : at % 2 ? "%s_HET_GROUP_%d" : "%s_PACK_GROUP_%d", name, at / 2);
	return getenv(buf);
}

static void take_alias(const char *words)
{
	client.alias |= words != NULL;
	if (words)
		parse_or_refuse(SCOPE_BIND, "--gpu-bind", words);
}

/* Slurm 22.05 takes every word that begins with n for "none". */
static void refuse_numa(const char *gpu_bind)
{
	const bool verbose = gpu_bind && !strncmp(gpu_bind, "verbose,", 8);

	refuse_if(client.site->aliases && gpu_bind && !strcmp(gpu_bind + (verbose ? 8 : 0), "numa"), "--gpu-bind=numa: no word of Slurm's: type --hvd-bind=numa");
}

static void take_typed_aliases(void)
{
	for (int c = 0; c < client.scan.components; c++)
		take_alias(alias_of(said(c, "gpu-bind")));
}

static void read_alias(void)
{
	const char *value = said_anywhere("gpu-bind"), *variable = gpu_bind_variable();

	for (int c = 0; c < client.scan.components; c++)
		refuse_numa(said(c, "gpu-bind"));
	take_typed_aliases();
	for (int i = -1; i < SPELLINGS; i++) {
		char name[64];
		const char *words = alias_of(spelt(variable, i, name, sizeof name));
		if (!words)
			continue;
		unsetenv(name); /* Slurm would refuse it, even beside a value on the command line */
		take_alias(value ? NULL : words);
		if (!value && !client.steps)
			client_set(INHERITED "hvd_bind", words, false);
	}
}

/* Command line, else what sbatch or salloc were given, else SLURM_HVD and SLURM_HVD_BIND. *name: what the user called it. */
static const char *text_of(const char *option, const char *inherited, const char *variable, bool inherit, const char **name)
{
	const char *text = said_once(option);
	if (!text && inherit)
		text = getenv(inherited);
	if (!text && inherit && client.steps && (text = getenv(variable)))
		*name = variable;
	if (text && text == getenv(variable) && !*text) /* empty is as good as unset */
		return NULL;
	return text ? client_text(text) : NULL;
}

/* A --hvd that names no key leaves those in force that the job or the environment gave. */
static const char *keys_of_job(const char *hvd, const char **name)
{
	const char *job = getenv(INHERITED "hvd"), *own = getenv("SLURM_HVD");
	const char *keys = job ? client_text(job) : own ? own : "";
	struct options o = options_default();
	char error[512];

	if (!client.steps || !hvd || *hvd || (!options_parse(&o, SCOPE_HVD, "", keys, error, sizeof error) && o.off))
		return hvd;
	if (!job && own)
		*name = "SLURM_HVD";
	return keys;
}

/* The user's own variable of a key holds before plugstack.conf's word, as with Slurm's; the command line's holds before both. */
static void prefer_own(const char *name, const char *value, void *data)
{
	const char *own = getenv(name);
	char word[2048], error[512];

	(void)value, (void)data;
	/* such a text the tasks have from their user */
	if (!own || !*own || options_leave_text(&client.options, name + strlen("HVD_"), own))
		return;
	snprintf(word, sizeof word, "%s=%s", name + strlen("HVD_"), own);
	for (char *c = word; *c != '='; c++)
		*c = (char)tolower((unsigned char)*c);
	if (options_parse(&client.options, SCOPE_HVD, name, word, error, sizeof error))
		client_refuse(error);
}

/* Slurm would hand it on in the place of what the lines of a script say of --gpu-bind. */
static void take_inherited(void)
{
	const char *bind = getenv(INHERITED "hvd_bind");

	client.inherited = bind ? strdup(bind) : NULL;
	refuse_if(bind && !client.inherited, "out of memory");
}

static void read_options(void)
{
	const char *hvd_name = "--hvd", *bind_name = "--hvd-bind";
	const char *hvd = keys_of_job(text_of("hvd", INHERITED "hvd", "SLURM_HVD", true, &hvd_name), &hvd_name);

	client.asked = options_default();
	client.options = client.site->defaults;
	if (hvd) {
		/* these two in any case, but where nothing joins: srun acts on the first, and both have the words that libhvd takes */
		struct options keys = client.site->defaults, typed = options_default();
		char error[512];
		options_parse(&keys, SCOPE_HVD, "", "on_death=abort,backend=auto", error, sizeof error);
		if (options_parse(&typed, SCOPE_HVD, "", hvd, error, sizeof error) || !typed.off)
			options_export(&keys, prefer_own, NULL);
		parse_or_refuse(SCOPE_HVD, hvd_name, hvd);
	}
	client.options.hvd = hvd && !client.asked.off;

	read_alias();
	/* --hvd=off on this command also drops a binding that was inherited with it */
	const char *bind = text_of("hvd-bind", INHERITED "hvd_bind", "SLURM_HVD_BIND", !client.asked.off, &bind_name);
	if (bind)
		parse_or_refuse(SCOPE_BIND, bind_name, bind);
	if (!said_anywhere("hvd-bind")) /* what is typed holds before what comes from elsewhere */
		take_typed_aliases();
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

/* A word for the nodes, where they could not tell by themselves. */
static void tell_nodes(const char *word, bool is_so)
{
	char error[256];
	refuse_if(is_so && options_parse(&client.options, SCOPE_STEP, "srun", word, error, sizeof error), "this option cannot be passed on");
}

/* Overrides also what --gpus-per-task implies: a device cgroup per task, which NCCL cannot work across. srun reads
 * SLURM_GPU_BIND first, then the others. */
static void bind_no_gpus(void)
{
	char name[64], rest[4096];

	for (int i = 0; i < SPELLINGS; i++)
		if (spelt("SLURM_GPU_BIND", i, name, sizeof name))
			unsetenv(name);
	client_set("SLURM_GPU_BIND", "none", true);
	for (int i = -1; i < SPELLINGS; i++) {
		const char *text = spelt("SLURM_TRES_BIND", i, name, sizeof name);
		if (text && !tres_bind_no_gpus(text, rest, sizeof rest))
			client_refuse("SLURM_TRES_BIND is too long");
		if (text)
			client_set(name, rest, true);
	}
}

/* What srun reads last of a variable's spellings, in one group of a heterogeneous job or else group -1. */
static const char *last_spelt(const char *name, int group)
{
	char full[64];
	const char *value = NULL;

	for (int at = 2 * group + 1; group >= 0 && at >= 2 * group && !value; at--)
		value = spelt(name, at, full, sizeof full);
	return value ? value : getenv(name);
}

/* Since 23.11 the same can be said as --tres-bind=gres/gpu:…, and SLURM_TRES_BIND hands on the --gpu-bind of sbatch and salloc. Slurm's old
 * word --accel-bind=g, closest, can only be typed, and no SLURM_GPU_BIND switches it off. */
static bool binds_gpus(int component, int group)
{
	const char *said_gpus = said(component, "gpu-bind"), *any = said(component, "tres-bind"), *accel = said(component, "accel-bind");
	const char *gpus = said_gpus ? said_gpus : last_spelt("SLURM_GPU_BIND", group), *of_job = last_spelt("SLURM_TRES_BIND", group);

	if (strstr(any ? any : "", "gpu") || strchr(accel ? accel : "", 'g'))
		return true;
	/* our word of one component holds for those that have none of their own */
	if (is_alias(said_gpus) || (client.alias && !said_gpus))
		return false;
	return is_choice(gpus) || (!gpus && !any && of_job && tres_binds_gpus(of_job));
}

static void read_gpu_choice(int component, int group)
{
	const bool binds = binds_gpus(component, group);

	client.binds_gpus |= binds;
	client.binds_own |= binds && client_may_have_gpus(component, group);
	/* nobody asked what only the site wants to be bound, nor is Slurm asked for it */
	client.leaves_own |= !binds && !client.options.by_site && client_has_gpus(component, group);
	client.by_gres |= !client.options.by_site && client_has_gpus_by_gres(component, group);
}

static void keep_choices(void)
{
	const char *cpus = said_anywhere("cpu-bind"), *memory = said_anywhere("mem-bind");

	tell_nodes("keep-cpus", is_choice(cpus ? cpus : environment_choice("SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE")));
	tell_nodes("keep-memory", is_choice(memory ? memory : environment_choice("SLURM_MEM_BIND", "SLURM_MEM_BIND_TYPE")));
	client_each_component(&client.scan, read_gpu_choice);
	refuse_if(client.binds_own && client.leaves_own && !client.options.by_site,
		"--gpu-bind differs between the components of one command: start them as separate steps");
	/* where no GPU is seen here, the job may have some that the nodes see */
	tell_nodes("keep-gpus", client.binds_own || (client.binds_gpus && !client.leaves_own));
}

/* What is typed beats the job's, of which the nodes see SLURM_HINT. srun makes --hint=nomultithread --threads-per-core=1, and
 * leaves the nodes no SLURM_HINT. NULL where nothing is said. */
static const char *smt_in_words_of_slurm(void)
{
	const char *threads = said_anywhere("threads-per-core"), *hint = said_anywhere("hint"), *of_job = getenv("SLURM_THREADS_PER_CORE");

	if (!threads && strcasestr(hint ? hint : "", "multithread"))
		threads = strcasestr(hint, "nomultithread") ? "1" : "2";
	if (threads)
		return strcmp(threads, "1") ? "smt=on" : "smt=off";
	return of_job && !strcmp(of_job, "1") ? "smt=off" : NULL;
}

/* What the user said in Slurm's words, and only srun sees; our own words beat them. Of threads it holds where the site binds, too. */
static void keep_threads(void)
{
	const char *smt = smt_in_words_of_slurm();
	char error[256];

	if (smt && !options_given(&client.asked, "smt") && options_parse(&client.options, SCOPE_BIND, "--threads-per-core", smt, error, sizeof error))
		client_refuse(error);
}

/* Of GPUs only where the user asked for ours. */
static void keep_words_of_slurm(void)
{
	struct options *o = &client.options;
	char word[32], error[256];
	bool fixed = options_given(&client.asked, "gpus-per-task"), share;
	int each;

	client_read_groups(&client.scan, fixed, &each, &share);
	snprintf(word, sizeof word, "gpus-per-task=%d", each);
	if (each && !fixed && options_parse(o, SCOPE_BIND, "--gpus-per-task", word, error, sizeof error))
		client_refuse(error);
	if (share && options_parse(o, SCOPE_BIND, "--ntasks-per-gpu", "share", error, sizeof error))
		client_refuse(error);
}

static void set_unless(const char *option, const char *variable, const char *value)
{
	if (!said_anywhere(option))
		client_set(variable, value, false);
}

/* Slurm refuses --ntasks-per-node, which our own advice can be, in a job that was asked for with --ntasks-per-gpu; what is typed holds. */
static void drop_tasks_of_gpus(void)
{
	static const char *const of_job[] = { "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES" };
	char name[64];

	if (!said_anywhere("ntasks-per-node") || said_anywhere("ntasks-per-gpu") || said_anywhere("ntasks-per-tres"))
		return;
	for (size_t i = 0; i < sizeof of_job / sizeof *of_job; i++)
		for (int at = -1; at < SPELLINGS; at++)
			if (spelt(of_job[i], at, name, sizeof name))
				unsetenv(name);
}

/* ---- the step ------------------------------------------------------------------------------------ */

/* Whether the step, or the job that it is of, asks Slurm for this kind of gres. */
static bool asks_for(const char *kind)
{
	static const char *const asking[] = { "SLURM_GRES", "SLURM_STEP_GRES", "SLURM_TRES_PER_TASK" };
	const char *gres = said_anywhere("gres"), *tres = said_anywhere("tres-per-task"), *job = said_anywhere("jobid");
	bool asks = (gres && strstr(gres, kind)) || (tres && strstr(tres, kind));

	/* and those of the groups of a heterogeneous job */
	for (char **entry = environ; *entry; entry++)
		for (size_t i = 0; i < sizeof asking / sizeof *asking; i++)
			asks |= !strncmp(*entry, asking[i], strlen(asking[i])) && strstr(*entry, kind);
	return asks || slurm_job_asks_for(job ? job : getenv("SLURM_JOB_ID"), kind);
}

/* Slurm leaves the variable also in a batch script whose job asked for MPS, and in the tasks of a step that did. */
static bool runs_mps(void)
{
	return getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") && !asks_for("mps") && !client_is_in_step();
}

/* Each can be a job of its own. A node that refuses its tasks ends only its own job; srun ends all of them. */
static bool has_several_components(void)
{
	int used = 0;
	for (int group = 0; group < ARGV_MAX_COMPONENTS; group++)
		used += uses_group(group);
	return used > 1;
}

static void prepare_step(void)
{
	struct options *o = &client.options;
	char text[8192];

	/* a step that asks for nothing has what Slurm leaves it */
	if (client.gpus_of_node && !o->by_site)
		unsetenv("CUDA_VISIBLE_DEVICES");
	if (!o->by_site)
		drop_tasks_of_gpus();
	keep_choices();
	keep_threads();
	if (!o->by_site)
		keep_words_of_slurm();
	/* slurmstepd 22.05 crashes where a binding is asked for with shards or MPS, which are left to Slurm anyway */
	if (!o->by_site && !o->keep_gpus && !asks_for("shard") && !asks_for("mps")) {
		bind_no_gpus();
		tell_nodes("hide-gpus", true);
	}
	if (!o->by_site && has_several_components() && o->on_death != DEATH_CONTINUE)
		set_unless("kill-on-bad-exit", "SLURM_KILL_BAD_EXIT", "1");
	if (o->hvd) {
		client_drop_mpi_of_shell();
		set_unless("mpi", "SLURM_MPI_TYPE", "pmix");
		tell_nodes("own-gres", client_count_tasks(&client.scan, o));
		if (o->on_death == DEATH_CONTINUE) {
			set_unless("kill-on-bad-exit", "SLURM_KILL_BAD_EXIT", "0");
			set_unless("no-kill", "SLURM_NO_KILL", "set");
		}
	}
	tell_nodes("joined", o->hvd);
	tell_nodes("by-site", o->by_site);
	/* srun --exclusive gives its step the cores of -c only, although nobody else can use the others */
	tell_nodes("whole-job", !getenv("SLURM_JOB_ID") && !said_anywhere("jobid"));
	tell_nodes("by-gres", client.by_gres);
	tell_nodes("own-mps", runs_mps());
	tell_nodes("ntasks-per-socket", said_anywhere("ntasks-per-socket"));
	tell_nodes("ntasks-per-core", said_anywhere("ntasks-per-core"));
	tell_nodes("ntasks-per-gpu", said_anywhere("ntasks-per-gpu") || said_anywhere("ntasks-per-tres"));
	tell_nodes("overlap", said_anywhere("overlap") || getenv("SLURM_OVERLAP"));
	client_set(STEP_VARIABLE, options_print(o, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, text, sizeof text), true);
}

/* The daemons by which an mpirun starts its ranks hand on to all of a node's what they are given: one task's GPU, CPUs and threads. */
static bool starts_daemons(void)
{
	static const char *const daemons[] = { "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy" };
	const int at = client.scan.command[0];
	const char *slash = at < client.argc ? strrchr(client.argv[at], '/') : NULL, *program = slash ? slash + 1 : at < client.argc ? client.argv[at] : "";
	bool found = false;

	for (size_t i = 0; i < sizeof daemons / sizeof *daemons; i++)
		found |= !strcmp(program, daemons[i]);
	return found;
}

/* SLURM_HVD=on in a shell's profile has nothing to say about srun --help. */
static bool starts_nothing(void)
{
	static const char *const words[] = { "help", "usage", "version", "autocomplete" };
	const char *mpi = said_anywhere("mpi");
	bool found = mpi && !strcmp(mpi, "list");

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		found |= said_anywhere(words[i]) != NULL;
	return found;
}

int client_init(const struct site *site)
{
	client.site = site;
	client.steps = spank_context() == S_CTX_LOCAL;
	client.gpus_of_node = client_drop_inherited(client.steps);
	if (!client.argv) {
		fprintf(stderr, "hvd: this system does not show plugins the command line: only --hvd-bind works\n");
		return 0;
	}
	client.too_long = scan_as_slurm() && scan_by_own_table();
	if (client.too_long)
		return 0;
	/* salloc's own shell step, and scrontab, are nobody's training */
	if ((client.steps && said_anywhere("interactive")) || !strcmp(program_invocation_short_name, "scrontab"))
		return 0;
	if (!client.steps)
		take_inherited();
	read_options();
	if (client.inherited)
		unsetenv(INHERITED "hvd_bind");
	rewrite_aliases();
	if (client.steps && client.bind && !starts_daemons() && !starts_nothing())
		prepare_step();
	return 0;
}

void client_note_binding(void)
{
	client.says_binding = true;
}

/* The policy that --gpu-bind names; other words stay as the job that this is called from has them. */
static void add_alias_to_inherited(const char *words)
{
	char text[4096], error[512];
	struct options o = options_default();

	options_parse(&o, SCOPE_BIND, "", client.inherited, error, sizeof error);
	options_parse(&o, SCOPE_BIND, "", words, error, sizeof error);
	client_set(INHERITED "hvd_bind", options_print(&o, SCOPE_BIND, text, sizeof text), true);
}

int client_leave_for_job(void)
{
	char *(*get)(void *, const char *) = (char *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "slurm_option_get");
	void *opt = dlsym(RTLD_DEFAULT, "opt");
	char *gpu_bind = get && opt ? get(opt, "gpu-bind") : NULL;

	if (client.says_binding)
		return 0;
	/* from a script's #SBATCH line, which no plugin sees; up to 23.02 Slurm itself hands it on to the sruns */
	if (is_alias(gpu_bind))
		add_alias_to_inherited(alias_of(gpu_bind));
	else if (client.inherited)
		client_set(INHERITED "hvd_bind", client.inherited, false);
	return 0;
}
