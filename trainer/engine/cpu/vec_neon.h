/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats in four registers of a 64-bit ARM processor; vec_portable.h says what each function means. */
#ifndef VEC_H
#define VEC_H
#define VEC_ROWS 5 /* of a tile, of whose sums the 32 registers leave room for weights */

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	float32x4_t a, b, c, d;
} vec;

#define EACH(x, call) ((vec){ call((x).a), call((x).b), call((x).c), call((x).d) })
#define EACH2(x, y, call) ((vec){ call((x).a, (y).a), call((x).b, (y).b), call((x).c, (y).c), call((x).d, (y).d) })
#define EACH3(x, y, z, call) \
	((vec){ call((x).a, (y).a, (z).a), call((x).b, (y).b, (z).b), call((x).c, (y).c, (z).c), call((x).d, (y).d, (z).d) })

static inline vec vec_set(float x)
{
	float32x4_t all = vdupq_n_f32(x);
	return (vec){ all, all, all, all };
}
static inline vec vec_load(const float *p) { return (vec){ vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12) }; }
static inline void vec_store(float *p, vec x)
{
	vst1q_f32(p, x.a);
	vst1q_f32(p + 4, x.b);
	vst1q_f32(p + 8, x.c);
	vst1q_f32(p + 12, x.d);
}
static inline vec vec_load_some(const float *p, int n)
{
	float some[16] = { 0 };
	return vec_load(n < 16 ? memcpy(some, p, (size_t)n * sizeof *p) : p);
}
static inline void vec_store_some(float *p, vec x, int n)
{
	float all[16];
	if (n >= 16) {
		vec_store(p, x);
		return;
	}
	vec_store(all, x);
	memcpy(p, all, (size_t)n * sizeof *p);
}
static inline vec vec_add(vec x, vec y) { return EACH2(x, y, vaddq_f32); }
static inline vec vec_sub(vec x, vec y) { return EACH2(x, y, vsubq_f32); }
static inline vec vec_mul(vec x, vec y) { return EACH2(x, y, vmulq_f32); }
static inline vec vec_fma(vec x, vec y, vec z) { return EACH3(z, x, y, vfmaq_f32); }
/* FMAX keeps NaN: a diverged net must not look healthy. */
static inline vec vec_relu(vec x) { return EACH2(x, vec_set(0), vmaxq_f32); }
static inline float32x4_t vec_greater(float32x4_t x, float32x4_t y) { return vreinterpretq_f32_u32(vcgtq_f32(x, y)); }
static inline float32x4_t vec_greater_or_nan(float32x4_t x, float32x4_t y) { return vreinterpretq_f32_u32(vornq_u32(vcgtq_f32(x, y), vceqq_f32(x, x))); }
static inline float32x4_t vec_choose(float32x4_t mask, float32x4_t a, float32x4_t b) { return vbslq_f32(vreinterpretq_u32_f32(mask), a, b); }
static inline float32x4_t vec_same(float32x4_t x, float32x4_t y) { return vreinterpretq_f32_u32(vceqq_f32(x, y)); }
static inline vec vec_select(vec x, vec y, vec a, vec b) { return EACH3(EACH2(x, y, vec_greater), a, b, vec_choose); }
/* a also where x is NaN, which a maximum must keep */
static inline vec vec_select_or_nan(vec x, vec y, vec a, vec b) { return EACH3(EACH2(x, y, vec_greater_or_nan), a, b, vec_choose); }
static inline vec vec_equal(vec x, vec y, vec a) { return EACH3(EACH2(x, y, vec_same), a, vec_set(0), vec_choose); }
static inline vec vec_step(vec x, vec y, vec epsilon) { return EACH2(x, vec_add(EACH(y, vsqrtq_f32), epsilon), vdivq_f32); }

static inline float32x4_t vec_widen(uint16x4_t x) { return vcvtq_f32_u32(vmovl_u16(x)); }

static inline vec vec_load_bytes(const uint8_t *p, int n)
{
	uint8_t some[16] = { 0 };
	uint8x16_t bytes = vld1q_u8(n < 16 ? memcpy(some, p, (size_t)n) : p);
	uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
	return (vec){ vec_widen(vget_low_u16(low)), vec_widen(vget_high_u16(low)), vec_widen(vget_low_u16(high)), vec_widen(vget_high_u16(high)) };
}

static inline uint16x8_t vec_shorts(uint32x4_t low, uint32x4_t high) { return vcombine_u16(vmovn_u32(low), vmovn_u32(high)); }

static inline void vec_store_bytes(uint8_t *p, vec x, int n)
{
	uint16x8_t low = vec_shorts(vcvtq_u32_f32(x.a), vcvtq_u32_f32(x.b)), high = vec_shorts(vcvtq_u32_f32(x.c), vcvtq_u32_f32(x.d));
	uint8x16_t bytes = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
	memcpy(p, &bytes, n < 16 ? (size_t)n : 16);
}

static inline float32x4_t vec_from_bf16(uint16x4_t x) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(x), 16)); }

static inline vec vec_load_bf16(const uint16_t *p, int n)
{
	uint16_t some[16] = { 0 };
	const uint16_t *from = n < 16 ? memcpy(some, p, (size_t)n * sizeof *p) : p;
	return (vec){ vec_from_bf16(vld1_u16(from)), vec_from_bf16(vld1_u16(from + 4)), vec_from_bf16(vld1_u16(from + 8)), vec_from_bf16(vld1_u16(from + 12)) };
}

/* Round to nearest, ties to even. */
static inline uint32x4_t vec_round_bf16(float32x4_t x)
{
	uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
	return vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16);
}

static inline void vec_store_bf16(uint16_t *p, vec x, int n)
{
	uint16x8_t shorts[2] = { vec_shorts(vec_round_bf16(x.a), vec_round_bf16(x.b)), vec_shorts(vec_round_bf16(x.c), vec_round_bf16(x.d)) };
	memcpy(p, shorts, n < 16 ? (size_t)n * sizeof *p : sizeof shorts);
}

#undef EACH
#undef EACH2
#undef EACH3
#endif
