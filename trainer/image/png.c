/* SPDX-License-Identifier: Apache-2.0
 * PNG (W3C PNG specification, third edition). 8-bit gray without interlace, which nearly all of ChestX-ray14 is, takes a path
 * of our own on libdeflate and png_unfilter(), with the same pixels as libspng; tests/bench/data.sh measures it.
 * Everything else goes through libspng, once its chunks and its compressed data have been found sound in the same way. */
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

enum { CHUNKS = 4 }; /* of those before the image data that say what its samples mean; a sound file has two at most */

struct header {
	uint32_t width, height;
	int depth, colour, interlaced;
	int transparent;
	size_t before[CHUNKS]; /* where palette and transparency are in the file */
	int n_before;
	size_t entries; /* of the palette */
};

/* Channels of each colour type, and 0 where there is none. */
static const uint8_t channels_of[] = { 1, 0, 3, 1, 2, 0, 4 };

static int check_kind(const struct header *h, const uint8_t *methods, struct error *why)
{
	int bits = h->depth, of_one = h->colour == COLOUR_GRAY || h->colour == COLOUR_PALETTE;

	if (h->colour >= (int)sizeof channels_of || !channels_of[h->colour])
		return fail(why, EXIT_DATA, "PNG: colour type %d, which is none", h->colour);
	if (bits != 8 && (bits != 16 || h->colour == COLOUR_PALETTE) && ((bits != 1 && bits != 2 && bits != 4) || !of_one))
		return fail(why, EXIT_DATA, "PNG: %d bits a sample, which colour type %d has not", bits, h->colour);
	if (methods[0] || methods[1] || methods[2] > 1)
		return fail(why, EXIT_DATA, "PNG: %s method %d, which is none", methods[0] ? "compression" : methods[1] ? "filter" : "interlace",
			    methods[0] ? methods[0] : methods[1] ? methods[1] : methods[2]);
	return check_size(h->width, h->height, why);
}

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
	*h = (struct header){ read_u32(p), read_u32(p + 4), p[8], p[9], .interlaced = p[12] };
	return check_kind(h, p + 10, why);
}

/* What a chunk other than image data has to say of the pixels. An ancillary one that is damaged, misplaced or repeated leaves an image as readable
 * as it was, and so it does here (specification, 13.1), but for an Exif one that says that the image is turned. */
static int take_chunk(struct header *h, const uint8_t *file, size_t at, int after_data, struct error *why)
{
	const uint8_t *type = file + at + 4;
	uint32_t length = read_u32(file + at);

	if (memcmp(type, "eXIf", 4) == 0)
		return check_upright("PNG", type + 4, length, why);
	if (memcmp(type, "PLTE", 4) == 0) {
		if (after_data || h->entries)
			return fail(why, EXIT_DATA, "PNG: a %s at byte %zu", after_data ? "palette behind the image data" : "second palette", at);
		if (length == 0 || length % 3 || length > 3 * 256)
			return fail(why, EXIT_DATA, "PNG: a palette of %u bytes at byte %zu; three for each of 1 to 256 colours", length, at);
		h->entries = length / 3;
	} else if (memcmp(type, "tRNS", 4) == 0 && !after_data) {
		h->transparent = 1;
	} else if (memcmp(type, "IHDR", 4) == 0) {
		return fail(why, EXIT_DATA, "PNG: a second header at byte %zu", at);
	} else if (!(type[0] & 0x20) && memcmp(type, "IEND", 4) != 0) {
		return fail(why, EXIT_DATA, "PNG: the chunk at byte %zu is of a kind that is unknown here, and says that it has to be known", at);
	} else {
		return 0;
	}
	if (h->n_before < CHUNKS)
		h->before[h->n_before++] = at;
	return 0;
}

/* Walks all chunks, checks their CRCs and puts the image data together in d->packed; finds palette and transparency. */
static int collect(struct decoder *d, const uint8_t *file, size_t size, struct header *h, size_t *packed, struct error *why)
{
	size_t at = FIRST_IDAT, data_end = 0;
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
			if (data_end && data_end != at)
				return fail(why, EXIT_DATA, "PNG: image data at byte %zu, apart from what ends at byte %zu", at, data_end);
			memcpy(d->packed.data + *packed, type + 4, length);
			*packed += length;
			data_end = at + CHUNK + length;
		} else if (take_chunk(h, file, at, data_end != 0, why)) {
			return -why->code;
		}
		ended = memcmp(type, "IEND", 4) == 0;
		at += CHUNK + (size_t)length;
	}
	return 0;
}

