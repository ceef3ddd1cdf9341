/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 operands with fp32 sums on AMX. One source (amx.inc) over eight tile registers, built for the processor's and for
 * tiles in plain C; cpu_amx_best() decides at run time. Element-wise kernels stay those of kernels.h: what they have packed in fp32 is
 * rounded to bf16 once, before all taps and panels.
 *
 * A tile is 16 rows of 64 bytes. A row of 64 bytes is a pixel with 16 channels in fp32, and with 32 in bf16, so a map keeps its
 * geometry when it is narrowed: offsets of pixels, lines and blocks count floats (4 bytes) in both. */
#ifndef CPU_AMX_H
#define CPU_AMX_H

#include "engine/cpu/kernels.h"

enum {
	AMX_ROWS = 16,                      /* of a tile */
	AMX_DEPTH = 32,                     /* bf16 a row: products summed by one instruction */
	AMX_TILE = AMX_ROWS * AMX_DEPTH     /* bf16 a tile */
};

/* begin() comes before multiply() and outer() in the thread that calls them, end() behind. */
struct cpu_amx {
	const char *name;
	void (*begin)(void);
	void (*end)(void);

	/* Packed fp32 to bf16, two blocks to one: to[k * to_plane + pixel * 16] (floats) holds channels [32 k, 32 k + 32), zeros where the
	 * last block is odd. `to` may be `packed` where the planes are equal. */
	void (*narrow)(int pixels, int blocks, const float *packed, ptrdiff_t plane, float *to, ptrdiff_t to_plane);
	/* One packed block to bf16 to[channel * stride + pixel], zeros from `pixels` to stride, which is a multiple of 32. */
	void (*transpose)(int pixels, const float *packed, uint16_t *to, ptrdiff_t stride);
	/* One packed block to bf16 to[pixel / 2][channel][pixel % 2], zeros from `pixels` to a multiple of 32. */
	void (*pair)(int pixels, const float *packed, uint16_t *to);

	/* c[r][j] = sum over taps t, blocks k of 32, lanes i of a[tap[t] + k * plane + r * 16 (floats)][i] * b[(t * blocks + k)][i][j] for
	 * r < rows and j < width. rows and width are 16 or 32; b is made of tiles as pair() writes them, width / 16 for each tap and block. */
	void (*multiply)(int rows, int width, int taps, const ptrdiff_t *tap, int blocks, ptrdiff_t plane, const float *a, const float *b, float *c,
	                 ptrdiff_t c_stride);
	/* c[i][j] += sum over pixels p of a[i * a_stride + p] * b[j / 16 * b_plane + p / 2 * 32 + j % 16 * 2 + p % 2] for i < rows and
	 * j < width, 16 or 32 each. Reads a and b to a multiple of 32 pixels, where b is zero and a finite. */
	void (*outer)(int pixels, int rows, int width, const uint16_t *a, ptrdiff_t a_stride, const uint16_t *b, ptrdiff_t b_plane, float *c,
	              ptrdiff_t c_stride);
};

extern const struct cpu_amx cpu_amx_emulated;
#if defined __x86_64__
extern const struct cpu_amx cpu_amx_processor; /* an illegal instruction where cpu_amx_best() does not give it */
/* Asks the system to let this process use tiles; 1: it does. */
int amx_permission(void);
#endif

/* What decides about AMX, in the order in which it is asked. */
struct amx_facts {
	int tiles, system, permission, exact; /* the processor has it; registers are saved; the kernel lets us; products are right */
};

/* 1: use it. 0: do not, and *why says why not, or is NULL where the processor has none. */
int cpu_amx_usable(const struct amx_facts *facts, const char **why);
/* The processor's kernels, if it has them, the system lets us use them and their products are right; otherwise NULL, *why as above.
 * Asks the system for this process's permission. */
const struct cpu_amx *cpu_amx_best(const char **why);
/* Products and sums of `tested` are those of the emulation but for rounding. */
int cpu_amx_agrees(const struct cpu_amx *tested);

#endif
