/* SPDX-License-Identifier: Apache-2.0
 * Two CPU engines take training steps in turn on the same random pixels:
 *
 *     cpu_pair baseline|threads|order fp32|bf16 BATCH THREADS ROUNDS
 *
 * baseline: the fused engine against a step of plain oneDNN primitives. threads: the fused engine against itself on one thread,
 * with the bits of both compared. order: the fused engine against itself with as many partial sums as it has threads, the fewest there
 * can be, so that its results depend on the number of threads: what identical bits cost. Prints medians, the median of the rounds'
 * ratios, and where the time went. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/cpu/cpu.h"

enum { MAX_ROUNDS = 1000, MAX_THREADS = 256, SIZE = 224 };

struct contestant {
	struct engine *engine;
	struct cpu_profile profile[MAX_THREADS];
	double seconds[MAX_ROUNDS], total;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
	double sorted[MAX_ROUNDS];
	memcpy(sorted, values, (size_t)n * sizeof *sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, ascending);
	return (sorted[n / 2] + sorted[(n - 1) / 2]) / 2;
}

static void die(const struct error *e)
{
	fprintf(stderr, "cpu_pair: %s\n", e->text);
	exit(1);
}

static void open_contestant(struct contestant *c, const struct engine_conf *conf, const float *params, struct error *e)
{
	if (engine_open(&c->engine, ENGINE_CPU, conf, e) || engine_put(c->engine, ENGINE_PARAMS, 0, params, conf->plan->n_weights))
		die(e);
	if (conf->threads <= MAX_THREADS)
		cpu_engine(c->engine)->profile = c->profile;
}

/* Sums of weight gradients and statistics in as many parts as there are threads. */
static void free_order(struct cpu_engine *e)
{
	int threads = e->threads;
	e->most_parts = threads < MAX_PARTS ? threads : MAX_PARTS;
	e->stem.conv.splits = threads < e->stem.conv.splits ? threads : e->stem.conv.splits;
	for (int i = 0; i < e->base.conf.plan->n_blocks; i++) {
		struct block *b = &e->block[i];
		for (int l = 0; l < b->layers; l++) {
			struct dense_layer *d = &b->layer[l];
			d->conv1.splits = threads < d->conv1.splits ? threads : d->conv1.splits;
			d->conv2.splits = threads < d->conv2.splits ? threads : d->conv2.splits;
		}
		b->transition.splits = threads < b->transition.splits ? threads : b->transition.splits;
	}
}

static double step(struct contestant *c, const struct engine_batch *batch, const struct error *e)
{
	uint64_t token;
	double begin = now();
	if (engine_train(c->engine, batch, 0, 1, 1e-4, &token) || engine_done(c->engine, token, 1) != 1)
		die(e);
	return now() - begin;
}

/* Milliseconds a step of each kind of work; waiting is what no thread did. */
static void print_work(const struct contestant *a, const struct contestant *b, double ms_a, double ms_b, int threads_a, int threads_b, double ticks_per_ms, int rounds)
{
	static const char *const names[N_WORK] = { "convolutions, forward", "data gradients", "weight gradients", "BN, concatenation, sums", "pools",
		                                   "weight reorders", "other" };
	double rest_a = ms_a, rest_b = ms_b, bn_a = 0, bn_b = 0;
	printf("%-26s %9s %9s %9s\n", "ms a step", "first", "second", "share");
	for (int k = 0; k < N_WORK; k++) {
		double x = 0, y = 0;
		for (int t = 0; t < threads_a; t++)
			x += (double)a->profile[t].ticks[k] / ticks_per_ms / threads_a / rounds;
		for (int t = 0; t < threads_b; t++)
			y += (double)b->profile[t].ticks[k] / ticks_per_ms / threads_b / rounds;
		printf("%-26s %9.1f %9.1f %8.0f%%\n", names[k], x, y, y > 0 ? 100 * x / y : NAN);
		rest_a -= x;
		rest_b -= y;
		if (k == WORK_BN) {
			bn_a = x;
			bn_b = y;
		}
	}
	printf("%-26s %9.1f %9.1f\n", "waiting and not counted", rest_a, rest_b);
	printf("bn_share %.2f\n", bn_a / bn_b);
}

static int bits_differ(const struct contestant *a, const struct contestant *b, size_t count)
{
	float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
	if (!x || !y || engine_get(a->engine, ENGINE_PARAMS, 0, x, count) || engine_get(b->engine, ENGINE_PARAMS, 0, y, count))
		exit(1);
	int differ = memcmp(x, y, count * sizeof *x) != 0;
	printf("parameters after all steps: %s\n", differ ? "DIFFERENT" : "identical bits");
	free(x);
	free(y);
	return differ;
}

