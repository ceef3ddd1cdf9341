/* SPDX-License-Identifier: Apache-2.0
 * A convolution's weight gradient, summed over its parts in a fixed order, from [c_out][taps][c_padded] to the slab's [c_out][c_in][taps]; and, in
 * the same launch, the sums of the normalisation that the same pass gathered. */
#ifndef CUDA_WEIGHT_GRADIENT_H
#define CUDA_WEIGHT_GRADIENT_H

#include "bn_merge.h"

enum { WEIGHT_THREADS = 256, WEIGHT_VECTOR = 4, MERGE_WEIGHTS = 32 * WEIGHT_VECTOR };

struct weight_gradient {
	const float *partial; /* [parts][c_out][taps][c_padded] */
	float *out;
	const float *unscale;  /* 1 / loss scale; NULL: 1 */
	float factor;
	int c_out, c_in, c_padded, taps, parts, accumulate;

	HD int count() const
	{
		return c_out * taps * c_padded;
	}
	/* The sum of all parts at place i. */
	DEVICE void put(int i, float sum) const
	{
		const int c = i % c_padded, tap = i / c_padded % taps, to = (i / c_padded / taps * c_in + c) * taps + tap;
		if (c < c_in)
			out[to] = (accumulate ? out[to] : 0) + factor * (unscale ? *unscale : 1) * sum;
	}
};

/* Of one part: a thread a weight. */
KERNEL THREADS(WEIGHT_THREADS, 1) weight_gradient_kernel(const weight_gradient p)
{
	begin_kernel();
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < p.count())
		p.put(i, p.partial[i]);
}

/* Of many: block `block` has MERGE_WEIGHTS of them. As merge_parts() does, warp w adds parts w, w + MERGE_WARPS, …, and the warps' sums are added
 * in their order. */
DEVICE void merge_weights(const weight_gradient &p, int block)
{
	float *shared = (float *)shared_memory(); /* [MERGE_WARPS][MERGE_WEIGHTS] */
	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, i = block * MERGE_WEIGHTS + lane * WEIGHT_VECTOR;
	float sum[WEIGHT_VECTOR] = {};
	if (i < p.count())
		UNROLL_FOUR for (int part = warp; part < p.parts; part += MERGE_WARPS) {
			const vector16 v = *(const vector16 *)(p.partial + (size_t)part * (size_t)p.count() + (size_t)i);
			UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
				sum[j] += bits_float(v.word[j]);
		}
	UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
		shared[warp * MERGE_WEIGHTS + lane * WEIGHT_VECTOR + j] = sum[j];
	sync_block();
	if (t >= MERGE_WEIGHTS || block * MERGE_WEIGHTS + t >= p.count())
		return;
	float total = shared[t];
	for (int w = 1; w < MERGE_WARPS; w++)
		total += shared[w * MERGE_WEIGHTS + t];
	p.put(block * MERGE_WEIGHTS + t, total);
}

KERNEL THREADS(MERGE_THREADS, 1) merge_weights_kernel(const weight_gradient p)
{
	begin_kernel();
	merge_weights(p, (int)blockIdx.x);
}

inline int weight_blocks(const weight_gradient &p)
{
	return (p.count() + MERGE_WEIGHTS - 1) / MERGE_WEIGHTS;
}

inline int weight_gradient_launch(const weight_gradient &p, device_stream stream)
{
	if (p.parts == 1)
		return launch(weight_gradient_kernel, (unsigned)(p.count() + WEIGHT_THREADS - 1) / WEIGHT_THREADS, WEIGHT_THREADS, 0, stream, p);
	return launch(merge_weights_kernel, (unsigned)weight_blocks(p), MERGE_THREADS, MERGE_BYTES, stream, p);
}

/* All that a fused layer leaves: one weight's gradient or two (the second has no parts), and a normalisation's sums. */
struct layer_sums {
	weight_gradient weight[2];
	bn_backward_sums bn;
	int first, both; /* blocks of the first weight, of both */
};

KERNEL THREADS(MERGE_THREADS, 3) layer_sums_kernel(const layer_sums p)
{
	begin_kernel();
	const int block = (int)blockIdx.x;
	if (block >= p.both)
		merge_backward<2>(p.bn, block - p.both); /* the weights take longer, and want three blocks a multiprocessor, of which sm_75 has no more than two */
	else if (block >= p.first)
		merge_weights(p.weight[1], block - p.first);
	else
		merge_weights(p.weight[0], block);
}

inline int layer_sums_launch(const weight_gradient &weight, const weight_gradient &second, const bn_backward_sums &bn, device_stream stream)
{
	const int first = weight_blocks(weight), both = first + (second.parts ? weight_blocks(second) : 0);
	return launch(layer_sums_kernel, (unsigned)(both + merge_blocks(bn.channels)), MERGE_THREADS, MERGE_BYTES, stream, layer_sums{ { weight, second }, bn, first, both });
}

static_assert(MERGE_BYTES == MERGE_WARPS * MERGE_WEIGHTS * sizeof(float), "both kinds of blocks ask for the same shared memory");

#endif
