/* SPDX-License-Identifier: Apache-2.0
 * chexnet bench: training steps on random pixels that are already in memory. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "commands/ablate.h"
#include "commands/bench_plan.h"
#include "commands/bench_run.h"
#include "commands/bench_scaling.h"
#include "commands/commands.h"
#include "commands/knobs.h"
#include "commands/network_options.h"
#include "data/random.h"
#include "json.h"
#include "learn/auroc.h"
#include "learn/batch_memory.h"
#include "learn/resample.h"
#include "threads.h"

struct bench_conf {
	struct network_options network;
	struct engine_options engine;
	int batch, source_size, steps, warmup, forward, resident, json, bucket_kib;
	int classes, softmax;
	int ablate, scaling, rounds, intervals, plan;
	int steps_typed, warmup_typed, rounds_typed;
	const char *gpu;
	const char *data;
	uint64_t seed;
};

static const struct option options[] = {
	NETWORK_OPTIONS(struct bench_conf, network, "224", 1, "side of the square that enters the network"),
	OPTION(INT, struct bench_conf, source_size, "source-size", "PIXELS", "0", "side of the images that are fed; 0: the same", .min = 0, .max = 2048),
	OPTION(INT, struct bench_conf, classes, "classes", "N", "14", "outputs of the network", .min = 1, .max = 65536),
	OPTION(FLAG, struct bench_conf, softmax, "softmax", NULL, NULL, "one class an image and cross entropy, as ImageNet's, instead of one answer an output"),
	ENGINE_OPTIONS(struct bench_conf, engine),
	OPTION(INT, struct bench_conf, batch, "batch", "N", "16", "images of a rank in a step", .min = 1, .max = 4096),
	OPTION(INT, struct bench_conf, bucket_kib, "bucket", "KIB", "0", "size of a gradient bucket; 0: libhvd's default", .min = 0, .max = 1 << 20),
	OPTION_GROUP("Measurement"),
	OPTION(INT, struct bench_conf, steps, "steps", "N", "20", "steps that count", .min = 1, .max = 1000000,
	       .typed = offsetof(struct bench_conf, steps_typed)),
	OPTION(INT, struct bench_conf, warmup, "warm-up", "N", "3", "steps before them", .min = 0, .max = 1000000, .typed = offsetof(struct bench_conf, warmup_typed)),
	OPTION(FLAG, struct bench_conf, plan, "plan", NULL, NULL, "measure nothing: the GPU memory of a training with --batch, and the largest batch that fits"),
	OPTION(STRING, struct bench_conf, gpu, "gpu", "NAME|GIB", NULL,
	       "for --plan: h200, h100, a100, a100-40, t4, or the memory of another in GiB; without it the GPU that is here"),
	OPTION(FLAG, struct bench_conf, ablate, "ablate", NULL, NULL, "what each knob of the practice guides gains here, one row a knob; --steps are then those of a round"),
	OPTION(FLAG, struct bench_conf, scaling, "scaling", NULL, NULL,
	       "images/s of the first 1, 2, 4 … ranks and of all, and how much of so many times the first one's that is"),
	OPTION(INT, struct bench_conf, rounds, "rounds", "N", "5", "interleaved rounds of --ablate and --scaling", .min = 1, .max = 99,
	       .typed = offsetof(struct bench_conf, rounds_typed)),
	OPTION(STRING, struct bench_conf, data, "data", "DIR", NULL,
	       "prepared images: for --ablate, which else takes synthetic X-rays; for --scaling, which measures them beside random pixels; for --plan "
	       "--resident, which counts them"),
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
	struct bench_run run;
	double begin; /* now() at the start */
};

static struct model_conf model_conf_of(const struct bench_conf *conf, const struct world *w)
{
	struct model_conf mc = {
		.network = network_from_options(&conf->network),
		.engine = (enum engine_choice)conf->engine.engine,
		.precision = (enum precision)conf->engine.precision,
		.loss = conf->softmax ? LOSS_SOFTMAX : LOSS_BCE,
		.beta1 = 0.9,
		.weight_decay = 1e-5,
		.batch = conf->batch,
		.source_size = conf->source_size ? conf->source_size : conf->network.image_size,
		.threads = w ? threads_from_options(&conf->engine, w) : 0,
		.bucket_bytes = (size_t)conf->bucket_kib * 1024,
		.train = !conf->forward,
	};

	mc.network.classes = conf->classes;
	return mc;
}

