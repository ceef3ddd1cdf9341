/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation between the passes over a map: from a pass's partial sums to the few numbers that the next one needs. These kernels are
 * short, so that what a launch takes counts: each does all that is due at its place in a step. */
#ifndef CUDA_BN_MERGE_H
#define CUDA_BN_MERGE_H

#include "device.h"
#include "gate.h"

enum { BN_THREADS = 128, MERGE_CHANNELS = 32, MERGE_WARPS = 16, MERGE_THREADS = 32 * MERGE_WARPS, MERGE_BYTES = MERGE_WARPS * 2 * MERGE_CHANNELS * 8,
       MERGE_DEPTH = 9 /* parts that a warp waits for at once: all of them where there are 132, as many as an H200 has multiprocessors */ };

/* There are up to SUM_BLOCKS parts, and one thread a channel would wait for one load after the other, a hundred microseconds for each of
 * DenseNet-121's 240 merges. Block `block` merges 32 channels: warp w adds parts w, w + MERGE_WARPS, …; then the first warp adds the warps' sums, in
 * their order. True where *channel's sums are there. */
template <int depth> DEVICE bool merge_parts(const float *partial, int parts, int stride, int channels, int block, int *channel, double (&sum)[2])
{
	double *shared = (double *)shared_memory(); /* [MERGE_WARPS][2][MERGE_CHANNELS] */
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, c = block * MERGE_CHANNELS + lane;
	sum[0] = sum[1] = 0;
	if (c < channels)
		SERIAL for (int first = warp; first < parts; first += depth * MERGE_WARPS) {
			float value[depth][2];
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					value[i][which] = first + i * MERGE_WARPS < parts ? partial[((size_t)(first + i * MERGE_WARPS) * 2 + (size_t)which) * (size_t)stride + (size_t)c] : 0;
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					sum[which] += value[i][which];
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

inline int merge_blocks(int channels)
{
	return (channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
}

/* ---- forward ---- */

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

/* What a channel's scale is made of, beside its statistics: asked for before they are there. */
struct gamma_beta {
	float gamma, beta;

	DEVICE gamma_beta(const bn_scale &p, int c) : gamma(p.gamma[c]), beta(p.beta[c])
	{
	}
};

DEVICE void put_scale(const bn_scale &p, int c, const gamma_beta &of, float mean, float rstd, const float *square)
{
	const float scale = of.gamma * rstd;
	p.scale[c] = scale;
	p.bias[c] = fmaf(-mean, scale, of.beta);
	if (p.slab_mean) {
		p.slab_mean[c] = (p.accumulate ? p.slab_mean[c] : 0) + p.factor * mean;
		p.slab_square[c] = (p.accumulate ? p.slab_square[c] : 0) + p.factor * *square;
	}
}

DEVICE void scale_channel(const bn_scale &p, int c)
{
	const gamma_beta of(p, c);
	const float rstd = p.variance ? (float)(1 / sqrt((double)p.variance[c] + p.epsilon)) : p.rstd[c];
	put_scale(p, c, of, p.mean[c], rstd, p.square + c);
}

KERNEL THREADS(BN_THREADS, 1) bn_scale_kernel(const bn_scale p)
{
	begin_kernel();
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c < p.channels)
		scale_channel(p, c);
}

/* The statistics of a map's new channels, from partial sums, merged in double; then scale and bias of the normalisation that reads the
 * map next, which has the channels before and after them, too. */
struct bn_statistics {
	const float *partial;        /* [parts][2][stride], the first channels of each */
	float *mean, *rstd, *square; /* [channels] */
	double pixels;
	float epsilon;
	int parts, channels, stride;
	bn_scale next;               /* its mean, rstd and square hold those above from place `from` on */
	int from;
};

KERNEL THREADS(MERGE_THREADS, 1) bn_statistics_kernel(const bn_statistics p)
{
	begin_kernel();
	const int merging = (p.channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
	double sum[2];
	int c;
	if ((int)blockIdx.x >= merging) {
		c = ((int)blockIdx.x - merging) * MERGE_THREADS + (int)threadIdx.x;
		c += c < p.from ? 0 : p.channels;
		if (c < p.next.channels)
			scale_channel(p.next, c);
		return;
	}
	c = (int)blockIdx.x * MERGE_CHANNELS + (int)threadIdx.x % MERGE_CHANNELS;
	const gamma_beta of(p.next, p.from + (c < p.channels ? c : 0));
	if (!merge_parts<MERGE_DEPTH>(p.partial, p.parts, p.stride, p.channels, (int)blockIdx.x, &c, sum))
		return;
	const double mean = sum[0] / p.pixels, mean_square = sum[1] / p.pixels, variance = mean_square - mean * mean;
	const float square = (float)mean_square, rstd = (float)(1 / sqrt((variance <= 0 ? 0 : variance) + p.epsilon));
	p.mean[c] = (float)mean;
	p.square[c] = square;
	p.rstd[c] = rstd;
	put_scale(p.next, p.from + c, of, (float)mean, rstd, &square);
}

inline int bn_statistics_launch(const bn_statistics &p, device_stream stream)
{
	const int others = p.next.channels - p.channels;
	return launch(bn_statistics_kernel, (unsigned)(merge_blocks(p.channels) + (others + MERGE_THREADS - 1) / MERGE_THREADS), MERGE_THREADS, MERGE_BYTES, stream, p);
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
	begin_kernel();
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c >= p.channels || p.gate->closed)
		return;
	const double mean = p.slab_mean[c], variance = (p.slab_square[c] - mean * mean) * p.unbias[c];
	p.mean[c] = (float)(0.9 * p.mean[c] + 0.1 * mean);
	p.variance[c] = (float)(0.9 * p.variance[c] + 0.1 * (variance <= 0 ? 0 : variance));
}

template <class P> int per_channel_launch(void (*kernel)(P), const P &p, device_stream stream)
{
	return launch(kernel, (unsigned)(p.channels + BN_THREADS - 1) / BN_THREADS, BN_THREADS, 0, stream, p);
}

/* ---- backward ---- */

/* dbeta and dgamma from partial sums: into the gradient slab, and towards the gradient of the map, a · g + b · x + c. A private normalisation has its
 * coefficients at once: dy = a · dz + b · y + c. A shared one adds its part to its map's (s1 += gamma · dbeta, s2 += gamma · dgamma), and then has those
 * for the channels [from, from + due) that no other layer reads any more, as dx = rstd · (g - (s1 + (x - mean) · rstd · s2) / pixels). */
struct bn_backward_sums {
	const float *partial;               /* [parts][2][channels] */
	const float *gamma, *mean, *rstd;
	float *grad_gamma, *grad_beta;      /* in the slab */
	float *s1, *s2;                     /* NULL: private */
	float *a, *b, *c;                   /* [channels]; shared: [due] */
	const float *unscale;               /* 1 / loss scale; NULL: 1 */
	double pixels;
	float factor;                       /* of the slab's gradients: 1 / micro-batches */
	int accumulate, first, parts, channels;
	int from, due;
};

template <int depth> DEVICE void merge_backward(const bn_backward_sums &p, int block)
{
	double sum[2];
	int c = block * MERGE_CHANNELS + (int)threadIdx.x % MERGE_CHANNELS;
	const int asked = c < p.channels ? c : 0; /* before its sums are there */
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked], old1 = p.s1 && !p.first ? p.s1[asked] : 0, old2 = p.s1 && !p.first ? p.s2[asked] : 0;
	if (!merge_parts<depth>(p.partial, p.parts, p.channels, p.channels, block, &c, sum))
		return;
	const double beta = sum[0], gamma = sum[1];
	const float factor = p.factor * (p.unscale ? *p.unscale : 1);
	p.grad_beta[c] = (p.accumulate ? p.grad_beta[c] : 0) + factor * (float)beta;
	p.grad_gamma[c] = (p.accumulate ? p.grad_gamma[c] : 0) + factor * (float)gamma;
	if (!p.s1) {
		const double scale = (double)gamma_of * rstd, slope = gamma * rstd / p.pixels;
		p.a[c] = (float)scale;
		p.b[c] = (float)(-scale * slope);
		p.c[c] = (float)(scale * (slope * mean - beta / p.pixels));
		return;
	}
	const float s1 = old1 + gamma_of * (float)beta, s2 = old2 + gamma_of * (float)gamma;
	p.s1[c] = s1;
	p.s2[c] = s2;
	if (c >= p.from && c < p.from + p.due) {
		const double slope = (double)rstd * s2 / p.pixels;
		p.a[c - p.from] = rstd;
		p.b[c - p.from] = (float)(-rstd * slope);
		p.c[c - p.from] = (float)(rstd * (slope * mean - s1 / p.pixels));
	}
}

KERNEL THREADS(MERGE_THREADS, 1) bn_backward_sums_kernel(const bn_backward_sums p)
{
	begin_kernel();
	merge_backward<MERGE_DEPTH>(p, (int)blockIdx.x);
}

inline int bn_backward_sums_launch(const bn_backward_sums &p, device_stream stream)
{
	return launch(bn_backward_sums_kernel, (unsigned)merge_blocks(p.channels), MERGE_THREADS, MERGE_BYTES, stream, p);
}

#endif
