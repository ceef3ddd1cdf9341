/* SPDX-License-Identifier: Apache-2.0
 * Two sums a column of a product's tiles, over the rows of a block, in a fixed order: a thread's own rows, lanes of a column, then row warps. */
#ifndef CUDA_COLUMN_SUMS_H
#define CUDA_COLUMN_SUMS_H

#include "lane.h"

/* A warp's sums, of its columns from `column` on: first[n][j] and second[n][j] are this thread's of column 8 n + 2 (lane % 4) + j.
 * sums: [row warps][2][width] in shared memory, there after a barrier. */
template <int width, int n_tiles> DEVICE void put_column_sums(float *sums, int row_warp, int column, const float (&first)[n_tiles][2], const float (&second)[n_tiles][2])
{
	const int lane = (int)threadIdx.x % 32;
	UNROLL for (int n = 0; n < n_tiles; n++)
		UNROLL for (int j = 0; j < 2; j++) {
			float a = first[n][j], b = second[n][j];
			for (int mask = 4; mask < 32; mask *= 2) {
				a += shuffle_xor(a, mask);
				b += shuffle_xor(b, mask);
			}
			if (lane < 4) {
				float *to = sums + row_warp * 2 * width + column + n * 8 + 2 * lane + j;
				to[0] = a;
				to[width] = b;
			}
		}
}

/* The block's: i below width the first sum of column i, then the second ones. */
template <int width, int row_warps> DEVICE float column_sum(const float *sums, int i)
{
	float total = 0;
	for (int w = 0; w < row_warps; w++)
		total += sums[w * 2 * width + i];
	return total;
}

#endif
