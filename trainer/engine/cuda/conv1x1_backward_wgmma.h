/* SPDX-License-Identifier: Apache-2.0
 * conv1x1_backward.h's pass on tensor cores that read shared memory by themselves (wgmma). Of the weight's gradient channels are rows: x is normalised in registers, which are
 * the left matrix, while the gradient of x is multiplied; so the activation is never written, and of both products only dy and the weight are read from shared memory,
 * whose width is what this kernel needs most of. The weight's gradient is multiplied while the threads mask and add the gradient of x. With two warps a
 * scheduler what counts is how long a thread takes for a tile: nothing branches, and no load is waited for at async_fence(), which waits for them all; so the gradient of x comes
 * through shared memory, too.
 *
 * Warpgroup w has 64 of the tile's 128 channels, of both gradients. */
#ifndef CUDA_CONV1X1_BACKWARD_WGMMA_H
#define CUDA_CONV1X1_BACKWARD_WGMMA_H

#include "conv1x1_backward.h"
#include "warpgroup.h"

template <int stages> struct conv1x1_backward_wgmma_shape {
	enum {
		WGMMA = 1, ROWS = 64, STAGES = stages, DATA = 1, WEIGHT = 1, THREADS = 2 * WARPGROUP, WARPS = THREADS / 32, BLOCKS_PER_SM = 1, K = 128, N = 128,
		PANEL_BYTES = ROWS * 128, TILE_BYTES = 2 * PANEL_BYTES, STAGE_BYTES = 4 * TILE_BYTES /* dz, y, x, g */, WEIGHT_PANEL_BYTES = K * 128,
		N_TILES = PANEL / 8, K_STEPS = ROWS / 16, ROW_WARPS = 4, PARAMETERS = 6 * 128, WEIGHT_ROWS = THREADS / (N / VECTOR) /* that all threads read at once */
	};
	static_assert(ROW_WARPS * 2 * N * 4 <= STAGE_BYTES, "the sums go where the tiles were");
	static_assert((int)column_merge<THREADS>::ROOM <= (int)STAGE_BYTES, "sums are merged where the last stage's tile will be");

	static HD size_t shared_bytes()
	{
		return STAGES * STAGE_BYTES + 2 * WEIGHT_PANEL_BYTES + PARAMETERS * sizeof(float);
	}
};

