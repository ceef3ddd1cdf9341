/* SPDX-License-Identifier: Apache-2.0
 * Undoing PNG's row filters for one byte a pixel (PNG specification, third edition, section 9).
 *
 * A pixel depends on its left neighbour, so a row is a chain of a dozen dependent operations a pixel: at 1024 x 1024 that was
 * two fifths of all decoding. But row r + 1 may follow row r one pixel behind, and so BAND rows are undone at once, row r in
 * lane r of a vector, at pixel t - r in step t: the neighbour above is the previous result of the lane beside. With AVX2 two
 * bands are undone at once, as the chain is what takes the time and not the arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "image/decode.h"

#if defined(__SSE2__)
#include <immintrin.h>

enum { BAND = 8 }; /* rows; steps that are loaded, undone and stored together */

/* Which lanes have which filter; all bits set where they do. */
struct filters {
	int16_t left[BAND], up[BAND], average[BAND], paeth[BAND];
};

static void which_filters(const uint8_t *in, size_t width, struct filters *f)
{
	for (int r = 0; r < BAND; r++) {
		uint8_t filter = in[(size_t)r * (width + 1)];
		f->left[r] = -(filter == 1);
		f->up[r] = -(filter == 2);
		f->average[r] = -(filter == 3);
		f->paeth[r] = -(filter == 4);
	}
}

static inline uint64_t load8(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

/* Bytes of steps t … t + 7 of each row of a band; zeros before a row's first pixel: its neighbours there are zero too, and so stays
 * all that comes of them. Reads up to 8 bytes beyond a row. */
static inline void load_steps(uint64_t rows[BAND], const uint8_t *in, size_t width, size_t t)
{
	for (size_t r = 0; r < BAND; r++) {
		const uint8_t *row = in + r * (width + 1) + 1;
		rows[r] = t ? t < width + r ? load8(row + t - r) : 0 : load8(row) << 8 * r;
	}
}

static inline void store_steps(uint64_t rows[BAND], uint8_t *out, size_t width, size_t t)
{
	for (size_t r = 0; r < BAND; r++) {
		size_t skip = t ? 0 : r, at = t + skip - r;
		rows[r] >>= 8 * skip;
		if (at + BAND <= width && !skip)
			memcpy(out + r * width + at, &rows[r], BAND);
		else if (at < width)
			memcpy(out + r * width + at, &rows[r], width - at < BAND - skip ? width - at : BAND - skip);
	}
}

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

static inline __m128i lanes(const int16_t mask[BAND])
{
	return _mm_loadu_si128((const __m128i *)mask);
}

static inline __m128i predict(const struct filters *f, __m128i left, __m128i up, __m128i corner)
{
	__m128i p = _mm_sub_epi16(up, corner), q = _mm_sub_epi16(left, corner);
	__m128i by_left = magnitude(p), by_up = magnitude(q), by_corner = magnitude(_mm_add_epi16(p, q));
	__m128i best = choose(_mm_cmpgt_epi16(by_left, by_up), up, left);
	__m128i paeth = choose(_mm_cmpgt_epi16(_mm_min_epi16(by_left, by_up), by_corner), corner, best);
	__m128i average = _mm_srli_epi16(_mm_add_epi16(left, up), 1);

	return _mm_or_si128(_mm_or_si128(_mm_and_si128(paeth, lanes(f->paeth)), _mm_and_si128(average, lanes(f->average))),
			    _mm_or_si128(_mm_and_si128(left, lanes(f->left)), _mm_and_si128(up, lanes(f->up))));
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

/* in: BAND rows of 1 + width bytes, filter first; up: the row above; out: BAND rows of width. Reads up to 8 bytes beyond in and up. */
static void undo_band(const uint8_t *in, const uint8_t *up, uint8_t *out, size_t width)
{
	struct wave w = { _mm_setzero_si128(), _mm_setzero_si128() };
	struct filters f;

	which_filters(in, width, &f);
	for (size_t t = 0; t < width + BAND - 1; t += BAND) {
		uint64_t rows[BAND];
		__m128i columns[BAND / 2];
		load_steps(rows, in, width, t);
		transpose(rows, columns);
		eight_steps(&f, &w, columns, t < width ? load8(up + t) : 0);
		memcpy(rows, columns, sizeof rows);
		transpose(rows, columns);
		memcpy(rows, columns, sizeof rows);
		store_steps(rows, out, width, t);
	}
}

/* ---- two bands at once, one in each half of a vector ------------------------------------------------- */

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline, target("avx2")))

