/* SPDX-License-Identifier: Apache-2.0
 * What the 3×3 convolutions of dense layers share: pixels as one long line.
 *
 * Pixels of all images are numbered image by image, row by row. The neighbours of a pixel are then a fixed number of places away, and a block that walks
 * along the line keeps the stretch it needs in a ring of shared memory: every pixel is copied there once, changed there once (normalised,
 * say) and read by nine taps. A neighbour beyond the border of its image is some other pixel's place: lanes that need it read a row of zeros. */
#ifndef CUDA_CONV3X3_H
#define CUDA_CONV3X3_H

#include "bn_in_place.h"
#include "column_sums.h"
#include "device.h"
#include "vector.h"

enum { TAPS = 9, TAP_CHANNELS = 128, TAP_GROWTH = 32, RING_TILES = 4 };

/* How far the neighbour of tap 0 … 8 is: rows above, of the pixel itself, below; left, middle, right in each. */
DEVICE int tap_distance(int tap, int side)
{
	return (tap / 3 - 1) * side + tap % 3 - 1;
}

/* Bit t: tap t's neighbour is in the image; none of a pixel beyond the last. There are fewer than 2^32, which divide several times as fast. */
DEVICE unsigned taps_inside(long pixel, long pixels, int side)
{
	const unsigned whole = (unsigned)side, line = (unsigned)pixel / whole, column = (unsigned)pixel - line * whole, row = line % whole;
	const unsigned rows = 0x38u | (row > 0 ? 0x7u : 0u) | (row < whole - 1 ? 0x1c0u : 0u);
	const unsigned columns = 0x92u | (column > 0 ? 0x49u : 0u) | (column < whole - 1 ? 0x124u : 0u);
	return pixel < pixels ? rows & columns : 0u;
}

/* The stretch of tiles of ROWS pixels that a block walks along, and where a pixel is in its ring of RING_TILES tiles. Group j is the j-th ROWS pixels
 * of the stretch with its margins; tile i needs groups i … i + lead. One more is on its way, so lead must be at most two: side < ROWS. */
template <int ROWS> struct pixel_line {
	enum { RING = RING_TILES * ROWS };
	int side, tiles, lead;
	long first, start; /* pixels: of tile 0, of group 0 */

	/* Of block `block` of `blocks`. */
	DEVICE pixel_line(long pixels, int map_side, unsigned block, unsigned blocks) : side(map_side)
	{
		const long all = (pixels + ROWS - 1) / ROWS, from = all * block / blocks;
		tiles = (int)(all * (block + 1) / blocks - from);
		lead = (2 * (side + 1) + ROWS - 1) / ROWS;
		first = from * ROWS;
		start = first - (side + 1);
	}
	DEVICE int place(long pixel) const
	{
		return (int)(pixel - start);
	}
	/* Of the pixels whose rows this lane names to load_matrices(), 16 a tile from `pixel` on: where they are, and which of their taps are inside. */
	template <int m_tiles> DEVICE void find(long pixel, long pixels, unsigned (&inside)[m_tiles], int (&places)[m_tiles]) const
	{
		UNROLL for (int m = 0; m < m_tiles; m++) {
			const long one = pixel + m * 16 + threadIdx.x % 16;
			inside[m] = taps_inside(one, pixels, side);
			places[m] = place(one);
		}
	}
};

/* In place, the chunks that this thread copied; scale and bias of their channels. Four are read before any is written, which might be to the same place for all that the
 * compiler knows. */
template <int rows, int threads, class T> DEVICE void normalise_chunks(unsigned char *base, const octet &scale, const octet &bias)
{
	typedef tile<TAP_CHANNELS> tile128;
	constexpr int apart = tile128::stride<rows, threads>(), mine = rows / apart, together = mine < 4 ? mine : 4;
	static_assert(mine % together == 0, "as many at a time");
	const int row = (int)threadIdx.x / tile128::CHUNKS, chunk = (int)threadIdx.x % tile128::CHUNKS;
	UNROLL for (int first = 0; first < mine; first += together) {
		vector16 v[together];
		UNROLL for (int i = 0; i < together; i++)
			v[i] = *(const vector16 *)tile128::chunk(base, row + (first + i) * apart, chunk);
		UNROLL for (int i = 0; i < together; i++) {
			UNROLL for (int j = 0; j < 4; j++)
				v[i].word[j] = normalise_relu<T>(v[i].word[j], scale.v[2 * j], bias.v[2 * j], scale.v[2 * j + 1], bias.v[2 * j + 1]);
			*(vector16 *)tile128::chunk(base, row + (first + i) * apart, chunk) = v[i];
		}
	}
}

/* [growth][9][channels] as nine tiles of [TAP_GROWTH][TAP_CHANNELS], zeros where there is less. */
enum { TAP_BYTES = TAP_GROWTH * TAP_CHANNELS * 2, TAP_WEIGHT_BYTES = TAPS * TAP_BYTES };

template <int threads, class T> DEVICE void load_taps(unsigned char *to, const T *weight, int growth, int channels)
{
	SERIAL for (int tap = 0; tap < TAPS; tap++)
		tile<TAP_CHANNELS>::load<TAP_GROWTH, threads>(to + tap * TAP_BYTES, weight + tap * channels, (size_t)(TAPS * channels), 0, growth, 0, channels);
}

/* Blocks for a walk: as many as there are multiprocessors, or tiles. */
inline int line_blocks(long pixels, int rows, int multiprocessors)
{
	const long tiles = (pixels + rows - 1) / rows;
	return (int)(tiles < multiprocessors ? tiles : multiprocessors);
}

/* As few blocks as have no more tiles each than the one of `blocks` that has most: a step is as long, and leaves fewer parts. */
inline int even_blocks(long pixels, int rows, int blocks)
{
	const long tiles = (pixels + rows - 1) / rows, each = (tiles + blocks - 1) / blocks;
	return (int)((tiles + each - 1) / each);
}

#endif
