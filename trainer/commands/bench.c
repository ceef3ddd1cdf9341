/* SPDX-License-Identifier: Apache-2.0
 * chexnet bench: training steps on random pixels that are already in memory. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/ablate.h"
#include "commands/bench_plan.h"
#include "commands/commands.h"
#include "commands/knobs.h"
#include "commands/network_options.h"
#include "data/random.h"
#include "learn/auroc.h"
#include "learn/gpu_meter.h"
#include "learn/log.h"

struct bench_conf {
	struct network_options network;
	struct engine_options engine;
	int batch, source_size, steps, warmup, forward, resident, json, bucket_kib;
	int classes, softmax;
	int ablate, rounds, intervals, plan;
	const char *gpu;
	const char *data;
	uint64_t seed;
};

static const struct option options[] = {
	NETWORK_OPTIONS(struct bench_conf, network, "224", "side of the square that enters the network"),
	OPTION(INT, struct bench_conf, source_size, "source-size", "PIXELS", "0", "side of the images that are fed; 0: the same", .min = 0, .max = 2048),
	OPTION(INT, struct bench_conf, classes, "classes", "N", "14", "outputs of the network", .min = 1, .max = 65536),
	OPTION(FLAG, struct bench_conf, softmax, "softmax", NULL, NULL, "one class an image and cross entropy, as ImageNet's, instead of one answer an output"),
	ENGINE_OPTIONS(struct bench_conf, engine),
	OPTION(INT, struct bench_conf, batch, "batch", "N", "16", "images of a rank in a step", .min = 1, .max = 4096),
	OPTION(INT, struct bench_conf, bucket_kib, "bucket", "KIB", "0", "size of a gradient bucket; 0: libhvd's default", .min = 0, .max = 1 << 20),
	OPTION_GROUP("Measurement"),
	OPTION(INT, struct bench_conf, steps, "steps", "N", "20", "steps that count", .min = 1, .max = 1000000),
	OPTION(INT, struct bench_conf, warmup, "warm-up", "N", "3", "steps before them", .min = 0, .max = 1000000),
	OPTION(FLAG, struct bench_conf, plan, "plan", NULL, NULL, "measure nothing: the GPU memory of a training with --batch, and the largest batch that fits"),
	OPTION(STRING, struct bench_conf, gpu, "gpu", "NAME|GIB", NULL,
	       "for --plan: h200, h100, a100, a100-40, t4, or the memory of another in GiB; without it the GPU that is here"),
	OPTION(FLAG, struct bench_conf, ablate, "ablate", NULL, NULL, "what each knob of the practice guides gains here, one row a knob; --steps are then those of a round"),
	OPTION(INT, struct bench_conf, rounds, "rounds", "N", "5", "interleaved rounds of --ablate", .min = 1, .max = 99),
	OPTION(STRING, struct bench_conf, data, "data", "DIR", NULL, "prepared images for --ablate; without it synthetic X-rays"),
	OPTION(FLAG, struct bench_conf, intervals, "intervals", NULL, NULL,
	       "the bootstrap of a whole test: 14 findings, 25,596 images of 2,797 patients, 1,000 resamples"),
	OPTION(FLAG, struct bench_conf, forward, "forward", NULL, NULL, "evaluation instead of training steps"),
	OPTION(FLAG, struct bench_conf, resident, "resident", NULL, NULL, "the images stay on the GPU and no step brings them along; without it each is fed from host memory"),
	OPTION(U64, struct bench_conf, seed, "seed", "N", "1", "of pixels and weights"),
	OPTION(FLAG, struct bench_conf, json, "json", NULL, NULL, "print one JSON object"),
	OPTIONS_END
};

struct bench {
	const struct bench_conf *conf;
	struct world world;
	struct model model;
	uint8_t *pixels;
	uint32_t *labels;
	uint64_t *kept;  /* [batch] numbers of the images that are resident; NULL: they are fed */
	float *logits;
	double *seconds; /* [steps] of this rank */
	double begin, first; /* now() at the start; seconds from there to the end of the first step */
	double exposed;  /* seconds of all counted steps */
	double loss;
	struct gpu_meter *gpu; /* NULL: none */
};

static struct model_conf model_conf_of(const struct bench *b)
{
	const struct bench_conf *conf = b->conf;

	return (struct model_conf){
		.network = network_from_options(&conf->network),
		.engine = (enum engine_choice)conf->engine.engine,
		.precision = (enum precision)conf->engine.precision,
		.loss = conf->softmax ? LOSS_SOFTMAX : LOSS_BCE,
		.beta1 = 0.9,
		.weight_decay = 1e-5,
		.batch = conf->batch,
		.source_size = conf->source_size ? conf->source_size : conf->network.image_size,
		.threads = threads_from_options(&conf->engine, &b->world),
		.bucket_bytes = (size_t)conf->bucket_kib * 1024,
		.train = !conf->forward,
	};
}

