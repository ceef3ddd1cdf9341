/* SPDX-License-Identifier: Apache-2.0
 * PNG to gray pixels, and any file at all: every documented kind is converted, everything else is refused by name. */
#include <dirent.h>
#include <spng.h>

#include "data/random.h"
#include "decoding.h"

int __real_spng_decode_image(spng_ctx *ctx, void *out, size_t size, int format, int flags);
int __wrap_spng_decode_image(spng_ctx *ctx, void *out, size_t size, int format, int flags);

static int spng_fails_with;

int __wrap_spng_decode_image(spng_ctx *ctx, void *out, size_t size, int format, int flags)
{
	return spng_fails_with ? spng_fails_with : __real_spng_decode_image(ctx, out, size, format, flags);
}

static int interlace; /* of what spng_file() makes */

/* A PNG of any kind by libspng, to be freed. */
static uint8_t *spng_file(int width, int height, int colour, int depth, int filters, const void *pixels, size_t bytes, size_t *size)
{
	spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
	struct spng_ihdr ihdr = { .width = (uint32_t)width, .height = (uint32_t)height, .bit_depth = (uint8_t)depth, .color_type = (uint8_t)colour,
				   .interlace_method = (uint8_t)interlace };
	int rc;
	spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
	assert_int_equal(spng_set_ihdr(ctx, &ihdr), 0);
	if (colour == SPNG_COLOR_TYPE_INDEXED) {
		struct spng_plte plte = { .n_entries = 4 };
		for (int i = 0; i < 4; i++)
			plte.entries[i] = (struct spng_plte_entry){ (uint8_t)(60 * i), (uint8_t)(60 * i), (uint8_t)(60 * i), 255 };
		assert_int_equal(spng_set_plte(ctx, &plte), 0);
	}
	if (filters)
		spng_set_option(ctx, SPNG_FILTER_CHOICE, filters);
	assert_int_equal(spng_encode_image(ctx, pixels, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
	uint8_t *file = spng_get_png_buffer(ctx, size, &rc);
	assert_non_null(file);
	spng_ctx_free(ctx);
	return file;
}

enum { W = 37, H = 23 };

static void some_pixels(uint8_t pixels[W * H])
{
	struct stream s = stream_open(5, 0);
	for (int i = 0; i < W * H; i++)
		pixels[i] = (uint8_t)(i * 3 + (int)(stream_bits(&s) % 20));
}

/* Decodes a file and checks its pixels; frees it. */
static void expect(uint8_t *file, size_t size, const uint8_t *pixels)
{
	struct image image;
	struct error e = { 0 };
	if (decode_image(decoder, file, size, &image, &e))
		fail_msg("%s", e.text);
	assert_int_equal(image.width, W);
	assert_int_equal(image.height, H);
	assert_memory_equal(image.pixels, pixels, W * H);
	free(file);
}

static void gray_pngs_with_every_filter(void **state)
{
	(void)state;
	static const int filters[] = { SPNG_FILTER_CHOICE_NONE, SPNG_FILTER_CHOICE_SUB, SPNG_FILTER_CHOICE_UP, SPNG_FILTER_CHOICE_AVG,
				       SPNG_FILTER_CHOICE_PAETH, SPNG_FILTER_CHOICE_ALL };
	uint8_t pixels[W * H];
	size_t size;
	some_pixels(pixels);
	for (int f = 0; f < 6; f++) {
		uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 8, filters[f], pixels, sizeof pixels, &size);
		expect(file, size, pixels);
	}
}

/* The specification's definition, pixel by pixel. */
static uint8_t unfiltered(int filter, int in, int left, int up, int corner)
{
	int p = left + up - corner, a = abs(p - left), b = abs(p - up), c = abs(p - corner);
	int predicted[] = { 0, left, up, (left + up) / 2, a <= b && a <= c ? left : b <= c ? up : corner };
	return (uint8_t)(in + predicted[filter]);
}

static void rows_of_mixed_filters_and_any_size(void **state)
{
	(void)state;
	struct stream s = stream_open(21, 0);
	for (int round = 0; round < 400; round++) {
		size_t width = 1 + stream_bits(&s) % 100, height = 1 + stream_bits(&s) % 70, row = width + 1;
		uint8_t *raw = calloc(row * height + width + PNG_UNFILTER_BEYOND, 1), *out = malloc(width * height + PNG_UNFILTER_BEYOND);
		for (size_t i = 0; i < row * height; i++)
			raw[i] = (uint8_t)(i % row ? stream_bits(&s) : stream_bits(&s) % 5);
		png_unfilter(raw, width, height, out);
		for (size_t y = 0; y < height; y++)
			for (size_t x = 0; x < width; x++) {
				int left = x ? out[y * width + x - 1] : 0, up = y ? out[(y - 1) * width + x] : 0;
				int corner = x && y ? out[(y - 1) * width + x - 1] : 0;
				assert_int_equal(out[y * width + x], unfiltered(raw[y * row], raw[y * row + 1 + x], left, up, corner));
			}
		free(raw);
		free(out);
	}
}

static void our_own_pngs_gray_and_rgba(void **state)
{
	(void)state;
	uint8_t pixels[W * H];
	size_t size;
	some_pixels(pixels);
	uint8_t *file = encode_png(pixels, W, H, 1, &size);
	expect(file, size, pixels);
	file = encode_png(pixels, W, H, 4, &size);
	expect(file, size, pixels);
}

static void the_other_kinds_of_png(void **state)
{
	(void)state;
	uint8_t gray[W * H], wide[W * H * 4], index[W * H];
	uint16_t deep[W * H];
	size_t size;
	some_pixels(gray);
	for (int i = 0; i < W * H; i++) {
		deep[i] = (uint16_t)(gray[i] << 8 | (i * 7 & 255));
		wide[2 * i] = gray[i], wide[2 * i + 1] = 255;
	}
	uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 16, 0, deep, sizeof deep, &size);
	expect(file, size, gray);
	file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, 0, wide, 2 * W * H, &size);
	expect(file, size, gray);
	for (int i = 0; i < W * H; i++)
		wide[3 * i] = wide[3 * i + 1] = wide[3 * i + 2] = gray[i];
	file = spng_file(W, H, SPNG_COLOR_TYPE_TRUECOLOR, 8, 0, wide, 3 * W * H, &size);
	expect(file, size, gray);
	for (int i = 0; i < W * H; i++)
		index[i] = (uint8_t)(i % 4), gray[i] = (uint8_t)(60 * (i % 4));
	file = spng_file(W, H, SPNG_COLOR_TYPE_INDEXED, 8, 0, index, sizeof index, &size);
	expect(file, size, gray);
}

