/* SPDX-License-Identifier: Apache-2.0
 * conv3x3_backward.h's dz with wgmma: dy comes from the ring through registers, where a neighbour beyond the border is a row of zeros, weights by
 * themselves. A thread has 16 bytes of a pixel's channels at a time, so y and dz go between memory and registers without shared memory. Each warpgroup
 * has 64 pixels and all channels. */
#ifndef CUDA_CONV3X3_DATA_WGMMA_H
#define CUDA_CONV3X3_DATA_WGMMA_H

#include "conv3x3_backward.h"
#include "warpgroup.h"

struct conv3x3_data_wgmma_shape {
	enum {
		WGMMA = 1, THREADS = 2 * WARPGROUP, ROWS = 2 * 64, SIDES_BELOW = ROWS, ROW_WARPS = THREADS / 32, N = TAP_CHANNELS, N_TILES = N / 8, GROUPS = N / 32, K_STEPS = TAP_GROWTH / 16,
		PANEL_BYTES = TAP_GROWTH * 128, PARAMETERS = 2 * N
	};
	typedef dy_line<ROWS, THREADS> dy;

	static HD size_t shared_bytes()
	{
		return TAP_WEIGHT_BYTES + dy::BYTES + (PARAMETERS + ROW_WARPS * 2 * N) * sizeof(float);
	}
};

template <class T, class S> KERNEL THREADS(S::THREADS, 1) conv3x3_data_wgmma_kernel(const conv3x3_backward<T> p)
{
	begin_kernel();
#ifdef HAVE_SM80
	if (!HAVE_WARPGROUPS)
		return;
	unsigned char *weights = shared_memory(), *dy_memory = weights + TAP_WEIGHT_BYTES;
	float *scale = (float *)(dy_memory + S::dy::BYTES), *bias = scale + S::N, *sums = bias + S::N;

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, quarter = lane % 4;
	const pixel_line<S::ROWS> l(p.pixels, p.side, blockIdx.x, gridDim.x);
	const typename S::dy dy(dy_memory, p);
	for (int i = t; i < S::N; i += S::THREADS) {
		scale[i] = i < p.c_in ? p.scale[i] : 0;
		bias[i] = i < p.c_in ? p.bias[i] : 0;
	}
	SERIAL for (int i = t; i < TAPS * TAP_GROWTH * S::N / VECTOR; i += S::THREADS) {
		const int chunk = i % (S::N / VECTOR), n = i / (S::N / VECTOR) % TAP_GROWTH, tap = i / (S::N / VECTOR) / TAP_GROWTH;
		vector16 v = {};
		if (n < p.c_out && chunk * VECTOR < p.c_in)
			v = *(const vector16 *)(p.weight + (size_t)(n * TAPS + tap) * p.c_in + chunk * VECTOR);
		put_channels(weights + tap * TAP_BYTES + chunk / 8 * S::PANEL_BYTES, n, chunk % 8, v);
	}
	async_fence();
	for (int j = 0; j <= l.lead; j++)
		dy.prefetch(l, p, j);
	copies_commit();
	copies_wait<0>();
	sync_block();
	for (int j = 0; j < l.lead; j++)
		dy.template correct<T>(j);

	/* This thread's two pixels of a tile, eight channels of each 32: y is on its way while the tile before is computed. */
	const int my_row = warp * 16 + lane / 4;
	auto inside_y = [&](long row, int group) { return row < p.pixels && group * 32 + quarter * VECTOR < p.c_in; };
	vector16 y[2][S::GROUPS];
	auto read_y = [&](long row) {
		UNROLL for (int i = 0; i < 2; i++)
			UNROLL for (int g = 0; g < S::GROUPS; g++) {
				y[i][g] = vector16{};
				if (inside_y(row + my_row + i * 8, g))
					y[i][g] = *(const vector16 *)(p.y + (row + my_row + i * 8) * p.c_in + g * 32 + quarter * VECTOR);
			}
	};
	read_y(l.first);

	float dbeta[S::N_TILES][2] = {}, dgamma[S::N_TILES][2] = {}; /* sums of d and of d · y */
	SERIAL for (int i = 0; i < l.tiles; i++) {
		copies_wait<0>();
		dy.template correct<T>(i + l.lead);
		sync_block(); /* and nobody reads the tile before any more */
		dy.prefetch(l, p, i + 1 + l.lead);
		copies_commit();

		const long row = l.first + (long)i * S::ROWS;
		unsigned inside[1];
		int place[1];
		l.find(row + warp * 16, p.pixels, inside, place);
		uint32_t held[S::K_STEPS][4]; /* dy of the products on their way */
		float product[S::N_TILES][4] = {};
		UNROLL for (int tap = 0; tap < TAPS; tap++) { /* unrolled, so that each has registers of its own */
			int turn;
			const unsigned char *from = dy.row(l, place[0], inside[0], tap, &turn);
			uint32_t next[S::K_STEPS][4];
			UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++)
				load_matrices(next[k16], from + (((k16 * 2 + lane / 16) ^ turn) << 4));
			group_wait<0>(product);
			hold(held, next);
			group_fence(product);
			UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++)
				group_multiply_add<T, true>(product, held[k16], group_matrix(weights + tap * TAP_BYTES + k16 * 16 * 128, S::PANEL_BYTES));
			group_commit();
		}
		group_wait<0>(product);
		still_needed(held);

		UNROLL for (int g = 0; g < S::GROUPS; g++) {
			const octet s = load8((const float *)scale + g * 32 + quarter * VECTOR), h = load8((const float *)bias + g * 32 + quarter * VECTOR);
			UNROLL for (int half = 0; half < 2; half++) {
				vector16 &v = y[half][g];
				UNROLL for (int j = 0; j < 4; j++) {
					const int n = g * 4 + j;
					const float y0 = low_half<T>(v.word[j]), y1 = high_half<T>(v.word[j]);
					const float d0 = fmaf(y0, s.v[2 * j], h.v[2 * j]) > 0 ? product[n][2 * half] : 0;
					const float d1 = fmaf(y1, s.v[2 * j + 1], h.v[2 * j + 1]) > 0 ? product[n][2 * half + 1] : 0;
					v.word[j] = pack<T>(d0, d1);
					dbeta[n][0] += d0;
					dbeta[n][1] += d1;
					dgamma[n][0] = fmaf(d0, y0, dgamma[n][0]);
					dgamma[n][1] = fmaf(d1, y1, dgamma[n][1]);
				}
				if (inside_y(row + my_row + half * 8, g))
					*(vector16 *)(p.dz + (row + my_row + half * 8) * p.c_in + g * 32 + quarter * VECTOR) = v;
			}
		}
		read_y(row + S::ROWS);
	}

	const norm_sums<S::N, S::ROW_WARPS, S::THREADS> norm(p, 0);
	put_column_sums<S::N>(sums, warp, 0, dbeta, dgamma);
	sync_block();
	norm.write(p, sums, (int)blockIdx.x);
#endif
}

template <class T, class P> int conv3x3_data_run(conv3x3_data_wgmma_shape, const P &p, unsigned blocks, device_stream stream)
{
	typedef conv3x3_data_wgmma_shape S;
	static_assert(!P::MERGES, "there is no room for it, and no layer that has it");
	return launch(conv3x3_data_wgmma_kernel<T, S>, blocks, S::THREADS, S::shared_bytes(), stream, p);
}

#endif