static double print_pair(struct contestant pair[2], const int threads[2], int batch, int rounds, double ticks_per_ms)
{
	double ratios[MAX_ROUNDS];
	for (int i = 0; i < rounds; i++)
		ratios[i] = pair[1].seconds[i] / pair[0].seconds[i];
	for (int i = 0; i < 2; i++) {
		double m = median(pair[i].seconds, rounds);
		printf("%-8s %8.1f ms, %6.2f images/s, %6.0f MB of tensors: %s\n", i ? "second" : "first", 1e3 * m, batch / m,
		       (double)engine_memory(pair[i].engine) / 1e6, engine_describe(pair[i].engine));
	}
	qsort(ratios, (size_t)rounds, sizeof *ratios, ascending);
	printf("ratio %.2f (median of %d rounds, %.2f to %.2f)\n", median(ratios, rounds), rounds, ratios[0], ratios[rounds - 1]);
	print_work(&pair[0], &pair[1], 1e3 * pair[0].total / rounds, 1e3 * pair[1].total / rounds, threads[0], threads[1], ticks_per_ms, rounds);
	return median(ratios, rounds);
}

int main(int argc, char **argv)
{
	static struct contestant pair[2];
	struct net_plan plan;
	struct engine_layout layout;
	struct error e = { 0 };
	if (argc != 6)
		return fprintf(stderr, "usage: cpu_pair baseline|threads|order fp32|bf16 BATCH THREADS ROUNDS\n"), 64;
	int with_threads = !strcmp(argv[1], "threads"), with_order = !strcmp(argv[1], "order"), batch = atoi(argv[3]), threads = atoi(argv[4]), rounds = atoi(argv[5]);
	if (batch < 1 || threads < 1 || threads > MAX_THREADS || rounds < 1 || rounds > MAX_ROUNDS)
		return fprintf(stderr, "cpu_pair: BATCH >= 1, THREADS 1 to %d, ROUNDS 1 to %d\n", MAX_THREADS, MAX_ROUNDS), 64;
	if (net_plan_make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = SIZE, .classes = 14 }, &e) || engine_layout_make(&layout, &plan, &e))
		die(&e);
	struct engine_conf conf = { .plan = &plan, .layout = &layout, .precision = strcmp(argv[2], "bf16") ? PRECISION_FP32 : PRECISION_BF16, .beta1 = 0.9,
		                    .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 1e-5, .batch = batch, .channels = 1, .source_size = SIZE, .threads = threads };
	int contestant_threads[2] = { threads, with_threads ? 1 : threads };
	float *params = malloc(plan.n_weights * sizeof *params);
	uint8_t *pixels = malloc((size_t)batch * SIZE * SIZE);
	uint32_t *labels = malloc((size_t)batch * sizeof *labels);
	if (!params || !pixels || !labels)
		return 1;
	uint64_t random = 1;
	for (int i = 0; i < batch * SIZE * SIZE; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		pixels[i] = (uint8_t)(random >> 56);
		labels[i % batch] = (uint32_t)(random >> 40) & 0x1111;
	}
	net_init(&plan, 1, NULL, params);
	open_contestant(&pair[0], &conf, params, &e);
	conf.threads = contestant_threads[1];
	conf.variant = with_threads || with_order ? VARIANT_BEST : VARIANT_BASELINE;
	open_contestant(&pair[1], &conf, params, &e);
	if (with_order)
		free_order(cpu_engine(pair[1].engine));
	struct engine_batch data = { .count = batch, .pixels = pixels, .labels = labels };
	double begin = 0;
	uint64_t ticks = 0;
	for (int round = -1; round < rounds; round++) {
		if (round == 0) {
			for (int i = 0; i < 2; i++)
				memset(pair[i].profile, 0, sizeof pair[i].profile);
			begin = now();
			ticks = cpu_ticks();
		}
		for (int i = 0; i < 2; i++) {
			struct contestant *c = &pair[(i + round) & 1];
			double seconds = step(c, &data, &e);
			if (round >= 0) {
				c->seconds[round] = seconds;
				c->total += seconds;
			}
		}
	}
	double ticks_per_ms = (double)(cpu_ticks() - ticks) / (now() - begin) / 1e3;
	double ratio = print_pair(pair, contestant_threads, batch, rounds, ticks_per_ms);
	int differ = (with_threads || with_order) && bits_differ(&pair[0], &pair[1], plan.n_weights);
	if (with_order)
		printf("cost of sums whose order does not depend on the threads: %+.1f %% of a step\n", 100 * (1 / ratio - 1));
	for (int i = 0; i < 2; i++)
		engine_close(pair[i].engine);
	engine_layout_free(&layout);
	net_plan_free(&plan);
	free(params);
	free(pixels);
	free(labels);
	return with_threads && differ;
}
