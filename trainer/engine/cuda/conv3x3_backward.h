/* SPDX-License-Identifier: Apache-2.0
 * Backward of a dense layer's 3×3 convolution together with the batch normalisations on both of its sides.
 *
 * Before it, in: the gradient of the layer's slice of the map, with every later layer's part in it. Its correction is due now, an affine map per channel:
 *     dy[p][n] = round(a[n] · g[p][n] + b[n] · x[p][n] + c[n])
 * After it, out: the gradient behind the second normalisation's ReLU mask, and that normalisation's two sums
 *     dz[p][c] = (scale[c] · y[p][c] + bias[c] > 0) · sum over taps t and n of W[n][t][c] · dy[p - distance(t)][n]
 *     dbeta[c] = sum over p of dz[p][c],   dgamma[c] = sum over p of dz[p][c] · (y[p][c] - mean[c]) · rstd[c]
 * and, by a kernel of its own, the weight's gradient, from the activation that forward used:
 *     dW[n][t][c] = sum over p of dy[p - distance(t)][n] · round(relu(scale[c] · y[p][c] + bias[c]))
 *
 * Neither dy nor the activation exists in memory. All sums in a fixed order: each block writes its partial sums, others add them. */
#ifndef CUDA_CONV3X3_BACKWARD_H
#define CUDA_CONV3X3_BACKWARD_H

#include "conv3x3.h"
#include "layer_merge.h"

template <class T> struct conv3x3_backward {
	enum { MERGES = 0 };
	const T *g, *x;               /* [pixels][pitch], the first c_out channels of each */
	const float *a, *b, *c;       /* [c_out] */
	const T *y;                   /* [pixels][c_in] */
	const T *weight;              /* [c_out][9][c_in] */
	const float *scale, *bias, *mean, *rstd; /* [c_in] */
	T *dz;                        /* [pixels][c_in] */
	float *partial_sums;          /* [blocks][2][c_in]: dbeta, dgamma */
	float *partial_weight;        /* [parts][c_out][9][c_in] */
	long pixels;                  /* images · side² */
	int side, pitch, c_in, c_out; /* multiples of 8 but side; c_in <= 128, c_out <= 32 */
};

/* The same where the 1×1 before has left what it summed in parts: each block makes a, b and c of `due` first, and blocks behind the kernel's own merge `beside`. */
template <class T> struct conv3x3_merging : conv3x3_backward<T> {
	enum { MERGES = 1 };
	bn_backward_sums due;
	layer_sums beside;
};

enum { DUE_BYTES = merge_bytes(TAP_GROWTH) };

/* dy of the pixels around a tile: a ring of rows of 32 channels, made from g, which is copied there, and from x beside it. */
enum { X_SLOTS = 3 };

