/* SPDX-License-Identifier: Apache-2.0
 * Prepared data sets: from a synthetic NIH tree to the pixels that training sees, and every way in which files can be wrong. */
#include <math.h>

#include "data/packed.h"
#include "data/random.h"
#include "data/source.h"
#include "files/crc32c.h"
#include "image/resize.h"
#include "learn/auroc.h"
#include "small_tree.h"

static char prepared[FILE_PATH];
static struct prepare_report report;

static int prepare_tree(const char *source, const struct prepare_conf *conf, struct prepare_report *r, struct error *e)
{
	struct origin origin;
	if (origin_nih(&origin, source, SPLIT_OFFICIAL, conf->seed, e))
		return -e->code;
	int rc = prepare(conf, &origin, r, e);
	origin_close(&origin);
	return rc;
}

static int set_up(void **state)
{
	struct error e = { 0 };

	if (small_tree(state))
		return -1;
	snprintf(prepared, sizeof prepared, "%s", scratch_path("prepared"));
	struct prepare_conf conf = prepare_to(prepared);
	if (prepare_tree(tree, &conf, &report, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	return 0;
}

static struct dataset *open_split(const char *directory, const char *split)
{
	struct dataset *d;
	struct error e = { 0 };
	if (dataset_open(&d, directory, split, &e))
		fail_msg("%s", e.text);
	return d;
}

static void expect_refusal(const char *directory, const char *split, const char *reason)
{
	struct dataset *d;
	struct error e = { 0 };
	assert_int_equal(dataset_open(&d, directory, split, &e), -EXIT_DATA);
	assert_null(d);
	if (!strstr(e.text, reason))
		fail_msg("\"%s\" does not say \"%s\"", e.text, reason);
}

/* The synthetic case behind a sample, by its name. */
static const struct synth_case *case_of(const struct synth_case *cases, const char *id)
{
	for (size_t i = 0; i < synth.images; i++)
		if (strcmp(cases[i].sample.id, id) == 0)
			return &cases[i];
	fail_msg("no image %s", id);
	return NULL;
}

static void pixels_labels_and_patients_arrive_as_they_were_made(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	float *work = malloc(SYNTH_WORK * 48 * 48 * sizeof *work);
	uint8_t drawn[48 * 48], expected[32 * 32], pixels[32 * 32];
	struct error e = { 0 };
	size_t total = 0;
	for (int s = 0; s < SPLITS; s++) {
		struct dataset *d = open_split(prepared, split_names[s]);
		struct dataset_scratch *scratch_memory = dataset_scratch(d);
		assert_int_equal(dataset_image_size(d), 32);
		assert_string_equal(dataset_split_policy(d), "official");
		assert_int_equal(dataset_count(d), report.manifest.split[s].images);
		assert_int_equal(dataset_patients(d), report.manifest.split[s].patients);
		for (size_t i = 0; i < dataset_count(d); i++, total++) {
			const struct sample *sample = &dataset_samples(d)[i];
			const struct synth_case *c = case_of(cases, sample->id);
			assert_int_equal(sample->patient, c->sample.patient);
			assert_int_equal(sample->labels, c->sample.labels);
			synth_draw(&synth, c, work, drawn, NULL, NULL);
			resize_area(drawn, 48, 48, expected, 32, &e);
			assert_int_equal(dataset_read(d, i, scratch_memory, pixels, &e), 0);
			assert_memory_equal(pixels, expected, sizeof expected);
		}
		dataset_scratch_free(scratch_memory);
		dataset_close(d);
	}
	assert_int_equal(total, 120);
	free(work);
	free(cases);
}

static void the_splits_share_no_patient(void **state)
{
	(void)state;
	struct dataset *d[SPLITS];
	for (int s = 0; s < SPLITS; s++)
		d[s] = open_split(prepared, split_names[s]);
	for (int s = 0; s < SPLITS; s++)
		assert_int_equal(dataset_leak(d[s], d[(s + 1) % SPLITS], NULL), 0);
	assert_true(dataset_leak(d[0], d[0], NULL) == dataset_patients(d[0]));
	for (int s = 0; s < SPLITS; s++)
		dataset_close(d[s]);
}

static void the_oracle_travels_with_the_split(void **state)
{
	struct error e = { 0 };
	struct origin o;
	float score[120];
	uint8_t positive[120];

	(void)state;
	assert_int_equal(origin_nih(&o, tree, SPLIT_OFFICIAL, 7, &e), 0);
	for (int s = 0; s < SPLITS; s++) {
		struct dataset *d = open_split(prepared, split_names[s]);
		const double *oracle = dataset_oracle(d);

		assert_non_null(oracle);
		for (int f = 0; f < FINDINGS; f++) { /* of its own images */
			size_t n = 0;

			for (size_t i = 0; i < o.count; i++)
				if (o.split[i] == s) {
					positive[n] = o.samples[i].labels >> f & 1;
					score[n++] = o.oracle[i * FINDINGS + (size_t)f];
				}
			assert_int_equal(n, dataset_count(d));
			double value = auroc(score, positive, n);

			assert_true(isnan(value) ? isnan(oracle[f]) : fabs(oracle[f] - value) < 1e-12);
			assert_true(s != SPLIT_TEST || isnan(value) || value > 0.6);
		}
		dataset_close(d);
	}
	origin_close(&o);
}

static void preparing_twice_gives_the_same_bytes_and_another_seed_another_order(void **state)
{
	(void)state;
	struct prepare_report r;
	struct error e = { 0 };
	char again[FILE_PATH], other[FILE_PATH];
	snprintf(again, sizeof again, "%s", scratch_path("again"));
	snprintf(other, sizeof other, "%s", scratch_path("other"));
	struct prepare_conf conf = prepare_to(again);
	conf.threads = 3;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), 0);
	conf = prepare_to(other);
	conf.seed = 8;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), 0);
	struct dataset *a = open_split(prepared, "test"), *b = open_split(again, "test"), *c = open_split(other, "test");
	assert_int_equal(dataset_hash(a), dataset_hash(b));
	assert_int_not_equal(dataset_hash(a), dataset_hash(c)); /* the same images in another order */
	assert_int_equal(dataset_count(a), dataset_count(c));
	dataset_close(a), dataset_close(b), dataset_close(c);
	e.code = 0;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "exists already (--overwrite replaces it)"));
	e.code = 0;
	conf.overwrite = 1;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), 0);
	e.code = 0;
	conf.out = tree; /* not ours to replace */
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "was not made by this command"));
	e.code = 0;
	conf.out = conf.source = prepared; /* whole, but what is read lies there */
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "what is read lies in it"));
}

