/* SPDX-License-Identifier: Apache-2.0
 * The optimiser as one launch over all parameters, and the weights in the engine's own order and precision. */
#ifndef CUDA_UPDATE_H
#define CUDA_UPDATE_H

#include "device.h"
#include "gate.h"

/* A parameter in the padded order that gradients, moments and masters share. */
struct weight_group {
	uint32_t offset, count;  /* floats, in the padded order */
	uint32_t copy;           /* first element of its copy; NO_COPY: none */
	uint16_t c_in, c_padded; /* copies of convolutions are [c_out][taps][c_padded], masters [c_out][c_in][taps] */
	uint16_t taps;
	uint16_t decays;         /* takes part in weight decay */
};

enum { UPDATE_THREADS = 256 };
enum : uint32_t { NO_COPY = 0xffffffffu };

/* What changes from step to step; lives in device memory, so that a captured graph reads it anew. */
struct update_step {
	float rate;
	float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
	float gradient_factor;   /* 1 / loss scale where gradients were not unscaled before */
};

struct update {
	float *weights, *moment1, *moment2; /* padded order */
	const float *gradients;
	const weight_group *groups;
	const uint32_t *block_group, *block_first; /* per block: its group, and its first element in it */
	const update_step *step;
	const step_gate *gate;              /* NULL: nothing forbids the update */
	void *copy;                         /* T */
	float beta1, beta2, epsilon, weight_decay;
	int sgd;                            /* momentum beta1, no second moment */
	int copy_only;                      /* weights were put by hand: only make the copy */
};

DEVICE float updated_weight(const update &p, const update_step &step, size_t i, int decays)
{
	float weight = p.weights[i];
	const float gradient = fmaf(decays ? p.weight_decay : 0, weight, step.gradient_factor * p.gradients[i]);
	if (p.sgd) {
		p.moment1[i] = fmaf(p.beta1, p.moment1[i], gradient);
		return fmaf(-step.rate, p.moment1[i], weight);
	}
	const float m = fmaf(p.beta1, p.moment1[i], (1 - p.beta1) * gradient);
	const float v = fmaf(p.beta2, p.moment2[i], (1 - p.beta2) * gradient * gradient);
	p.moment1[i] = m;
	p.moment2[i] = v;
	return weight - step.rate * (m / step.correction1) / (sqrtf(v / step.correction2) + p.epsilon);
}

template <class T> KERNEL THREADS(UPDATE_THREADS, 1) update_kernel(const update p)
{
	begin_kernel();
	if (p.gate && p.gate->closed)
		return;
	const weight_group group = p.groups[p.block_group[blockIdx.x]];
	const uint32_t j = p.block_first[blockIdx.x] + threadIdx.x;
	if (j >= group.count)
		return;
	const size_t i = (size_t)group.offset + j;
	float weight = p.weights[i];
	if (!p.copy_only) {
		weight = updated_weight(p, *p.step, i, group.decays);
		p.weights[i] = weight;
	}
	if (group.copy != NO_COPY) {
		const uint32_t row = (uint32_t)group.c_in * group.taps, out = j / row, c = j % row / group.taps, tap = j % group.taps;
		((T *)p.copy)[group.copy + (out * group.taps + tap) * group.c_padded + c] = from_float<T>(weight);
	}
}

#endif