static void without_memory_an_image_is_not_called_damaged(void **state)
{
	static const int reasons[] = { SPNG_EMEM, SPNG_EZLIB_INIT };
	uint16_t deep[W * H];
	size_t size;

	(void)state;
	memset(deep, 170, sizeof deep);
	uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 16, 0, deep, sizeof deep, &size);
	for (int i = 0; i < 2; i++) {
		struct image image;
		struct error why = { 0 };

		spng_fails_with = reasons[i];
		assert_int_equal(decode_image(decoder, file, size, &image, &why), -EXIT_INTERNAL);
		assert_string_equal(why.text, "no memory for a PNG decoder");
	}
	spng_fails_with = 0;
	free(file);
}

/* The palette has four entries. libspng takes an index beyond them for black. */
static void a_colour_that_no_palette_has_is_refused(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		uint8_t indices[W * H] = { 0 }, gray[W * H];
		size_t size, depth = i / 2 ? 8 : 4, row = (W * depth + 7) / 8;

		interlace = i % 2;
		for (size_t y = 0; y < H; y++)
			for (size_t x = 0; x < W; x++) {
				indices[y * row + x * depth / 8] |= (uint8_t)(x % 4 << (8 - depth - x * depth % 8));
				gray[y * W + x] = (uint8_t)(60 * (x % 4));
			}
		uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_INDEXED, (int)depth, 0, indices, row * H, &size);
		expect(file, size, gray);
		indices[3 * row - 1] = depth == 8 ? 4 : 9 << 4; /* the last pixel of a row, which half fills its byte */
		file = spng_file(W, H, SPNG_COLOR_TYPE_INDEXED, (int)depth, 0, indices, row * H, &size);
		expect_refusal(file, size, "PNG: pixel 36,2 has a colour beyond the 4 of its palette");
		free(file);
	}
	interlace = 0;
}

