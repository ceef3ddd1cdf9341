/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation between the passes over a map: from a pass's partial sums to the few numbers that the next one needs. These kernels are
 * short, so that what a launch takes counts: each does all that is due at its place in a step. */
#ifndef CUDA_BN_MERGE_H
#define CUDA_BN_MERGE_H

#include "gate.h"
#include "layer_merge.h"

enum { BN_THREADS = 128, MERGE_DEPTH = 16 /* parts of a row that a thread waits for at once */ };

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
	if (!merge_parts<MERGE_DEPTH, MERGE_THREADS, MERGE_CHANNELS>(p.partial, p.parts, p.stride, (int)blockIdx.x * MERGE_CHANNELS, p.channels, shared_memory(), &c, sum))
		return;
	scale_merged(p, c, of, sum[0], sum[1], true);
}

inline int bn_statistics_launch(const bn_statistics &p, device_stream stream)
{
	const int others = p.next.channels - p.channels;
	return launch(bn_statistics_kernel, (unsigned)(merge_blocks(p.channels) + (others + MERGE_THREADS - 1) / MERGE_THREADS), MERGE_THREADS, LAYER_BYTES, stream, p);
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

KERNEL THREADS(MERGE_THREADS, 1) bn_backward_sums_kernel(const bn_backward_sums p)
{
	begin_kernel();
	merge_backward<MERGE_DEPTH, MERGE_THREADS>(p, (int)blockIdx.x);
}

inline int bn_backward_sums_launch(const bn_backward_sums &p, device_stream stream)
{
	return launch(bn_backward_sums_kernel, (unsigned)merge_blocks(p.channels), MERGE_THREADS, LAYER_BYTES, stream, p);
}

#endif
