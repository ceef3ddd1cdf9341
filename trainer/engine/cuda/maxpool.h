/* SPDX-License-Identifier: Apache-2.0
 * The stem's BN, ReLU and 3×3 max pool with stride 2. Forward reads the raw convolution once and keeps, in a byte, which of a window's pixels
 * was the greatest: to find it again would take backward twenty loads a pixel, most of a step's tenth; the bytes are 0.2 MB an image of 224². */
#ifndef CUDA_MAXPOOL_H
#define CUDA_MAXPOOL_H

#include "batchnorm.h"

/* Of eight channels: the place in the window, 0 … 8. */
struct alignas(8) places {
	uint32_t word[2];

	DEVICE int of(int i) const
	{
		return (int)(word[i / 4] >> 8 * (i % 4) & 0xff);
	}
	DEVICE void set(int i, int place)
	{
		word[i / 4] = (word[i / 4] & ~(0xffu << 8 * (i % 4))) | (uint32_t)place << 8 * (i % 4);
	}
};

/* A walk over the pooled pixels; pooled side = (side + 1) / 2. Values are compared as they would be stored, so ties fall to the first of a window,
 * as in PyTorch. */
template <class T> struct bn_relu_maxpool {
	const T *x;        /* [images][side][side][channels] raw convolution */
	T *out;            /* [images][pooled][pooled] of out_pitch */
	uint8_t *place;    /* [images][pooled][pooled][channels]; NULL: not wanted */
	const float *scale, *bias;
	int side, channels, out_pitch;
	enum { SUMS = 0 };
	typedef scale_bias state;

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		const int pooled = (side + 1) / 2;
		const map_pixel at = map_pixel_of(pixel, pooled);
		octet best;
		places greatest = {};
		UNROLL for (int i = 0; i < 8; i++)
			best.v[i] = -1;
		for (int k = 0; k < 9; k++) {
			const int r = 2 * at.row - 1 + k / 3, c = 2 * at.column - 1 + k % 3;
			if (r < 0 || r >= side || c < 0 || c >= side)
				continue;
			const octet v = load8(x + ((size_t)(at.image * side + r) * side + c) * channels + channel);
			UNROLL for (int i = 0; i < 8; i++) {
				const float z = fmaf(v.v[i], s.scale.v[i], s.bias.v[i]), a = rounded<T>(z <= 0 ? 0 : z);
				if (a > best.v[i] || a != a) { /* NaN wins */
					best.v[i] = a;
					greatest.set(i, k);
				}
			}
		}
		store8(out + (size_t)pixel * out_pitch + channel, best);
		if (place)
			*(places *)(place + (size_t)pixel * channels + channel) = greatest;
	}
};

/* From the gradient of the pooled map to dz of the raw convolution's normalisation, with its sums. A walk over raw pixels. */
template <class T> struct bn_relu_maxpool_backward {
	const T *x;            /* like bn_relu_maxpool's */
	const T *gradient;     /* [images][pooled][pooled] of gradient_pitch */
	const uint8_t *place;
	T *dz;                 /* like x */
	const float *scale, *bias, *mean, *rstd;
	int side, channels, gradient_pitch;
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
		const int pooled = (side + 1) / 2;
		const map_pixel at = map_pixel_of(pixel, side);
		octet d = {};
		/* windows whose rows 2r - 1 … 2r + 1 hold this pixel */
		for (int r = at.row / 2; r <= (at.row + 1) / 2 && r < pooled; r++)
			for (int c = at.column / 2; c <= (at.column + 1) / 2 && c < pooled; c++) {
				const size_t window = (size_t)(at.image * pooled + r) * pooled + c;
				const places greatest = *(const places *)(place + window * channels + channel);
				const octet g = load8(gradient + window * gradient_pitch + channel);
				const int mine = (at.row - 2 * r + 1) * 3 + at.column - 2 * c + 1;
				UNROLL for (int i = 0; i < 8; i++)
					d.v[i] += greatest.of(i) == mine ? g.v[i] : 0;
			}
		const octet in = load8(x + (size_t)pixel * channels + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			d.v[i] = fmaf(in.v[i], s.scale.v[i], s.bias.v[i]) > 0 ? d.v[i] : 0;
			sum[0].v[i] += d.v[i];
			sum[1].v[i] = fmaf(d.v[i], (in.v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
		}
		store8(dz + (size_t)pixel * channels + channel, d);
	}
};

#endif
