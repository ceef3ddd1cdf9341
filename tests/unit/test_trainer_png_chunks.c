/* SPDX-License-Identifier: Apache-2.0
 * PNG files put together chunk by chunk: 8-bit gray, which is read by a way of its own, and every other kind are taken and refused alike, with the
 * same words. */
#include <spng.h>

#include "decoding.h"

enum { W = 11, H = 9 };

static const struct kind {
	int colour, depth, interlaced;
} kinds[] = {
	{ SPNG_COLOR_TYPE_GRAYSCALE, 8, 0 }, /* the way of its own */
	{ SPNG_COLOR_TYPE_GRAYSCALE, 8, 1 },
	{ SPNG_COLOR_TYPE_GRAYSCALE, 16, 0 },
	{ SPNG_COLOR_TYPE_GRAYSCALE, 16, 1 },
	{ SPNG_COLOR_TYPE_GRAYSCALE, 1, 0 },
	{ SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, 0 },
	{ SPNG_COLOR_TYPE_TRUECOLOR, 16, 1 },
	{ SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, 0 },
	{ SPNG_COLOR_TYPE_INDEXED, 8, 0 }, /* of two colours; a palette is in front of all other chunks */
	{ SPNG_COLOR_TYPE_INDEXED, 4, 1 },
};

/* Rows of white, unfiltered, and of zeros as indices, as [0] of the palette is white: of another image where it has other bits or a row more. */
struct data {
	uint8_t bytes[4096], zlib[4096];
	size_t size, packed;
};

static void add_rows(struct data *d, const struct kind *k, int width, int height)
{
	static const int channels[] = { 1, 0, 3, 1, 2, 0, 4 };
	size_t row = (size_t)(width * channels[k->colour] * k->depth + 7) / 8;

	for (int y = 0; width && y < height; y++, d->size += row) {
		d->bytes[d->size++] = 0;
		memset(d->bytes + d->size, k->colour == SPNG_COLOR_TYPE_INDEXED ? 0 : 255, row);
	}
}

static void make_data(struct data *d, const struct kind *k, int rows)
{
	d->size = 0;
	if (!k->interlaced) {
		add_rows(d, k, W, rows);
	} else { /* each pixel is the first of the passes whose grid it is on */
		static const int at[8][8] = { { 0, 5, 3, 5, 1, 5, 3, 5 }, { 6, 6, 6, 6, 6, 6, 6, 6 }, { 4, 5, 4, 5, 4, 5, 4, 5 }, { 6, 6, 6, 6, 6, 6, 6, 6 },
					     { 2, 5, 3, 5, 2, 5, 3, 5 }, { 6, 6, 6, 6, 6, 6, 6, 6 }, { 4, 5, 4, 5, 4, 5, 4, 5 }, { 6, 6, 6, 6, 6, 6, 6, 6 } };
		for (int pass = 0; pass < 7; pass++) {
			int across[64] = { 0 }, down = 0;
			for (int y = 0; y < rows; y++) {
				for (int x = 0; x < W; x++)
					across[y] += at[y % 8][x % 8] == pass;
				if (across[y])
					across[down++] = across[y];
			}
			add_rows(d, k, across[0], down);
		}
	}
}

static void pack(struct data *d)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);

	d->packed = libdeflate_zlib_compress(c, d->bytes, d->size, d->zlib, sizeof d->zlib);
	assert_true(d->packed > 0);
	libdeflate_free_compressor(c);
}

struct file {
	uint8_t bytes[16384];
	size_t size;
};

static void put(struct file *f, const char *type, const void *data, size_t size)
{
	uint8_t *p = f->bytes + f->size;
	uint32_t numbers[2] = { (uint32_t)size };

	memcpy(p + 4, type, 4);
	if (size)
		memcpy(p + 8, data, size);
	numbers[1] = libdeflate_crc32(0, p + 4, 4 + size);
	for (int i = 0; i < 4; i++) {
		p[i] = (uint8_t)(numbers[0] >> (24 - 8 * i));
		p[8 + size + (size_t)i] = (uint8_t)(numbers[1] >> (24 - 8 * i));
	}
	f->size += 12 + size;
}

/* Names of chunks, each with what is usual in it; "IDA1" and "IDA2" are the image data's halves, "0000" is the name of four zero bytes; "=" before a
 * name: without a byte in it, "+": one byte more, and "*": 771 bytes, of 257 colours. */
