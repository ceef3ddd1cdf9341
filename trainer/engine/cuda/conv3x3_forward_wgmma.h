/* SPDX-License-Identifier: Apache-2.0
 * conv3x3_forward.h's pass with wgmma. Pixels come from the ring through registers, where a neighbour beyond the border is a row of zeros; three taps of
 * a row share what is read there, as three times 32 columns of one product:
 *
 *     d[q][t][n] = sum over the taps' rows r and c of W[n][r][t][c] · z[q + r · side][c],      y[p][n] = d[p - 1][left][n] + d[p][middle][n] + d[p + 1][right][n]
 *
 * where left and right are in p's line of its image. Of 128 pixels whose d a tile has, 126 have all that their y needs. */
#ifndef CUDA_CONV3X3_FORWARD_WGMMA_H
#define CUDA_CONV3X3_FORWARD_WGMMA_H

#include "conv3x3_forward.h"
#include "warpgroup.h"

struct conv3x3_forward_wgmma_shape {
	enum {
		WGMMA = 1, THREADS = 2 * WARPGROUP, WARPS = THREADS / 32, PRODUCT_ROWS = 2 * 64, ROWS = PRODUCT_ROWS - 2, N = TAP_GROWTH, N_TILES = N / 8, K_STEPS = PANEL / 16,
		SIDES_BELOW = PRODUCT_ROWS / 2, ROW_BYTES = TAP_CHANNELS * 2, GROUP_BYTES = PRODUCT_ROWS * ROW_BYTES, RING = RING_TILES * PRODUCT_ROWS,
		PANEL_BYTES = 3 * TAP_GROWTH * 128, LINE_BYTES = 2 * PANEL_BYTES /* a row of taps */, EDGES = WARPS * 2 * N
	};
	static_assert(merge_taps_room<THREADS> <= (int)GROUP_BYTES, "sums are merged where the last group of the ring will be");

	static HD size_t shared_bytes()
	{
		return RING_TILES * GROUP_BYTES + TAP_WEIGHT_BYTES + ROW_BYTES + 2 * EDGES * sizeof(float) /* at last sums */;
	}
};

