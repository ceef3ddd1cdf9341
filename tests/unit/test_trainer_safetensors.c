/* SPDX-License-Identifier: Apache-2.0
 * Model files as bytes: headers of any kind, other formats, damage anywhere, and numbers of half precision. */
#include "tests/unit/checkpoint_files.h"

#include "learn/checkpoint.h"
#include "learn/model.h"
#include "learn/safetensors.h"

static void write_file(const void *data, size_t size)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, size, f), size);
	fclose(f);
}

static void refused(const char *header, size_t data_bytes, const char *expected)
{
	static char file[4096];
	uint64_t length = strlen(header);
	struct safetensors *f;
	struct error e = { 0 };

	memset(file, 0, sizeof file);
	memcpy(file, &length, 8);
	memcpy(file + 8, header, length);
	write_file(file, 8 + length + data_bytes);
	assert_int_equal(safetensors_open(&f, path, &e), -EXIT_DATA);
	assert_null(f);
	if (!strstr(e.text, expected))
		fail_msg("%s: said \"%s\", not \"%s\"", header, e.text, expected);
}

static void damaged_headers_are_refused_by_name(void **state)
{
	(void)state;
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "tensor a: its data_offsets lie outside the file");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "1 bytes after the last tensor");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "tensor a: its data_offsets do not match its shape");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "tensor a: its data_offsets lie outside");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12,
		"tensor b: there is a hole before it");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
		"tensor b: overlaps the one before it");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
		"tensor a: comes twice");
	refused("{\"a\":{\"dtype\":\"F3\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: type F3 is not supported");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "tensor a: its shape is not usable");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],\"data_offsets\":[0,4]}}", 4, "tensor a: its shape is not usable");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: needs dtype, shape, data_offsets and nothing else");
	refused("{\"a\":", 4, "the header is not JSON");
	refused("{}x", 0, "the header goes on after its JSON");
	refused("[{}]", 0, "not a safetensors file");
	refused("{\"__metadata__\":{\"step\":3}}", 0, "__metadata__: step is not a string");
}

static void other_formats_are_called_by_their_names(void **state)
{
	(void)state;
	static const struct {
		const char magic[13], *is;
	} others[] = { { "PK\3\4", "a PyTorch file, not safetensors" }, { "\x80\2}q", "a PyTorch file, not safetensors" }, { "version http", "a Git LFS pointer: git lfs pull" },
		       { "<!DOCTYPE ht", "a web page" }, { "\x89HDF\r\n\x1a\n", "HDF5" } };

	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		char file[64] = "";
		struct safetensors *f;
		struct error e = { 0 };

		memcpy(file, others[i].magic, sizeof others[i].magic);
		write_file(file, sizeof file);
		assert_int_equal(safetensors_open(&f, path, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, others[i].is));
	}
}

/* The length of a header may be the first bytes of another format's file: 0x0280 is how a pickle begins. */
static void a_header_of_any_length_is_read(void **state)
{
	(void)state;
	static const size_t lengths[] = { 632, 640, 648, 640 + 65536 };
	static char file[8 + 640 + 65536];
	static const char header[] = "{\"__metadata__\":{\"a\":\"b\"}}";

	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		uint64_t length = lengths[i];
		struct safetensors *f;
		struct error e = { 0 };

		memset(file, ' ', sizeof file);
		memcpy(file, &length, 8);
		memcpy(file + 8, header, sizeof header - 1);
		write_file(file, 8 + length);
		safetensors_open(&f, path, &e);
		assert_string_equal(e.text, "");
		assert_string_equal(safetensors_note(f, "a"), "b");
		safetensors_close(f);
	}
}

enum { FILE_ROOM = 1 << 20 };

/* A sound checkpoint of a small network, also to file[FILE_ROOM]; returns its size. */
static size_t write_example(struct net_plan *plan, struct model_values *v, char *file)
{
	struct error e = { 0 };

	make_small_net(plan, 14);
	make_values(v, plan, 0);
	assert_int_equal(checkpoint_write(path, plan, v, &example, &e), 0);
	FILE *f = fopen(path, "rb");
	size_t size = fread(file, 1, FILE_ROOM, f);

	fclose(f);
	return size;
}

