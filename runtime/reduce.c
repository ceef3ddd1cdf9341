/* SPDX-License-Identifier: Apache-2.0 */
#ifndef __clang__
#pragma GCC optimize("O3") /* at -O2, gcc 12 does not vectorise these loops */
#endif
#include "reduce.h"

#include <stdbool.h>
#include <string.h>

static float f32_of_bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

static uint16_t bf16_of_f32(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, 4);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);                       /* NaN stays NaN */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

/* Without a branch, which would keep loops from being vectorised. */
static uint32_t choose(bool which, uint32_t yes, uint32_t no)
{
	return no ^ ((no ^ yes) & -(uint32_t)which);
}

/* Of f16 not by _Float16, for each of which compilers call a function (and gcc 11 does not know it). */
static float f32_of_f16(uint16_t x)
{
	const uint32_t rest = x & 0x7fff;
	const float small = (float)(int32_t)rest * 0x1p-24f; /* a subnormal one */
	uint32_t bits;
	float f;
	memcpy(&bits, &small, 4);
	/* infinities and NaNs have the largest exponent of either */
	bits = choose(rest < 0x400, bits, (rest << 13) + choose(rest >= 0x7c00, (255u - 31) << 23, (127u - 15) << 23));
	bits |= (uint32_t)(x & 0x8000) << 16;
	memcpy(&f, &bits, 4);
	return f;
}

static uint16_t f16_of_f32(float f)
{
	uint32_t bits, rest, small;
	memcpy(&bits, &f, 4);
	rest = bits & 0x7fffffff;
	memcpy(&f, &rest, 4);
	f += 0.5f; /* whose last bit is f16's smallest step: the sum is rounded to that */
	memcpy(&small, &f, 4);
	uint32_t half = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13; /* to nearest, ties to even */
	half = choose(rest < 113u << 23, small - (126u << 23), half);
	half = choose(rest >= 143u << 23, choose(rest > 255u << 23, 0x7e00, 0x7c00), half);
	return (uint16_t)(half | (bits >> 16 & 0x8000));
}

#define SAME(x) (x)
#define PLUS(a, b) ((a) + (b))
/* a NaN stays, whichever rank has it */
#define LESS(a, b) (((int)((b) < (a)) | ((b) != (b))) ? (b) : (a))
#define MORE(a, b) (((int)((b) > (a)) | ((b) != (b))) ? (b) : (a))

/* The widest vectors of the machine it runs on; sums are the same bits with any. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define LOAD_STORE(NAME, ELEMENT, RUNNING, WIDEN, NARROW)                                               \
	WIDE static void load_##NAME(void *running, const void *element, size_t n)                           \
	{                                                                                               \
		RUNNING *restrict r = running;                                                          \
		const ELEMENT *restrict e = element;                                                    \
		for (size_t i = 0; i < n; i++)                                                          \
			r[i] = WIDEN(e[i]);                                                             \
	}                                                                                               \
	WIDE static void store_##NAME(void *element, const void *running, size_t n, int divisor)             \
	{                                                                                               \
		ELEMENT *restrict e = element;                                                          \
		const RUNNING *restrict r = running;                                                    \
		if (divisor == 1)                                                                       \
			for (size_t i = 0; i < n; i++)                                                  \
				e[i] = NARROW(r[i]);                                                    \
		else                                                                                    \
			for (size_t i = 0; i < n; i++)                                                  \
				e[i] = NARROW((RUNNING)(r[i] / (RUNNING)divisor));                      \
	}

#define FOLD(NAME, ELEMENT, RUNNING, WIDEN, WORD, OP)                                                   \
	WIDE static void WORD##_##NAME(void *running, const void *element, size_t n)                         \
	{                                                                                               \
		RUNNING *restrict r = running;                                                          \
		const ELEMENT *restrict e = element;                                                    \
		for (size_t i = 0; i < n; i++)                                                          \
			r[i] = (RUNNING)OP(r[i], (RUNNING)WIDEN(e[i]));                                 \
	}

/* SUMMED: of the same size as RUNNING */
#define TYPE(NAME, ELEMENT, RUNNING, SUMMED, WIDEN, NARROW)  \
	LOAD_STORE(NAME, ELEMENT, RUNNING, WIDEN, NARROW)    \
	FOLD(NAME, ELEMENT, SUMMED, WIDEN, sum, PLUS)        \
	FOLD(NAME, ELEMENT, RUNNING, WIDEN, min, LESS)       \
	FOLD(NAME, ELEMENT, RUNNING, WIDEN, max, MORE)

TYPE(f32, float, float, float, SAME, SAME)
TYPE(f64, double, double, double, SAME, SAME)
TYPE(f16, uint16_t, float, float, f32_of_f16, f16_of_f32)
TYPE(bf16, uint16_t, float, float, f32_of_bf16, bf16_of_f32)

/* bf16 that stays bf16 between ranks */
#define PLUS_BF16(a, b) bf16_of_f32(f32_of_bf16(a) + f32_of_bf16(b))

static void store_thin(void *element, const void *running, size_t n, int divisor)
{
	uint16_t *restrict e = element;
	const uint16_t *restrict r = running;
	for (size_t i = 0; i < n; i++)
		e[i] = divisor == 1 ? r[i] : bf16_of_f32(f32_of_bf16(r[i]) / (float)divisor);
}

static void load_thin(void *running, const void *element, size_t n)
{
	memcpy(running, element, n * 2);
}

FOLD(thin, uint16_t, uint16_t, SAME, sum, PLUS_BF16)

/* summed without a sign, as only that is defined to wrap around */
TYPE(i32, int32_t, int32_t, uint32_t, SAME, SAME)
TYPE(i64, int64_t, int64_t, uint64_t, SAME, SAME)
TYPE(u8, uint8_t, uint8_t, uint8_t, SAME, SAME)
TYPE(u64, uint64_t, uint64_t, uint64_t, SAME, SAME)

#define ROW(TYPE, NAME, SIZE, RUNNING)                                                    \
	[TYPE] = {                                                                        \
		[HVD_SUM] = { #NAME, SIZE, RUNNING, load_##NAME, sum_##NAME, store_##NAME }, \
		[HVD_AVG] = { #NAME, SIZE, RUNNING, load_##NAME, sum_##NAME, store_##NAME }, \
		[HVD_MIN] = { #NAME, SIZE, RUNNING, load_##NAME, min_##NAME, store_##NAME }, \
		[HVD_MAX] = { #NAME, SIZE, RUNNING, load_##NAME, max_##NAME, store_##NAME }, \
	}

static const struct arithmetic table[][4] = {
	ROW(HVD_F32, f32, 4, 4), ROW(HVD_F64, f64, 8, 8), ROW(HVD_F16, f16, 2, 4), ROW(HVD_BF16, bf16, 2, 4),
	ROW(HVD_I32, i32, 4, 4), ROW(HVD_I64, i64, 8, 8), ROW(HVD_U8, u8, 1, 1),   ROW(HVD_U64, u64, 8, 8),
};

const struct arithmetic *arithmetic(enum hvd_type type, enum hvd_op op, int narrow)
{
	static const struct arithmetic thin = { "bf16", 2, 2, load_thin, sum_thin, store_thin };
	return narrow ? &thin : &table[type][op];
}

size_t type_size(enum hvd_type type)
{
	return table[type][HVD_SUM].size;
}

const char *type_name(enum hvd_type type)
{
	return table[type][HVD_SUM].name;
}
