/* SPDX-License-Identifier: Apache-2.0
 * How a network is looked at: ten crops, and the pointing game. */
#include "tests/unit/scratch.h"

#include <math.h>

#include "engine/engine.h"
#include "learn/crops.h"
#include "learn/pointing.h"

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

static void pointing_says(const struct pointing *p, const char *last_line)
{
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	pointing_print(p, f);
	fclose(f);
	if (size < strlen(last_line) || strcmp(text + size - strlen(last_line), last_line) != 0)
		fail_msg("\"%s\" does not end with \"%s\"", text, last_line);
	free(text);
}

static void the_pointing_game_counts_hits_and_chance(void **state)
{
	(void)state;
	static const char list[] = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
				   "b.png,Infiltrate,100,200,50,100,,,\n"
				   "b.png,Infiltration,100,200,50,100\n" /* once more */
				   "a.png,Effusion,0,0,512,512\n"
				   "a.png,Effusion,900,900,100,100\n"
				   "a.png,Mass,-0.5,10,20,20\n"
				   "d.png,Nodule,0,0,1000,900\nd.png,Nodule,0,100,1000,900\n"; /* over each other */
	const char *path = scratch_path("boxes.csv");
	const double whole[] = { 0, 1 }, middle[] = { 0.125, 0.875 };
	struct boxes b;
	struct pointing p = { 0 };
	struct error e = { 0 };
	int effusion = finding_index("Effusion", 8), infiltration = finding_index("Infiltration", 12);

	scratch_write(path, list, sizeof list - 1);
	assert_int_equal(boxes_read(&b, path, &e), 0);
	assert_int_equal(b.n, 6);
	assert_int_equal(boxes_findings(&b, "a.png"), 1u << effusion | 1u << finding_index("Mass", 4));
	assert_int_equal(boxes_findings(&b, "c.png"), 0);
	pointing_add(&p, &b, "a.png", effusion, 0.25, 0.25, whole, 1024, 1024);    /* in the first box */
	pointing_add(&p, &b, "a.png", effusion, 0.92, 0.93, whole, 1024, 1024);    /* in the second */
	pointing_add(&p, &b, "a.png", effusion, 0.75, 0.25, whole, 1024, 1024);    /* in none */
	pointing_add(&p, &b, "b.png", infiltration, 0.12, 0.24, whole, 1000, 1000); /* just inside */
	pointing_add(&p, &b, "b.png", infiltration, 0.24, 0.12, whole, 1000, 1000); /* with x and y swapped: outside */
	struct pointing_sum s = pointing_total(&p);
	double share = 0.25 + 100.0 * 100 / (1024 * 1024), small = 0.005;

	assert_int_equal(s.maps, 5);
	assert_int_equal(s.hits, 3);
	assert_int_equal(p.hits[effusion], 2);
	assert_close(s.chance, 3 * share + 2 * small, 1e-12);
	assert_close(s.p, 2 * (1 - exp(-s.chance) * (1 + s.chance + s.chance * s.chance / 2)), 1e-12); /* of three or more */
	pointing_add(&p, &b, "d.png", finding_index("Nodule", 6), 0.5, 0.5, whole, 1000, 1000); /* no miss is left to chance, and none to be had */
	s = pointing_total(&p);
	assert_close(s.chance, 3 * share + 2 * small + 1, 1e-12);
	pointing_says(&p, "pointing game: 4 of 6 maps peak in a box of their finding, 1.8 by chance: 2.2 times as many (p <=0.214)\n");
	p = (struct pointing){ 0 };
	pointing_says(&p, "pointing game: none of these images has a box\n");
	pointing_add(&p, &b, "d.png", finding_index("Nodule", 6), 0.5, 0.5, whole, 1000, 1000);
	pointing_says(&p, "pointing game: 1 of 1 maps peak in a box of their finding, 1.0 by chance: 1.0 times as many (p <=1.000)\n");
	pointing_add(&p, &b, "a.png", effusion, 0.75, 0.25, whole, 1024, 1024);
	p.hits[finding_index("Nodule", 6)] = 0;
	pointing_says(&p, "pointing game: 0 of 2 maps peak in a box of their finding, 1.3 by chance: 0.0 times as many (p <=0.568)\n");
	/* a network that sees the middle alone can point nowhere else: chance is the share of it that the boxes cover */
	p = (struct pointing){ 0 };
	pointing_add(&p, &b, "a.png", effusion, 0.25, 0.25, middle, 1024, 1024); /* the second box is outside */
	assert_close(p.chance[effusion], 0.25, 1e-12);                           /* (0.5 - 0.125)^2 / 0.75^2 */
	pointing_add(&p, &b, "b.png", infiltration, 0.13, 0.24, middle, 1000, 1000);
	assert_close(p.chance[infiltration], 25.0 * 100 / (750 * 750), 1e-12);
	assert_int_equal(boxes_fit(&b, "a.png", 1024, 1024, &e), 0);
	assert_int_equal(boxes_fit(&b, "c.png", 10, 10, &e), 0);
	assert_int_equal(boxes_fit(&b, "a.png", 1024, 512, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "a.png has 1024 x 512 pixels and a box of Effusion that reaches to 1000, 1000"));
	boxes_free(&b);
	struct box outside = { .image = "a.png", .finding = effusion, .x = 10, .y = -300, .w = 200, .h = 250 };
	b = (struct boxes){ .n = 1, .box = &outside };
	e.code = 0;
	assert_int_equal(boxes_fit(&b, "a.png", 1024, 1024, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "a.png has 1024 x 1024 pixels and a box of Effusion that begins at 10, -300"));
	outside.y = -30; /* a hand that slipped */
	assert_int_equal(boxes_fit(&b, "a.png", 1024, 1024, &(struct error){ 0 }), 0);
}

