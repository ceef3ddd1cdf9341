/* SPDX-License-Identifier: Apache-2.0
 * The weight's gradient of a 1×1 convolution without padding, of any step:
 *     dW[n][c] = sum over output pixels p of g[p][n] · x[q(p)][c]      q(p): the input pixel under p
 *
 * Pixels are many and weights few: the pixels are divided among as many blocks as fill the multiprocessors, each of which sums its share for one tile of
 * weights; weight_gradient.h adds the parts. (cuDNN's deterministic plans divide only the weights: the 128 × 256 of DenseNet-121's first transition keep two
 * multiprocessors busy, for 997 us of an H200 at batch 256, where its bytes need 40.) */
#ifndef CUDA_CONV1X1_WEIGHT_H
#define CUDA_CONV1X1_WEIGHT_H

#include "device.h"
#include "tile.h"

template <class T> struct conv1x1_weight {
	const T *g;                  /* [pixels][g_pitch], the first c_out channels */
	const T *x;                  /* [input pixels][x_pitch], the first c_in */
	float *partial;              /* [parts][c_out][c_in] */
	long pixels;                 /* of the output; fewer than 2^32 */
	int side, in_side, step;     /* of an output map, of an input map; sides do not matter where step is 1 */
	int g_pitch, x_pitch, c_out, c_in; /* multiples of 8 */
	int parts;                   /* at most conv1x1_weight_parts() */
};

/* A block sums a tile of ROWS output × COLUMNS input channels, over 64 pixels a stage. Both operands lie pixel by pixel: ldmatrix transposes both. */
template <int rows, int columns, int stages> struct conv1x1_weight_shape {
	enum {
		ROWS = rows, COLUMNS = columns, STAGES = stages, PIXELS = 64, WARPS = 8, THREADS = 32 * WARPS, ROW_WARPS = 2, COLUMN_WARPS = WARPS / ROW_WARPS,
		WARP_ROWS = ROWS / ROW_WARPS, WARP_COLUMNS = COLUMNS / COLUMN_WARPS, M_TILES = WARP_ROWS / 16, N_TILES = WARP_COLUMNS / 8,
		G_BYTES = PIXELS * ROWS * 2, STAGE_BYTES = G_BYTES + PIXELS * COLUMNS * 2
	};
	static_assert(STAGES >= 3, "two stages are on their way while one is used");
	static_assert(WARP_ROWS % 16 == 0 && WARP_COLUMNS % 16 == 0, "every warp takes whole pairs of 8-column tiles");

	static HD size_t shared_bytes()
	{
		return STAGES * STAGE_BYTES;
	}
	static HD int column_tiles(int c_in)
	{
		return (c_in + COLUMNS - 1) / COLUMNS;
	}
	static HD int tiles(int c_out, int c_in)
	{
		return (c_out + ROWS - 1) / ROWS * column_tiles(c_in);
	}
	static HD int stretches(long pixels)
	{
		return (int)((pixels + PIXELS - 1) / PIXELS);
	}
};

/* tile::load() of the input pixels under output pixels [pixel, pixel + PIXELS), where those are not as many. */
template <class S, class T> DEVICE void load_apart(unsigned char *base, const conv1x1_weight<T> &p, long pixel, int column)
{
	typedef tile<S::COLUMNS> x_tile;
	const unsigned r0 = threadIdx.x / x_tile::CHUNKS, c = threadIdx.x % x_tile::CHUNKS, side = (unsigned)p.side;
	const bool column_inside = column + (int)c * VECTOR < p.c_in;
	UNROLL for (int r = 0; r < S::PIXELS; r += x_tile::template stride<S::PIXELS, S::THREADS>()) {
		const unsigned out = (unsigned)pixel + r0 + (unsigned)r, line = out / side, image = line / side;
		const long in = ((long)image * p.in_side + (long)(line - image * side) * p.step) * p.in_side + (long)(out - line * side) * p.step;
		copy_async(x_tile::chunk(base, (int)r0 + r, (int)c), p.x + in * p.x_pitch + column + (int)c * VECTOR, column_inside && out < p.pixels);
	}
}