/* Pass i of an image, of one or of Adam7's seven: its rows, and the bytes of each, with the filter; 0: none. */
static size_t pass_rows(const struct header *h, int i, size_t *row)
{
	static const uint8_t x0[] = { 0, 4, 0, 2, 0, 1, 0 }, y0[] = { 0, 0, 4, 0, 2, 0, 1 };
	static const uint8_t dx[] = { 8, 8, 4, 4, 2, 2, 1 }, dy[] = { 8, 8, 8, 4, 4, 2, 2 };
	size_t width = h->width, height = h->height;

	if (h->interlaced) {
		width = (width + dx[i] - 1 - x0[i]) / dx[i];
		height = (height + dy[i] - 1 - y0[i]) / dy[i];
	}
	*row = 1 + (width * channels_of[h->colour] * (size_t)h->depth + 7) / 8;
	return width ? height : 0;
}

/* Inflates to d->raw, with `beyond` bytes of room behind it, and looks at the filter of each row. */
static int inflate_rows(struct decoder *d, const struct header *h, size_t packed, size_t beyond, size_t *size, struct error *why)
{
	size_t row, have, at = 0;
	int passes = h->interlaced ? 7 : 1;

	*size = 0;
	for (int i = 0; i < passes; i++)
		*size += pass_rows(h, i, &row) * row;
	if (scratch_reserve(&d->raw, *size + beyond, why))
		return -why->code;
	enum libdeflate_result rc = libdeflate_zlib_decompress(d->inflate, d->packed.data, packed, d->raw.data, *size, &have);
	if (rc == LIBDEFLATE_INSUFFICIENT_SPACE || (rc == LIBDEFLATE_SUCCESS && have != *size))
		return fail(why, EXIT_DATA, "PNG: holds %s than its %u x %u pixels", rc == LIBDEFLATE_SUCCESS ? "less" : "more", h->width, h->height);
	if (rc != LIBDEFLATE_SUCCESS)
		return fail(why, EXIT_DATA, "PNG: its compressed data is corrupt");
	for (int i = 0; i < passes; i++)
		for (size_t y = 0, rows = pass_rows(h, i, &row); y < rows; y++, at += row)
			if (d->raw.data[at] > 4)
				return fail(why, EXIT_DATA, "PNG: row %zu has filter %d, which is none", y, d->raw.data[at]);
	return 0;
}

