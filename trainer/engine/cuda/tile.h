/* SPDX-License-Identifier: Apache-2.0
 * Tiles of 16-bit elements in shared memory, swizzled so that ldmatrix and 16-byte copies are free of bank conflicts. */
#ifndef CUDA_TILE_H
#define CUDA_TILE_H

#include "lane.h"

enum { VECTOR = 8 }; /* 16-bit elements in a 16-byte copy */

/* A row holds `columns` elements (32: 64 bytes, 64: 128, 128: 256); 16-byte chunk c of row r is stored at chunk c ^ turn(r), so that the same
 * chunk of any eight rows in sequence lies in eight different sets of banks. */
template <int columns> struct tile {
	enum { BYTES_A_ROW = 2 * columns, CHUNKS = columns / VECTOR };

	static DEVICE int turn(int row)
	{
		return CHUNKS >= 8 ? row & 7 : row / (8 / CHUNKS) & (CHUNKS - 1);
	}

	static DEVICE unsigned char *chunk(unsigned char *base, int row, int chunk)
	{
		return base + row * BYTES_A_ROW + ((chunk ^ turn(row)) << 4);
	}

	/* The 32-bit word that holds an even column and the next. */
	static DEVICE uint32_t *pair(unsigned char *base, int row, int column)
	{
		return (uint32_t *)(chunk(base, row, column / VECTOR) + 2 * (column % VECTOR));
	}

	/* Starts the copy of rows [row, row + rows) × columns [column, column + columns) of a matrix in device memory,
	 * `pitch` elements a row; zeros for rows before 0 and from row_end on, and for columns from column_end on. A thread copies the same chunk of
	 * every row it comes to, if the block has a multiple of CHUNKS threads. */
	template <class T>
	static DEVICE void load(unsigned char *base, const T *matrix, size_t pitch, long row, int rows, long row_end, int column, int column_end)
	{
		for (int i = (int)threadIdx.x; i < rows * CHUNKS; i += (int)blockDim.x) {
			int r = i / CHUNKS, c = i % CHUNKS;
			bool inside = (unsigned long)(row + r) < (unsigned long)row_end && column + c * VECTOR < column_end;
			copy_async(chunk(base, r, c), inside ? matrix + (size_t)(row + r) * pitch + column + c * VECTOR : matrix, inside);
		}
	}
};

/* 16 bytes as four registers. */
struct alignas(16) vector16 {
	uint32_t word[4];
};

#endif