static void sixteen_bits_that_hold_twelve_are_refused(void **state)
{
	(void)state;
	uint16_t deep[W * H];
	uint8_t gray[W * H];
	size_t size;

	for (int bits = 8; bits <= 14; bits += 2)
		for (int white = 0; white <= W * H / 100 + 1; white++) { /* pixels of a marker */
			for (int i = 0; i < W * H; i++) {
				deep[i] = i < white ? 65535 : (uint16_t)(i * ((1 << bits) - 1) / (W * H - 1));
				gray[i] = (uint8_t)(deep[i] >> 8);
			}
			uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 16, 0, deep, sizeof deep, &size);
			if (white > W * H / 100) {
				expect(file, size, gray);
				continue;
			}
			expect_refusal(file, size, "16 bits a pixel, and fewer than 1 in 100 are brighter than a quarter of white");
			free(file);
		}
}

static void one_pixel_in_a_hundred_of_a_quarter_of_white_is_enough(void **state)
{
	(void)state;
	uint16_t deep[100] = { 0 };

	for (int v = 63; v <= 64; v++) {
		struct image image;
		struct error e = { 0 };
		size_t size;

		deep[50] = (uint16_t)(v << 8);
		uint8_t *file = spng_file(10, 10, SPNG_COLOR_TYPE_GRAYSCALE, 16, 0, deep, sizeof deep, &size);
		assert_int_equal(decode_image(decoder, file, size, &image, &e), v == 64 ? 0 : -EXIT_DATA);
		free(file);
	}
}

/* Above the first row there is nothing, whatever the image before has left there. */
static void an_image_owes_nothing_to_the_one_before(void **state)
{
	(void)state;
	static const int filters[] = { SPNG_FILTER_CHOICE_UP, SPNG_FILTER_CHOICE_AVG, SPNG_FILTER_CHOICE_PAETH };
	uint8_t pixels[W * H], white[W * H];
	size_t size;
	struct image image;
	struct error e = { 0 };

	some_pixels(pixels);
	memset(white, 255, sizeof white);
	for (int f = 0; f < 3; f++) {
		uint8_t *before = encode_png(white, W, H, 4, &size);
		assert_int_equal(decode_image(decoder, before, size, &image, &e), 0);
		free(before);
		uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 8, filters[f], pixels, sizeof pixels, &size);
		expect(file, size, pixels);
	}
}

/* Collimated to a tenth of the plane, and in that as dark as the darkest film; the same as a negative. */
static void a_dark_film_of_sixteen_bits_is_read(void **state)
{
	(void)state;
	uint16_t deep[W * H];
	uint8_t gray[W * H];
	size_t size;

	for (int negative = 0; negative < 2; negative++) {
		for (int i = 0; i < W * H; i++) {
			int v = i % 10 ? 0 : i % 20 ? 20000 : 12000;

			deep[i] = (uint16_t)(negative ? 65535 - v : v);
			gray[i] = (uint8_t)(deep[i] >> 8);
		}
		uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 16, 0, deep, sizeof deep, &size);
		expect(file, size, gray);
	}
}

