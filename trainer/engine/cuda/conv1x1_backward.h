/* SPDX-License-Identifier: Apache-2.0
 * Backward of a dense layer's 1×1 convolution together with the batch normalisations on both of its sides.
 *
 * Before it, in: dz[m][k] is the loss's gradient after the second normalisation's ReLU mask; the normalisation's own
 * backward is an affine map per channel once its two sums are known, and is applied here:
 *     dy[m][k] = round(a[k] · dz[m][k] + b[k] · y[m][k] + c[k])
 * After it, out: the first normalisation is shared with the block's other layers. Its backward is linear, so each
 * layer only adds its part, and the correction by the sums follows once, when the channel is used up:
 *     d[m][c]    = (scale[c] · x[m][c] + bias[c] > 0) · sum over k of dy[m][k] · W[k][c]
 *     g[m][c]   += gamma[c] · d[m][c]
 *     dbeta[c]   = sum over m of d[m][c],   dgamma[c] = sum over m of d[m][c] · (x[m][c] - mean[c]) · rstd[c]
 * and the weight's gradient, from the activation that forward used:
 *     dW[k][c]   = sum over m of dy[m][k] · round(relu(scale[c] · x[m][c] + bias[c]))
 *
 * One pass over dz, y, x and g. All sums in a fixed order: each block writes its partial sums, others add them. */
#ifndef CUDA_CONV1X1_BACKWARD_H
#define CUDA_CONV1X1_BACKWARD_H

#include "conv1x1_forward.h"
#include "layer_merge.h"

template <class T> struct conv1x1_backward {
	enum { MERGES = 0 };
	const T *dz, *y;             /* [pixels][c_out] */
	const float *a, *b, *c;      /* [c_out] */
	const T *x;                  /* [pixels][pitch] */
	T *g;                        /* [pixels][pitch]; read and written */
	const T *weight;             /* [c_out][c_in] */
	const float *scale, *bias, *gamma, *mean, *rstd; /* [c_in] */
	float *partial_sums;         /* [splits][2][c_in]: dbeta, dgamma */
	float *partial_weight;       /* [splits][c_out][c_in] */
	long pixels;
	int pitch, c_in, c_out;      /* multiples of 8; c_out <= 128 */
	int splits;                  /* blocks that share a column tile */
	bn_backward_sums merge = {}; /* parts: a, b and c are made of these first; 0: they are there */
};

/* The same with what blocks behind the kernel's own merge. */
template <class T> struct conv1x1_merging : conv1x1_backward<T> {
	enum { MERGES = 1 };
	layer_sums beside;
};

/* A block keeps one tile of 128 input channels and walks over pixel tiles of ROWS. DATA: gradient of x, of which a warp has WARP_ROWS
 * pixels; WEIGHT: of the weight; both together share every read. */
template <int rows, int stages, int warps, int data, int weight, int blocks_per_sm = 1, int warp_rows = 16> struct conv1x1_backward_shape {
	enum {
		WGMMA = 0, ROWS = rows, STAGES = stages, DATA = data, WEIGHT = weight, WARPS = warps, THREADS = 32 * warps, BLOCKS_PER_SM = blocks_per_sm, K = 128, N = 128,
		WARP_ROWS = warp_rows, ROW_WARPS = ROWS / WARP_ROWS, COLUMN_WARPS = WARPS / ROW_WARPS, WARP_COLUMNS = N / COLUMN_WARPS, M_TILES = WARP_ROWS / 16, N_TILES = WARP_COLUMNS / 8,
		/* the weight's gradient, [K][N]: warps WARPS / 4 × 4; more in a row of them would normalise x more often */
		W_ROW_WARPS = WARPS / 4, W_ROWS = K / W_ROW_WARPS, W_COLUMNS = N / 4, W_M_TILES = W_ROWS / 16, W_N_TILES = W_COLUMNS / 8,
		TILE_BYTES = ROWS * 256, STAGE_BYTES = TILE_BYTES * (data ? 4 : 3), WEIGHT_BYTES = data ? K * 256 : 0,
		PARAMETERS = 8 * 128
	};
	static_assert(STAGES >= 2, "the next tile is copied while this one is used");
	static_assert((int)column_merge<THREADS>::ROOM <= (int)STAGE_BYTES, "sums are merged where the last stage's tile will be");
	static_assert(COLUMN_WARPS >= 1 && WARP_COLUMNS % 16 == 0 && W_COLUMNS % 16 == 0, "every warp takes whole pairs of 8-column tiles");

	static HD size_t shared_bytes()
	{
		return STAGES * STAGE_BYTES + WEIGHT_BYTES + (PARAMETERS + ROW_WARPS * 2 * N) * sizeof(float);
	}
};

