/* SPDX-License-Identifier: Apache-2.0
 * TFRecord framing and tf.train.Example: what is written is read, everything else is refused by name. */
#include "data/example.h"
#include "data/random.h"
#include "files/crc32c.h"
#include "files/tfrecord.h"
#include "image/image.h"
#include "scratch.h"

static void crc32c_gives_the_published_numbers(void **state)
{
	(void)state;
	uint8_t data[32];
	/* RFC 3720 B.4 */
	memset(data, 0, 32);
	assert_int_equal(crc32c(0, data, 32), 0x8A9136AA);
	memset(data, 0xFF, 32);
	assert_int_equal(crc32c(0, data, 32), 0x62A8AB43);
	for (int i = 0; i < 32; i++)
		data[i] = (uint8_t)i;
	assert_int_equal(crc32c(0, data, 32), 0x46DD794E);
	assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xE3069283);
}

static void the_instruction_and_the_table_agree(void **state)
{
	(void)state;
	struct stream s = stream_open(1, 2);
	static uint8_t data[8000];
	for (int i = 0; i < 8000; i++)
		data[i] = (uint8_t)stream_bits(&s);
	for (int round = 0; round < 2000; round++) { /* beyond 3072 bytes three stretches are summed at once */
		size_t begin = stream_bits(&s) % 64, size = stream_bits(&s) % (round % 2 ? 500 : 7900);
		uint32_t seed = stream_bits(&s);
		assert_int_equal(crc32c(seed, data + begin, size), crc32c_portable(seed, data + begin, size));
	}
}

static struct example sample_example(void)
{
	static const uint8_t image[] = { 1, 2, 3, 250, 0, 128 };
	struct example x = { .height = 64, .width = 64, .patient = 300, .n_label = FINDINGS, .n_name = FINDINGS };
	x.encoded = (struct span){ image, sizeof image };
	x.filename = (struct span){ (const uint8_t *)"00000300_001.png", 16 };
	x.format = (struct span){ (const uint8_t *)"png", 3 };
	for (int f = 0; f < FINDINGS; f++) {
		x.label[f] = f % 3 == 0;
		x.name[f] = (struct span){ (const uint8_t *)finding_names[f], strlen(finding_names[f]) };
	}
	return x;
}

