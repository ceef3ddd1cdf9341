/* SPDX-License-Identifier: Apache-2.0
 * The pointing game: boxes, hits and chance, and intervals over patients. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/pointing_read.h"
#include "tests/unit/scratch.h"

static void add(struct pointing *p, uint32_t patient, struct pointed map)
{
	assert_int_equal(pointing_add(p, patient, &map, 1), 0);
}

static struct pointing_table judge(const struct pointing *p)
{
	struct pointing_table t;

	assert_int_equal(pointing_judge(p, 1000, 1, &t), 0);
	return t;
}

static void pointing_says(const struct pointing *p, const char *last_line)
{
	struct pointing_table t = judge(p);
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	pointing_print(&t, f);
	fclose(f);
	if (size < strlen(last_line) || strcmp(text + size - strlen(last_line), last_line) != 0)
		fail_msg("\"%s\" does not end with \"%s\"", text, last_line);
	free(text);
}

static void the_pointing_game_counts_hits_and_chance(void **state)
{
	(void)state;
	static const char list[] = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
				   "b.png,Infiltrate,170,200,50,120,,,\n"
				   "b.png,Infiltration,170,200,50,120\n" /* once more */
				   "a.png,Effusion,0,0,512,512\n"
				   "a.png,Effusion,900,900,100,100\n"
				   "a.png,Mass,-0.5,10,20,20\n"
				   "d.png,Nodule,0,0,1000,900\nd.png,Nodule,0,100,1000,900\n"; /* over each other */
	const char *path = scratch_path("boxes.csv");
	const struct pointing_grid grid = { 8, 1 / 16.0, 1 / 8.0 }, middle = { 6, 3 / 16.0, 1 / 8.0 }; /* of the whole image, and of three quarters of each side */
	struct boxes b;
	struct pointing p = { 0 };
	struct error e = { 0 };
	int effusion = finding_index("Effusion", 8), infiltration = finding_index("Infiltration", 12), nodule = finding_index("Nodule", 6);

	scratch_write(path, list, sizeof list - 1);
	assert_int_equal(boxes_read(&b, path, &e), 0);
	assert_int_equal(b.n, 6);
	assert_int_equal(boxes_findings(&b, "a.png"), 1u << effusion | 1u << finding_index("Mass", 4));
	assert_int_equal(boxes_findings(&b, "c.png"), 0);
	add(&p, 1, pointing_at(&b, "a.png", effusion, 0.25, 0.25, &grid, 1024, 1024));    /* in the first box */
	add(&p, 2, pointing_at(&b, "a.png", effusion, 0.92, 0.93, &grid, 1024, 1024));    /* in the second */
	add(&p, 3, pointing_at(&b, "a.png", effusion, 0.75, 0.25, &grid, 1024, 1024));    /* in none */
	add(&p, 4, pointing_at(&b, "b.png", infiltration, 0.1875, 0.3125, &grid, 1000, 1000)); /* inside */
	add(&p, 5, pointing_at(&b, "b.png", infiltration, 0.3125, 0.1875, &grid, 1000, 1000)); /* with x and y swapped: outside */
	struct pointing_table t = judge(&p);
	double share = (16 + 1) / 64.0, small = 1 / 64.0, chance = t.all.chance;

	assert_int_equal(t.all.maps, 5);
	assert_int_equal(t.all.hits, 3);
	assert_int_equal(t.all.patients, 5);
	assert_int_equal(t.finding[effusion].hits, 2);
	assert_close(t.finding[effusion].share.value, 2 / 3.0, 1e-12);
	assert_close(chance, 3 * share + 2 * small, 1e-12);
	assert_close(t.p, 2 * (1 - exp(-chance) * (1 + chance + chance * chance / 2)), 1e-12); /* of three or more */
	add(&p, 6, pointing_at(&b, "d.png", nodule, 0.5, 0.5, &grid, 1000, 1000)); /* no miss is left to chance, and none to be had */
	assert_close(judge(&p).all.chance, 3 * share + 2 * small + 1, 1e-12);
	pointing_says(&p, "pointing game: 4 of 6 maps peak in a box of their finding (66.7 %, 95 % interval 30.0 to 90.3 %, 6 patients), 1.8 by chance: 2.2 times as many (p <=0.227)\n");
	pointing_free(&p);
	pointing_says(&p, "pointing game: none of these images has a box\n");
	add(&p, 1, pointing_at(&b, "d.png", nodule, 0.5, 0.5, &grid, 1000, 1000));
	pointing_says(&p, "pointing game: 1 of 1 maps peak in a box of their finding (100.0 %, 1 patient: too few for an interval), 1.0 by chance: 1.0 times as many (p <=1.000)\n");
	p.map[0].hit = 0;
	add(&p, 0, pointing_at(&b, "a.png", effusion, 0.75, 0.25, &grid, 1024, 1024));
	pointing_says(&p, "1 image without a patient in the name (00000001_000.png has one): each counts as another patient's, so that intervals may be too narrow\n"
			  "pointing game: 0 of 2 maps peak in a box of their finding (0.0 %, 2 patients: too few for an interval), 1.3 by chance: 0.0 times as many (p <=0.564)\n");
	pointing_free(&p);
	/* a network that sees the middle alone can point nowhere else */
	assert_close(pointing_at(&b, "a.png", effusion, 0.25, 0.25, &middle, 1024, 1024).chance, 9 / 36.0, 1e-12); /* the second box is outside */
	assert_close(pointing_at(&b, "b.png", infiltration, 0.1875, 0.3125, &middle, 1000, 1000).chance, 1 / 36.0, 1e-12);
	assert_close(pointing_at(&b, "b.png", infiltration, 0.1875, 0.3125, &(struct pointing_grid){ 2, 0.25, 0.5 }, 1000, 1000).chance, 0, 0); /* no cell is there */
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

