/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's gradients of one random batch, for cpu_errors.py to judge beside PyTorch's:
 *
 *     cpu_gradients fp32|bf16 BATCH SEED DIR
 *
 * DenseNet-121 at 64 x 64. Writes DIR/names (a line a parameter: name and dimensions, table order), params and grads (float32),
 * pixels (uint8 [batch][64][64]) and labels (uint32, bit c = class c), all of this machine's byte order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { SIZE = 64, CLASSES = 14 };

static void write_file(const char *dir, const char *name, const void *data, size_t bytes)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f)) {
		perror(path);
		exit(1);
	}
}

static void write_names(const char *dir, const struct net_plan *plan)
{
	char text[1 << 16];
	size_t at = 0;
	for (int p = 0; p < plan->n_params; p++) {
		const struct net_param *param = &plan->params[p];
		at += (size_t)snprintf(text + at, sizeof text - at, "%s", param->name);
		for (int d = 0; d < param->ndim; d++)
			at += (size_t)snprintf(text + at, sizeof text - at, " %d", param->shape[d]);
		at += (size_t)snprintf(text + at, sizeof text - at, "\n");
	}
	write_file(dir, "names", text, at);
}

int main(int argc, char **argv)
{
	struct net_plan plan;
	struct engine_layout layout;
	struct engine *engine;
	struct error e = { 0 };
	int batch = argc == 5 ? atoi(argv[2]) : 0;
	if (batch < 1)
		return fprintf(stderr, "usage: cpu_gradients fp32|bf16 BATCH SEED DIR\n"), 64;
	uint64_t seed = strtoull(argv[3], NULL, 10), random = seed;
	struct engine_conf conf = { .plan = &plan, .layout = &layout, .precision = strcmp(argv[1], "bf16") ? PRECISION_FP32 : PRECISION_BF16, .beta1 = 0.9,
		                    .beta2 = 0.999, .epsilon = 1e-8, .batch = batch, .channels = 1, .source_size = SIZE, .threads = 2 };
	if (net_plan_make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = SIZE, .classes = CLASSES }, &e) || engine_layout_make(&layout, &plan, &e))
		return fprintf(stderr, "cpu_gradients: %s\n", e.text), 1;
	float *params = malloc(plan.n_weights * sizeof *params), *grads = malloc(plan.n_weights * sizeof *grads);
	uint8_t *pixels = malloc((size_t)batch * SIZE * SIZE);
	uint32_t *labels = malloc((size_t)batch * sizeof *labels);
	if (!params || !grads || !pixels || !labels)
		return 1;
	for (int i = 0; i < batch * SIZE * SIZE; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		pixels[i] = (uint8_t)(random >> 56);
		labels[i % batch] = (uint32_t)(random >> 40) & ((1u << CLASSES) - 1);
	}
	net_init(&plan, seed, NULL, params);
	struct engine_batch data = { .count = batch, .pixels = pixels, .labels = labels };
	if (engine_open(&engine, ENGINE_CPU, &conf, &e) || engine_put(engine, ENGINE_PARAMS, 0, params, plan.n_weights) || engine_backward(engine, &data) ||
	    engine_get(engine, ENGINE_GRADS, 0, grads, plan.n_weights))
		return fprintf(stderr, "cpu_gradients: %s\n", e.text), 1;
	write_names(argv[4], &plan);
	write_file(argv[4], "params", params, plan.n_weights * sizeof *params);
	write_file(argv[4], "grads", grads, plan.n_weights * sizeof *grads);
	write_file(argv[4], "pixels", pixels, (size_t)batch * SIZE * SIZE);
	write_file(argv[4], "labels", labels, (size_t)batch * sizeof *labels);
	engine_close(engine);
	engine_layout_free(&layout);
	net_plan_free(&plan);
	free(params);
	free(grads);
	free(pixels);
	free(labels);
	return 0;
}