static void put_named(struct file *f, const char *names, const struct data *d)
{
	static const uint8_t one = 1, three = 3, chrm[32] = { 0, 0, 1 }, phys[9] = { 0, 0, 0, 1, 0, 0, 0, 1 }, exif[] = "MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\1\0\0\0\0\0\0";
	static const struct {
		const char *name;
		const void *data;
		size_t size;
	} usual[] = { { "PLTE", "\xff\xff\xff\0\0\0", 6 }, { "gAMA", "\0\0\xb1\x8f", 4 }, { "cHRM", chrm, 32 }, { "sRGB", &one, 1 }, { "sBIT", &one, 1 },
		      { "pHYs", phys, 9 }, { "tIME", "\7\350\1\1\0\0", 7 }, { "tEXt", "Title\0chest", 11 }, { "iCCP", "p\0\0", 3 }, { "hIST", "\0\1", 2 },
		      { "bKGD", &three, 1 }, { "eXIf", exif, sizeof exif }, { "acTL", "\0\0\0\1\0\0\0", 8 }, { "prVt", "a", 1 }, { "CgBI", "\120\0\40", 4 },
		      { "IDAX", "a", 1 }, { "FDAT", "a", 1 }, { "IEND", "", 0 } };

	for (const char *name = strtok(strdupa(names), " "); name; name = strtok(NULL, " ")) {
		int more = name[0] == '+' ? 1 : name[0] == '*' ? 771 - 6 : 0, none = name[0] == '=';
		const char *type = name + (more || none);
		uint8_t content[4096] = { 0 };
		size_t size = 0, half = d->packed / 2;

		if (strcmp(type, "IHDR") == 0)
			memcpy(content, f->bytes + 16, size = 13);
		else if (strcmp(type, "IDAT") == 0)
			memcpy(content, d->zlib, size = d->packed);
		else if (strcmp(type, "IDA1") == 0)
			memcpy(content, d->zlib, size = half);
		else if (strcmp(type, "IDA2") == 0)
			memcpy(content, d->zlib + half, size = d->packed - half);
		for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
			if (strcmp(type, usual[i].name) == 0 && usual[i].size)
				memcpy(content, usual[i].data, size = usual[i].size);
		put(f, strncmp(type, "IDA", 3) == 0 && type[3] != 'X' ? "IDAT" : strcmp(type, "0000") == 0 ? "\0\0\0" : type, content, none ? 0 : size + (size_t)more);
	}
}

static void begin_file(struct file *f, const struct kind *k)
{
	uint8_t header[13] = { 0, 0, 0, W, 0, 0, 0, H, (uint8_t)k->depth, (uint8_t)k->colour, 0, 0, (uint8_t)k->interlaced };

	memcpy(f->bytes, "\x89PNG\r\n\x1a\n", f->size = 8);
	put(f, "IHDR", header, sizeof header);
}

/* says: the refusal with # for each number; NULL: taken, and white. */
static void expect_of(const struct file *f, const struct kind *k, const char *chunks, const char *says)
{
	struct image image;
	struct error e = { 0 };
	char plain[sizeof e.text] = "", *out = plain;
	int rc = decode_image(decoder, f->bytes, f->size, &image, &e);

	for (const char *p = e.text; rc && *p; p++)
		if (*p < '0' || *p > '9')
			*out++ = *p;
		else if (out == plain || out[-1] != '#')
			*out++ = '#';
	if (rc != (says ? -EXIT_DATA : 0) || strcmp(plain, says ? says : "") != 0)
		fail_msg("%s, colour type %d, %d bits%s: %d, \"%s\", not \"%s\"", chunks, k->colour, k->depth, k->interlaced ? ", interlaced" : "", rc, e.text,
			 says ? says : "taken");
	for (int i = 0; !rc && i < W * H; i++)
		assert_int_equal(image.pixels[i], 255);
}

#define APART "PNG: image data at byte #, apart from what ends at byte #"
#define UNKNOWN "PNG: the chunk at byte # is of a kind that is unknown here, and says that it has to be known"
#define SECOND "PNG: a second header at byte #"
#define BEHIND "PNG: a palette behind the image data at byte #"
#define TWO "PNG: a second palette at byte #"
#define SIZE "PNG: a palette of # bytes at byte #; three for each of # to # colours"
#define CUT "PNG: truncated at byte # of #"
#define CORRUPT "PNG: its compressed data is corrupt"

