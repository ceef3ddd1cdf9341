/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats in C with GCC's vector type, for any processor. A count n above 16 means all lanes, n < 16 the first n. */
#ifndef VEC_H
#define VEC_H
#define VEC_PLAIN 1 /* no registers to keep a tile in */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Always inlined: how a 64-byte vector is passed depends on the processor compiled for (hence -Wno-psabi). */
#define INLINE static inline __attribute__((always_inline))

/* A test builds the engine with double for float, so no width is taken for granted. */
typedef float vec __attribute__((vector_size(16 * sizeof(float))));
typedef __typeof__(_Generic((float)0, double: (int64_t)0, default: (int32_t)0)) lane_bits;
typedef lane_bits vec_bits __attribute__((vector_size(16 * sizeof(float))));

INLINE int vec_count(int n) { return n < 16 ? n : 16; }

INLINE vec vec_set(float x) { return x - (vec){ 0 }; }

INLINE vec vec_load(const float *p)
{
	vec x;
	memcpy(&x, p, sizeof x);
	return x;
}

INLINE vec vec_load_some(const float *p, int n)
{
	vec x = { 0 };
	if (n >= 16)
		return vec_load(p);
	memcpy(&x, p, (size_t)n * sizeof *p);
	return x;
}

INLINE void vec_store(float *p, vec x) { memcpy(p, &x, sizeof x); }
INLINE void vec_store_some(float *p, vec x, int n) { memcpy(p, &x, (size_t)vec_count(n) * sizeof *p); }
INLINE vec vec_add(vec x, vec y) { return x + y; }
INLINE vec vec_sub(vec x, vec y) { return x - y; }
INLINE vec vec_mul(vec x, vec y) { return x * y; }
INLINE vec vec_fma(vec x, vec y, vec z) { return x * y + z; }
INLINE vec vec_blend(vec_bits mask, vec a, vec b) { return (vec)(((vec_bits)a & mask) | ((vec_bits)b & ~mask)); }
/* x > y ? a : b */
INLINE vec vec_select(vec x, vec y, vec a, vec b) { return vec_blend(x > y, a, b); }
/* a also where x is NaN, which a maximum must keep */
INLINE vec vec_select_or_nan(vec x, vec y, vec a, vec b) { return vec_blend((x > y) | (x != x), a, b); }
/* x == y ? a : 0 */
INLINE vec vec_equal(vec x, vec y, vec a) { return vec_blend(x == y, a, (vec){ 0 }); }
/* NaN stays NaN: a diverged net must not look healthy. */
INLINE vec vec_relu(vec x) { return vec_blend(x <= (vec){ 0 }, (vec){ 0 }, x); }

/* x / (sqrt(y) + epsilon) */
INLINE vec vec_step(vec x, vec y, vec epsilon)
{
	for (int i = 0; i < 16; i++)
		y[i] = sqrtf(y[i]);
	return x / (y + epsilon);
}

INLINE vec vec_load_bytes(const uint8_t *p, int n)
{
	vec x = { 0 };
	for (int i = 0; i < vec_count(n); i++)
		x[i] = p[i];
	return x;
}

INLINE void vec_store_bytes(uint8_t *p, vec x, int n)
{
	for (int i = 0; i < vec_count(n); i++)
		p[i] = (uint8_t)x[i];
}

INLINE vec vec_load_bf16(const uint16_t *p, int n)
{
	vec_bits x = { 0 };
	for (int i = 0; i < vec_count(n); i++)
		x[i] = (int32_t)((uint32_t)p[i] << 16);
	return (vec)x;
}

/* Round to nearest, ties to even. */
INLINE void vec_store_bf16(uint16_t *p, vec x, int n)
{
	for (int i = 0; i < vec_count(n); i++) {
		uint32_t bits = (uint32_t)((vec_bits)x)[i];
		p[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
	}
}

#undef INLINE
#endif
