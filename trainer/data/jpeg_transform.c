/* SPDX-License-Identifier: Apache-2.0
 * The inverse DCT of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) with 13-bit constants, whose rounding libjpeg's "islow" made the
 * standard one: the pixels are the same to the bit. Two blocks at a time, one in each half of a vector. */
#include "data/jpeg_gray.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline, target("avx2")))

/* Coefficients of real pictures stay below 2048 and what the first pass makes of them far below 16384; beyond that
 * libjpeg-turbo's 16-bit sums of two would wrap. */
enum { COEFFICIENT_LIMIT = 4096, FIRST_PASS_LIMIT = 16384 };

enum { SCALE = 13, C0298 = 2446, C0390 = 3196, C0541 = 4433, C0765 = 6270, C0899 = 7373, C1175 = 9633, C1501 = 12299, C1847 = 15137,
       C1961 = 16069, C2053 = 16819, C2562 = 20995, C3072 = 25172 };

#define PAIR(a, b) _mm256_set1_epi32((int)((unsigned)(uint16_t)(a) | (unsigned)(uint16_t)(b) << 16))

/* Four columns of one pass, in 32 bits: v04 … hold the input rows' pairs (row 0, row 4) side by side. `add` comes to all results. */
INLINE void four_columns(__m256i v04, __m256i v26, __m256i v13, __m256i v57, int shift, int add, __m256i out[SIDE])
{
	__m256i round = _mm256_set1_epi32((1 << (shift - 1)) + add * (1 << shift));
	__m256i sum = _mm256_add_epi32(_mm256_madd_epi16(v04, PAIR(1 << SCALE, 1 << SCALE)), round);
	__m256i difference = _mm256_add_epi32(_mm256_madd_epi16(v04, PAIR(1 << SCALE, -(1 << SCALE))), round);
	__m256i low = _mm256_madd_epi16(v26, PAIR(C0541, C0541 - C1847)), high = _mm256_madd_epi16(v26, PAIR(C0541 + C0765, C0541));
	__m256i even[4] = { _mm256_add_epi32(sum, high), _mm256_add_epi32(difference, low), _mm256_sub_epi32(difference, low),
			    _mm256_sub_epi32(sum, high) };
	__m256i odd[4] = {
		_mm256_add_epi32(_mm256_madd_epi16(v13, PAIR(C1501 - C0899 - C0390 + C1175, C1175)),
				 _mm256_madd_epi16(v57, PAIR(C1175 - C0390, C1175 - C0899))),
		_mm256_add_epi32(_mm256_madd_epi16(v13, PAIR(C1175, C3072 - C2562 - C1961 + C1175)),
				 _mm256_madd_epi16(v57, PAIR(C1175 - C2562, C1175 - C1961))),
		_mm256_add_epi32(_mm256_madd_epi16(v13, PAIR(C1175 - C0390, C1175 - C2562)),
				 _mm256_madd_epi16(v57, PAIR(C2053 - C2562 - C0390 + C1175, C1175))),
		_mm256_add_epi32(_mm256_madd_epi16(v13, PAIR(C1175 - C0899, C1175 - C1961)),
				 _mm256_madd_epi16(v57, PAIR(C1175, C0298 - C0899 - C1961 + C1175))),
	};
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
		out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
	}
}

/* One pass over the columns of v [8] rows. */
INLINE void pass(__m256i v[SIDE], int shift, int add)
{
	__m256i left[SIDE], right[SIDE];

	four_columns(_mm256_unpacklo_epi16(v[0], v[4]), _mm256_unpacklo_epi16(v[2], v[6]), _mm256_unpacklo_epi16(v[1], v[3]),
		     _mm256_unpacklo_epi16(v[5], v[7]), shift, add, left);
	four_columns(_mm256_unpackhi_epi16(v[0], v[4]), _mm256_unpackhi_epi16(v[2], v[6]), _mm256_unpackhi_epi16(v[1], v[3]),
		     _mm256_unpackhi_epi16(v[5], v[7]), shift, add, right);
#pragma GCC unroll 8
	for (int i = 0; i < SIDE; i++)
		v[i] = _mm256_packs_epi32(left[i], right[i]);
}

INLINE void transpose(__m256i v[SIDE])
{
	__m256i a[SIDE], b[SIDE];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		a[2 * i] = _mm256_unpacklo_epi16(v[i], v[i + 4]);
		a[2 * i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 4]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
		b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		v[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
		v[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
	}
}

/* v [8] columns of two blocks, to bytes and to rows of both blocks side by side. */
INLINE void store(const __m256i v[SIDE], uint8_t *pixels, size_t stride)
{
	__m256i c01 = _mm256_packus_epi16(v[0], v[1]), c23 = _mm256_packus_epi16(v[2], v[3]);
	__m256i c45 = _mm256_packus_epi16(v[4], v[5]), c67 = _mm256_packus_epi16(v[6], v[7]);
	__m256i c04 = _mm256_unpacklo_epi8(c01, c45), c15 = _mm256_unpackhi_epi8(c01, c45);
	__m256i c26 = _mm256_unpacklo_epi8(c23, c67), c37 = _mm256_unpackhi_epi8(c23, c67);
	__m256i even[2] = { _mm256_unpacklo_epi8(c04, c26), _mm256_unpackhi_epi8(c04, c26) };
	__m256i odd[2] = { _mm256_unpacklo_epi8(c15, c37), _mm256_unpackhi_epi8(c15, c37) };

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		__m256i two = i % 2 ? _mm256_unpackhi_epi8(even[i / 2], odd[i / 2]) : _mm256_unpacklo_epi8(even[i / 2], odd[i / 2]);
		two = _mm256_permute4x64_epi64(two, 0xD8);
		_mm_storeu_si128((__m128i *)(pixels + (size_t)(2 * i) * stride), _mm256_castsi256_si128(two));
		_mm_storeu_si128((__m128i *)(pixels + (size_t)(2 * i + 1) * stride), _mm256_extracti128_si256(two, 1));
	}
}

INLINE __m256i both(const int16_t *row)
{
	return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)row));
}

AVX2 void jpeg_transform(struct transform *t, const int16_t *blocks, int n, uint8_t *pixels, size_t stride)
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

void jpeg_transform_init(struct transform *t, const uint16_t quant[BLOCK], const uint8_t *natural)
{
	t->beyond = 0;
	for (int k = 0; k < BLOCK; k++) {
		t->quant[natural[k]] = (int16_t)quant[k];
		t->limit[natural[k]] = (int16_t)((COEFFICIENT_LIMIT - 1) / quant[k]);
	}
}
#endif