static void jpeg_keeps_the_pixels_nearly(void **state)
{
	(void)state;
	struct prepare_report r;
	struct error e = { 0 };
	char out[FILE_PATH];
	snprintf(out, sizeof out, "%s", scratch_path("jpeg"));
	struct prepare_conf conf = prepare_to(out);
	conf.encoding = ENCODING_JPEG;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), 0);
	struct dataset *a = open_split(prepared, "test"), *b = open_split(out, "test");
	struct dataset_scratch *s = dataset_scratch(a);
	uint8_t x[32 * 32], y[32 * 32];
	double squares = 0;
	for (size_t i = 0; i < dataset_count(a); i++) {
		assert_int_equal(dataset_read(a, i, s, x, &e), 0);
		assert_int_equal(dataset_read(b, i, s, y, &e), 0);
		for (int p = 0; p < 32 * 32; p++)
			squares += (x[p] - y[p]) * (x[p] - y[p]);
	}
	assert_true(sqrt(squares / (32 * 32 * (double)dataset_count(a))) < 4);
	assert_true(squares > 0); /* so that ranks with one and ranks with the other do not train one network */
	assert_int_equal(dataset_hash(a), dataset_hash(b));
	assert_int_not_equal(dataset_pixel_hash(a), dataset_pixel_hash(b));
	dataset_scratch_free(s);
	dataset_close(a), dataset_close(b);
}

