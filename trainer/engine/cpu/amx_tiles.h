/* SPDX-License-Identifier: Apache-2.0
 * AMX's tile registers in plain C, a set for each thread, as Intel's manual (SDM volume 2, TDPBF16PS and its like) describes them:
 * what proves the kernels where there is no AMX. A use that the processor refuses aborts. */
#ifndef CPU_AMX_TILES_H
#define CPU_AMX_TILES_H

#include <stddef.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_MOST_ROWS = 16, AMX_ROW_BYTES = 64 };

/* LDTILECFG's 64 bytes for palette 1. */
struct amx_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16]; /* 8 tiles, then zeros */
	uint8_t rows[16];
};

/* Sets shapes and clears all tiles. */
void amx_configure(const struct amx_config *config);
void amx_release(void);
void amx_zero(int tile);
void amx_load(int tile, const void *from, ptrdiff_t stride);
void amx_store(int tile, void *to, ptrdiff_t stride);
/* sum[m][n] += (sum over k of a[m][2 k] * b[k][2 n]) + (sum over k of a[m][2 k + 1] * b[k][2 n + 1]): a multiplication and addition
 * rounds once, to nearest even; denormals count as zero and become zero. */
void amx_dot_bf16(int sum, int a, int b);

#endif