template <int ROWS, int THREADS_> struct dy_line {
	typedef tile<TAP_GROWTH> tile32;
	enum { ROW_BYTES = TAP_GROWTH * 2, GROUP_BYTES = ROWS * ROW_BYTES, BYTES = (RING_TILES + X_SLOTS) * GROUP_BYTES + ROW_BYTES + 3 * TAP_GROWTH * 4 };
	unsigned char *ring, *x, *zeros;
	float *coefficients; /* [3][TAP_GROWTH]: a, b, c */

	/* There after the wait for what is copied, and a barrier. */
	template <class P> DEVICE dy_line(unsigned char *memory, const P &p)
		: ring(memory), x(ring + RING_TILES * GROUP_BYTES), zeros(x + X_SLOTS * GROUP_BYTES), coefficients((float *)(zeros + ROW_BYTES))
	{
		if constexpr (!P::MERGES) {
			load_floats<THREADS_>(coefficients, p.a, p.c_out, TAP_GROWTH);
			load_floats<THREADS_>(coefficients + TAP_GROWTH, p.b, p.c_out, TAP_GROWTH);
			load_floats<THREADS_>(coefficients + 2 * TAP_GROWTH, p.c, p.c_out, TAP_GROWTH);
		}
		if ((int)threadIdx.x < ROW_BYTES / 4)
			((uint32_t *)zeros)[threadIdx.x] = 0;
	}
	/* Those that are to be made, while what has been asked for is on its way; room: DUE_BYTES. */
	template <class P> DEVICE void make(const P &p, void *room) const
	{
		if constexpr (P::MERGES)
			due_in_place<THREADS_, TAP_GROWTH>(p.due, coefficients, coefficients + TAP_GROWTH, coefficients + 2 * TAP_GROWTH, room);
	}
	template <class T> DEVICE void prefetch(const pixel_line<ROWS> &l, const conv3x3_backward<T> &p, int j) const
	{
		if (j > l.tiles - 1 + l.lead)
			return;
		const long row = l.start + (long)j * ROWS;
		tile32::load<ROWS, THREADS_>(ring + j % RING_TILES * GROUP_BYTES, p.g, (size_t)p.pitch, row, p.pixels, 0, p.c_out);
		tile32::load<ROWS, THREADS_>(x + j % X_SLOTS * GROUP_BYTES, p.x, (size_t)p.pitch, row, p.pixels, 0, p.c_out);
	}
	/* In place, the chunks that this thread copied. */
	template <class T> DEVICE void correct(int j) const
	{
		const octet a = load8((const float *)coefficients + threadIdx.x % tile32::CHUNKS * VECTOR);
		const octet b = load8((const float *)coefficients + TAP_GROWTH + threadIdx.x % tile32::CHUNKS * VECTOR);
		const octet c = load8((const float *)coefficients + 2 * TAP_GROWTH + threadIdx.x % tile32::CHUNKS * VECTOR);
		unsigned char *to = ring + j % RING_TILES * GROUP_BYTES, *beside = x + j % X_SLOTS * GROUP_BYTES;
		const int chunk = (int)threadIdx.x % tile32::CHUNKS;
		UNROLL for (int i = 0; i < ROWS; i += tile32::stride<ROWS, THREADS_>()) {
			const int r = (int)threadIdx.x / tile32::CHUNKS + i;
			T *at = (T *)tile32::chunk(to, r, chunk);
			octet v = load8((const T *)at);
			const octet in = load8((const T *)tile32::chunk(beside, r, chunk));
			UNROLL for (int k = 0; k < 8; k++)
				v.v[k] = fmaf(a.v[k], v.v[k], fmaf(b.v[k], in.v[k], c.v[k]));
			store8(at, v);
		}
	}
	/* What lane reads for `tap` of a pixel at `place`, and how its chunks are turned. */
	DEVICE unsigned char *row(const pixel_line<ROWS> &l, int place, unsigned inside, int tap, int *turn) const
	{
		const int r = (place - tap_distance(tap, l.side)) & (pixel_line<ROWS>::RING - 1);
		*turn = tile32::turn(r);
		return inside >> (TAPS - 1 - tap) & 1 ? ring + r * ROW_BYTES : zeros; /* the other way round: that of the opposite tap */
	}
};

/* ---- dz ------------------------------------------------------------------------------------------- */

template <int rows, int warp_rows, int warp_columns> struct conv3x3_data_shape {
	enum {
		WGMMA = 0, ROWS = rows, SIDES_BELOW = rows, WARP_ROWS = warp_rows, WARP_COLUMNS = warp_columns, ROW_WARPS = rows / warp_rows, COLUMN_WARPS = TAP_CHANNELS / warp_columns,
		WARPS = ROW_WARPS * COLUMN_WARPS, THREADS = 32 * WARPS, M_TILES = warp_rows / 16, N = TAP_CHANNELS, N_TILES = warp_columns / 8,
		TILE_BYTES = rows * N * 2, PARAMETERS = 4 * N
	};
	static_assert((int)DUE_BYTES <= (int)TILE_BYTES, "sums are merged where the tile will be");
	typedef dy_line<rows, THREADS> dy;

	static HD size_t shared_bytes()
	{
		return TILE_BYTES + TAP_WEIGHT_BYTES + dy::BYTES + (PARAMETERS + ROW_WARPS * 2 * N) * sizeof(float);
	}
};

