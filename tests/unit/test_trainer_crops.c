/* SPDX-License-Identifier: Apache-2.0
 * How a network is looked at: ten crops. */
#include "tests/unit/test.h"

#include <math.h>

#include "engine/engine.h"
#include "learn/crops.h"

enum { SOURCE = 72, WINDOW = 64, IMAGES = 3, CLASSES = 14 };

static void ten_crops_are_the_mean_probability_of_ten_windows(void **state)
{
	(void)state;
	struct net_conf net = { .model = "densenet", .image_size = WINDOW, .classes = CLASSES, .growth = 8, .init_channels = 16, .n_blocks = 2, .block = { 1, 1 } };
	struct net_plan plan;
	struct engine_layout layout;
	struct engine *engine;
	struct error e = { 0 };
	static uint8_t pixels[IMAGES * SOURCE * SOURCE];
	float logits[IMAGES * CLASSES], one[IMAGES * CLASSES], *features;
	double mean[IMAGES * CLASSES] = { 0 }, sure[IMAGES * CLASSES] = { 0 };
	uint64_t token;

	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(i * 2654435761u >> 13);
	assert_int_equal(net_plan_make(&plan, &net, &e), 0);
	assert_int_equal(engine_layout_make(&layout, &plan, &e), 0);
	struct engine_conf conf = { .plan = &plan, .layout = &layout, .precision = PRECISION_FP64, .batch = IMAGES, .channels = 1, .source_size = SOURCE, .threads = 1 };

	assert_int_equal(engine_open(&engine, ENGINE_REFERENCE, &conf, &e), 0);
	float *params = malloc(plan.n_weights * sizeof *params);

	net_init(&plan, 3, NULL, params);
	engine_put(engine, ENGINE_PARAMS, 0, params, plan.n_weights);
	struct engine_batch batch = { .count = IMAGES, .pixels = pixels };
	const int edge = SOURCE - WINDOW, at[5][2] = { { 0, 0 }, { edge, 0 }, { 0, edge }, { edge, edge }, { edge / 2, edge / 2 } };

	for (int k = 0; k < 10; k++) {
		struct augment a = { (int16_t)at[k % 5][0], (int16_t)at[k % 5][1], (uint8_t)(k / 5) }, all[IMAGES] = { a, a, a };

		batch.augment = all;
		assert_int_equal(engine_forward(engine, &batch, one, NULL, &token), 0);
		assert_int_equal(engine_done(engine, token, 1), 1);
		for (int i = 0; i < IMAGES * CLASSES; i++) {
			mean[i] += 0.1 / (1 + exp(-(double)one[i]));
			sure[i] += 0.1 * exp(-(double)one[i] - 60);
		}
	}
	batch.augment = NULL;
	features = malloc((size_t)IMAGES * (size_t)plan.layers[plan.n_layers - 2].c_in * 64 * sizeof *features);
	assert_int_equal(crops_forward(engine, &batch, CROPS_TEN, SOURCE, WINDOW, CLASSES, logits, NULL), 0);
	for (int i = 0; i < IMAGES * CLASSES; i++)
		assert_close(1 / (1 + exp(-(double)logits[i])), mean[i], 1e-6);
	size_t n = (size_t)IMAGES * (size_t)plan.layers[plan.n_layers - 2].c_in * 64;
	float *whole = calloc(n, sizeof *whole), ten[IMAGES * CLASSES];

	/* maps are of the middle of the image, whatever the probability is a mean of */
	memcpy(ten, logits, sizeof ten);
	memset(features, 0, n * sizeof *features);
	assert_int_equal(crops_forward(engine, &batch, CROPS_TEN, SOURCE, WINDOW, CLASSES, logits, features), 0);
	assert_memory_equal(logits, ten, sizeof ten);
	assert_int_equal(crops_forward(engine, &batch, CROPS_NONE, SOURCE, WINDOW, CLASSES, logits, whole), 0);
	assert_memory_equal(features, whole, n * sizeof *whole);
	free(whole);
	assert_int_equal(engine_forward(engine, &batch, one, NULL, &token), 0);
	assert_memory_equal(logits, one, sizeof one);
	free(features);
	/* of a network that is sure, the complement; of one that is broken, no number */
	float *bias = params + plan.n_weights - CLASSES;

	for (int broken = 0; broken < 3; broken++) {
		for (int i = 0; i < CLASSES; i++)
			bias[i] = broken == 0 ? bias[i] + 60 : broken == 1 ? INFINITY : NAN;
		engine_put(engine, ENGINE_PARAMS, 0, params, plan.n_weights);
		assert_int_equal(crops_forward(engine, &batch, CROPS_TEN, SOURCE, WINDOW, CLASSES, logits, NULL), 0);
		for (int i = 0; i < IMAGES * CLASSES; i++)
			if (broken)
				assert_true(isnan(logits[i]));
			else
				assert_close(logits[i], -log(sure[i]), 1e-4);
	}
	free(params);
	engine_close(engine);
	engine_layout_free(&layout);
	net_plan_free(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_crops_are_the_mean_probability_of_ten_windows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
