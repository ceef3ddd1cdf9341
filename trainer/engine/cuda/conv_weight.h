/* SPDX-License-Identifier: Apache-2.0
 * The weight's gradient of a convolution of any odd side, with half of it as padding, and of any step:
 *     dW[n][t][c] = sum over output pixels p of g[p][n] · x[q(p, t)][c]      q(p, t): the input pixel under tap t at p; zeros outside the map
 *
 * One product of two matrices: columns are taps and input channels, [taps][c_in], so that a tile may have several taps of a few channels.
 *
 * Pixels are many and weights few: the pixels are divided among as many blocks as fill the multiprocessors, each of which sums its share for one tile of
 * weights; weight_gradient.h adds the parts. (cuDNN's deterministic plans divide only the weights: the 128 × 256 of DenseNet-121's first transition keep two
 * multiprocessors busy, for 997 us of an H200 at batch 256, where its bytes need 40; the 64 × 576 of ResNet-50's first 3×3 five, for 3.5 ms.) */
#ifndef CUDA_CONV_WEIGHT_H
#define CUDA_CONV_WEIGHT_H

#include "device.h"
#include "tile.h"

template <class T> struct conv_weight {
	const T *g;                  /* [pixels][g_pitch], the first c_out channels */
	const T *x;                  /* [input pixels][x_pitch], the first c_in */
	float *partial;              /* [parts][c_out][taps][c_in] */
	long pixels;                 /* of the output; fewer than 2^32 */
	int side, in_side;           /* of an output map, of an input map */
	int kernel, step;            /* side of the weights, odd, with kernel / 2 as padding */
	int g_pitch, x_pitch, c_out, c_in; /* multiples of 8 */
	int parts;                   /* at most conv_weight_parts() */

	HD int columns() const
	{
		return kernel * kernel * c_in;
	}
};

/* A block sums a tile of ROWS output channels × COLUMNS taps and input channels, over 64 pixels a stage. Both operands lie pixel by pixel: ldmatrix transposes both. */
template <int rows, int columns, int stages> struct conv_weight_shape {
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
	static HD int column_tiles(int columns_in_all)
	{
		return (columns_in_all + COLUMNS - 1) / COLUMNS;
	}
	static HD int tiles(int c_out, int columns_in_all)
	{
		return (c_out + ROWS - 1) / ROWS * column_tiles(columns_in_all);
	}
	static HD int stretches(long pixels)
	{
		return (int)((pixels + PIXELS - 1) / PIXELS);
	}
};

/* tile::load() of the input pixels under output pixels, where those are not the same. A thread has the same columns of every pixel that it copies, eight
 * channels of one tap, and its pixels lie equally far apart: it divides twice for the first of them, and adds for the others. */
template <class S, class T> struct pixels_under {
	typedef tile<S::COLUMNS> x_tile;
	enum { STRIDE = x_tile::template stride<S::PIXELS, S::THREADS>() };
	const T *x;                  /* these channels of the input's first pixel */
	int down, right;             /* from step times an output pixel's line and column to the tap's */
	bool inside;                 /* there are such columns */
	unsigned images, lines, columns; /* that STRIDE output pixels are */

	DEVICE pixels_under(const conv_weight<T> &p, int column0)
	{
		const int column = column0 + (int)threadIdx.x % x_tile::CHUNKS * VECTOR, tap = column / p.c_in;
		const unsigned side = (unsigned)p.side;
		x = p.x + (column - tap * p.c_in);
		down = tap / p.kernel - p.kernel / 2;
		right = tap % p.kernel - p.kernel / 2;
		inside = column < p.columns();
		images = STRIDE / side / side;
		lines = STRIDE / side % side;
		columns = STRIDE % side;
	}
	DEVICE void load(unsigned char *base, const conv_weight<T> &p, unsigned pixel) const
	{
		const unsigned r0 = threadIdx.x / x_tile::CHUNKS, c = threadIdx.x % x_tile::CHUNKS, side = (unsigned)p.side;
		unsigned out = pixel + r0, image = out / side / side, line = out / side % side, column = out % side;
		UNROLL for (int r = 0; r < S::PIXELS; r += STRIDE) {
			const int y = (int)line * p.step + down, z = (int)column * p.step + right;
			const long in = ((long)image * p.in_side + y) * p.in_side + z; /* perhaps outside; nothing is read there then */
			const bool on_map = (unsigned)y < (unsigned)p.in_side && (unsigned)z < (unsigned)p.in_side;
			copy_async(x_tile::chunk(base, (int)r0 + r, (int)c), x + in * p.x_pitch, inside && on_map && out < p.pixels);
			out += STRIDE;
			column += columns;
			const unsigned next_line = column >= side;
			column -= next_line * side;
			line += lines + next_line;
			const unsigned next_image = line >= side;
			line -= next_image * side;
			image += images + next_image;
		}
	}
};