template <class T, class S> KERNEL THREADS(S::THREADS, 1) conv3x3_forward_wgmma_kernel(const conv3x3_forward<T> p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	if (!HAVE_WARPGROUPS)
		return;
	typedef tile<TAP_CHANNELS> tile128;
	typedef tile<PANEL> panel;
	unsigned char *ring = shared_memory(), *weights = ring + RING_TILES * S::GROUP_BYTES, *zeros = weights + TAP_WEIGHT_BYTES;
	/* Of every other tile: then one barrier a tile is enough, behind which nobody reads what the tile before left, and all is there that the next one needs. */
	float *edges = (float *)(zeros + S::ROW_BYTES); /* [2][warps][2][N]: d of the last row, left; of the first, right */

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, quarter = lane % 4;
	/* Rows of a panel: left, middle and right of all outputs, whose order gives a thread 16 bytes of y (column_channel() is its own inverse). */
	SERIAL for (int tap = 0; tap < TAPS; tap++)
		UNROLL for (int half = 0; half < 2; half++)
			panel::load<TAP_GROWTH, S::THREADS>(weights + tap / 3 * S::LINE_BYTES + half * S::PANEL_BYTES + tap % 3 * TAP_GROWTH * 128, p.weight + tap * p.c_in, (size_t)(TAPS * p.c_in), 0,
			                                    p.c_out, half * PANEL, p.c_in, [](unsigned char *to, int r, int c) { return panel::chunk(to, column_channel(r), c); });

	const long all = (p.pixels + S::ROWS - 1) / S::ROWS, from = all * blockIdx.x / gridDim.x;
	const int tiles = (int)(all * (blockIdx.x + 1) / gridDim.x - from);
	const long first = from * S::ROWS, start = first - 1 - p.side, end = p.pixels < first + (long)tiles * S::ROWS ? p.pixels : first + (long)tiles * S::ROWS;
	/* The last group of 128 pixels, from `start` on, that tile i needs; it needs three at most. */
	auto last_group = [&](int i) { return (i * S::ROWS + S::PRODUCT_ROWS + 2 * p.side - 1) / S::PRODUCT_ROWS; };

	wait_for_writes();
	octet scale, bias;
	for (int i = t; i < S::ROW_BYTES / 4; i += S::THREADS)
		((uint32_t *)zeros)[i] = 0;
	auto group = [&](int j) { return ring + j % RING_TILES * S::GROUP_BYTES; };
	auto prefetch = [&](int j) { tile128::load<S::PRODUCT_ROWS, S::THREADS>(group(j), p.x, (size_t)p.c_in, start + (long)j * S::PRODUCT_ROWS, p.pixels, 0, p.c_in); };
	auto normalise = [&](int j) { normalise_chunks<S::PRODUCT_ROWS, S::THREADS, T>(group(j), scale, bias); };

	for (int j = 0; j <= last_group(0); j++)
		prefetch(j);
	copies_commit();
	scale_of_taps<S::THREADS>(p, group(RING_TILES - 1), scale, bias); /* whose pixels are asked for behind the next barrier */
	copies_wait<0>();
	async_fence();
	for (int j = 0; j <= last_group(0); j++)
		normalise(j);
	sync_block();

	unsigned inside;
	int place;
	auto find = [&](int i) { /* the pixel of tile i whose rows this lane names to load_matrices() */
		const long named = first - 1 + (long)i * S::ROWS + warp * 16 + lane % 16;
		inside = named < 0 ? 0 : taps_inside(named, p.pixels, p.side);
		place = (int)(named - start);
	};
	find(0);

	float sum[S::N_TILES][2] = {}, square[S::N_TILES][2] = {};
	SERIAL for (int i = 0; i < tiles; i++) {
		const int coming = i + 1 < tiles && last_group(i + 1) > last_group(i) ? last_group(i + 1) : 0;
		const long row = first - 1 + (long)i * S::ROWS; /* of d's first */
		uint32_t z[6][S::K_STEPS][4]; /* each product's own: none is waited for before the next begins */
		float product[3 * S::N_TILES][4] = {};
		UNROLL for (int step = 0; step < 6; step++) { /* three rows of taps, two halves of the channels; unrolled, so that each has registers of its own */
			const int line = step / 2, half = step % 2, r = (place + (line - 1) * p.side) & (S::RING - 1);
			const unsigned char *at = inside >> (3 * line + 1) & 1 ? ring + r * S::ROW_BYTES : zeros;
			UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++)
				load_matrices(z[step][k16], at + (((half * 8 + k16 * 2 + lane / 16) ^ tile128::turn(r)) << 4));
			if (step == 0)
				group_fence(product);
			group_fence_read(z[step]);
			UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++)
				group_multiply_add<T, false>(product, z[step][k16], group_matrix(weights + line * S::LINE_BYTES + half * S::PANEL_BYTES + k16 * 32));
			group_commit();
			if (step == 0) {
				if (coming)
					prefetch(coming);
				copies_commit();
			}
		}
		/* Beside the products: the next group is normalised. */
		copies_wait<0>();
		if (coming)
			normalise(coming);
		find(i + 1);
		bool left[2], right[2], whole[2];
		UNROLL for (int h = 0; h < 2; h++) {
			const int r = warp * 16 + h * 8 + lane / 4;
			const long pixel = row + r;
			const unsigned column = (unsigned)(pixel < 0 ? 0 : pixel) % (unsigned)p.side;
			left[h] = column > 0;
			right[h] = column + 1 < (unsigned)p.side;
			whole[h] = r > 0 && r < S::PRODUCT_ROWS - 1 && pixel < end;
		}
		group_wait<0>(product);
		UNROLL for (int step = 0; step < 6; step++)
			still_needed(z[step]);

		/* A warp's neighbours have the rows next to its own. */
		float *const tile_edges = edges + (i & 1) * S::EDGES, *mine = tile_edges + warp * 2 * S::N;
		UNROLL for (int n = 0; n < S::N_TILES; n++)
			UNROLL for (int e = 0; e < 2; e++) {
				const int column = n * 8 + 2 * quarter + e;
				if (lane >= 28)
					mine[column] = product[n][2 + e];
				if (lane < 4)
					mine[S::N + column] = product[2 * S::N_TILES + n][e];
			}
		sync_block();
		const float *before = tile_edges + (warp ? warp - 1 : 0) * 2 * S::N, *behind = tile_edges + (warp + 1 < S::WARPS ? warp + 1 : warp) * 2 * S::N + S::N;
		vector16 y[2];
		UNROLL for (int n = 0; n < S::N_TILES; n++) {
			float value[2][2];
			UNROLL for (int e = 0; e < 2; e++) {
				const int column = n * 8 + 2 * quarter + e;
				const float l0 = shuffle_from(product[n][e], (lane + 28) % 32), l1 = shuffle_from(product[n][2 + e], (lane + 28) % 32);
				const float r0 = shuffle_from(product[2 * S::N_TILES + n][e], (lane + 4) % 32), r1 = shuffle_from(product[2 * S::N_TILES + n][2 + e], (lane + 4) % 32);
				const float from_left[2] = { lane < 4 ? before[column] : l0, lane < 4 ? l0 : l1 }, from_right[2] = { lane >= 28 ? r1 : r0, lane >= 28 ? behind[column] : r1 };
				UNROLL for (int h = 0; h < 2; h++)
					value[h][e] = (left[h] ? from_left[h] : 0) + product[S::N_TILES + n][2 * h + e] + (right[h] ? from_right[h] : 0);
			}
			UNROLL for (int h = 0; h < 2; h++) {
				const uint32_t word = pack<T>(value[h][0], value[h][1]) & (whole[h] ? ~0u : 0);
				const float low = low_half<T>(word), high = high_half<T>(word);
				y[h].word[n] = word;
				sum[n][0] += low;
				sum[n][1] += high;
				square[n][0] = fmaf(low, low, square[n][0]);
				square[n][1] = fmaf(high, high, square[n][1]);
			}
		}
		UNROLL for (int h = 0; h < 2; h++)
			if (whole[h] && quarter * VECTOR < p.c_out)
				*(vector16 *)(p.y + (row + warp * 16 + h * 8 + lane / 4) * (long)p.pitch + quarter * VECTOR) = y[h];
	}

	sync_block(); /* nobody reads edges any more */
	put_column_sums<S::N>(edges, warp, 0, sum, square);
	sync_block();
	for (int c = t; c < 2 * S::N; c += S::THREADS)
		p.partial[(size_t)blockIdx.x * 2 * S::N + c / S::N * S::N + column_channel(c % S::N)] = column_sum<S::N, S::WARPS>(edges, c);
#endif
}

template <class T> int conv3x3_forward_run(conv3x3_forward_wgmma_shape, const conv3x3_forward<T> &p, unsigned blocks, device_stream stream)
{
	typedef conv3x3_forward_wgmma_shape S;
	return launch(conv3x3_forward_wgmma_kernel<T, S>, blocks, S::THREADS, S::shared_bytes(), stream, p);
}

#endif
