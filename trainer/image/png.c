/* SPDX-License-Identifier: Apache-2.0
 * PNG (W3C PNG specification, third edition). 8-bit gray without interlace, which nearly all of ChestX-ray14 is, takes a path
 * of our own on libdeflate and png_unfilter(), with the same pixels as libspng; tests/bench/data.sh measures it.
 * Everything else goes through libspng. */
#include <spng.h>
#include <stdlib.h>
#include <string.h>

#include "image/decode.h"

enum { SIGNATURE = 8, CHUNK = 12, IHDR_SIZE = 13, FIRST_IDAT = SIGNATURE + CHUNK + IHDR_SIZE };
/* Radiographs are noise to a compressor: level 6 takes three times as long for 2 % less. */
enum { PNG_LEVEL = 2 };

enum { COLOUR_GRAY = 0, COLOUR_PALETTE = 3, COLOUR_RGBA = 6 };

static uint32_t read_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

struct header {
	uint32_t width, height;
	int depth, colour;
	int plain; /* no interlace, and the only ways of compressing and filtering that there are */
	int transparent;
	size_t palette, entries; /* where its colours begin, and how many there are */
};

static int read_header(const uint8_t *file, size_t size, struct header *h, struct error *why)
{
	const uint8_t *p = file + SIGNATURE;

	if (size < FIRST_IDAT)
		return fail(why, EXIT_DATA, "PNG: truncated in its header (%zu bytes)", size);
	if (read_u32(p) != IHDR_SIZE || memcmp(p + 4, "IHDR", 4) != 0)
		return fail(why, EXIT_DATA, "PNG: does not begin with its header");
	if (libdeflate_crc32(0, p + 4, 4 + IHDR_SIZE) != read_u32(p + 8 + IHDR_SIZE))
		return fail(why, EXIT_DATA, "PNG: CRC mismatch in its header");
	p += 8;
	*h = (struct header){ read_u32(p), read_u32(p + 4), p[8], p[9], .plain = !p[10] && !p[11] && !p[12] };
	return check_size(h->width, h->height, why);
}

/* Walks all chunks, checks their CRCs and puts the image data together in d->packed; finds palette and transparency. */
static int collect(struct decoder *d, const uint8_t *file, size_t size, struct header *h, size_t *packed, struct error *why)
{
	size_t at = SIGNATURE;
	int ended = 0;

	*packed = 0;
	if (scratch_reserve(&d->packed, size, why))
		return -why->code;
	while (!ended) {
		if (size - at < CHUNK || read_u32(file + at) > size - at - CHUNK)
			return fail(why, EXIT_DATA, "PNG: truncated at byte %zu of %zu", at, size);
		uint32_t length = read_u32(file + at);
		const uint8_t *type = file + at + 4;
		if (libdeflate_crc32(0, type, 4 + (size_t)length) != read_u32(type + 4 + length))
			return fail(why, EXIT_DATA, "PNG: CRC mismatch in the chunk at byte %zu", at);
		if (memcmp(type, "IDAT", 4) == 0) {
			memcpy(d->packed.data + *packed, type + 4, length);
			*packed += length;
		}
		if (memcmp(type, "eXIf", 4) == 0 && check_upright("PNG", type + 4, length, why) < 0)
			return -why->code;
		if (memcmp(type, "PLTE", 4) == 0) {
			h->palette = at + 8;
			h->entries = length / 3;
		}
		h->transparent |= memcmp(type, "tRNS", 4) == 0;
		ended = memcmp(type, "IEND", 4) == 0;
		at += CHUNK + (size_t)length;
	}
	return 0;
}

