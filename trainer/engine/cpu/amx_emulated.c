/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/amx_tiles.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
	struct amx_config config; /* palette 0: no tile may be used */
	uint8_t tile[AMX_TILES][AMX_MOST_ROWS][AMX_ROW_BYTES];
} state;

static void refuse_unless(int right)
{
	if (!right)
		abort();
}

static void check(int tile)
{
	refuse_unless(state.config.palette == 1 && state.config.rows[tile] && state.config.row_bytes[tile]);
}

void amx_configure(const struct amx_config *config)
{
	refuse_unless(config->palette <= 1);
	for (int i = 0; i < 16; i++)
		refuse_unless(i < AMX_TILES ? config->rows[i] <= AMX_MOST_ROWS && config->row_bytes[i] <= AMX_ROW_BYTES : !config->rows[i] && !config->row_bytes[i]);
	memset(&state, 0, sizeof state);
	state.config = *config;
}

void amx_release(void)
{
	memset(&state, 0, sizeof state);
}

void amx_zero(int tile)
{
	check(tile);
	memset(state.tile[tile], 0, sizeof state.tile[tile]);
}

void amx_load(int tile, const void *from, ptrdiff_t stride)
{
	amx_zero(tile);
	for (int r = 0; r < state.config.rows[tile]; r++)
		memcpy(state.tile[tile][r], (const char *)from + r * stride, state.config.row_bytes[tile]);
}

void amx_store(int tile, void *to, ptrdiff_t stride)
{
	check(tile);
	for (int r = 0; r < state.config.rows[tile]; r++)
		memcpy((char *)to + r * stride, state.tile[tile][r], state.config.row_bytes[tile]);
}

static float flushed(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static float widened(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float value;
	memcpy(&value, &bits, sizeof value);
	return flushed(value);
}

/* A product of bf16 is exact in double, and its sum with an fp32 number rounds to fp32 as if it were: either the sum fits 53 bits, or the
 * smaller term is too small to matter. */
void amx_dot_bf16(int sum, int a, int b)
{
	check(sum);
	check(a);
	check(b);
	int rows = state.config.rows[sum], columns = state.config.row_bytes[sum] / 4, pairs = state.config.row_bytes[a] / 4;
	refuse_unless(sum != a && sum != b && a != b && state.config.rows[a] == rows && state.config.row_bytes[b] / 4 == columns &&
	              state.config.rows[b] == pairs);
	double factor[AMX_MOST_ROWS][2][AMX_MOST_ROWS];
	for (int k = 0; k < pairs; k++) {
		uint16_t x[2 * AMX_MOST_ROWS];
		memcpy(x, state.tile[b][k], sizeof x);
		for (int n = 0; n < AMX_MOST_ROWS; n++) {
			factor[k][0][n] = widened(x[2 * n]);
			factor[k][1][n] = widened(x[2 * n + 1]);
		}
	}
	for (int m = 0; m < rows; m++) {
		uint16_t x[2 * AMX_MOST_ROWS];
		float even[AMX_MOST_ROWS] = { 0 }, odd[AMX_MOST_ROWS] = { 0 }, total[AMX_MOST_ROWS];
		memcpy(x, state.tile[a][m], sizeof x);
		for (int k = 0; k < pairs; k++) {
			double first = widened(x[2 * k]), second = widened(x[2 * k + 1]);
			for (int n = 0; n < AMX_MOST_ROWS; n++)
				even[n] = flushed((float)(first * factor[k][0][n] + even[n]));
			for (int n = 0; n < AMX_MOST_ROWS; n++)
				odd[n] = flushed((float)(second * factor[k][1][n] + odd[n]));
		}
		memcpy(total, state.tile[sum][m], sizeof total);
		for (int n = 0; n < columns; n++)
			total[n] = flushed(flushed(total[n]) + flushed(even[n] + odd[n]));
		memcpy(state.tile[sum][m], total, sizeof total);
	}
}

static void begin(void)
{
	struct amx_config config = { .palette = 1 };
	for (int i = 0; i < AMX_TILES; i++) {
		config.rows[i] = AMX_MOST_ROWS;
		config.row_bytes[i] = AMX_ROW_BYTES;
	}
	amx_configure(&config);
}

/* VCVTNE2PS2BF16: to nearest even, denormals become zero, NaN stays NaN. */
static uint16_t narrowed(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	if (x != x)
		return (uint16_t)(bits >> 16 | 0x40);
	if (fabsf(x) < FLT_MIN)
		return (uint16_t)(bits >> 16 & 0x8000);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void narrow_row(const float *low, const float *high, void *to)
{
	uint16_t row[32];
	for (int i = 0; i < 16; i++) {
		row[i] = narrowed(low[i]);
		row[16 + i] = narrowed(high[i]);
	}
	memcpy(to, row, sizeof row);
}

static void pair_row(const float *even, const float *odd, void *to)
{
	uint32_t row[16];
	for (int i = 0; i < 16; i++)
		row[i] = narrowed(even[i]) | (uint32_t)narrowed(odd[i]) << 16;
	memcpy(to, row, sizeof row);
}

static void transpose_pairs(uint32_t from[16][16], uint16_t *to, ptrdiff_t stride)
{
	for (int channel = 0; channel < 16; channel++)
		for (int pair = 0; pair < 16; pair++)
			memcpy(to + channel * stride + 2 * pair, &from[pair][channel], sizeof from[pair][channel]);
}

#define KERNEL(name) name##_emulated
#define MEMORY_IS_WRITTEN ((void)0)
#define TILE_ZERO(tile) amx_zero(tile)
#define TILE_LOAD(tile, from, bytes) amx_load(tile, from, bytes)
#define TILE_STORE(tile, to, bytes) amx_store(tile, to, bytes)
#define TILE_DOT(sum, a, b) amx_dot_bf16(sum, a, b)
#include "engine/cpu/amx.inc"

const struct cpu_amx cpu_amx_emulated = {
	"AMX emulated in plain C", begin, amx_release, narrow_emulated, transpose_emulated, pair_emulated, multiply_emulated, outer_emulated,
};
