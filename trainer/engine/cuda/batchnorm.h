/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation in passes over a map: statistics, apply with ReLU, backward mask with sums, and the affine map that finishes
 * a backward pass. Normalisations over the same channels share mean and rstd; each has its own gamma and beta. What is between the passes is
 * bn_merge.h's. */
#ifndef CUDA_BATCHNORM_H
#define CUDA_BATCHNORM_H

#include "channel_pass.h"

/* Sum and sum of squares of every channel. */
template <class T> struct channel_sums {
	const T *x;
	int pitch;
	enum { SUMS = 1 };
	typedef no_state state;

	DEVICE state begin(int) const
	{
		return {};
	}
	DEVICE void apply(const state &, long pixel, int channel, octet (&sum)[2]) const
	{
		const octet v = load8(x + (size_t)pixel * pitch + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			sum[0].v[i] += v.v[i];
			sum[1].v[i] = fmaf(v.v[i], v.v[i], sum[1].v[i]);
		}
	}
};

struct scale_bias {
	octet scale, bias;
};

/* out = relu(scale · x + bias), or the mean of it over 2 × 2 pixels (a transition's pool, which commutes with its 1×1). */
template <class T, bool pooled> struct bn_relu {
	const T *x;
	T *out;                    /* [pixels][out_pitch] */
	const float *scale, *bias;
	int pitch, out_pitch;
	int side;                  /* of the pooled map, where pooled; x has twice that */
	enum { SUMS = 0 };
	typedef scale_bias state;

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel) };
	}
	DEVICE octet activation(const state &s, long pixel, int channel) const
	{
		octet v = load8(x + (size_t)pixel * pitch + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			const float z = fmaf(v.v[i], s.scale.v[i], s.bias.v[i]);
			v.v[i] = z <= 0 ? 0 : z; /* NaN stays NaN */
		}
		return v;
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		octet v;
		if (pooled) {
			const map_pixel at = map_pixel_of(pixel, side);
			const long first = (((long)at.image * side + at.row) * 2 * side + at.column) * 2;
			v = {};
			UNROLL for (int i = 0; i < 4; i++) {
				const octet a = activation(s, first + i / 2 * 2 * side + i % 2, channel);
				UNROLL for (int j = 0; j < 8; j++)
					v.v[j] += 0.25f * a.v[j];
			}
		} else {
			v = activation(s, pixel, channel);
		}
		store8(out + (size_t)pixel * out_pitch + channel, v);
	}
};

enum gradient_source { GRADIENT_FULL, GRADIENT_QUARTER, GRADIENT_GLOBAL };

struct bn_state {
	octet scale, bias, gamma, mean, rstd;
};

/* d = mask · gradient of the activation, the mask from the same fma as in forward; dbeta = sum of d, dgamma = sum of
 * d · (x - mean) · rstd. SHARED: g += gamma · d (g = gamma · d where first). Otherwise g = d. A walk over the map; QUARTER: over the pooled one. */
template <class T, gradient_source source, bool shared> struct bn_relu_backward {
	const void *gradient; /* T [pixels][gradient_pitch]; QUARTER: of the 2 × 2 mean; GLOBAL: float [images][channels] of the mean over a map */
	const T *x;
	T *g;
	const float *scale, *bias, *gamma, *mean, *rstd;
	int gradient_pitch, pitch, g_pitch;
	int side;             /* of the pooled map (QUARTER), of the map (GLOBAL) */
	int first;
	T *activation = nullptr; /* QUARTER: [pooled pixels][channels], what bn_relu<T, true> makes of x; NULL: not wanted */
	enum { SUMS = 1 };
	typedef bn_state state;

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel), load8(gamma + channel), load8(mean + channel), load8(rstd + channel) };
	}
	DEVICE octet incoming(long pixel, int channel) const
	{
		if (source == GRADIENT_FULL)
			return load8((const T *)gradient + (size_t)pixel * gradient_pitch + channel);
		octet v = source == GRADIENT_QUARTER ? load8((const T *)gradient + (size_t)pixel * gradient_pitch + channel) :
		                                       load8((const float *)gradient + (size_t)map_pixel_of(pixel, side).image * gradient_pitch + channel);
		const float factor = source == GRADIENT_QUARTER ? 0.25f : 1.0f / (float)(side * side);
		UNROLL for (int i = 0; i < 8; i++)
			v.v[i] *= factor;
		return v;
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		enum { COUNT = source == GRADIENT_QUARTER ? 4 : 1 }; /* pixels that share what comes in */
		long own = pixel; /* the first of them */
		if (source == GRADIENT_QUARTER) {
			const map_pixel at = map_pixel_of(pixel, side);
			own = ((long)at.image * side + at.row) * 4 * side + 2 * at.column;
		}
		const T *const from = x + own * pitch + channel;
		T *const g_own = g + own * g_pitch + channel;
		octet in[COUNT], mean_activation = {};
		const octet coming = incoming(pixel, channel);
		UNROLL for (int p = 0; p < COUNT; p++)
			in[p] = load8(from + (p / 2 * 2 * side + p % 2) * pitch);
		UNROLL for (int p = 0; p < COUNT; p++) {
			T *const to = g_own + (p / 2 * 2 * side + p % 2) * g_pitch;
			octet d, old = {};
			if (shared && !first)
				old = load8((const T *)to);
			UNROLL for (int i = 0; i < 8; i++) {
				const float z = fmaf(in[p].v[i], s.scale.v[i], s.bias.v[i]);
				if (source == GRADIENT_QUARTER)
					mean_activation.v[i] += 0.25f * (z <= 0 ? 0 : z);
				d.v[i] = z > 0 ? coming.v[i] : 0;
				sum[0].v[i] += d.v[i];
				sum[1].v[i] = fmaf(d.v[i], (in[p].v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
				if (shared)
					d.v[i] = fmaf(s.gamma.v[i], d.v[i], old.v[i]);
			}
			store8(to, d);
		}
		if (source == GRADIENT_QUARTER && activation)
			store8(activation + (size_t)pixel * gradient_pitch + channel, mean_activation);
	}
};

struct affine_state {
	octet a, b, c;
};

/* out = a · g + b · x + c: finishes a normalisation's backward, with coefficients from bn_backward_sums. */
template <class T> struct affine {
	T *g;
	const T *x;
	const float *a, *b, *c;
	int g_pitch, pitch;
	T *out = nullptr; /* NULL: g itself */
	int out_pitch = 0;
	enum { SUMS = 0 };
	typedef affine_state state;

	DEVICE state begin(int channel) const
	{
		return { load8(a + channel), load8(b + channel), load8(c + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		T *const from = g + (size_t)pixel * g_pitch + channel;
		octet v = load8((const T *)from);
		const octet in = load8(x + (size_t)pixel * pitch + channel);
		UNROLL for (int i = 0; i < 8; i++)
			v.v[i] = fmaf(s.a.v[i], v.v[i], fmaf(s.b.v[i], in.v[i], s.c.v[i]));
		store8(out ? out + (size_t)pixel * out_pitch + channel : from, v);
	}
};

#endif
