/* SPDX-License-Identifier: Apache-2.0
 * The audit of files: images that are not there, not whole, odd or twice there, and rows and lists that do not go with them. */
#include "tests/unit/audit_tree.h"

static void copy_file(const char *from, const char *to)
{
	char *bytes;
	size_t size;
	struct error e = { 0 };
	if (file_read(&bytes, &size, from, &e))
		fail_msg("%s", e.text);
	scratch_write(to, bytes, size);
	free(bytes);
}

static void draw(const char *directory, const char *id, int width, int height)
{
	char path[FILE_PATH + 8 + SAMPLE_ID];
	uint8_t *pixels = malloc((size_t)width * (size_t)height);
	size_t size;
	for (int i = 0; i < width * height; i++)
		pixels[i] = (uint8_t)(7 * i);
	uint8_t *png = encode_png(pixels, width, height, 1, &size);
	snprintf(path, sizeof path, "%s/images/%s", directory, id);
	scratch_write(path, png, size);
	free(png);
	free(pixels);
}

/* As of a download that was broken off: what is wrong with the others is told too. */
static void rows_without_a_file_are_counted_and_the_other_images_looked_at(void **state)
{
	(void)state;
	enum { BROKEN = 8 };
	struct origin whole = open_tree(tree), o;
	struct synth_report r;
	struct error e = { 0 };
	char partial[FILE_PATH], path[FILE_PATH + 8 + SAMPLE_ID], words[2 * SAMPLE_ID + 64], said[64];

	snprintf(partial, sizeof partial, "%s", scratch_path("partial"));
	assert_int_equal(synth_tree(&synth, partial, 0, 2, NULL, NULL, &r, &e), 0);
	snprintf(path, sizeof path, "%s/images/%s", partial, whole.samples[BROKEN].id);
	scratch_write(path, "", 0);
	for (size_t missing = 1; missing <= IMAGES; missing++) {
		size_t at = (BROKEN + missing) % IMAGES;
		snprintf(path, sizeof path, "%s/images/%s", partial, whole.samples[at].id);
		assert_int_equal(unlink(path), 0);
		if (missing != 1 && missing != 6 && missing != IMAGES)
			continue;
		snprintf(said, sizeof said, "%zu of %d images ha%s a row but no file", missing, IMAGES, missing == 1 ? "s" : "ve");
		assert_int_equal(origin_nih(&o, partial, SPLIT_OFFICIAL, 1, &e), -EXIT_DATA);
		e = (struct error){ 0 };
		if (missing == IMAGES)
			break;
		o = open_tree(partial);
		assert_int_equal(o.count, IMAGES - missing);
		for (size_t i = 0; i < o.count; i++) { /* each with what is its own */
			size_t j = i <= BROKEN ? i : i + missing;
			assert_string_equal(o.samples[i].id, whole.samples[j].id);
			assert_int_equal(o.split[i], whole.split[j]);
			assert_true(o.facts[i].age == whole.facts[j].age && o.facts[i].sex == whole.facts[j].sex && o.facts[i].view == whole.facts[j].view);
			assert_memory_equal(o.oracle + i * FINDINGS, whole.oracle + j * FINDINGS, FINDINGS * sizeof *o.oracle);
		}
		struct audit_conf conf = { .pixels = 1, .threads = 2 };
		assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
		const struct audit_item *item = find(AUDIT_DROPPED, said);
		assert_int_equal(item->count, missing);
		snprintf(words, sizeof words, " in images/ or images_*/: %s%s", whole.samples[BROKEN + 1].id, missing == 1 ? "" : ", ");
		assert_non_null(strstr(item->text, words));
		snprintf(words, sizeof words, "images/%s: an empty file", whole.samples[BROKEN].id);
		find(AUDIT_IMAGES, words);
		assert_int_equal(audit.problems, 2);
		origin_close(&o);
	}
	assert_int_equal(audit_open(&o, partial, &e), -EXIT_DATA); /* nothing is left to look at */
	assert_non_null(strstr(e.text, "400 of 400 images have a row but no file"));
	origin_close(&whole);
}

