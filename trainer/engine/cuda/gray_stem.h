/* SPDX-License-Identifier: Apache-2.0
 * The first convolution of gray images, 7 × 7 of step 2 with a border of 3, folded twice.
 *
 * A gray image counts as three equal channels, which fold into two as in the CPU engine: the gray value, and 1 inside the image (0 in the
 * border, where a normalised channel is 0 too). With v = (byte - 115) / 64, which every number format holds exactly:
 *     sum over c of W_c (byte / 255 - mean_c) / deviation_c
 *         = v * sum of W_c (64 / 255) / deviation_c  +  inside * sum of W_c (115 / 255 - mean_c) / deviation_c
 *
 * Tensor cores want channels in eights, so 2 × 2 pixels become one of eight channels, and the convolution 4 × 4 of step 1 on a map that
 * brings its border along: row y, column x of the map hold the image's rows 2 (y - 2) and the next, columns 2 (x - 2) and the next.
 * Tap t of the map and row s of a pair are tap 2 t + s - 1 of the 7; tap -1 has no weight. Compared with three channels padded to
 * eight that is a third of the products and a quarter of the bytes. */
#ifndef CUDA_GRAY_STEM_H
#define CUDA_GRAY_STEM_H

#include "images.h"

enum { STEM_TAPS = 7, GRAY_TAPS = 4, GRAY_BORDER = 3, GRAY_CHANNELS = 8, GRAY_COLUMNS = GRAY_TAPS * GRAY_TAPS * GRAY_CHANNELS, GRAY_THREADS = 128, UNFOLD_GROUPS = 8 };

/* What a channel's weight counts in the gray value's and in the inside's. */
struct gray_fold {
	float gray[3], inside[3];
};

inline gray_fold gray_fold_make()
{
	gray_fold f;
	for (int c = 0; c < 3; c++) {
		f.gray[c] = (float)(64.0 / 255 / pixel_deviation[c]);
		f.inside[c] = (float)((115.0 / 255 - pixel_mean[c]) / pixel_deviation[c]);
	}
	return f;
}

/* uint8 images, cut and mirrored, to the folded map. */
template <class T> struct gather_gray {
	const image_window *window; /* [images], gray */
	T *out;                     /* [images][side][side][8]: gray and inside of the four pixels */
	int source, size, side;     /* size: of the window; side: of the map */
	enum { SUMS = 0 };
	typedef no_state state;

	DEVICE state begin(int) const
	{
		return {};
	}
	DEVICE void apply(const state &, long pixel, int, octet (&)[2]) const
	{
		const map_pixel at = map_pixel_of(pixel, side);
		const image_window w = window[at.image];
		const int row = 2 * (at.row - 2), column = 2 * (at.column - 2);
		octet v = {};
		UNROLL for (int i = 0; i < 4; i++) {
			const int r = row + i / 2, c = column + i % 2;
			if (r < 0 || r >= size || c < 0 || c >= size)
				continue;
			const uint8_t byte = w.pixels[(w.y + r) * source + w.x + (w.flip ? size - 1 - c : c)];
			v.v[2 * i] = (float)((int)byte - 115) / 64;
			v.v[2 * i + 1] = 1;
		}
		store8(out + (size_t)pixel * GRAY_CHANNELS, v);
	}
};

/* The weight's copy, from [c_out][3][7][7] to [c_out][4][4][8]. A thread takes one of the four pixels of a tap. */
template <class T> struct fold_weight {
	const float *weight;
	T *copy;
	gray_fold fold;
	int c_out;
};

template <class T> KERNEL THREADS(GRAY_THREADS, 1) fold_weight_kernel(const fold_weight<T> p)
{
	begin_kernel();
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= p.c_out * GRAY_TAPS * GRAY_TAPS * 4)
		return;
	const int sub = i % 4, tap = i / 4 % (GRAY_TAPS * GRAY_TAPS), out = i / 4 / (GRAY_TAPS * GRAY_TAPS);
	const int ky = 2 * (tap / GRAY_TAPS) + sub / 2 - 1, kx = 2 * (tap % GRAY_TAPS) + sub % 2 - 1;
	float gray = 0, inside = 0;
	if (ky >= 0 && kx >= 0)
		UNROLL for (int c = 0; c < 3; c++) {
			const float weight = p.weight[((out * 3 + c) * STEM_TAPS + ky) * STEM_TAPS + kx];
			gray = fmaf(weight, p.fold.gray[c], gray);
			inside = fmaf(weight, p.fold.inside[c], inside);
		}
	p.copy[2 * i] = from_float<T>(gray);
	p.copy[2 * i + 1] = from_float<T>(inside);
}

template <class T> int fold_weight_launch(const fold_weight<T> &p, device_stream stream)
{
	return launch(fold_weight_kernel<T>, (unsigned)(p.c_out * GRAY_TAPS * GRAY_TAPS * 4 + GRAY_THREADS - 1) / GRAY_THREADS, GRAY_THREADS, 0, stream, p);
}

/* The way back: the weight's gradient, in parts, from [parts][c_out][4][4][8] to the slab's [c_out][3][7][7]. */
struct unfold_gradient {
	const float *partial;
	float *out;
	const float *unscale; /* 1 / loss scale; NULL: 1 */
	gray_fold fold;
	float factor;
	int c_out, parts, accumulate;
};

/* A block has a filter: its groups of threads add parts, each every eighth one, then their sums in their order. */
KERNEL THREADS(UNFOLD_GROUPS *GRAY_COLUMNS, 1) unfold_gradient_kernel(const unfold_gradient p)
{
	begin_kernel();
	float *shared = (float *)shared_memory(); /* [UNFOLD_GROUPS][GRAY_COLUMNS] */
	const int t = (int)threadIdx.x, out = (int)blockIdx.x;
	float sum = 0;
	UNROLL_EIGHT for (int part = t / GRAY_COLUMNS; part < p.parts; part += UNFOLD_GROUPS)
		sum += p.partial[((size_t)part * (size_t)p.c_out + (size_t)out) * GRAY_COLUMNS + (size_t)(t % GRAY_COLUMNS)];
	shared[t] = sum;
	sync_block();
	if (t >= 3 * STEM_TAPS * STEM_TAPS)
		return;
	const int c = t / (STEM_TAPS * STEM_TAPS), ky = t / STEM_TAPS % STEM_TAPS + 1, kx = t % STEM_TAPS + 1;
	const float *at = shared + (ky / 2 * GRAY_TAPS + kx / 2) * GRAY_CHANNELS + 2 * (ky % 2 * 2 + kx % 2);
	float gray = 0, inside = 0;
	for (int group = 0; group < UNFOLD_GROUPS; group++) {
		gray += at[group * GRAY_COLUMNS];
		inside += at[group * GRAY_COLUMNS + 1];
	}
	const float factor = p.factor * (p.unscale ? *p.unscale : 1), total = fmaf(p.fold.gray[c], gray, p.fold.inside[c] * inside);
	float *to = p.out + (size_t)out * 3 * STEM_TAPS * STEM_TAPS + (size_t)t;
	*to = (p.accumulate ? *to : 0) + factor * total;
}

inline int unfold_gradient_launch(const unfold_gradient &p, device_stream stream)
{
	return launch(unfold_gradient_kernel, (unsigned)p.c_out, UNFOLD_GROUPS * GRAY_COLUMNS, UNFOLD_GROUPS * GRAY_COLUMNS * sizeof(float), stream, p);
}

#endif