static void colour_and_transparency_are_refused(void **state)
{
	(void)state;
	uint8_t rgb[W * H * 3], ga[W * H * 2];
	size_t size;
	memset(rgb, 90, sizeof rgb);
	rgb[3 * (W + 2) + 1] = 91;
	uint8_t *file = spng_file(W, H, SPNG_COLOR_TYPE_TRUECOLOR, 8, 0, rgb, sizeof rgb, &size);
	expect_refusal(file, size, "a colour image (pixel 2,1 is 90,91,90)");
	free(file);
	rgb[3 * (W + 2) + 1] = 90, rgb[3 * (W + 2) + 2] = 91;
	file = spng_file(W, H, SPNG_COLOR_TYPE_TRUECOLOR, 8, 0, rgb, sizeof rgb, &size);
	expect_refusal(file, size, "a colour image (pixel 2,1 is 90,90,91)");
	free(file);
	memset(ga, 255, sizeof ga);
	ga[2 * 5 + 1] = 254;
	file = spng_file(W, H, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, 0, ga, sizeof ga, &size);
	expect_refusal(file, size, "transparent at pixel 5,0 (alpha 254)");
	free(file);
}

static void every_cut_and_every_flipped_byte_of_a_png_is_found(void **state)
{
	(void)state;
	uint8_t pixels[W * H];
	size_t size;
	struct image image;
	some_pixels(pixels);
	for (int channels = 1; channels <= 4; channels += 3) {
		uint8_t *file = encode_png(pixels, W, H, channels, &size);
		for (size_t cut = 0; cut < size; cut++) {
			struct error e = { 0 };
			uint8_t *copy = malloc(cut + 1);
			memcpy(copy, file, cut);
			if (decode_image(decoder, copy, cut, &image, &e) != -EXIT_DATA)
				fail_msg("cut at %zu of %zu was not noticed", cut, size);
			free(copy);
		}
		for (size_t i = 0; i < size; i++) {
			struct error e = { 0 };
			file[i] ^= 0x10;
			if (decode_image(decoder, file, size, &image, &e) != -EXIT_DATA)
				fail_msg("flipped byte %zu of %zu was not noticed", i, size);
			file[i] ^= 0x10;
		}
		free(file);
	}
}

static void put_u32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24), p[1] = (uint8_t)(v >> 16), p[2] = (uint8_t)(v >> 8), p[3] = (uint8_t)v;
}

static void a_png_bomb_costs_nothing(void **state)
{
	(void)state;
	uint8_t pixels[W * H];
	size_t size;
	some_pixels(pixels);
	uint8_t *file = encode_png(pixels, W, H, 1, &size);
	size_t before = decoder_memory(decoder);
	put_u32(file + 16, 30000);
	put_u32(file + 20, 30000);
	put_u32(file + 29, libdeflate_crc32(0, file + 12, 17));
	expect_refusal(file, size, "an image of 30000 x 30000 pixels; 1 to 8192 a side are read");
	put_u32(file + 16, 16);
	put_u32(file + 20, 8193);
	put_u32(file + 29, libdeflate_crc32(0, file + 12, 17));
	expect_refusal(file, size, "an image of 16 x 8193 pixels; 1 to 8192 a side are read");
	assert_int_equal(decoder_memory(decoder), before);
	/* a header that promises fewer or more pixels than there are */
	put_u32(file + 16, W);
	put_u32(file + 20, H - 1);
	put_u32(file + 29, libdeflate_crc32(0, file + 12, 17));
	expect_refusal(file, size, "holds more than");
	put_u32(file + 20, H + 1);
	put_u32(file + 29, libdeflate_crc32(0, file + 12, 17));
	expect_refusal(file, size, "holds less than");
	free(file);
}

static void what_is_no_image_is_called_by_its_name(void **state)
{
	(void)state;
	expect_refusal("", 0, "an empty file");
	expect_refusal("\n <!DOCTYPE html>", 17, "a web page");
	expect_refusal("version https://git-lfs.github.com/spec/v1\n", 43, "a Git LFS pointer");
	expect_refusal("\x1f\x8b\x08", 3, "gzip");
	expect_refusal("hello", 5, "neither PNG nor JPEG");
	uint8_t zeros[512] = { 0 };
	expect_refusal(zeros, 511, "neither PNG nor JPEG");
	expect_refusal(zeros, 512, "begins with zeros alone, as where its content never reached the disk: copy it again");
	zeros[511] = 1;
	expect_refusal(zeros, 512, "neither PNG nor JPEG");
	expect_refusal("\x89PNG\r\n\x1a\n", 8, "truncated in its header");
}