static void chunks_are_taken_and_refused_alike_in_files_of_every_kind(void **state)
{
	(void)state;
	static const struct {
		const char *chunks, *says, *of_palette; /* which is there already */
	} files[] = {
		{ "IDAT IEND", NULL, NULL },
		{ "IDA1 IDA2 IEND", NULL, NULL },
		{ "=IDAT IDA1 =IDAT IDA2 =IDAT IEND", NULL, NULL },
		{ "IDAT +IEND", NULL, NULL },
		/* ancillary ones where they belong */
		{ "gAMA cHRM sRGB sBIT pHYs tIME tEXt iCCP eXIf acTL prVt IDAT tIME tEXt eXIf prVt IEND", NULL, NULL },
		/* twice, behind the data, of no size that they have: the pixels are what they were */
		{ "gAMA gAMA cHRM cHRM sRGB sRGB sBIT sBIT pHYs pHYs tIME tIME eXIf eXIf IDAT IEND", NULL, NULL },
		{ "hIST bKGD IDAT IEND", NULL, NULL },
		{ "IDAT gAMA cHRM sRGB sBIT pHYs iCCP hIST bKGD acTL IEND", NULL, NULL },
		{ "=gAMA IDAT IEND", NULL, NULL },
		{ "+gAMA +cHRM +sRGB +sBIT +pHYs +tIME +hIST +bKGD IDAT IEND", NULL, NULL },
		{ "=cHRM =sRGB =sBIT =pHYs =tIME =tEXt =iCCP =hIST =bKGD =eXIf =prVt IDAT =tEXt IEND", NULL, NULL },
		/* those that have to be known, and are not */
		{ "CgBI IDAT IEND", UNKNOWN, UNKNOWN },
		{ "IDAX IDAT IEND", UNKNOWN, UNKNOWN },
		{ "0000 IDAT IEND", UNKNOWN, UNKNOWN },
		{ "=FDAT IDAT IEND", UNKNOWN, UNKNOWN },
		{ "IDAT FDAT IEND", UNKNOWN, UNKNOWN },
		{ "IDA1 FDAT IDA2 IEND", UNKNOWN, UNKNOWN },
		/* headers and palettes */
		{ "IHDR IDAT IEND", SECOND, SECOND },
		{ "IDAT IHDR IEND", SECOND, SECOND },
		{ "PLTE IDAT IEND", NULL, TWO },
		{ "PLTE gAMA sRGB sBIT IDAT IEND", NULL, TWO },
		{ "hIST bKGD PLTE IDAT IEND", NULL, TWO },
		{ "PLTE PLTE IDAT IEND", TWO, TWO },
		{ "IDAT PLTE IEND", BEHIND, BEHIND },
		{ "=PLTE IDAT IEND", SIZE, TWO },
		{ "+PLTE IDAT IEND", SIZE, TWO },
		{ "*PLTE IDAT IEND", SIZE, TWO },
		/* the data */
		{ "IEND", CORRUPT, CORRUPT },
		{ "=IDAT IEND", CORRUPT, CORRUPT },
		{ "IDA1 IEND", CORRUPT, CORRUPT },
		{ "IDA2 IEND", CORRUPT, CORRUPT },
		{ "IDA1 tEXt IDA2 IEND", APART, APART },
		{ "IDAT tEXt =IDAT IEND", APART, APART },
		{ "IDAT", CUT, CUT },
	};

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			int palette = kinds[k].colour == SPNG_COLOR_TYPE_INDEXED;
			static struct data d;
			static struct file f;

			make_data(&d, &kinds[k], H);
			pack(&d);
			begin_file(&f, &kinds[k]);
			if (palette)
				put_named(&f, "PLTE", &d);
			put_named(&f, files[i].chunks, &d);
			expect_of(&f, &kinds[k], files[i].chunks, palette ? files[i].of_palette : files[i].says);
		}
}