static void a_row_that_the_oracle_lacks_is_missed(void **state)
{
	(void)state;
	struct origin o;
	struct error e = { 0 };
	char path[FILE_PATH + 16], *text;
	size_t size;

	snprintf(path, sizeof path, "%s/oracle.csv", tree);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	const char *last = memrchr(text, '\n', size - 1);
	assert_non_null(last);
	scratch_write(path, text, (size_t)(last + 1 - text));
	int rc = origin_nih(&o, tree, SPLIT_OFFICIAL, 1, &e);
	scratch_write(path, text, size);
	free(text);
	assert_int_equal(rc, -EXIT_DATA);
	assert_non_null(strstr(e.text, "oracle.csv: scores for 399 of 400 images"));
}

static void images_too_small_or_far_from_square_are_told_by_audit_and_prepare(void **state)
{
	(void)state;
	enum { LARGE = 224 };
	struct synth_conf large = synth;
	struct synth_report r;
	struct prepare_report prepared;
	struct error e = { 0 };
	char odd[FILE_PATH], out[FILE_PATH], words[200 + 2 * SAMPLE_ID];
	snprintf(odd, sizeof odd, "%s", scratch_path("odd"));
	snprintf(out, sizeof out, "%s", scratch_path("odd-prepared"));
	large.images = 30;
	large.size = LARGE;
	assert_int_equal(synth_tree(&large, odd, 0, 2, NULL, NULL, &r, &e), 0);
	struct origin o = open_tree(odd);
	draw(odd, o.samples[3].id, 3, 5);
	draw(odd, o.samples[7].id, 900, 449);
	draw(odd, o.samples[9].id, LARGE, LARGE - 1);
	struct audit_conf conf = { .pixels = 1, .threads = 2 };
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	snprintf(words, sizeof words, "1 image is far from square, and would be stretched into one: %s", o.samples[7].id);
	note_of(words);
	snprintf(words, sizeof words, "2 images have fewer than the 224 pixels a side that CheXNet sees: what was finer is lost: %s, %s", o.samples[3].id, o.samples[9].id);
	note_of(words);

	struct prepare_conf to = { .out = out, .size = LARGE - 1, .threads = 2 };
	assert_int_equal(prepare(&to, &o, &prepared, &e), 0);
	assert_int_equal(prepared.stretched.count, 1);
	assert_string_equal(prepared.stretched.text, o.samples[7].id);
	assert_int_equal(prepared.enlarged.count, 1);
	assert_string_equal(prepared.enlarged.text, o.samples[3].id);
	origin_close(&o);
	struct origin p = open_tree(out); /* squares that were asked for are as they should be */
	assert_int_equal(audit_run(&audit, &p, &conf, &e), 0);
	for (int i = 0; i < audit.n_items; i++)
		assert_true(audit.items[i].kind != AUDIT_IMAGES);
	origin_close(&p);
}