static int decode_gray8(struct decoder *d, const struct header *h, size_t packed, struct image *image, struct error *why)
{
	size_t width = h->width, height = h->height, row = width + 1, have;

	if (scratch_reserve(&d->raw, row * height + width + PNG_UNFILTER_BEYOND, why) || scratch_reserve(&d->gray, width * height + PNG_UNFILTER_BEYOND, why))
		return -why->code;
	enum libdeflate_result rc = libdeflate_zlib_decompress(d->inflate, d->packed.data, packed, d->raw.data, row * height, &have);
	if (rc == LIBDEFLATE_INSUFFICIENT_SPACE || (rc == LIBDEFLATE_SUCCESS && have != row * height))
		return fail(why, EXIT_DATA, "PNG: holds %s than its %zu x %zu pixels", rc == LIBDEFLATE_SUCCESS ? "less" : "more", width, height);
	if (rc != LIBDEFLATE_SUCCESS)
		return fail(why, EXIT_DATA, "PNG: its compressed data is corrupt");
	memset(d->raw.data + row * height, 0, width + PNG_UNFILTER_BEYOND);
	if (png_unfilter(d->raw.data, width, height, d->gray.data, why))
		return -why->code;
	*image = (struct image){ (int)width, (int)height, d->gray.data };
	return 0;
}

/* RGBA to gray where that loses nothing. */
static int to_gray(const uint8_t *rgba, uint8_t *gray, size_t width, size_t height, struct error *why)
{
	for (size_t i = 0; i < width * height; i++) {
		const uint8_t *p = rgba + 4 * i;
		if (p[3] != 255)
			return fail(why, EXIT_DATA, "PNG: transparent at pixel %zu,%zu (alpha %d)", i % width, i / width, p[3]);
		if (p[0] != p[1] || p[1] != p[2])
			return fail(why, EXIT_DATA, "a colour image (pixel %zu,%zu is %d,%d,%d); chest X-rays are gray", i % width, i / width,
				    p[0], p[1], p[2]);
		gray[i] = p[0];
	}
	return 0;
}

/* A 16-bit file may hold a scanner's 10, 12 or 14 bits as they are, or 8: its upper bits are then a picture of almost nothing, and
 * a network answers all the same. White beside it is a marker burnt in, a few thousandths of the image; of 64 images of ChestX-ray14 the
 * darkest has 52 % above a quarter of white, so a film of which collimation left a tenth has five. A negative has more, not less. */
static int check_range(const uint8_t *gray, size_t pixels, struct error *why)
{
	enum { QUARTER = 64 };
	size_t bright = 0;

	for (size_t i = 0; i < pixels; i++)
		bright += gray[i] >= QUARTER;
	if (100 * bright >= pixels)
		return 0;
	return fail(why, EXIT_DATA, "PNG: 16 bits a pixel, and fewer than 1 in 100 are brighter than a quarter of white, as where 12 bits are stored unscaled: scale them "
		    "to the full range first");
}

