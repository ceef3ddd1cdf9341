/* SPDX-License-Identifier: Apache-2.0
 * A packed file whose checksums are right and that is the wrong one all the same. */
#include "tests/unit/small_data.h"

#include "data/dataset.h"
#include "data/packed.h"
#include "files/crc32c.h"

/* As packed.c lays a file out. */
enum { AT_VERSION = 8, AT_SIDE = 12, AT_IMAGES = 16, AT_PIXELS = 24, AT_SOURCE = 32, AT_NAMES = 40, NAME = 24, AT_CRC = AT_NAMES + FINDINGS * NAME + 4, HEADER = AT_CRC + 4, ENTRY = 32 };

static uint8_t *bytes;
static size_t size, images;
static char file[FILE_PATH + 32];

static int make(void **state)
{
	char *text;
	struct dataset *d;
	struct error e = { 0 };
	if (small_data(state, 16, 2) || dataset_open(&d, packed, "val", &e))
		return -1;
	images = dataset_count(d);
	dataset_close(d);
	snprintf(file, sizeof file, "%s/val.cxp", packed);
	if (file_read(&text, &size, file, &e))
		return -1;
	bytes = (uint8_t *)text;
	return images < 2;
}

static int unmake(void **state)
{
	free(bytes);
	return scratch_remove(state);
}

static void put_crc(uint8_t *at, const uint8_t *data, size_t n)
{
	uint32_t crc = crc32c(0, data, n);
	memcpy(at, &crc, 4);
}

/* The file with one byte changed and the checksums made anew. expected NULL: it opens. */
static void opens_with(size_t at, uint8_t byte, const char *expected)
{
	struct dataset *d;
	struct error e = { 0 };
	uint8_t was = bytes[at];
	bytes[at] = byte;
	put_crc(bytes + AT_CRC, bytes, AT_CRC);
	put_crc(bytes + HEADER + images * ENTRY, bytes + HEADER, images * ENTRY);
	scratch_write(file, bytes, size);
	assert_int_equal(dataset_open(&d, packed, "val", &e), expected ? -EXIT_DATA : 0);
	if (expected && (!strstr(e.text, expected) || !strstr(e.text, "val.cxp")))
		fail_msg("\"%s\" does not say \"%s\"", e.text, expected);
	dataset_close(d);
	bytes[at] = was;
}

static void a_header_that_says_something_else_is_refused_by_what_it_says(void **state)
{
	(void)state;
	opens_with(0, bytes[0], NULL);
	opens_with(0, 'X', "byte 0: not a packed data set");
	opens_with(AT_VERSION, 2, "format version 2; this program reads 1: prepare the data set anew");
	opens_with(AT_SIDE, 15, "it comes from another preparation");
	opens_with(AT_IMAGES, (uint8_t)(bytes[AT_IMAGES] + 1), "it comes from another preparation");
	opens_with(AT_SOURCE, (uint8_t)(bytes[AT_SOURCE] + 1), "it comes from another preparation");
	opens_with(AT_SOURCE + 7, (uint8_t)(bytes[AT_SOURCE + 7] + 1), "it comes from another preparation");
	opens_with(AT_PIXELS, (uint8_t)(bytes[AT_PIXELS] + 1), "truncated or too long");
	opens_with(AT_NAMES + NAME, 'k', "finding 1 is \"kardiomegaly\", not \"Cardiomegaly\"");
}

static void an_entry_that_cannot_be_is_refused_by_its_place(void **state)
{
	(void)state;
	char place[64];
	snprintf(place, sizeof place, "record 1 at byte %d: ", HEADER + ENTRY);
	opens_with(HEADER + ENTRY + 21, 0x40, place); /* a fifteenth finding */
	opens_with(HEADER + ENTRY + 23, 0x7f, place);
	opens_with(HEADER + ENTRY, '\n', place);
	opens_with(HEADER + ENTRY, 0, place);
	opens_with(HEADER + ENTRY + 3, 0xE9, place); /* no UTF-8 */
}

static void a_packed_file_that_lacks_an_image_takes_no_name(void **state)
{
	(void)state;
	const char *path = scratch_path("lacks.cxp");
	uint8_t pixels[16] = { 0 };
	struct sample sample = { .id = "00000001_000.png", .patient = 1 };
	struct packed_writer w;
	struct error e = { 0 };

	assert_int_equal(packed_create(&w, path, SPLIT_TRAIN, 4, 2, 7, &e), 0);
	assert_int_equal(packed_append(&w, &sample, pixels, &e), 0);
	assert_int_equal(packed_commit(&w, &e), -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "lacks.cxp: 1 of 2 images"));
	assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_that_says_something_else_is_refused_by_what_it_says),
		cmocka_unit_test(an_entry_that_cannot_be_is_refused_by_its_place),
		cmocka_unit_test(a_packed_file_that_lacks_an_image_takes_no_name),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}