static uint8_t *load(const char *path, size_t *size)
{
	char *text;
	struct error e = { 0 };
	if (file_read(&text, size, path, &e))
		fail_msg("%s", e.text);
	return (uint8_t *)text;
}

static void packed_pixels_are_the_same_and_any_flipped_byte_is_found(void **state)
{
	(void)state;
	struct prepare_report r;
	struct error e = { 0 };
	char out[FILE_PATH], file[FILE_PATH + 32];
	snprintf(out, sizeof out, "%s", scratch_path("packed"));
	struct prepare_conf conf = prepare_to(out);
	conf.encoding = ENCODING_PACKED;
	assert_int_equal(prepare_tree(tree, &conf, &r, &e), 0);
	struct dataset *a = open_split(prepared, "test"), *b = open_split(out, "test");
	struct dataset_scratch *s = dataset_scratch(a);
	uint8_t x[32 * 32], y[32 * 32];
	assert_int_equal(dataset_pixel_hash(a), dataset_pixel_hash(b));
	size_t count = dataset_count(a);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(dataset_read(a, i, s, x, &e), 0);
		assert_int_equal(dataset_read(b, i, s, y, &e), 0);
		assert_memory_equal(x, y, sizeof x);
	}
	dataset_close(a), dataset_close(b);

	size_t size;
	snprintf(file, sizeof file, "%s/test.cxp", out);
	uint8_t *bytes = load(file, &size);
	size_t pixels = size - count * 32 * 32;
	for (size_t at = 0; at < size; at += at < pixels ? 5 : 397) {
		struct dataset *d;
		e.code = 0;
		bytes[at] ^= 0x20;
		scratch_write(file, bytes, size);
		int rc = dataset_open(&d, out, "test", &e);
		for (size_t i = 0; !rc && i < count; i++)
			rc = dataset_read(d, i, s, y, &e);
		dataset_close(d);
		if (!rc)
			fail_msg("flipped byte %zu of %zu was not noticed", at, size);
		assert_non_null(strstr(e.text, "test.cxp"));
		if (at >= pixels) {
			char expected[80];
			snprintf(expected, sizeof expected, "record %zu at byte %zu: CRC", (at - pixels) / (32 * 32), pixels + (at - pixels) / (32 * 32) * 32 * 32);
			assert_non_null(strstr(e.text, expected));
		}
		bytes[at] ^= 0x20;
	}
	for (size_t cut = 0; cut < size; cut += 211) {
		e.code = 0;
		scratch_write(file, bytes, cut);
		struct dataset *d;
		assert_int_equal(dataset_open(&d, out, "test", &e), -EXIT_DATA);
	}
	free(bytes);
	dataset_scratch_free(s);
}

/* As where train.cxp and test.cxp changed places: the manifest's numbers fit both. Files of earlier versions do not say which they are. */
static void a_packed_file_is_not_taken_for_another_split(void **state)
{
	(void)state;
	enum { AT_SPLIT = 40 + FINDINGS * 24 };
	struct packed_writer w;
	struct error e = { 0 };
	struct sample sample = { .id = "00000001_000.png" };
	uint8_t pixels[64] = { 0 };
	size_t size;
	char path[FILE_PATH];
	snprintf(path, sizeof path, "%s", scratch_path("one.cxp"));
	assert_int_equal(packed_create(&w, path, SPLIT_TRAIN, 8, 1, 77, &e), 0);
	assert_int_equal(packed_append(&w, &sample, pixels, &e), 0);
	assert_int_equal(packed_commit(&w, &e), 0);
	for (int old = 0; old < 2; old++) {
		for (enum split split = 0; split < SPLITS; split++) {
			struct dataset *d = calloc(1, sizeof *d);
			e.code = 0;
			d->size = 8;
			assert_int_equal(packed_open(d, path, split, 1, 8, 77, &e), old || split == SPLIT_TRAIN ? 0 : -EXIT_DATA);
			if (e.code)
				assert_non_null(strstr(e.text, split == SPLIT_VAL ? "one.cxp: holds another split than val" : "one.cxp: holds another split than test"));
			dataset_close(d);
		}
		uint8_t *bytes = load(path, &size);
		memset(bytes + AT_SPLIT, 0, 4);
		uint32_t crc = crc32c(0, bytes, AT_SPLIT + 4);
		memcpy(bytes + AT_SPLIT + 4, &crc, 4);
		scratch_write(path, bytes, size);
		free(bytes);
	}
}