static int make_resident(struct bench *b, struct error *e)
{
	const size_t batch = (size_t)b->conf->batch;

	b->kept = calloc(batch, sizeof *b->kept);
	if (!b->kept)
		return fail(e, EXIT_INTERNAL, "no memory");
	for (size_t i = 0; i < batch; i++)
		b->kept[i] = i;
	return engine_keep(b->model.engine, batch, 0, b->pixels, batch) < 0 ? model_fail(&b->model, e) : 0;
}

static int open_bench(struct bench *b, struct error *e)
{
	const struct bench_conf *conf = b->conf;
	struct model_conf mc = model_conf_of(b);
	size_t pixels = (size_t)mc.batch * (size_t)mc.source_size * (size_t)mc.source_size;
	struct model_values v;

	mc.network.classes = conf->classes;
	if (model_open(&b->model, &b->world, &mc, e) < 0)
		return -e->code;
	b->pixels = malloc(pixels);
	b->labels = malloc((size_t)mc.batch * sizeof *b->labels);
	b->logits = malloc((size_t)mc.batch * (size_t)conf->classes * sizeof *b->logits);
	b->seconds = calloc((size_t)conf->steps, sizeof *b->seconds);
	if (!b->pixels || !b->labels || !b->logits || !b->seconds)
		fail(e, EXIT_INTERNAL, "no memory");
	else if (model_values_alloc(&v, &b->model.plan, 0, e) == 0) {
		struct stream random = stream_open(conf->seed, (uint64_t)b->world.at->rank);

		for (size_t i = 0; i < pixels; i++)
			b->pixels[i] = (uint8_t)stream_bits(&random);
		for (int i = 0; i < mc.batch; i++)
			b->labels[i] = conf->softmax ? stream_bits(&random) % (uint32_t)conf->classes : stream_bits(&random) & stream_bits(&random);
		net_init(&b->model.plan, conf->seed, NULL, v.params);
		for (size_t i = 0; i < b->model.plan.n_bn_channels; i++)
			v.variance[i] = 1;
		model_put(&b->model, &v, e);
		model_values_free(&v);
		if (conf->resident && !e->code)
			make_resident(b, e);
	}
	return world_agree(&b->world, e);
}

static int begin_step(struct bench *b, uint64_t *token, struct error *e)
{
	struct engine_batch batch = { .count = b->conf->batch, .pixels = b->pixels, .labels = b->labels, .kept = b->kept };

	if (!b->conf->forward)
		return model_train(&b->model, &batch, 0, 1, 1e-4, token, e);
	return engine_forward(b->model.engine, &batch, b->logits, NULL, token) < 0 ? model_fail(&b->model, e) : 0;
}

/* A GPU is given its next step before it is through with the one before, as in training. */
static int measure(struct bench *b, struct error *e)
{
	const int behind = b->model.kind == ENGINE_CUDA;
	uint64_t token[2] = { 0 };
	double ended = now();

	if (behind)
		b->gpu = gpu_meter_open(b->world.places[b->world.at->rank].gpu);
	for (int i = -b->conf->warmup; i < b->conf->steps + behind; i++) {
		int through = i - behind;

		if (i == 0 && b->gpu)
			gpu_meter_start(b->gpu);
		if (i < b->conf->steps && begin_step(b, &token[i & 1], e) < 0)
			return -e->code;
		if (i >= 0 && i < b->conf->steps)
			b->exposed += b->model.exposed;
		if (through >= -b->conf->warmup && engine_done(b->model.engine, token[through & 1], 1) < 0)
			return model_fail(&b->model, e);
		if (b->first <= 0 && through >= -b->conf->warmup)
			b->first = now() - b->begin;
		if (through >= 0)
			b->seconds[through] = now() - ended;
		ended = now();
	}
	if (!b->conf->forward && engine_loss(b->model.engine, &b->loss) < 0)
		return model_fail(&b->model, e);
	return b->conf->forward || isfinite(b->loss) ? 0 : fail(e, EXIT_INTERNAL, "the loss is not a number");
}

