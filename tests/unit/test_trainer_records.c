/* SPDX-License-Identifier: Apache-2.0
 * Prepared TFRecords whose checksums are right and whose second record cannot be: it is named by its place. */
#include "tests/unit/small_data.h"

#include "data/dataset.h"
#include "data/example.h"
#include "files/tfrecord.h"

static char path[FILE_PATH + 32], *sound; /* the only shard of the validation split, and what it holds */
static size_t size;

static int make(void **state)
{
	struct error e = { 0 };
	if (small_data(state, 16, 1))
		return -1;
	snprintf(path, sizeof path, "%s/val-00000-of-00001", prepared);
	return file_read(&sound, &size, path, &e);
}

static int unmake(void **state)
{
	free(sound);
	return scratch_remove(state);
}

/* Writes the shard anew; change() alters its second record. Returns where that begins. */
static size_t rewrite(void (*change)(struct example *x))
{
	size_t at = 0, second = 0, n = 0;
	struct tfrecord record;
	struct tfrecord_writer w;
	struct bytes out = { 0 };
	struct error e = { 0 };
	assert_int_equal(tfrecord_create(&w, path, &e), 0);
	for (; tfrecord_at((uint8_t *)sound, size, at, &record, &e) > 0; at = record.next, n++) {
		struct example x;
		assert_int_equal(example_parse(record.data, record.size, &x, &e), 0);
		if (n == 1) {
			change(&x);
			second = at;
		}
		assert_int_equal(example_write(&out, &x), 0);
		assert_int_equal(tfrecord_append(&w, out.data, out.size, &e), 0);
	}
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	assert_true(n > 2);
	free(out.data);
	return second;
}

static void nothing(struct example *x) { (void)x; }
static void a_name_of_two_lines(struct example *x) { x->filename = (struct span){ (const uint8_t *)"a\nb.png", 7 }; }
static void no_name(struct example *x) { x->filename = (struct span){ 0 }; }
static void no_patient(struct example *x) { x->patient = -1; }
static void a_patient_beyond_all(struct example *x) { x->patient = INT64_C(1) << 32; }
static void another_width(struct example *x) { x->width = 17; }
static void another_height(struct example *x) { x->height = 15; }
static void half_a_label(struct example *x) { x->label[3] = 2; }

static void a_record_that_cannot_be_is_named_by_file_and_place(void **state)
{
	(void)state;
	static const struct {
		void (*change)(struct example *x);
		const char *reason;
	} cases[] = {
		{ a_name_of_two_lines, "" },
		{ no_name, "" },
		{ no_patient, "patient/id: is not there" },
		{ a_patient_beyond_all, "patient/id: out of range: a patient's number is wanted, one int64 from 0 to 4294967295" },
		{ another_width, "17 x 16 where the manifest says 16" },
		{ another_height, "16 x 15 where the manifest says 16" },
		{ half_a_label, "" },
	};
	struct dataset *d;
	struct error e = { 0 };
	rewrite(nothing);
	assert_int_equal(dataset_open(&d, prepared, "val", &e), 0);
	dataset_close(d);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char expected[160];
		size_t at = rewrite(cases[i].change);
		snprintf(expected, sizeof expected, "val-00000-of-00001: record 1 at byte %zu: ", at);
		assert_int_equal(dataset_open(&d, prepared, "val", &e), -EXIT_DATA);
		if (!strstr(e.text, expected) || !strstr(e.text, cases[i].reason))
			fail_msg("\"%s\" does not say \"%s\" and \"%s\"", e.text, expected, cases[i].reason);
		e = (struct error){ 0 };
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_that_cannot_be_is_named_by_file_and_place),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}