static void turned_pngs_are_refused(void **state)
{
	(void)state;
	enum { SIDE = 16, AFTER_HEADER = 33, CHUNK = 38 };
	static const char exif[] = "\0\0\0\32eXIfMM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\6\0\0\0\0\0\0";
	uint8_t pixels[SIDE * SIDE] = { 0 };
	size_t size;
	struct image image;
	struct error e = { 0 };
	uint8_t *plain = encode_png(pixels, SIDE, SIDE, 1, &size), *file = malloc(size + CHUNK), *chunk = file + AFTER_HEADER;
	memcpy(file, plain, AFTER_HEADER);
	memcpy(chunk, exif, CHUNK - 4);
	memcpy(chunk + CHUNK, plain + AFTER_HEADER, size - AFTER_HEADER);
	put_u32(chunk + CHUNK - 4, libdeflate_crc32(0, chunk + 4, CHUNK - 8));
	expect_refusal(file, size + CHUNK, "PNG: its Exif orientation, 6,");
	chunk[27] = 1;
	put_u32(chunk + CHUNK - 4, libdeflate_crc32(0, chunk + 4, CHUNK - 8));
	assert_int_equal(decode_image(decoder, file, size + CHUNK, &image, &e), 0);
	free(file);
	free(plain);
}

static void squares_are_written_where_they_are_wanted_and_nowhere_else(void **state)
{
	(void)state;
	enum { MOST = 70, GUARD = 64 };
	struct stream s = stream_open(37, 0);
	for (int side = 1; side <= MOST; side++) {
		uint8_t pixels[MOST * MOST], out[MOST * MOST + 2 * GUARD], guard[GUARD];
		size_t bytes = (size_t)side * (size_t)side, size;
		for (size_t i = 0; i < bytes; i++)
			pixels[i] = (uint8_t)stream_bits(&s);
		memset(guard, 0xA5, sizeof guard);
		for (int png = 0; png < 2; png++) {
			uint8_t *file = png ? encode_png(pixels, side, side, 1, &size) : encode_jpeg(pixels, side, side, 95, &size);
			struct error e = { 0 };
			struct image image;
			memset(out, 0xA5, sizeof out);
			assert_int_equal(decode_square(decoder, file, size, out + GUARD, side, &e), 0);
			assert_int_equal(decode_image(decoder, file, size, &image, &e), 0);
			assert_ptr_not_equal(image.pixels, out + GUARD);
			assert_memory_equal(out + GUARD, image.pixels, bytes);
			assert_memory_equal(out, guard, GUARD);
			assert_memory_equal(out + GUARD + bytes, guard, GUARD);
			assert_int_equal(decode_square(decoder, file, size, out + GUARD, side + 1, &e), -EXIT_DATA);
			assert_non_null(strstr(e.text, "where the record says"));
			free(file);
		}
	}
}

static void what_is_wider_or_higher_than_its_record_says_is_refused(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		uint8_t pixels[32 * 16] = { 0 }, out[32 * 32];
		struct error e = { 0 };
		size_t size;
		uint8_t *file = encode_png(pixels, i ? 32 : 16, i ? 16 : 32, 1, &size);

		assert_int_equal(decode_square(decoder, file, size, out, 16, &e), -EXIT_DATA);
		assert_string_equal(e.text, i ? "image of 32 x 16 pixels where the record says 16" : "image of 16 x 32 pixels where the record says 16");
		free(file);
	}
}

