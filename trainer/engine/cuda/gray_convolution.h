/* SPDX-License-Identifier: Apache-2.0
 * gray_stem.h's convolution on tensor cores, 4 × 4 taps of step 1 over its folded map, with the statistics after it:
 *
 *     y[p][n] = round(sum over taps t and channels c of W[n][t][c] · map[place(p) + distance(t)][c]),  sum[n] and square[n] of the rounded y over all p
 *
 * and its weight's gradient, with the correction of the normalisation behind it on the way:
 *
 *     dy[p][n] = round(a[n] · dz[p][n] + b[n] · y[p][n] + c[n]),  dW[n][t][c] = sum over p of dy[p][n] · map[place(p) + distance(t)][c]
 *
 * The map's places are one long line, image by image, row by row, as the pixels of conv3x3.h: a tap is a distance and nothing else. Places at the end of a row or an
 * image where a tap would leave them have no output; they are one in eighteen at 224². A place is 16 bytes, a row of a matrix that a warp loads, so the
 * matrices of a product are read where they lie in the ring, nine of ten of them out of what other taps have read.
 *
 * cuDNN's plans for so few channels take 1.5 and 15.6 ms on an H200 at batch 256, where the bytes need 0.1 and 0.2. */
#ifndef CUDA_GRAY_CONVOLUTION_H
#define CUDA_GRAY_CONVOLUTION_H

#include "conv3x3.h"
#include "gray_stem.h"
#include "warpgroup.h"

enum { GRAY_FILTERS = 64, GRAY_RING = 2048 /* places */, GRAY_SIDES = 511 /* at most, of the map: what a tile reads is in the ring */ };

/* The output's pixel at a place of the map, -1: none. */
DEVICE int gray_output(long place, long places, int side)
{
	const map_pixel at = map_pixel_of(place, side);
	const int out = side - GRAY_BORDER;
	return place < places && at.row < out && at.column < out ? (at.image * out + at.row) * out + at.column : -1;
}

/* The stretch of tiles of ROWS places that a block walks along. Group j is the j-th ROWS places from its first on; tile i reads groups i … i + lead. */
template <int ROWS> struct gray_line {
	int tiles, lead;
	long first;

	DEVICE gray_line(long places, int side) : lead((ROWS - 1 + GRAY_BORDER * (side + 1)) / ROWS)
	{
		const long all = (places + ROWS - 1) / ROWS, from = all * blockIdx.x / gridDim.x;
		tiles = (int)(all * (blockIdx.x + 1) / gridDim.x - from);
		first = from * ROWS;
	}
	template <class T> DEVICE void prefetch(unsigned char *ring, const T *map, long places, int group) const
	{
		const int t = (int)threadIdx.x;
		const long place = first + (long)group * ROWS + t;
		if (t < ROWS && group < tiles + lead)
			copy_async(ring + ((group * ROWS + t) & (GRAY_RING - 1)) * 16, map + place * GRAY_CHANNELS, place < places);
	}
};

/* ---- forward -------------------------------------------------------------------------------------- */

template <class T> struct gray_forward {
	const T *map;    /* [images][side][side][8] */
	const T *weight; /* [c_out][4][4][8] */
	T *y;            /* [images][side - 3][side - 3][c_out] */
	float *partial;  /* [blocks][2][64]: each block's sums and sums of squares */
	long places;     /* images · side² */
	int side, c_out; /* c_out: a multiple of 8, at most 64 */
};

/* A warp has 32 places of a tile and half of the filters, whose weights it keeps in registers. */
struct gray_forward_shape {
	enum { BLOCKS_PER_SM = 1, ROWS = 128, WARP_ROWS = 32, ROW_WARPS = ROWS / WARP_ROWS, THREADS = 2 * 32 * ROW_WARPS, M_TILES = WARP_ROWS / 16, N_TILES = GRAY_FILTERS / 2 / 8, K_STEPS = GRAY_COLUMNS / 16,
	       AHEAD = 3 /* groups on their way */ };

	static HD size_t shared_bytes()
	{
		return GRAY_RING * 16 + 2 * ROWS * sizeof(int) + ROW_WARPS * 2 * GRAY_FILTERS * sizeof(float);
	}
};

