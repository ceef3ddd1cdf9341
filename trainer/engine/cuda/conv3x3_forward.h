/* SPDX-License-Identifier: Apache-2.0
 * 3×3 convolution of a dense layer, with the batch normalisation and ReLU before it and the statistics after it:
 *
 *     z[p][c] = round(relu(scale[c] · x[p][c] + bias[c]))
 *     y[p][n] = round(sum over taps t and c of W[n][t][c] · z[p + distance(t)][c]), beyond the border 0
 *     sum[n] = sum over p of y[p][n],  square[n] = sum over p of y[p][n]²      (of the rounded y)
 *
 * Reads every x once, but for the margins of a block's stretch, and writes every y once, into its slice of the block's map. */
#ifndef CUDA_CONV3X3_FORWARD_H
#define CUDA_CONV3X3_FORWARD_H

#include "conv3x3.h"

template <class T> struct conv3x3_forward {
	const T *x;                   /* [pixels][c_in] */
	const T *weight;              /* [c_out][9][c_in] */
	const float *scale, *bias;    /* [c_in] */
	T *y;                         /* [pixels][pitch], the first c_out channels of each */
	float *partial;               /* [blocks][2][32]: each block's sums and sums of squares */
	long pixels;                  /* images · side² */
	int side, pitch, c_in, c_out; /* multiples of 8 but side; c_in <= 128, c_out <= 32 */
	bn_statistics merge = {};     /* parts: scale and bias are made of these first; 0: they are there */
};

/* Scale and bias of this thread's channels. room: merge_taps_room bytes of the block's memory that nobody needs before the next barrier. */
template <int threads> constexpr int merge_taps_room = column_merge<threads>::ROOM + 2 * TAP_CHANNELS * 4;

template <int threads, class T> DEVICE void scale_of_taps(const conv3x3_forward<T> &p, unsigned char *room, octet &scale, octet &bias)
{
	const int channel = (int)threadIdx.x % (TAP_CHANNELS / VECTOR) * VECTOR;
	if (!p.merge.parts) {
		scale = load8_or_zeros(p.scale + channel, channel < p.c_in);
		bias = load8_or_zeros(p.bias + channel, channel < p.c_in);
		return;
	}
	float *merged = (float *)(room + column_merge<threads>::ROOM);
	scale_in_place<1, threads>(p.merge, merged, merged + TAP_CHANNELS, TAP_CHANNELS, room);
	sync_block();
	scale = load8((const float *)merged + channel);
	bias = load8((const float *)merged + TAP_CHANNELS + channel);
}

/* ROWS pixels a tile, WARP_ROWS a warp; K_GROUPS warps share a warp's pixels, each with its share of the channels. */
template <int rows, int warp_rows, int k_groups> struct conv3x3_forward_shape {
	enum {
		WGMMA = 0, ROWS = rows, SIDES_BELOW = rows, K_GROUPS = k_groups, ROW_WARPS = rows / warp_rows, WARP_ROWS = warp_rows, WARPS = ROW_WARPS * K_GROUPS, THREADS = 32 * WARPS,
		M_TILES = warp_rows / 16, N = TAP_GROWTH, N_TILES = N / 8, K_STEPS = TAP_CHANNELS / 16 / k_groups,
		GROUP_BYTES = rows * TAP_CHANNELS * 2, ROW_BYTES = TAP_CHANNELS * 2, SHARES = M_TILES * N_TILES * 4,
		EXCHANGE_BYTES = (k_groups - 1) * SHARES * ROW_WARPS * 32 * 4
	};
	static_assert(merge_taps_room<THREADS> <= (int)GROUP_BYTES, "sums are merged where the last group of the ring will be");

	static HD size_t shared_bytes()
	{
		return RING_TILES * GROUP_BYTES + TAP_WEIGHT_BYTES + ROW_BYTES + EXCHANGE_BYTES + ROW_WARPS * 2 * N * sizeof(float);
	}
};