/* The work of block `block` of `blocks`. */
template <class T, class S, class P> DEVICE void conv3x3_data(const P &p, unsigned block, unsigned blocks)
{
#ifdef HAVE_SM80
	typedef tile<TAP_CHANNELS> tile128;
	unsigned char *y = shared_memory(), *weights = y + S::TILE_BYTES, *dy_memory = weights + TAP_WEIGHT_BYTES;
	float *scale = (float *)(dy_memory + S::dy::BYTES), *bias = scale + S::N, *rstd = bias + S::N, *shift = rstd + S::N, *sums = shift + S::N; /* (y - mean) · rstd = rstd · y + shift */

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
	const int row_warp = warp / S::COLUMN_WARPS, warp_row = row_warp * S::WARP_ROWS, warp_column = warp % S::COLUMN_WARPS * S::WARP_COLUMNS;
	const pixel_line<S::ROWS> l(p.pixels, p.side, block, blocks);
	load_taps<S::THREADS>(weights, p.weight, p.c_out, p.c_in);
	wait_for_writes();
	const typename S::dy dy(dy_memory, p);
	for (int j = 0; j <= l.lead; j++)
		dy.prefetch(l, p, j);
	copies_commit();
	for (int i = t; i < S::N; i += S::THREADS) { /* while all that is on its way */
		scale[i] = i < p.c_in ? p.scale[i] : 0;
		bias[i] = i < p.c_in ? p.bias[i] : 0;
		rstd[i] = i < p.c_in ? p.rstd[i] : 0;
		shift[i] = i < p.c_in ? -p.mean[i] * p.rstd[i] : 0;
	}
	dy.make(p, y);
	copies_wait<0>();
	sync_block();
	for (int j = 0; j < l.lead; j++)
		dy.template correct<T>(j);

	float dbeta[S::N_TILES][2] = {}, dgamma[S::N_TILES][2] = {};
	SERIAL for (int i = 0; i < l.tiles; i++) {
		dy.template correct<T>(i + l.lead);
		sync_block(); /* and nobody reads the tile before any more */
		const long row = l.first + (long)i * S::ROWS;
		tile128::load<S::ROWS, S::THREADS>(y, p.y, (size_t)p.c_in, row, p.pixels, 0, p.c_in);
		dy.prefetch(l, p, i + 1 + l.lead);
		copies_commit();

		unsigned inside[S::M_TILES];
		int place[S::M_TILES];
		l.find(row + warp_row, p.pixels, inside, place);
		float product[S::M_TILES][S::N_TILES][4] = {};
		SERIAL for (int tap = 0; tap < TAPS; tap++) {
			unsigned char *from[S::M_TILES], *w = weights + tap * TAP_BYTES;
			int turn[S::M_TILES];
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				from[m] = dy.row(l, place[m], inside[m], tap, &turn[m]);
			UNROLL for (int k16 = 0; k16 < TAP_GROWTH / 16; k16++) {
				uint32_t a[S::M_TILES][4];
				UNROLL for (int m = 0; m < S::M_TILES; m++)
					load_matrices(a[m], from[m] + (((k16 * 2 + lane / 16) ^ turn[m]) << 4));
				UNROLL for (int n = 0; n < S::N_TILES; n += 2) {
					uint32_t b[4]; /* W is [n][c]: transposed, the pairs run along n */
					load_matrices_transposed(b, tile128::chunk(w, k16 * 16 + lane % 16, (warp_column + n * 8) / 8 + lane / 16));
					UNROLL for (int m = 0; m < S::M_TILES; m++) {
						multiply_add<T>(product[m][n], a[m], b[0], b[1]);
						multiply_add<T>(product[m][n + 1], a[m], b[2], b[3]);
					}
				}
			}
		}

		copies_wait<0>();
		sync_block();
		UNROLL for (int n = 0; n < S::N_TILES; n++) {
			const int column = warp_column + n * 8 + 2 * (lane % 4);
			const float scale0 = scale[column], scale1 = scale[column + 1], bias0 = bias[column], bias1 = bias[column + 1];
			const float rstd0 = rstd[column], rstd1 = rstd[column + 1], shift0 = shift[column], shift1 = shift[column + 1];
			UNROLL for (int m = 0; m < S::M_TILES; m++)
				UNROLL for (int half = 0; half < 2; half++) {
					uint32_t *pair = tile128::pair(y, warp_row + m * 16 + half * 8 + lane / 4, column);
					const float y0 = low_half<T>(*pair), y1 = high_half<T>(*pair);
					const float d0 = fmaf(y0, scale0, bias0) > 0 ? product[m][n][2 * half] : 0;
					const float d1 = fmaf(y1, scale1, bias1) > 0 ? product[m][n][2 * half + 1] : 0;
					*pair = pack<T>(d0, d1);
					dbeta[n][0] += d0;
					dbeta[n][1] += d1;
					dgamma[n][0] = fmaf(d0, fmaf(y0, rstd0, shift0), dgamma[n][0]);
					dgamma[n][1] = fmaf(d1, fmaf(y1, rstd1, shift1), dgamma[n][1]);
				}
		}
		sync_block();
		tile128::store<S::ROWS, S::THREADS>(p.dz, (size_t)p.c_in, row, p.pixels, 0, p.c_in, y);
	}

	put_column_sums<S::N>(sums, row_warp, warp_column, dbeta, dgamma);
	sync_block();
	for (int i = t; i < 2 * S::N; i += S::THREADS)
		if (i % S::N < p.c_in)
			p.partial_sums[((size_t)block * 2 + i / S::N) * p.c_in + i % S::N] = column_sum<S::N, S::ROW_WARPS>(sums, i);
#endif
}