/* How many steps the lower band follows the upper one, whose last row it needs: that is BAND - 1 steps late itself, and comes
 * into memory after BAND steps. */
enum { BEHIND = 2 * BAND };

INLINE void transpose_two(const uint64_t upper[BAND], const uint64_t lower[BAND], __m256i columns[BAND / 2])
{
	__m256i pair[4], four[4];

	for (int i = 0; i < 4; i++)
		pair[i] = _mm256_unpacklo_epi8(_mm256_set_epi64x(0, (long long)lower[2 * i], 0, (long long)upper[2 * i]),
					       _mm256_set_epi64x(0, (long long)lower[2 * i + 1], 0, (long long)upper[2 * i + 1]));
	for (int i = 0; i < 2; i++) {
		four[i] = _mm256_unpacklo_epi16(pair[2 * i], pair[2 * i + 1]);
		four[i + 2] = _mm256_unpackhi_epi16(pair[2 * i], pair[2 * i + 1]);
	}
	for (int i = 0; i < 2; i++) {
		columns[2 * i] = _mm256_unpacklo_epi32(four[2 * i], four[2 * i + 1]);
		columns[2 * i + 1] = _mm256_unpackhi_epi32(four[2 * i], four[2 * i + 1]);
	}
}

/* A word of each half. */
INLINE void split(const __m256i columns[BAND / 2], uint64_t upper[BAND], uint64_t lower[BAND])
{
	for (int i = 0; i < BAND / 2; i++) {
		_mm_storeu_si128((__m128i *)(upper + 2 * i), _mm256_castsi256_si128(columns[i]));
		_mm_storeu_si128((__m128i *)(lower + 2 * i), _mm256_extracti128_si256(columns[i], 1));
	}
}

struct filters_two {
	__m256i left, up, average, paeth;
};

INLINE __m256i both(const int16_t upper[BAND], const int16_t lower[BAND])
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(lanes(upper)), lanes(lower), 1);
}

/* Shorter than a blend instruction's three cycles. */
INLINE __m256i choose_two(__m256i mask, __m256i yes, __m256i no)
{
	return _mm256_or_si256(_mm256_and_si256(mask, yes), _mm256_andnot_si256(mask, no));
}

INLINE __m256i predict_two(const struct filters_two *f, __m256i left, __m256i up, __m256i corner)
{
	__m256i p = _mm256_sub_epi16(up, corner), q = _mm256_sub_epi16(left, corner);
	__m256i by_left = _mm256_abs_epi16(p), by_up = _mm256_abs_epi16(q), by_corner = _mm256_abs_epi16(_mm256_add_epi16(p, q));
	__m256i best = choose_two(_mm256_cmpgt_epi16(by_left, by_up), up, left);
	__m256i paeth = choose_two(_mm256_cmpgt_epi16(_mm256_min_epi16(by_left, by_up), by_corner), corner, best);
	__m256i average = _mm256_srli_epi16(_mm256_add_epi16(left, up), 1);
	__m256i others = _mm256_or_si256(_mm256_and_si256(average, f->average),
					 _mm256_or_si256(_mm256_and_si256(left, f->left), _mm256_and_si256(up, f->up)));

	return _mm256_or_si256(others, _mm256_and_si256(paeth, f->paeth));
}

struct wave_two {
	__m256i left, corner;
};

/* One step; above: the pixels over lane 0 of each half, in its highest byte but one. */
INLINE __m256i step_two(const struct filters_two *f, struct wave_two *w, __m256i in, __m256i above)
{
	__m256i up = _mm256_alignr_epi8(w->left, above, 14);

	w->left = _mm256_and_si256(_mm256_add_epi16(in, predict_two(f, w->left, up, w->corner)), _mm256_set1_epi16(255));
	w->corner = up;
	return w->left;
}

/* What the rows of two bands have in common. */
struct bands {
	const uint8_t *in, *up;
	uint8_t *out;
	size_t width;
	struct filters_two filters;
	struct wave_two wave;
	uint64_t last[2]; /* what became of row BAND - 1 in the last eight steps, and in the eight before */
};