static void a_name_tells_the_patient(void **state)
{
	(void)state;
	assert_int_equal(pointing_patient("images_001/images/00004296_000.png"), 4296);
	assert_int_equal(pointing_patient("00030805_013.png"), 30805);
	assert_int_equal(pointing_patient("17_1.jpg"), 17);
	assert_int_equal(pointing_patient("17_1/scan.jpg"), 0);
	assert_int_equal(pointing_patient("1.2.840_1.png"), 0);
	assert_int_equal(pointing_patient("_1.png"), 0);
	assert_int_equal(pointing_patient("0123456789_1.png"), 0);
}

/* ---- how sure ---------------------------------------------------------------------------------------- */

static uint64_t random_state = 20261130;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

/* Points anywhere, boxes over 1 to 25 % of the image, a patient's maps all alike where there are several: how often they are said to be more than chance,
 * or less. By standard deviations 1.96 are passed in 192 of 2,000 tries with ten boxes over 1 %, and three in as many as 100 with five over 5 %. Were four alike
 * taken for independent, they would be said to be so in up to 907 of 2,000. */
static void points_anywhere_are_seldom_more_than_chance(void **state)
{
	enum { ROUNDS = 2000 };
	static const double shares[] = { 0.01, 0.05, 0.25 };

	(void)state;
	random_state = 20261130;
	for (int alike = 0; alike < 3; alike++) /* one each, four each, one or seven */
		for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++)
			for (int patients = 1; patients <= 100; patients *= 10) {
				int said = 0;

				for (int round = 0; round < ROUNDS; round++) {
					struct pointing p = { 0 };
					struct pointing_table t;

					for (int i = 0; i < patients; i++) {
						const struct pointed m = { .hit = uniform() < shares[k], .chance = shares[k] };
						const struct pointed maps[] = { m, m, m, m, m, m, m };

						assert_int_equal(pointing_add(&p, (uint32_t)i + 1, maps, alike == 0 ? 1 : alike == 1 ? 4 : i % 4 ? 1 : 7), 0);
					}
					assert_int_equal(pointing_judge(&p, 0, 1, &t), 0);
					said += t.p <= 0.05;
					pointing_free(&p);
				}
				printf("# %d patients of %s, boxes over %.2f of the image: more or less than chance in %d of %d\n", patients,
				       alike == 0 ? "one map" : alike == 1 ? "four" : "one or seven", shares[k], said, ROUNDS);
				assert_true(said < 0.06 * ROUNDS);
			}
	struct pointing p = { 0 };

	for (int i = 0; i < 10; i++) /* and three of ten where one is to be had in ten tries are not chance */
		add(&p, (uint32_t)i + 1, (struct pointed){ .hit = i < 3, .chance = 0.01 });
	assert_true(judge(&p).p < 0.001);
	pointing_free(&p);
}

/* Patients have a share of hits of their own, drawn from a beta distribution: correlation 0 is one share for all, 1 means that a patient's maps all hit or
 * all miss. */
static double own_share(double mean, double correlation)
{
	const double both = 1 / correlation - 1;
	double x, y;

	if (correlation <= 0)
		return mean;
	if (correlation >= 1)
		return uniform() < mean;
	do { /* Jöhnk (1964) */
		x = pow(uniform(), 1 / (mean * both));
		y = pow(uniform(), 1 / ((1 - mean) * both));
	} while (!(x + y > 0 && x + y <= 1));
	return x / (x + y);
}

