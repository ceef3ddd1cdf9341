/* SPDX-License-Identifier: Apache-2.0
 * Class activation maps: the logit comes apart into cells, and the picture shows where the evidence is. */
#include "tests/unit/test.h"

#include <math.h>
#include <unistd.h>

#include "commands/network_options.h"
#include "engine/engine.h"
#include "files/file.h"
#include "image/image.h"
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
	struct cam_grid grid = cam_grid_of(&plan);

	assert_int_equal(pool->op, OP_GLOBAL_AVGPOOL);
	assert_int_equal(grid.side, pool->h_in);
	const float *weight = weights + plan.params[net_param_find(&plan, "classifier.weight")].offset;
	const float *bias = weights + plan.params[net_param_find(&plan, "classifier.bias")].offset;

	for (int f = 0; f < 14; f++) {
		int n = pool->h_in * pool->h_in;
		double mean = 0;

		cam_make(features, pool->c_in, &grid, weight + f * pool->c_in, cells);
		for (int i = 0; i < n; i++)
			mean += cells[i] / (double)n;
		assert_close(mean + bias[f], logits[f], 1e-4);
	}
	engine_close(engine);
	engine_layout_free(&layout);
	net_plan_free(&plan);
}

/* DenseNet's pools drop what is left over, ResNet's strides begin at the corner. */
static void cells_lie_where_the_strides_put_them(void **state)
{
	static const struct {
		const char *model;
		int size, side;
		double first;
		int uncovered;
	} cases[] = {
		{ "densenet121", 224, 7, 14.5, 1 }, { "densenet121", 112, 3, 14.5, 17 }, { "densenet121", 280, 8, 14.5, 25 }, { "densenet121", 64, 2, 14.5, 1 },
		{ "resnet50", 224, 7, 0.5, 15 }, { "resnet50", 112, 4, 0.5, 0 }, { "resnet50", 280, 9, 0.5, 7 },
	};
	struct error e = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct net_conf conf = { .model = cases[i].model, .image_size = cases[i].size, .classes = 14 };
		struct net_plan plan;

		assert_int_equal(net_plan_make(&plan, &conf, &e), 0);
		struct cam_grid grid = cam_grid_of(&plan);

		assert_int_equal(grid.side, cases[i].side);
		assert_true(grid.pitch == 32 && grid.first == cases[i].first);
		assert_int_equal(cam_uncovered(&grid, cases[i].size), cases[i].uncovered);
		net_plan_free(&plan);
	}
}