template <class T, class S, class P> KERNEL THREADS(S::THREADS, S::BLOCKS_PER_SM) conv1x1_backward_wgmma_kernel(const P p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	if (!HAVE_WARPGROUPS || merges_beside<S::THREADS>(p))
		return;
	typedef tile<PANEL> panel;
	unsigned char *stage = shared_memory(), *weights = stage + S::STAGES * S::STAGE_BYTES;
	float *parameters = (float *)(weights + 2 * S::WEIGHT_PANEL_BYTES);
	float *a = parameters, *b = a + 128, *c = b + 128, *scale = c + 128, *bias = scale + 128, *gamma = bias + 128;

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, group = one_for_warp(t / WARPGROUP), quarter = lane % 4;
	const int column_tiles = (p.c_in + S::N - 1) / S::N;
	const int column0 = (int)blockIdx.x % column_tiles * S::N, split = (int)blockIdx.x / column_tiles;
	const int tiles = (int)((p.pixels + S::ROWS - 1) / S::ROWS);

	/* What comes first is asked for before any of it is waited for. */
	const int my_k = t / (S::N / VECTOR), my_chunk = t % (S::N / VECTOR);
	vector16 weight[S::K / S::WEIGHT_ROWS];
	UNROLL for (int i = 0; i < S::K / S::WEIGHT_ROWS; i++) {
		const int k = my_k + i * S::WEIGHT_ROWS, column = column0 + my_chunk * VECTOR;
		weight[i] = read_or_zeros(p.weight + (size_t)k * p.c_in + column, k < p.c_out && column < p.c_in);
	}
	wait_for_writes();
	if (!p.merge.parts) {
		load_floats<S::THREADS>(a, p.a, p.c_out, S::K);
		load_floats<S::THREADS>(b, p.b, p.c_out, S::K);
		load_floats<S::THREADS>(c, p.c, p.c_out, S::K);
	}
	load_floats<S::THREADS>(scale, p.scale + column0, p.c_in - column0, S::N);
	load_floats<S::THREADS>(bias, p.bias + column0, p.c_in - column0, S::N);
	load_floats<S::THREADS>(gamma, p.gamma + column0, p.c_in - column0, S::N);

	auto prefetch = [&](int pixel_tile, int slot) {
		if (pixel_tile < tiles) {
			unsigned char *to = stage + slot * S::STAGE_BYTES;
			const long row = (long)pixel_tile * S::ROWS;
			UNROLL for (int half = 0; half < 2; half++) {
				panel::load<S::ROWS, S::THREADS>(to + half * S::PANEL_BYTES, p.dz, (size_t)p.c_out, row, p.pixels, half * PANEL, p.c_out);
				panel::load<S::ROWS, S::THREADS>(to + S::TILE_BYTES + half * S::PANEL_BYTES, p.y, (size_t)p.c_out, row, p.pixels, half * PANEL, p.c_out);
				panel::load<S::ROWS, S::THREADS>(to + 2 * S::TILE_BYTES + half * S::PANEL_BYTES, p.x, (size_t)p.pitch, row, p.pixels, column0 + half * PANEL, p.c_in, x_chunk);
				panel::load<S::ROWS, S::THREADS>(to + 3 * S::TILE_BYTES + half * S::PANEL_BYTES, p.g, (size_t)p.pitch, row, p.pixels, column0 + half * PANEL, p.c_in, x_chunk);
			}
		}
		copies_commit();
	};
	UNROLL for (int i = 0; i < S::STAGES - 1; i++)
		prefetch(split + i * p.splits, i);

	/* This thread's part of the gradient of x: two rows, eight channels of each 32. */
	const int my_row = warp % 4 * 16 + lane / 4, my_channel = group * PANEL + quarter * VECTOR;
	T *const my_g = p.g + column0 + my_channel;
	auto inside_g = [&](long row, int half) { return row < p.pixels && column0 + my_channel + half * 32 < p.c_in; };
	UNROLL for (int i = 0; i < S::K / S::WEIGHT_ROWS; i++)
		put_channels(weights + my_chunk / 8 * S::WEIGHT_PANEL_BYTES, my_k + i * S::WEIGHT_ROWS, my_chunk % 8, weight[i]);
	if (p.merge.parts)
		coefficients_in_place<S::THREADS>(p.merge, a, b, c, S::K, stage + (S::STAGES - 1) * S::STAGE_BYTES);

	float dbeta[S::N_TILES][2] = {}, dgamma[S::N_TILES][2] = {}; /* sums of d and of d · x; the latter's normalisation comes at the end */
	float dweight[S::K / 8][4] = {};
	const int z_row = warp % 4 * 16 + lane / 4; /* of the weight's gradient: this thread has this channel of the panel and the eighth after it */
	const int my_z = (int)(x_chunk(stage, lane % 8 + lane / 16 * 8, warp % 4 * 2 + lane / 8 % 2) - stage); /* every 16 rows the turn is the same */
	int slot = 0;

	SERIAL for (int pixel_tile = split; pixel_tile < tiles; pixel_tile += p.splits) {
		copies_wait<S::STAGES - 2>();
		sync_block();
		unsigned char *dy = stage + slot * S::STAGE_BYTES, *y = dy + S::TILE_BYTES, *x = y + S::TILE_BYTES, *g = x + S::TILE_BYTES;
		const int next_slot = (slot + S::STAGES - 1) % S::STAGES;
		slot = (slot + 1) % S::STAGES;
		const long row = (long)pixel_tile * S::ROWS;
		const int rows = panel::rows_left(row, p.pixels, S::ROWS);

		/* dy in dz's place. A warp has the same eight channels of 32 pixels: their coefficients are the same word for all lanes. */
		UNROLL for (int half = 0; half < 2; half++) {
			const int first = half * PANEL + warp * VECTOR;
			const octet k = load8((const float *)a + first), l = load8((const float *)b + first), m = load8((const float *)c + first);
			vector16 *dz_chunk[S::ROWS / 32], v[S::ROWS / 32], w[S::ROWS / 32];
			UNROLL for (int i = 0; i < S::ROWS / 32; i++) { /* all reads before the first write, which might be to the same place for all that the compiler knows */
				const int r = lane + i * 32;
				dz_chunk[i] = (vector16 *)panel::chunk(dy + half * S::PANEL_BYTES, r, warp);
				v[i] = *dz_chunk[i];
				w[i] = *(const vector16 *)panel::chunk(y + half * S::PANEL_BYTES, r, warp);
			}
			UNROLL for (int i = 0; i < S::ROWS / 32; i++) {
				const uint32_t keep = lane + i * 32 < rows ? ~0u : 0;
				UNROLL for (int j = 0; j < 4; j++) {
					const float low = fmaf(k.v[2 * j], low_half<T>(v[i].word[j]), fmaf(l.v[2 * j], low_half<T>(w[i].word[j]), m.v[2 * j]));
					const float high = fmaf(k.v[2 * j + 1], high_half<T>(v[i].word[j]), fmaf(l.v[2 * j + 1], high_half<T>(w[i].word[j]), m.v[2 * j + 1]));
					v[i].word[j] = pack<T>(low, high) & keep;
				}
				*dz_chunk[i] = v[i];
			}
		}
		async_fence();
		sync_block();

		float product[S::N_TILES][4];
		const auto dy_part = [&](int k16) { return group_matrix(dy + k16 / 4 * S::PANEL_BYTES + k16 % 4 * 32); };
		const auto weight_part = [&](int k16) { return group_matrix(weights + group * S::WEIGHT_PANEL_BYTES + k16 * 16 * 128); };
		group_fence(product);
		group_multiply<T, false, true>(product, dy_part(0), weight_part(0));
		UNROLL for (int k16 = 1; k16 < S::K / 16; k16++)
			group_multiply_add<T, false, true>(product, dy_part(k16), weight_part(k16));
		group_commit();
		/* Where the tile before was, whose products are done. As soon as can be: the next fence waits for it. */
		prefetch(pixel_tile + (S::STAGES - 1) * p.splits, next_slot);

		/* Meanwhile the activation, channels as rows. That of pixels beyond the last is multiplied by zeros. */
		const float scale0 = scale[group * PANEL + z_row], bias0 = bias[group * PANEL + z_row], scale1 = scale[group * PANEL + z_row + 8], bias1 = bias[group * PANEL + z_row + 8];
		uint32_t z[S::K_STEPS][4];
		UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++) {
			load_matrices_transposed(z[k16], x + group * S::PANEL_BYTES + my_z + k16 * 16 * 128);
			UNROLL for (int j = 0; j < 4; j++)
				z[k16][j] = j % 2 ? normalise_relu<T>(z[k16][j], scale1, bias1, scale1, bias1) : normalise_relu<T>(z[k16][j], scale0, bias0, scale0, bias0);
		}
		group_fence(dweight);
		group_fence_read(z);
		UNROLL for (int k16 = 0; k16 < S::K_STEPS; k16++)
			group_multiply_add<T, true>(dweight, z[k16], group_matrix(dy + k16 * 16 * 128, S::PANEL_BYTES));
		group_commit();
		group_wait<1>(product);

		UNROLL for (int half = 0; half < 2; half++) {
			const int first = my_channel + half * 32;
			const octet s = load8((const float *)scale + first), h = load8((const float *)bias + first), e = load8((const float *)gamma + first);
			UNROLL for (int i = 0; i < 2; i++) {
				const int r = my_row + i * 8;
				const vector16 x_words = *(const vector16 *)x_chunk(x + group * S::PANEL_BYTES, r, half * 4 + quarter);
				vector16 v = *(const vector16 *)x_chunk(g + group * S::PANEL_BYTES, r, half * 4 + quarter);
				UNROLL for (int j = 0; j < 4; j++) {
					const int n = half * 4 + j;
					const float x0 = low_half<T>(x_words.word[j]), x1 = high_half<T>(x_words.word[j]);
					const float d0 = fmaf(x0, s.v[2 * j], h.v[2 * j]) > 0 ? product[n][2 * i] : 0;
					const float d1 = fmaf(x1, s.v[2 * j + 1], h.v[2 * j + 1]) > 0 ? product[n][2 * i + 1] : 0;
					v.word[j] = pack<T>(fmaf(e.v[2 * j], d0, low_half<T>(v.word[j])), fmaf(e.v[2 * j + 1], d1, high_half<T>(v.word[j])));
					dbeta[n][0] += d0;
					dbeta[n][1] += d1;
					dgamma[n][0] = fmaf(d0, x0, dgamma[n][0]);
					dgamma[n][1] = fmaf(d1, x1, dgamma[n][1]);
				}
				vector16 *to = (vector16 *)(my_g + (row + r) * p.pitch + half * 32);
				if (inside_g(row + r, half))
					*to = v;
			}
		}
		group_wait<0>(dweight);
		still_needed(z);
	}

	const norm_sums<S::N, S::ROW_WARPS, S::THREADS> norm(p, column0);
	float *const my_weight = p.partial_weight + ((size_t)split * p.c_out + 2 * quarter) * p.c_in + column0 + group * PANEL + z_row;
	UNROLL for (int n = 0; n < S::K / 8; n++)
		UNROLL for (int j = 0; j < 4; j++)
			if (n * 8 + 2 * quarter + j % 2 < p.c_out && column0 + group * PANEL + z_row + j / 2 * 8 < p.c_in)
				my_weight[(size_t)(n * 8 + j % 2) * p.c_in + j / 2 * 8] = dweight[n][j];
	sync_block(); /* nobody reads x any more */
	float *sums = (float *)stage;
	put_column_sums<S::N>(sums, warp % S::ROW_WARPS, group * PANEL, dbeta, dgamma);
	sync_block();
	norm.write(p, sums, split);
#endif
}

template <class T, class P, int stages> int conv1x1_backward_run(conv1x1_backward_wgmma_shape<stages>, const P &p, device_stream stream)
{
	typedef conv1x1_backward_wgmma_shape<stages> S;
	unsigned column_tiles = (unsigned)(p.c_in + S::N - 1) / S::N;
	return launch(conv1x1_backward_wgmma_kernel<T, S, P>, column_tiles * (unsigned)p.splits + blocks_beside(p), S::THREADS, S::shared_bytes(), stream, p);
}

#endif
