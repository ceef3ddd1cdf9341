/* SPDX-License-Identifier: Apache-2.0
 * What the CUDA engine computes of a network, for parity.py, which has PyTorch compute the same.
 *
 *     gpu-parity densenet121|resnet50|small|small-resnet SIDE IMAGES STEPS FOLDER
 *
 * Writes into FOLDER: parameters (a line each: name and shape, in the order of weights.f32), weights.f32, pixels.u8 [STEPS][IMAGES][SIDE][SIDE], labels.i32 [STEPS][IMAGES];
 * and for each precision fp32 and bf16 logits.f32 [IMAGES][CLASSES] of the first batch with the first weights and running statistics of 0 and 1, gradients.f32
 * [GRADIENTS][weights] of the first batches, each at the first weights, and losses.f32 [TRAININGS][STEPS] of trainings with Adam, of which training t begins with batch t. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "tests/unit/torch_inputs.h"

enum { CLASSES = 14, GRADIENTS = 3, TRAININGS = 4 };

static const struct network {
	const char *name;
	struct net_conf conf;
} networks[] = {
	{ "densenet121", { .model = "densenet121" } },
	{ "resnet50", { .model = "resnet50" } },
	{ "small", { .model = "densenet", .growth = 32, .init_channels = 64, .n_blocks = 2, .block = { 2, 1 } } },
	{ "small-resnet", { .model = "resnet", .init_channels = 16, .n_blocks = 2, .block = { 1, 1 } } },
};

/* engine.c names every engine. */
int engine_cpu_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	(void)engine, (void)conf;
	return fail(e, EXIT_USAGE, "no CPU engine in this program");
}

_Noreturn __attribute__((format(printf, 1, 2))) static void give_up(const char *format, ...)
{
	char text[700];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\')
			*c = '\'';
	printf("{\"note\": \"%s\"}\n", text);
	exit(1);
}

/* With these weights, and running statistics of 0 and 1. *e is the engine's as long as it is open. */
static struct engine *start(const struct engine_conf *c, const float *weights, const float *ones, struct error *e)
{
	struct engine *g;
	if (engine_open(&g, ENGINE_CUDA, c, e) || engine_put(g, ENGINE_PARAMS, 0, weights, c->plan->n_weights) || engine_put(g, ENGINE_RUNNING_VAR, 0, ones, c->plan->n_bn_channels))
		give_up("%s", e->text);
	return g;
}

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (!p)
		give_up("no memory for %zu bytes", n * size);
	return p;
}

static FILE *file(const char *folder, const char *precision, const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s%s", folder, precision, name);
	FILE *f = fopen(path, "wb");
	if (!f)
		give_up("%s cannot be written", path);
	return f;
}

static void put(const char *folder, const char *precision, const char *name, const void *data, size_t bytes)
{
	FILE *f = file(folder, precision, name);
	if (fwrite(data, 1, bytes, f) != bytes || fclose(f))
		give_up("%s%s cannot be written", precision, name);
}

int main(int argc, char **argv)
{
	const struct network *network = NULL;
	for (size_t i = 0; argc == 6 && i < sizeof networks / sizeof networks[0]; i++)
		if (!strcmp(networks[i].name, argv[1]))
			network = &networks[i];
	const int side = network ? atoi(argv[2]) : 0, images = network ? atoi(argv[3]) : 0, steps = network ? atoi(argv[4]) : 0;
	if (side < 32 || side > 1024 || images < 1 || images > 4096 || steps < GRADIENTS || steps > 100) {
		fprintf(stderr, "usage: gpu-parity densenet121|resnet50|small|small-resnet SIDE IMAGES STEPS FOLDER\n");
		return 64;
	}
	const char *folder = argv[5];
	struct net_conf conf = network->conf;
	struct net_plan plan;
	struct engine_layout layout;
	struct error e = { 0 };
	conf.image_size = side;
	conf.classes = CLASSES;
	if (net_plan_make(&plan, &conf, &e) || engine_layout_make(&layout, &plan, &e))
		give_up("%s", e.text);
	const size_t image = (size_t)side * (size_t)side, count = (size_t)steps * (size_t)images;
	float *weights = allocate(plan.n_weights, sizeof(float)), *gradients = allocate(GRADIENTS * plan.n_weights, sizeof(float));
	float *ones = allocate(plan.n_bn_channels, sizeof(float)), *logits = allocate((size_t)images * CLASSES, sizeof(float)), losses[TRAININGS * 100];
	uint8_t *pixels = allocate(count, image);
	int32_t *labels = allocate(count, sizeof *labels);
	torch_params(&plan, weights);
	torch_images(pixels, count * image, labels, (int)count, CLASSES);
	for (size_t i = 0; i < plan.n_bn_channels; i++)
		ones[i] = 1;
	FILE *f = file(folder, "", "parameters");
	for (int p = 0; p < plan.n_params; p++) {
		fprintf(f, "%s", plan.params[p].name);
		for (int d = 0; d < plan.params[p].ndim; d++)
			fprintf(f, " %d", plan.params[p].shape[d]);
		fputc('\n', f);
	}
	fclose(f);
	put(folder, "", "weights.f32", weights, plan.n_weights * sizeof(float));
	put(folder, "", "pixels.u8", pixels, count * image);
	put(folder, "", "labels.i32", labels, count * sizeof *labels);

	static const struct {
		const char *name;
		enum precision precision;
	} precisions[] = { { "fp32.", PRECISION_FP32 }, { "bf16.", PRECISION_BF16 } };
	for (int k = 0; k < 2; k++) {
		struct engine_conf c = { .plan = &plan, .layout = &layout, .precision = precisions[k].precision, .optimizer = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999,
					 .epsilon = 1e-8, .weight_decay = 1e-4, .batch = images, .channels = 1, .source_size = side };
		uint64_t token;
		struct engine *g = start(&c, weights, ones, &e);
		struct engine_batch batch = { .count = images, .pixels = pixels, .labels = (const uint32_t *)labels };
		int failed = engine_forward(g, &batch, logits, NULL, &token) || engine_done(g, token, 1) != 1;
		for (int b = 0; b < GRADIENTS && !failed; b++) { /* before the trainings: they change nothing */
			batch.pixels = pixels + (size_t)b * (size_t)images * image;
			batch.labels = (const uint32_t *)labels + b * images;
			failed = engine_backward(g, &batch) || engine_get(g, ENGINE_GRADS, 0, gradients + (size_t)b * plan.n_weights, plan.n_weights);
		}
		for (int t = 0; t < TRAININGS && !failed; t++) {
			if (t)
				g = start(&c, weights, ones, &e);
			for (int b = 0; b < steps && !failed; b++) {
				const int from = (b + t) % steps;
				double loss = 0;
				batch.pixels = pixels + (size_t)from * (size_t)images * image;
				batch.labels = (const uint32_t *)labels + from * images;
				failed = engine_train(g, &batch, 0, 1, 1e-4, &token) || engine_done(g, token, 1) != 1 || engine_loss(g, &loss);
				losses[t * steps + b] = (float)loss;
			}
			if (!failed)
				engine_close(g);
		}
		if (failed)
			give_up("%s%s", precisions[k].name, e.text);
		put(folder, precisions[k].name, "logits.f32", logits, (size_t)images * CLASSES * sizeof(float));
		put(folder, precisions[k].name, "gradients.f32", gradients, GRADIENTS * plan.n_weights * sizeof(float));
		put(folder, precisions[k].name, "losses.f32", losses, (size_t)(TRAININGS * steps) * sizeof(float));
	}
	return 0;
}
