/* SPDX-License-Identifier: Apache-2.0
 * A residual block's own passes: its end, relu(bn(x) + shortcut), and that end's gradient. */
#ifndef CUDA_RESIDUAL_H
#define CUDA_RESIDUAL_H

#include "channel_pass.h"

/* out = relu(scale · x + bias + shortcut), where projected relu(scale · x + bias + shortcut_scale · shortcut + shortcut_bias). */
template <class T, bool projected> struct residual_join {
	const T *x, *shortcut;
	T *out;
	const float *scale, *bias, *shortcut_scale, *shortcut_bias;
	int pitch; /* of all three */
	enum { SUMS = 0 };
	struct state {
		octet scale, bias, shortcut_scale;
	};

	DEVICE state begin(int channel) const
	{
		state s = { load8(scale + channel), load8(bias + channel), {} };
		if (projected) {
			const octet more = load8(shortcut_bias + channel);
			s.shortcut_scale = load8(shortcut_scale + channel);
			UNROLL for (int i = 0; i < 8; i++)
				s.bias.v[i] += more.v[i];
		}
		return s;
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		const size_t at = (size_t)pixel * pitch + channel;
		octet v = load8(x + at);
		const octet other = load8(shortcut + at);
		UNROLL for (int i = 0; i < 8; i++) {
			const float z = fmaf(v.v[i], s.scale.v[i], s.bias.v[i]) + (projected ? other.v[i] * s.shortcut_scale.v[i] : other.v[i]);
			v.v[i] = z <= 0 ? 0 : z;
		}
		store8(out + at, v);
	}
};

struct normal_state {
	octet mean, rstd;
};

/* Gradient of a block's end before its ReLU: g = d where out > 0, with the sums that the last normalisation needs. d: the two
 * readers' gradients added up, or (pooled) the head's, of the mean over a map. */
template <class T, bool pooled> struct residual_mask {
	const T *first, *second;
	const float *pooled_gradient; /* [images][pitch] */
	const T *out, *x;             /* x: the last normalisation's input */
	T *g;
	const float *mean, *rstd;
	int pitch, map;               /* map: pixels of an image */
	enum { SUMS = 1 };
	typedef normal_state state;

	DEVICE state begin(int channel) const
	{
		return { load8(mean + channel), load8(rstd + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		const size_t at = (size_t)pixel * pitch + channel;
		octet d = pooled ? load8(pooled_gradient + (size_t)((unsigned)pixel / (unsigned)map) * pitch + channel) : load8(first + at), more = {};
		if (!pooled)
			more = load8(second + at);
		const octet end = load8(out + at), in = load8(x + at);
		UNROLL for (int i = 0; i < 8; i++) {
			const float both = pooled ? d.v[i] / (float)map : d.v[i] + more.v[i];
			d.v[i] = rounded<T>(end.v[i] > 0 ? both : 0); /* what the next kernels read is what is summed here */
			sum[0].v[i] += d.v[i];
			sum[1].v[i] = fmaf(d.v[i], (in.v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
		}
		store8(g + at, d);
	}
};

/* The same sums for the normalisation of a projected shortcut. */
template <class T> struct residual_sums {
	const T *g, *x;
	const float *mean, *rstd;
	int pitch;
	enum { SUMS = 1 };
	typedef normal_state state;

	DEVICE state begin(int channel) const
	{
		return { load8(mean + channel), load8(rstd + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		const size_t at = (size_t)pixel * pitch + channel;
		const octet d = load8(g + at), in = load8(x + at);
		UNROLL for (int i = 0; i < 8; i++) {
			sum[0].v[i] += d.v[i];
			sum[1].v[i] = fmaf(d.v[i], (in.v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
		}
	}
};

/* out = a + b: the gradient of the first block's input. */
template <class T> struct residual_add {
	const T *a, *b;
	T *out;
	int pitch;
	enum { SUMS = 0 };
	typedef no_state state;

	DEVICE state begin(int) const
	{
		return {};
	}
	DEVICE void apply(const state &, long pixel, int channel, octet (&)[2]) const
	{
		const size_t at = (size_t)pixel * pitch + channel;
		octet v = load8(a + at);
		const octet more = load8(b + at);
		UNROLL for (int i = 0; i < 8; i++)
			v.v[i] += more.v[i];
		store8(out + at, v);
	}
};

#endif
