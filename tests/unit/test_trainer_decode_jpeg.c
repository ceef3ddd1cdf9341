/* SPDX-License-Identifier: Apache-2.0
 * JPEG to gray pixels: those of libjpeg-turbo, whichever way they are decoded; turned, coloured or cut ones are refused by name. */
#include <stdio.h>
#include <sys/mman.h>

#include <jpeglib.h>

#include "data/random.h"
#include "decoding.h"

/* libjpeg-turbo calls it no error, and says no size, or that of the image before. */
static void a_jpeg_of_tables_alone_has_no_pixels(void **state)
{
	(void)state;
	uint8_t pixels[16 * 16] = { 0 };
	size_t size, at = 2;
	uint8_t *file = encode_jpeg(pixels, 16, 16, 95, &size);
	assert_non_null(file);
	while (at + 4 < size && file[at + 1] != 0xC0)
		at += 2 + (size_t)(file[at + 2] << 8 | file[at + 3]);
	assert_int_equal(file[at + 1], 0xC0); /* the frame header */
	file[at + 1] = 0xD9;
	expect_refusal(file, at + 2, "an image of 0 x 0 pixels");
	expect_refusal(file, size, "an image of 0 x 0 pixels");
	free(file);
}

static void jpegs(void **state)
{
	(void)state;
	enum { SIDE = 64 };
	uint8_t pixels[SIDE * SIDE], rgb[SIDE * SIDE * 3];
	struct image image;
	struct error e = { 0 };
	size_t size;
	for (int i = 0; i < SIDE * SIDE; i++)
		pixels[i] = (uint8_t)(128 + 100 * sin(i % SIDE * 0.2) * cos(i / SIDE * 0.15));
	uint8_t *file = encode_jpeg(pixels, SIDE, SIDE, 95, &size);
	assert_non_null(file);
	assert_int_equal(decode_image(decoder, file, size, &image, &e), 0);
	for (int i = 0; i < SIDE * SIDE; i++)
		assert_in_range(image.pixels[i] + 10 - pixels[i], 0, 20);
	for (size_t cut = 3; cut + 2 < size; cut += 7) { /* libjpeg would warn and fill with gray */
		struct error why = { 0 };
		if (decode_image(decoder, file, cut, &image, &why) != -EXIT_DATA)
			fail_msg("a JPEG cut at %zu of %zu was not noticed", cut, size);
	}
	free(file);

	tjhandle compress = tjInitCompress();
	unsigned char *out = NULL;
	unsigned long length = 0;
	for (int i = 0; i < SIDE * SIDE; i++)
		rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = pixels[i];
	assert_int_equal(tjCompress2(compress, rgb, SIDE, 0, SIDE, TJPF_RGB, &out, &length, TJSAMP_420, 95, 0), 0);
	if (decode_image(decoder, out, length, &image, &e)) /* gray saved as colour */
		fail_msg("%s", e.text);
	for (int i = 0; i < SIDE * SIDE; i++)
		rgb[3 * i] = 200;
	assert_int_equal(tjCompress2(compress, rgb, SIDE, 0, SIDE, TJPF_RGB, &out, &length, TJSAMP_420, 95, 0), 0);
	expect_refusal(out, length, "a colour image");
	uint8_t cmyk[16 * 16 * 4] = { 0 };
	assert_int_equal(tjCompress2(compress, cmyk, 16, 0, 16, TJPF_CMYK, &out, &length, TJSAMP_444, 95, 0), 0);
	expect_refusal(out, length, "CMYK");
	tjFree(out);
	tjDestroy(compress);
}

