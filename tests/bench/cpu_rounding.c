/* SPDX-License-Identifier: Apache-2.0
 * How far rounding moves the gradients of an untrained DenseNet at 64 x 64, and why two correct bf16 engines differ by half:
 *
 *     cpu_rounding small|densenet121 BATCH…
 *
 * small: growth 16, blocks 2,2,2,2.
 *
 * Every column is the relative L2 distance of whole-net gradients to fp64 arithmetic on the same weights and pixels. The first five
 * are fp64 arithmetic too, so they show what the network does to a small change and not what an engine does wrong: the stem's weights
 * changed by a relative amount either way; activations stored in bf16; and those with every BN's shift at 6, where ReLU cuts next to
 * nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { SIZE = 64, MAX_BATCH = 256 };

struct bench {
	struct net_plan plan;
	struct engine_layout layout;
	struct error error;
	float *params;
	uint8_t pixels[MAX_BATCH * SIZE * SIZE];
	uint32_t labels[MAX_BATCH];
	struct engine_batch batch;
};

static void die(const struct error *e)
{
	fprintf(stderr, "cpu_rounding: %s\n", e->text);
	exit(1);
}

/* Gradients of one engine, from params. */
static float *gradients(struct bench *b, enum engine_kind kind, enum precision precision, enum engine_variant variant, const float *params)
{
	struct engine_conf conf = { .plan = &b->plan, .layout = &b->layout, .precision = precision, .variant = variant, .beta1 = 0.9, .beta2 = 0.999,
		                    .epsilon = 1e-8, .batch = b->batch.count, .channels = 1, .source_size = SIZE, .threads = 2 };
	struct engine *engine;
	float *g = malloc(b->plan.n_weights * sizeof *g);
	if (!g || engine_open(&engine, kind, &conf, &b->error) || engine_put(engine, ENGINE_PARAMS, 0, params, b->plan.n_weights) ||
	    engine_backward(engine, &b->batch) || engine_get(engine, ENGINE_GRADS, 0, g, b->plan.n_weights))
		die(&b->error);
	engine_close(engine);
	return g;
}

static double distance(const float *a, const float *b, size_t count)
{
	double error = 0, norm = 0;
	for (size_t i = 0; i < count; i++) {
		error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		norm += (double)b[i] * b[i];
	}
	return sqrt(error / norm);
}

static void print_distance(const struct bench *b, float *tested, const float *expected)
{
	printf(" %13.2g", distance(tested, expected, b->plan.n_weights));
	fflush(stdout);
	free(tested);
}

/* Distances of single gradients from the classifier back to the stem. */
static void print_depths(const struct bench *b, const float *tested, const float *expected)
{
	static const char *const names[] = { "classifier.weight", "features.denseblock4.denselayer1.conv1.weight", "features.denseblock3.denselayer1.conv1.weight",
		                             "features.denseblock2.denselayer1.conv1.weight", "features.conv0.weight" };
	printf("      bf16 storage, by depth:");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		for (int p = 0; p < b->plan.n_params; p++)
			if (!strcmp(b->plan.params[p].name, names[i]))
				printf(" %s %.2g", names[i] + (i ? strlen("features.") : 0), distance(tested + b->plan.params[p].offset, expected + b->plan.params[p].offset, b->plan.params[p].count));
	printf("\n");
}

/* bf16 storage where ReLU cuts nothing: BN's shift 6 deviations up. `params` is overwritten. */
static void print_uncut(struct bench *b, float *params)
{
	memcpy(params, b->params, b->plan.n_weights * sizeof *params);
	for (int p = 0; p < b->plan.n_params; p++)
		for (size_t i = 0; b->plan.params[p].kind == PARAM_BN_BIAS && i < b->plan.params[p].count; i++)
			params[b->plan.params[p].offset + i] = 6;
	float *exact = gradients(b, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, params);
	print_distance(b, gradients(b, ENGINE_REFERENCE, PRECISION_BF16, VARIANT_BEST, params), exact);
	free(exact);
}

static void measure(struct bench *b, int batch)
{
	b->batch = (struct engine_batch){ .count = batch, .pixels = b->pixels, .labels = b->labels };
	float *exact = gradients(b, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, b->params), *changed = malloc(b->plan.n_weights * sizeof *changed);
	if (!changed)
		die(&b->error);
	printf("%5d %6d", batch, batch * (SIZE / 32) * (SIZE / 32));
	memcpy(changed, b->params, b->plan.n_weights * sizeof *changed);
	for (int bits = 21; bits >= 9; bits -= 6) {
		for (size_t i = 0; i < b->plan.params[0].count; i++)
			changed[i] = b->params[i] * (1 + ldexpf(i & 1 ? 1 : -1, -bits));
		print_distance(b, gradients(b, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, changed), exact);
	}
	float *stored = gradients(b, ENGINE_REFERENCE, PRECISION_BF16, VARIANT_BEST, b->params);
	float *own = gradients(b, ENGINE_CPU, PRECISION_BF16, VARIANT_BEST, b->params), *library = gradients(b, ENGINE_CPU, PRECISION_BF16, VARIANT_BASELINE, b->params);
	printf(" %13.2g", distance(stored, exact, b->plan.n_weights));
	print_uncut(b, changed);
	printf(" %13.2g %13.2g %13.2g\n", distance(own, exact, b->plan.n_weights),
	       distance(library, exact, b->plan.n_weights), distance(own, library, b->plan.n_weights));
	print_depths(b, stored, exact);
	free(exact);
	free(changed);
	free(stored);
	free(own);
	free(library);
}

int main(int argc, char **argv)
{
	static struct bench b;
	if (argc < 3)
		return fprintf(stderr, "usage: cpu_rounding small|densenet121 BATCH...\n"), 64;
	struct net_conf small = { .model = "densenet", .image_size = SIZE, .classes = 14, .growth = 16, .n_blocks = 4, .block = { 2, 2, 2, 2 } };
	struct net_conf whole = { .model = "densenet121", .image_size = SIZE, .classes = 14 };
	if (net_plan_make(&b.plan, strcmp(argv[1], "small") ? &whole : &small, &b.error) || engine_layout_make(&b.layout, &b.plan, &b.error) ||
	    !(b.params = malloc(b.plan.n_weights * sizeof *b.params)))
		die(&b.error);
	net_init(&b.plan, 1, NULL, b.params);
	uint64_t random = 7;
	for (int i = 0; i < MAX_BATCH * SIZE * SIZE; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		b.pixels[i] = (uint8_t)(random >> 56);
		b.labels[i % MAX_BATCH] = (uint32_t)(random >> 40) & 0x1111;
	}
	printf("%s, %zu parameters, untrained, 64 x 64, seed 7. n: values a channel in block 4. Gradients against fp64:\n", b.plan.model, b.plan.n_weights);
	printf("%5s %6s %13s %13s %13s %13s %13s %13s %13s %13s\n", "batch", "n", "stem 1+2^-21", "stem 1+2^-15", "stem 1+2^-9", "bf16 storage", "and no cuts", "own bf16",
	       "oneDNN bf16", "own-oneDNN");
	for (int i = 2; i < argc; i++) {
		int batch = atoi(argv[i]);
		if (batch < 1 || batch > MAX_BATCH)
			return fprintf(stderr, "cpu_rounding: a batch is 1 to %d\n", MAX_BATCH), 64;
		measure(&b, batch);
	}
	engine_layout_free(&b.layout);
	net_plan_free(&b.plan);
	free(b.params);
	return 0;
}