template <class T, class S, class P> KERNEL THREADS(S::THREADS, S::BLOCKS_PER_SM) conv1x1_backward_kernel(const P p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	if (merges_beside<S::THREADS>(p))
		return;
	typedef tile<128> rows128;
	unsigned char *stage = shared_memory(), *weights = stage + S::STAGES * S::STAGE_BYTES;
	float *parameters = (float *)(weights + S::WEIGHT_BYTES), *sums = parameters + S::PARAMETERS;
	float *a = parameters, *b = a + 128, *c = b + 128;
	float *scale = c + 128, *bias = scale + 128, *gamma = bias + 128, *rstd = gamma + 128, *shift = rstd + 128; /* (x - mean) · rstd = rstd · x + shift */

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
	const int column_tiles = (p.c_in + S::N - 1) / S::N;
	const int column0 = (int)blockIdx.x % column_tiles * S::N, split = (int)blockIdx.x / column_tiles;
	const int tiles = (int)((p.pixels + S::ROWS - 1) / S::ROWS);

	if (S::DATA)
		rows128::load<S::K, S::THREADS>(weights, p.weight, (size_t)p.c_in, 0, p.c_out, column0, p.c_in);
	wait_for_writes();

	auto prefetch = [&](int pixel_tile, int slot) {
		if (pixel_tile < tiles) {
			unsigned char *to = stage + slot * S::STAGE_BYTES;
			const long row = (long)pixel_tile * S::ROWS;
			rows128::load<S::ROWS, S::THREADS>(to, p.dz, (size_t)p.c_out, row, p.pixels, 0, p.c_out);
			rows128::load<S::ROWS, S::THREADS>(to + S::TILE_BYTES, p.y, (size_t)p.c_out, row, p.pixels, 0, p.c_out);
			rows128::load<S::ROWS, S::THREADS>(to + 2 * S::TILE_BYTES, p.x, (size_t)p.pitch, row, p.pixels, column0, p.c_in);
			if (S::DATA)
				rows128::load<S::ROWS, S::THREADS>(to + 3 * S::TILE_BYTES, (const T *)p.g, (size_t)p.pitch, row, p.pixels, column0, p.c_in);
		}
		copies_commit();
	};
	UNROLL for (int i = 0; i < S::STAGES - 1; i++)
		prefetch(split + i * p.splits, i);
	for (int i = t; i < 128; i += S::THREADS) { /* while all that is on its way */
		const bool k_inside = i < p.c_out && !p.merge.parts, inside = column0 + i < p.c_in;
		a[i] = k_inside ? p.a[i] : 0;
		b[i] = k_inside ? p.b[i] : 0;
		c[i] = k_inside ? p.c[i] : 0;
		scale[i] = inside ? p.scale[column0 + i] : 0;
		bias[i] = inside ? p.bias[column0 + i] : 0;
		gamma[i] = inside ? p.gamma[column0 + i] : 0;
		rstd[i] = inside ? p.rstd[column0 + i] : 0;
		shift[i] = inside ? -p.mean[column0 + i] * p.rstd[column0 + i] : 0;
	}
	if (p.merge.parts)
		coefficients_in_place<S::THREADS>(p.merge, a, b, c, S::K, stage + (S::STAGES - 1) * S::STAGE_BYTES);

	float dbeta[S::N_TILES][2] = {}, dgamma[S::N_TILES][2] = {};
	float dweight[S::W_M_TILES][S::W_N_TILES][4] = {};
	const int row0 = warp / S::COLUMN_WARPS * S::WARP_ROWS, warp_column = warp % S::COLUMN_WARPS * S::WARP_COLUMNS;
	const int w_row = warp % S::W_ROW_WARPS * S::W_ROWS, w_column = warp / S::W_ROW_WARPS * S::W_COLUMNS;
	int slot = 0;

	SERIAL for (int pixel_tile = split; pixel_tile < tiles; pixel_tile += p.splits) {
		copies_wait<S::STAGES - 2>();
		sync_block();
		unsigned char *dy = stage + slot * S::STAGE_BYTES, *y = dy + S::TILE_BYTES, *x = y + S::TILE_BYTES, *g = x + S::TILE_BYTES;
		prefetch(pixel_tile + (S::STAGES - 1) * p.splits, (slot + S::STAGES - 1) % S::STAGES);
		slot = (slot + 1) % S::STAGES;
		const long row = (long)pixel_tile * S::ROWS;

		/* A warp has the same eight channels of 32 pixels: their coefficients are the same word for all lanes. */
		const int rows = rows128::rows_left(row, p.pixels, S::ROWS);
		UNROLL for (int chunk = warp; chunk < rows128::CHUNKS; chunk += S::WARPS) {
			const octet k = load8((const float *)a + chunk * VECTOR), l = load8((const float *)b + chunk * VECTOR), m = load8((const float *)c + chunk * VECTOR);
			UNROLL for (int r = lane; r < S::ROWS; r += 32) {
				vector16 *dz_chunk = (vector16 *)rows128::chunk(dy, r, chunk);
				const vector16 y_chunk = *(const vector16 *)rows128::chunk(y, r, chunk);
				const uint32_t keep = r < rows ? ~0u : 0; /* a mask, or each word is a branch */
				vector16 v = *dz_chunk;
				UNROLL for (int j = 0; j < 4; j++) {
					float low = fmaf(k.v[2 * j], low_half<T>(v.word[j]), fmaf(l.v[2 * j], low_half<T>(y_chunk.word[j]), m.v[2 * j]));
					float high = fmaf(k.v[2 * j + 1], high_half<T>(v.word[j]), fmaf(l.v[2 * j + 1], high_half<T>(y_chunk.word[j]), m.v[2 * j + 1]));
					v.word[j] = pack<T>(low, high) & keep;
				}
				*dz_chunk = v;
			}
		}
		sync_block();

		if (S::WEIGHT) {
			float w_scale[S::W_N_TILES], w_bias[S::W_N_TILES];
			UNROLL for (int n = 0; n < S::W_N_TILES; n++) {
				w_scale[n] = scale[w_column + n * 8 + lane / 4];
				w_bias[n] = bias[w_column + n * 8 + lane / 4];
			}
			UNROLL_PAIR for (int m16 = 0; m16 < S::ROWS / 16; m16++) {
				uint32_t left[S::W_M_TILES][4];
				UNROLL for (int m = 0; m < S::W_M_TILES; m++) /* dy transposed: rows are k, columns pixels */
					load_matrices_transposed(left[m], rows128::chunk(dy, m16 * 16 + lane % 8 + lane / 16 * 8, (w_row + m * 16) / 8 + lane / 8 % 2));
				UNROLL for (int n = 0; n < S::W_N_TILES; n += 2) {
					uint32_t right[4];
					load_matrices_transposed(right, rows128::chunk(x, m16 * 16 + lane % 16, (w_column + n * 8) / 8 + lane / 16));
					UNROLL for (int j = 0; j < 4; j++)
						right[j] = normalise_relu<T>(right[j], w_scale[n + j / 2], w_bias[n + j / 2], w_scale[n + j / 2], w_bias[n + j / 2]);
					UNROLL for (int m = 0; m < S::W_M_TILES; m++) {
						multiply_add<T>(dweight[m][n], left[m], right[0], right[1]);
						multiply_add<T>(dweight[m][n + 1], left[m], right[2], right[3]);
					}
				}
			}
		}
		if (!S::DATA)
			continue;

		float product[S::M_TILES][S::N_TILES][4] = {};
		UNROLL_PAIR for (int k16 = 0; k16 < S::K / 16; k16++) {
			uint32_t left[S::M_TILES][4];
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				load_matrices(left[m], rows128::chunk(dy, row0 + m * 16 + lane % 16, k16 * 2 + lane / 16));
			UNROLL for (int n = 0; n < S::N_TILES; n += 2) {
				uint32_t right[4]; /* W is [k][c]: transposed, the pairs run along k */
				load_matrices_transposed(right, rows128::chunk(weights, k16 * 16 + lane % 16, (warp_column + n * 8) / 8 + lane / 16));
				UNROLL for (int m = 0; m < S::M_TILES; m++) {
					multiply_add<T>(product[m][n], left[m], right[0], right[1]);
					multiply_add<T>(product[m][n + 1], left[m], right[2], right[3]);
				}
			}
		}
		UNROLL for (int n = 0; n < S::N_TILES; n++) {
			const int column = warp_column + n * 8 + 2 * (lane % 4);
			const float scale0 = scale[column], scale1 = scale[column + 1], bias0 = bias[column], bias1 = bias[column + 1], gamma0 = gamma[column], gamma1 = gamma[column + 1];
			const float rstd0 = rstd[column], rstd1 = rstd[column + 1], shift0 = shift[column], shift1 = shift[column + 1];
			UNROLL for (int i = 0; i < 2 * S::M_TILES; i++) {
				const int m = i / 2, half = i % 2, r = row0 + m * 16 + half * 8 + lane / 4;
				const uint32_t x_pair = *rows128::pair(x, r, column);
				uint32_t *g_pair = rows128::pair(g, r, column);
				const float x0 = low_half<T>(x_pair), x1 = high_half<T>(x_pair);
				const float d0 = fmaf(x0, scale0, bias0) > 0 ? product[m][n][2 * half] : 0;
				const float d1 = fmaf(x1, scale1, bias1) > 0 ? product[m][n][2 * half + 1] : 0;
				*g_pair = pack<T>(fmaf(gamma0, d0, low_half<T>(*g_pair)), fmaf(gamma1, d1, high_half<T>(*g_pair)));
				dbeta[n][0] += d0;
				dbeta[n][1] += d1;
				dgamma[n][0] = fmaf(d0, fmaf(x0, rstd0, shift0), dgamma[n][0]);
				dgamma[n][1] = fmaf(d1, fmaf(x1, rstd1, shift1), dgamma[n][1]);
			}
		}
		sync_block();
		rows128::store<S::ROWS, S::THREADS>(p.g, (size_t)p.pitch, row, p.pixels, column0, p.c_in, g);
	}

	if (S::WEIGHT) {
		UNROLL for (int m = 0; m < S::W_M_TILES; m++)
			UNROLL for (int n = 0; n < S::W_N_TILES; n++)
				UNROLL for (int half = 0; half < 2; half++) {
					const int k = w_row + m * 16 + half * 8 + lane / 4, column = column0 + w_column + n * 8 + 2 * (lane % 4);
					if (k < p.c_out && column < p.c_in)
						*(float_pair *)(p.partial_weight + ((size_t)split * p.c_out + k) * p.c_in + column) = { { dweight[m][n][2 * half], dweight[m][n][2 * half + 1] } };
				}
	}
	if (!S::DATA)
		return;
	put_column_sums<S::N>(sums, warp / S::COLUMN_WARPS, warp_column, dbeta, dgamma);
	sync_block();
	for (int i = t; i < 2 * S::N; i += S::THREADS)
		if (column0 + i % S::N < p.c_in)
			p.partial_sums[((size_t)split * 2 + i / S::N) * p.c_in + column0 + i % S::N] = column_sum<S::N, S::ROW_WARPS>(sums, i);
#endif
}

template <class T, class P, int... cut> int conv1x1_backward_run(conv1x1_backward_shape<cut...>, const P &p, device_stream stream)
{
	typedef conv1x1_backward_shape<cut...> S;
	unsigned column_tiles = (unsigned)(p.c_in + S::N - 1) / S::N;
	return launch(conv1x1_backward_kernel<T, S, P>, column_tiles * (unsigned)p.splits + blocks_beside(p), S::THREADS, S::shared_bytes(), stream, p);
}

/* splits: from 1 to the number of pixel tiles. S: a shape of this file's or of conv1x1_backward_wgmma.h's. */
template <class T, class S, class P> int conv1x1_backward_launch(const P &p, device_stream stream)
{
	return conv1x1_backward_run<T>(S(), p, stream);
}

#endif
