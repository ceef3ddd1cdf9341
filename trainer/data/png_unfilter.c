/* SPDX-License-Identifier: Apache-2.0
 * Undoing PNG's row filters for one byte a pixel (PNG specification, third edition, section 9).
 *
 * A pixel depends on its left neighbour, so a row is a chain of a dozen dependent operations a pixel: at 1024 x 1024 that was
 * two fifths of all decoding. But row r + 1 may follow row r one pixel behind, and so BAND rows are undone at once, row r in
 * lane r of a vector, at pixel t - r in step t: the neighbour above is the previous result of the lane beside. */
#include <stdlib.h>
#include <string.h>

#include "data/decode.h"

enum { BAND = 8 }; /* rows; steps that are loaded, undone and stored together */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pixels are moved eight at a time");

typedef int16_t lanes __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));
typedef uint32_t quads4 __attribute__((vector_size(16)));
typedef uint64_t eights2 __attribute__((vector_size(16)));

/* rows[r] byte k to columns[k] byte r: eight bytes in each of eight words, which is its own inverse. */
static inline void transpose(const uint64_t rows[BAND], eights2 columns[BAND / 2])
{
	bytes16 pair[4];

	for (int i = 0; i < 4; i++)
		pair[i] = __builtin_shuffle((bytes16)(eights2){ rows[2 * i] }, (bytes16)(eights2){ rows[2 * i + 1] },
					    (bytes16){ 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23 });
	for (int half = 0; half < 2; half++) {
		words8 low = (words8)pair[2 * half], high = (words8)pair[2 * half + 1];
		pair[2 * half] = (bytes16)__builtin_shuffle(low, high, (words8){ 0, 8, 1, 9, 2, 10, 3, 11 });
		pair[2 * half + 1] = (bytes16)__builtin_shuffle(low, high, (words8){ 4, 12, 5, 13, 6, 14, 7, 15 });
	}
	for (int i = 0; i < 2; i++) {
		quads4 low = (quads4)pair[i], high = (quads4)pair[i + 2];
		columns[2 * i] = (eights2)__builtin_shuffle(low, high, (quads4){ 0, 4, 1, 5 });
		columns[2 * i + 1] = (eights2)__builtin_shuffle(low, high, (quads4){ 2, 6, 3, 7 });
	}
}

static inline lanes choose(lanes mask, lanes yes, lanes no)
{
	return (yes & mask) | (no & ~mask);
}

static inline lanes distance(lanes v)
{
	lanes sign = v >> 15;
	return (v ^ sign) - sign;
}

/* Which lanes have which filter; all bits set where they do. */
struct filters {
	lanes left, up, average, paeth;
};

static inline lanes predict(const struct filters *f, lanes left, lanes up, lanes corner)
{
	lanes p = up - corner, q = left - corner;
	lanes by_left = distance(p), by_up = distance(q), by_corner = distance(p + q);
	lanes paeth = choose((by_left <= by_up) & (by_left <= by_corner), left, choose(by_up <= by_corner, up, corner));

	return (paeth & f->paeth) | (((left + up) >> 1) & f->average) | (left & f->left) | (up & f->up);
}

/* What goes from one step to the next. */
struct wave {
	lanes left, corner;
};

/* Eight steps: raw and result [BAND / 2] hold two columns each, above the pixels over lane 0. */
static inline void eight_steps(const struct filters *f, struct wave *w, const eights2 raw[BAND / 2], uint64_t above, eights2 result[BAND / 2])
{
	for (int i = 0; i < BAND / 2; i++) {
		lanes column[2];
		for (int k = 0; k < 2; k++) {
			lanes in = (lanes)__builtin_shuffle((bytes16)raw[i], (bytes16){ 0 }, k == 0
					? (bytes16){ 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16 }
					: (bytes16){ 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15, 16 });
			lanes up = __builtin_shuffle((lanes){ 0 }, w->left, (lanes){ 0, 8, 9, 10, 11, 12, 13, 14 }) |
				   (lanes){ (int16_t)(above >> 8 * (2 * i + k) & 255) };
			w->left = (in + predict(f, w->left, up, w->corner)) & 255;
			w->corner = up;
			column[k] = w->left;
		}
		result[i] = (eights2)__builtin_shuffle((bytes16)column[0], (bytes16)column[1],
						       (bytes16){ 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 });
	}
}

static uint64_t load8(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

/* in: BAND rows of 1 + width bytes, filter first; up: the row above; out: BAND rows of width. Reads up to 8 bytes beyond in and up. */
static void undo_band(const uint8_t *in, const uint8_t *up, uint8_t *out, size_t width)
{
	struct filters f = { .left = { 0 } };
	struct wave w = { .left = { 0 } };

	for (int r = 0; r < BAND; r++) {
		int filter = in[(size_t)r * (width + 1)];
		f.left[r] = -(filter == 1), f.up[r] = -(filter == 2), f.average[r] = -(filter == 3), f.paeth[r] = -(filter == 4);
	}
	for (size_t t = 0; t < width + BAND - 1; t += BAND) {
		uint64_t rows[BAND];
		eights2 columns[BAND / 2];
		for (size_t r = 0; r < BAND; r++) {
			const uint8_t *row = in + r * (width + 1) + 1;
			/* zeros before a row's first pixel: its neighbours there are zero too, and so stays all that comes of them */
			rows[r] = t ? t < width + r ? load8(row + t - r) : 0 : load8(row) << 8 * r;
		}
		transpose(rows, columns);
		eight_steps(&f, &w, columns, t < width ? load8(up + t) : 0, columns);
		memcpy(rows, columns, sizeof rows);
		transpose(rows, columns);
		memcpy(rows, columns, sizeof rows);
		for (size_t r = 0; r < BAND; r++) {
			size_t skip = t ? 0 : r, at = t + skip - r;
			rows[r] >>= 8 * skip;
			if (at + BAND <= width && !skip)
				memcpy(out + r * width + at, &rows[r], BAND);
			else if (at < width)
				memcpy(out + r * width + at, &rows[r], width - at < BAND - skip ? width - at : BAND - skip);
		}
	}
}

/* One row alone: what is left below the last whole band. */
static void undo_row(const uint8_t *in, const uint8_t *up, uint8_t *out, size_t width)
{
	int left = 0, corner = 0;

	for (size_t x = 0; x < width; x++) {
		int p = up[x] - corner, q = left - corner, predicted = 0;
		switch (in[0]) {
		case 1:
			predicted = left;
			break;
		case 2:
			predicted = up[x];
			break;
		case 3:
			predicted = (left + up[x]) >> 1;
			break;
		case 4:
			predicted = abs(p) <= abs(q) && abs(p) <= abs(p + q) ? left : abs(q) <= abs(p + q) ? up[x] : corner;
			break;
		}
		corner = up[x];
		out[x] = (uint8_t)(left = (uint8_t)(in[1 + x] + predicted));
	}
}

int png_unfilter(const uint8_t *raw, size_t width, size_t height, uint8_t *out, struct error *why)
{
	const uint8_t *up = raw + height * (width + 1);

	for (size_t y = 0; y < height; y++)
		if (raw[y * (width + 1)] > 4)
			return fail(why, EXIT_DATA, "PNG: row %zu has filter %d, which is none", y, raw[y * (width + 1)]);
	for (size_t y = 0, rows; y < height; y += rows) {
		rows = height - y >= BAND ? BAND : 1;
		(rows == BAND ? undo_band : undo_row)(raw + y * (width + 1), up, out + y * width, width);
		up = out + (y + rows - 1) * width;
	}
	return 0;
}