static void kept_images_are_the_same_and_within_the_limit(void **state)
{
	(void)state;
	struct dataset *a = open_split(prepared, "test"), *b = open_split(prepared, "test");
	struct dataset_scratch *s = dataset_scratch(a);
	struct error e = { 0 };
	uint8_t x[32 * 32], y[32 * 32];
	size_t need = dataset_count(b) * (32 * 32 + 1);
	assert_int_equal(dataset_keep(b, need - 1), 0);
	assert_int_equal(dataset_kept_bytes(b), 0);
	assert_int_equal(dataset_keep_bytes(b), need);
	assert_int_equal(dataset_keep(b, need), 1);
	assert_int_equal(dataset_kept_bytes(b), need);
	assert_int_equal(dataset_keep_bytes(b), 0);
	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < dataset_count(a); i++) {
			assert_int_equal(dataset_read(a, i, s, x, &e), 0);
			assert_int_equal(dataset_read(b, i, s, y, &e), 0);
			assert_memory_equal(x, y, sizeof x);
		}
	dataset_scratch_free(s);
	dataset_close(a), dataset_close(b);
}

/* A copy of the prepared set that a test may spoil. */
static const char *copy_set(const char *name)
{
	static char out[FILE_PATH];
	struct prepare_report r;
	struct error e = { 0 };
	snprintf(out, sizeof out, "%s", scratch_path("%s", name));
	struct prepare_conf conf = prepare_to(out);
	if (prepare_tree(tree, &conf, &r, &e))
		fail_msg("%s", e.text);
	return out;
}

static void any_flipped_byte_of_a_shard_is_named_by_file_record_and_place(void **state)
{
	(void)state;
	const char *set = copy_set("flipped");
	char shard[FILE_PATH + 32];
	size_t size;
	snprintf(shard, sizeof shard, "%s/test-00001-of-00002", set);
	uint8_t *bytes = load(shard, &size);
	struct stream s = stream_open(3, 3);
	for (int round = 0; round < 200; round++) {
		size_t at = stream_bits(&s) % size;
		char expected[64];
		size_t record = 0, begin = 0, length;
		for (;; record++, begin += length + 16) { /* which record is this byte in? */
			memcpy(&length, bytes + begin, 8);
			if (at < begin + length + 16)
				break;
		}
		snprintf(expected, sizeof expected, "test-00001-of-00002: record %zu at byte %zu: CRC mismatch", record, begin);
		bytes[at] ^= 0x40;
		scratch_write(shard, bytes, size);
		expect_refusal(set, "test", expected);
		bytes[at] ^= 0x40;
	}
	for (int round = 0; round < 20; round++) {
		size_t cut = 1 + stream_bits(&s) % (size - 1);
		scratch_write(shard, bytes, cut);
		struct dataset *d;
		struct error e = { 0 };
		assert_int_equal(dataset_open(&d, set, "test", &e), -EXIT_DATA);
	}
	scratch_write(shard, bytes, size);
	dataset_close(open_split(set, "test"));
	free(bytes);
}