/* A camera's or viewer's note in an APP1 segment of either byte order: all but "as it lies" is refused, and no damage to it is read beyond its end. */
static void turned_jpegs_are_refused(void **state)
{
	(void)state;
	enum { SIDE = 16, SEGMENT = 36 };
	static const char big[] = "\xff\xe1\0\42Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
			  little[] = "\xff\xe1\0\42Exif\0\0II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0";
	uint8_t pixels[SIDE * SIDE] = { 0 };
	size_t size;
	struct image image;
	uint8_t *plain = encode_jpeg(pixels, SIDE, SIDE, 95, &size);
	for (int order = 0; order < 2; order++) {
		uint8_t *file = malloc(size + SEGMENT), *value = file + 2 + 28 + (order == 0);
		struct error e = { 0 };
		memcpy(file, plain, 2);
		memcpy(file + 2, order ? little : big, SEGMENT);
		memcpy(file + 2 + SEGMENT, plain + 2, size - 2);
		expect_refusal(file, size + SEGMENT, "Exif orientation, 6,");
		*value = 1;
		assert_int_equal(decode_image(decoder, file, size + SEGMENT, &image, &e), 0);
		*value = 9; /* which there is not */
		assert_int_equal(decode_image(decoder, file, size + SEGMENT, &image, &e), 0);
		*value = 2;
		expect_refusal(file, size + SEGMENT, "Exif orientation, 2,");
		*value = 8;
		expect_refusal(file, size + SEGMENT, "Exif orientation, 8,");
		uint8_t *filled = malloc(size + SEGMENT + 3); /* bytes of ones may stand before any marker (T.81, B.1.1.2) */
		memcpy(filled, file, 2);
		memset(filled + 2, 0xFF, 3);
		memcpy(filled + 5, file + 2, size + SEGMENT - 2);
		expect_refusal(filled, size + SEGMENT + 3, "Exif orientation, 8,");
		filled[3 + (value - file)] = 1;
		struct error sound = { 0 };
		assert_int_equal(decode_image(decoder, filled, size + SEGMENT + 3, &image, &sound), 0);
		free(filled);
		for (int cut = 3; cut < 2 + SEGMENT; cut++) {
			uint8_t *part = malloc((size_t)cut);
			struct error why = { 0 };
			memcpy(part, file, (size_t)cut);
			assert_true(decode_image(decoder, part, (size_t)cut, &image, &why) < 0);
			free(part);
		}
		for (int at = 12; at < 2 + SEGMENT; at++) { /* wherever its directory is said to be */
			uint8_t was = file[at];
			struct error why = { 0 };
			file[at] = 255;
			decode_image(decoder, file, size + SEGMENT, &image, &why);
			file[at] = was;
		}
		free(file);
	}
	free(plain);
}

/* A directory of one entry with the orientation, wherever in the note it lies, is read there and not behind the note. */
static void a_note_of_orientation_is_read_no_farther_than_it_goes(void **state)
{
	(void)state;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(pages != MAP_FAILED);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0); /* the first byte behind it ends the program */
	for (size_t size = 8; size < 40; size++)
		for (size_t at = 8; at < size + 20; at++)
			for (int type = 3; type <= 4; type++) { /* the standard has a short number there */
				uint8_t tiff[64] = "MM\0*", *note = pages + page - size;
				struct error e = { 0 };

				tiff[7] = (uint8_t)at;
				memcpy(tiff + at, (uint8_t[]){ 255, 255, 1, 18, 0, (uint8_t)type, 0, 0, 0, 1, 0, 6 }, at < 50 ? 12 : 0);
				memcpy(note, tiff, size);
				assert_int_equal(check_upright("JPEG", note, size, &e), type == 3 && at + 14 <= size ? -EXIT_DATA : 0);
			}
	munmap(pages, 2 * page);
}

