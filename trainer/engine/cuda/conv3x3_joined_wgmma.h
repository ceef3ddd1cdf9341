/* SPDX-License-Identifier: Apache-2.0
 * conv3x3_backward.h's dz and dW in one pass with wgmma: y, g and x are read once. Half of c_in is a block's, as many blocks share the pixels; so all
 * sums of dW, 64 channels × 9 taps × 32, stay in registers beside those of dz.
 *
 * Pixels lie on a line with one of zeros behind each row and a row of zeros behind each image: a neighbour beyond the border is a zero, and a tap is a distance
 * and nothing else. dy lies as a plane for each eight channels, 16 bytes a pixel. So a product begins at any pixel, without a swizzle in its way, and reads
 * dy by itself: pixels are rows for dz, and k for dW.
 *
 * Warpgroup w has 64 of the tile's 128 pixels of dz; of dW four taps and, of half the pixels, the middle one. */
#ifndef CUDA_CONV3X3_JOINED_WGMMA_H
#define CUDA_CONV3X3_JOINED_WGMMA_H

#include "conv3x3_backward.h"
#include "warpgroup.h"

struct conv3x3_joined_wgmma_shape {
	enum {
		WGMMA = 1, THREADS = 2 * WARPGROUP, WARPS = THREADS / 32, ROWS = 2 * 64, SIDES_BELOW = ROWS / 2 - 1 /* a tile and its margins are two groups */, CHANNELS = PANEL,
		N_TILES = CHANNELS / 8, K_STEPS = ROWS / 16, HALF_TAPS = TAPS / 2 + 1, RING = RING_TILES * ROWS, PIXELS = 2 * RING /* whose places are known */, BEHIND = ROWS /* the first group again: what a tile reads lies in one piece */,
		PLANES = TAP_GROWTH / VECTOR, PLANE_BYTES = (RING + BEHIND) * 16 + 32 /* the same pixel of four planes in different banks */, PANEL_BYTES = TAP_GROWTH * 128,
		X_BYTES = ROWS * TAP_GROWTH * 2, Y_BYTES = ROWS * 128, PARAMETERS = 3 * TAP_GROWTH + 2 * CHANNELS
	};
	static_assert(WARPS * 2 * CHANNELS * 4 <= Y_BYTES && WARPGROUP * TAP_GROWTH / 8 * 16 <= Y_BYTES, "the last sums go where y was");
	static_assert((int)DUE_BYTES <= (int)Y_BYTES, "sums are merged where the second tile's y will be");

	static HD size_t shared_bytes()
	{
		return TAPS * PANEL_BYTES + 2 * Y_BYTES + 2 * X_BYTES + PLANES * PLANE_BYTES + PARAMETERS * sizeof(float) + PIXELS * sizeof(int) + 2 * 4 * 2 * sizeof(uint32_t);
	}
	static HD int halves(int c_in)
	{
		return (c_in + CHANNELS - 1) / CHANNELS;
	}
	static HD long line(long pixels, int side)
	{
		return pixels / side / side * (side + 1) * (side + 1);
	}
};

/* Which pixel is at a place of the line; -1: a zero. */
DEVICE int pixel_of_line(int place, long pixels, int side)
{
	const unsigned whole = (unsigned)side + 1, row = (unsigned)place / whole, column = (unsigned)place - row * whole, image = row / whole, image_row = row - image * whole;
	const long pixel = (long)(image * (unsigned)side + image_row) * side + column;
	return place >= 0 && column < whole - 1 && image_row < whole - 1 && pixel < pixels ? (int)pixel : -1;
}