template <class T, class S, class P> KERNEL THREADS(S::THREADS, 1) conv3x3_data_kernel(const P p)
{
	begin_early_kernel();
	if (!merges_beside<S::THREADS>(p))
		conv3x3_data<T, S>(p, blockIdx.x, own_blocks(p));
}

/* ---- dW ------------------------------------------------------------------------------------------- */

/* The whole [128][9][32] lies in the registers of a block: a warp has 32 channels and 16 of every tap's columns. GROUPS: or of so many blocks, each with
 * its share of the taps, for maps that would leave most multiprocessors without a block. */
template <int rows, int groups = 1> struct conv3x3_weight_shape {
	enum {
		WGMMA = 0, ROWS = rows, SIDES_BELOW = rows, WARPS = 8, THREADS = 32 * WARPS, W_ROWS = 32, M_TILES = W_ROWS / 16, W_COLUMNS = 16, N_TILES = W_COLUMNS / 8,
		ROW_WARPS = TAP_CHANNELS / W_ROWS, TILE_BYTES = rows * TAP_CHANNELS * 2, Z_TILES = 2, GROUPS = groups, GROUP_TAPS = TAPS / groups
	};
	static_assert(TAPS % groups == 0, "as many taps for each block");
	static_assert((int)DUE_BYTES <= (int)TILE_BYTES && (int)Z_TILES > 1, "sums are merged where the second tile will be");
	typedef dy_line<rows, THREADS> dy;

	static HD size_t shared_bytes()
	{
		return Z_TILES * TILE_BYTES + dy::BYTES;
	}
};

template <class T, class S, class P> DEVICE void conv3x3_weight(const P &p, unsigned block, unsigned blocks)
{
	wait_for_writes();
#ifdef HAVE_SM80
	typedef tile<TAP_CHANNELS> tile128;
	unsigned char *memory = shared_memory();
	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
	const int w_row = warp % S::ROW_WARPS * S::W_ROWS, w_column = warp / S::ROW_WARPS * S::W_COLUMNS;
	const int first_tap = (int)block % S::GROUPS * S::GROUP_TAPS, part = (int)block / S::GROUPS;
	const pixel_line<S::ROWS> l(p.pixels, p.side, block / S::GROUPS, blocks / S::GROUPS); /* which as many blocks share */
	const typename S::dy dy(memory + S::Z_TILES * S::TILE_BYTES, p);

	auto prefetch = [&](int i) {
		if (i < l.tiles)
			tile128::load<S::ROWS, S::THREADS>(memory + i % S::Z_TILES * S::TILE_BYTES, p.y, (size_t)p.c_in, l.first + (long)i * S::ROWS, p.pixels, 0, p.c_in);
	};
	for (int j = 0; j <= l.lead; j++)
		dy.prefetch(l, p, j);
	prefetch(0);
	copies_commit();
	dy.make(p, memory + S::TILE_BYTES);
	copies_wait<0>();
	sync_block();
	for (int j = 0; j < l.lead; j++)
		dy.template correct<T>(j);

	float dweight[S::M_TILES][S::GROUP_TAPS * S::N_TILES][4] = {};
	SERIAL for (int i = 0; i < l.tiles; i++) {
		unsigned char *z = memory + i % S::Z_TILES * S::TILE_BYTES;
		const int channel = t % tile128::CHUNKS * VECTOR;
		octet scale = {}, bias = {};
		if (channel < p.c_in) { /* again for each tile: in registers they would be in the sums' way */
			scale = load8(p.scale + channel);
			bias = load8(p.bias + channel);
		}
		copies_wait<0>();
		dy.template correct<T>(i + l.lead);
		normalise_chunks<S::ROWS, S::THREADS, T>(z, scale, bias);
		sync_block(); /* and nobody reads the tile before any more */
		prefetch(i + 1);
		dy.prefetch(l, p, i + 1 + l.lead);
		copies_commit();

		SERIAL for (int m16 = 0; m16 < S::ROWS / 16; m16++) {
			const long pixel = l.first + (long)i * S::ROWS + m16 * 16 + lane % 16;
			const unsigned inside = taps_inside(pixel, p.pixels, p.side);
			const int place = l.place(pixel);
			uint32_t left[S::M_TILES][4];
			UNROLL for (int m = 0; m < S::M_TILES; m++) /* z transposed: rows are channels, columns pixels */
				load_matrices_transposed(left[m], tile128::chunk(z, m16 * 16 + lane % 8 + lane / 16 * 8, (w_row + m * 16) / 8 + lane / 8 % 2));
			UNROLL for (int tap = 0; tap < S::GROUP_TAPS; tap++) {
				uint32_t right[4];
				int turn;
				const unsigned char *from = dy.row(l, place, inside, first_tap + tap, &turn);
				load_matrices_transposed(right, from + (((w_column / 8 + lane / 16) ^ turn) << 4));
				UNROLL for (int m = 0; m < S::M_TILES; m++) {
					multiply_add<T>(dweight[m][tap * 2], left[m], right[0], right[1]);
					multiply_add<T>(dweight[m][tap * 2 + 1], left[m], right[2], right[3]);
				}
			}
		}
	}

	UNROLL for (int m = 0; m < S::M_TILES; m++)
		UNROLL for (int tap = 0; tap < S::GROUP_TAPS; tap++)
			UNROLL for (int n = 0; n < S::N_TILES; n++)
				UNROLL for (int j = 0; j < 4; j++) {
					const int c = w_row + m * 16 + j / 2 * 8 + lane / 4, column = w_column + n * 8 + 2 * (lane % 4) + j % 2;
					if (c < p.c_in && column < p.c_out)
						p.partial_weight[(((size_t)part * p.c_out + column) * TAPS + first_tap + tap) * p.c_in + c] = dweight[m][tap * 2 + n][j];
				}
#endif
}