/* Steps t … t + 7. `inside`: all of them are at pixels that all rows have. */
INLINE void eight_steps_two(struct bands *b, size_t t, int inside)
{
	size_t width = b->width, late = t - BEHIND, lower_in = BAND * (width + 1), lower_out = BAND * width;
	uint64_t upper[BAND] = { 0 }, lower[BAND] = { 0 }, over_upper = 0, over_lower = 0;
	__m256i columns[BAND / 2];

	for (size_t r = 0; inside && r < BAND; r++) {
		upper[r] = load8(b->in + r * (width + 1) + 1 + t - r);
		lower[r] = load8(b->in + lower_in + r * (width + 1) + 1 + late - r);
	}
	if (!inside && t < width + BAND - 1)
		load_steps(upper, b->in, width, t);
	if (!inside && t >= BEHIND)
		load_steps(lower, b->in + lower_in, width, late);
	if (inside || t < width)
		over_upper = load8(b->up + t);
	if (inside || (t >= BEHIND && late < width)) /* pixels late … late + 7; a load would wait for the stores */
		over_lower = b->last[1] >> 56 | b->last[0] << 8;
	transpose_two(upper, lower, columns);
	__m256i above = _mm256_set_epi64x((long long)over_lower, 0, (long long)over_upper, 0);
#pragma GCC unroll 4
	for (int i = 0; i < BAND / 2; i++) {
		__m256i zero = _mm256_setzero_si256();
		/* pixel 2 i and the one behind it, alone in the highest word */
		__m256i even = _mm256_srli_epi64(_mm256_slli_epi64(above, 56 - 16 * i), 8);
		__m256i odd = _mm256_srli_epi64(_mm256_slli_epi64(above, 48 - 16 * i), 8);
		__m256i first = step_two(&b->filters, &b->wave, _mm256_unpacklo_epi8(columns[i], zero), even);
		__m256i second = step_two(&b->filters, &b->wave, _mm256_unpackhi_epi8(columns[i], zero), odd);
		columns[i] = _mm256_packus_epi16(first, second);
	}
	split(columns, upper, lower);
	transpose_two(upper, lower, columns);
	split(columns, upper, lower);
	b->last[1] = b->last[0];
	b->last[0] = upper[BAND - 1];
	for (size_t r = 0; inside && r < BAND; r++) {
		memcpy(b->out + r * width + t - r, &upper[r], BAND);
		memcpy(b->out + lower_out + r * width + late - r, &lower[r], BAND);
	}
	if (!inside && t < width + BAND - 1)
		store_steps(upper, b->out, width, t);
	if (!inside && t >= BEHIND)
		store_steps(lower, b->out + lower_out, width, late);
}

/* As undo_band, for 2 * BAND rows. */
AVX2 static void undo_two_bands(const uint8_t *in, const uint8_t *up, uint8_t *out, size_t width)
{
	struct bands b = { .in = in, .up = up, .out = out, .width = width };
	struct filters one, two;
	size_t t = 0;

	which_filters(in, width, &one);
	which_filters(in + BAND * (width + 1), width, &two);
	b.filters = (struct filters_two){ both(one.left, two.left), both(one.up, two.up), both(one.average, two.average), both(one.paeth, two.paeth) };
	for (; t < BEHIND + BAND; t += BAND)
		eight_steps_two(&b, t, 0);
	for (; t + BAND <= width; t += BAND)
		eight_steps_two(&b, t, 1);
	for (; t < width + BAND - 1 + BEHIND; t += BAND)
		eight_steps_two(&b, t, 0);
}

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

void png_unfilter(const uint8_t *raw, size_t width, size_t height, uint8_t *out)
{
	const uint8_t *up = raw + height * (width + 1);

#if defined(__SSE2__)
	const int two = __builtin_cpu_supports("avx2") != 0;
#endif

	for (size_t y = 0, rows; y < height; y += rows) {
		rows = 1;
#if defined(__SSE2__)
		if (height - y >= BAND)
			rows = two && height - y >= 2 * BAND ? 2 * BAND : BAND;
		if (rows == 2 * BAND)
			undo_two_bands(raw + y * (width + 1), up, out + y * width, width);
		else if (rows == BAND)
			undo_band(raw + y * (width + 1), up, out + y * width, width);
		else
#endif
			undo_row(raw + y * (width + 1), up, out + y * width, width);
		up = out + (y + rows - 1) * width;
	}
}
