/* SPDX-License-Identifier: Apache-2.0
 * Which patient goes to which split: all images of one to the same, as many as was said, and always the same ones. */
#include "data/nih.h"
#include "scratch.h"

enum { PATIENTS = 97, LISTED = 77 };

/* Patient p has p % 4 + 1 images, dealt out over the table; patients from LISTED on are NIH's test list, and the last one is in no list. */
static struct nih table(void)
{
	struct nih n = { .directory = "somewhere", .has_lists = 1 };
	n.images = calloc(4 * PATIENTS, sizeof *n.images);
	assert_non_null(n.images);
	for (int image = 0; image < 4; image++)
		for (uint32_t p = 0; p < PATIENTS; p++)
			if (image <= (int)p % 4) {
				struct nih_image *i = &n.images[n.count++];
				i->sample.patient = p * 7 + 3;
				i->list = p < LISTED ? NIH_TRAIN_VAL : p < PATIENTS - 1 ? NIH_TEST : NIH_UNLISTED;
			}
	return n;
}

/* Patients of each split; no patient may be in two. */
static void count_patients(const struct nih *n, const uint8_t *split, size_t count[SPLIT_NONE + 1])
{
	uint8_t where[7 * PATIENTS] = { 0 };
	memset(count, 0, (SPLIT_NONE + 1) * sizeof *count);
	for (size_t i = 0; i < n->count; i++) {
		uint8_t *w = &where[n->images[i].sample.patient];
		assert_in_range(split[i], 0, SPLIT_NONE);
		assert_true(*w == 0 || *w == split[i] + 1);
		count[split[i]] += *w == 0;
		*w = (uint8_t)(split[i] + 1);
	}
}

static void the_official_split_leaves_nihs_test_list_alone(void **state)
{
	(void)state;
	struct nih n = table();
	struct error e = { 0 };
	uint8_t split[4 * PATIENTS], again[4 * PATIENTS];
	size_t count[SPLIT_NONE + 1];
	for (uint64_t seed = 1; seed <= 5; seed++) {
		assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, seed, split, &e), 0);
		count_patients(&n, split, count);
		assert_true(count[SPLIT_TRAIN] == 69 && count[SPLIT_VAL] == 8 && count[SPLIT_TEST] == 19 && count[SPLIT_NONE] == 1);
		for (size_t i = 0; i < n.count; i++)
			assert_int_equal(split[i] == SPLIT_TEST, n.images[i].list == NIH_TEST);
	}
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, split, &e), 0);
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, again, &e), 0);
	assert_memory_equal(split, again, n.count);
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 2, again, &e), 0);
	assert_memory_not_equal(split, again, n.count);
	n.has_lists = 0;
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, split, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "somewhere: train_val_list.txt and test_list.txt"));
	free(n.images);
}

/* Patients of a model's training must stay in training where a set is prepared once more, also by another version. */
static void the_division_of_old_sets_stays(void **state)
{
	static const uint32_t val[] = { 31, 108, 115, 143, 178, 185, 227, 304, 563, 577 };
	struct nih n = table();
	struct error e = { 0 };
	uint8_t split[4 * PATIENTS];
	size_t found = 0;

	(void)state;
	assert_int_equal(nih_divide(&n, SPLIT_CHEXNET, 1, split, &e), 0);
	for (size_t i = 0; i < PATIENTS; i++) /* the first image of each */
		if (split[i] == SPLIT_VAL) {
			assert_true(found < sizeof val / sizeof val[0]);
			assert_int_equal(n.images[i].sample.patient, val[found++]);
		}
	assert_int_equal(found, sizeof val / sizeof val[0]);
	free(n.images);
}

static void chexnets_split_takes_a_tenth_and_a_fifth_of_all_patients(void **state)
{
	(void)state;
	struct nih n = table();
	struct error e = { 0 };
	uint8_t split[4 * PATIENTS], again[4 * PATIENTS];
	size_t count[SPLIT_NONE + 1];
	n.has_lists = 0; /* it needs none */
	assert_int_equal(nih_divide(&n, SPLIT_CHEXNET, 1, split, &e), 0);
	count_patients(&n, split, count);
	assert_true(count[SPLIT_TRAIN] == 68 && count[SPLIT_VAL] == 10 && count[SPLIT_TEST] == 19 && count[SPLIT_NONE] == 0);
	assert_int_equal(nih_divide(&n, SPLIT_CHEXNET, 3, again, &e), 0);
	assert_memory_not_equal(split, again, n.count);
	free(n.images);
}