static void the_same_pixels_under_another_name_and_odd_images_are_found(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	struct synth_report r;
	struct error e = { 0 };
	char spoiled[FILE_PATH], a[FILE_PATH + 8 + SAMPLE_ID], b[FILE_PATH + 8 + SAMPLE_ID];
	size_t train = 0, test = 0, flat = 5, broken = 9;
	snprintf(spoiled, sizeof spoiled, "%s", scratch_path("spoiled"));
	assert_int_equal(synth_tree(&synth, spoiled, 0, 2, NULL, NULL, &r, &e), 0);
	while (o.split[train] != SPLIT_TRAIN || train == flat || train == broken)
		train++;
	while (o.split[test] != SPLIT_TEST || test == flat || test == broken)
		test++;
	snprintf(a, sizeof a, "%s/images/%s", spoiled, o.samples[train].id);
	snprintf(b, sizeof b, "%s/images/%s", spoiled, o.samples[test].id);
	copy_file(a, b);
	uint8_t gray[SIDE * SIDE];
	size_t size;
	memset(gray, 77, sizeof gray);
	uint8_t *png = encode_png(gray, SIDE, SIDE, 1, &size);
	snprintf(a, sizeof a, "%s/images/%s", spoiled, o.samples[flat].id);
	scratch_write(a, png, size);
	free(png);
	snprintf(a, sizeof a, "%s/images/%s", spoiled, o.samples[broken].id);
	scratch_write(a, "<html>", 6);
	struct origin s = open_tree(spoiled);
	run_audit(&s, 1);
	const struct audit_item *item = find(AUDIT_DUPLICATES, "1 image has the pixels of another one, 1 of them in another split");
	assert_non_null(strstr(item->text, o.samples[train].id));
	assert_non_null(strstr(item->text, o.samples[test].id));
	assert_non_null(strstr(find(AUDIT_IMAGES, "1 image is of one gray value")->text, o.samples[flat].id));
	assert_non_null(strstr(find(AUDIT_IMAGES, "a web page, not an image")->text, o.samples[broken].id));
	assert_int_equal(audit.problems, 3);
	origin_close(&s);
	origin_close(&o);
}

/* Image 0 is a negative, image 1 is dark, the others are as they should be. */
static int odd_image(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	static _Thread_local uint8_t pixels[SIDE * SIDE];

	(void)d, (void)e;
	for (int at = 0; at < SIDE * SIDE; at++) {
		int x = at % SIDE, y = at / SIDE, body = x > 4 && x < SIDE - 5 && y > 4;
		pixels[at] = i == 0 ? (body ? 40 : 230) : i == 1 ? (uint8_t)(at % 3) : (uint8_t)(body ? 150 + at % 50 : 10);
	}
	memcpy(pixels + SIDE * SIDE / 2, o->samples[i].id, 16); /* none has another's pixels */
	*image = (struct image){ SIDE, SIDE, pixels };
	return 0;
}

static void negatives_and_dark_images_are_told_and_are_no_problem(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	char words[SAMPLE_ID + 80];

	o.decode = odd_image;
	run_audit(&o, 1);
	assert_int_equal(audit.problems, 0);
	snprintf(words, sizeof words, "1 image looks inverted (a border brighter than its body): %s", o.samples[0].id);
	assert_string_equal(note_of("inverted"), words);
	snprintf(words, sizeof words, "1 image is nearly black or white: %s", o.samples[1].id);
	assert_string_equal(note_of("nearly"), words);
	origin_close(&o);
}

/* A part of a set is no set that lost images: a list of which nothing is here was not meant. */
static void a_list_of_which_nothing_is_here_is_no_problem(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	size_t kept = 0, all = o.count;

	for (size_t i = 0; i < all; i++)
		if (o.split[i] != SPLIT_TEST) {
			o.samples[kept] = o.samples[i];
			o.facts[kept] = o.facts[i];
			o.split[kept++] = o.split[i];
		}
	o.count = kept;
	run_audit(&o, 0);
	assert_int_equal(audit.problems, 0);
	assert_string_equal(note_of("official"), "none of the official test list is here");
	origin_close(&o);
}