static void a_gray_picture_saved_as_colour_is_told_from_a_coloured_one(void **state)
{
	(void)state;
	enum { SIDE = 16 };
	static const struct {
		uint8_t rgb[3];
		int gray;
	} cases[] = { { { 128, 128, 128 }, 1 }, { { 132, 128, 128 }, 1 }, { { 128, 128, 132 }, 1 }, { { 150, 128, 128 }, 0 }, { { 128, 128, 152 }, 0 }, { { 128, 150, 128 }, 0 } };
	tjhandle compress = tjInitCompress();

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t rgb[SIDE * SIDE * 3];
		unsigned char *file = NULL;
		unsigned long size = 0;
		struct image image;
		struct error e = { 0 };

		for (int k = 0; k < SIDE * SIDE * 3; k++)
			rgb[k] = cases[i].rgb[k % 3];
		assert_int_equal(tjCompress2(compress, rgb, SIDE, 0, SIDE, TJPF_RGB, &file, &size, TJSAMP_444, 100, TJFLAG_ACCURATEDCT), 0);
		if (cases[i].gray)
			assert_int_equal(decode_image(decoder, file, size, &image, &e), 0);
		else
			expect_refusal(file, size, "a colour image (pixel 0,0 is ");
		tjFree(file);
	}
	tjDestroy(compress);
}

/* Whether JPEGs of one component go the fast way here: elsewhere libjpeg-turbo decodes them all. */
static int fast_way_is_there(void)
{
#if defined __x86_64__
	return __builtin_cpu_supports("avx2") != 0;
#else
	return 0;
#endif
}

/* The fast way for one component against libjpeg-turbo: the same pixels, and nothing is taken that libjpeg-turbo warns about. */
static void gray_jpegs_have_the_pixels_that_libjpeg_turbo_gives(void **state)
{
	(void)state;
	struct stream s = stream_open(31, 0);
	tjhandle reference = tjInitDecompress();
	int sound = 0, taken = 0;
	for (int round = 0; round < 6000; round++) {
		int width = 1 + (int)(stream_bits(&s) % 70), height = 1 + (int)(stream_bits(&s) % 70), kind = (int)(stream_bits(&s) % 3);
		static uint8_t pixels[70 * 70], expected[70 * 70];
		for (int i = 0; i < width * height; i++)
			pixels[i] = (uint8_t)(kind == 0 ? stream_bits(&s) : kind == 1 ? (uint32_t)(i % width * 3 + i / width * 2) + stream_bits(&s) % 8
										      : (stream_bits(&s) % 40 == 0) * 255);
		/* libjpeg-turbo's own switches: restart markers, tables of the picture's own */
		static const char *const restart[6] = { "0", "3B", "1", "40B", "2", "5B" }; /* 40: more than are in memory at a time */
		setenv("TJ_RESTART", restart[round % 6], 1);
		setenv("TJ_OPTIMIZE", round % 5 == 1 ? "1" : "0", 1);
		unsigned char *file = NULL;
		unsigned long size = 0;
		tjhandle compress = tjInitCompress(); /* a used one keeps the tables of the last picture */
		assert_int_equal(tjCompress2(compress, pixels, width, 0, height, TJPF_GRAY, &file, &size, TJSAMP_GRAY, 1 + (int)(stream_bits(&s) % 100),
					     TJFLAG_ACCURATEDCT), 0);
		tjDestroy(compress);
		int damaged = round / 6 % 2;
		if (damaged)
			file[stream_bits(&s) % size] ^= (uint8_t)(1 << stream_bits(&s) % 8);
		for (int narrow = 0; narrow < 2; narrow++) {
			decoder->narrow = narrow;
			struct image image;
			int handled = decode_jpeg_gray(decoder, file, size, &image);
			sound += !damaged;
			taken += !damaged && handled;
			if (handled) {
				assert_in_range(image.width, 1, damaged ? 65535 : width);
				int w, h, sub, space, same_size = image.width == width && image.height == height;
				if (tjDecompressHeader3(reference, file, size, &w, &h, &sub, &space))
					fail_msg("round %d: taken, but libjpeg-turbo says %s", round, tjGetErrorStr2(reference));
				assert_true(w == image.width && h == image.height);
				if (same_size) {
					if (tjDecompress2(reference, file, size, expected, width, 0, height, TJPF_GRAY, TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING))
						fail_msg("round %d: taken, but libjpeg-turbo says %s", round, tjGetErrorStr2(reference));
					assert_memory_equal(image.pixels, expected, (size_t)width * (size_t)height);
				}
			}
		}
		tjFree(file);
	}
	unsetenv("TJ_RESTART");
	unsetenv("TJ_OPTIMIZE");
	tjDestroy(reference);
	assert_int_equal(taken, fast_way_is_there() ? sound : 0); /* all sound ones go the fast way */
}

