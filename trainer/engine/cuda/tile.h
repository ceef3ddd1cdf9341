/* SPDX-License-Identifier: Apache-2.0
 * Tiles of 16-bit elements in shared memory, swizzled so that ldmatrix and 16-byte copies are free of bank conflicts. */
#ifndef CUDA_TILE_H
#define CUDA_TILE_H

#include "lane.h"

enum { VECTOR = 8 }; /* 16-bit elements in a 16-byte copy */

/* Two floats that are written at once. */
struct alignas(8) float_pair {
	float v[2];
};

/* 16 bytes as four registers. */
struct alignas(16) vector16 {
	uint32_t word[4];
};

/* 16 bytes; where !inside zeros, and nothing is read. */
template <class T> DEVICE vector16 read_or_zeros(const T *from, bool inside)
{
	return inside ? *(const vector16 *)from : vector16{};
}

/* A row holds `columns` elements (32: 64 bytes, 64: 128, 128: 256, 256: 512); 16-byte chunk c of row r is stored at chunk c ^ turn(r), so that the same
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

	/* A thread has the same chunk of rows that lie this far apart. */
	template <int rows, int threads> static DEVICE constexpr int stride()
	{
		static_assert(threads % CHUNKS == 0 && rows * CHUNKS % threads == 0, "every thread has as many chunks");
		return threads / CHUNKS;
	}

	/* `threads` of which this one is number t, a block's or part of them, start the copy of rows [row, row + rows) × columns [column, column + columns) of a matrix in device memory,
	 * `pitch` elements a row; zeros for rows before 0 and from row_end on, and for columns from column_end on. place: like chunk(). */
	template <int rows, int threads, class T, class P>
	static DEVICE void load(unsigned char *base, const T *matrix, size_t pitch, long row, long row_end, int column, int column_end, P place, int t = (int)threadIdx.x)
	{
		const int r0 = t / CHUNKS, c = t % CHUNKS, first = (row < 0 ? (int)-row : 0) - r0;
		const int end = (column + c * VECTOR < column_end ? rows_left(row, row_end, rows) : 0) - r0;
		const T *from = matrix + (row + r0) * (long)pitch + column + c * VECTOR; /* perhaps outside; nothing is read there then */
		UNROLL for (int r = 0; r < rows; r += stride<rows, threads>()) {
			copy_async(place(base, r0 + r, c), from, r >= first && r < end);
			from += stride<rows, threads>() * (long)pitch;
		}
	}

	template <int rows, int threads, class T>
	static DEVICE void load(unsigned char *base, const T *matrix, size_t pitch, long row, long row_end, int column, int column_end, int t = (int)threadIdx.x)
	{
		load<rows, threads>(base, matrix, pitch, row, row_end, column, column_end, [](unsigned char *to, int r, int c) { return chunk(to, r, c); }, t);
	}

	/* The way back: rows up to row_end, columns up to column_end. */
	template <int rows, int threads, class T>
	static DEVICE void store(T *matrix, size_t pitch, long row, long row_end, int column, int column_end, unsigned char *base, int t = (int)threadIdx.x)
	{
		const int r0 = t / CHUNKS, c = t % CHUNKS;
		const int end = (column + c * VECTOR < column_end ? rows_left(row, row_end, rows) : 0) - r0;
		T *to = matrix + (row + r0) * (long)pitch + column + c * VECTOR;
		UNROLL for (int r = 0; r < rows; r += stride<rows, threads>()) {
			if (r < end)
				*(vector16 *)to = *(const vector16 *)chunk(base, r0 + r, c);
			to += stride<rows, threads>() * (long)pitch;
		}
	}

	static DEVICE int rows_left(long row, long row_end, int rows)
	{
		return row_end - row < rows ? (int)(row_end - row) : rows;
	}
};

/* Starts the copy of `count` floats and of zeros behind them, `room` in all: multiples of four. */
template <int threads> DEVICE void load_floats(float *shared, const float *from, int count, int room)
{
	for (int first = 0; first < room; first += 4 * threads) {
		const int i = first + 4 * (int)threadIdx.x;
		if (i < room)
			copy_async(shared + i, from + i, i < count);
	}
}

#endif
