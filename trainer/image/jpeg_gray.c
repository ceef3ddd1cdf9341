/* SPDX-License-Identifier: Apache-2.0
 * Baseline JPEG of one component (ITU-T T.81), the kind that prepared sets hold, in half the time that libjpeg-turbo 2.1 takes, in
 * less with AVX-512, and with its pixels. Whatever is not plain and sound is left to libjpeg-turbo, which also finds the words for
 * what is wrong with it, and so is everything on processors without AVX2. */
#include <stdlib.h>
#include <string.h>

#include "image/jpeg_gray.h"

#if !defined(__x86_64__)

int decode_jpeg_gray(struct decoder *d, const uint8_t *file, size_t size, struct image *image)
{
	(void)d, (void)file, (void)size, (void)image;
	return 0;
}

#else

enum { CHUNK = 32 }; /* blocks whose coefficients are in memory at a time, of each lane: one row of 256 pixels */

struct picture {
	const struct frame *frame;
	const struct gray_tables *tables;
	struct transform transform;
	uint8_t *pixels; /* [height][width] */
	int all;         /* blocks */
	_Alignas(32) int16_t blocks[2][(CHUNK + 2) * BLOCK];
};

/* Takes out the zeros behind 0xFF bytes up to the next marker; returns the number of bytes, and *p is at the marker. */
static size_t unstuff(const uint8_t **p, const uint8_t *end, uint8_t *out)
{
	uint8_t *begin = out;

	for (;;) {
		const uint8_t *ff = memchr(*p, 0xFF, (size_t)(end - *p));
		if (!ff || ff + 1 == end)
			ff = end;
		memcpy(out, *p, (size_t)(ff - *p));
		out += ff - *p;
		*p = ff;
		if (ff == end || ff[1] != 0)
			break;
		*out++ = 0xFF;
		*p += 2;
	}
	memset(out, 0, BEYOND);
	return (size_t)(out - begin);
}

/* Whether the marker that comes after that many restart markers is here; goes past it. */
static int at_marker(const uint8_t **p, const uint8_t *end, int is_last, int before)
{
	int marker = end - *p < 2 ? -1 : (*p)[1];

	*p += 2;
	return marker == (is_last ? 0xD9 : 0xD0 + before % 8);
}

/* Blocks [first, first + n) of the picture out of coefficients. */
static void draw(struct picture *p, const int16_t *blocks, int first, int n)
{
	size_t width = (size_t)p->frame->width, height = (size_t)p->frame->height;
	int across = (p->frame->width + SIDE - 1) / SIDE, done = 0;

	while (done < n) {
		size_t x = (size_t)((first + done) % across) * SIDE, y = (size_t)((first + done) / across) * SIDE;
		int here = n - done, whole = (int)((width - x) / SIDE);
		here = (here < whole ? here : whole) & ~1;
		if (here && y + SIDE <= height) {
			jpeg_transform(&p->transform, blocks + done * BLOCK, here, p->pixels + y * width + x, width);
			done += here;
			continue;
		}
		uint8_t edge[SIDE][2 * SIDE]; /* one block, and another that nobody asked for */
		jpeg_transform(&p->transform, blocks + done * BLOCK, 2, edge[0], 2 * SIDE);
		for (size_t row = 0; row < SIDE && y + row < height; row++)
			memcpy(p->pixels + (y + row) * width + x, edge[row], width - x < SIDE ? width - x : SIDE);
		done++;
	}
}

/* `n` lanes, one or two, of count[i] blocks from number first[i] on. */
static int read_lanes(struct picture *p, struct lane *lanes, int n, const int *first, const int *count)
{
	int16_t *out[2] = { p->blocks[0], p->blocks[1] };

	for (int begin = 0; begin < count[0]; begin += CHUNK) {
		int part[2];
		for (int i = 0; i < n; i++) {
			int left = count[i] - begin;
			part[i] = left < 0 ? 0 : left < CHUNK ? left : CHUNK;
			memset(out[i], 0, (size_t)(part[i] + 2) * BLOCK * sizeof *out[i]);
		}
		if (!jpeg_blocks(p->tables, p->frame, lanes, n, part, out))
			return 0;
		for (int i = 0; i < n; i++)
			draw(p, out[i], first[i] + begin, part[i]);
	}
	for (int i = 0; i < n; i++) /* everything was used, but for the bits that fill the last byte */
		if (lanes[i].used > 8 * lanes[i].size || 8 * lanes[i].size - lanes[i].used >= 8)
			return 0;
	return !p->transform.beyond;
}

