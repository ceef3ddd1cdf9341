/* SPDX-License-Identifier: Apache-2.0
 * A small network with random weights and one random batch, for tests of whole engines. */
#ifndef TESTS_SMALL_NET_H
#define TESTS_SMALL_NET_H

#include <math.h>

#include "engine/engine.h"
#include "test.h"

enum { MAX_BATCH = 72 };

static uint64_t noise_state;

static inline uint32_t noise(void)
{
	noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(noise_state >> 33);
}

struct net {
	struct net_plan plan;
	struct engine_layout layout;
	struct error error;
	float *params;
	uint8_t *pixels;
	uint32_t labels[MAX_BATCH], known[MAX_BATCH];
	float weight[MAX_BATCH];
	struct augment augment[MAX_BATCH];
	struct engine_batch batch;
	struct engine_conf conf;
};

static inline void make_net(struct net *n, const struct net_conf *conf, int batch, int channels)
{
	*n = (struct net){ 0 };
	assert_in_range(batch, 1, MAX_BATCH);
	noise_state = 11;
	print_message("# seed 11\n");
	net_plan_make(&n->plan, conf, &n->error);
	engine_layout_make(&n->layout, &n->plan, &n->error);
	assert_string_equal(n->error.text, "");
	n->conf = (struct engine_conf){ .plan = &n->plan, .layout = &n->layout, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 1e-4,
	                                .batch = batch, .channels = channels, .source_size = n->plan.image_size + 3, .threads = 2 };
	n->params = malloc(n->plan.n_weights * sizeof(float));
	net_init(&n->plan, 5, NULL, n->params);
	for (int p = 0; p < n->plan.n_params; p++)
		for (size_t i = 0; n->plan.params[p].ndim == 1 && i < n->plan.params[p].count; i++)
			n->params[n->plan.params[p].offset + i] += ((float)(noise() % 1000) / 1000 - 0.5f) / 2;
	size_t bytes = (size_t)batch * n->conf.source_size * n->conf.source_size * channels;
	n->pixels = malloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		n->pixels[i] = (uint8_t)noise();
	for (int i = 0; i < batch; i++) {
		n->labels[i] = noise();
		n->known[i] = noise() | 1;
		n->weight[i] = 0.5f + (float)(noise() % 100) / 100;
		n->augment[i] = (struct augment){ (int16_t)(noise() % 4), (int16_t)(noise() % 4), noise() & 1 };
	}
	n->batch = (struct engine_batch){ .count = batch, .pixels = n->pixels, .labels = n->labels, .known = n->known, .weight = n->weight,
	                                  .augment = n->augment };
}

static inline void free_net(struct net *n)
{
	engine_layout_free(&n->layout);
	net_plan_free(&n->plan);
	free(n->params);
	free(n->pixels);
}

static inline struct engine *open_engine(struct net *n, enum engine_kind kind, enum precision precision, enum engine_variant variant, int threads)
{
	struct engine_conf conf = n->conf;
	struct engine *engine;
	conf.precision = precision;
	conf.variant = variant;
	conf.threads = threads;
	engine_open(&engine, kind, &conf, &n->error);
	assert_string_equal(n->error.text, "");
	engine_put(engine, ENGINE_PARAMS, 0, n->params, n->plan.n_weights);
	return engine;
}

static inline double distance(const float *a, const float *b, size_t count)
{
	double error = 0, norm = 0;
	for (size_t i = 0; i < count; i++) {
		error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		norm += (double)b[i] * b[i];
	}
	return norm > 0 ? sqrt(error / norm) : sqrt(error);
}

static inline float *read_array(struct net *n, struct engine *engine, enum engine_what what)
{
	size_t count = what == ENGINE_RUNNING_MEAN || what == ENGINE_RUNNING_VAR ? n->plan.n_bn_channels : n->plan.n_weights;
	float *values = malloc(count * sizeof *values);
	assert_int_equal(engine_get(engine, what, 0, values, count), 0);
	return values;
}

#endif
