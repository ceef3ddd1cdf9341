/* SPDX-License-Identifier: Apache-2.0
 * Activation maps in the report: it says whose they are, and what the network saw. */
#include "tests/unit/report_page.h"

#include "learn/cam.h"

enum { SIDE = 16 };

#define ONE "0123456789abcdef"
#define TWO "fedcba9876543210"

/* The PNG file of a map of these weights ("": it does not say) that sees `seen` of 1000 pixels a side; to be freed. */
static struct report_picture draw_map_of(const char *weights_hash, int seen, int ten_crops)
{
	static const uint8_t rgb[3 * SIDE * SIDE];
	struct cam_about about = { .finding = 2, .probability = 0.25, .ten_crops = ten_crops, .raised = 0.5, .side = 7 };
	struct report_picture picture = { .name = "image" };
	struct error e = { 0 };
	char file[sizeof directory + 16], *data;

	if (seen)
		about.window = (struct cam_window){ 1000, 1000, (1000 - seen) / 2, (1000 - seen) / 2, seen, seen };
	snprintf(about.weights_hash, sizeof about.weights_hash, "%s", weights_hash);
	snprintf(file, sizeof file, "%s/map.png", directory);
	assert_int_equal(cam_write_png(file, rgb, SIDE, &about, &e), 0);
	assert_int_equal(file_read(&data, &picture.size, file, &e), 0);
	picture.png = data;
	return picture;
}

static struct report_picture draw_map(const char *weights_hash, int seen)
{
	return draw_map_of(weights_hash, seen, 0);
}

static void a_probability_of_ten_crops_is_told_from_that_of_the_map(void **state)
{
	(void)state;
	for (int ten = 0; ten < 2; ten++) {
		struct predictions p = draw(60, 0);
		struct report_input in = input(&p);
		struct report_picture picture = draw_map_of(ONE, 875, ten);

		in.pictures = &picture;
		in.n_pictures = 1;
		struct page page = make(&in);

		assert_present(page.text, ten ? "Effusion, probability 0.250 of ten crops; map of the middle one, 7 " : "Effusion, probability 0.250; map of 7 ");
		free(page.text);
		free((void *)(uintptr_t)picture.png);
		predictions_free(&p);
	}
}

static void a_map_says_what_its_image_is_labelled_and_whether_it_was_judged(void **state)
{
	static const char foreign[] = "not an image of these predictions", labels[] = "<span>labels: ";
	static const struct {
		const char *id, *name;
		uint32_t labels, known;
		const char *says; /* NULL: nothing */
	} cases[] = {
		{ "a.png", "a.Effusion", 1u << 4 | 1u << 12, 0x3FFF, "<span>labels: Mass, Pleural Thickening</span>" },
		{ "a.png", "a.Effusion", 0, 0x3FFF, "<span>labels: no finding</span>" },
		{ "a.png", "a.Effusion", 1u << 4, 0, "<span>labels: not known</span>" },
		{ "a.png", "a.Effusion", 1u << 4 | 1, 0x3FF0, "<span>labels: Mass; 4 of 14 not known</span>" },
		{ "a.png", "a.Effusion", 0, 0x3FFE, "<span>labels: no finding; 1 of 14 not known</span>" },
		{ "folder/a.1.png", "a.1.Effusion", 1, 0x3FFF, "<span>labels: Atelectasis</span>" },
		{ "a", "a.Effusion", 1, 0x3FFF, "<span>labels: Atelectasis</span>" },
		{ "1.2.840.113619.2.55", "1.2.840.113619.2.55.Effusion", 1, 0x3FFF, "<span>labels: Atelectasis</span>" }, /* as a DICOM's UID is */
		{ "1.2.840.113619.2.55.png", "1.2.840.113619.2.55.Effusion", 1, 0x3FFF, "<span>labels: Atelectasis</span>" },
		{ "1.2.840.113619.2.55", "1.2.840.113619.2.Effusion", 1, 0x3FFF, foreign }, /* another UID's */
		{ "aa.png", "a.Effusion", 1, 0x3FFF, foreign },
		{ "a.png", "aa.Effusion", 1, 0x3FFF, foreign },
		{ "a.png", "a.b.Effusion", 1, 0x3FFF, foreign },
		{ "other/00000000.png", "00000000.Effusion", 1, 0x3FFF, NULL }, /* two go by that name */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(60, 0);
		struct report_input in = input(&p);
		struct report_picture picture = draw_map(ONE, 875);

		strcpy(p.samples[7].id, cases[i].id);
		p.samples[7].labels = cases[i].labels;
		p.samples[7].known = cases[i].known;
		picture.name = cases[i].name;
		in.pictures = &picture;
		in.n_pictures = 1;
		struct page page = make(&in);

		assert_sound(&page);
		if (cases[i].says)
			assert_present(page.text, cases[i].says);
		if (cases[i].says != foreign)
			assert_absent(page.text, foreign);
		if (!cases[i].says || cases[i].says == foreign)
			assert_absent(page.text, labels);
		free(page.text);
		free((void *)(uintptr_t)picture.png);
		predictions_free(&p);
	}
}