/* A hand that slipped over the edge is no other image: up to 5 % of a side. */
static void boxes_may_reach_five_percent_over_the_edge(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++)
		for (int over = 50; over <= 51; over++) {
			struct box box = { .image = "a.png", .w = side ? 10 : 1000 + over, .h = side ? 1000 + over : 10 };
			struct boxes b = { .n = 1, .box = &box };
			struct error e = { 0 };

			assert_int_equal(boxes_fit(&b, "a.png", 1000, 1000, &e), over > 50 ? -EXIT_DATA : 0);
			if (over > 50)
				assert_non_null(strstr(e.text, side ? "reaches to 10, 1051" : "reaches to 1051, 10"));
		}
}

/* Points anywhere, boxes over 1 to 25 % of the image: how often they are said to be more than chance, or less. By standard deviations 1.96 are passed in
 * 192 of 2,000 tries with ten boxes over 1 %, and three in as many as 100 with five over 5 %. */
static void points_anywhere_are_seldom_more_than_chance(void **state)
{
	enum { ROUNDS = 2000 };
	static const double shares[] = { 0.01, 0.05, 0.25 }, whole[] = { 0, 1 };
	uint64_t random = 20261130;

	(void)state;
	for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++)
		for (int maps = 1; maps <= 100; maps *= 10) {
			struct box box = { .image = "a.png", .w = 1000 * shares[k], .h = 1000 };
			struct boxes b = { .n = 1, .box = &box };
			int said = 0;

			for (int round = 0; round < ROUNDS; round++) {
				struct pointing p = { 0 };

				for (int i = 0; i < maps; i++) {
					random = random * 6364136223846793005u + 1442695040888963407u;
					pointing_add(&p, &b, "a.png", 0, (double)(random >> 11) / 9007199254740992.0, 0.5, whole, 1000, 1000);
				}
				said += pointing_total(&p).p <= 0.05;
			}
			printf("# %d maps, boxes over %.2f of the image: more or less than chance in %d of %d\n", maps, shares[k], said, ROUNDS);
			assert_true(said < 0.06 * ROUNDS);
		}
	struct box box = { .image = "a.png", .w = 10, .h = 1000 };
	struct boxes b = { .n = 1, .box = &box };
	struct pointing p = { 0 };

	for (int i = 0; i < 10; i++) /* and three of ten where one is to be had in ten tries are not chance */
		pointing_add(&p, &b, "a.png", 0, i < 3 ? 0.005 : 0.5, 0.5, whole, 1000, 1000);
	assert_true(pointing_total(&p).p < 0.001);
}

#define NAME_63 "a-name-of-sixty-three-bytes-which-is-as-long-as-one-may-be.jpeg"

static void a_box_list_that_is_none_is_named_with_its_line(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", ": no box list: an empty file" },
		{ "Image,Finding\n", ":1: no box list" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png,Effusion,1,2,3\n", ":2: 5 fields" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png\n", ":2: 1 field, not" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png,Efusion,1,2,3,4\n", ":2: unknown finding \"Efusion\" (did you mean Effusion?)" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png,Effusion,1,2,3,4\na.png,Effusion,1,2,x,4\n", ":3: field 5 is \"x\"" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\n" NAME_63 ",Effusion,1,2,3,4\n" NAME_63 "e,Effusion,1,2,3,4\n", ":3: the image's name is too long" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png,Effusion,nan,2,3,4\n", ":2: field 3 is \"nan\"" },
		{ "Image Index,Finding Label,Bbox [x,y,w,h]\na.png,Effusion,1,2,-3,4\n", ":2: a box of -3 x 4 pixels" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const char *path = scratch_path("bad.csv");
		struct boxes b;
		struct error e = { 0 };

		scratch_write(path, bad[i].text, strlen(bad[i].text));
		assert_int_equal(boxes_read(&b, path, &e), -EXIT_DATA);
		if (!strstr(e.text, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, bad[i].says);
		boxes_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_crops_are_the_mean_probability_of_ten_windows),
		cmocka_unit_test(the_pointing_game_counts_hits_and_chance),
		cmocka_unit_test(boxes_may_reach_five_percent_over_the_edge),
		cmocka_unit_test(points_anywhere_are_seldom_more_than_chance),
		cmocka_unit_test(a_box_list_that_is_none_is_named_with_its_line),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