template <class T> KERNEL THREADS(gray_forward_shape::THREADS, gray_forward_shape::BLOCKS_PER_SM) gray_forward_kernel(const gray_forward<T> p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	typedef gray_forward_shape S;
	unsigned char *ring = shared_memory();
	int *output = (int *)(ring + GRAY_RING * 16); /* [2][ROWS] */
	float *sums = (float *)(output + 2 * S::ROWS);

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, quarter = lane % 4;
	const int row_warp = warp % S::ROW_WARPS, warp_row = row_warp * S::WARP_ROWS, filter0 = warp / S::ROW_WARPS * (GRAY_FILTERS / 2);
	const gray_line<S::ROWS> l(p.places, p.side);
	auto find = [&](int i) {
		if (t < S::ROWS)
			output[(i & 1) * S::ROWS + t] = gray_output(l.first + (long)i * S::ROWS + t, p.places, p.side);
	};

	/* Columns in column_channel()'s order: a thread then has eight filters in a row of what it stores. */
	uint32_t weight[S::K_STEPS][S::N_TILES][2];
	UNROLL for (int n = 0; n < S::N_TILES; n++) {
		const int filter = filter0 + column_channel(n * 8 + lane / 4);
		const uint32_t *from = (const uint32_t *)(p.weight + (size_t)filter * GRAY_COLUMNS) + quarter;
		UNROLL for (int k = 0; k < S::K_STEPS; k++)
			UNROLL for (int half = 0; half < 2; half++)
				weight[k][n][half] = filter < p.c_out ? from[k * 8 + half * 4] : 0;
	}
	wait_for_writes();

	for (int j = 0; j <= l.lead; j++)
		l.prefetch(ring, p.map, p.places, j);
	copies_commit();
	for (int j = 1; j < S::AHEAD; j++) {
		l.prefetch(ring, p.map, p.places, l.lead + j);
		copies_commit();
	}
	find(0);
	float sum[S::N_TILES][2] = {}, square[S::N_TILES][2] = {};
	const int filter = filter0 + quarter * VECTOR; /* and seven more */
	SERIAL for (int i = 0; i < l.tiles; i++) {
		copies_wait<S::AHEAD - 1>();
		sync_block(); /* and nobody reads group i - 1 any more */
		l.prefetch(ring, p.map, p.places, i + l.lead + S::AHEAD);
		copies_commit();
		find(i + 1);

		float product[S::M_TILES][S::N_TILES][4] = {};
		const int place = i * S::ROWS + warp_row + lane % 16 + lane / 16;
		UNROLL for (int k = 0; k < S::K_STEPS; k++) { /* taps 2 k and, for the upper half of the lanes, the next */
			uint32_t a[S::M_TILES][4];
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				load_matrices(a[m], ring + ((place + m * 16 + k / 2 * p.side + k % 2 * 2) & (GRAY_RING - 1)) * 16);
			UNROLL for (int n = 0; n < S::N_TILES; n++)
				UNROLL for (int m = 0; m < S::M_TILES; m++)
					multiply_add<T>(product[m][n], a[m], weight[k][n][0], weight[k][n][1]);
		}
		UNROLL for (int m = 0; m < S::M_TILES; m++)
			UNROLL for (int half = 0; half < 2; half++) {
				const int pixel = output[(i & 1) * S::ROWS + warp_row + m * 16 + half * 8 + lane / 4];
				const uint32_t keep = pixel < 0 ? 0 : ~0u;
				vector16 v;
				UNROLL for (int n = 0; n < S::N_TILES; n++) {
					v.word[n] = pack<T>(product[m][n][2 * half], product[m][n][2 * half + 1]) & keep;
					const float low = low_half<T>(v.word[n]), high = high_half<T>(v.word[n]);
					sum[n][0] += low;
					sum[n][1] += high;
					square[n][0] = fmaf(low, low, square[n][0]);
					square[n][1] = fmaf(high, high, square[n][1]);
				}
				vector16 *to = (vector16 *)(p.y + (long)pixel * p.c_out + filter);
				if (pixel >= 0 && filter < p.c_out)
					*to = v;
			}
	}

	put_column_sums<GRAY_FILTERS>(sums, row_warp, filter0, sum, square);
	sync_block();
	for (int c = t; c < 2 * GRAY_FILTERS; c += S::THREADS)
		p.partial[(size_t)blockIdx.x * 2 * GRAY_FILTERS + (size_t)(c / GRAY_FILTERS * GRAY_FILTERS + column_channel(c % GRAY_FILTERS))] = column_sum<GRAY_FILTERS, S::ROW_WARPS>(sums, c);
#endif
}