static void maps_of_another_model_are_marked(void **state)
{
	static const char foreign[] = "Maps of another model.</b> 1 of the 1 pictures", caption[] = "a map of another model than these predictions'",
			  member[] = "a map of one of the averaged models", of_b[] = "a map of the other model, B",
			  member_of_b[] = "a map of one of the models that B averages", unknown[] = "Of 1 of these pictures it is not known";
	static const struct {
		const char *picture, *a, *b; /* b NULL: nothing is compared */
		const char *says, *too;
	} cases[] = {
		{ ONE, ONE, NULL, NULL, NULL },
		{ ONE, TWO, NULL, foreign, caption },
		{ ONE, "", NULL, unknown, NULL },
		{ "", ONE, NULL, unknown, NULL },
		{ ONE, TWO "," ONE, NULL, member, NULL },
		{ "0000000000000000", TWO "," ONE, NULL, foreign, caption },
		{ ONE, ONE, TWO, NULL, NULL },
		{ TWO, ONE, TWO, of_b, NULL },
		{ TWO, ONE, "0000000000000000," TWO, member_of_b, NULL },
		{ ONE, TWO "," ONE, ONE, member, NULL },
		{ "0000000000000000", ONE, TWO, foreign, caption },
		{ TWO, ONE, "", unknown, NULL },
	};
	static const char *const all[] = { foreign, caption, member, of_b, member_of_b, unknown };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(60, 0), q = draw(60, 0);
		struct report_input in = input(&p);
		struct report_picture picture = draw_map(cases[i].picture, 875);

		compare_weights(&in, &p, cases[i].a, &q, cases[i].b);
		in.pictures = &picture;
		in.n_pictures = 1;
		struct page page = make(&in);

		assert_sound(&page);
		for (size_t w = 0; w < sizeof all / sizeof all[0]; w++) {
			int expected = all[w] == cases[i].says || all[w] == cases[i].too;

			if ((strstr(page.text, all[w]) != NULL) != expected)
				fail_msg("case %zu: \"%s\" is %s", i, all[w], expected ? "missing" : "there");
		}
		assert_int_equal(report_foreign_pictures(&in), cases[i].says == foreign);
		free(page.text);
		free((void *)(uintptr_t)picture.png);
		predictions_free(&p);
		predictions_free(&q);
	}
}

