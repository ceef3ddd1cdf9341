/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats in two AVX registers; vec_portable.h says what each function means. The results are those of AVX-512, bit for bit. */
#ifndef VEC_H
#define VEC_H
#define VEC_ROWS 6 /* of a tile, whose sums take 12 of the 16 registers */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	__m256 low, high;
} vec;

#define EACH(x, call) ((vec){ call((x).low), call((x).high) })
#define EACH2(x, y, call) ((vec){ call((x).low, (y).low), call((x).high, (y).high) })

/* Lanes first to first + 7 of a mask whose first n lanes are set. */
static inline __m256i vec_mask(int n, int first)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec vec_set(float x) { return (vec){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
static inline vec vec_load(const float *p) { return (vec){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
static inline vec vec_load_some(const float *p, int n)
{
	if (n >= 16)
		return vec_load(p);
	return (vec){ _mm256_maskload_ps(p, vec_mask(n, 0)), _mm256_maskload_ps(p + 8, vec_mask(n, 8)) };
}
static inline void vec_store(float *p, vec x)
{
	_mm256_storeu_ps(p, x.low);
	_mm256_storeu_ps(p + 8, x.high);
}
static inline void vec_store_some(float *p, vec x, int n)
{
	if (n >= 16) {
		vec_store(p, x);
		return;
	}
	_mm256_maskstore_ps(p, vec_mask(n, 0), x.low);
	_mm256_maskstore_ps(p + 8, vec_mask(n, 8), x.high);
}
static inline vec vec_add(vec x, vec y) { return EACH2(x, y, _mm256_add_ps); }
static inline vec vec_sub(vec x, vec y) { return EACH2(x, y, _mm256_sub_ps); }
static inline vec vec_mul(vec x, vec y) { return EACH2(x, y, _mm256_mul_ps); }
static inline vec vec_fma(vec x, vec y, vec z) { return (vec){ _mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high) }; }
/* max(0, NaN) is NaN with this order of operands: a diverged net must not look healthy. */
static inline vec vec_relu(vec x) { return EACH2(vec_set(0), x, _mm256_max_ps); }
static inline vec vec_blend(vec mask, vec a, vec b)
{
	return (vec){ _mm256_blendv_ps(b.low, a.low, mask.low), _mm256_blendv_ps(b.high, a.high, mask.high) };
}
static inline __m256 vec_greater(__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_GT_OQ); }
static inline __m256 vec_greater_or_nan(__m256 x, __m256 y) { return _mm256_or_ps(vec_greater(x, y), _mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }
static inline __m256 vec_same(__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_EQ_OQ); }
static inline vec vec_select(vec x, vec y, vec a, vec b) { return vec_blend(EACH2(x, y, vec_greater), a, b); }
/* a also where x is NaN, which a maximum must keep */
static inline vec vec_select_or_nan(vec x, vec y, vec a, vec b) { return vec_blend(EACH2(x, y, vec_greater_or_nan), a, b); }
static inline vec vec_equal(vec x, vec y, vec a) { return EACH2(a, EACH2(x, y, vec_same), _mm256_and_ps); }
static inline vec vec_step(vec x, vec y, vec epsilon) { return EACH2(x, vec_add(EACH(y, _mm256_sqrt_ps), epsilon), _mm256_div_ps); }

static inline vec vec_load_bytes(const uint8_t *p, int n)
{
	uint8_t some[16] = { 0 };
	__m128i bytes = _mm_loadu_si128((const __m128i *)(n < 16 ? memcpy(some, p, (size_t)n) : p));
	return (vec){ _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))) };
}

/* Sixteen numbers of 32 bits that fit into 16, in order. */
static inline __m256i vec_shorts(__m256i low, __m256i high)
{
	return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
}

static inline void vec_store_bytes(uint8_t *p, vec x, int n)
{
	__m256i shorts = vec_shorts(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
	__m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
	memcpy(p, &bytes, n < 16 ? (size_t)n : 16);
}

static inline vec vec_load_bf16(const uint16_t *p, int n)
{
	uint16_t some[16] = { 0 };
	__m256i x = _mm256_loadu_si256((const __m256i *)(n < 16 ? memcpy(some, p, (size_t)n * sizeof *p) : p));
	return (vec){ _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), 16)),
		      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)), 16)) };
}

/* Round to nearest, ties to even. */
static inline __m256i vec_round_bf16(__m256 x)
{
	__m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}

static inline void vec_store_bf16(uint16_t *p, vec x, int n)
{
	__m256i shorts = vec_shorts(vec_round_bf16(x.low), vec_round_bf16(x.high));
	if (n >= 16)
		_mm256_storeu_si256((__m256i *)p, shorts);
	else
		memcpy(p, &shorts, (size_t)n * sizeof *p);
}

#undef EACH
#undef EACH2
#endif
