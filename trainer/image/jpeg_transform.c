/* SPDX-License-Identifier: Apache-2.0
 * The inverse DCT of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) with 13-bit constants, whose rounding libjpeg's "islow" made the
 * standard one: the pixels are the same to the bit. Two blocks at a time with AVX2, four with AVX-512. */
#include "image/jpeg_gray.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 "avx2"
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl"

/* Coefficients of real pictures stay below 2048 and what the first pass makes of them far below 16384; beyond that
 * libjpeg-turbo's 16-bit sums of two would wrap. */
enum { COEFFICIENT_LIMIT = 4096, FIRST_PASS_LIMIT = 16384 };

enum { SCALE = 13, C0298 = 2446, C0390 = 3196, C0541 = 4433, C0765 = 6270, C0899 = 7373, C1175 = 9633, C1501 = 12299, C1847 = 15137,
       C1961 = 16069, C2053 = 16819, C2562 = 20995, C3072 = 25172 };

#define PAIR(a, b) OP(set1_epi32)((int)((unsigned)(uint16_t)(a) | (unsigned)(uint16_t)(b) << 16))

/* ---- two blocks --------------------------------------------------------------------------------------- */

#define VECTOR __m256i
#define INLINE static inline __attribute__((always_inline, target(AVX2)))
#define OP(name) _mm256_##name
#define NAME(name) name
#include "image/jpeg_transform.inc"

/* v [8] columns of two blocks, to bytes and to rows of both blocks side by side. */
INLINE void store(const __m256i v[SIDE], uint8_t *pixels, size_t stride)
{
	__m256i rows[4];

	pairs_of_rows(v, rows);
#pragma GCC unroll 4
	for (size_t i = 0; i < 4; i++) {
		__m256i two = _mm256_permute4x64_epi64(rows[i], 0xD8);
		_mm_storeu_si128((__m128i *)(pixels + 2 * i * stride), _mm256_castsi256_si128(two));
		_mm_storeu_si128((__m128i *)(pixels + (2 * i + 1) * stride), _mm256_extracti128_si256(two, 1));
	}
}

INLINE __m256i both(const int16_t *row)
{
	return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)row));
}

__attribute__((target(AVX2))) static void two_at_a_time(struct transform *t, const int16_t *blocks, int n, uint8_t *pixels, size_t stride)
{
	__m256i large = _mm256_setzero_si256(), high = large, low = large;

	for (int i = 0; i < n; i += 2, blocks += 2 * BLOCK, pixels += 2 * SIDE) {
		__m256i v[SIDE];
#pragma GCC unroll 8
		for (int row = 0; row < SIDE; row++) {
			v[row] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128((const __m128i *)(blocks + row * SIDE))),
							 _mm_load_si128((const __m128i *)(blocks + BLOCK + row * SIDE)), 1);
			large = _mm256_or_si256(large, _mm256_cmpgt_epi16(_mm256_abs_epi16(v[row]), both(t->limit + row * SIDE)));
			v[row] = _mm256_mullo_epi16(v[row], both(t->quant + row * SIDE));
		}
		pass(v, SCALE - 2, 0);
#pragma GCC unroll 8
		for (int row = 0; row < SIDE; row++) {
			high = _mm256_max_epi16(high, v[row]);
			low = _mm256_min_epi16(low, v[row]);
		}
		transpose(v);
		pass(v, SCALE + 2 + 3, 128);
		store(v, pixels, stride);
	}
	large = _mm256_or_si256(large, _mm256_cmpgt_epi16(high, _mm256_set1_epi16(FIRST_PASS_LIMIT - 1)));
	large = _mm256_or_si256(large, _mm256_cmpgt_epi16(_mm256_set1_epi16(1 - FIRST_PASS_LIMIT), low));
	t->beyond |= !_mm256_testz_si256(large, large);
}

#undef VECTOR
#undef INLINE
#undef OP
#undef NAME

