/* SPDX-License-Identifier: Apache-2.0
 * chexnet doctor: what is wrong with a job step, found in seconds and before a long run. */
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"
#include "commands/commands.h"
#include "commands/network_options.h"
#include "data/dataset.h"
#include "files/file.h"

enum { PROBE_BATCH = 4, PROBE_SIZE = 32, PROBE_BYTES = 1 << 16, REDUCTIONS = 5 };
enum { DENSENET_121 = 6968206 }; /* its parameters, with 14 findings */

struct conf {
	const char *data, *output;
	struct engine_options engine;
};

static const struct option options[] = {
	OPTION_GROUP("What a run will use"),
	OPTION(STRING, struct conf, data, "data", "DIR", NULL, "prepared data set: opened on every rank, and one image decoded"),
	OPTION(STRING, struct conf, output, "output", "DIR", NULL, "directory for checkpoints: every rank must be able to write there, and DenseNet-121's to find room"),
	ENGINE_OPTIONS(struct conf, engine),
	OPTIONS_END
};

struct doctor {
	const struct conf *conf;
	struct world world;
	int warnings, problems;
	int bad_data; /* one of the problems is the data's */
};

enum verdict { VERDICT_OK, VERDICT_WARNING, VERDICT_PROBLEM };

/* One line on rank 0; counted on all. */
__attribute__((format(printf, 4, 5)))
static void say(struct doctor *d, enum verdict v, const char *subject, const char *format, ...)
{
	static const char *const words[] = { "ok", "warning", "PROBLEM" };
	va_list arguments;

	d->warnings += v == VERDICT_WARNING;
	d->problems += v == VERDICT_PROBLEM;
	if (!world_speaks(&d->world))
		return;
	printf("%-8s %-10s ", words[v], subject);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

/* ---- where the ranks are ------------------------------------------------------------------------------ */

/* libhvd sums on CPUs in the order of the ranks, so each turn from one node to another is a link that the data cross. */
static void check_order(struct doctor *d)
{
	const struct hvd_world *at = d->world.at;
	int turns = 0;

	for (int r = 1; r < at->size; r++)
		turns += strcmp(d->world.places[r - 1].host, d->world.places[r].host) != 0;
	if (turns >= at->nodes && strcmp(at->backend, "cpu") == 0)
		say(d, VERDICT_WARNING, "world", "neighbouring ranks lie on different nodes, so a sum crosses %d links between nodes instead of %d: srun --distribution=block", turns,
		    at->nodes - 1);
}

static void check_world(struct doctor *d)
{
	const struct hvd_world *at = d->world.at;

	if (at->size == 1)
		say(d, VERDICT_WARNING, "world", "one rank: in a job, start it with srun --gpu-bind=socket --hvd");
	else
		say(d, VERDICT_OK, "world", "%d ranks on %d node%s, back end %s", at->size, at->nodes, at->nodes == 1 ? "" : "s", at->backend);
	if (world_speaks(&d->world))
		world_print_places(&d->world, d->conf->engine.threads, stdout);
	check_order(d);
}

static int shared_cpu(const struct place *a, const struct place *b)
{
	for (int i = 0; i < PLACE_CPUS / 64; i++)
		if (a->cpus[i] & b->cpus[i])
			return i * 64 + __builtin_ctzll(a->cpus[i] & b->cpus[i]);
	return -1;
}

static int count_cpus(const struct place *p)
{
	int cpus = 0;

	for (int i = 0; i < PLACE_CPUS / 64; i++)
		cpus += __builtin_popcountll(p->cpus[i]);
	return cpus;
}

/* 1 if more ranks may run on the CPUs of this one than there are CPUs. */
static int is_crowded(const struct world *w, int rank)
{
	const struct place *p = &w->places[rank];
	int cpus = count_cpus(p), ranks = 0;

	for (int other = 0; other < w->at->size; other++)
		ranks += strcmp(p->host, w->places[other].host) == 0 && shared_cpu(p, &w->places[other]) >= 0;
	return ranks > cpus;
}

/* What the plugin's policy calls the CPUs that its tasks are meant to share; NULL where each is meant to have its own. */
static const char *shared_domain(void)
{
	const char *policy = getenv("HVD_POLICY");

	if (policy && strcmp(policy, "socket") == 0)
		return "socket";
	return policy && strcmp(policy, "numa") == 0 ? "NUMA node" : NULL;
}

struct sharing {
	int meant, wrong, gpus; /* pairs of ranks: on CPUs, and on a GPU */
};

/* A rank whose driver shows GPUs of which nothing names one computes on the first. */
static int on_first_gpu(const struct doctor *d, const struct place *p)
{
	return !*p->gpu && p->driver && !model_on_cpu(d->conf->engine.engine);
}

/* Two ranks of a node: not on one GPU, and better not on one CPU. */
static void check_pair(struct doctor *d, int a, int b, struct sharing *sharing)
{
	const struct place *p = &d->world.places[a], *q = &d->world.places[b];
	const char *policy = getenv("HVD_POLICY");
	const int first = (int)strcspn(p->gpu, ","); /* of a list a rank computes on the first */

	if (strcmp(p->host, q->host) != 0)
		return;
	if (first && !model_on_cpu(d->conf->engine.engine) && first == (int)strcspn(q->gpu, ",") && strncmp(p->gpu, q->gpu, (size_t)first) == 0)
		say(d, VERDICT_PROBLEM, "GPU", "ranks %d and %d on %s both have GPU %.*s: one process per GPU (srun --gpu-bind=socket --hvd)", a, b, p->host, first, p->gpu);
	else if (on_first_gpu(d, p) && on_first_gpu(d, q) && !sharing->gpus++)
		say(d, VERDICT_PROBLEM, "GPU", "ranks %d and %d on %s both compute on the first one, as neither HVD_GPU nor CUDA_VISIBLE_DEVICES names theirs: one process per GPU "
		    "(srun --gpu-bind=socket --hvd)", a, b, p->host);
	int cpu = shared_cpu(p, q);
	if (cpu < 0)
		return;
	/* no policy makes CPUs */
	const int few = is_crowded(&d->world, a) || is_crowded(&d->world, b) || (policy && strcmp(policy, "gpu") == 0);
	if (shared_domain() && !few)
		sharing->meant++;
	else if (!sharing->wrong++)
		say(d, VERDICT_WARNING, "CPUs", "ranks %d and %d on %s may both run on CPU %d, so their threads are divided: %s", a, b, p->host, cpu,
		    policy && few ? "ask for more CPUs a rank (a larger -c)" : "srun --hvd --hvd-bind=gpu gives each its own");
}

/* Threads that wait for each other's CPUs are slower than fewer of them. */
static void check_threads(struct doctor *d)
{
	for (int r = 0; r < d->world.at->size; r++) {
		const struct place *p = &d->world.places[r];
		const int asked = d->conf->engine.threads, threads = asked ? asked : p->threads, cpus = count_cpus(p);

		if (cpus && threads > cpus) {
			say(d, VERDICT_WARNING, "CPUs", "rank %d on %s computes with %d threads on %d CPU%s, as %s says: no more threads than CPUs", r, p->host, threads, cpus,
			    cpus == 1 ? "" : "s", asked ? "--threads" : "HVD_THREADS");
			return;
		}
	}
}

static void check_places(struct doctor *d)
{
	int without = 0, first = 0, mute = -1, mutes = 0, n = d->world.at->size;
	char others[40] = "";
	struct sharing sharing = { 0 };

	for (int a = 0; a < n; a++) {
		const struct place *p = &d->world.places[a];

		without += !*p->gpu;
		first += on_first_gpu(d, p);
		if (*p->gpu && !p->driver && mutes++ == 0)
			mute = a;
		for (int b = a + 1; b < n; b++)
			check_pair(d, a, b, &sharing);
	}
	if (mutes > 1)
		snprintf(others, sizeof others, ", nor on %d other rank%s", mutes - 1, mutes == 2 ? "" : "s");
	const int none = without < n ? without : without - first;

	if (none < n && model_on_cpu(d->conf->engine.engine))
		say(d, VERDICT_OK, "GPU", "none is used, as --engine says that the CPU computes");
	else if (none && none < n)
		say(d, VERDICT_PROBLEM, "GPU", "%d of %d ranks have none: ask for one a task (--gpus-per-node, or --gpus-per-task=1)", none, n);
	else if (none)
		say(d, VERDICT_OK, "GPU", "none on any rank");
	else if (first && !sharing.gpus)
		say(d, VERDICT_OK, "GPU", "named on no rank: the first that a driver shows computes");
	else if (mute >= 0)
		say(d, VERDICT_WARNING, "GPU", "rank %d on %s was given %s, and no CUDA driver answers there%s", mute, d->world.places[mute].host,
		    d->world.places[mute].gpu, others);
	else if (!first) /* else it has been said */
		say(d, VERDICT_OK, "GPU", "one a rank, and a driver answers for each");
	if (sharing.wrong || n == 1)
		return;
	if (sharing.meant)
		say(d, VERDICT_OK, "CPUs", "ranks on one %s share its CPUs, as the policy means", shared_domain());
	else
		say(d, VERDICT_OK, "CPUs", "no two ranks share one");
}

/* ---- communication ------------------------------------------------------------------------------------ */

/* One all-reduce of slab, the world's memory, filled from and read back into `values`, the host's; n of each. Shortens *best to the seconds that
 * it took, and adds the wrong sums to *wrong. */
static int reduce_once(struct hvd *hvd, int rank, int size, float *slab, float *values, size_t n, double *best, int64_t *wrong)
{
	for (size_t i = 0; i < n; i++)
		values[i] = (float)(i % 1000 + (size_t)rank);
	if (hvd_copy(hvd, slab, values, n * sizeof *slab) < 0 || hvd_barrier(hvd) < 0)
		return -1;
	double begin = now();

	if (hvd_allreduce(hvd, slab, slab, n, HVD_F32, HVD_SUM) < 0 || hvd_copy(hvd, values, slab, sizeof *slab) < 0) /* the device is through */
		return -1;
	*best = fmin(*best, now() - begin);
	if (hvd_copy(hvd, values, slab, n * sizeof *slab) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		*wrong += values[i] != (float)((i % 1000) * (size_t)size + (size_t)(size * (size - 1) / 2));
	return 0;
}

/* The gradients of DenseNet-121: 27.9 MB of whole numbers, so that every sum is exact. */
static int check_reduction(struct doctor *d, struct error *e)
{
	const size_t n = DENSENET_121;
	int size = d->world.at->size, rank = d->world.at->rank;
	double best = INFINITY;
	int64_t wrong = 0;
	int rc = 0;

	if (size == 1)
		return 0;
	float *slab = hvd_alloc(d->world.hvd, n * sizeof *slab), *values = slab ? malloc(n * sizeof *values) : NULL;

	if (!values) {
		hvd_free(d->world.hvd, slab);
		return slab ? fail(e, EXIT_INTERNAL, "no memory for %zu gradients", n) : world_fail(&d->world, e);
	}
	for (int run = 0; run < REDUCTIONS && rc >= 0; run++)
		rc = reduce_once(d->world.hvd, rank, size, slab, values, n, &best, &wrong);
	if (rc >= 0)
		rc = hvd_allreduce(d->world.hvd, &wrong, &wrong, 1, HVD_I64, HVD_SUM);
	hvd_free(d->world.hvd, slab);
	free(values);
	if (rc < 0)
		return world_fail(&d->world, e);
	if (wrong)
		say(d, VERDICT_PROBLEM, "all-reduce", "%lld of %zu sums are wrong", (long long)wrong, n * REDUCTIONS * (size_t)size);
	else
		say(d, VERDICT_OK, "all-reduce", "%.1f MB in %.1f ms (the best of %d), every sum right", 4e-6 * (double)n, 1e3 * best, REDUCTIONS);
	return 0;
}

/* ---- one step of a small network ---------------------------------------------------------------------- */

static int probe_step(struct doctor *d, struct model *m, double *loss, struct error *e)
{
	static uint8_t pixels[PROBE_BATCH * PROBE_SIZE * PROBE_SIZE];
	const uint32_t labels[PROBE_BATCH] = { 1, 2, 4, 8 };
	struct model_values v = { 0 };
	uint64_t token;

	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(i * 2654435761u >> 13);
	if (model_values_alloc(&v, &m->plan, 1, e) == 0) {
		const double prevalence[FINDINGS] = { [0 ... FINDINGS - 1] = 0.1 };
		struct engine_batch batch = { .count = PROBE_BATCH, .pixels = pixels, .labels = labels };

		net_init(&m->plan, 1, prevalence, v.params);
		for (size_t i = 0; i < m->plan.n_bn_channels; i++)
			v.variance[i] = 1;
		if (model_put(m, &v, e) == 0 && model_train(m, &batch, 0, 1, 1e-3, &token, e) == 0 &&
		    (engine_done(m->engine, token, 1) < 0 || engine_loss(m->engine, loss) < 0))
			model_fail(m, e);
	}
	model_values_free(&v);
	return world_agree(&d->world, e);
}

static int check_engine(struct doctor *d, struct error *e)
{
	const char *fallback = model_fallback(&d->world, (enum engine_choice)d->conf->engine.engine);
	struct model_conf conf = {
		.network = { .model = "densenet", .image_size = PROBE_SIZE, .classes = FINDINGS, .growth = 8, .n_blocks = 2, .block = { 2, 2 } },
		.engine = (enum engine_choice)d->conf->engine.engine,
		.precision = (enum precision)d->conf->engine.precision,
		.batch = PROBE_BATCH, .source_size = PROBE_SIZE, .beta1 = 0.9, .train = 1,
		.threads = threads_from_options(&d->conf->engine, &d->world),
	};
	struct model m = { 0 };
	double loss = NAN;

	if (model_open(&m, &d->world, &conf, e) == 0 && probe_step(d, &m, &loss, e) == 0) {
		say(d, isfinite(loss) ? VERDICT_OK : VERDICT_PROBLEM, "engine", "%s; a training step of a small network has loss %.3f",
		    engine_describe(m.engine), loss);
		if (fallback)
			say(d, VERDICT_OK, "engine", "%s", fallback);
		if (precision_advice(&d->conf->engine, m.kind))
			say(d, VERDICT_OK, "engine", "%s", precision_advice(&d->conf->engine, m.kind));
	}
	model_close(&m);
	return e->code ? -e->code : 0;
}

/* ---- files -------------------------------------------------------------------------------------------- */

static int decode_one(const struct dataset *data, struct error *e)
{
	size_t side = (size_t)dataset_image_size(data);
	uint8_t *pixels = malloc(side * side);
	struct dataset_scratch *scratch = dataset_scratch(data);
	int rc = pixels && scratch ? dataset_read(data, 0, scratch, pixels, e) : fail(e, EXIT_INTERNAL, "no memory for one image");

	dataset_scratch_free(scratch);
	free(pixels);
	return rc;
}

/* Whether two splits share patients; PROBLEM, as training refuses that. */
static int is_leaky(struct doctor *d, struct dataset *const set[SPLITS])
{
	for (int a = 0; a < SPLITS; a++)
		for (int b = a + 1; b < SPLITS; b++) {
			uint32_t example;
			const size_t shared = set[a] && set[b] ? dataset_leak(set[a], set[b], &example) : 0;

			if (shared) {
				say(d, VERDICT_PROBLEM, "data", "%s: %zu patient%s both in %s and in %s (the first: %u): divide it by patient, or --allow-leak to train all the same",
				    d->conf->data, shared, shared == 1 ? " is" : "s are", split_names[a], split_names[b], example);
				return 1;
			}
		}
	return 0;
}

/* What train would refuse, of data that are the same on all ranks. */
static void judge_data(struct doctor *d, struct dataset *const set[SPLITS], double seconds)
{
	const struct dataset *data = set[SPLIT_TRAIN];
	const size_t images = dataset_count(data), patients = dataset_patients(data);

	d->bad_data = !(dataset_labelled(data, 0) | dataset_labelled(data, 1));
	if (images == 0)
		say(d, VERDICT_PROBLEM, "data", "%s: its train split is empty", d->conf->data);
	else if (d->bad_data)
		say(d, VERDICT_PROBLEM, "data", "%s: no label of its train split is known: prepare it with some", d->conf->data);
	else if (!(d->bad_data = is_leaky(d, set)))
		say(d, VERDICT_OK, "data", "%s: %zu training image%s of %zu patient%s, %s; opened and one image decoded on every rank in %.2f s", d->conf->data, images,
		    images == 1 ? "" : "s", patients, patients == 1 ? "" : "s", dataset_describe(data), seconds);
}

static int check_data(struct doctor *d, struct error *e)
{
	struct dataset *set[SPLITS] = { NULL };
	double begin = now();
	uint64_t hash = 0;

	for (int s = 0; s < SPLITS && !e->code; s++) /* all that training opens */
		if ((s == SPLIT_TRAIN || dataset_has(d->conf->data, split_names[s], e) > 0) && dataset_open(&set[s], d->conf->data, split_names[s], e) == 0)
			hash ^= (2 * (uint64_t)s + 1) * dataset_pixel_hash(set[s]);
	if (!e->code && dataset_count(set[SPLIT_TRAIN]) > 0)
		decode_one(set[SPLIT_TRAIN], e);
	if (world_agree(&d->world, e) == 0 && world_same(&d->world, hash, "the data set", "give every node the same --data, prepared with the same --format", e) == 0)
		judge_data(d, set, now() - begin);
	for (int s = 0; s < SPLITS; s++)
		dataset_close(set[s]);
	return e->code ? -e->code : 0;
}

/* Who may write may still have no room: some bytes are brought to disk, and removed again. */
static int probe_room(const char *directory, struct error *e)
{
	char path[FILE_PATH], bytes[PROBE_BYTES];
	struct output_file out;

	memset(bytes, 'x', sizeof bytes);
	if (path_join(path, e, "%s/chexnet-doctor", directory) || output_open(&out, path, e))
		return -e->code;
	if (output_write(&out, bytes, sizeof bytes, e) == 0 && output_flush(&out, e) == 0 && fsync(out.fd))
		fail(e, EXIT_INTERNAL, "%s: cannot be brought to disk: %s", path, strerror(errno));
	output_discard(&out);
	return -e->code;
}

static int check_output(struct doctor *d, struct error *e)
{
	/* parameters and two moments of the two checkpoints that stay and of the next one; the best and the last weights */
	const double wanted = (3 * 3 + 2) * 4.0 * DENSENET_121;
	const char *there = d->conf->output;
	char parent[FILE_PATH];
	struct error why = { 0 };
	struct statvfs room;

	if (path_join(parent, &why, "%s", there) == 0 && directory_check(there, &why) == 0) {
		if (access(there, F_OK)) /* a training will make it */
			there = dirname(parent);
		probe_room(there, &why);
	}
	if (why.code)
		fail(e, (enum exit_code)why.code, "on %s %s", hvd_host(d->world.hvd, d->world.at->rank), why.text);
	if (world_agree(&d->world, e) < 0)
		return -e->code;
	double left = statvfs(there, &room) == 0 ? (double)room.f_bavail * (double)room.f_frsize : INFINITY;

	if (left < wanted)
		say(d, VERDICT_WARNING, "output", "%s can be written to from every rank, and has room for %.0f MB: DenseNet-121's checkpoints take %.0f MB", d->conf->output,
		    1e-6 * left, 1e-6 * wanted);
	else
		say(d, VERDICT_OK, "output", "%s can be written to from every rank", d->conf->output);
	return 0;
}

/* ---- the command -------------------------------------------------------------------------------------- */

static int doctor(const struct conf *conf, struct error *e)
{
	struct doctor d = { .conf = conf };

	if (world_open(&d.world, "doctor", model_on_cpu(conf->engine.engine), e) == 0) {
		check_world(&d);
		check_places(&d);
		check_threads(&d);
		if (check_reduction(&d, e) == 0 && check_engine(&d, e) == 0 && (!conf->data || check_data(&d, e) == 0) &&
		    (!conf->output || check_output(&d, e) == 0) && world_speaks(&d.world))
			printf("%d problem%s, %d warning%s\n", d.problems, d.problems == 1 ? "" : "s", d.warnings, d.warnings == 1 ? "" : "s");
	}
	int rc = e->code ? world_end(&d.world, e) : d.bad_data ? EXIT_DATA : d.problems ? EXIT_INTERNAL : EXIT_DONE;

	world_close(&d.world);
	return rc;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int rc = options_parse(&command_doctor, argc, argv, &conf, NULL, &e);

	if (rc != 0)
		return rc < 0 ? world_refuse("doctor", model_on_cpu(conf.engine.engine), &e) : EXIT_DONE;
	return doctor(&conf, &e);
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "tell in seconds whether a job step is set up right",
	.description = "Start it as the run would be started: srun --gpu-bind=socket --hvd chexnet doctor --data=DIR. It forms the world, shows where each rank "
		       "is, looks for GPUs and CPUs that ranks share, checks and times an all-reduce of DenseNet-121's gradients, trains a small network "
		       "for one step, and opens the data on every rank. Ends with 70 when something would make the run fail or crawl, with 65 when it is the data.",
	.options = options,
	.run = run,
};