/* In host memory a batch that is too large would meet the kernel's out-of-memory killer; a GPU refuses it. */
static int check_memory(struct bench *b, struct error *e)
{
	const struct model_conf *conf = &b->run.model_conf;
	const struct net_conf net = network_conf(&conf->network);
	struct batch_memory m = { 0 };
	enum engine_kind kind;
	double needed = 0, bytes = batch_memory_host(&b->world, 0);

	if (!b->conf->forward && bytes > 0 && model_choose_engine(&b->world, conf->engine, &kind, e) == 0 && kind != ENGINE_CUDA &&
	    batch_memory_open(&m, &net, kind, conf, NULL, 1, 0, e) == 0 && batch_memory_bytes(&m, conf->batch, &needed, NULL, e) == 0 && needed > bytes)
		fail(e, EXIT_USAGE, "--batch=%d needs %.0f MiB and there are %.0f MiB for this rank", conf->batch, needed / 1048576, bytes / 1048576);
	batch_memory_close(&m);
	return world_agree(&b->world, e);
}

static int open_bench(struct bench *b, struct error *e)
{
	const struct bench_conf *conf = b->conf;

	b->run = (struct bench_run){
		.world = &b->world, .model_conf = model_conf_of(conf, &b->world), .steps = conf->steps, .warmup = conf->warmup, .forward = conf->forward,
		.resident = conf->resident, .seed = conf->seed,
	};
	if (check_memory(b, e) < 0 || bench_run_open(&b->run, e) < 0)
		return -e->code;
	if (b->run.model.kind == ENGINE_CUDA)
		b->run.gpu = gpu_meter_open(b->world.places[b->world.at->rank].gpu);
	return 0;
}

/* A GPU that waits measures something else. NVML's samples are coarse: less than two seconds of them say nothing. */
static int judge_gpu(struct bench *b, struct error *e)
{
	enum { ENOUGH = 10 };
	struct gpu_summary s = b->run.gpu ? gpu_meter_summary(b->run.gpu) : (struct gpu_summary){ 0 };

	if (s.samples >= ENOUGH && s.busy < GPU_FAIL)
		fail(e, EXIT_INTERNAL, "the GPU was busy for %.0f %% of the time only, and below %.0f %% this is no measurement of it", 100 * s.busy, 100 * GPU_FAIL);
	return world_agree(&b->world, e);
}

static int print_json(const struct bench *b, double images_per_s, struct error *e)
{
	const struct bench_conf *conf = b->conf;
	const struct bench_run *run = &b->run;
	cJSON *o = cJSON_CreateObject();
	int n = conf->steps;

	json_number(o, "images_per_s", images_per_s);
	bench_step_json(o, run->seconds, n);
	json_number(o, "first_step_s", run->ended_first - b->begin);
	json_number(o, "exposed_ms", 1e3 * run->exposed / n);
	cJSON_AddStringToObject(o, "mode", conf->forward ? "forward" : "train");
	cJSON_AddStringToObject(o, "model", run->model.plan.model);
	json_number(o, "parameters", (double)run->model.plan.n_weights);
	cJSON_AddStringToObject(o, "engine", engine_describe(run->model.engine));
	cJSON_AddStringToObject(o, "precision", precision_choices[conf->engine.precision]);
	json_number(o, "batch", conf->batch);
	json_number(o, "image_size", conf->network.image_size);
	json_number(o, "classes", conf->classes);
	cJSON_AddStringToObject(o, "loss_kind", conf->softmax ? "softmax" : "bce");
	cJSON_AddBoolToObject(o, "resident", conf->resident);
	json_number(o, "steps", n);
	json_number(o, "ranks", b->world.at->size);
	json_number(o, "threads", run->model_conf.threads);
	json_number(o, "memory_mib", (double)engine_memory(run->model.engine) / 1048576);
	if (!conf->forward)
		json_number(o, "loss", run->loss);
	return json_print(o, 0, e);
}

static int tell(struct bench *b, struct error *e)
{
	const struct bench_run *run = &b->run;
	const int n = b->conf->steps, ranks = b->world.at->size;

	if (bench_run_gather(&b->run, e) < 0)
		return -e->code;
	if (!world_speaks(&b->world))
		return 0;
	double median = quantile(run->seconds, (size_t)n, 0.5), rate = b->conf->batch * ranks / median;

	const char *fallback = model_fallback(&b->world, (enum engine_choice)b->conf->engine.engine);
	const char *advice = precision_advice(&b->conf->engine, run->model.kind);

	if (fallback)
		fprintf(stderr, "chexnet bench: %s\n", fallback);
	if (advice)
		fprintf(stderr, "chexnet bench: %s\n", advice);
	if (b->conf->json)
		return print_json(b, rate, e);
	printf("%s, %s, %s, %d pixels, %d rank%s x batch %d\n", run->model.plan.model, engine_describe(run->model.engine), precision_choices[b->conf->engine.precision],
	       b->conf->network.image_size, ranks, ranks == 1 ? "" : "s", b->conf->batch);
	printf("%.1f images/s; %s step median %.2f ms (10 %% %.2f, 90 %% %.2f); exposed communication %.2f ms\n", rate, b->conf->forward ? "forward" : "training",
	       1e3 * median, 1e3 * quantile(run->seconds, (size_t)n, 0.1), 1e3 * quantile(run->seconds, (size_t)n, 0.9), 1e3 * run->exposed / n);
	return 0;
}