/* ---- four blocks -------------------------------------------------------------------------------------- */

#define VECTOR __m512i
#define INLINE static inline __attribute__((always_inline, target(AVX512)))
#define OP(name) _mm512_##name
#define NAME(name) name##_wide
#include "image/jpeg_transform.inc"

INLINE void store_wide(const __m512i v[SIDE], uint8_t *pixels, size_t stride)
{
	const __m512i by_row = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	__m512i rows[4];

	pairs_of_rows_wide(v, rows);
#pragma GCC unroll 4
	for (size_t i = 0; i < 4; i++) {
		__m512i two = _mm512_permutexvar_epi64(by_row, rows[i]);
		_mm256_storeu_si256((__m256i *)(pixels + 2 * i * stride), _mm512_castsi512_si256(two));
		_mm256_storeu_si256((__m256i *)(pixels + (2 * i + 1) * stride), _mm512_extracti64x4_epi64(two, 1));
	}
}

INLINE __m128i row_of(const int16_t *row)
{
	return _mm_load_si128((const __m128i *)row);
}

__attribute__((target(AVX512))) static void four_at_a_time(struct transform *t, const int16_t *blocks, int n, uint8_t *pixels, size_t stride)
{
	__m512i high = _mm512_setzero_si512(), low = high;
	__mmask32 large = 0;

	for (int i = 0; i < n; i += 4, blocks += 4 * BLOCK, pixels += 4 * SIDE) {
		__m512i v[SIDE];
#pragma GCC unroll 8
		for (int row = 0; row < SIDE; row++) {
			const int16_t *at = blocks + row * SIDE;
			v[row] = _mm512_castsi128_si512(row_of(at));
			v[row] = _mm512_inserti32x4(v[row], row_of(at + BLOCK), 1);
			v[row] = _mm512_inserti32x4(v[row], row_of(at + 2 * BLOCK), 2);
			v[row] = _mm512_inserti32x4(v[row], row_of(at + 3 * BLOCK), 3);
			large |= _mm512_cmpgt_epi16_mask(_mm512_abs_epi16(v[row]), _mm512_broadcast_i32x4(row_of(t->limit + row * SIDE)));
			v[row] = _mm512_mullo_epi16(v[row], _mm512_broadcast_i32x4(row_of(t->quant + row * SIDE)));
		}
		pass_wide(v, SCALE - 2, 0);
#pragma GCC unroll 8
		for (int row = 0; row < SIDE; row++) {
			high = _mm512_max_epi16(high, v[row]);
			low = _mm512_min_epi16(low, v[row]);
		}
		transpose_wide(v);
		pass_wide(v, SCALE + 2 + 3, 128);
		store_wide(v, pixels, stride);
	}
	large |= _mm512_cmpgt_epi16_mask(high, _mm512_set1_epi16(FIRST_PASS_LIMIT - 1));
	large |= _mm512_cmpgt_epi16_mask(_mm512_set1_epi16(1 - FIRST_PASS_LIMIT), low);
	t->beyond |= large != 0;
}

/* ---- any even number ---------------------------------------------------------------------------------- */

void jpeg_transform(struct transform *t, const int16_t *blocks, int n, uint8_t *pixels, size_t stride)
{
	int fours = t->wide ? n & ~3 : 0;

	if (fours)
		four_at_a_time(t, blocks, fours, pixels, stride);
	if (fours < n)
		two_at_a_time(t, blocks + fours * BLOCK, n - fours, pixels + fours * SIDE, stride);
}

void jpeg_transform_init(struct transform *t, const uint16_t quant[BLOCK], const uint8_t *natural, int wide)
{
	t->beyond = 0;
	t->wide = wide;
	for (int k = 0; k < BLOCK; k++) {
		t->quant[natural[k]] = (int16_t)quant[k];
		t->limit[natural[k]] = (int16_t)((COEFFICIENT_LIMIT - 1) / quant[k]);
	}
}
#endif