/* A whole file with libspng, to RGBA in d->raw. */
static int decode_with_spng(struct decoder *d, const uint8_t *file, size_t size, int flags, struct error *why)
{
	spng_ctx *ctx = spng_ctx_new(0);

	if (!ctx)
		return fail(why, EXIT_INTERNAL, "no memory for a PNG decoder");
	spng_set_image_limits(ctx, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
	spng_set_chunk_limits(ctx, 1 << 24, 1 << 26);
	size_t bytes = 0;
	int rc = spng_set_png_buffer(ctx, file, size);
	if (!rc)
		rc = spng_decoded_image_size(ctx, SPNG_FMT_RGBA8, &bytes);
	if (!rc && scratch_reserve(&d->raw, bytes, why) == 0)
		rc = spng_decode_image(ctx, d->raw.data, bytes, SPNG_FMT_RGBA8, flags);
	spng_ctx_free(ctx);
	if (rc == SPNG_EMEM || rc == SPNG_EZLIB_INIT)
		return fail(why, EXIT_INTERNAL, "no memory for a PNG decoder");
	return why->code ? -why->code : rc ? fail(why, EXIT_DATA, "PNG: %s", spng_strerror(rc)) : 0;
}

/* libspng takes an index beyond the palette for black: what is black even where every colour of the palette is white has one. */
static int check_indices(struct decoder *d, const uint8_t *file, size_t size, const struct header *h, struct error *why)
{
	uint8_t *white = d->packed.data + h->palette;

	memcpy(d->packed.data, file, size);
	memset(white, 255, 3 * h->entries);
	write_u32(white + 3 * h->entries, libdeflate_crc32(0, white - 4, 4 + 3 * h->entries));
	if (decode_with_spng(d, d->packed.data, size, 0, why))
		return -why->code;
	for (size_t i = 0; i < (size_t)h->width * h->height; i++)
		if (d->raw.data[4 * i] == 0)
			return fail(why, EXIT_DATA, "PNG: pixel %zu,%zu has a colour beyond the %zu of its palette", i % h->width, i / h->width, h->entries);
	return 0;
}

static int decode_general(struct decoder *d, const uint8_t *file, size_t size, const struct header *h, struct image *image, struct error *why)
{
	size_t width = h->width, height = h->height;

	if (scratch_reserve(&d->gray, width * height, why))
		return -why->code;
	if ((h->entries && h->colour == COLOUR_PALETTE && check_indices(d, file, size, h, why)) || decode_with_spng(d, file, size, SPNG_DECODE_TRNS, why))
		return -why->code;
	if (to_gray(d->raw.data, d->gray.data, width, height, why) || (h->depth == 16 && check_range(d->gray.data, width * height, why)))
		return -why->code;
	*image = (struct image){ (int)width, (int)height, d->gray.data };
	return 0;
}

int decode_png(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why)
{
	struct header h = { 0 };
	size_t packed;

	if (read_header(file, size, &h, why) || collect(d, file, size, &h, &packed, why))
		return -why->code;
	if (h.depth == 8 && h.colour == COLOUR_GRAY && h.plain && !h.transparent)
		return decode_gray8(d, &h, packed, image, why);
	return decode_general(d, file, size, &h, image, why);
}

static uint8_t *put_chunk(uint8_t *p, const char *type, const uint8_t *data, size_t size)
{
	write_u32(p, (uint32_t)size);
	memcpy(p + 4, type, 4);
	if (data != p + 8 && size)
		memcpy(p + 8, data, size);
	write_u32(p + 8 + size, libdeflate_crc32(0, p + 4, 4 + size));
	return p + CHUNK + size;
}

/* Rows with the Sub filter: next to the best for smooth pictures, and one pass. */
static void filter_rows(const uint8_t *pixels, int width, int height, int channels, uint8_t *out)
{
	for (int y = 0; y < height; y++) {
		const uint8_t *row = pixels + (size_t)y * (size_t)width;
		*out++ = 1;
		for (int x = 0; x < width; x++) {
			uint8_t difference = (uint8_t)(row[x] - (x ? row[x - 1] : 0));
			for (int c = 0; c < channels; c++)
				*out++ = c < 3 ? difference : x ? 0 : 255;
		}
	}
}

uint8_t *encode_png(const uint8_t *pixels, int width, int height, int channels, size_t *size)
{
	size_t rows = ((size_t)width * (size_t)channels + 1) * (size_t)height;
	struct libdeflate_compressor *deflate = libdeflate_alloc_compressor(PNG_LEVEL);
	uint8_t *raw = malloc(rows), *file = NULL;

	if (deflate && raw) {
		size_t bound = libdeflate_zlib_compress_bound(deflate, rows);
		filter_rows(pixels, width, height, channels, raw);
		file = malloc(FIRST_IDAT + CHUNK + bound + CHUNK);
		if (file) {
			uint8_t ihdr[IHDR_SIZE] = { 0 };
			write_u32(ihdr, (uint32_t)width);
			write_u32(ihdr + 4, (uint32_t)height);
			ihdr[8] = 8;
			ihdr[9] = channels == 1 ? COLOUR_GRAY : COLOUR_RGBA;
			memcpy(file, "\x89PNG\r\n\x1a\n", SIGNATURE);
			uint8_t *p = put_chunk(file + SIGNATURE, "IHDR", ihdr, IHDR_SIZE);
			p = put_chunk(p, "IDAT", p + 8, libdeflate_zlib_compress(deflate, raw, rows, p + 8, bound));
			p = put_chunk(p, "IEND", NULL, 0);
			*size = (size_t)(p - file);
		}
	}
	if (deflate)
		libdeflate_free_compressor(deflate);
	free(raw);
	return file;
}
