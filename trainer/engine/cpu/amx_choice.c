/* SPDX-License-Identifier: Apache-2.0
 * Whether this processor's AMX is used. */
#include "engine/cpu/amx.h"

#include <math.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

int cpu_amx_usable(const struct amx_facts *facts, const char **why)
{
	*why = !facts->tiles        ? NULL
	       : !facts->system     ? "the system does not save its registers"
	       : !facts->permission ? "the kernel gives no permission (arch_prctl)"
	       : !facts->exact      ? "its products are wrong in a test"
	                            : NULL;
	return facts->tiles && !*why;
}

/* Two taps of a product of 40 pixels and 48 channels, and 40 pixels' product: numbers from -1 to 1, the same for both sides. */
enum { PIXELS = 40, BLOCKS = 3, PAIRS = 2, TAPS = 2, STRIDE = 64 };

static void fill(float *values, int count, uint32_t random)
{
	for (int i = 0; i < count; i++) {
		random = random * 1664525u + 1013904223u;
		values[i] = (float)(random >> 8) / 0x1p23f - 1;
	}
}

static void products(const struct cpu_amx *amx, float product[PANEL][PANEL], float outer[PANEL][PANEL])
{
	static const ptrdiff_t tap[TAPS] = { 0, 8 * LANES };
	float packed[BLOCKS][PIXELS][LANES], weights[TAPS * PAIRS * 2][AMX_DEPTH][LANES];
	float narrow[PAIRS][PIXELS][LANES], tiles[TAPS * PAIRS * 2][AMX_TILE / 2];
	uint16_t transposed[PANEL][STRIDE], pairs[2][STRIDE * LANES];
	fill(&packed[0][0][0], BLOCKS * PIXELS * LANES, 1);
	fill(&weights[0][0][0], TAPS * PAIRS * 2 * AMX_DEPTH * LANES, 2);
	fill(&outer[0][0], PANEL * PANEL, 3);
	amx->narrow(PIXELS, BLOCKS, packed[0][0], PIXELS * LANES, narrow[0][0], PIXELS * LANES);
	for (int i = 0; i < TAPS * PAIRS * 2; i++)
		amx->pair(AMX_DEPTH, weights[i][0], (void *)tiles[i]);
	for (int i = 0; i < 2; i++) {
		amx->transpose(PIXELS, packed[i][0], transposed[i * LANES], STRIDE);
		amx->pair(PIXELS, packed[BLOCKS - 1 - i][0], pairs[i]);
	}
	amx->begin();
	amx->multiply(PANEL, PANEL, TAPS, tap, PAIRS, PIXELS * LANES, narrow[0][0], tiles[0], product[0], PANEL);
	amx->outer(PIXELS, PANEL, PANEL, transposed[0], STRIDE, pairs[0], STRIDE * LANES, outer[0], PANEL);
	amx->end();
}

int cpu_amx_agrees(const struct cpu_amx *tested)
{
	float result[2][2][PANEL][PANEL];
	products(tested, result[0][0], result[0][1]);
	products(&cpu_amx_emulated, result[1][0], result[1][1]);
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < PANEL; i++)
			for (int j = 0; j < PANEL; j++)
				if (!(fabsf(result[0][k][i][j] - result[1][k][i][j]) < 1e-4f)) /* sums of 40 or 96 products */
					return 0;
	return 1;
}

const struct cpu_amx *cpu_amx_best(const char **why)
{
	struct amx_facts facts = { 0 };
#if defined __x86_64__
	const struct cpu_amx *amx = &cpu_amx_processor;
	unsigned a, b, c, d;
	/* Leaf 7: 22 is AMX-BF16, 24 AMX-TILE. AVX512_BF16 is older than they are. */
	facts.tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1 && d >> 24 & 1;
	facts.tiles = facts.tiles && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
	if (facts.tiles) {
		uint32_t low, high;
		__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
		facts.system = (low >> 17 & 3) == 3; /* tile configuration and data */
		facts.permission = facts.system && amx_permission();
		facts.exact = facts.permission && cpu_amx_agrees(amx);
	}
#else
	const struct cpu_amx *amx = NULL;
#endif
	return cpu_amx_usable(&facts, why) ? amx : NULL;
}