/* Cut anywhere, or with a bit of a tensor flipped, the file is refused; with a bit of length or header flipped it is refused or
 * means the same: never a crash. */
static void no_cut_and_no_flipped_bit_goes_wrong(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct error e = { 0 };
	struct checkpoint *c;
	static char file[FILE_ROOM];

	size_t size = write_example(&plan, &v, file);

	for (size_t cut = 0; cut < size; cut += 1 + cut / 16) {
		write_file(file, cut);
		e = (struct error){ 0 };
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, cut < 10 ? "not a safetensors file" : "cut short"));
	}
	unsigned random = 12345;

	for (int i = 0; i < 600; i++) {
		random = random * 1103515245 + 12345;
		size_t at = i < 64 ? (size_t)i / 8 : (random >> 8) % 6000;
		int bit = i < 64 ? i % 8 : (int)(random >> 4 & 7);

		file[at] ^= (char)(1 << bit);
		write_file(file, size);
		e = (struct error){ 0 };
		struct net_conf net;

		if (checkpoint_open(&c, path, &net, NULL, &e) == 0) {
			(void)checkpoint_load(c, &plan, &v, NULL, &e);
			checkpoint_close(c);
		} else {
			assert_int_equal(e.code, EXIT_DATA);
		}
		file[at] ^= (char)(1 << bit);
	}
	uint64_t header;

	memcpy(&header, file, 8);
	for (size_t at = 8 + header; at < size; at += 1 + size / 64) {
		file[at] ^= 4;
		write_file(file, size);
		e = (struct error){ 0 };
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, "damaged, or saved again by another program: the CRC-32C of its notes and tensors"));
		file[at] ^= 4;
	}
	write_file(file, size);
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), 0);
	checkpoint_close(c);
	model_values_free(&v);
	net_plan_free(&plan);
}

/* A changed note is seen, except the checksum's own name: without it the file is as one of another program. */
static void a_changed_note_is_refused(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct error e = { 0 };
	struct checkpoint *c;
	static char file[FILE_ROOM];

	size_t size = write_example(&plan, &v, file);

	for (int own = 0; own < 2; own++) {
		char *at = memmem(file, size, own ? "\"crc32c\":" : "\"step\":\"", own ? 9 : 8);

		assert_non_null(at);
		at[own ? 1 : 8] ^= 1;
		write_file(file, size);
		e = (struct error){ 0 };
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), own ? 0 : -EXIT_DATA);
		if (own)
			checkpoint_close(c);
		else
			at[8] ^= 1;
	}
	model_values_free(&v);
	net_plan_free(&plan);
}

static void halves_are_widened(void **state)
{
	(void)state;
	static const uint16_t half[] = { 0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555 }, bf[] = { 0x3f80, 0xc000 };
	struct tensor t = { .type = TENSOR_F16, .ndim = 1, .shape = { 6 }, .data = half, .bytes = 12 };
	struct tensor b = { .type = TENSOR_BF16, .ndim = 1, .shape = { 2 }, .data = bf, .bytes = 4 };
	float out[6];

	assert_int_equal(tensor_to_float(&t, out), 0);
	assert_true(out[0] == 1 && out[1] == -2 && out[2] == 5.9604644775390625e-8f && out[3] == 65504 && out[4] == 0 && signbit(out[4]));
	assert_true(out[5] == 0.333251953125f);
	assert_int_equal(tensor_to_float(&b, out), 0);
	assert_true(out[0] == 1 && out[1] == -2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(damaged_headers_are_refused_by_name, empty_directory),
		cmocka_unit_test_teardown(other_formats_are_called_by_their_names, empty_directory),
		cmocka_unit_test_teardown(a_header_of_any_length_is_read, empty_directory),
		cmocka_unit_test_teardown(no_cut_and_no_flipped_bit_goes_wrong, empty_directory),
		cmocka_unit_test_teardown(a_changed_note_is_refused, empty_directory),
		cmocka_unit_test(halves_are_widened),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