template <class T, class S, class P> KERNEL THREADS(S::THREADS, 1) conv3x3_weight_kernel(const P p)
{
	begin_early_kernel();
	if (!merges_beside<S::THREADS>(p))
		conv3x3_weight<T, S>(p, blockIdx.x, own_blocks(p));
}

/* ---- both, side by side ---------------------------------------------------------------------------- */

/* For maps of so few tiles that either leaves half of the multiprocessors without work. */
template <class P> struct conv3x3_both {
	P p;
	unsigned data_blocks; /* the first; the others have the weight, but for those beside */
};

template <class T, class data, class weight, class P> KERNEL THREADS(data::THREADS, 1) conv3x3_both_kernel(const conv3x3_both<P> both)
{
	static_assert((int)data::THREADS == (int)weight::THREADS, "the same blocks");
	begin_early_kernel();
	if (blockIdx.x < both.data_blocks)
		conv3x3_data<T, data>(both.p, blockIdx.x, both.data_blocks);
	else if (!merges_beside<data::THREADS>(both.p))
		conv3x3_weight<T, weight>(both.p, blockIdx.x - both.data_blocks, own_blocks(both.p) - both.data_blocks);
}

/* Blocks of each as in the launches of one. */
template <class T, class data, class weight, class P> int conv3x3_both_launch(const P &p, unsigned data_blocks, unsigned parts, device_stream stream)
{
	const size_t most = data::shared_bytes() > weight::shared_bytes() ? data::shared_bytes() : weight::shared_bytes();
	return launch(conv3x3_both_kernel<T, data, weight, P>, data_blocks + parts * weight::GROUPS + blocks_beside(p), data::THREADS, most, stream, conv3x3_both<P>{ p, data_blocks });
}

/* blocks: at most as many as tiles. */
template <class T, class S, class P> int conv3x3_data_launch(const P &p, unsigned blocks, device_stream stream)
{
	return launch(conv3x3_data_kernel<T, S, P>, blocks + blocks_beside(p), S::THREADS, S::shared_bytes(), stream, p);
}

/* blocks: parts of the weight's gradient. */
template <class T, class S, class P> int conv3x3_weight_launch(const P &p, unsigned blocks, device_stream stream)
{
	return launch(conv3x3_weight_kernel<T, S, P>, blocks * S::GROUPS + blocks_beside(p), S::THREADS, S::shared_bytes(), stream, p);
}

#endif