template <class T, class S> KERNEL THREADS(S::THREADS, 1) conv1x1_weight_kernel(const conv1x1_weight<T> p)
{
	begin_kernel();
#ifdef HAVE_SM80
	typedef tile<S::ROWS> g_tile;
	typedef tile<S::COLUMNS> x_tile;
	unsigned char *stage = shared_memory();
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int warp_row = warp % S::ROW_WARPS * S::WARP_ROWS, warp_column = warp / S::ROW_WARPS * S::WARP_COLUMNS;
	/* neighbours have the same pixels: the second one reads them from the second-level cache */
	const int tiles = S::tiles(p.c_out, p.c_in), part = (int)blockIdx.x / tiles, mine = (int)blockIdx.x % tiles;
	const int row0 = mine / S::column_tiles(p.c_in) * S::ROWS, column0 = mine % S::column_tiles(p.c_in) * S::COLUMNS, stretches = S::stretches(p.pixels);

	auto prefetch = [&](int stretch, int slot) {
		if (stretch < stretches) {
			unsigned char *to = stage + slot * S::STAGE_BYTES;
			const long pixel = (long)stretch * S::PIXELS;
			g_tile::template load<S::PIXELS, S::THREADS>(to, p.g, (size_t)p.g_pitch, pixel, p.pixels, row0, p.c_out);
			if (p.step == 1)
				x_tile::template load<S::PIXELS, S::THREADS>(to + S::G_BYTES, p.x, (size_t)p.x_pitch, pixel, p.pixels, column0, p.c_in);
			else
				load_apart<S>(to + S::G_BYTES, p, pixel, column0);
		}
		copies_commit();
	};
	UNROLL for (int i = 0; i < S::STAGES - 1; i++)
		prefetch(part + i * p.parts, i);

	float sum[S::M_TILES][S::N_TILES][4] = {};
	int slot = 0;
	SERIAL for (int stretch = part; stretch < stretches; stretch += p.parts) {
		copies_wait<S::STAGES - 2>();
		sync_block(); /* and nobody reads the stage before any more */
		unsigned char *g = stage + slot * S::STAGE_BYTES, *x = g + S::G_BYTES;
		prefetch(stretch + (S::STAGES - 1) * p.parts, (slot + S::STAGES - 1) % S::STAGES);
		slot = (slot + 1) % S::STAGES;
		UNROLL for (int k16 = 0; k16 < S::PIXELS / 16; k16++) {
			uint32_t left[S::M_TILES][4];
			UNROLL for (int m = 0; m < S::M_TILES; m++) /* g transposed: rows are channels, columns pixels */
				load_matrices_transposed(left[m], g_tile::chunk(g, k16 * 16 + lane % 8 + lane / 16 * 8, (warp_row + m * 16) / 8 + lane / 8 % 2));
			UNROLL for (int n = 0; n < S::N_TILES; n += 2) {
				uint32_t right[4];
				load_matrices_transposed(right, x_tile::chunk(x, k16 * 16 + lane % 16, (warp_column + n * 8) / 8 + lane / 16));
				UNROLL for (int m = 0; m < S::M_TILES; m++) {
					multiply_add<T>(sum[m][n], left[m], right[0], right[1]);
					multiply_add<T>(sum[m][n + 1], left[m], right[2], right[3]);
				}
			}
		}
	}

	UNROLL for (int m = 0; m < S::M_TILES; m++)
		UNROLL for (int half = 0; half < 2; half++) {
			const int n = row0 + warp_row + m * 16 + half * 8 + lane / 4, first = column0 + warp_column + 2 * (lane % 4);
			float *to = p.partial + ((size_t)part * (size_t)p.c_out + (size_t)n) * (size_t)p.c_in + first;
			UNROLL for (int i = 0; i < S::N_TILES; i++)
				if (n < p.c_out && first + i * 8 < p.c_in)
					*(float_pair *)(to + i * 8) = { { sum[m][i][2 * half], sum[m][i][2 * half + 1] } };
		}
#endif
}

template <class T, class S> int conv1x1_weight_launch(const conv1x1_weight<T> &p, device_stream stream)
{
	return launch(conv1x1_weight_kernel<T, S>, (unsigned)(S::tiles(p.c_out, p.c_in) * p.parts), S::THREADS, S::shared_bytes(), stream, p);
}

/* How tiles are cut: those of 96 KiB have room on every GPU as of sm_80, and the widest, 144 KiB, on an A100 and an H100. It reads a quarter less for each
 * product: with more than a few tiles, which all read from the second-level cache, that is what a product costs. */
typedef conv1x1_weight_shape<128, 256, 3> wide_weight_tiles;
typedef conv1x1_weight_shape<128, 128, 3> weight_tiles;
typedef conv1x1_weight_shape<128, 64, 4> narrow_weight_tiles;
typedef conv1x1_weight_shape<64, 128, 4> low_weight_tiles;
typedef conv1x1_weight_shape<64, 64, 6> small_weight_tiles;

/* f(…_tiles()) of these channels. shared: what a block may have, at least weight_tiles' bytes. */
template <class F> auto with_weight_tiles(int c_out, int c_in, size_t shared, F f)
{
	if (c_out <= 64)
		return c_in <= 64 ? f(small_weight_tiles()) : f(low_weight_tiles());
	if (c_in <= 64)
		return f(narrow_weight_tiles());
	const bool in_pairs = weight_tiles::column_tiles(c_in) % 2 == 0;
	return in_pairs && wide_weight_tiles::shared_bytes() <= shared ? f(wide_weight_tiles()) : f(weight_tiles());
}

/* Parts that fill the multiprocessors; no part is without pixels. */
template <class S> int conv1x1_weight_parts(long pixels, int c_out, int c_in, int multiprocessors)
{
	const int wanted = multiprocessors / S::tiles(c_out, c_in), most = S::stretches(pixels);
	return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

#endif