static void mutated_files_never_crash_the_decoders(void **state)
{
	(void)state;
	uint8_t pixels[W * H];
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : 20260102;
	struct stream s = stream_open(seed, 0);
	size_t size[3];
	some_pixels(pixels);
	uint8_t *file[3] = { encode_png(pixels, W, H, 1, &size[0]), encode_png(pixels, W, H, 4, &size[1]), encode_jpeg(pixels, W, H, 90, &size[2]) };
	printf("# seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < 6000; round++) {
		int which = round % 3;
		size_t n = stream_bits(&s) % 6 ? size[which] : stream_bits(&s) % size[which];
		uint8_t *copy = malloc(n + 1);
		struct image image;
		struct error e = { 0 };
		memcpy(copy, file[which], n);
		for (uint32_t k = 1 + stream_bits(&s) % 4; n && k; k--)
			copy[stream_bits(&s) % n] = (uint8_t)stream_bits(&s);
		if (decode_image(decoder, copy, n, &image, &e) == 0)
			assert_true(image.width <= IMAGE_MAX_SIDE && image.height <= IMAGE_MAX_SIDE);
		free(copy);
	}
	for (int i = 0; i < 3; i++)
		free(file[i]);
}

static void real_images_decode_to_the_same_pixels_as_libspng(void **state)
{
	(void)state;
	char path[FILE_PATH];
	struct error e = { 0 };
	struct dirent *entry;
	int n = 0, rgba = 0;
	if (!shared_dir())
		skip_because("no shared material with real images here");
	snprintf(path, sizeof path, "%s/nih-sample/images", shared_dir());
	DIR *dir = opendir(path);
	assert_non_null(dir);
	uint8_t *reference = malloc(1024 * 1024 * 4);
	while ((entry = readdir(dir))) {
		struct mapped_file file;
		struct image image;
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/nih-sample/images/%s", shared_dir(), entry->d_name);
		assert_int_equal(file_map(&file, path, &e), 0);
		int colour = file.data[25];
		rgba += colour == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
		if (decode_image(decoder, file.data, file.size, &image, &e))
			fail_msg("%s: %s", path, e.text);
		assert_true(image.width == 1024 && image.height == 1024);
		if (n++ % 4 == 0 || colour) { /* the reference is slow */
			spng_ctx *ctx = spng_ctx_new(0);
			spng_set_png_buffer(ctx, file.data, file.size);
			assert_int_equal(spng_decode_image(ctx, reference, 1024 * 1024 * 4, SPNG_FMT_RGBA8, 0), 0);
			spng_ctx_free(ctx);
			for (size_t i = 0; i < 1024 * 1024; i++)
				if (image.pixels[i] != reference[4 * i])
					fail_msg("%s: pixel %zu", path, i);
		}
		file_unmap(&file);
	}
	closedir(dir);
	free(reference);
	assert_int_equal(n, 64);
	assert_int_equal(rgba, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gray_pngs_with_every_filter),
		cmocka_unit_test(rows_of_mixed_filters_and_any_size),
		cmocka_unit_test(our_own_pngs_gray_and_rgba),
		cmocka_unit_test(the_other_kinds_of_png),
		cmocka_unit_test(without_memory_an_image_is_not_called_damaged),
		cmocka_unit_test(a_colour_that_no_palette_has_is_refused),
		cmocka_unit_test(sixteen_bits_that_hold_twelve_are_refused),
		cmocka_unit_test(one_pixel_in_a_hundred_of_a_quarter_of_white_is_enough),
		cmocka_unit_test(an_image_owes_nothing_to_the_one_before),
		cmocka_unit_test(a_dark_film_of_sixteen_bits_is_read),
		cmocka_unit_test(colour_and_transparency_are_refused),
		cmocka_unit_test(every_cut_and_every_flipped_byte_of_a_png_is_found),
		cmocka_unit_test(a_png_bomb_costs_nothing),
		cmocka_unit_test(what_is_no_image_is_called_by_its_name),
		cmocka_unit_test(turned_pngs_are_refused),
		cmocka_unit_test(squares_are_written_where_they_are_wanted_and_nowhere_else),
		cmocka_unit_test(what_is_wider_or_higher_than_its_record_says_is_refused),
		cmocka_unit_test(mutated_files_never_crash_the_decoders),
		cmocka_unit_test(real_images_decode_to_the_same_pixels_as_libspng),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