/* How often the interval holds the share of hits. one: maps of most patients; some: of every fifth. */
static void the_interval_holds_the_share(void **state)
{
	static const struct {
		int patients, one, some;
		double share, correlation;
	} cases[] = {
		{ 5, 1, 1, 0.1, 0 },  { 5, 1, 1, 0.5, 0 },   { 10, 1, 1, 0.9, 0 },  { 20, 1, 1, 0.5, 0 },   { 20, 1, 1, 0.97, 0 },  { 50, 1, 1, 0.03, 0 },
		{ 20, 1, 4, 0.5, 1 }, { 20, 1, 4, 0.9, 1 },  { 50, 1, 4, 0.2, 1 },  { 50, 1, 4, 0.5, 0.5 }, { 30, 2, 6, 0.3, 0.5 }, { 30, 2, 6, 0.05, 0.5 },
		{ 20, 4, 4, 0.5, 1 }, { 20, 4, 4, 0.95, 1 }, { 100, 1, 9, 0.4, 1 }, { 100, 1, 9, 0.1, 0.3 }, { 200, 1, 3, 0.6, 0.5 },
	};
	const int rounds = getenv("TEST_ROUNDS") ? atoi(getenv("TEST_ROUNDS")) : 400;
	double all = 0;

	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		int held = 0, apart = 0;

		random_state = 20261130 + k;
		for (int round = 0; round < rounds; round++) {
			struct pointing p = { 0 };
			struct pointing_table t;
			size_t n = 0;

			for (int i = 0; i < cases[k].patients; i++) {
				const double own = own_share(cases[k].share, cases[k].correlation);
				struct pointed maps[9] = { { 0 } };
				const int of = i % 5 ? cases[k].one : cases[k].some;

				for (int m = 0; m < of; m++)
					maps[m].hit = uniform() < own;
				n += (size_t)of;
				assert_int_equal(pointing_add(&p, (uint32_t)i + 1, maps, of), 0);
			}
			assert_int_equal(pointing_judge(&p, 200, (uint64_t)round, &t), 0);
			const struct interval *r = &t.all.share;
			struct interval independent = { .value = r->value };

			assert_true(r->high > r->low);
			assert_true(t.all.patients == (size_t)cases[k].patients && t.all.maps == (int)n);
			held += r->low <= cases[k].share && cases[k].share <= r->high;
			interval_of_share(&independent, (double)n);
			apart += independent.low <= cases[k].share && cases[k].share <= independent.high;
			pointing_free(&p);
		}
		printf("# %3d patients of %d map%s or %d, share %.2f, correlation %.1f: held in %.1f %%, Wilson's of all maps in %.1f %%\n", cases[k].patients, cases[k].one,
		       cases[k].one == 1 ? "" : "s", cases[k].some, cases[k].share, cases[k].correlation, 100.0 * held / rounds, 100.0 * apart / rounds);
		assert_true(held > 0.89 * rounds);
		all += 1.0 * held / rounds;
	}
	assert_true(all > 0.94 * (sizeof cases / sizeof cases[0]));
}

/* Nothing but hits, or none, is not sure: Wilson's interval of the patients, not of the maps. */
static void all_or_none_is_not_sure(void **state)
{
	(void)state;
	for (int hit = 0; hit < 2; hit++)
		for (int maps = 1; maps <= 3; maps++) {
			struct pointing p = { 0 };
			struct interval wilson = { .value = hit };
			const struct pointed m = { .hit = hit, .chance = 0.1 }, of[] = { m, m, m };

			for (uint32_t i = 1; i <= 12; i++)
				assert_int_equal(pointing_add(&p, i, of, maps), 0);
			const struct pointing_table t = judge(&p);

			interval_of_share(&wilson, 12);
			assert_close(t.all.share.low, wilson.low, 1e-12);
			assert_close(t.all.share.high, wilson.high, 1e-12);
			assert_string_equal(interval_method(&t.all.share), "wilson");
			assert_true(t.all.share.high - t.all.share.low > 0.2);
			assert_int_equal(memcmp(&t.all.share, &t.finding[0].share, sizeof wilson), 0);
			assert_true(isnan(t.finding[1].share.value));
			pointing_free(&p);
		}
}

/* The same maps of four patients have none: nobody knows what a fifth has. */
static void four_patients_have_no_interval(void **state)
{
	struct pointing p = { 0 };

	(void)state;
	for (int i = 0; i < 40; i++)
		add(&p, (uint32_t)(i % 4) + 1, (struct pointed){ .hit = i % 3 == 0, .chance = 0.1 });
	assert_true(isnan(judge(&p).all.share.low) && judge(&p).all.share.value == 0.35);
	add(&p, 5, (struct pointed){ .chance = 0.1 });
	assert_false(isnan(judge(&p).all.share.low));
	pointing_free(&p);
}

