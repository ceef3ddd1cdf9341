/* SPDX-License-Identifier: Apache-2.0
 * A convolution's weight gradient, summed over its parts in a fixed order, from [c_out][taps][c_padded] to the slab's [c_out][c_in][taps]; and, in
 * the same launch, the sums of the normalisation that the same pass gathered. */
#ifndef CUDA_WEIGHT_GRADIENT_H
#define CUDA_WEIGHT_GRADIENT_H

#include "bn_merge.h"

enum { WEIGHT_THREADS = 256 };

/* Of one part: a thread a weight. */
KERNEL THREADS(WEIGHT_THREADS, 1) weight_gradient_kernel(const weight_gradient p)
{
	begin_kernel();
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < p.count())
		p.put(i, p.partial[i]);
}

KERNEL THREADS(MERGE_THREADS, 1) merge_weights_kernel(const weight_gradient p)
{
	begin_kernel();
	merge_weights<MERGE_THREADS>(p, (int)blockIdx.x);
}

inline int weight_gradient_launch(const weight_gradient &p, device_stream stream)
{
	if (p.parts == 1)
		return launch(weight_gradient_kernel, (unsigned)(p.count() + WEIGHT_THREADS - 1) / WEIGHT_THREADS, WEIGHT_THREADS, 0, stream, p);
	return launch(merge_weights_kernel, (unsigned)weight_blocks(p), MERGE_THREADS, LAYER_BYTES, stream, p);
}

KERNEL THREADS(MERGE_THREADS, 2) layer_sums_kernel(const layer_sums p)
{
	begin_kernel();
	merge_layer<MERGE_THREADS>(p, (int)blockIdx.x);
}

inline int layer_sums_launch(const layer_sums &p, device_stream stream)
{
	return launch(layer_sums_kernel, (unsigned)p.blocks, MERGE_THREADS, LAYER_BYTES, stream, p);
}

#endif
