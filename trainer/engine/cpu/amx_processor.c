/* SPDX-License-Identifier: Apache-2.0
 * The kernels on the processor's tiles, built for it whatever the compiler's default is; cpu_amx_best() decides whether they run. */
#include "engine/cpu/amx.h"

#if defined __x86_64__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/target.h"

enum { ARCH_REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), Linux 5.16 */

int amx_permission(void)
{
	return syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, TILE_DATA) == 0;
}

TARGET("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

/* Constant: the compiler takes ldtilecfg for a load of 8 bytes, and need not finish a local before it. */
static const struct amx_config all_tiles __attribute__((aligned(64))) = {
	.palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
};

/* Permission is the process's by Linux's description; asking again in each thread costs nothing. */
static void begin(void)
{
	static _Thread_local int asked;
	asked = asked || amx_permission();
	_tile_loadconfig(&all_tiles);
}

static void end(void)
{
	_tile_release();
}

static void narrow_row(const float *low, const float *high, void *to)
{
	_mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low)));
}

static void pair_row(const float *even, const float *odd, void *to)
{
	static const uint16_t in_turn[32] = { 0,  16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
		                              8,  24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
	__m512i row = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(odd), _mm512_loadu_ps(even));
	_mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_loadu_si512(in_turn), row));
}

/* Four times, rows 1, 2, 4, 8 apart exchange the halves of their groups of as many lanes. */
static void transpose_pairs(uint32_t from[16][16], uint16_t *to, ptrdiff_t stride)
{
	__m512i row[16], lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	_Pragma("GCC unroll 16") for (int r = 0; r < 16; r++)
		row[r] = _mm512_loadu_si512(from[r]);
	_Pragma("GCC unroll 4") for (int step = 1; step < 16; step *= 2) {
		__m512i apart = _mm512_set1_epi32(step);
		__mmask16 upper = _mm512_test_epi32_mask(lane, apart);
		/* 16 + i is lane i of the second operand */
		__m512i first = _mm512_mask_add_epi32(lane, upper, lane, _mm512_set1_epi32(16 - step));
		__m512i second = _mm512_mask_add_epi32(_mm512_add_epi32(lane, apart), upper, lane, _mm512_set1_epi32(16));
		_Pragma("GCC unroll 16") for (int r = 0; r < 16; r++)
			if (!(r & step)) {
				__m512i above = row[r], below = row[r + step];
				row[r] = _mm512_permutex2var_epi32(above, first, below);
				row[r + step] = _mm512_permutex2var_epi32(above, second, below);
			}
	}
	_Pragma("GCC unroll 16") for (int r = 0; r < 16; r++)
		_mm512_storeu_si512(to + r * stride, row[r]);
}

#define KERNEL(name) name##_processor
/* The compiler does not know that a tile's load reads memory. */
#define MEMORY_IS_WRITTEN __asm__ volatile("" ::: "memory")
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, from, bytes) _tile_loadd(tile, from, bytes)
#define TILE_STORE(tile, to, bytes) _tile_stored(tile, to, bytes)
#define TILE_DOT(sum, a, b) _tile_dpbf16ps(sum, a, b)
#include "engine/cpu/amx.inc"

const struct cpu_amx cpu_amx_processor = {
	"AMX", begin, end, narrow_processor, transpose_processor, pair_processor, multiply_processor, outer_processor,
};
TARGET_END
#endif
