/* SPDX-License-Identifier: Apache-2.0
 * 1×1 convolution of a dense layer, with the batch normalisation and ReLU before it and the statistics after it:
 *
 *     y[m][n] = round(sum over c of W[n][c] · round(relu(scale[c] · x[m][c] + bias[c])))
 *     sum[n] = sum over m of y[m][n],  square[n] = sum over m of y[m][n]²      (of the rounded y)
 *
 * Reads every x once and writes every y once: the normalised activation never exists in memory. */
#ifndef CUDA_CONV1X1_FORWARD_H
#define CUDA_CONV1X1_FORWARD_H

#include <type_traits>

#include "bn_in_place.h"
#include "column_sums.h"
#include "device.h"
#include "vector.h"
#include "warpgroup.h"

template <class T> struct conv1x1_forward {
	const T *x;               /* [pixels][x_pitch], the first c_in channels of each */
	const T *weight;          /* [c_out][c_in] */
	const float *scale, *bias; /* [c_in]; NULL: 1 and 0 */
	T *y;                     /* [pixels][y_pitch], the first c_out channels of each */
	float *partial;           /* [blocks][2][S::width(c_out)]: sums and sums of squares of each block's pixels */
	long pixels;
	int x_pitch, c_in, c_out; /* multiples of 8 */
	bn_statistics merge = {}; /* parts: scale and bias are made of these first; 0: they are there */
	int y_pitch = c_out;
};

/* How the kernel is cut: ROWS pixels a tile of N output channels, so that shares() blocks have the same pixels; STAGES steps of STEP channels in flight, weights kept in shared memory
 * (RESIDENT, c_in <= 64 * what fits) or streamed beside x. WGMMA: each warpgroup has 64 rows and all columns, so x is normalised once; every other step's while the
 * step before is multiplied, whose weights, where they are streamed, keep their stage until then. Of 128 rows each of two has its half. Of 64, where weights are
 * streamed, each has the same with its half of a step's channels (K_GROUPS), and the halves of the sums are added in the end; where they stay, each has tiles of its own (TILE_GROUPS)
 * and waits for nobody else: one reads or writes while the other multiplies. */
template <int rows, int stages, bool resident, int blocks_per_sm = 1, bool wgmma = false, int columns = 128> struct conv1x1_forward_shape {
	enum {
		WGMMA = wgmma, AHEAD = stages - 1 - (wgmma && !resident) /* steps that are asked for before they are used */, FIRST = wgmma && !resident ? stages : AHEAD /* so many at first, when no stage is in use */,
		ROWS = rows, STAGES = stages, RESIDENT = resident, THREADS = 256, BLOCKS_PER_SM = blocks_per_sm, N = columns,
		GROUPS = wgmma && rows == 64 ? 2 : 1, K_GROUPS = resident ? 1 : GROUPS, TILE_GROUPS = resident ? GROUPS : 1, TILE_THREADS = THREADS / TILE_GROUPS,
		K = 64 /* channels of a panel in shared memory */, STEP = K_GROUPS * K, COLUMN_WARPS = wgmma ? 1 : 2, SUM_WARPS = THREADS / 32 / COLUMN_WARPS / K_GROUPS, ROW_WARPS = SUM_WARPS / TILE_GROUPS,
		WARP_ROWS = ROWS / ROW_WARPS, WARP_COLUMNS = N / COLUMN_WARPS, /* 32 × 64 for 128 rows */
		M_TILES = WARP_ROWS / 16, N_TILES = WARP_COLUMNS / 8, OWN_TILES = N_TILES / K_GROUPS /* of the sums, in the end */,
		X_BYTES = ROWS * K * 2, WEIGHT_BYTES = N * K * 2, STAGE_BYTES = K_GROUPS * (X_BYTES + (resident ? 0 : WEIGHT_BYTES)),
		Y_BYTES = ROWS * N * 2, GROUP_BYTES = STAGES * STAGE_BYTES + Y_BYTES /* of a group's tiles */
	};
	static_assert(!wgmma || ((rows == 2 * 64 || rows == 64) && columns == 128), "warpgroups of 64 rows each");
	static_assert(K_GROUPS == 1 || (OWN_TILES * WARPGROUP * 16 == (int)Y_BYTES && K_GROUPS == 2), "half of the sums at a time change hands where y will be");
	static_assert((int)column_merge<THREADS>::ROOM <= (int)Y_BYTES, "sums are merged where y will be");

	static HD int shares(int c_out)
	{
		return c_out <= 128 ? 128 / N : (c_out + N - 1) / N;
	}
	static HD int width(int c_out)
	{
		return shares(c_out) * N;
	}
	static HD size_t shared_bytes(int c_in)
	{
		size_t k_steps = (size_t)(c_in + STEP - 1) / STEP;
		return TILE_GROUPS * GROUP_BYTES + (resident ? k_steps * WEIGHT_BYTES : 0) + 2 * k_steps * STEP * sizeof(float) + SUM_WARPS * 2 * N * sizeof(float);
	}
};