/* Coefficients that grow with the quantiser until 16 bits are not enough: taken with libjpeg-turbo's pixels, or left to it. */
static void gray_jpegs_beyond_the_range_are_left_to_libjpeg_turbo(void **state)
{
	(void)state;
	enum { WIDTH = 64 };
	static const int factors[] = { 1, 2, 4, 8, 10, 13, 16, 20, 30, 60, 255 };
	static uint8_t pixels[WIDTH * WIDTH], expected[WIDTH * WIDTH];
	struct stream s = stream_open(41, 0);
	tjhandle compress = tjInitCompress(), reference = tjInitDecompress();
	unsigned char *file = NULL;
	unsigned long size = 0;

	for (int i = 0; i < WIDTH * WIDTH; i++)
		pixels[i] = (uint8_t)(stream_bits(&s) % 2 * 255);
	setenv("TJ_RESTART", "1", 1);
	assert_int_equal(tjCompress2(compress, pixels, WIDTH, 0, WIDTH, TJPF_GRAY, &file, &size, TJSAMP_GRAY, 100, TJFLAG_ACCURATEDCT), 0);
	unsetenv("TJ_RESTART");
	uint8_t *quant = memmem(file, size, "\xFF\xDB\0\x43\0", 5);
	assert_non_null(quant);
	for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
		memset(quant + 5, factors[f], 64);
		assert_int_equal(tjDecompress2(reference, file, size, expected, WIDTH, 0, WIDTH, TJPF_GRAY, TJFLAG_ACCURATEDCT), 0);
		for (int narrow = 0; narrow < 2; narrow++) {
			struct image image;
			decoder->narrow = narrow;
			int handled = decode_jpeg_gray(decoder, file, size, &image);
			if (factors[f] == 1 || factors[f] == 255)
				assert_int_equal(handled, fast_way_is_there() && factors[f] == 1);
			if (handled)
				assert_memory_equal(image.pixels, expected, sizeof expected);
		}
	}
	decoder->narrow = 0;
	tjFree(file);
	tjDestroy(compress);
	tjDestroy(reference);
}

static void encoded_jpegs_have_a_marker_after_each_row_of_blocks(void **state)
{
	(void)state;
	enum { ROWS = 5 };
	static uint8_t pixels[8 * ROWS * 20];
	size_t size;
	int markers = 0;
	uint8_t *file = encode_jpeg(pixels, 20, 8 * ROWS, 95, &size);
	for (size_t i = 0; i + 1 < size; i++)
		markers += file[i] == 0xFF && file[i + 1] == 0xD0 + markers % 8;
	assert_int_equal(markers, ROWS - 1);
	free(file);
}

static uint8_t *put_segment(uint8_t *p, int marker, const void *data, size_t size)
{
	*p++ = 0xFF;
	*p++ = (uint8_t)marker;
	*p++ = 0;
	*p++ = (uint8_t)(size + 2);
	memcpy(p, data, size);
	return p + size;
}