static void records_that_are_missing_or_too_many_are_counted(void **state)
{
	(void)state;
	const char *set = copy_set("counted");
	char shard[FILE_PATH + 32], other[FILE_PATH + 32], train[FILE_PATH + 32];
	size_t size, n, m;
	uint64_t length;
	snprintf(shard, sizeof shard, "%s/test-00001-of-00002", set);
	snprintf(other, sizeof other, "%s/test-00000-of-00002", set);
	uint8_t *bytes = load(shard, &size), *first = load(other, &n);
	memcpy(&length, bytes, 8);
	scratch_write(shard, bytes, length + 16); /* only its first record: a cut between records */
	expect_refusal(set, "test", "records where the manifest says");
	snprintf(train, sizeof train, "%s/train-00000-of-00002", set);
	uint8_t *theirs = load(train, &m);
	uint64_t more;
	memcpy(&more, theirs, 8);
	uint8_t *both = malloc(size + more + 16);
	memcpy(both, bytes, size);
	memcpy(both + size, theirs, more + 16); /* and one of another split, at the end */
	scratch_write(shard, both, size + more + 16);
	expect_refusal(set, "test", "records where the manifest says");
	free(theirs);
	free(both);
	scratch_write(shard, first, n); /* the other shard a second time */
	struct dataset *d;
	struct error e = { 0 };
	assert_int_equal(dataset_open(&d, set, "test", &e), -EXIT_DATA);
	assert_true(strstr(e.text, "is twice in the test split") || strstr(e.text, "where the manifest says"));
	unlink(shard);
	expect_refusal(set, "test", "test-00001-of-00002: cannot be read: No such file or directory");
	free(bytes);
	free(first);
}

static void manifests_are_checked(void **state)
{
	(void)state;
	char directory[FILE_PATH], path[FILE_PATH + 32], good[8192];
	size_t size;
	snprintf(path, sizeof path, "%s/manifest.json", prepared);
	uint8_t *text = load(path, &size);
	snprintf(good, sizeof good, "%s", (char *)text);
	free(text);
	snprintf(directory, sizeof directory, "%s", scratch_path("manifests"));
	expect_refusal(directory, "train", "no such directory");
	mkdir(directory, 0777);
	expect_refusal(directory, "train", "no manifest.json: not a prepared data set");
	snprintf(path, sizeof path, "%s/manifest.json", directory);
	static const struct {
		const char *find, *replace, *reason;
	} cases[] = {
		{ "{", "[", "not JSON at byte" },
		{ "chexnet-prepared", "something-else", "not the manifest of a prepared data set" },
		{ "\"version\":\t1", "\"version\":\t2", "format version 2; this program reads 1" },
		{ "\"Mass\", \"Nodule\"", "\"Nodule\", \"Mass\"", "finding 4 is \"Nodule\", not \"Mass\"" },
		{ "\"image_size\":\t32", "\"image_size\":\t-5", "\"image_size\" is not a whole number from 1 to 8192" },
		{ "\"image_size\":\t32", "\"image_size\":\t\"32\"", "\"image_size\" is not a whole number" },
		{ "\"val\":", "\"vol\":", "no split \"val\"" },
		{ "\"shards\":\t2", "\"shards\":\t1e9", "\"shards\" is not a whole number" },
		{ "\"seed\":\t\"", "\"seed\":\t\"x", "\"seed\" is not a hexadecimal number" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char bad[9000];
		const char *at = strstr(good, cases[i].find);
		assert_non_null(at);
		int n = snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, cases[i].replace, at + strlen(cases[i].find));
		scratch_write(path, bad, (size_t)n);
		expect_refusal(directory, "train", cases[i].reason);
	}
	struct error e = { 0 };
	assert_int_equal(dataset_has(prepared, "val", &e), 1);
	assert_int_equal(dataset_has(NULL, "test", &e), 1);
	assert_int_equal(dataset_has(NULL, "tests", &e), 0);
	assert_int_equal(dataset_has(directory, "val", &e), -EXIT_DATA); /* whether there are validation images is not known */
}