static void rows_are_taken_and_refused_alike_in_files_of_every_kind(void **state)
{
	(void)state;
	static const struct {
		int rows, last, mended; /* rows; what is added to the last row's filter; what is done to the stream */
		const char *says;
	} cases[] = {
		{ H, 0, 0, NULL },
		{ H + 1, 0, 0, "PNG: holds more than its # x # pixels" },
		{ H - 1, 0, 0, "PNG: holds less than its # x # pixels" },
		{ H, 5, 0, "PNG: row # has filter #, which is none" },
		{ H, 0, 1, CORRUPT }, /* another check sum */
		{ H, 0, 2, CORRUPT }, /* a dictionary that is nowhere */
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			static struct data d;
			static struct file f;

			make_data(&d, &kinds[k], cases[i].rows);
			if (cases[i].last) {
				size_t whole = d.size, row;
				make_data(&d, &kinds[k], H - 1);
				row = kinds[k].interlaced ? 0 : d.size; /* the first row of the first pass, or the last of all */
				make_data(&d, &kinds[k], H);
				assert_int_equal(d.size, whole);
				d.bytes[row] = 5;
			}
			pack(&d);
			if (cases[i].mended == 1)
				d.zlib[d.packed - 1] ^= 1;
			if (cases[i].mended == 2)
				d.zlib[1] = (uint8_t)(0x20 + 31 - (d.zlib[0] * 256 + 0x20) % 31);
			begin_file(&f, &kinds[k]);
			put_named(&f, kinds[k].colour == SPNG_COLOR_TYPE_INDEXED ? "PLTE IDAT IEND" : "IDAT IEND", &d);
			expect_of(&f, &kinds[k], "rows", cases[i].says);
		}
}

/* There are 15 pairs of colour type and bits, and one way of compressing, one of filtering and two of interlacing. */
static void headers_of_no_kind_are_refused(void **state)
{
	(void)state;
	static const char *const says[] = { "compression method 1, which is none", "filter method 1, which is none", "interlace method 2, which is none", "truncated at byte 33 of 33" };
	int sound = 0;

	for (int colour = 0; colour < 9; colour++)
		for (int depth = 0; depth < 34; depth++) {
			int kind = (depth == 8 || depth == 16) && (colour == 0 || colour == 2 || colour == 3 || colour == 4 || colour == 6);

			kind = (kind && !(depth == 16 && colour == 3)) || ((depth == 1 || depth == 2 || depth == 4) && (colour == 0 || colour == 3));
			sound += kind;
			for (int method = 0; method < 4; method++) {
				static struct file f;

				begin_file(&f, &(struct kind){ colour, depth, 0 });
				f.bytes[26 + method % 3] = (uint8_t)(method == 2 ? 2 : method < 3);
				memcpy(f.bytes + 29, (uint32_t[]){ __builtin_bswap32(libdeflate_crc32(0, f.bytes + 12, 17)) }, 4);
				expect_refusal(f.bytes, f.size, kind ? says[method] : colour < 7 && colour != 1 && colour != 5 ? "bits a sample, which colour type" : "PNG: colour type");
			}
		}
	assert_int_equal(sound, 15);
}

/* A palette's transparency and that of one gray or colour, in front of the data and not behind it. */
static void transparency_is_that_in_front_of_the_data(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		static const uint8_t white[6] = { 255, 255, 255, 255, 255, 255 }, low[6] = { 0, 255, 0, 255, 0, 255 }, bit[2] = { 0, 1 };
		int colour = kinds[k].colour, gray = colour == SPNG_COLOR_TYPE_GRAYSCALE;
		const uint8_t *value = kinds[k].depth == 16 ? white : kinds[k].depth == 1 ? bit : low;
		static struct data d;

		if (colour == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA || colour == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA)
			continue;
		make_data(&d, &kinds[k], H);
		pack(&d);
		for (int behind = 0; behind < 2; behind++) {
			static struct file f;
			begin_file(&f, &kinds[k]);
			if (colour == SPNG_COLOR_TYPE_INDEXED)
				put_named(&f, "PLTE", &d);
			if (behind)
				put_named(&f, "IDAT", &d);
			put(&f, "tRNS", colour == SPNG_COLOR_TYPE_INDEXED ? (const uint8_t *)"\7" : value, colour == SPNG_COLOR_TYPE_INDEXED ? 1 : gray ? 2 : 6);
			put_named(&f, behind ? "IEND" : "IDAT IEND", &d);
			expect_of(&f, &kinds[k], "tRNS", behind ? NULL : "PNG: transparent at pixel #,# (alpha #)");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_are_taken_and_refused_alike_in_files_of_every_kind),
		cmocka_unit_test(rows_are_taken_and_refused_alike_in_files_of_every_kind),
		cmocka_unit_test(headers_of_no_kind_are_refused),
		cmocka_unit_test(transparency_is_that_in_front_of_the_data),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
