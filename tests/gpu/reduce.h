/* SPDX-License-Identifier: Apache-2.0
 * Adds the partial sums of a kernel's blocks, always in the order of the blocks. */
#ifndef GPU_REDUCE_H
#define GPU_REDUCE_H

#include "device.h"

struct reduce_partials {
	const float *partial; /* [parts][stride], the first count of each */
	float *out;           /* [count] */
	size_t count, stride;
	int parts;
	float factor;         /* out = factor * sum, plus out's old value where accumulate */
	int accumulate;
};

KERNEL THREADS(256, 1) reduce_partials_kernel(const reduce_partials p)
{
	begin_kernel();
	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (size_t)gridDim.x * blockDim.x) {
		/* four chains hide the latency of the loads; which part goes to which chain is fixed */
		float total[4] = {};
		int part = 0;
		for (; part + 4 <= p.parts; part += 4)
			UNROLL for (int j = 0; j < 4; j++)
				total[j] += p.partial[(size_t)(part + j) * p.stride + i];
		for (; part < p.parts; part++)
			total[0] += p.partial[(size_t)part * p.stride + i];
		const float sum = p.factor * ((total[0] + total[1]) + (total[2] + total[3]));
		p.out[i] = p.accumulate ? p.out[i] + sum : sum;
	}
}

inline int reduce_partials_launch(const reduce_partials &p, device_stream stream)
{
	size_t blocks = (p.count + 255) / 256;
	return launch(reduce_partials_kernel, (unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, stream, p);
}

#endif