static int read_picture(struct picture *p, uint8_t *room)
{
	const struct frame *f = p->frame;
	const uint8_t *at = f->scan;
	int blocks = p->all, step = f->restart ? f->restart : blocks;

	for (int i = 0, segment = 0; i < blocks;) {
		struct lane lanes[2];
		int first[2] = { 0 }, count[2] = { 0 }, n = 0;
		for (uint8_t *data = room; n < 2 && i < blocks; n++, segment++) {
			first[n] = i;
			count[n] = blocks - i < step ? blocks - i : step;
			lanes[n] = (struct lane){ .data = data, .size = unstuff(&at, f->end, data) };
			i += count[n];
			if (!at_marker(&at, f->end, i == blocks, segment))
				return 0;
			data += lanes[n].size + BEYOND;
		}
		if (!read_lanes(p, lanes, n, first, count))
			return 0;
	}
	return 1;
}

/* ---- with AVX-512 -------------------------------------------------------------------------------------- */

/* Fewer stretches are done sooner two by two; more blocks than these in one would not stay in the cache. */
enum { STRETCHES_MIN = 8, STRETCHES = 1024, STRETCH_BLOCKS = 256 };

static int draw_stretch(void *argument, const struct stretch *s, int16_t *blocks)
{
	draw(argument, blocks, s->first, s->blocks);
	return 1;
}

static int fits_lanes(const struct frame *f, int blocks, size_t size)
{
	return f->restart && f->restart <= STRETCH_BLOCKS && blocks >= STRETCHES_MIN * f->restart &&
	       blocks <= STRETCHES * f->restart && size < INT32_MAX / 8;
}

static int read_picture_in_lanes(struct picture *p, uint8_t *room, int16_t *coefficients)
{
	const struct frame *f = p->frame;
	const uint8_t *at = f->scan;
	struct stretch stretch[STRETCHES];
	struct lanes l = { .data = room, .stretch = stretch, .room = f->restart, .blocks = coefficients, .finish = draw_stretch, .argument = p };
	uint32_t end = 0;

	for (int i = 0; i < p->all; l.n++) {
		int n = p->all - i < f->restart ? p->all - i : f->restart;
		struct stretch *s = &stretch[l.n];
		*s = (struct stretch){ end, end + (uint32_t)unstuff(&at, f->end, room + end), i, n };
		end = s->end;
		i += n;
		if (!at_marker(&at, f->end, i == p->all, l.n))
			return 0;
	}
	return jpeg_lanes(&l, &p->tables->code[0][f->dc], &p->tables->code[1][f->ac]) && !p->transform.beyond;
}

int decode_jpeg_gray(struct decoder *d, const uint8_t *file, size_t size, struct image *image)
{
	struct frame f = { .width = 0 };
	struct error why = { 0 };

	if (!__builtin_cpu_supports("avx2"))
		return 0;
	if (!d->tables && (d->tables = calloc(1, sizeof *d->tables)))
		jpeg_make_tables(d->tables);
	if (!d->tables || !jpeg_read_headers(&f, d->tables, file, size) || scratch_reserve(&d->packed, size + 2 * BEYOND, &why))
		return 0;
	int there = d->into && f.width == d->side && f.height == d->side;
	if (!there && scratch_reserve(&d->gray, (size_t)f.width * (size_t)f.height, &why))
		return 0;
	struct picture p;
	p.frame = &f;
	p.tables = d->tables;
	p.pixels = there ? d->into : d->gray.data;
	p.all = ((f.width + SIDE - 1) / SIDE) * ((f.height + SIDE - 1) / SIDE);
	int wide = !d->narrow && jpeg_has_avx512();
	jpeg_transform_init(&p.transform, f.quant[f.which_quant], d->tables->natural, wide);
	if (wide && fits_lanes(&f, p.all, size)) {
		size_t room = (size_t)LANES * (size_t)(f.restart + LANE_SLACK) * BLOCK * sizeof(int16_t);
		if (scratch_reserve(&d->raw, room, &why) || !read_picture_in_lanes(&p, d->packed.data, (int16_t *)d->raw.data))
			return 0;
	} else if (!read_picture(&p, d->packed.data)) {
		return 0;
	}
	*image = (struct image){ f.width, f.height, p.pixels };
	return 1;
}
#endif
