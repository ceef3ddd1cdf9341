/* SPDX-License-Identifier: Apache-2.0
 * hvd-map: what the plugin would do on this machine, or on one described in a file. The same code, without Slurm. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices.h"
#include "explain.h"
#include "files.h"
#include "inventory.h"
#include "nvml.h"
#include "options.h"
#include "selfcheck.h"
#include "svg.h"

enum { EXIT_USAGE = 64, EXIT_DATA = 65 };

struct arguments {
	const char *topology; /* NULL: the running machine */
	const char *proc, *cpus, *svg, *gres;
	char *gpus;           /* is taken apart */
	int tasks;            /* 0: one per GPU, else one per package */
	bool json, users, selfcheck;
	enum numbers numbers; /* as plugstack.conf says */
	struct options options;
};

static const char usage[] =
	"usage: hvd-map [--topology FILE|live] [--proc DIR] [--tasks N] [--policy WORDS] [--gpus LIST] [--cpus LIST]\n"
	"               [--json] [--users] [--svg FILE]\n"
	"       hvd-map selfcheck [--gres FILE] [--numbers bus|minor] [--topology FILE|live] [--proc DIR]\n"
	"\n"
	"Prints which GPU, CPUs, memory and NIC each task of a node gets.\n"
	"\n"
	"  --topology FILE  an hwloc XML (lstopo FILE.xml writes one) in place of this machine\n"
	"  --proc DIR       what /proc/driver/nvidia holds there\n"
	"  --tasks N        tasks on the node [one per GPU; without GPUs one per socket]\n"
	"  --policy WORDS   what --hvd-bind takes [socket]:\n";
static const char usage_end[] =
	"  --gpus LIST      only these GPUs: numbers in bus order, PCI addresses, UUIDs or MIG-… [all]\n"
	"  --cpus LIST      only these CPUs, such as 0-15,32-47 [all]\n"
	"  --json           for programs\n"
	"  --users          also name the processes that hold memory of these GPUs (asks the driver)\n"
	"  --svg FILE       draw node and tasks\n"
	"  --gres FILE      the gres.conf that selfcheck compares with the machine [beside slurm.conf]\n"
	"  --numbers WORD   numbers= of plugstack.conf: bus or minor\n"
	"  --version, --help\n";

static void print_line(const char *text, void *out)
{
	fprintf(out, "                 %s\n", text);
}

static void print_usage(FILE *out)
{
	fputs(usage, out);
	options_describe(SCOPE_BIND, print_line, out);
	fputs(usage_end, out);
}

static void die(int status, const char *line)
{
	fprintf(stderr, "hvd-map: %s\n", line);
	exit(status);
}

/* A file server may say only at the close that there is no room. */
static void end_output(void)
{
	if (fflush(stdout) || ferror(stdout) || fclose(stdout))
		die(EXIT_FAILURE, "the output cannot be written");
}

static int positive(const char *text, const char *option)
{
	char line[128];
	size_t n = strlen(text);

	if (n && n <= 6 && strspn(text, "0123456789") == n && atoi(text) > 0)
		return atoi(text);
	snprintf(line, sizeof line, "%s %.32s: a number from 1 to 999999 expected", option, text);
	die(EXIT_USAGE, line);
	return 0;
}