static int run_ablation(struct bench *b, struct error *e)
{
	struct ablate_conf conf = {
		.model = model_conf_of(b->conf, &b->world), .data = b->conf->data, .steps = b->conf->steps, .rounds = b->conf->rounds,
		.seed = b->conf->seed,
	};

	conf.model.network.classes = FINDINGS;
	return ablate(&b->world, &conf, e);
}

static int run_scaling(struct bench *b, struct error *e)
{
	const struct bench_conf *conf = b->conf;
	struct scaling_conf sc = {
		.model = model_conf_of(conf, &b->world), .data = conf->data, .steps = conf->steps, .warmup = conf->warmup, .rounds = conf->rounds,
		.forward = conf->forward, .resident = conf->resident, .json = conf->json, .seed = conf->seed,
	};

	return bench_scaling(&b->world, &sc, e);
}

static int bench(const struct bench_conf *conf, struct error *e)
{
	struct bench b = { .conf = conf, .begin = now() };

	if (world_open(&b.world, "bench", model_on_cpu(conf->engine.engine), e) == 0) {
		if (conf->ablate)
			run_ablation(&b, e);
		else if (conf->scaling)
			run_scaling(&b, e);
		else if (open_bench(&b, e) == 0 && bench_run_measure(&b.run, NULL, e) == 0 && tell(&b, e) == 0)
			judge_gpu(&b, e);
	}
	int rc = e->code ? world_end(&b.world, e) : EXIT_DONE;

	gpu_meter_close(b.run.gpu);
	bench_run_close(&b.run);
	world_close(&b.world);
	return rc;
}

/* Images that stay on the GPU: the training split of --data, as in training, else the batch. */
static int count_resident(const struct bench_conf *conf, struct model_conf *mc, size_t *images, struct error *e)
{
	struct dataset *d;

	*images = conf->resident ? (size_t)conf->batch : 0;
	if (!conf->data)
		return 0;
	if (dataset_open(&d, conf->data, "train", e) < 0)
		return -e->code;
	mc->source_size = dataset_image_size(d);
	if (conf->resident)
		*images = dataset_count(d);
	dataset_close(d);
	return 0;
}

static int plan(const struct bench_conf *conf)
{
	struct error e = { 0 };
	struct model_conf mc = model_conf_of(conf, NULL);
	struct net_conf net = network_conf(&mc.network);
	size_t resident;

	if (count_resident(conf, &mc, &resident, &e) < 0 || bench_plan(&net, &mc, conf->gpu, resident, conf->json, &e) < 0)
		return report_error(&command_bench, &e);
	return EXIT_DONE;
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
		labels[i] = stream_bits(&random) & stream_bits(&random) & stream_bits(&random) & ALL_FINDINGS;
		patient[i] = (uint32_t)(i % PATIENTS);
		for (int f = 0; f < FINDINGS; f++)
			logits[(size_t)i * FINDINGS + (size_t)f] = (float)(stream_normal(&random) + (labels[i] >> f & 1));
	}
	for (int i = 0; rc == 0 && i < RUNS; i++) {
		double begin = now();

		rc = auroc_bootstrap(&s, RESAMPLES, conf->seed, &table, NULL);
		seconds[i] = now() - begin;
	}
	sort_ascending(seconds, RUNS);
	if (rc == 0 && conf->json)
		printf("{\"findings\":%d,\"images\":%d,\"patients\":%d,\"resamples\":%d,\"seconds\":%.17g,\"threads\":%d,"
		       "\"mean\":{\"auroc\":%.17g,\"low\":%.17g,\"high\":%.17g}}\n", FINDINGS, IMAGES, PATIENTS, RESAMPLES, seconds[RUNS / 2], omp_get_max_threads(),
		       table.mean.value, table.mean.low, table.mean.high);
	else if (rc == 0)
		printf("intervals: %d findings x %d images of %d patients x %d resamples in %.3f s (median of %d; %d thread%s); mean AUROC %.4f, %.4f to %.4f\n", FINDINGS,
		       IMAGES, PATIENTS, RESAMPLES, seconds[RUNS / 2], RUNS, omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s", table.mean.value, table.mean.low,
		       table.mean.high);
	else
		fprintf(stderr, "chexnet bench: no memory\n");
	free(logits);
	free(labels);
	free(patient);
	return rc == 0 ? EXIT_DONE : EXIT_INTERNAL;
}