/* A GPU that waits measures something else. NVML's samples are coarse: less than two seconds of them say nothing. */
static int judge_gpu(struct bench *b, struct error *e)
{
	enum { ENOUGH = 10 };
	struct gpu_summary s = b->gpu ? gpu_meter_summary(b->gpu) : (struct gpu_summary){ 0 };

	if (s.samples >= ENOUGH && s.busy < GPU_FAIL)
		fail(e, EXIT_INTERNAL, "the GPU was busy for %.0f %% of the time only, and below %.0f %% this is no measurement of it", 100 * s.busy, 100 * GPU_FAIL);
	return world_agree(&b->world, e);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double at_share(const double *sorted, int n, double share)
{
	return sorted[(int)(share * (n - 1) + 0.5)];
}

static void print_json(const struct bench *b, double images_per_s, const double *t)
{
	const struct bench_conf *conf = b->conf;
	cJSON *o = cJSON_CreateObject(), *ms;
	int n = conf->steps;

	json_number(o, "images_per_s", images_per_s);
	ms = cJSON_AddObjectToObject(o, "step_ms");
	json_number(ms, "median", 1e3 * at_share(t, n, 0.5));
	json_number(ms, "min", 1e3 * t[0]);
	json_number(ms, "p10", 1e3 * at_share(t, n, 0.1));
	json_number(ms, "p90", 1e3 * at_share(t, n, 0.9));
	json_number(ms, "max", 1e3 * t[n - 1]);
	json_number(o, "first_step_s", b->first);
	json_number(o, "exposed_ms", 1e3 * b->exposed / n);
	cJSON_AddStringToObject(o, "mode", conf->forward ? "forward" : "train");
	cJSON_AddStringToObject(o, "model", b->model.plan.model);
	json_number(o, "parameters", (double)b->model.plan.n_weights);
	cJSON_AddStringToObject(o, "engine", engine_describe(b->model.engine));
	cJSON_AddStringToObject(o, "precision", precision_choices[conf->engine.precision]);
	json_number(o, "batch", conf->batch);
	json_number(o, "image_size", conf->network.image_size);
	json_number(o, "classes", conf->classes);
	cJSON_AddStringToObject(o, "loss_kind", conf->softmax ? "softmax" : "bce");
	cJSON_AddBoolToObject(o, "resident", conf->resident);
	json_number(o, "steps", n);
	json_number(o, "ranks", b->world.at->size);
	json_number(o, "threads", threads_from_options(&conf->engine, &b->world));
	json_number(o, "memory_mib", (double)engine_memory(b->model.engine) / 1048576);
	if (!conf->forward)
		json_number(o, "loss", b->loss);
	char *text = cJSON_PrintUnformatted(o);

	puts(text ? text : "null");
	cJSON_free(text);
	cJSON_Delete(o);
}

/* The slowest rank's step counts: a step ends when all have it. */
static int tell(struct bench *b, struct error *e)
{
	int n = b->conf->steps;

	if (hvd_allreduce(b->world.hvd, b->seconds, b->seconds, (size_t)n, HVD_F64, HVD_MAX) < 0)
		return world_fail(&b->world, e);
	if (!world_speaks(&b->world))
		return 0;
	qsort(b->seconds, (size_t)n, sizeof *b->seconds, ascending);
	double median = at_share(b->seconds, n, 0.5), rate = b->conf->batch * b->world.at->size / median;

	const char *fallback = model_fallback(&b->world, (enum engine_choice)b->conf->engine.engine);

	if (fallback)
		fprintf(stderr, "chexnet bench: %s\n", fallback);
	if (b->conf->json) {
		print_json(b, rate, b->seconds);
		return 0;
	}
	printf("%s, %s, %s, %d pixels, %d rank%s x batch %d\n", b->model.plan.model, engine_describe(b->model.engine), precision_choices[b->conf->engine.precision],
	       b->conf->network.image_size, b->world.at->size, b->world.at->size == 1 ? "" : "s", b->conf->batch);
	printf("%.1f images/s; %s step median %.2f ms (10 %% %.2f, 90 %% %.2f); exposed communication %.2f ms\n", rate, b->conf->forward ? "forward" : "training",
	       1e3 * median, 1e3 * at_share(b->seconds, n, 0.1), 1e3 * at_share(b->seconds, n, 0.9), 1e3 * b->exposed / n);
	return 0;
}

static int run_ablation(struct bench *b, struct error *e)
{
	struct ablate_conf conf = {
		.model = model_conf_of(b), .data = b->conf->data, .decode_threads = 1, .steps = b->conf->steps, .rounds = b->conf->rounds, .seed = b->conf->seed,
	};

	return ablate(&b->world, &conf, e);
}

static int bench(const struct bench_conf *conf, struct error *e)
{
	struct bench b = { .conf = conf, .begin = now() };

	if (world_open(&b.world, "bench", e) == 0) {
		if (conf->ablate)
			run_ablation(&b, e);
		else if (open_bench(&b, e) == 0 && measure(&b, e) == 0 && tell(&b, e) == 0)
			judge_gpu(&b, e);
	}
	int rc = e->code ? world_end(&b.world, e) : EXIT_DONE;

	gpu_meter_close(b.gpu);
	model_close(&b.model);
	free(b.pixels);
	free(b.labels);
	free(b.kept);
	free(b.logits);
	free(b.seconds);
	world_close(&b.world);
	return rc;
}

static int plan(const struct bench_conf *conf)
{
	struct error e = { 0 };
	struct network network = network_from_options(&conf->network);
	struct net_conf net;
	struct model_conf mc = {
		.precision = (enum precision)conf->engine.precision, .loss = conf->softmax ? LOSS_SOFTMAX : LOSS_BCE, .beta1 = 0.9, .batch = conf->batch,
		.source_size = conf->source_size ? conf->source_size : conf->network.image_size,
	};

	network.classes = conf->classes;
	net = network_conf(&network);
	return bench_plan(&net, &mc, conf->gpu, conf->json, &e) < 0 ? report_error(&command_bench, &e) : EXIT_DONE;
}

/* NIH's test split in size; every patient has as many images as the next. */
static int time_intervals(const struct bench_conf *conf)
{
	enum { IMAGES = 25596, PATIENTS = 2797, RESAMPLES = 1000, RUNS = 3 };
	float *logits = malloc((size_t)IMAGES * FINDINGS * sizeof *logits);
	uint32_t *labels = malloc(IMAGES * sizeof *labels), *patient = malloc(IMAGES * sizeof *patient);
	struct stream random = stream_open(conf->seed, 0);
	struct scores s = { .n = IMAGES, .classes = FINDINGS, .logits = logits, .labels = labels, .patient = patient };
	struct auroc_table table;
	double seconds[RUNS] = { 0 };
	int rc = logits && labels && patient ? 0 : -1;

	for (int i = 0; rc == 0 && i < IMAGES; i++) {
		labels[i] = stream_bits(&random) & stream_bits(&random) & stream_bits(&random) & ((1u << FINDINGS) - 1);
		patient[i] = (uint32_t)(i % PATIENTS);
		for (int f = 0; f < FINDINGS; f++)
			logits[(size_t)i * FINDINGS + (size_t)f] = (float)(stream_normal(&random) + (labels[i] >> f & 1));
	}
	for (int i = 0; rc == 0 && i < RUNS; i++) {
		double begin = now();

		rc = auroc_bootstrap(&s, RESAMPLES, conf->seed, &table, NULL);
		seconds[i] = now() - begin;
	}
	qsort(seconds, RUNS, sizeof *seconds, ascending);
	if (rc == 0)
		printf("intervals: %d findings x %d images of %d patients x %d resamples in %.3f s (median of %d; %d threads); mean AUROC %.4f, %.4f to %.4f\n", FINDINGS,
		       IMAGES, PATIENTS, RESAMPLES, seconds[RUNS / 2], RUNS, omp_get_max_threads(), table.mean.value, table.mean.low, table.mean.high);
	else
		fprintf(stderr, "chexnet bench: no memory\n");
	free(logits);
	free(labels);
	free(patient);
	return rc == 0 ? EXIT_DONE : EXIT_INTERNAL;
}

static int run(int argc, char **argv)
{
	struct bench_conf conf = { 0 };
	struct error e = { 0 };

	if (argc > 1 && strcmp(argv[1], "data") == 0)
		return bench_data(argc, argv);
	int rc = options_parse(&command_bench, argc, argv, &conf, NULL, &e);

	if (rc == 0 && conf.intervals)
		return time_intervals(&conf);
	if (rc == 0 && conf.source_size && conf.source_size < conf.network.image_size)
		rc = fail(&e, EXIT_USAGE, "--source-size=%d is smaller than --image-size=%d", conf.source_size, conf.network.image_size);
	if (rc == 0 && conf.gpu && !conf.plan)
		rc = fail(&e, EXIT_USAGE, "--gpu=%s is for --plan", conf.gpu);
	if (rc == 0 && conf.plan)
		return plan(&conf);
	if (rc != 0)
		return rc < 0 ? world_refuse("bench", &e) : EXIT_DONE;
	return bench(&conf, &e);
}

const struct command command_bench = {
	.name = "bench",
	.summary = "measure training steps on random pixels",
	.description = "Measures training steps (or --forward) on random pixels in memory, over all tasks of the job step. Prints the median step of the slowest "
		       "rank and what it means in images per second. chexnet bench data measures input pipelines instead: chexnet data --help.",
	.options = options,
	.advice = knob_advice,
	.run = run,
};
