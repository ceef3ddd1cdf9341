/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation between the passes over a map: from a pass's partial sums to the few numbers that the next one needs. These kernels are
 * short, so that what a launch takes counts: each does all that is due at its place in a step. */
#ifndef CUDA_BN_MERGE_H
#define CUDA_BN_MERGE_H

#include "bn_channel.h"
#include "gate.h"

enum { BN_THREADS = 128, MERGE_THREADS = 512, MERGE_CHANNELS = 16 /* 64 bytes of a part's row */, MERGE_ROWS = MERGE_THREADS / MERGE_CHANNELS, MERGE_COLUMNS = 2 * MERGE_CHANNELS,
       MERGE_GROUPS = 8, MERGE_BYTES = (MERGE_ROWS + MERGE_GROUPS) * MERGE_COLUMNS * 8, MERGE_DEPTH = 16 /* parts that a thread waits for at once */ };

/* There are up to SUM_BLOCKS parts, and a thread a channel would wait for one load after the other, a hundred microseconds for each of a DenseNet-121's merges. Block
 * `block` merges MERGE_CHANNELS channels: thread row r adds parts r, r + MERGE_ROWS, …, then rows are added in their order, by groups and the groups. True where *channel's
 * sums are there. */
template <int depth> DEVICE bool merge_parts(const float *partial, int parts, int stride, int channels, int block, int *channel, double (&sum)[2])
{
	double *rows = (double *)shared_memory(), *groups = rows + MERGE_ROWS * MERGE_COLUMNS; /* [MERGE_ROWS], [MERGE_GROUPS] of [2][MERGE_CHANNELS] */
	const int t = (int)threadIdx.x, column = t % MERGE_CHANNELS, row = t / MERGE_CHANNELS, c = block * MERGE_CHANNELS + column;
	sum[0] = sum[1] = 0;
	if (c < channels)
		SERIAL for (int first = row; first < parts; first += depth * MERGE_ROWS) {
			float value[depth][2];
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					value[i][which] = first + i * MERGE_ROWS < parts ? partial[((size_t)(first + i * MERGE_ROWS) * 2 + (size_t)which) * (size_t)stride + (size_t)c] : 0;
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					sum[which] += value[i][which];
		}
	UNROLL for (int which = 0; which < 2; which++)
		rows[row * MERGE_COLUMNS + which * MERGE_CHANNELS + column] = sum[which];
	sync_block();
	if (t < MERGE_GROUPS * MERGE_COLUMNS) {
		double total = 0;
		UNROLL for (int i = 0; i < MERGE_ROWS / MERGE_GROUPS; i++)
			total += rows[(t / MERGE_COLUMNS * (MERGE_ROWS / MERGE_GROUPS) + i) * MERGE_COLUMNS + t % MERGE_COLUMNS];
		groups[t] = total;
	}
	sync_block();
	if (t >= MERGE_CHANNELS || c >= channels)
		return false;
	sum[0] = sum[1] = 0;
	UNROLL for (int g = 0; g < MERGE_GROUPS; g++)
		UNROLL for (int which = 0; which < 2; which++)
			sum[which] += groups[g * MERGE_COLUMNS + which * MERGE_CHANNELS + column];
	*channel = c;
	return true;
}

inline int merge_blocks(int channels)
{
	return (channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
}

/* ---- forward ---- */

KERNEL THREADS(BN_THREADS, 1) bn_scale_kernel(const bn_scale p)
{
	begin_kernel();
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c < p.channels)
		scale_channel(p, c);
}

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
	const gamma_beta of = gamma_beta_of(p.next, p.from + (c < p.channels ? c : 0));
	if (!merge_parts<MERGE_DEPTH>(p.partial, p.parts, p.stride, p.channels, (int)blockIdx.x, &c, sum))
		return;
	scale_merged(p, c, of, sum[0], sum[1], true);
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

template <int depth> DEVICE void merge_backward(const bn_backward_sums &p, int block)
{
	double sum[2];
	int c = block * MERGE_CHANNELS + (int)threadIdx.x % MERGE_CHANNELS;
	const int asked = c < p.channels ? c : block * MERGE_CHANNELS; /* before its sums are there; never what another block writes */
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked], old1 = p.s1 && !p.first ? p.s1[asked] : 0, old2 = p.s1 && !p.first ? p.s2[asked] : 0;
	if (!merge_parts<depth>(p.partial, p.parts, p.channels, p.channels, block, &c, sum))
		return;
	const double beta = sum[0], gamma = sum[1];
	keep_gradients(p, c, beta, gamma);
	if (!p.s1) {
		const channel_coefficients of = private_coefficients(p.share, gamma_of, mean, rstd, beta, gamma);
		p.a[c] = of.a;
		p.b[c] = of.b;
		p.c[c] = of.c;
		return;
	}
	const float s1 = old1 + gamma_of * (float)beta, s2 = old2 + gamma_of * (float)gamma;
	p.s1[c] = s1;
	p.s2[c] = s2;
	if (c >= p.from && c < p.from + p.due) {
		const double slope = (double)rstd * s2 * p.share;
		p.a[c - p.from] = rstd;
		p.b[c - p.from] = (float)(-rstd * slope);
		p.c[c - p.from] = (float)(rstd * (slope * mean - s1 * p.share));
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
