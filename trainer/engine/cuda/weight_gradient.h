/* SPDX-License-Identifier: Apache-2.0
 * A convolution's weight gradient, summed over its parts in a fixed order, from [c_out][taps][c_padded] to the slab's [c_out][c_in][taps]; and, in
 * the same launch, the sums of the normalisation that the same pass gathered. */
#ifndef CUDA_WEIGHT_GRADIENT_H
#define CUDA_WEIGHT_GRADIENT_H

#include "bn_merge.h"
#include "tile.h"

enum { WEIGHT_THREADS = 256, WEIGHT_VECTOR = 4, MERGE_WARPS = MERGE_THREADS / 32, MERGE_WEIGHTS = 32 * WEIGHT_VECTOR, WEIGHT_DEPTH = 9 /* parts that a thread waits for at once */, LAYER_DEPTH = 5 /* the same of a normalisation: 160 in all, and no more registers than two blocks a multiprocessor leave */ };

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
		unsigned to = (unsigned)i; /* divisions take longer than all the rest of a short kernel */
		if (taps > 1 || c_padded > c_in) {
			const unsigned line = to / (unsigned)c_padded, c = to - line * (unsigned)c_padded, row = line / (unsigned)taps, tap = line - row * (unsigned)taps;
			if (c >= (unsigned)c_in)
				return;
			to = (row * (unsigned)c_in + c) * (unsigned)taps + tap;
		}
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

/* Of many: MERGE_WEIGHTS of them are added by merge_team() warps, warp w of those parts w, w + team, …, and the warps' sums in their order. There are as many in a team
 * as give a thread no more than it waits for at once: a quarter of a block that does four times the weights takes no longer. */
HD int merge_team(int parts)
{
	int team = 1;
	while (team < MERGE_WARPS && team * WEIGHT_DEPTH < parts)
		team *= 2;
	return team;
}

HD int block_weights(int parts)
{
	return MERGE_WEIGHTS * (MERGE_WARPS / merge_team(parts));
}

/* Block `block` has block_weights(). */
DEVICE void merge_weights(const weight_gradient &p, int block)
{
	float *shared = (float *)shared_memory(); /* [MERGE_WARPS][MERGE_WEIGHTS] */
	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, team = merge_team(p.parts), first = block * block_weights(p.parts), count = p.count();
	const int i = first + warp / team * MERGE_WEIGHTS + lane * WEIGHT_VECTOR;
	float sum[WEIGHT_VECTOR] = {};
	if (i < count)
		SERIAL for (int part = warp % team; part < p.parts; part += team * WEIGHT_DEPTH) {
			vector16 v[WEIGHT_DEPTH];
			UNROLL for (int k = 0; k < WEIGHT_DEPTH; k++)
				v[k] = read_or_zeros(p.partial + (size_t)(part + k * team) * (size_t)count + (size_t)i, part + k * team < p.parts);
			UNROLL for (int k = 0; k < WEIGHT_DEPTH; k++)
				UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
					sum[j] += bits_float(v[k].word[j]);
		}
	UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
		shared[warp * MERGE_WEIGHTS + lane * WEIGHT_VECTOR + j] = sum[j];
	sync_block();
	SERIAL for (int to = t; to < block_weights(p.parts) && first + to < count; to += MERGE_THREADS) {
		const float *from = shared + to / MERGE_WEIGHTS * team * MERGE_WEIGHTS + to % MERGE_WEIGHTS;
		float total = from[0];
		for (int w = 1; w < team; w++)
			total += from[w * MERGE_WEIGHTS];
		p.put(first + to, total);
	}
}

KERNEL THREADS(MERGE_THREADS, 1) merge_weights_kernel(const weight_gradient p)
{
	begin_kernel();
	merge_weights(p, (int)blockIdx.x);
}

inline int weight_blocks(const weight_gradient &p)
{
	return (p.count() + block_weights(p.parts) - 1) / block_weights(p.parts);
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

KERNEL THREADS(MERGE_THREADS, 2) layer_sums_kernel(const layer_sums p)
{
	begin_kernel();
	const int block = (int)blockIdx.x;
	if (block >= p.both)
		merge_backward<LAYER_DEPTH>(p.bn, block - p.both);
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

static_assert(MERGE_BYTES >= MERGE_WARPS * MERGE_WEIGHTS * sizeof(float), "both kinds of blocks ask for the same shared memory");

#endif
