/* SPDX-License-Identifier: Apache-2.0
 * Undoing PNG's row filters for one byte a pixel (PNG specification, third edition, section 9).
 *
 * A pixel depends on its left neighbour, so a row is a chain of a dozen dependent operations a pixel: at 1024 x 1024 that was
 * two fifths of all decoding. But row r + 1 may follow row r one pixel behind, and so BAND rows are undone at once, row r in
 * lane r of a vector, at pixel t - r in step t: the neighbour above is the previous result of the lane beside. */
#include <stdlib.h>
#include <string.h>

#include "data/decode.h"

#if defined(__SSE2__)
#include <emmintrin.h>

enum { BAND = 8 }; /* rows; steps that are loaded, undone and stored together */

/* rows[r] byte k to columns[k] byte r: eight bytes in each of eight words, two words a vector. */
static inline void transpose(const uint64_t rows[BAND], __m128i columns[BAND / 2])
{
	__m128i pair[4], four[4];

	for (int i = 0; i < 4; i++)
		pair[i] = _mm_unpacklo_epi8(_mm_cvtsi64_si128((long long)rows[2 * i]), _mm_cvtsi64_si128((long long)rows[2 * i + 1]));
	for (int i = 0; i < 2; i++) {
		four[i] = _mm_unpacklo_epi16(pair[2 * i], pair[2 * i + 1]);
		four[i + 2] = _mm_unpackhi_epi16(pair[2 * i], pair[2 * i + 1]);
	}
	for (int i = 0; i < 2; i++) {
		columns[2 * i] = _mm_unpacklo_epi32(four[2 * i], four[2 * i + 1]);
		columns[2 * i + 1] = _mm_unpackhi_epi32(four[2 * i], four[2 * i + 1]);
	}
}

static inline __m128i choose(__m128i mask, __m128i yes, __m128i no)
{
	return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}

static inline __m128i magnitude(__m128i v)
{
	return _mm_max_epi16(v, _mm_sub_epi16(_mm_setzero_si128(), v));
}

/* Which lanes have which filter; all bits set where they do. */
struct filters {
	__m128i left, up, average, paeth;
};

static inline __m128i predict(const struct filters *f, __m128i left, __m128i up, __m128i corner)
{
	__m128i p = _mm_sub_epi16(up, corner), q = _mm_sub_epi16(left, corner);
	__m128i by_left = magnitude(p), by_up = magnitude(q), by_corner = magnitude(_mm_add_epi16(p, q));
	__m128i best = choose(_mm_cmpgt_epi16(by_left, by_up), up, left);
	__m128i paeth = choose(_mm_cmpgt_epi16(_mm_min_epi16(by_left, by_up), by_corner), corner, best);
	__m128i average = _mm_srli_epi16(_mm_add_epi16(left, up), 1);

	return _mm_or_si128(_mm_or_si128(_mm_and_si128(paeth, f->paeth), _mm_and_si128(average, f->average)),
			    _mm_or_si128(_mm_and_si128(left, f->left), _mm_and_si128(up, f->up)));
}

/* What goes from one step to the next. */
struct wave {
	__m128i left, corner;
};

/* One step; above: the pixel over lane 0. */
static inline __m128i step(const struct filters *f, struct wave *w, __m128i in, uint64_t above)
{
	__m128i up = _mm_or_si128(_mm_slli_si128(w->left, 2), _mm_cvtsi32_si128((int)(above & 255)));

	w->left = _mm_and_si128(_mm_add_epi16(in, predict(f, w->left, up, w->corner)), _mm_set1_epi16(255));
	w->corner = up;
	return w->left;
}

/* Eight steps: columns [BAND / 2] hold two columns each, raw before and undone after. */
static inline void eight_steps(const struct filters *f, struct wave *w, __m128i columns[BAND / 2], uint64_t above)
{
	for (int i = 0; i < BAND / 2; i++) {
		__m128i first = step(f, w, _mm_unpacklo_epi8(columns[i], _mm_setzero_si128()), above >> 16 * i);
		__m128i second = step(f, w, _mm_unpackhi_epi8(columns[i], _mm_setzero_si128()), above >> (16 * i + 8));
		columns[i] = _mm_packus_epi16(first, second);
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
	struct wave w = { _mm_setzero_si128(), _mm_setzero_si128() };
	int16_t lane[4][BAND];

	for (int filter = 1; filter <= 4; filter++)
		for (int r = 0; r < BAND; r++)
			lane[filter - 1][r] = -(in[(size_t)r * (width + 1)] == filter);
	struct filters f;
	memcpy(&f, lane, sizeof f);
	for (size_t t = 0; t < width + BAND - 1; t += BAND) {
		uint64_t rows[BAND];
		__m128i columns[BAND / 2];
		for (size_t r = 0; r < BAND; r++) {
			const uint8_t *row = in + r * (width + 1) + 1;
			/* zeros before a row's first pixel: its neighbours there are zero too, and so stays all that comes of them */
			rows[r] = t ? t < width + r ? load8(row + t - r) : 0 : load8(row) << 8 * r;
		}
		transpose(rows, columns);
		eight_steps(&f, &w, columns, t < width ? load8(up + t) : 0);
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

#else
enum { BAND = 0 };
#endif

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
		rows = BAND && height - y >= BAND ? BAND : 1;
#if defined(__SSE2__)
		if (rows == BAND)
			undo_band(raw + y * (width + 1), up, out + y * width, width);
		else
#endif
			undo_row(raw + y * (width + 1), up, out + y * width, width);
		up = out + (y + rows - 1) * width;
	}
	return 0;
}