static void what_the_network_sees_is_said_from_the_pictures(void **state)
{
	static const char unsaid[] = "of these pictures do not say which part";
	static const struct {
		int seen[2];
		const char *says;
	} cases[] = {
		{ { 875, 875 }, "A map shows only what is within the white frame, the middle 87.5&nbsp;% of each side: of the rest, 23&nbsp;% of the image, it says nothing" },
		{ { 900, 875 }, "the middle 87.5 to 90&nbsp;% of each side: of the rest, up to 23&nbsp;% of the image, it says nothing" },
		{ { 1000, 1000 }, "A map shows the whole of each image. Where a picture is darkened" },
		{ { 0, 750 }, "the middle 75&nbsp;% of each side" },
		{ { 0, 0 }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(60, 0);
		struct report_input in = input(&p);
		struct report_picture pictures[] = { draw_map(ONE, cases[i].seen[0]), draw_map(ONE, cases[i].seen[1]) };

		in.pictures = pictures;
		in.n_pictures = 2;
		struct page page = make(&in);

		assert_sound(&page);
		if (cases[i].says)
			assert_present(page.text, cases[i].says);
		else
			assert_absent(page.text, "A map shows");
		assert_absent(page.text, "network sees"); /* with ten crops it sees more */
		if (cases[i].seen[0])
			assert_absent(page.text, unsaid);
		else
			assert_present(page.text, unsaid);
		free(page.text);
		for (int k = 0; k < 2; k++)
			free((void *)(uintptr_t)pictures[k].png);
		predictions_free(&p);
	}
}

/* Ten patients with a map each, of Effusion, of which three hit. */
static void the_pointing_game_is_told_with_an_interval_and_its_limits(void **state)
{
	static const struct {
		const char *maps, *a, *b, *says;
	} cases[] = {
		{ ONE, ONE, NULL, NULL },
		{ ONE, TWO, NULL, "The maps are of another model than these predictions'" },
		{ ONE, "", NULL, "Whether this model made the maps is not known" },
		{ ONE, TWO "," ONE, NULL, "The maps are of one of the averaged models." },
		{ ONE, TWO, ONE, "The maps are of the other model, B." },
	};

	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		struct predictions p = draw(60, 0), q = draw(60, 0);
		struct report_input in = input(&p);
		struct pointing_file maps = { 0 };
		struct page page = { 0 };
		struct error e = { 0 };
		char *json, *name[10];

		compare_weights(&in, &p, cases[k].a, &q, cases[k].b);
		maps.name = name;
		maps.images = 10;
		snprintf(maps.weights_hash, sizeof maps.weights_hash, "%s", cases[k].maps);
		for (uint32_t i = 0; i < 10; i++) {
			name[i] = i ? p.samples[i].id : (char[]){ "unknown.png" };
			assert_int_equal(pointing_add(&maps.pointing, i, &(struct pointed){ .finding = 2, .hit = i < 3, .chance = i < 8 ? 0.125 : 0 }, 1), 0); /* patient 0: not known */
		}
		in.pointing = &maps;
		in.pointing_path = "maps.json";
		assert_int_equal(report_make(&page, &json, &in, &e), 0);
		assert_sound(&page);
		assert_present(page.text, "<h2>Pointing game</h2>");
		assert_present(page.text, "of 10 images of 10 patients with such boxes");
		assert_present(page.text, "1 of the 10 images is none of these predictions: the model may have been trained on it.");
		assert_present(page.text, "2 of the maps can hit nothing");
		assert_present(page.text, "The names of 1 image tell no patient");
		assert_present(page.text, "<th scope=\"row\">Effusion</th><td class=\"n\">10</td><td class=\"n\">10</td><td class=\"n\">3</td><td class=\"n\">0.300 <small>0.108&#8211;0.603</small></td>"
					  "<td class=\"n\">1.0</td><td class=\"n\">0.100</td></tr>"); /* Wilson's of 3 of 10 */
		assert_present(page.text, "3.0 times as many hits as by chance; p &#8804;&#8239;0.161 of cells at random");
		assert_present(page.text, "<dt>Pointing game</dt><dd><code>maps.json</code></dd>");
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
			if (cases[i].says && cases[i].says != cases[k].says)
				assert_absent(page.text, cases[i].says);
		if (cases[k].says)
			assert_present(page.text, cases[k].says);
		cJSON *o = cJSON_Parse(json), *game = cJSON_GetObjectItem(o, "pointing"), *share = cJSON_GetObjectItem(game, "share");

		assert_close(json_get_number(game, "images_not_predicted"), 1, 0);
		assert_close(json_get_number(game, "cannot_hit"), 2, 0);
		assert_close(json_get_number(share, "value"), 0.3, 1e-12);
		assert_close(json_get_number(share, "low"), 0.10779, 1e-5);
		assert_string_equal(json_get_text(share, "method"), "wilson");
		assert_close(json_get_number(cJSON_GetObjectItem(cJSON_GetObjectItem(game, "findings"), "Effusion"), "patients"), 10, 0);
		cJSON_Delete(o);
		cJSON_free(json);
		free(page.text);
		pointing_free(&maps.pointing);
		predictions_free(&p);
		predictions_free(&q);
	}
}

static void a_map_says_how_many_fold_it_raises_the_odds(void **state)
{
	static const struct {
		double fold;
		const char *says;
	} cases[] = { { 1.0005, "raise the odds less than 1.01-fold" }, { 1.0051, "raise the odds 1.01-fold" }, { 1.09, "raise the odds 1.09-fold" },
		      { 1.11, "raise the odds 1.1-fold" }, { 7.4, "raise the odds 7.4-fold" }, { 12.3, "raise the odds 12-fold" }, { 2000, "raise the odds more than 1000-fold" } };
	struct predictions p = draw(60, 0);
	struct report_input in = input(&p);
	const uint8_t rgb[3] = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cam_about about = { .finding = 3, .probability = 0.17, .raised = log(cases[i].fold), .side = 2 };
		struct error e = { 0 };
		char picture[700], *png;
		size_t size;

		snprintf(picture, sizeof picture, "%s/map.png", directory);
		assert_int_equal(cam_write_png(picture, rgb, 1, &about, &e), 0);
		assert_int_equal(file_read(&png, &size, picture, &e), 0);
		in.pictures = &(struct report_picture){ "a&b.2.Mass", png, size };
		in.n_pictures = 1;
		struct page page = make(&in);

		assert_present(page.text, cases[i].says);
		assert_present(page.text, "<b>a&amp;b.2<wbr>.Mass</b>");
		free(page.text);
		free(png);
	}
	predictions_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pointing_game_is_told_with_an_interval_and_its_limits),
		cmocka_unit_test(a_probability_of_ten_crops_is_told_from_that_of_the_map),
		cmocka_unit_test(a_map_says_what_its_image_is_labelled_and_whether_it_was_judged),
		cmocka_unit_test(maps_of_another_model_are_marked),
		cmocka_unit_test(a_map_says_how_many_fold_it_raises_the_odds),
		cmocka_unit_test(what_the_network_sees_is_said_from_the_pictures),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