template <class T, class S, class P> KERNEL THREADS(S::THREADS, 1) conv3x3_joined_wgmma_kernel(const P p)
{
	begin_early_kernel();
#ifdef HAVE_SM80
	if (!HAVE_WARPGROUPS || merges_beside<S::THREADS>(p))
		return;
	unsigned char *weights = shared_memory(), *y = weights + TAPS * S::PANEL_BYTES, *x = y + 2 * S::Y_BYTES, *planes = x + 2 * S::X_BYTES;
	float *a = (float *)(planes + S::PLANES * S::PLANE_BYTES), *b = a + TAP_GROWTH, *c = b + TAP_GROWTH, *scale = c + TAP_GROWTH, *bias = scale + S::CHANNELS;
	int *pixel_at = (int *)(bias + S::CHANNELS);           /* [PIXELS] */
	uint32_t *valid = (uint32_t *)(pixel_at + S::PIXELS); /* [2][quarter][2]: of each 16 pixels a thread has two and, eight later, two; bits k and 16 + k of the k-th 16, and again 8 bits on */

	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, group = one_for_warp(t / WARPGROUP), quarter = lane % 4;
	const int halves = S::halves(p.c_in), column0 = (int)blockIdx.x % halves * S::CHANNELS, part = (int)blockIdx.x / halves, parts = (int)own_blocks(p) / halves;

	/* What comes first is asked for before any of it is waited for: a latency each, a dozen in a row, is long beside a launch of few tiles. Of the weights
	 * a thread has eight channels of one output, all taps. */
	static_assert(S::THREADS == TAP_GROWTH * S::CHANNELS / VECTOR, "all of a tap's weights at once");
	const int my_chunk = t % (S::CHANNELS / VECTOR), my_output = t / (S::CHANNELS / VECTOR);
	vector16 weight[TAPS];
	UNROLL for (int tap = 0; tap < TAPS; tap++)
		weight[tap] = read_or_zeros(p.weight + (my_output * TAPS + tap) * p.c_in + column0 + my_chunk * VECTOR, my_output < p.c_out && column0 + my_chunk * VECTOR < p.c_in);
	wait_for_writes();
	if constexpr (!P::MERGES) {
		load_floats<S::THREADS>(a, p.a, p.c_out, TAP_GROWTH);
		load_floats<S::THREADS>(b, p.b, p.c_out, TAP_GROWTH);
		load_floats<S::THREADS>(c, p.c, p.c_out, TAP_GROWTH);
	}
	load_floats<S::THREADS>(scale, p.scale + column0, p.c_in - column0, S::CHANNELS);
	load_floats<S::THREADS>(bias, p.bias + column0, p.c_in - column0, S::CHANNELS);

	/* Places are ints; and there are no more parts than 256, so that all · part is below 2^32. */
	const unsigned whole = (unsigned)p.side + 1, all = ((unsigned)p.pixels / (unsigned)p.side / (unsigned)p.side * whole * whole + S::ROWS - 1) / S::ROWS, from = all * (unsigned)part / (unsigned)parts;
	const int margin = (int)whole + 1, tiles = (int)(all * (unsigned)(part + 1) / (unsigned)parts - from), start = (int)from * S::ROWS - margin; /* group j: places from start + j · ROWS on */
	auto find = [&](int j) {
		if (t < S::ROWS)
			pixel_at[(j * S::ROWS + t) & (S::PIXELS - 1)] = pixel_of_line(start + j * S::ROWS + t, p.pixels, p.side);
	};
	auto in_tile = [&](int i, int row) { return pixel_at[(i * S::ROWS + margin + row) & (S::PIXELS - 1)]; };

	/* g to where dy will be, x beside it; a thread has one chunk of two pixels. */
	const int my_plane = t % S::PLANES, my_place = t / S::PLANES;
	unsigned char *const my_dy = planes + my_plane * S::PLANE_BYTES + my_place * 16, *const my_x = x + t * 16;
	auto slot = [](int j) { return (j & (RING_TILES - 1)) * S::ROWS; };
	auto pixels_of = [&](int j) { return pixel_at + ((j * S::ROWS) & (S::PIXELS - 1)) + my_place; };
	auto prefetch_dy = [&](int j) {
		const int *const pixels = pixels_of(j);
		unsigned char *const to = my_dy + slot(j) * 16, *const beside = my_x + (j & 1) * S::X_BYTES;
		UNROLL for (int row = 0; row < S::ROWS; row += S::THREADS / S::PLANES) {
			const int pixel = pixels[row];
			const bool inside = pixel >= 0 && my_plane * VECTOR < p.c_out;
			const long at = (long)pixel * p.pitch + my_plane * VECTOR;
			copy_async(to + row * 16, p.g + at, inside);
			copy_async(beside + row * S::PLANES * 16, p.x + at, inside);
		}
	};
	auto correct = [&](int j) {
		const int *const pixels = pixels_of(j);
		unsigned char *const to = my_dy + slot(j) * 16, *const beside = my_x + (j & 1) * S::X_BYTES;
		const octet k = load8((const float *)a + my_plane * VECTOR), l = load8((const float *)b + my_plane * VECTOR), m = load8((const float *)c + my_plane * VECTOR);
		enum { MINE = S::ROWS * S::PLANES / S::THREADS, APART = S::ROWS / MINE };
		vector16 v[MINE], in[MINE];
		uint32_t keep[MINE];
		UNROLL for (int i = 0; i < MINE; i++) {
			keep[i] = pixels[i * APART] >= 0 ? ~0u : 0;
			v[i] = *(const vector16 *)(to + i * APART * 16);
			in[i] = *(const vector16 *)(beside + i * APART * S::PLANES * 16);
		}
		UNROLL for (int i = 0; i < MINE; i++) {
			UNROLL for (int e = 0; e < 4; e++)
				v[i].word[e] = pack<T>(fmaf(k.v[2 * e], low_half<T>(v[i].word[e]), fmaf(l.v[2 * e], low_half<T>(in[i].word[e]), m.v[2 * e])),
				                       fmaf(k.v[2 * e + 1], high_half<T>(v[i].word[e]), fmaf(l.v[2 * e + 1], high_half<T>(in[i].word[e]), m.v[2 * e + 1]))) & keep[i];
			*(vector16 *)(to + i * APART * 16) = v[i];
			if (slot(j) == 0)
				*(vector16 *)(to + (i * APART + S::RING) * 16) = v[i];
		}
	};
	const int y_chunk = t % (S::CHANNELS / VECTOR), y_row = t / (S::CHANNELS / VECTOR);
	auto prefetch_y = [&](int i) {
		unsigned char *const to = x_chunk(y + (i & 1) * S::Y_BYTES, y_row, y_chunk); /* the turn is that of every eighth row */
		UNROLL for (int row = 0; row < S::ROWS; row += S::THREADS / (S::CHANNELS / VECTOR)) {
			const int pixel = in_tile(i, y_row + row);
			copy_async(to + row * 128, p.y + (long)pixel * p.c_in + column0 + y_chunk * VECTOR, pixel >= 0 && column0 + y_chunk * VECTOR < p.c_in);
		}
	};
	auto find_valid = [&](int i) {
		if (t < 4 * 2) {
			uint32_t bits = 0;
			UNROLL for (int k = 0; k < 2 * S::K_STEPS; k++)
				bits |= (in_tile(i, k / 2 * 16 + t % 2 * 8 + t / 2 * 2 + k % 2) >= 0 ? 0x101u : 0u) << (k / 2 + k % 2 * 16);
			valid[(i & 1) * 8 + t] = bits;
		}
	};
	/* Tile i reads groups i and i + 1; while it is multiplied, group i + 2 is corrected and i + 3 is on its way. */
	for (int j = 0; j < 4; j++)
		find(j);
	sync_block();
	find_valid(0);
	prefetch_dy(0);
	prefetch_dy(1);
	prefetch_y(0);
	copies_commit();
	UNROLL for (int tap = 0; tap < TAPS; tap++)
		put_channels(weights + tap * S::PANEL_BYTES, my_output, my_chunk, weight[tap]);
	if constexpr (P::MERGES)
		due_in_place<S::THREADS, TAP_GROWTH>(p.due, a, b, c, y + S::Y_BYTES);
	copies_wait<0>();
	sync_block();
	correct(0);
	correct(1);
	if (tiles > 1)
		prefetch_dy(2);
	copies_commit();

	const int z_row = warp % 4 * 16 + lane / 4; /* of dW: this thread's channels are this one and the eighth after it */
	const float scale0 = scale[z_row], bias0 = bias[z_row], scale1 = scale[z_row + 8], bias1 = bias[z_row + 8];
	const int my_row = group * 64 + z_row, my_channel = quarter * VECTOR; /* of dz: this pixel and the eighth after it, eight channels of each 32 */
	const int my_z = (int)(x_chunk(y, lane % 8 + lane / 16 * 8, warp % 4 * 2 + lane / 8 % 2) - y); /* every 16 rows the turn is the same */
	const uint64_t dy_rows = group_plain(planes, S::PLANE_BYTES, 128), dy_across = group_plain(planes, 128, S::PLANE_BYTES), weight_start = group_matrix(weights);

	octet my_scale[S::CHANNELS / 32], my_bias[S::CHANNELS / 32];
	UNROLL for (int g = 0; g < S::CHANNELS / 32; g++) {
		my_scale[g] = load8((const float *)scale + g * 32 + my_channel);
		my_bias[g] = load8((const float *)bias + g * 32 + my_channel);
	}

	float dbeta[S::N_TILES][2] = {}, dgamma[S::N_TILES][2] = {}; /* sums of d and of d · y */
	float dweight[S::HALF_TAPS][TAP_GROWTH / 8][4] = {};
	SERIAL for (int i = 0; i < tiles; i++) {
		copies_wait<0>();
		async_fence();
		sync_block(); /* and nobody reads the tile before any more */

		const int place = slot(i) + margin, mirror = group ? -1 : 1; /* the other warpgroup has tap 8 - t of dW: as far away, the other way */
		float product[S::N_TILES][4];
		const auto dy_part = [&](int k) { return further(dy_rows, place + group * 64 - tap_distance(k / 2, (int)whole) + k % 2 * 2 * (S::PLANE_BYTES / 16)); };
		const auto weight_part = [&](int k) { return further(weight_start, (k / 2 * S::PANEL_BYTES + k % 2 * 16 * 128) / 16); };
		group_fence(product);
		group_multiply<T, false, true>(product, dy_part(0), weight_part(0));
		UNROLL for (int k = 1; k < 2 * TAPS; k++)
			group_multiply_add<T, false, true>(product, dy_part(k), weight_part(k));
		group_commit();

		/* Meanwhile what comes is asked for, … */
		if (i + 3 <= tiles)
			prefetch_dy(i + 3);
		if (i + 1 < tiles) {
			prefetch_y(i + 1);
			find(i + 4);
			find_valid(i + 1);
		}
		copies_commit();
		if (i + 2 <= tiles)
			correct(i + 2);

		/* … and the activation is made, channels as rows. The middle tap has its first steps: the other warpgroup begins in the tile's middle. */
		unsigned char *tile_y = y + (i & 1) * S::Y_BYTES;
		const uint32_t near = valid[(i & 1) * 8 + quarter * 2] >> group * 4, far = valid[(i & 1) * 8 + quarter * 2 + 1] >> group * 4;
		uint32_t z[S::K_STEPS][4];
		UNROLL for (int k = 0; k < S::K_STEPS; k++) {
			const int k16 = k ^ group * (S::K_STEPS / 2);
			const uint32_t keep_near = (near >> k & 0x10001u) * 0xffffu, keep_far = (far >> k & 0x10001u) * 0xffffu;
			load_matrices_transposed(z[k], tile_y + my_z + k16 * 16 * 128);
			z[k][0] = normalise_relu<T>(z[k][0], scale0, bias0, scale0, bias0) & keep_near;
			z[k][1] = normalise_relu<T>(z[k][1], scale1, bias1, scale1, bias1) & keep_near;
			z[k][2] = normalise_relu<T>(z[k][2], scale0, bias0, scale0, bias0) & keep_far;
			z[k][3] = normalise_relu<T>(z[k][3], scale1, bias1, scale1, bias1) & keep_far;
		}
		still_needed(z);
		group_fence(dweight);
		const int ahead = group * (S::ROWS / 2);
		UNROLL for (int k = 0; k < S::K_STEPS; k++)
			UNROLL for (int tap = 0; tap < S::HALF_TAPS - (k < S::K_STEPS / 2 ? 0 : 1); tap++)
				group_multiply_add<T, true>(dweight[tap], z[k], further(dy_across, place - mirror * tap_distance(tap, (int)whole) + (k < S::K_STEPS / 2 ? ahead : -ahead) + k * 16));
		group_commit();
		group_wait<1>(product);

		const int pixel[2] = { in_tile(i, my_row), in_tile(i, my_row + 8) };
		UNROLL for (int g = 0; g < S::CHANNELS / 32; g++) {
			const octet &s = my_scale[g], &h = my_bias[g];
			UNROLL for (int half = 0; half < 2; half++) {
				vector16 v = *(const vector16 *)x_chunk(tile_y, my_row + half * 8, g * 4 + quarter);
				UNROLL for (int j = 0; j < 4; j++) {
					const int n = g * 4 + j;
					const float y0 = low_half<T>(v.word[j]), y1 = high_half<T>(v.word[j]);
					const float d0 = pixel[half] >= 0 && fmaf(y0, s.v[2 * j], h.v[2 * j]) > 0 ? product[n][2 * half] : 0;
					const float d1 = pixel[half] >= 0 && fmaf(y1, s.v[2 * j + 1], h.v[2 * j + 1]) > 0 ? product[n][2 * half + 1] : 0;
					v.word[j] = pack<T>(d0, d1);
					dbeta[n][0] += d0;
					dbeta[n][1] += d1;
					dgamma[n][0] = fmaf(d0, y0, dgamma[n][0]);
					dgamma[n][1] = fmaf(d1, y1, dgamma[n][1]);
				}
				if (pixel[half] >= 0 && column0 + g * 32 + my_channel < p.c_in)
					*(vector16 *)(p.dz + (long)pixel[half] * p.c_in + column0 + g * 32 + my_channel) = v;
			}
		}
		group_wait<0>(dweight);
		still_needed(z);
	}

	const norm_sums<S::CHANNELS, S::WARPS, S::THREADS> norm(p, column0);
	sync_block(); /* nobody reads y any more */
	float *sums = (float *)y;
	vector16 *middle = (vector16 *)(y + S::Y_BYTES); /* the other warpgroup's part of the middle tap: [TAP_GROWTH / 8][WARPGROUP] */
	put_column_sums<S::CHANNELS>(sums, warp, 0, dbeta, dgamma);
	float (&last)[TAP_GROWTH / 8][4] = dweight[S::HALF_TAPS - 1];
	if (group)
		UNROLL for (int n = 0; n < TAP_GROWTH / 8; n++)
			middle[n * WARPGROUP + t % WARPGROUP] = { { float_bits(last[n][0]), float_bits(last[n][1]), float_bits(last[n][2]), float_bits(last[n][3]) } };
	sync_block();
	if (!group)
		UNROLL for (int n = 0; n < TAP_GROWTH / 8; n++) {
			const vector16 v = middle[n * WARPGROUP + t];
			UNROLL for (int j = 0; j < 4; j++)
				last[n][j] += bits_float(v.word[j]);
		}
	float *const my_weight = p.partial_weight + ((size_t)part * p.c_out + 2 * quarter) * TAPS * p.c_in + column0 + z_row;
	UNROLL for (int tap = 0; tap < S::HALF_TAPS; tap++)
		UNROLL for (int n = 0; n < TAP_GROWTH / 8; n++)
			UNROLL for (int j = 0; j < 4; j++) {
				const int channel = j / 2 * 8, out = n * 8 + j % 2;
				if (column0 + z_row + channel < p.c_in && 2 * quarter + out < p.c_out && !(group && tap == TAPS / 2))
					my_weight[(out * TAPS + (group ? TAPS - 1 - tap : tap)) * p.c_in + channel] = dweight[tap][n][j];
			}
	norm.write(p, sums, part);
#endif
}

/* Parts of both gradients' sums: a block each for every 64 channels. */
inline int conv3x3_joined_parts(long pixels, int side, int c_in, int multiprocessors)
{
	typedef conv3x3_joined_wgmma_shape S;
	const int most = multiprocessors / S::halves(c_in);
	return line_blocks(S::line(pixels, side), S::ROWS, most < 1 ? 1 : most);
}

template <class T, class S, class P> int conv3x3_joined_launch(const P &p, int parts, device_stream stream)
{
	return launch(conv3x3_joined_wgmma_kernel<T, S, P>, (unsigned)(parts * S::halves(p.c_in)) + blocks_beside(p), S::THREADS, S::shared_bytes(), stream, p);
}

#endif