/* Zeros are the only code, of 16 bits with a value of 15 behind it: so are those behind the data, up to the end of the block. */
static void a_gray_jpeg_that_goes_on_behind_its_data_is_read_no_farther_than_there_is_room(void **state)
{
	(void)state;
	if (!fast_way_is_there())
		skip_because("libjpeg-turbo decodes all JPEGs on this processor");
	uint8_t file[256] = { 0xFF, 0xD8 }, *p = file + 2, quant[65] = { 0 }, dc[18] = { [16] = 1, [17] = 11 }, ac[18] = { 0x10, [16] = 1, [17] = 15 };
	memset(quant + 1, 1, 64);
	p = put_segment(p, 0xDB, quant, sizeof quant);
	p = put_segment(p, 0xC0, (uint8_t[]){ 8, 0, 16, 0, 8, 1, 1, 0x11, 0 }, 9);
	p = put_segment(p, 0xC4, dc, sizeof dc);
	p = put_segment(p, 0xC4, ac, sizeof ac);
	p = put_segment(p, 0xDD, (uint8_t[]){ 0, 1 }, 2);
	p = put_segment(p, 0xDA, (uint8_t[]){ 1, 1, 0, 0, 63, 0 }, 6);
	p = mempcpy(p, "\xFF\xD0\xFF\xD9", 4); /* two blocks without a bit */
	struct decoder *d = decoder_new();
	struct image image;
	assert_int_equal(decode_jpeg_gray(d, file, (size_t)(p - file), &image), 0);
	size_t room = d->packed.room, page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(pages != MAP_FAILED && room > 0 && room <= page);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
	free(d->packed.data);
	d->packed = (struct scratch){ pages + page - room, room }; /* the first byte behind it ends the program */
	assert_int_equal(decode_jpeg_gray(d, file, (size_t)(p - file), &image), 0);
	assert_true(d->packed.data == pages + page - room);
	d->packed = (struct scratch){ 0 };
	decoder_free(d);
	munmap(pages, 2 * page);
}

/* Both codes of one bit: the second is all ones. */
static void a_gray_jpeg_with_a_code_of_all_ones_is_refused(void **state)
{
	(void)state;
	uint8_t file[256] = { 0xFF, 0xD8 }, *p = file + 2, quant[65] = { 0 }, dc[19] = { [1] = 2, [18] = 1 }, ac[18] = { 0x10, 1 };
	memset(quant + 1, 1, 64);
	p = put_segment(p, 0xDB, quant, sizeof quant);
	p = put_segment(p, 0xC0, (uint8_t[]){ 8, 0, 8, 0, 8, 1, 1, 0x11, 0 }, 9);
	uint8_t *codes = p;
	p = put_segment(p, 0xC4, dc, sizeof dc);
	p = put_segment(p, 0xC4, ac, sizeof ac);
	p = put_segment(p, 0xDA, (uint8_t[]){ 1, 1, 0, 0, 63, 0 }, 6);
	p = mempcpy(p, "\x3F\xFF\xD9", 3);
	expect_refusal(file, (size_t)(p - file), "Huffman");
	struct image image;
	struct error e = { 0 };
	memcpy(codes + 5, (uint8_t[]){ 1, 1 }, 2); /* of one bit and of two */
	assert_int_equal(decode_image(decoder, file, (size_t)(p - file), &image, &e), 0);
}

/* A progressive file of `scans` scans, to be freed: the last of those that it needs, again and again, of which libjpeg-turbo does not warn. */
static uint8_t *many_scans(int components, int scans, size_t *size)
{
	enum { SIDE = 64 };
	JSAMPLE pixels[SIDE * 3], *row = pixels;
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	jpeg_scan_info script[6];
	unsigned char *made = NULL;
	unsigned long length = 0;
	int before = 2 * components;

	for (int i = 0; i < before; i++)
		script[i] = (jpeg_scan_info){ .comps_in_scan = 1, .component_index = { i % components }, .Ss = i >= components, .Se = i < components ? 0 : 63 };
	memset(pixels, 128, sizeof pixels);
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &made, &length);
	c.image_width = c.image_height = SIDE;
	c.input_components = components;
	c.in_color_space = components == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
	jpeg_set_defaults(&c);
	c.scan_info = script;
	c.num_scans = before;
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < SIDE)
		jpeg_write_scanlines(&c, &row, 1);
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	uint8_t *end = made + length - 2, *last = (uint8_t *)memrchr(made, 0xDA, length) - 1;
	size_t of_one = (size_t)(end - last);
	uint8_t *file = malloc(length + of_one * (size_t)scans), *p = mempcpy(file, made, length - 2);
	for (; before < scans; before++)
		p = mempcpy(p, last, of_one);
	p = mempcpy(p, end, 2);
	*size = (size_t)(p - file);
	free(made);
	return file;
}