template <class T, class S> KERNEL THREADS(S::THREADS, 1) conv_weight_kernel(const conv_weight<T> p)
{
	begin_kernel();
#ifdef HAVE_SM80
	typedef tile<S::ROWS> g_tile;
	typedef tile<S::COLUMNS> x_tile;
	unsigned char *stage = shared_memory();
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int warp_row = warp % S::ROW_WARPS * S::WARP_ROWS, warp_column = warp / S::ROW_WARPS * S::WARP_COLUMNS;
	/* neighbours have the same pixels: the second one reads them from the second-level cache */
	const int columns = p.columns(), tiles = S::tiles(p.c_out, columns), part = (int)blockIdx.x / tiles, mine = (int)blockIdx.x % tiles;
	const int row0 = mine / S::column_tiles(columns) * S::ROWS, column0 = mine % S::column_tiles(columns) * S::COLUMNS, stretches = S::stretches(p.pixels);
	const bool straight = p.kernel == 1 && p.step == 1;
	const pixels_under<S, T> under(p, column0);

	auto prefetch = [&](int stretch, int slot) {
		if (stretch < stretches) {
			unsigned char *to = stage + slot * S::STAGE_BYTES;
			const long pixel = (long)stretch * S::PIXELS;
			g_tile::template load<S::PIXELS, S::THREADS>(to, p.g, (size_t)p.g_pitch, pixel, p.pixels, row0, p.c_out);
			if (straight)
				x_tile::template load<S::PIXELS, S::THREADS>(to + S::G_BYTES, p.x, (size_t)p.x_pitch, pixel, p.pixels, column0, p.c_in);
			else
				under.load(to + S::G_BYTES, p, (unsigned)pixel);
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
			float *to = p.partial + ((size_t)part * (size_t)p.c_out + (size_t)n) * (size_t)columns + first;
			UNROLL for (int i = 0; i < S::N_TILES; i++)
				if (n < p.c_out && first + i * 8 < columns)
					*(float_pair *)(to + i * 8) = { { sum[m][i][2 * half], sum[m][i][2 * half + 1] } };
		}
#endif
}

template <class T, class S> int conv_weight_launch(const conv_weight<T> &p, device_stream stream)
{
	return launch(conv_weight_kernel<T, S>, (unsigned)(S::tiles(p.c_out, p.columns()) * p.parts), S::THREADS, S::shared_bytes(), stream, p);
}

/* How tiles are cut: those of 96 KiB have room on every GPU as of sm_80, and the widest, 144 KiB, on an A100 and an H100. It reads a quarter less for each
 * product: with more than a few tiles, which all read from the second-level cache, that is what a product costs. */
typedef conv_weight_shape<128, 256, 3> wide_weight_tiles;
typedef conv_weight_shape<128, 128, 3> weight_tiles;
typedef conv_weight_shape<128, 64, 4> narrow_weight_tiles;
typedef conv_weight_shape<64, 128, 4> low_weight_tiles;
typedef conv_weight_shape<64, 64, 6> small_weight_tiles;

/* f(…_tiles()) of these output channels and columns. shared: what a block may have, at least weight_tiles' bytes. */
template <class F> auto with_weight_tiles(int c_out, int columns, size_t shared, F f)
{
	if (c_out <= 64)
		return columns <= 64 ? f(small_weight_tiles()) : f(low_weight_tiles());
	if (columns <= 64)
		return f(narrow_weight_tiles());
	const int count = weight_tiles::column_tiles(columns);
	const bool in_pairs = count % 2 == 0 || count > 4; /* half a tile too much in five is less than what pairs need not read */
	return in_pairs && wide_weight_tiles::shared_bytes() <= shared ? f(wide_weight_tiles()) : f(weight_tiles());
}

/* Parts that fill the multiprocessors; no part is without pixels. */
template <class S> int conv_weight_parts(long pixels, int c_out, int columns, int multiprocessors)
{
	const int wanted = multiprocessors / S::tiles(c_out, columns), most = S::stretches(pixels);
	return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

/* cuDNN's tiles of 128 × 128, which take it 556 clocks for 64 pixels of an H200, would leave half of the multiprocessors idle: where they do not, dividing the
 * pixels as well gains nothing. */
inline bool conv_weight_gains(int c_out, int columns, int multiprocessors)
{
	return 2 * weight_tiles::tiles(c_out, columns) <= multiprocessors;
}

#endif
