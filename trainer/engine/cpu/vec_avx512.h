/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats in an AVX-512 register; vec_portable.h says what each function means. */
#ifndef VEC_H
#define VEC_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;

static inline __mmask16 vec_mask(int n) { return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1); }

static inline vec vec_set(float x) { return _mm512_set1_ps(x); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vec vec_load_some(const float *p, int n) { return _mm512_maskz_loadu_ps(vec_mask(n), p); }
static inline void vec_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
static inline void vec_store_some(float *p, vec x, int n) { _mm512_mask_storeu_ps(p, vec_mask(n), x); }
static inline vec vec_add(vec x, vec y) { return _mm512_add_ps(x, y); }
static inline vec vec_sub(vec x, vec y) { return _mm512_sub_ps(x, y); }
static inline vec vec_mul(vec x, vec y) { return _mm512_mul_ps(x, y); }
static inline vec vec_fma(vec x, vec y, vec z) { return _mm512_fmadd_ps(x, y, z); }
/* max(0, NaN) is NaN with this order of operands: a diverged net must not look healthy. */
static inline vec vec_relu(vec x) { return _mm512_max_ps(_mm512_setzero_ps(), x); }
static inline vec vec_select(vec x, vec y, vec a, vec b) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), b, a); }
/* a also where x is NaN, which a maximum must keep */
static inline vec vec_select_or_nan(vec x, vec y, vec a, vec b)
{
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ) | _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, a);
}
static inline vec vec_equal(vec x, vec y, vec a) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ), a); }
static inline vec vec_step(vec x, vec y, vec epsilon) { return _mm512_div_ps(x, _mm512_add_ps(_mm512_sqrt_ps(y), epsilon)); }

static inline vec vec_load_bytes(const uint8_t *p, int n)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(vec_mask(n), p)));
}

static inline void vec_store_bytes(uint8_t *p, vec x, int n)
{
	_mm_mask_storeu_epi8(p, vec_mask(n), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}

static inline vec vec_load_bf16(const uint16_t *p, int n)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vec_mask(n), p)), 16));
}

/* Integer rounding, as AVX512_BF16 is younger than AVX-512. */
static inline void vec_store_bf16(uint16_t *p, vec x, int n)
{
	__m512i bits = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	_mm256_mask_storeu_epi16(p, vec_mask(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

#endif