/* Who is where depends on the patient and the seed, not on the order of the table. */
static void the_order_of_the_table_does_not_matter(void **state)
{
	(void)state;
	struct nih n = table(), back = table();
	struct error e = { 0 };
	uint8_t split[4 * PATIENTS], other[4 * PATIENTS];
	for (size_t i = 0; i < n.count; i++)
		back.images[i] = n.images[n.count - 1 - i];
	for (int policy = SPLIT_OFFICIAL; policy <= SPLIT_CHEXNET; policy++) {
		assert_int_equal(nih_divide(&n, (enum split_policy)policy, 5, split, &e), 0);
		assert_int_equal(nih_divide(&back, (enum split_policy)policy, 5, other, &e), 0);
		for (size_t i = 0; i < n.count; i++)
			assert_int_equal(split[i], other[n.count - 1 - i]);
	}
	free(n.images);
	free(back.images);
}

static void a_few_patients_still_have_every_split(void **state)
{
	(void)state;
	for (size_t patients = 1; patients <= 5; patients++) {
		struct nih n = table();
		struct error e = { 0 };
		uint8_t split[4 * PATIENTS];
		size_t count[SPLIT_NONE + 1];
		n.count = patients; /* the first image of each */
		assert_int_equal(nih_divide(&n, SPLIT_CHEXNET, 1, split, &e), 0);
		count_patients(&n, split, count);
		assert_int_equal(count[SPLIT_VAL], patients > 2);
		assert_int_equal(count[SPLIT_TEST], patients > 2);
		assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, split, &e), 0);
		count_patients(&n, split, count);
		assert_true(count[SPLIT_VAL] == (patients > 2) && count[SPLIT_TEST] == 0);
		free(n.images);
	}
}

static int divide_by(const struct nih *n, const char *text, uint8_t *split, struct error *e)
{
	const char *path = scratch_path("division.csv");
	*e = (struct error){ 0 };
	scratch_write(path, text, strlen(text));
	return nih_divide_file(n, path, split, e);
}

static void a_division_of_the_users_own_is_taken_row_by_row(void **state)
{
	(void)state;
	static const char header[] = "Image Index,Finding Labels,Patient ID\n";
	static const char rows[] = "00000001_000.png,Mass,1\n00000001_001.png,No Finding,1\n00000002_000.png,Hernia,2\n00000003_000.png,Mass,3\n";
	static const char *const wrong[][2] = {
		{ "00000001_000.png,train\n00000009_000.png,val\n", "division.csv:2: image \"00000009_000.png\" has no row in" },
		{ "00000001_000.png,train\n00000002_000.png,vali\n", "division.csv:2: no split is called \"vali\" (train, val, test)" },
		{ "00000001_000.png,train\n00000001_000.png,train\n", "division.csv:2: image 00000001_000.png comes twice" },
		{ "00000001_000.png\n", "division.csv:1: 1 column, not two" },
		{ "00000001_000.png,train,1\n", "division.csv:1: 3 columns, not two" },
	};
	const char *path = scratch_path("Data_Entry_2017_v2020.csv");
	char text[512];
	struct nih n;
	struct error e = { 0 };
	uint8_t split[4];
	snprintf(text, sizeof text, "%s%s", header, rows);
	scratch_write(path, text, strlen(text));
	if (nih_open_tables(&n, path, NULL, NULL, &e))
		fail_msg("%s", e.text);
	assert_int_equal(divide_by(&n, "image,split\n00000003_000.png,test\n00000001_000.png,train\n00000002_000.png,val\n", split, &e), 0);
	assert_memory_equal(split, ((uint8_t[]){ SPLIT_TRAIN, SPLIT_NONE, SPLIT_VAL, SPLIT_TEST }), 4);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(divide_by(&n, wrong[i][0], split, &e), -EXIT_DATA);
		if (!strstr(e.text, wrong[i][1]))
			fail_msg("%s", e.text);
	}
	nih_close(&n);
}

static void splits_have_names(void **state)
{
	(void)state;
	assert_int_equal(split_index("train"), SPLIT_TRAIN);
	assert_int_equal(split_index("val"), SPLIT_VAL);
	assert_int_equal(split_index("test"), SPLIT_TEST);
	assert_int_equal(split_index("tests"), -1);
	assert_int_equal(split_index(""), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_official_split_leaves_nihs_test_list_alone),
		cmocka_unit_test(the_division_of_old_sets_stays),
		cmocka_unit_test(chexnets_split_takes_a_tenth_and_a_fifth_of_all_patients),
		cmocka_unit_test(the_order_of_the_table_does_not_matter),
		cmocka_unit_test(a_few_patients_still_have_every_split),
		cmocka_unit_test(a_division_of_the_users_own_is_taken_row_by_row),
		cmocka_unit_test(splits_have_names),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