/* Adds what the other warpgroup has of the same sums: of the columns in warpgroup 0's half first, then of those in 1's. Then a thread's first half of `product` is its own
 * warpgroup's half of the columns. room: for half of the sums; nobody else uses it from the last barrier on, and it is free after this. */
template <int n> DEVICE void join_halves(float (&product)[n][4], int group, unsigned char *room)
{
	vector16 *const passed = (vector16 *)room + (int)threadIdx.x % WARPGROUP; /* [n / 2][WARPGROUP] */
	UNROLL for (int taker = 0; taker < 2; taker++) {
		if (taker)
			sync_block();
		UNROLL for (int i = 0; i < n / 2; i++) {
			const float *const v = product[taker * (n / 2) + i];
			if (group != taker)
				passed[i * WARPGROUP] = { { float_bits(v[0]), float_bits(v[1]), float_bits(v[2]), float_bits(v[3]) } };
		}
		sync_block();
		if (group == taker)
			UNROLL for (int i = 0; i < n / 2; i++) {
				const vector16 v = passed[i * WARPGROUP];
				UNROLL for (int j = 0; j < 4; j++)
					product[i][j] = product[taker * (n / 2) + i][j] + bits_float(v.word[j]);
			}
	}
	sync_block();
}

template <class T, class S> KERNEL THREADS(S::THREADS, S::BLOCKS_PER_SM) conv1x1_forward_kernel(const conv1x1_forward<T> p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	if (S::WGMMA && !HAVE_WARPGROUPS)
		return;
	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, group = S::GROUPS > 1 ? one_for_warp(t / WARPGROUP) : 0, k_group = S::K_GROUPS > 1 ? group : 0;
	const int k_steps = (p.c_in + S::STEP - 1) / S::STEP;
	unsigned char *stage = shared_memory() + (S::TILE_GROUPS > 1 ? group : 0) * S::GROUP_BYTES, *out = stage + S::STAGES * S::STAGE_BYTES, *weights = shared_memory() + S::TILE_GROUPS * S::GROUP_BYTES;
	float *scale = (float *)(weights + (S::RESIDENT ? k_steps * S::WEIGHT_BYTES : 0)), *bias = scale + k_steps * S::STEP, *sums = bias + k_steps * S::STEP;

	const int warp_row = warp / S::COLUMN_WARPS % S::ROW_WARPS * S::WARP_ROWS, warp_column = warp % S::COLUMN_WARPS * S::WARP_COLUMNS;
	const int shares = S::shares(p.c_out), column0 = (int)blockIdx.x % shares * S::N;
	/* Of pixel tiles: each of TILE_GROUPS warpgroups goes on as if it were a block. */
	const int block = (int)blockIdx.x / shares * S::TILE_GROUPS + (S::TILE_GROUPS > 1 ? group : 0), blocks = (int)gridDim.x / shares * S::TILE_GROUPS;
	const int tiles = (int)((p.pixels + S::ROWS - 1) / S::ROWS);
	const int tile_t = S::TILE_GROUPS > 1 ? t % S::TILE_THREADS : t; /* this thread, of those that share its tiles */
	auto sync = [] {
		if constexpr (S::TILE_GROUPS > 1)
			sync_warpgroup();
		else
			sync_block();
	};

	/* Of input channels k · STEP and on. */
	auto load_weights = [&](unsigned char *to, int k) {
		UNROLL for (int g = 0; g < S::K_GROUPS; g++)
			tile<S::K>::template load<S::N, S::THREADS>(to + g * S::WEIGHT_BYTES, p.weight, (size_t)p.c_in, column0, p.c_out, k * S::STEP + g * S::K, p.c_in);
	};
	if (S::RESIDENT)
		for (int k = 0; k < k_steps; k++)
			load_weights(weights + k * S::WEIGHT_BYTES, k);
	else
		for (int i = 0; i < S::FIRST; i++)
			if (block + i / k_steps * blocks < tiles)
				load_weights(stage + i * S::STAGE_BYTES + S::K_GROUPS * S::X_BYTES, i % k_steps);
	wait_for_writes();
	if (p.scale && !p.merge.parts) {
		load_floats<S::THREADS>(scale, p.scale, p.c_in, k_steps * S::STEP);
		load_floats<S::THREADS>(bias, p.bias, p.c_in, k_steps * S::STEP);
	}
	for (int c = t; !p.scale && c < k_steps * S::STEP; c += S::THREADS) {
		scale[c] = 1;
		bias[c] = 0;
	}

	/* Step i is step k of a pixel tile; `ahead` steps after it there may be another tile, or none. */
	auto ask = [&](int i, int pixel_tile, int k, int ahead, bool with_weights) {
		const int further = (int)((unsigned)(k + ahead) / (unsigned)k_steps); /* no loop: products that read registers are on their way (warpgroup.h) */
		pixel_tile += further * blocks;
		k += ahead - further * k_steps;
		if (pixel_tile < tiles) {
			unsigned char *to = stage + (i + ahead) % S::STAGES * S::STAGE_BYTES;
			UNROLL for (int g = 0; g < S::K_GROUPS; g++)
				tile<S::K>::template load<S::ROWS, S::TILE_THREADS>(to + g * S::X_BYTES, p.x, (size_t)p.x_pitch, (long)pixel_tile * S::ROWS, p.pixels, k * S::STEP + g * S::K, p.c_in, tile_t);
			if (with_weights)
				load_weights(to + S::K_GROUPS * S::X_BYTES, k);
		}
	};
	for (int i = 0; i < S::FIRST; i++) {
		ask(0, block, 0, i, false);
		if (i < S::AHEAD - 1 || i == S::FIRST - 1) /* AHEAD groups; the last has all the others */
			copies_commit();
	}
	if (p.merge.parts)
		scale_in_place<4, S::THREADS>(p.merge, scale, bias, k_steps * S::STEP, shared_memory() + S::STAGES * S::STAGE_BYTES);
	if (S::TILE_GROUPS > 1) { /* weights and scale, from all threads */
		copies_wait<S::AHEAD - 1>();
		async_fence(); /* which costs nothing here: once for all tiles */
		sync_block();
	}

	uint32_t z[2][S::WGMMA ? S::K / 16 : 1][4]; /* x, normalised, of the products on their way: of a turn's two steps */
	float product[S::M_TILES][S::N_TILES][4];
	const int own_column = warp_column + k_group * S::OWN_TILES * 8;
	float sum[S::OWN_TILES][2] = {}, square[S::OWN_TILES][2] = {};
	int i = 0; /* the step */
	auto step = [&](int pixel_tile, int k, auto second) { /* second: of a turn */
		copies_wait<S::AHEAD - 1>();
		sync();
		unsigned char *panels = stage + i % S::STAGES * S::STAGE_BYTES, *x = panels + k_group * S::X_BYTES;
		unsigned char *w = S::RESIDENT ? weights + k * S::WEIGHT_BYTES : panels + S::K_GROUPS * S::X_BYTES + k_group * S::WEIGHT_BYTES;
		auto normalised = [&](uint32_t (&a)[4], int m, int k16) {
			const int channel = k * S::STEP + k_group * S::K + k16 * 16 + 2 * (lane % 4);
			load_matrices(a, tile<S::K>::chunk(x, warp_row + m * 16 + lane % 16, k16 * 2 + lane / 16));
			UNROLL for (int j = 0; j < 4; j++) {
				const int c = channel + j / 2 * 8;
				a[j] = normalise_relu<T>(a[j], scale[c], bias[c], scale[c + 1], bias[c + 1]);
			}
		};
		auto prefetch = [&] {
			if (i + S::AHEAD >= S::FIRST)
				ask(i, pixel_tile, k, S::AHEAD, !S::RESIDENT);
			copies_commit();
			i++;
		};
		if constexpr (S::WGMMA) {
			UNROLL for (int k16 = 0; k16 < S::K / 16; k16++)
				normalised(z[second][k16], 0, k16);
			if constexpr (!second)
				group_fence(product[0]);
			group_fence_read(z[second]);
			UNROLL for (int k16 = 0; k16 < S::K / 16; k16++)
				group_multiply_add<T, false>(product[0], z[second][k16], group_matrix(w + k16 * 32));
			group_commit();
			prefetch();
		} else {
			prefetch();
			UNROLL_PAIR for (int k16 = 0; k16 < S::K / 16; k16++) {
				uint32_t a[S::M_TILES][4];
				UNROLL for (int m = 0; m < S::M_TILES; m++)
					normalised(a[m], m, k16);
				UNROLL for (int n = 0; n < S::N_TILES; n += 2) {
					uint32_t b[4]; /* 16 output channels: lanes 0–7, 8–15 give the low and high half of k, 16–31 the next 8 */
					load_matrices(b, tile<S::K>::chunk(w, warp_column + n * 8 + lane / 16 * 8 + lane % 8, k16 * 2 + lane / 8 % 2));
					UNROLL for (int m = 0; m < S::M_TILES; m++) {
						multiply_add<T>(product[m][n], a[m], b[0], b[1]);
						multiply_add<T>(product[m][n + 1], a[m], b[2], b[3]);
					}
				}
			}
		}
	};
	SERIAL for (int pixel_tile = block; pixel_tile < tiles; pixel_tile += blocks) {
		UNROLL for (int m = 0; m < S::M_TILES; m++)
			UNROLL for (int n = 0; n < S::N_TILES; n++)
				UNROLL for (int j = 0; j < 4; j++)
					product[m][n][j] = 0;
		/* Two steps a turn, all products done at its end: see warpgroup.h on loops. */
		SERIAL for (int k = 0; k < k_steps; k += S::WGMMA ? 2 : 1) {
			step(pixel_tile, k, std::false_type());
			if constexpr (S::WGMMA) {
				if (k + 1 < k_steps)
					step(pixel_tile, k + 1, std::true_type());
				group_wait<0>(product[0]);
				still_needed(z[0]);
				still_needed(z[1]);
			}
		}

		if constexpr (S::K_GROUPS > 1)
			join_halves(product[0], k_group, out);
		const long row = (long)pixel_tile * S::ROWS;
		UNROLL for (int m = 0; m < S::M_TILES; m++)
			UNROLL for (int n = 0; n < S::OWN_TILES; n++)
				UNROLL for (int half = 0; half < 2; half++) {
					const int r = warp_row + m * 16 + half * 8 + lane / 4, column = own_column + n * 8 + 2 * (lane % 4);
					uint32_t word = pack<T>(product[m][n][2 * half], product[m][n][2 * half + 1]);
					*tile<S::N>::pair(out, r, column) = word;
					const uint32_t counted = row + r < p.pixels ? word : 0; /* rows beyond are relu(bias) · W, not zero */
					const float low = low_half<T>(counted), high = high_half<T>(counted);
					sum[n][0] += low;
					sum[n][1] += high;
					square[n][0] = fmaf(low, low, square[n][0]);
					square[n][1] = fmaf(high, high, square[n][1]);
				}
		sync();
		tile<S::N>::template store<S::ROWS, S::TILE_THREADS>(p.y, (size_t)p.y_pitch, row, p.pixels, column0, p.c_out, out, tile_t);
	}

	put_column_sums<S::N>(sums, warp / S::COLUMN_WARPS % S::SUM_WARPS, own_column, sum, square);
	sync_block();
	for (int c = t; c < 2 * S::N; c += S::THREADS)
		p.partial[((size_t)blockIdx.x / shares * 2 + c / S::N) * S::width(p.c_out) + column0 + c % S::N] = column_sum<S::N, S::SUM_WARPS>(sums, c);
#endif
}

template <class T, class S> int conv1x1_forward_launch(const conv1x1_forward<T> &p, unsigned blocks, device_stream stream)
{
	return launch(conv1x1_forward_kernel<T, S>, blocks * (unsigned)S::shares(p.c_out), S::THREADS, S::shared_bytes(p.c_in), stream, p);
}

#endif
