/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation in pieces: statistics, apply with ReLU, backward mask with sums, and the affine map that finishes
 * a backward pass. Normalisations over the same channels share mean and rstd; each has its own gamma and beta. */
#ifndef CUDA_BATCHNORM_H
#define CUDA_BATCHNORM_H

#include "channel_pass.h"
#include "gate.h"

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
			v.v[i] = z > 0 ? z : 0;
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
 * d · (x - mean) · rstd. SHARED: g += gamma · d (g = gamma · d where first). Otherwise g = d. */
template <class T, gradient_source source, bool shared> struct bn_relu_backward {
	const void *gradient; /* T [pixels][gradient_pitch]; QUARTER: of the 2 × 2 mean; GLOBAL: float [images][channels] of the mean over a map */
	const T *x;
	T *g;
	const float *scale, *bias, *gamma, *mean, *rstd;
	int gradient_pitch, pitch, g_pitch;
	int side;             /* of the pooled map (QUARTER), of the map (GLOBAL) */
	int first;
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
		octet v;
		float factor;
		if (source == GRADIENT_QUARTER) {
			const map_pixel at = map_pixel_of(pixel, 2 * side);
			v = load8((const T *)gradient + (((size_t)at.image * side + at.row / 2) * side + at.column / 2) * gradient_pitch + channel);
			factor = 0.25f;
		} else {
			v = load8((const float *)gradient + (size_t)map_pixel_of(pixel, side).image * gradient_pitch + channel);
			factor = 1.0f / (float)(side * side);
		}
		UNROLL for (int i = 0; i < 8; i++)
			v.v[i] *= factor;
		return v;
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		octet d = incoming(pixel, channel);
		const octet in = load8(x + (size_t)pixel * pitch + channel);
		UNROLL for (int i = 0; i < 8; i++) {
			d.v[i] = fmaf(in.v[i], s.scale.v[i], s.bias.v[i]) > 0 ? d.v[i] : 0;
			sum[0].v[i] += d.v[i];
			sum[1].v[i] = fmaf(d.v[i], (in.v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
		}
		T *to = g + (size_t)pixel * g_pitch + channel;
		if (shared) {
			octet old = {};
			if (!first)
				old = load8((const T *)to);
			UNROLL for (int i = 0; i < 8; i++)
				d.v[i] = fmaf(s.gamma.v[i], d.v[i], old.v[i]);
		}
		store8(to, d);
	}
};

struct affine_state {
	octet a, b, c;
};

/* out = a · g + b · x + c: finishes a normalisation's backward, with coefficients from bn_backward_sums or bn_correction. */
template <class T> struct affine {
	T *g;
	const T *x;
	const float *a, *b, *c;
	int g_pitch, pitch;
	T *out = nullptr; /* like g; NULL: g itself */
	enum { SUMS = 0 };
	typedef affine_state state;

	DEVICE state begin(int channel) const
	{
		return { load8(a + channel), load8(b + channel), load8(c + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		const size_t at = (size_t)pixel * g_pitch + channel;
		octet v = load8((const T *)g + at);
		const octet in = load8(x + (size_t)pixel * pitch + channel);
		UNROLL for (int i = 0; i < 8; i++)
			v.v[i] = fmaf(s.a.v[i], v.v[i], fmaf(s.b.v[i], in.v[i], s.c.v[i]));
		store8((out ? out : g) + at, v);
	}
};

/* ---- from partial sums: a block merges those of 32 channels ---- */

enum { BN_THREADS = 128, MERGE_CHANNELS = 32, MERGE_WARPS = 16 };

/* There are up to SUM_BLOCKS parts, and one thread a channel would wait for one load after the other, a hundred microseconds for each of
 * DenseNet-121's 240 merges. Warp w adds parts w, w + MERGE_WARPS, …; then the first warp adds the warps' sums, in their order. True where
 * *channel's sums are there. */
DEVICE bool merge_parts(const float *partial, int parts, int stride, int channels, int *channel, double (&sum)[2])
{
	double *shared = (double *)shared_memory(); /* [MERGE_WARPS][2][MERGE_CHANNELS] */
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, c = (int)blockIdx.x * MERGE_CHANNELS + lane;
	sum[0] = sum[1] = 0;
	if (c < channels)
		UNROLL_FOUR for (int part = warp; part < parts; part += MERGE_WARPS) {
			sum[0] += partial[(size_t)part * 2 * (size_t)stride + (size_t)c];
			sum[1] += partial[((size_t)part * 2 + 1) * (size_t)stride + (size_t)c];
		}
	UNROLL for (int which = 0; which < 2; which++)
		shared[(warp * 2 + which) * MERGE_CHANNELS + lane] = sum[which];
	sync_block();
	if (warp || c >= channels)
		return false;
	for (int w = 1; w < MERGE_WARPS; w++)
		UNROLL for (int which = 0; which < 2; which++)
			sum[which] += shared[(w * 2 + which) * MERGE_CHANNELS + lane];
	*channel = c;
	return true;
}

/* From partial sums to mean, rstd and E[x²], merged in double. */
struct bn_statistics {
	const float *partial;       /* [parts][2][stride], the first channels of each */
	float *mean, *rstd, *square; /* [channels] */
	double pixels;
	float epsilon;
	int parts, channels, stride;
};

KERNEL THREADS(32 * MERGE_WARPS, 1) bn_statistics_kernel(const bn_statistics p)
{
	double sum[2];
	int c;
	if (!merge_parts(p.partial, p.parts, p.stride, p.channels, &c, sum))
		return;
	const double mean = sum[0] / p.pixels, mean_square = sum[1] / p.pixels, variance = mean_square - mean * mean;
	p.mean[c] = (float)mean;
	p.square[c] = (float)mean_square;
	p.rstd[c] = (float)(1 / sqrt((variance > 0 ? variance : 0) + p.epsilon));
}

/* ---- per channel: one thread each ---- */

/* A layer's scale and bias, from batch statistics (rstd) or running ones (variance). Training also adds the batch's
 * statistics to the slab's. */
struct bn_scale {
	const float *gamma, *beta, *mean, *rstd, *variance; /* variance NULL: use rstd */
	float *scale, *bias;                    /* [channels] */
	const float *square;                    /* E[x²] of the batch */
	float *slab_mean, *slab_square;         /* NULL in evaluation */
	float factor;                           /* 1 / micro-batches */
	float epsilon;
	int accumulate, channels;
};

KERNEL THREADS(BN_THREADS, 1) bn_scale_kernel(const bn_scale p)
{
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c >= p.channels)
		return;
	const float rstd = p.variance ? (float)(1 / sqrt((double)p.variance[c] + p.epsilon)) : p.rstd[c];
	const float scale = p.gamma[c] * rstd;
	p.scale[c] = scale;
	p.bias[c] = fmaf(-p.mean[c], scale, p.beta[c]);
	if (p.slab_mean) {
		p.slab_mean[c] = (p.accumulate ? p.slab_mean[c] : 0) + p.factor * p.mean[c];
		p.slab_square[c] = (p.accumulate ? p.slab_square[c] : 0) + p.factor * p.square[c];
	}
}

/* dbeta and dgamma from partial sums: into the gradient slab, and towards the correction of x's gradient, either summed
 * with the other layers' (shared: s1 += gamma · dbeta, s2 += gamma · dgamma) or at once as affine coefficients. */
struct bn_backward_sums {
	const float *partial;               /* [parts][2][channels] */
	const float *gamma, *mean, *rstd;
	float *grad_gamma, *grad_beta;      /* in the slab */
	float *s1, *s2;                     /* shared, else NULL */
	float *a, *b, *c;                   /* private, else NULL: dy = a · dz + b · y + c */
	const float *unscale;               /* 1 / loss scale; NULL: 1 */
	double pixels;
	float factor;                       /* of the slab's gradients: 1 / micro-batches */
	int accumulate, first, parts, channels;
};

KERNEL THREADS(32 * MERGE_WARPS, 1) bn_backward_sums_kernel(const bn_backward_sums p)
{
	double sum[2];
	int c;
	if (!merge_parts(p.partial, p.parts, p.channels, p.channels, &c, sum))
		return;
	const double beta = sum[0], gamma = sum[1];
	const float factor = p.factor * (p.unscale ? *p.unscale : 1);
	p.grad_beta[c] = (p.accumulate ? p.grad_beta[c] : 0) + factor * (float)beta;
	p.grad_gamma[c] = (p.accumulate ? p.grad_gamma[c] : 0) + factor * (float)gamma;
	if (p.s1) {
		p.s1[c] = (p.first ? 0 : p.s1[c]) + p.gamma[c] * (float)beta;
		p.s2[c] = (p.first ? 0 : p.s2[c]) + p.gamma[c] * (float)gamma;
	} else {
		const double scale = (double)p.gamma[c] * p.rstd[c], slope = gamma * p.rstd[c] / p.pixels;
		p.a[c] = (float)scale;
		p.b[c] = (float)(-scale * slope);
		p.c[c] = (float)(scale * (slope * p.mean[c] - beta / p.pixels));
	}
}

/* Running statistics from the slab's means over all micro-batches and ranks: momentum 0.1, unbiased variance. */
struct bn_running {
	const float *slab_mean, *slab_square, *unbias; /* [channels]; unbias = n / (n - 1) */
	float *mean, *variance;
	const step_gate *gate;                         /* as in struct update */
	int channels;
};

KERNEL THREADS(BN_THREADS, 1) bn_running_kernel(const bn_running p)
{
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c >= p.channels || p.gate->closed)
		return;
	const double mean = p.slab_mean[c], variance = (p.slab_square[c] - mean * mean) * p.unbias[c];
	p.mean[c] = (float)(0.9 * p.mean[c] + 0.1 * mean);
	p.variance[c] = (float)(0.9 * p.variance[c] + 0.1 * (variance > 0 ? variance : 0));
}

/* The shared correction's coefficients: dx = rstd · (g - (s1 + (x - mean) · rstd · s2) / pixels) = a · g + b · x + c. */
struct bn_correction {
	const float *s1, *s2, *mean, *rstd;
	float *a, *b, *c;
	double pixels;
	int channels;
};

KERNEL THREADS(BN_THREADS, 1) bn_correction_kernel(const bn_correction p)
{
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c >= p.channels)
		return;
	const double rstd = p.rstd[c], slope = rstd * p.s2[c] / p.pixels;
	p.a[c] = (float)rstd;
	p.b[c] = (float)(-rstd * slope);
	p.c[c] = (float)(rstd * (slope * p.mean[c] - p.s1[c] / p.pixels));
}

template <class P> int merge_launch(void (*kernel)(P), const P &p, device_stream stream)
{
	return launch(kernel, (unsigned)(p.channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS, 32 * MERGE_WARPS, MERGE_WARPS * 2 * MERGE_CHANNELS * sizeof(double), stream, p);
}

template <class P> int per_channel_launch(void (*kernel)(P), const P &p, device_stream stream)
{
	return launch(kernel, (unsigned)(p.channels + BN_THREADS - 1) / BN_THREADS, BN_THREADS, 0, stream, p);
}

#endif