static int decode_gray8(struct decoder *d, const struct header *h, size_t packed, struct image *image, struct error *why)
{
	size_t width = h->width, height = h->height, beyond = width + PNG_UNFILTER_BEYOND, size;

	if (scratch_reserve(&d->gray, width * height + PNG_UNFILTER_BEYOND, why) || inflate_rows(d, h, packed, beyond, &size, why))
		return -why->code;
	memset(d->raw.data + size, 0, beyond);
	png_unfilter(d->raw.data, width, height, d->gray.data);
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

/* The file in d->packed with libspng, to RGBA in d->raw. */
static int decode_with_spng(struct decoder *d, size_t size, int flags, struct error *why)
{
	spng_ctx *ctx = spng_ctx_new(0);

	if (!ctx)
		return fail(why, EXIT_INTERNAL, "no memory for a PNG decoder");
	size_t bytes = 0;
	int rc = spng_set_png_buffer(ctx, d->packed.data, size);
	if (!rc)
		rc = spng_decoded_image_size(ctx, SPNG_FMT_RGBA8, &bytes);
	if (!rc && scratch_reserve(&d->raw, bytes, why) == 0)
		rc = spng_decode_image(ctx, d->raw.data, bytes, SPNG_FMT_RGBA8, flags);
	spng_ctx_free(ctx);
	if (rc == SPNG_EMEM || rc == SPNG_EZLIB_INIT)
		return fail(why, EXIT_INTERNAL, "no memory for a PNG decoder");
	return why->code ? -why->code : rc ? fail(why, EXIT_DATA, "PNG: %s", spng_strerror(rc)) : 0;
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

enum { STORED = 65535, STORED_MORE = 5, ZLIB_MORE = 6 }; /* bytes of a block that is not compressed (RFC 1951, 3.2.4), and what is about it and the whole */

/* A zlib stream of what is not compressed; returns its end. */
static uint8_t *store(uint8_t *p, const uint8_t *raw, size_t size)
{
	p = mempcpy(p, "\x78\x01", 2);
	for (size_t at = 0, n; at < size; at += n) {
		n = size - at < STORED ? size - at : STORED;
		p = mempcpy(p, (uint8_t[]){ at + n == size, n & 255, n >> 8, ~n & 255, ~n >> 8 & 255 }, STORED_MORE);
		p = mempcpy(p, raw + at, n);
	}
	write_u32(p, libdeflate_adler32(1, raw, size));
	return p + 4;
}

/* In d->packed a file of nothing but what its pixels are: what else there is can make libspng refuse it, or not, by its release. *palette: where its
 * colours are. */
static int make_plain(struct decoder *d, const uint8_t *file, const struct header *h, size_t raw, size_t *palette, size_t *size, struct error *why)
{
	size_t room = FIRST_IDAT + 2 * CHUNK + ZLIB_MORE + raw + (raw / STORED + 1) * STORED_MORE;

	for (int i = 0; i < h->n_before; i++)
		room += CHUNK + (size_t)read_u32(file + h->before[i]);
	if (scratch_reserve(&d->packed, room, why))
		return -why->code;
	uint8_t *p = mempcpy(d->packed.data, file, FIRST_IDAT);
	for (int i = 0; i < h->n_before; i++) {
		const uint8_t *chunk = file + h->before[i];

		if (memcmp(chunk + 4, "PLTE", 4) == 0)
			*palette = (size_t)(p + 8 - d->packed.data);
		p = mempcpy(p, chunk, CHUNK + (size_t)read_u32(chunk));
	}
	p = put_chunk(p, "IDAT", p + 8, (size_t)(store(p + 8, d->raw.data, raw) - (p + 8)));
	*size = (size_t)(put_chunk(p, "IEND", NULL, 0) - d->packed.data);
	return 0;
}

/* libspng takes an index beyond the palette for black: what is black even where every colour of the palette is white has one. */
static int check_indices(struct decoder *d, size_t size, const struct header *h, size_t palette, struct error *why)
{
	uint8_t *colours = d->packed.data + palette, was[3 * 256 + 4];
	size_t bytes = 3 * h->entries;

	memcpy(was, colours, bytes + 4);
	memset(colours, 255, bytes);
	write_u32(colours + bytes, libdeflate_crc32(0, colours - 4, 4 + bytes));
	if (decode_with_spng(d, size, 0, why))
		return -why->code;
	memcpy(colours, was, bytes + 4);
	for (size_t i = 0; i < (size_t)h->width * h->height; i++)
		if (d->raw.data[4 * i] == 0)
			return fail(why, EXIT_DATA, "PNG: pixel %zu,%zu has a colour beyond the %zu of its palette", i % h->width, i / h->width, h->entries);
	return 0;
}

static int decode_general(struct decoder *d, const uint8_t *file, const struct header *h, size_t packed, struct image *image, struct error *why)
{
	size_t width = h->width, height = h->height, raw = 0, size = 0, palette = 0;

	if (scratch_reserve(&d->gray, width * height, why) || inflate_rows(d, h, packed, 0, &raw, why) || make_plain(d, file, h, raw, &palette, &size, why))
		return -why->code;
	if ((palette && h->colour == COLOUR_PALETTE && check_indices(d, size, h, palette, why)) || decode_with_spng(d, size, SPNG_DECODE_TRNS, why))
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
	if (h.depth == 8 && h.colour == COLOUR_GRAY && !h.interlaced && !h.transparent)
		return decode_gray8(d, &h, packed, image, why);
	return decode_general(d, file, &h, packed, image, why);
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