/* Each way to measure has options of its own, and those of another would do nothing. */
static int check(const struct bench_conf *conf, struct error *e)
{
	if (conf->rounds_typed && !conf->ablate && !conf->scaling)
		return fail(e, EXIT_USAGE, "--rounds=%d is for --ablate and --scaling", conf->rounds);
	if (conf->steps_typed && (conf->plan || conf->intervals))
		return fail(e, EXIT_USAGE, "--steps=%d: --%s makes none", conf->steps, conf->plan ? "plan" : "intervals");
	if (conf->warmup_typed && (conf->ablate || conf->plan || conf->intervals))
		return fail(e, EXIT_USAGE, "--warm-up=%d: --%s", conf->warmup, conf->ablate ? "ablate warms up with a round of its own" : conf->plan ? "plan makes no steps" : "intervals makes no steps");
	if (conf->source_size && conf->source_size < conf->network.image_size)
		return fail(e, EXIT_USAGE, "--source-size=%d is smaller than --image-size=%d", conf->source_size, conf->network.image_size);
	if (conf->scaling + conf->ablate + conf->plan + conf->intervals > 1)
		return fail(e, EXIT_USAGE, "--scaling, --ablate, --plan and --intervals: one at a time");
	if (conf->ablate && conf->json)
		return fail(e, EXIT_USAGE, "--ablate prints a table, without --json");
	if (conf->ablate && (conf->softmax || conf->classes != FINDINGS))
		return fail(e, EXIT_USAGE, "--ablate trains on images with %d findings: not with --softmax or other --classes", FINDINGS);
	if (conf->forward && (conf->ablate || conf->plan || conf->intervals))
		return fail(e, EXIT_USAGE, "--forward: %s", conf->intervals ? "--intervals runs no network" : conf->plan ? "--plan is of a training" : "--ablate measures training steps");
	if (conf->resident && (conf->ablate || conf->intervals))
		return fail(e, EXIT_USAGE, "--resident: %s", conf->ablate ? "the sides of --ablate are fed from host memory" : "--intervals runs no network");
	if (check_network_options(&conf->network, e) < 0)
		return -e->code;
	if (conf->source_size && (conf->ablate || ((conf->scaling || conf->plan) && conf->data)))
		return fail(e, EXIT_USAGE, "--source-size=%d: the images of %s are as large as they were prepared", conf->source_size, conf->data ? "--data" : "--ablate");
	if (conf->data && !conf->scaling && !conf->ablate && !conf->plan)
		return fail(e, EXIT_USAGE, "--data=%s is for --scaling, --ablate and --plan: without them the pixels are random", conf->data);
	if (conf->gpu && !conf->plan)
		return fail(e, EXIT_USAGE, "--gpu=%s is for --plan", conf->gpu);
	return 0;
}

static int run(int argc, char **argv)
{
	struct bench_conf conf = { 0 };
	struct error e = { 0 };

	if (argc > 1 && strcmp(argv[1], "data") == 0)
		return bench_data(argc, argv);
	int rc = options_parse(&command_bench, argc, argv, &conf, NULL, &e);

	if (rc == 0)
		rc = check(&conf, &e);
	const int alone = (conf.intervals || conf.plan) && !conf.ablate && !conf.scaling; /* no rank forms a world, to look and to hear of an error */

	if (rc == 0 && alone)
		rc = threads_check(0, &e);
	if (rc < 0)
		return alone ? report_error(&command_bench, &e) : world_refuse("bench", model_on_cpu(conf.engine.engine), &e);
	if (rc > 0)
		return EXIT_DONE;
	return conf.intervals ? time_intervals(&conf) : conf.plan ? plan(&conf) : bench(&conf, &e);
}

const struct command command_bench = {
	.name = "bench",
	.summary = "measure training steps on random pixels",
	.description = "Measures training steps (or --forward) on random pixels in memory, over all tasks of the job step. Prints the median step of the slowest "
		       "rank and what it means in images per second. With --scaling the first 1, 2, 4 … ranks of the job step compute in turn, each time as a "
		       "world of their own, while the others sleep. chexnet bench data measures input pipelines instead: chexnet data --help.",
	.options = options,
	.advice = knob_advice,
	.run = run,
};