static void read_arguments(int argc, char *argv[], struct arguments *a)
{
	static const struct option table[] = {
		{ "topology", required_argument, NULL, 't' }, { "proc", required_argument, NULL, 'd' }, { "tasks", required_argument, NULL, 'n' },
		{ "policy", required_argument, NULL, 'p' }, { "gpus", required_argument, NULL, 'g' }, { "cpus", required_argument, NULL, 'c' },
		{ "json", no_argument, NULL, 'j' }, { "users", no_argument, NULL, 'u' }, { "svg", required_argument, NULL, 's' }, { "gres", required_argument, NULL, 'r' },
		{ "numbers", required_argument, NULL, 'N' }, { "version", no_argument, NULL, 'V' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	char error[512];

	a->options = options_default();
	for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;)
		switch (c) {
		case 't': a->topology = strcmp(optarg, "live") ? optarg : NULL; break;
		case 'd': a->proc = optarg; break;
		case 'n': a->tasks = positive(optarg, "--tasks"); break;
		case 'g': a->gpus = optarg; break;
		case 'c': a->cpus = optarg; break;
		case 'j': a->json = true; break;
		case 'u': a->users = true; break;
		case 's': a->svg = optarg; break;
		case 'r': a->gres = optarg; break;
		case 'N':
			a->numbers = !strcmp(optarg, "bus") ? NUMBERS_BUS : NUMBERS_MINOR;
			if (a->numbers == NUMBERS_MINOR && strcmp(optarg, "minor"))
				die(EXIT_USAGE, "--numbers: bus or minor expected");
			break;
		case 'p':
			if (options_parse(&a->options, SCOPE_BIND, "--policy", optarg, error, sizeof error))
				die(EXIT_USAGE, error);
			break;
		case 'V': printf("hvd-map %s\n", HVD_VERSION); end_output(); exit(0);
		case 'h': print_usage(stdout); end_output(); exit(0);
		default: fputs("hvd-map: hvd-map --help lists the options\n", stderr); exit(EXIT_USAGE);
		}
	a->selfcheck = optind < argc && !strcmp(argv[optind], "selfcheck");
	optind += a->selfcheck;
	if (optind < argc) {
		snprintf(error, sizeof error, "'%.64s' is not an option: hvd-map --help lists them", argv[optind]);
		die(EXIT_USAGE, error);
	}
}

static int find_gpu(const struct node *node, const char *name)
{
	char *end;
	long n = strtol(name, &end, 10);
	int by_address = gpu_by_address(node, name);

	if (by_address >= 0)
		return by_address;
	if (*name && !*end && n >= 0 && n < node->gpus)
		return (int)n;
	return gpu_by_name(node, name);
}

static void choose_gpus(const struct node *node, char *list, struct request *r)
{
	if (!list) {
		for (r->devices = 0; r->devices < node->gpus; r->devices++)
			r->device[r->devices] = r->devices;
		return;
	}
	for (char *name; (name = strsep(&list, ","));) {
		int g = find_gpu(node, name);
		if ((g < 0 && !is_instance(name)) || r->devices == STEP_MAX_DEVICES) {
			char line[256];
			snprintf(line, sizeof line, "--gpus: no GPU '%.64s' here (there are %d)", name, node->gpus);
			die(EXIT_USAGE, line);
		}
		for (int d = 0; d < r->devices; d++)
			if (is_instance(name) ? r->instance[d] && !strcmp(r->instance[d], name) : r->device[d] == g)
				die(EXIT_USAGE, "--gpus: the same GPU twice");
		r->instance[r->devices] = is_instance(name) ? name : NULL;
		r->device[r->devices++] = g;
	}
}

static void make_request(const struct node *node, const struct arguments *a, struct request *r)
{
	struct cpuset cpus;

	r->policy = (enum policy)a->options.policy;
	r->order = (enum order)a->options.order;
	r->no_smt = a->options.no_smt;
	r->share = a->options.share;
	r->gpus_per_task = a->options.gpus_per_task;
	r->allowed = node->allowed;
	choose_gpus(node, a->gpus, r);
	if (a->cpus && cpulist_parse(a->cpus, &cpus))
		die(EXIT_USAGE, "--cpus: a list such as 0-15,32-47 expected");
	if (a->cpus)
		r->allowed = cpuset_and(&r->allowed, &cpus);
	r->tasks = a->tasks ? a->tasks : r->devices ? r->devices / r->gpus_per_task : node->packages;
	if (r->tasks < 1)
		r->tasks = 1;
}

static void print_plan(const struct node *node, const struct request *r, const struct plan *plan, bool json)
{
	char line[EXPLAIN_LINE];

	if (json)
		explain_json(stdout, node, r, plan);
	for (int t = 0; t < plan->tasks; t++) {
		if (!json)
			printf("task %d: %s\n", t, explain_task(node, r, plan, t, line, sizeof line));
		if (*explain_distance(node, r, plan, t, line, sizeof line))
			fprintf(stderr, "hvd-map: task %d: %s\n", t, line);
	}
	if (*explain_crowd(node, r, plan, line, sizeof line))
		fprintf(stderr, "hvd-map: %s\n", line);
	if (*explain_idle(node, r, plan, line, sizeof line))
		fprintf(stderr, "hvd-map: %s\n", line);
	if (*explain_mixture(node, r, plan, line, sizeof line))
		fprintf(stderr, "hvd-map: %s\n", line);
}

/* Asks the driver, which takes it longer than all the rest. */
static void print_users(const struct node *node, const struct request *r)
{
	struct nvml *nvml = nvml_open();
	char line[EXPLAIN_LINE];

	if (!nvml)
		fprintf(stderr, "hvd-map: --users: no NVIDIA driver answers\n");
	for (int d = 0; nvml && d < r->devices; d++)
		if (*nvml_users(nvml, device_name(node, r, d), 0, line, sizeof line))
			fprintf(stderr, "hvd-map: %s\n", line);
	nvml_close(nvml);
}

/* gres.conf beside the slurm.conf in use, as Slurm's own programs look for it; the last is where slurmd keeps what it was
 * sent. Returns buf, which names a file that can be read, or the usual one. */
static char *find_gres_conf(char *buf, size_t size)
{
	const char *conf = getenv("SLURM_CONF"), *slash = conf ? strrchr(conf, '/') : NULL;

	if (slash) {
		snprintf(buf, size, "%.*s/gres.conf", (int)(slash - conf), conf);
		if (!access(buf, R_OK))
			return buf;
	}
	snprintf(buf, size, "%s", access("/etc/slurm/gres.conf", R_OK) && !access("/run/slurm/conf/gres.conf", R_OK) ? "/run/slurm/conf/gres.conf" : "/etc/slurm/gres.conf");
	return buf;
}

static int run_selfcheck(const struct node *node, const struct arguments *a)
{
	char found[4096], error[512], line[600], host[256] = "";
	const char *path = a->gres ? a->gres : find_gres_conf(found, sizeof found);
	const char *name = getenv("SLURMD_NODENAME"); /* Slurm may call the node otherwise than it calls itself (NodeHostname=) */
	size_t length;
	char *text = read_whole_file(path, false, &length, error, sizeof error);
	struct gres_conf *conf = calloc(1, sizeof *conf);

	if (!text) {
		snprintf(line, sizeof line, "%.500s%s", error, a->gres ? "" : ": name yours with --gres FILE");
		die(EXIT_DATA, line);
	}
	gethostname(host, sizeof host - 1);
	host[strcspn(host, ".")] = '\0';
	if (!conf)
		die(EXIT_FAILURE, "out of memory");
	if (gres_conf_parse(text, name && *name ? name : host, conf, error, sizeof error)) {
		snprintf(line, sizeof line, "%.80s, %s", path, error);
		die(EXIT_DATA, line);
	}
	int wrong = selfcheck(node, conf, a->numbers, stdout);
	free(conf);
	free(text);
	return wrong ? EXIT_DATA : 0;
}

/* An old picture may be replaced; another file with something in it is somebody's work. *old: the file that was looked at. */
static bool may_write(const char *path, struct stat *old)
{
	char begin[5] = "";

	if (!S_ISREG(old->st_mode) || !old->st_size)
		return true;
	FILE *f = fopen(path, "r");
	size_t n = f && !fstat(fileno(f), old) ? fread(begin, 1, sizeof begin - 1, f) : 0;
	if (!f || ferror(f)) {
		char line[512];
		snprintf(line, sizeof line, "%.400s is there and cannot be read: %s: name another file", path, strerror(errno));
		die(EXIT_FAILURE, line);
	}
	fclose(f);
	return n && !strcmp(begin, "<svg");
}

static void write_svg(const char *path, const struct node *node, const struct request *r, const struct plan *plan)
{
	char line[512], at[PATH_MAX], beside[PATH_MAX + 8], *real = NULL;
	struct stat old, out;
	bool there = !stat(path, &old);

	/* opened by its name once more it would begin where the table does */
	if (there && !fstat(STDOUT_FILENO, &out) && old.st_dev == out.st_dev && old.st_ino == out.st_ino) {
		draw_svg(stdout, node, r, plan);
		return;
	}
	if (there && !may_write(path, &old)) {
		snprintf(line, sizeof line, "%.400s is there and no SVG: name another file, or remove it first", path);
		die(EXIT_USAGE, line);
	}
	signal(SIGXFSZ, SIG_IGN);
	const bool filled = there && S_ISREG(old.st_mode) && old.st_size;
	/* root writes over a user's file where it is: who owns the directory could have another take its place meanwhile, which a new file would give to that user */
	if (filled && (geteuid() || !old.st_uid))
		real = realpath(path, at);
	snprintf(beside, sizeof beside, "%s.XXXXXX", real ? real : ""); /* until it is whole the old one stays */
	int fd = real ? mkstemp(beside) : -1;
	if (fd < 0 && !(real && errno == ENOSPC)) { /* nothing may be made beside it */
		real = NULL;
		fd = open(path, O_WRONLY | (there ? 0 : O_CREAT), 0666);
		/* which may be another one than was looked at */
		if (fd >= 0 && !fstat(fd, &out) && S_ISREG(out.st_mode) && ((filled ? out.st_dev != old.st_dev || out.st_ino != old.st_ino : out.st_size) || ftruncate(fd, 0))) {
			snprintf(line, sizeof line, "%.400s: another file has taken its place meanwhile", path);
			die(EXIT_FAILURE, line);
		}
	}
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	if (f)
		draw_svg(f, node, r, plan);
	bool bad = !f || fflush(f) || ferror(f) || /* a flush on the way may have failed and the last one not */
		   (real && fchmod(fd, old.st_mode & 0777) && errno != EPERM);
	if ((f && fclose(f)) || bad || (real && rename(beside, real))) {
		snprintf(line, sizeof line, "%.400s: cannot be written: %s", path, strerror(errno));
		if (real)
			unlink(beside);
		die(EXIT_FAILURE, line);
	}
}

int main(int argc, char *argv[])
{
	struct arguments a = { 0 };
	struct node *node = calloc(1, sizeof *node);
	struct request *request = calloc(1, sizeof *request);
	struct plan plan;
	char line[512];

	if (!node || !request)
		die(EXIT_FAILURE, "out of memory");
	read_arguments(argc, argv, &a);
	struct inventory_source source = { .topology = a.topology, .proc = a.proc };
	if (inventory_load(&source, node, line, sizeof line))
		die(EXIT_DATA, line);
	if (*line)
		fprintf(stderr, "hvd-map: %s\n", line);
	int status = 0;
	if (a.selfcheck) {
		status = run_selfcheck(node, &a);
	} else {
		make_request(node, &a, request);
		if (place_tasks(node, request, &plan))
			die(EXIT_USAGE, plan.refusal);
		print_plan(node, request, &plan, a.json);
		if (a.users)
			print_users(node, request);
		if (a.svg)
			write_svg(a.svg, node, request, &plan);
		plan_free(&plan);
	}
	free(request);
	free(node);
	end_output();
	return status;
}