static void a_bad_image_inside_a_sound_record_is_named_when_it_is_read(void **state)
{
	(void)state;
	const char *set = copy_set("inside");
	char shard[FILE_PATH + 32];
	size_t size;
	uint64_t length;
	snprintf(shard, sizeof shard, "%s/test-00000-of-00002", set);
	uint8_t *bytes = load(shard, &size);
	memcpy(&length, bytes, 8);
	uint8_t *png = memmem(bytes + 12, length, "\x89PNG", 4);
	assert_non_null(png);
	png[60] ^= 1; /* and the record's CRC made right again, as a bad writer would */
	uint32_t crc = crc32c_mask(crc32c(0, bytes + 12, length));
	memcpy(bytes + 12 + length, &crc, 4);
	scratch_write(shard, bytes, size);
	struct dataset *d = open_split(set, "test");
	struct dataset_scratch *s = dataset_scratch(d);
	uint8_t pixels[32 * 32];
	struct error e = { 0 };
	assert_int_equal(dataset_read(d, 0, s, pixels, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "test-00000-of-00002: record 0 at byte 0: PNG: CRC mismatch"));
	dataset_scratch_free(s);
	dataset_close(d);
	free(bytes);
}

static void leaky_trees_are_seen(void **state)
{
	(void)state;
	struct synth_conf c = synth;
	struct synth_report r;
	struct prepare_report p;
	struct error e = { 0 };
	char source[FILE_PATH], out[FILE_PATH];
	snprintf(source, sizeof source, "%s", scratch_path("leaky"));
	snprintf(out, sizeof out, "%s", scratch_path("leaky-prepared"));
	c.leaky = 1;
	assert_int_equal(synth_tree(&c, source, 0, 2, NULL, NULL, &r, &e), 0);
	assert_true(r.leaked > 0);
	struct prepare_conf conf = { .out = out, .size = 32, .seed = 1 };
	assert_int_equal(prepare_tree(source, &conf, &p, &e), 0);
	assert_int_equal(p.leaked, r.leaked);
	struct dataset *train = open_split(out, "train"), *val = open_split(out, "val"), *test = open_split(out, "test");
	assert_int_equal(dataset_leak(train, test, NULL) + dataset_leak(val, test, NULL), r.leaked);
	dataset_close(train), dataset_close(val), dataset_close(test);
}

/* chexnet prepare warns of stretched and of small images by their names, which whoever made the source chose. */
static void lists_of_names_have_no_control_characters(void **state)
{
	(void)state;
	struct sample_names n = { .count = 0 };

	sample_names_add(&n, "a\033[31m.png");
	sample_names_add(&n, "b\n.png");
	assert_string_equal(n.text, "a?[31m.png, b?.png");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pixels_labels_and_patients_arrive_as_they_were_made),
		cmocka_unit_test(the_splits_share_no_patient),
		cmocka_unit_test(the_oracle_travels_with_the_split),
		cmocka_unit_test(preparing_twice_gives_the_same_bytes_and_another_seed_another_order),
		cmocka_unit_test(jpeg_keeps_the_pixels_nearly),
		cmocka_unit_test(any_flipped_byte_of_a_shard_is_named_by_file_record_and_place),
		cmocka_unit_test(records_that_are_missing_or_too_many_are_counted),
		cmocka_unit_test(manifests_are_checked),
		cmocka_unit_test(a_bad_image_inside_a_sound_record_is_named_when_it_is_read),
		cmocka_unit_test(packed_pixels_are_the_same_and_any_flipped_byte_is_found),
		cmocka_unit_test(a_packed_file_is_not_taken_for_another_split),
		cmocka_unit_test(kept_images_are_the_same_and_within_the_limit),
		cmocka_unit_test(leaky_trees_are_seen),
		cmocka_unit_test(lists_of_names_have_no_control_characters),
	};
	return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