static void files_and_rows_that_are_left_out_are_counted(void **state)
{
	(void)state;
	struct origin o;
	struct synth_report r;
	struct error e = { 0 };
	char set[FILE_PATH], list[FILE_PATH + 32], *text;
	size_t size;
	struct audit_conf conf = { .threads = 1 };

	snprintf(set, sizeof set, "%s", scratch_path("left-out"));
	assert_int_equal(synth_tree(&synth, set, 0, 2, NULL, NULL, &r, &e), 0);
	draw(set, "00099999_000.png", SIDE, SIDE);
	draw(set, "00099999_001.png", SIDE, SIDE);
	snprintf(list, sizeof list, "%s/test_list.txt", set);
	assert_int_equal(file_read(&text, &size, list, &e), 0);
	const char *rest = strchr(text, '\n') + 1; /* less one */
	scratch_write(list, rest, strlen(rest));
	free(text);
	o = open_tree(set);
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	assert_int_equal(audit.problems, 0);
	assert_string_equal(note_of("no row"), "2 image files have no row in the table");
	assert_string_equal(note_of("in no list"), "1 image is in no list");
	assert_int_equal(audit.images[0] + audit.images[1] + audit.images[2], IMAGES - 1);
	assert_string_equal(o.name, "synthetic");
	origin_close(&o);
	snprintf(list, sizeof list, "%s/oracle.csv", set); /* what tells drawn images from real ones */
	assert_int_equal(unlink(list), 0);
	o = open_tree(set);
	assert_string_equal(o.name, "ChestX-ray14, labels of 2020");
	origin_close(&o);
}

/* A tree's oracle.csv with `to` in the place of its third line's first `from`, up to the end of the field; NULL: with the second line in the place of the third. */
static void refused_scores(const char *from, const char *to, const char *why)
{
	static char whole[1 << 20], set[FILE_PATH], path[FILE_PATH + 32];
	struct error e = { 0 };
	struct origin o;
	char *text, *changed;
	size_t size;

	if (!*set) {
		struct synth_report r;

		snprintf(set, sizeof set, "%s", scratch_path("scores"));
		snprintf(path, sizeof path, "%s/oracle.csv", set);
		assert_int_equal(synth_tree(&synth, set, 0, 2, NULL, NULL, &r, &e), 0);
		assert_int_equal(file_read(&text, &size, path, &e), 0);
		assert_true(size < sizeof whole);
		memcpy(whole, text, size);
		free(text);
	}
	char *second = strchr(whole, '\n') + 1, *third = strchr(second, '\n') + 1, *after = strchr(third, '\n') + 1, *at = strstr(third, from);

	assert_true(at && at < after);
	changed = malloc(2 * sizeof whole);
	if (to)
		snprintf(changed, 2 * sizeof whole, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from) + strcspn(at + strlen(from), ",\n"));
	else
		snprintf(changed, 2 * sizeof whole, "%.*s%.*s%s", (int)(third - whole), whole, (int)(third - second), second, after);
	scratch_write(path, changed, strlen(changed));
	free(changed);
	assert_int_equal(origin_nih(&o, set, SPLIT_OFFICIAL, 1, &e), -EXIT_DATA);
	if (!strstr(e.text, why) || !strstr(e.text, "oracle.csv:3: "))
		fail_msg("with %s: \"%s\" does not say \"%s\"", to ? to : "a line twice", e.text, why);
}

static void scores_that_are_no_numbers_or_there_twice_are_refused(void **state)
{
	(void)state;
	refused_scores(",", ",nan", "\"nan\" is no number");
	refused_scores(",", ",-inf", "\"-inf\" is no number");
	refused_scores(",", ",1e99", "\"1e99\" is no number"); /* for a float */
	refused_scores(",", ",", "\"\" is no number");
	refused_scores("0", NULL, " a second time");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_without_a_file_are_counted_and_the_other_images_looked_at),
		cmocka_unit_test(a_row_that_the_oracle_lacks_is_missed),
		cmocka_unit_test(images_too_small_or_far_from_square_are_told_by_audit_and_prepare),
		cmocka_unit_test(the_same_pixels_under_another_name_and_odd_images_are_found),
		cmocka_unit_test(negatives_and_dark_images_are_told_and_are_no_problem),
		cmocka_unit_test(a_list_of_which_nothing_is_here_is_no_problem),
		cmocka_unit_test(files_and_rows_that_are_left_out_are_counted),
		cmocka_unit_test(scores_that_are_no_numbers_or_there_twice_are_refused),
	};
	return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