/* ---- the weight's gradient ------------------------------------------------------------------------ */

template <class T> struct gray_weight {
	const T *map;              /* [images][side][side][8] */
	const T *dz, *y;           /* [images][side - 3][side - 3][c_out] */
	const float *a, *b, *c;    /* [c_out] */
	float *partial;            /* [blocks][c_out][4][4][8] */
	long places;               /* images · side² */
	int side, c_out;           /* c_out: a multiple of 8, at most 64 */
};

/* A warp has 32 filters and one row of four taps. */
struct gray_weight_shape {
	enum {
		ROWS = 64, THREADS = 256, BLOCKS_PER_SM = 2, M_TILES = 2, TAP_PAIRS = GRAY_TAPS / 2, AHEAD = 2 /* tiles on their way */, STAGES = AHEAD + 1, MINE = ROWS * GRAY_FILTERS / VECTOR / THREADS /* chunks that a thread copies */, APART = ROWS / MINE, TILE_BYTES = ROWS * GRAY_FILTERS * 2,
		OUTPUTS = 4 /* tiles whose pixels are known: those, and the one after them */
	};
	static_assert(THREADS / 32 == GRAY_FILTERS / 32 * GRAY_TAPS, "a warp for each");

	static HD size_t shared_bytes()
	{
		return GRAY_RING * 16 + STAGES * 2 * TILE_BYTES + OUTPUTS * ROWS * sizeof(int);
	}
};