/* By libjpeg-turbo alone a file of 8192 x 8192 pixels and 180 KB takes seconds. */
static void a_jpeg_of_more_scans_than_any_encoder_makes_is_refused(void **state)
{
	(void)state;
	for (int components = 1; components <= 3; components += 2)
		for (int scans = 99; scans <= 101; scans++) {
			struct image image;
			struct error e = { 0 };
			size_t size;
			uint8_t *file = many_scans(components, scans, &size);

			if (scans > 100)
				expect_refusal(file, size, "JPEG: more than 100 scans, each of which goes over the whole image: save it with fewer first, as jpegtran does");
			else if (decode_image(decoder, file, size, &image, &e))
				fail_msg("%d scans: %s", scans, e.text);
			free(file);
		}
}

/* As an image that is damaged prepare and audit would name it. */
static void a_jpeg_for_which_there_is_no_memory_is_not_called_damaged(void **state)
{
	struct image image;
	struct error e = { 0 };
	size_t size;
	uint8_t *file = many_scans(1, 2, &size);

	(void)state;
	setenv("JPEGMEM", "1", 1); /* libjpeg's own limit, in kilobytes, of a decoder that is made now */
	struct decoder *poor = decoder_new();
	unsetenv("JPEGMEM");
	assert_int_equal(decode_image(poor, file, size, &image, &e), -EXIT_INTERNAL);
	e = (struct error){ 0 };
	assert_int_equal(decode_image(decoder, file, size, &image, &e), 0);
	decoder_free(poor);
	free(file);
}

/* The second could be another size than the pixels are then taken for. */
static void a_jpeg_of_two_frames_is_refused(void **state)
{
	(void)state;
	uint8_t pixels[16 * 16] = { 0 };
	size_t size;
	uint8_t *file = encode_jpeg(pixels, 16, 16, 95, &size), *frame = memmem(file, size, "\xFF\xC0\0\x0B", 4), *twice = malloc(size + 13);

	assert_non_null(frame);
	size_t before = (size_t)(frame - file) + 13;
	memcpy(twice, file, before);
	memcpy(twice + before, frame, 13);
	memcpy(twice + before + 13, file + before, size - before);
	expect_refusal(twice, size + 13, "JPEG: ");
	free(twice);
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jpegs),
		cmocka_unit_test(a_jpeg_of_tables_alone_has_no_pixels),
		cmocka_unit_test(turned_jpegs_are_refused),
		cmocka_unit_test(a_note_of_orientation_is_read_no_farther_than_it_goes),
		cmocka_unit_test(a_gray_picture_saved_as_colour_is_told_from_a_coloured_one),
		cmocka_unit_test(gray_jpegs_have_the_pixels_that_libjpeg_turbo_gives),
		cmocka_unit_test(gray_jpegs_beyond_the_range_are_left_to_libjpeg_turbo),
		cmocka_unit_test(a_gray_jpeg_that_goes_on_behind_its_data_is_read_no_farther_than_there_is_room),
		cmocka_unit_test(a_gray_jpeg_with_a_code_of_all_ones_is_refused),
		cmocka_unit_test(a_jpeg_of_more_scans_than_any_encoder_makes_is_refused),
		cmocka_unit_test(a_jpeg_for_which_there_is_no_memory_is_not_called_damaged),
		cmocka_unit_test(a_jpeg_of_two_frames_is_refused),
		cmocka_unit_test(encoded_jpegs_have_a_marker_after_each_row_of_blocks),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
