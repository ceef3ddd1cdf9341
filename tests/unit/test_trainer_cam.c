/* SPDX-License-Identifier: Apache-2.0
 * Class activation maps: the logit comes apart into cells, and the picture shows where the evidence is. */
#include "tests/unit/test.h"

#include <math.h>
#include <unistd.h>

#include "data/file.h"
#include "data/image.h"
#include "engine/engine.h"
#include "learn/cam.h"

enum { SIZE = 48, WINDOW = 40 };

static void the_mean_of_the_map_is_the_logit_without_its_bias(void **state)
{
	(void)state;
	struct net_conf conf = { .model = "densenet", .image_size = WINDOW, .classes = 14, .growth = 4, .init_channels = 8, .n_blocks = 2, .block = { 2, 2 } };
	struct net_plan plan;
	struct engine_layout layout;
	struct engine *engine;
	struct error e = { 0 };
	static uint8_t pixels[SIZE * SIZE];
	static float features[64 * 100], variance[1000], weights[100000], cells[100];
	float logits[14];
	uint64_t token;

	assert_int_equal(net_plan_make(&plan, &conf, &e), 0);
	assert_int_equal(engine_layout_make(&layout, &plan, &e), 0);
	struct engine_conf ec = { .plan = &plan, .layout = &layout, .batch = 1, .channels = 1, .source_size = SIZE, .threads = 1,
				  .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 };

	assert_int_equal(engine_open(&engine, ENGINE_CPU, &ec, &e), 0);
	double prevalence[14];

	for (int f = 0; f < 14; f++)
		prevalence[f] = 0.02 * (f + 1); /* biases that are not zero */
	net_init(&plan, 3, prevalence, weights);
	for (size_t i = 0; i < plan.n_bn_channels; i++)
		variance[i] = 1;
	assert_int_equal(engine_put(engine, ENGINE_PARAMS, 0, weights, plan.n_weights), 0);
	assert_int_equal(engine_put(engine, ENGINE_RUNNING_VAR, 0, variance, plan.n_bn_channels), 0);
	for (int i = 0; i < SIZE * SIZE; i++)
		pixels[i] = (uint8_t)(i * 2654435761u >> 24);
	struct engine_batch batch = { .count = 1, .pixels = pixels };

	assert_int_equal(engine_forward(engine, &batch, logits, features, &token), 0);
	assert_int_equal(engine_done(engine, token, 1), 1);
	const struct net_layer *pool = &plan.layers[plan.n_layers - 2];

	assert_int_equal(pool->op, OP_GLOBAL_AVGPOOL);
	const float *weight = weights + plan.params[net_param_find(&plan, "classifier.weight")].offset;
	const float *bias = weights + plan.params[net_param_find(&plan, "classifier.bias")].offset;

	for (int f = 0; f < 14; f++) {
		int n = pool->h_in * pool->h_in;
		double mean = 0;

		cam_make(features, pool->c_in, pool->h_in, weight + f * pool->c_in, cells);
		for (int i = 0; i < n; i++)
			mean += cells[i] / (double)n;
		assert_close(mean + bias[f], logits[f], 1e-4);
	}
	engine_close(engine);
	engine_layout_free(&layout);
	net_plan_free(&plan);
}

static uint8_t gray[SIZE * SIZE], rgb[3 * SIZE * SIZE];

static void the_picture_is_warm_where_the_evidence_is(void **state)
{
	(void)state;
	float feature[25] = { 0 }, weight = 2, cells[25];

	memset(gray, 100, sizeof gray);
	feature[1 * 5 + 3] = 1; /* row 1, column 3 */
	feature[4 * 5 + 0] = -3;
	struct cam cam = cam_make(feature, 1, 5, &weight, cells);

	assert_close(cam.peak_x, 0.7, 1e-12);
	assert_close(cam.peak_y, 0.3, 1e-12);
	cam_overlay(&cam, gray, SIZE, WINDOW, rgb);
	const uint8_t *peak = rgb + 3 * ((4 + 12) * SIZE + 4 + 28), *away = rgb + 3 * ((4 + 36) * SIZE + 4 + 4), *margin = rgb + 3 * (SIZE + 1);

	assert_true(peak[0] > 180 && peak[1] < 100 && peak[2] < 100);
	assert_true(away[0] == 100 && away[1] == 100 && away[2] == 100);
	assert_true(margin[0] == 100 && margin[1] == 100 && margin[2] == 100);
}

static void without_evidence_the_picture_is_the_image(void **state)
{
	(void)state;
	const char *build = getenv("BUILD");
	char path[512];
	float feature[4] = { 0, -1, -2, -3 }, weight = 1, cells[4];
	struct cam cam = cam_make(feature, 1, 2, &weight, cells);
	struct error e = { 0 };
	struct mapped_file file;
	struct image image;

	for (int i = 0; i < SIZE * SIZE; i++)
		gray[i] = (uint8_t)(i * 7);
	cam_overlay(&cam, gray, SIZE, WINDOW, rgb);
	snprintf(path, sizeof path, "%s/tests/cam-%ld.png", build ? build : "build", (long)getpid());
	assert_int_equal(rgb_write_png(path, rgb, SIZE, &e), 0);
	assert_int_equal(file_map(&file, path, &e), 0);
	struct decoder *decoder = decoder_new();

	assert_int_equal(decode_image(decoder, file.data, file.size, &image, &e), 0);
	assert_int_equal(image.width, SIZE);
	assert_memory_equal(image.pixels, gray, sizeof gray);
	decoder_free(decoder);
	file_unmap(&file);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mean_of_the_map_is_the_logit_without_its_bias),
		cmocka_unit_test(the_picture_is_warm_where_the_evidence_is),
		cmocka_unit_test(without_evidence_the_picture_is_the_image),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