template <class T, class S> KERNEL THREADS(S::THREADS, 1) conv3x3_forward_kernel(const conv3x3_forward<T> p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	typedef tile<TAP_CHANNELS> tile128;
	unsigned char *ring = shared_memory(), *weights = ring + RING_TILES * S::GROUP_BYTES, *zeros = weights + TAP_WEIGHT_BYTES;
	float *exchange = (float *)(zeros + S::ROW_BYTES), *sums = exchange + S::EXCHANGE_BYTES / 4;

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
	const int k_group = warp / S::ROW_WARPS, row_warp = warp % S::ROW_WARPS, warp_row = row_warp * S::WARP_ROWS;
	load_taps<S::THREADS>(weights, p.weight, p.c_out, p.c_in); /* while the rest is worked out */
	const pixel_line<S::ROWS> l(p.pixels, p.side, blockIdx.x, gridDim.x);
	wait_for_writes();

	for (int i = t; i < S::ROW_BYTES / 4; i += S::THREADS)
		((uint32_t *)zeros)[i] = 0;

	auto group = [&](int j) { return ring + j % RING_TILES * S::GROUP_BYTES; };
	auto prefetch = [&](int j) {
		if (j <= l.tiles - 1 + l.lead)
			tile128::load<S::ROWS, S::THREADS>(group(j), p.x, (size_t)p.c_in, l.start + (long)j * S::ROWS, p.pixels, 0, p.c_in);
	};
	for (int j = 0; j < l.lead; j++)
		prefetch(j);
	prefetch(l.lead);
	copies_commit();
	octet scale, bias;
	scale_of_taps<S::THREADS>(p, group(RING_TILES - 1), scale, bias); /* whose pixels are asked for behind the next barrier */
	copies_wait<0>();
	for (int j = 0; j < l.lead; j++)
		normalise_chunks<S::ROWS, S::THREADS, T>(group(j), scale, bias);

	float sum[S::N_TILES][2] = {}, square[S::N_TILES][2] = {};
	SERIAL for (int i = 0; i < l.tiles; i++) {
		copies_wait<0>();
		normalise_chunks<S::ROWS, S::THREADS, T>(group(i + l.lead), scale, bias);
		sync_block(); /* and nobody reads group i - 1 any more, whose room the next one takes */
		prefetch(i + 1 + l.lead);
		copies_commit();

		const long row = l.first + (long)i * S::ROWS;
		unsigned inside[S::M_TILES];
		int place[S::M_TILES];
		l.find(row + warp_row, p.pixels, inside, place);
		float product[S::M_TILES][S::N_TILES][4] = {};
		SERIAL for (int tap = 0; tap < TAPS; tap++) {
			unsigned char *from[S::M_TILES], *w = weights + tap * TAP_BYTES;
			int turn[S::M_TILES];
			UNROLL for (int m = 0; m < S::M_TILES; m++) {
				const int r = (place[m] + tap_distance(tap, p.side)) & (pixel_line<S::ROWS>::RING - 1);
				from[m] = inside[m] >> tap & 1 ? ring + r * S::ROW_BYTES : zeros;
				turn[m] = tile128::turn(r);
			}
			UNROLL for (int step = 0; step < S::K_STEPS; step++) {
				const int k16 = k_group * S::K_STEPS + step;
				uint32_t a[S::M_TILES][4];
				UNROLL for (int m = 0; m < S::M_TILES; m++)
					load_matrices(a[m], from[m] + (((k16 * 2 + lane / 16) ^ turn[m]) << 4));
				UNROLL for (int n = 0; n < S::N_TILES; n += 2) {
					uint32_t b[4];
					load_matrices(b, tile128::chunk(w, n * 8 + lane / 16 * 8 + lane % 8, k16 * 2 + lane / 8 % 2));
					UNROLL for (int m = 0; m < S::M_TILES; m++) {
						multiply_add<T>(product[m][n], a[m], b[0], b[1]);
						multiply_add<T>(product[m][n + 1], a[m], b[2], b[3]);
					}
				}
			}
		}

		/* The shares of the other groups of channels, in their order. */
		if (k_group)
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				UNROLL for (int n = 0; n < S::N_TILES; n++)
					UNROLL for (int j = 0; j < 4; j++)
						exchange[(((k_group - 1) * S::SHARES + (m * S::N_TILES + n) * 4 + j) * S::ROW_WARPS + row_warp) * 32 + lane] = product[m][n][j];
		if (S::K_GROUPS > 1)
			sync_block();
		if (k_group)
			continue;
		const int rows = tile128::rows_left(row, p.pixels, S::ROWS);
		T *to = p.y + (row + warp_row + lane / 4) * (long)p.pitch + 2 * (lane % 4);
		UNROLL for (int m = 0; m < S::M_TILES; m++)
			UNROLL for (int n = 0; n < S::N_TILES; n++) {
				UNROLL for (int other = 0; other < S::K_GROUPS - 1; other++)
					UNROLL for (int j = 0; j < 4; j++)
						product[m][n][j] += exchange[((other * S::SHARES + (m * S::N_TILES + n) * 4 + j) * S::ROW_WARPS + row_warp) * 32 + lane];
				UNROLL for (int half = 0; half < 2; half++) {
					const int r = warp_row + m * 16 + half * 8 + lane / 4, column = n * 8 + 2 * (lane % 4);
					const uint32_t word = pack<T>(product[m][n][2 * half], product[m][n][2 * half + 1]);
					const float low = low_half<T>(word), high = high_half<T>(word); /* 0 of a pixel beyond the last */
					sum[n][0] += low;
					sum[n][1] += high;
					square[n][0] = fmaf(low, low, square[n][0]);
					square[n][1] = fmaf(high, high, square[n][1]);
					if (r < rows && column < p.c_out)
						*(uint32_t *)(to + (m * 16 + half * 8) * (long)p.pitch + n * 8) = word;
				}
			}
	}

	if (!k_group)
		put_column_sums<S::N>(sums, row_warp, 0, sum, square);
	sync_block();
	for (int c = t; c < 2 * S::N; c += S::THREADS)
		p.partial[(size_t)blockIdx.x * 2 * S::N + c] = column_sum<S::N, S::ROW_WARPS>(sums, c);
#endif
}

template <class T, int... cut> int conv3x3_forward_run(conv3x3_forward_shape<cut...>, const conv3x3_forward<T> &p, unsigned blocks, device_stream stream)
{
	typedef conv3x3_forward_shape<cut...> S;
	return launch(conv3x3_forward_kernel<T, S>, blocks, S::THREADS, S::shared_bytes(), stream, p);
}

/* blocks: at most as many as tiles. S: a shape of this file's or of conv3x3_forward_wgmma.h's. */
template <class T, class S> int conv3x3_forward_launch(const conv3x3_forward<T> &p, unsigned blocks, device_stream stream)
{
	return conv3x3_forward_run(S(), p, blocks, stream);
}

#endif
