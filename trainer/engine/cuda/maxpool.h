/* SPDX-License-Identifier: Apache-2.0
 * The stem's BN, ReLU and 3×3 max pool with stride 2: forward reads the raw convolution once; backward finds the
 * maxima again instead of storing where they were. */
#ifndef CUDA_MAXPOOL_H
#define CUDA_MAXPOOL_H

#include "batchnorm.h"

/* Values are compared as they would be stored, so ties fall to the first of a window, as in PyTorch. */
template <class T> struct stem_map {
	const T *x;        /* [images][side][side][channels] raw convolution */
	int side, channels;

	DEVICE octet activation(const octet &scale, const octet &bias, long image, int row, int column, int channel) const
	{
		octet v = load8(x + ((size_t)(image * side + row) * side + column) * channels + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			const float z = fmaf(v.v[i], scale.v[i], bias.v[i]);
			v.v[i] = rounded<T>(z > 0 ? z : 0);
		}
		return v;
	}
	/* Greatest activation of the window of pooled pixel (row, column) and its place in the window, 0…8. */
	DEVICE octet window(const octet &scale, const octet &bias, long image, int row, int column, int channel, int (&place)[8]) const
	{
		octet best;
		UNROLL for (int i = 0; i < 8; i++)
			best.v[i] = -1;
		for (int k = 0; k < 9; k++) {
			const int r = 2 * row - 1 + k / 3, c = 2 * column - 1 + k % 3;
			if (r < 0 || r >= side || c < 0 || c >= side)
				continue;
			const octet v = activation(scale, bias, image, r, c, channel);
			UNROLL for (int i = 0; i < 8; i++)
				if (v.v[i] > best.v[i]) {
					best.v[i] = v.v[i];
					place[i] = k;
				}
		}
		return best;
	}
};

/* out [images][pooled side][pooled side] of out_pitch; pooled side = (side + 1) / 2. A walk over the pooled pixels. */
template <class T> struct bn_relu_maxpool {
	stem_map<T> map;
	T *out;
	const float *scale, *bias;
	int out_pitch;
	enum { SUMS = 0 };
	typedef scale_bias state;

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		const int pooled = (map.side + 1) / 2;
		int place[8];
		const long row = pixel / pooled;
		store8(out + (size_t)pixel * out_pitch + channel, map.window(s.scale, s.bias, row / pooled, (int)(row % pooled), (int)(pixel % pooled), channel, place));
	}
};

/* From the gradient of the pooled map to dz of the raw convolution's normalisation, with its sums. A walk over raw pixels. */
template <class T> struct bn_relu_maxpool_backward {
	stem_map<T> map;
	const T *gradient; /* [images][pooled][pooled] of gradient_pitch */
	T *dz;             /* like map.x */
	const float *scale, *bias, *mean, *rstd;
	int gradient_pitch;
	enum { SUMS = 1 };
	struct state {
		octet scale, bias, mean, rstd;
	};

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel), load8(mean + channel), load8(rstd + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		const int side = map.side, pooled = (side + 1) / 2;
		const long image = pixel / ((long)side * side);
		const int row = (int)(pixel / side % side), column = (int)(pixel % side);
		octet d = {};
		/* windows whose rows 2r - 1 … 2r + 1 hold this pixel */
		for (int r = row / 2; r <= (row + 1) / 2 && r < pooled; r++)
			for (int c = column / 2; c <= (column + 1) / 2 && c < pooled; c++) {
				int place[8];
				map.window(s.scale, s.bias, image, r, c, channel, place);
				const octet g = load8(gradient + ((size_t)(image * pooled + r) * pooled + c) * gradient_pitch + channel);
				const int mine = (row - 2 * r + 1) * 3 + column - 2 * c + 1;
				UNROLL for (int i = 0; i < 8; i++)
					d.v[i] += place[i] == mine ? g.v[i] : 0;
			}
		const octet in = load8(map.x + (size_t)pixel * map.channels + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			d.v[i] = fmaf(in.v[i], s.scale.v[i], s.bias.v[i]) > 0 ? d.v[i] : 0;
			sum[0].v[i] += d.v[i];
			sum[1].v[i] = fmaf(d.v[i], (in.v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
		}
		store8(dz + (size_t)pixel * map.channels + channel, d);
	}
};

#endif