static void a_default_window_is_covered_by_cells_where_one_is_near(void **state)
{
	static const int cases[][5] = { /* prepared; window of a DenseNet of four blocks, of one of two, of a ResNet; of the first on a GPU */
		{ 256, 224, 224, 224, 224 }, { 320, 288, 280, 280, 288 }, { 384, 352, 336, 336, 352 }, { 512, 448, 448, 448, 448 }, { 128, 112, 112, 112, 128 }, { 96, 80, 88, 80, 96 },
		{ 64, 56, 56, 56, 64 }, { 32, 24, 24, 24, 32 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct network deep = { .model = "densenet121", .classes = 14 }, resnet = { .model = "resnet50", .classes = 14 },
			       small = { .model = "densenet", .classes = 14, .growth = 4, .n_blocks = 2, .block = { 1, 1 } }, none = { .model = "vgg16", .classes = 14 };

		assert_int_equal(default_image_size(&deep, cases[i][0], 0), cases[i][1]);
		assert_int_equal(default_image_size(&deep, cases[i][0], 1), cases[i][4]);
		assert_int_equal(default_image_size(&small, cases[i][0], 0), cases[i][2]);
		assert_int_equal(default_image_size(&resnet, cases[i][0], 1), cases[i][3]);
		assert_int_equal(default_image_size(&none, cases[i][0], 1), cases[i][0] * 7 / 64 * 8);
	}
}

static void a_window_of_other_images_is_followed_by_one_that_shows_about_as_much(void **state)
{
	static const int cases[][5] = { /* window, of images of; images now; window of a DenseNet, of a ResNet */
		{ 224, 256, 320, 288, 280 }, { 224, 256, 128, 112, 112 }, { 112, 128, 256, 224, 224 }, { 256, 256, 320, 320, 320 }, { 120, 128, 256, 256, 240 },
		{ 250, 256, 272, 256, 266 }, { 31, 32, 48, 47, 47 }, { 128, 256, 320, 160, 160 }, { 200, 256, 320, 256, 250 }, { 245, 250, 250, 245, 245 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct network deep = { .model = "densenet121", .classes = 14 }, resnet = { .model = "resnet50", .classes = 14 };

		assert_int_equal(image_size_like(&deep, cases[i][0], cases[i][1], cases[i][2]), cases[i][3]);
		assert_int_equal(image_size_like(&resnet, cases[i][0], cases[i][1], cases[i][2]), cases[i][4]);
	}
}

enum { BAR = 4, WIDE = 110, MOST_CELLS = 14 };

/* The mean column, in pixels, of the cells that a bright bar with its middle at x changes. */
static double answer_to_bar(struct engine *engine, const struct cam_grid *grid, int channels, int x, const float *quiet, float *features)
{
	static uint8_t pixels[WIDE * WIDE];
	struct engine_batch batch = { .count = 1, .pixels = pixels };
	double sum = 0, weighted = 0;
	float logits[14];
	uint64_t token;

	memset(pixels, 128, sizeof pixels);
	for (int y = 0; y < WIDE; y++)
		memset(pixels + y * WIDE + x - BAR / 2, 255, BAR);
	assert_int_equal(engine_forward(engine, &batch, logits, features, &token), 0);
	assert_int_equal(engine_done(engine, token, 1), 1);
	for (int i = 0; i < channels * grid->side * grid->side; i++) {
		double change = fabs((double)features[i] - quiet[i]);

		sum += change;
		weighted += change * (grid->first + grid->pitch * (i % grid->side));
	}
	return weighted / sum;
}

/* What is seen in the middle of the window changes the cells around it, in networks of both kinds. */
static void cells_answer_to_what_lies_at_their_centre(void **state)
{
	static const char *const models[] = { "densenet", "resnet" };
	static float quiet[256 * MOST_CELLS * MOST_CELLS], features[256 * MOST_CELLS * MOST_CELLS], weights[400000], variance[4000];
	static uint8_t pixels[WIDE * WIDE];
	struct error e = { 0 };

	(void)state;
	memset(pixels, 128, sizeof pixels);
	for (int i = 0; i < 2; i++) {
		struct net_conf conf = { .model = models[i], .image_size = WIDE, .classes = 14, .growth = i ? 0 : 8, .init_channels = 16, .n_blocks = 3, .block = { 1, 1, 1 } };
		struct net_plan plan;
		struct engine_layout layout;
		struct engine *engine;
		struct engine_batch batch = { .count = 1, .pixels = pixels };
		float logits[14];
		uint64_t token;
		double off = 0;

		assert_int_equal(net_plan_make(&plan, &conf, &e), 0);
		assert_true(plan.n_weights <= 400000 && plan.n_bn_channels <= 4000);
		assert_int_equal(engine_layout_make(&layout, &plan, &e), 0);
		struct engine_conf ec = { .plan = &plan, .layout = &layout, .batch = 1, .channels = 1, .source_size = WIDE, .threads = 1,
					  .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 };

		assert_int_equal(engine_open(&engine, ENGINE_CPU, &ec, &e), 0);
		net_init(&plan, 5, NULL, weights);
		for (int t = 0; t < plan.n_params; t++) /* every kernel an average, so that none leans to one side */
			for (size_t w = 0; w < plan.params[t].count && plan.params[t].kind == PARAM_CONV_WEIGHT; w++)
				weights[plan.params[t].offset + w] = (float)plan.params[t].shape[0] / (float)plan.params[t].count;
		for (size_t c = 0; c < plan.n_bn_channels; c++)
			variance[c] = 1;
		assert_int_equal(engine_put(engine, ENGINE_PARAMS, 0, weights, plan.n_weights), 0);
		assert_int_equal(engine_put(engine, ENGINE_RUNNING_VAR, 0, variance, plan.n_bn_channels), 0);
		assert_int_equal(engine_forward(engine, &batch, logits, quiet, &token), 0);
		assert_int_equal(engine_done(engine, token, 1), 1);
		struct cam_grid grid = cam_grid_of(&plan);
		int channels = plan.layers[plan.n_layers - 1].c_in;

		assert_true(channels <= 256 && grid.side <= MOST_CELLS && grid.pitch == 16);
		for (int x = 48; x < 64; x++) /* every phase of a cell */
			off += (answer_to_bar(engine, &grid, channels, x, quiet, features) - x) / 16;
		assert_true(fabs(off) < 0.1);
		engine_close(engine);
		engine_layout_free(&layout);
		net_plan_free(&plan);
	}
}

static uint8_t gray[SIZE * SIZE], rgb[3 * SIZE * SIZE];

static const struct cam_grid even = { .side = 5, .first = 4, .pitch = 8 };

static void the_picture_is_warm_where_the_evidence_is(void **state)
{
	(void)state;
	float feature[25] = { 0 }, weight = 2, cells[25];

	memset(gray, 100, sizeof gray);
	feature[1 * 5 + 3] = 25; /* row 1, column 3: 2 logits, enough for full colour */
	feature[4 * 5 + 0] = -3;
	struct cam cam = cam_make(feature, 1, &even, &weight, cells);

	assert_close(cam.peak, 2, 1e-6);
	assert_close(cam.raised, 2, 1e-6);
	assert_close(cam.peak_x, 28, 1e-12);
	assert_close(cam.peak_y, 12, 1e-12);
	cam_overlay(&cam, gray, SIZE, WINDOW, rgb);
	const uint8_t *peak = rgb + 3 * ((4 + 12) * SIZE + 4 + 28), *away = rgb + 3 * ((4 + 36) * SIZE + 4 + 4), *margin = rgb + 3 * (SIZE + 1);

	assert_true(peak[0] > 180 && peak[1] < 100 && peak[2] < 100);
	assert_true(away[0] == 100 && away[1] == 100 && away[2] == 100);
	assert_true(margin[0] == 50 && margin[1] == 50 && margin[2] == 50);
	for (int y = 0; y < 8; y++) /* and fades alike to all sides, up to the next cells' middles */
		for (int x = 0; x < 8; x++) {
			const uint8_t *down = rgb + 3 * ((4 + 12 + y) * SIZE + 4 + 28), *up = rgb + 3 * ((4 + 11 - y) * SIZE + 4 + 28);

			assert_memory_equal(up + 3 * x, down + 3 * x, 3);
			assert_memory_equal(up - 3 - 3 * x, down + 3 * x, 3);
			assert_memory_equal(down - 3 - 3 * x, down + 3 * x, 3);
		}
}

/* What the network did not see is told from what it saw and found nothing in: in gray too, over black as over white, and only outside of it. */
static void a_frame_holds_what_the_network_sees(void **state)
{
	static uint8_t wide_gray[512 * 512], wide[3 * 512 * 512];
	static const struct {
		int size, window, thick;
	} cases[] = { { 48, 40, 1 }, { 256, 224, 1 }, { 512, 448, 2 }, { 512, 510, 1 }, { 48, 48, 0 }, { 48, 47, 1 }, { 512, 511, 1 }, { 512, 509, 2 }, { 512, 449, 2 } };
	float feature[4] = { 0, 0, 0, 0 }, weight = 1, cells[4];

	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		int size = cases[k].size, window = cases[k].window, margin = (size - window) / 2, thick = cases[k].thick;
		const struct cam_grid grid = { .side = 2, .first = window / 4.0, .pitch = window / 2.0 };
		struct cam cam = cam_make(feature, 1, &grid, &weight, cells);

		for (int i = 0; i < size * size; i++)
			wide_gray[i] = i % size < size / 2 ? 0 : 240;
		cam_overlay(&cam, wide_gray, size, window, wide);
		for (int y = 0; y < size; y++)
			for (int x = 0; x < size; x++) {
				const uint8_t *p = wide + 3 * (y * size + x), was = wide_gray[y * size + x];
				int out = margin - (x < y ? x : y), beyond = (x > y ? x : y) - (margin + window - 1), far = out > beyond ? out : beyond;

				assert_true(p[0] == p[1] && p[1] == p[2]);
				assert_int_equal(p[0], far <= 0 ? was : far <= thick ? 255 : was / 2);
			}
	}
}

/* A map is not scaled up to its own maximum: what hardly adds to the logit hardly has a colour. */
static void little_evidence_has_little_colour(void **state)
{
	double before = 0;

	(void)state;
	memset(gray, 100, sizeof gray);
	for (int k = 0; k < 5; k++) {
		float feature[25] = { 0 }, weight = 1, cells[25];

		feature[7] = (float[]){ 0.25f, 2.5f, 12.5f, 50, 500 }[k];
		struct cam cam = cam_make(feature, 1, &even, &weight, cells);
		int warm = 0;

		cam_overlay(&cam, gray, SIZE, WINDOW, rgb);
		for (int i = 0; i < SIZE * SIZE; i++)
			warm = rgb[3 * i] - rgb[3 * i + 2] > warm ? rgb[3 * i] - rgb[3 * i + 2] : warm;
		assert_close(cam.raised, feature[7] / 25, 1e-6);
		assert_true(k == 0 ? warm < 5 : k == 1 ? warm < 15 : k == 4 ? warm == before : warm > 2 * before);
		before = warm;
	}
}

/* 3 cells of 8 pixels in a window of 40. */
static void where_no_cell_is_nothing_is_coloured(void **state)
{
	float feature[9], weight = 1, cells[9];
	const struct cam_grid grid = { .side = 3, .first = 3, .pitch = 8 };

	(void)state;
	for (int i = 0; i < 9; i++)
		feature[i] = 2;
	memset(gray, 100, sizeof gray);
	struct cam cam = cam_make(feature, 1, &grid, &weight, cells);

	cam_overlay(&cam, gray, SIZE, WINDOW, rgb);
	for (int y = 0; y < SIZE; y++)
		for (int x = 0; x < SIZE; x++) {
			int covered = x >= 4 && y >= 4 && x < 4 + 23 && y < 4 + 23;

			assert_int_equal(rgb[3 * (y * SIZE + x)] > rgb[3 * (y * SIZE + x) + 2] + 50, covered);
			assert_true(covered || rgb[3 * (y * SIZE + x)] == 50 || rgb[3 * (y * SIZE + x)] == 255);
		}
}

static void without_evidence_the_picture_is_the_image(void **state)
{
	(void)state;
	const char *build = getenv("BUILD");
	char path[512];
	float feature[4] = { 0, -1, -2, -3 }, weight = 1, cells[4];
	const struct cam_grid grid = { .side = 2, .first = 12, .pitch = 24 };
	struct cam cam = cam_make(feature, 1, &grid, &weight, cells);
	struct error e = { 0 };
	struct mapped_file file;
	struct image image;

	for (int i = 0; i < SIZE * SIZE; i++)
		gray[i] = (uint8_t)(i * 7);
	cam_overlay(&cam, gray, SIZE, SIZE, rgb); /* no rim */
	snprintf(path, sizeof path, "%s/tests/cam-%ld.png", build ? build : "build", (long)getpid());
	assert_int_equal(cam_write_png(path, rgb, SIZE, NULL, &e), 0);
	assert_int_equal(file_map(&file, path, &e), 0);
	struct decoder *decoder = decoder_new();

	assert_int_equal(decode_image(decoder, file.data, file.size, &image, &e), 0);
	assert_int_equal(image.width, SIZE);
	assert_memory_equal(image.pixels, gray, sizeof gray);
	decoder_free(decoder);
	file_unmap(&file);
	unlink(path);
}

static size_t write_and_read(const struct cam_about *about, char **file)
{
	const char *build = getenv("BUILD");
	struct error e = { 0 };
	char path[512];
	size_t size;

	snprintf(path, sizeof path, "%s/tests/cam-about-%ld.png", build ? build : "build", (long)getpid());
	assert_int_equal(cam_write_png(path, rgb, SIZE, about, &e), 0);
	assert_int_equal(file_read(file, &size, path, &e), 0);
	unlink(path);
	return size;
}

static void a_picture_says_what_it_shows(void **state)
{
	struct cam_about about = { .finding = 3, .probability = 0.17, .ten_crops = 1, .raised = 0.41, .side = 2,
				   .window = { .image_width = 2500, .image_height = 2048, .x = 156.25, .y = 128, .width = 2187.5, .height = 1792 },
				   .weights_hash = "00c0ffee00c0ffee", .image_hash = "0123456789abcdef" };
	struct cam_about read;
	char *file, *text;

	(void)state;
	size_t size = write_and_read(NULL, &file);

	assert_int_equal(cam_read_about(file, size, &read), 0);
	free(file);
	size = write_and_read(&about, &file);
	assert_int_equal(cam_read_about(file, size, &read), 1);
	assert_int_equal(read.finding, 3);
	assert_int_equal(read.side, 2);
	assert_int_equal(read.ten_crops, 1);
	assert_close(read.probability, 0.17, 1e-6);
	assert_close(read.raised, 0.41, 1e-6);
	assert_memory_equal(&read.window, &about.window, sizeof read.window);
	assert_string_equal(read.weights_hash, about.weights_hash);
	assert_string_equal(read.image_hash, about.image_hash);
	for (size_t cut = 0; cut < 100; cut++) /* within the chunk */
		assert_int_equal(cam_read_about(file, cut, &read), 0);
	/* what does not hold is not believed: a damaged chunk, and one that says anything */
	text = file;
	while (memcmp(text, "p=0.17", 6) != 0)
		text++;
	text[2] = '7';
	assert_int_equal(cam_read_about(file, size, &read), 0);
	free(file);
	about.ten_crops = 0;
	about.window.width *= 2; /* more than the image has */
	strcpy(about.weights_hash, "../../etc/passwd");
	size = write_and_read(&about, &file);
	assert_int_equal(cam_read_about(file, size, &read), 1);
	assert_int_equal(read.ten_crops, 0);
	assert_int_equal(read.window.image_width, 0);
	assert_string_equal(read.weights_hash, "");
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mean_of_the_map_is_the_logit_without_its_bias),
		cmocka_unit_test(cells_lie_where_the_strides_put_them),
		cmocka_unit_test(a_default_window_is_covered_by_cells_where_one_is_near),
		cmocka_unit_test(a_window_of_other_images_is_followed_by_one_that_shows_about_as_much),
		cmocka_unit_test(cells_answer_to_what_lies_at_their_centre),
		cmocka_unit_test(little_evidence_has_little_colour),
		cmocka_unit_test(a_picture_says_what_it_shows),
		cmocka_unit_test(where_no_cell_is_nothing_is_coloured),
		cmocka_unit_test(a_frame_holds_what_the_network_sees),
		cmocka_unit_test(the_picture_is_warm_where_the_evidence_is),
		cmocka_unit_test(without_evidence_the_picture_is_the_image),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