template <class T> KERNEL THREADS(gray_weight_shape::THREADS, gray_weight_shape::BLOCKS_PER_SM) gray_weight_kernel(const gray_weight<T> p)
{
	begin_kernel();
#ifdef HAVE_SM80
	typedef gray_weight_shape S;
	typedef tile<GRAY_FILTERS> tile64;
	unsigned char *stages = shared_memory(), *ring = stages + S::STAGES * 2 * S::TILE_BYTES;
	int *output = (int *)(ring + GRAY_RING * 16); /* [OUTPUTS][ROWS] */

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
	const int filter0 = warp % 2 * 32, tap_row = warp / 2, chunk = t % tile64::CHUNKS, my_row = t / tile64::CHUNKS;
	const gray_line<S::ROWS> l(p.places, p.side);
	auto find = [&](int i) {
		if (t < S::ROWS)
			output[i % S::OUTPUTS * S::ROWS + t] = gray_output(l.first + (long)i * S::ROWS + t, p.places, p.side);
	};
	auto prefetch = [&](int i) {
		unsigned char *dz = stages + i % S::STAGES * 2 * S::TILE_BYTES, *y = dz + S::TILE_BYTES;
		if (i < l.tiles)
			UNROLL for (int k = 0; k < S::MINE; k++) {
				const int r = my_row + k * S::APART;
				const int pixel = output[i % S::OUTPUTS * S::ROWS + r];
				const long at = (long)pixel * p.c_out + chunk * VECTOR;
				const bool inside = pixel >= 0 && chunk * VECTOR < p.c_out;
				copy_async(tile64::chunk(dz, r, chunk), p.dz + at, inside);
				copy_async(tile64::chunk(y, r, chunk), p.y + at, inside);
			}
		l.prefetch(ring, p.map, p.places, i + l.lead);
		copies_commit();
	};
	for (int i = 0; i <= S::AHEAD; i++)
		find(i);
	for (int j = 0; j < l.lead; j++)
		l.prefetch(ring, p.map, p.places, j);
	octet a = {}, b = {}, c = {};
	if (chunk * VECTOR < p.c_out) {
		a = load8(p.a + chunk * VECTOR);
		b = load8(p.b + chunk * VECTOR);
		c = load8(p.c + chunk * VECTOR);
	}
	sync_block();
	for (int i = 0; i < S::AHEAD; i++)
		prefetch(i);

	float dweight[S::M_TILES][GRAY_TAPS][4] = {};
	SERIAL for (int i = 0; i < l.tiles; i++) {
		unsigned char *dy = stages + i % S::STAGES * 2 * S::TILE_BYTES, *y = dy + S::TILE_BYTES;
		copies_wait<S::AHEAD - 1>();
		/* dy in dz's place, the chunks that this thread copied */
		vector16 v[S::MINE], in[S::MINE];
		uint32_t keep[S::MINE];
		UNROLL for (int k = 0; k < S::MINE; k++) {
			const int r = my_row + k * S::APART;
			keep[k] = output[i % S::OUTPUTS * S::ROWS + r] < 0 ? 0 : ~0u;
			v[k] = *(const vector16 *)tile64::chunk(dy, r, chunk);
			in[k] = *(const vector16 *)tile64::chunk(y, r, chunk);
		}
		UNROLL for (int k = 0; k < S::MINE; k++) {
			UNROLL for (int j = 0; j < 4; j++)
				v[k].word[j] = pack<T>(fmaf(a.v[2 * j], low_half<T>(v[k].word[j]), fmaf(b.v[2 * j], low_half<T>(in[k].word[j]), c.v[2 * j])),
				                       fmaf(a.v[2 * j + 1], high_half<T>(v[k].word[j]), fmaf(b.v[2 * j + 1], high_half<T>(in[k].word[j]), c.v[2 * j + 1]))) & keep[k];
			*(vector16 *)tile64::chunk(dy, my_row + k * S::APART, chunk) = v[k];
		}
		sync_block(); /* and nobody reads the tile before any more */
		prefetch(i + S::AHEAD);
		find(i + S::AHEAD + 1);

		const int place = i * S::ROWS + lane % 16 + lane / 16 + tap_row * p.side;
		UNROLL for (int k = 0; k < S::ROWS / 16; k++) {
			uint32_t left[S::M_TILES][4], right[4]; /* dy transposed: rows are filters, columns places */
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				load_matrices_transposed(left[m], tile64::chunk(dy, k * 16 + lane % 8 + lane / 16 * 8, (filter0 + m * 16) / 8 + lane / 8 % 2));
			UNROLL for (int pair = 0; pair < S::TAP_PAIRS; pair++) {
				load_matrices_transposed(right, ring + ((place + k * 16 + pair * 2) & (GRAY_RING - 1)) * 16);
				UNROLL for (int m = 0; m < S::M_TILES; m++) {
					multiply_add<T>(dweight[m][pair * 2], left[m], right[0], right[1]);
					multiply_add<T>(dweight[m][pair * 2 + 1], left[m], right[2], right[3]);
				}
			}
		}
	}

	UNROLL for (int m = 0; m < S::M_TILES; m++)
		UNROLL for (int half = 0; half < 2; half++) {
			const int filter = filter0 + m * 16 + half * 8 + lane / 4;
			if (filter < p.c_out)
				UNROLL for (int tap = 0; tap < GRAY_TAPS; tap++)
					*(float_pair *)(p.partial + ((size_t)blockIdx.x * (size_t)p.c_out + (size_t)filter) * GRAY_COLUMNS + (size_t)((tap_row * GRAY_TAPS + tap) * GRAY_CHANNELS + 2 * (lane % 4))) =
						{ { dweight[m][tap][2 * half], dweight[m][tap][2 * half + 1] } };
		}
#endif
}

inline bool gray_fits(int side, int c_out, size_t shared)
{
	return side <= GRAY_SIDES && c_out <= GRAY_FILTERS && gray_weight_shape::shared_bytes() <= shared && gray_forward_shape::shared_bytes() <= shared;
}

/* blocks: at most as many as tiles, here and below; line_blocks(). */
template <class T> int gray_forward_launch(const gray_forward<T> &p, int blocks, device_stream stream)
{
	return launch(gray_forward_kernel<T>, (unsigned)blocks, gray_forward_shape::THREADS, gray_forward_shape::shared_bytes(), stream, p);
}

template <class T> int gray_weight_launch(const gray_weight<T> &p, int blocks, device_stream stream)
{
	return launch(gray_weight_kernel<T>, (unsigned)blocks, gray_weight_shape::THREADS, gray_weight_shape::shared_bytes(), stream, p);
}

#endif