static int same_span(struct span a, struct span b)
{
	return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static void an_example_comes_back_as_it_was(void **state)
{
	(void)state;
	struct example x = sample_example(), y;
	struct bytes b = { 0 };
	struct error e = { 0 };
	uint32_t labels, known;
	assert_int_equal(example_write(&b, &x), 0);
	assert_int_equal(example_parse(b.data, b.size, &y, &e), 0);
	assert_true(same_span(x.encoded, y.encoded) && same_span(x.filename, y.filename) && same_span(x.format, y.format));
	assert_memory_equal(x.label, y.label, sizeof x.label);
	assert_true(y.height == 64 && y.width == 64 && y.patient == 300 && y.n_known == 0);
	assert_int_equal(example_labels(&y, NULL, &labels, &known, &e), 0);
	assert_int_equal(labels, 1 | 1 << 3 | 1 << 6 | 1 << 9 | 1 << 12);
	assert_int_equal(known, (1 << FINDINGS) - 1);
	free(b.data);
}

/* Example{features{feature{key value}…}} by hand, as TensorFlow writes it: small enough for one-byte lengths. */
static size_t put(uint8_t *out, const char *key, int kind, const uint8_t *list, size_t size)
{
	size_t k = strlen(key), n = 0;
	out[n++] = 0x0A, out[n++] = (uint8_t)(2 + k + 2 + 2 + size);
	out[n++] = 0x0A, out[n++] = (uint8_t)k;
	memcpy(out + n, key, k);
	n += k;
	out[n++] = 0x12, out[n++] = (uint8_t)(2 + size);
	out[n++] = (uint8_t)(kind << 3 | 2), out[n++] = (uint8_t)size;
	memcpy(out + n, list, size);
	return n + size;
}

static size_t wrap(uint8_t *out, const uint8_t *features, size_t size)
{
	size_t n = 0;
	out[n++] = 0x0A, out[n++] = (uint8_t)(size | 128), out[n++] = (uint8_t)(size >> 7);
	memcpy(out + n, features, size);
	return n + size;
}

static const uint8_t image_list[] = { 0x0A, 2, 0xAB, 0xCD }, name_list[] = { 0x0A, 5, 'a', '.', 'p', 'n', 'g' };
static const uint8_t packed[] = { 0x0A, 14, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };

static int parse_with_labels(const uint8_t *list, size_t size, struct example *x, struct error *e)
{
	uint8_t features[512], whole[600];
	size_t n = put(features, "image/encoded", 1, image_list, sizeof image_list);
	n += put(features + n, "image/label", 3, list, size);
	n += put(features + n, "image/filename", 1, name_list, sizeof name_list);
	*e = (struct error){ 0 };
	return example_parse(whole, wrap(whole, features, n), x, e);
}

static void labels_are_read_packed_and_one_by_one(void **state)
{
	(void)state;
	struct example x, y;
	struct error e;
	uint8_t single[28];
	for (int i = 0; i < 14; i++)
		single[2 * i] = 0x08, single[2 * i + 1] = packed[2 + i];
	assert_int_equal(parse_with_labels(packed, sizeof packed, &x, &e), 0);
	assert_int_equal(parse_with_labels(single, sizeof single, &y, &e), 0);
	assert_memory_equal(x.label, y.label, sizeof x.label);
	assert_true(x.label[0] == 1 && x.label[2] == 1 && x.label[13] == 1 && x.label[1] == 0);
}

static void wrong_labels_are_named(void **state)
{
	(void)state;
	struct example x;
	struct error e;
	uint32_t labels, known;
	uint8_t list[16];
	memcpy(list, packed, sizeof packed);
	list[1] = 13;
	assert_int_equal(parse_with_labels(list, 15, &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/label: 13 values, not 14");
	uint8_t fifteen[17] = { 0x0A, 15 };
	assert_int_equal(parse_with_labels(fifteen, 17, &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/label: more than 14 values");
	memcpy(list, packed, sizeof packed);
	list[5] = 2;
	assert_int_equal(parse_with_labels(list, sizeof list, &x, &e), 0);
	assert_int_equal(example_labels(&x, NULL, &labels, &known, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/label: value 3 is 2, not 0 or 1");
	x.label[3] = -1; /* CheXpert's uncertain ones */
	e = (struct error){ 0 };
	assert_int_equal(example_labels(&x, NULL, &labels, &known, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "value 3 is -1, not 0 or 1: one that is uncertain or not known is 0, and so is its label/known, or --mask=file:"));
}

static void what_is_not_known_is_one_label_and_no_other(void **state)
{
	(void)state;
	struct example x = { .n_label = FINDINGS, .n_known = FINDINGS };
	uint32_t labels, known;
	for (int f = 0; f < FINDINGS; f++)
		x.known[f] = f != 3;
	for (int64_t value = -1; value <= 2; value++) {
		struct error e = { 0 };
		x.known[5] = value;
		int is = value == 0 || value == 1;
		assert_int_equal(example_labels(&x, NULL, &labels, &known, &e), is ? 0 : -EXIT_DATA);
		if (is)
			assert_int_equal(known, ((1u << FINDINGS) - 1) & ~(1u << 3) & ~(value ? 0 : 1u << 5));
		else
			assert_non_null(strstr(e.text, "label/known: value 5 is "));
	}
}

static void missing_repeated_and_mistyped_keys_are_named(void **state)
{
	(void)state;
	struct example x;
	uint8_t f[512], whole[600];
	struct error e = { 0 };

	size_t n = put(f, "image/encoded", 1, image_list, sizeof image_list);
	n += put(f + n, "image/label", 3, packed, sizeof packed);
	assert_int_equal(example_parse(whole, wrap(whole, f, n), &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/filename: is not there");

	e.code = 0;
	n += put(f + n, "image/label", 3, packed, sizeof packed);
	assert_int_equal(example_parse(whole, wrap(whole, f, n), &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/label: comes twice");

	e.code = 0;
	n = put(f, "image/label", 1, name_list, sizeof name_list);
	assert_int_equal(example_parse(whole, wrap(whole, f, n), &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image/label: holds no integers");

	e.code = 0;
	n = put(f, "patient/id", 1, name_list, sizeof name_list); /* as CheXpert's "patient00001" */
	assert_int_equal(example_parse(whole, wrap(whole, f, n), &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "patient/id: holds no integers: a patient's number is wanted, one int64 from 0 to 4294967295");

	e.code = 0;
	assert_int_equal(example_parse((const uint8_t *)"", 0, &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "not a tf.train.Example with features");

	e.code = 0;
	assert_int_equal(example_parse((const uint8_t *)"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &x, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "in a message with 0 left"));

	e.code = 0;
	assert_int_equal(example_parse((const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, &x, &e), -EXIT_DATA);
	assert_string_equal(e.text, "protobuf: number longer than 10 bytes");
}

static void names_decide_over_the_order_of_labels(void **state)
{
	(void)state;
	struct example x = sample_example();
	struct error e = { 0 };
	uint32_t labels, known;
	memset(x.label, 0, sizeof x.label);
	struct span swap = x.name[6]; /* the two that Dell's trainer's table exchanges */
	x.name[6] = x.name[7];
	x.name[7] = swap;
	x.label[6] = 1;
	assert_int_equal(example_labels(&x, NULL, &labels, &known, &e), 0);
	assert_int_equal(labels, 1 << 7);
	x.name[6] = x.name[7];
	assert_int_equal(example_labels(&x, NULL, &labels, &known, &e), -EXIT_DATA);
	assert_string_equal(e.text, "label/names: \"Pneumonia\" is there twice");
}

/* A file of three records in memory. */
static size_t three_records(uint8_t *out)
{
	struct tfrecord_writer w;
	struct error e = { 0 };
	struct mapped_file file;
	const char *path = scratch_path("three");
	unlink(path);
	assert_int_equal(tfrecord_create(&w, path, &e), 0);
	assert_int_equal(tfrecord_append(&w, "first", 5, &e), 0);
	assert_int_equal(tfrecord_append(&w, "", 0, &e), 0);
	assert_int_equal(tfrecord_append(&w, "the third one", 13, &e), 0);
	assert_int_equal(access(path, F_OK), -1); /* not before the commit */
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	assert_int_equal(file_map(&file, path, &e), 0);
	size_t size = file.size;
	memcpy(out, file.data, size);
	file_unmap(&file);
	return size;
}

static int count_records(const uint8_t *file, size_t size, struct error *why)
{
	struct tfrecord r;
	size_t at = 0;
	int n = 0, rc;
	while ((rc = tfrecord_at(file, size, at, &r, why)) > 0) {
		at = r.next;
		n++;
	}
	return rc < 0 ? rc : n;
}

static void records_come_back_and_look_like_tensorflows(void **state)
{
	(void)state;
	uint8_t file[256];
	struct tfrecord r;
	struct error e = { 0 };
	size_t size = three_records(file);
	assert_int_equal(size, 3 * 16 + 5 + 13);
	assert_int_equal(tfrecord_at(file, size, 0, &r, &e), 1);
	assert_int_equal(r.size, 5);
	assert_memory_equal(r.data, "first", 5);
	assert_int_equal(r.next, 21);
	/* the frame of an empty record, from TensorFlow's record_writer_test */
	static const uint8_t empty[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2 };
	assert_memory_equal(file + 21, empty, sizeof empty);
	assert_int_equal(count_records(file, size, &e), 3);
}

static void a_file_of_another_kind_is_named(void **state)
{
	static const struct {
		const char bytes[17], *reason;
	} cases[] = { { "\x1f\x8b\x08\0\0\0\0\0\0\x03\xed\xbd\x07", "gzip-compressed" },
		      { "version https://", "a Git LFS pointer" },
		      { "\x05\0\0\0\0\0\0\0abcdefgh", "CRC mismatch in the record's length" } };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct tfrecord r;
		struct error e = { 0 };

		assert_int_equal(tfrecord_at((const uint8_t *)cases[i].bytes, 16, 0, &r, &e), -EXIT_DATA);
		if (strncmp(e.text, cases[i].reason, strlen(cases[i].reason)) != 0)
			fail_msg("%s, not %s", e.text, cases[i].reason);
	}
}

static void read_golden(const char *name, char **bytes, size_t *size)
{
	struct error e = { 0 };
	char path[FILE_PATH];
	snprintf(path, sizeof path, "tests/golden/%s", name);
	if (file_read(bytes, size, path, &e))
		fail_msg("%s (tests run in the top directory)", e.text);
}

/* tests/compat/tfrecord.py made the first file with TensorFlow 2.21 and reads the second one with it. */
static void tensorflows_file_is_read_and_ours_stays_what_tensorflow_reads(void **state)
{
	(void)state;
	/* Pneumonia and Hernia in Dell's trainer's order: 13 and 3 */
	static const int order[FINDINGS] = { 1, 10, 2, 13, 5, 7, 0, 12, 4, 9, 8, 3, 11, 6 };
	static const uint32_t expected[] = { 1u << 6 | 1u << 13, 0 };
	char *bytes;
	size_t size, at = 0;
	struct tfrecord r;
	struct error e = { 0 };
	read_golden("tensorflow.tfrecord", &bytes, &size);
	struct decoder *decoder = decoder_new();
	for (int i = 0; i < 2; i++) {
		struct example x;
		struct image image;
		uint32_t labels, known;
		assert_int_equal(tfrecord_at((uint8_t *)bytes, size, at, &r, &e), 1);
		assert_int_equal(example_parse(r.data, r.size, &x, &e), 0);
		assert_int_equal(example_labels(&x, order, &labels, &known, &e), 0);
		assert_int_equal(decode_image(decoder, x.encoded.data, x.encoded.size, &image, &e), 0);
		assert_int_equal(labels, expected[i]);
		assert_memory_equal(x.filename.data, i ? "00000002_013.png" : "00000001_000.png", 16);
		assert_true(image.width == 8 && image.height == 8);
		for (int p = 0; p < 64; p++)
			assert_int_equal(image.pixels[p], 4 * p);
		at = r.next;
	}
	assert_int_equal(at, size);
	decoder_free(decoder);
	free(bytes);

	struct example x = sample_example();
	struct bytes record = { 0 };
	struct tfrecord_writer w;
	char *ours;
	assert_int_equal(example_write(&record, &x), 0);
	assert_int_equal(tfrecord_create(&w, scratch_path("ours"), &e), 0);
	assert_int_equal(tfrecord_append(&w, record.data, record.size, &e), 0);
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	assert_int_equal(file_read(&ours, &at, scratch_path("ours"), &e), 0);
	read_golden("chexnet.tfrecord", &bytes, &size);
	assert_int_equal(at, size);
	assert_memory_equal(ours, bytes, size);
	free(record.data);
	free(ours);
	free(bytes);
}

static void every_flipped_bit_is_found(void **state)
{
	(void)state;
	uint8_t file[256];
	size_t size = three_records(file);
	for (size_t bit = 0; bit < size * 8; bit++) {
		struct error e = { 0 };
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(count_records(file, size, &e), -EXIT_DATA);
		assert_true(e.text[0]);
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void every_cut_is_found_except_between_records(void **state)
{
	(void)state;
	uint8_t file[256];
	size_t size = three_records(file);
	for (size_t cut = 0; cut < size; cut++) {
		struct error e = { 0 };
		uint8_t *copy = malloc(cut + 1); /* so that AddressSanitizer sees a read past the end */
		memcpy(copy, file, cut);
		int n = count_records(copy, cut, &e);
		free(copy);
		if (cut == 0 || cut == 21 || cut == 37)
			assert_int_equal(n, cut == 0 ? 0 : cut == 21 ? 1 : 2); /* the manifest's count finds these */
		else
			assert_non_null(strstr(e.text, "truncated"));
	}
}

static void a_huge_length_is_refused_before_it_is_believed(void **state)
{
	(void)state;
	uint8_t file[64] = { 0, 0, 0, 0, 0, 0, 0, 0x7F };
	uint32_t crc = crc32c_mask(crc32c(0, file, 8));
	struct error e = { 0 };
	memcpy(file + 8, &crc, 4);
	assert_int_equal(count_records(file, sizeof file, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "beyond the limit"));
}

static void mutated_examples_never_crash_the_parser(void **state)
{
	(void)state;
	struct example x = sample_example(), y;
	struct bytes b = { 0 };
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : 20260101;
	struct stream s = stream_open(seed, 0);
	uint32_t labels, known;
	printf("# seed %llu\n", (unsigned long long)seed);
	assert_int_equal(example_write(&b, &x), 0);
	for (int round = 0; round < 100000; round++) {
		size_t size = stream_bits(&s) % 8 ? b.size : stream_bits(&s) % b.size;
		uint8_t *copy = malloc(size + 1);
		struct error e = { 0 };
		memcpy(copy, b.data, size);
		for (uint32_t k = stream_bits(&s) % 4; size && k; k--)
			copy[stream_bits(&s) % size] = (uint8_t)stream_bits(&s);
		if (example_parse(copy, size, &y, &e) == 0 && y.n_label == FINDINGS)
			example_labels(&y, NULL, &labels, &known, &e);
		free(copy);
	}
	free(b.data);
}

static void what_cannot_be_written_leaves_nothing(void **state)
{
	(void)state;
	struct tfrecord_writer w;
	struct error e = { 0 };
	char partial[FILE_PATH];
	assert_int_equal(tfrecord_create(&w, scratch_path("no/such/dir"), &e), -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "cannot be written: No such file or directory"));
	e.code = 0;
	assert_int_equal(tfrecord_create(&w, scratch_path("given-up"), &e), 0);
	tfrecord_append(&w, "x", 1, &e);
	snprintf(partial, sizeof partial, "%s", w.out.partial);
	assert_int_equal(access(partial, F_OK), 0);
	tfrecord_discard(&w);
	assert_int_equal(access(scratch_path("given-up"), F_OK), -1);
	assert_int_equal(access(partial, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc32c_gives_the_published_numbers),
		cmocka_unit_test(the_instruction_and_the_table_agree),
		cmocka_unit_test(an_example_comes_back_as_it_was),
		cmocka_unit_test(labels_are_read_packed_and_one_by_one),
		cmocka_unit_test(wrong_labels_are_named),
		cmocka_unit_test(what_is_not_known_is_one_label_and_no_other),
		cmocka_unit_test(missing_repeated_and_mistyped_keys_are_named),
		cmocka_unit_test(names_decide_over_the_order_of_labels),
		cmocka_unit_test(records_come_back_and_look_like_tensorflows),
		cmocka_unit_test(a_file_of_another_kind_is_named),
		cmocka_unit_test(tensorflows_file_is_read_and_ours_stays_what_tensorflow_reads),
		cmocka_unit_test(every_flipped_bit_is_found),
		cmocka_unit_test(every_cut_is_found_except_between_records),
		cmocka_unit_test(a_huge_length_is_refused_before_it_is_believed),
		cmocka_unit_test(mutated_examples_never_crash_the_parser),
		cmocka_unit_test(what_cannot_be_written_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