/* A box between the cells' middles is a miss that no network can help. */
static void maps_that_can_hit_nothing_are_told(void **state)
{
	struct pointing p = { 0 };

	(void)state;
	for (uint32_t i = 1; i <= 5; i++)
		add(&p, i, (struct pointed){ .finding = 3, .hit = i == 1, .chance = i < 3 ? 0.25 : 0 });
	assert_int_equal(judge(&p).all.beyond, 3);
	assert_int_equal(judge(&p).finding[3].beyond, 3);
	pointing_says(&p, "\n3 maps could hit nothing: no cell's middle lies in a box\n"
			  "pointing game: 1 of 5 maps peak in a box of their finding (20.0 %, 95 % interval 3.6 to 62.4 %, 5 patients), 0.5 by chance: 2.0 times as many (p <=1.000)\n");
	pointing_free(&p);
}

/* ---- what was printed of it -------------------------------------------------------------------------- */

#define ROW(image, rest) "{\"image\": \"" image "\", \"weights_hash\": \"0123456789abcdef\"" rest "}"
#define OF(patient, findings) ", \"pointing\": {\"patient\": " patient ", \"findings\": {" findings "}}"

static void what_was_printed_is_read(void **state)
{
	static const char text[] = "[\n" ROW("d/00000002_000.png", OF("2", "\"Mass\": {\"hit\": true, \"chance\": 0.25}, \"Effusion\": {\"hit\": false, \"chance\": 0}"))
	    ", " ROW("nothing.png", "") ", {\"image\": \"broken.png\", \"error\": \"no\"}, " ROW("a.png", OF("null", "\"Mass\": {\"hit\": false, \"chance\": 0.5}")) "]\n";
	const char *path = scratch_path("printed.json");
	struct pointing_file p;
	struct error e = { 0 };

	(void)state;
	scratch_write(path, text, sizeof text - 1);
	assert_int_equal(pointing_read(&p, path, &e), 0);
	assert_int_equal(p.images, 2);
	assert_string_equal(p.name[0], "00000002_000.png");
	assert_string_equal(p.name[1], "a.png");
	assert_string_equal(p.weights_hash, "0123456789abcdef");
	const struct pointing_table t = judge(&p.pointing);

	assert_int_equal(t.all.maps, 3);
	assert_int_equal(t.all.hits, 1);
	assert_int_equal(t.all.patients, 2);
	assert_int_equal(t.all.beyond, 1);
	assert_int_equal(t.unnamed, 1);
	assert_close(t.all.chance, 0.75, 0);
	assert_int_equal(t.finding[finding_index("Mass", 4)].hits, 1);
	pointing_file_free(&p);
}

static void what_is_no_such_print_is_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", ": no JSON array, or not all of one" },
		{ "[\n" ROW("a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}")), ": no JSON array, or not all of one" },
		{ "[] []", ": no JSON array, or not all of one" },
		{ "{}", ": no JSON array, or not all of one" },
		{ "[3]", ": not what chexnet predict --boxes=FILE --json prints" },
		{ "[" ROW("a.png", "") "]", ": no image in it has a box" },
		{ "[" ROW("a.png", OF("1", "")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("1", "\"Mess\": {\"hit\": true, \"chance\": 0.25}")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", ", \"pointing\": {\"patient\": 1, \"findings\": [{\"hit\": true, \"chance\": 0.25}]}") "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}, \"Mass\": {\"hit\": true, \"chance\": 0.25}")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("1", "\"Mass\": {\"hit\": 1, \"chance\": 0.25}")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 1.25}")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("-1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}")) "]", ": image a.png: \"pointing\" is not as" },
		{ "[" ROW("a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}")) ", " ROW("b/a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}")) "]", ": image a.png is there twice" },
		{ "[" ROW("a.png", OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}")) ", {\"image\": \"b.png\", \"weights_hash\": \"ff\"" OF("1", "\"Mass\": {\"hit\": true, \"chance\": 0.25}") "}]",
		  ": image b.png: its map is of the weights ff, and those before of 0123456789abcdef" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const char *path = scratch_path("bad.json");
		struct pointing_file p;
		struct error e = { 0 };

		scratch_write(path, bad[i].text, strlen(bad[i].text));
		assert_int_equal(pointing_read(&p, path, &e), -EXIT_DATA);
		if (!strstr(e.text, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, bad[i].says);
		pointing_file_free(&p);
	}
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
		cmocka_unit_test(the_pointing_game_counts_hits_and_chance),
		cmocka_unit_test(boxes_may_reach_five_percent_over_the_edge),
		cmocka_unit_test(a_name_tells_the_patient),
		cmocka_unit_test(points_anywhere_are_seldom_more_than_chance),
		cmocka_unit_test(the_interval_holds_the_share),
		cmocka_unit_test(all_or_none_is_not_sure),
		cmocka_unit_test(four_patients_have_no_interval),
		cmocka_unit_test(maps_that_can_hit_nothing_are_told),
		cmocka_unit_test(what_was_printed_is_read),
		cmocka_unit_test(what_is_no_such_print_is_refused),
		cmocka_unit_test(a_box_list_that_is_none_is_named_with_its_line),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
