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

enum { UPDATE_THREADS = 256, UPDATE_BLOCK = 4 * UPDATE_THREADS /* parameters of a block */ };
enum : uint32_t { NO_COPY = 0xffffffffu };

/* What changes from step to step; lives in device memory, so that a captured graph reads it anew. */
struct update_step {
	float rate;
	float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
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

/* As many in a row are a thread's: 16 bytes at a time, which a group's offset, its room and its copy's place allow (layout.c: whole vectors). */
struct alignas(16) four_floats {
	float v[4];
};
template <class T> struct alignas(4 * sizeof(T)) four_copies {
	T v[4];
};

DEVICE void store4(float *to, const four_floats &x, uint32_t count)
{
	if (count >= 4)
		*(four_floats *)to = x;
	else
		UNROLL for (uint32_t i = 0; i < 3; i++)
			if (i < count)
				to[i] = x.v[i];
}

DEVICE float updated_weight(const update &p, const update_step &step, int decays, float weight, float slab_gradient, float &moment1, float &moment2)
{
	const float gradient = fmaf(decays ? p.weight_decay : 0, weight, slab_gradient);
	if (p.sgd) {
		moment1 = fmaf(p.beta1, moment1, gradient);
		return fmaf(-step.rate, moment1, weight);
	}
	moment1 = fmaf(p.beta1, moment1, (1 - p.beta1) * gradient);
	moment2 = fmaf(p.beta2, moment2, (1 - p.beta2) * gradient * gradient);
	return weight - step.rate * (moment1 / step.correction1) / (sqrtf(moment2 / step.correction2) + p.epsilon);
}

template <class T> DEVICE void store_copy(T *copy, const weight_group &group, uint32_t j, const four_floats &weights, uint32_t count)
{
	const uint32_t taps = group.taps, row = group.c_in * taps;
	if (taps == 1 && group.c_in == group.c_padded && count >= 4) { /* the same order */
		*(four_copies<T> *)(copy + j) = { { from_float<T>(weights.v[0]), from_float<T>(weights.v[1]), from_float<T>(weights.v[2]), from_float<T>(weights.v[3]) } };
		return;
	}
	uint32_t out = j / row, c = (j - out * row) / taps, tap = j - out * row - c * taps;
	UNROLL for (uint32_t i = 0; i < 4; i++) {
		if (i < count)
			copy[(out * taps + tap) * group.c_padded + c] = from_float<T>(weights.v[i]);
		if (++tap < taps)
			continue;
		tap = 0;
		if (++c < group.c_in)
			continue;
		c = 0;
		out++;
	}
}

template <class T> KERNEL THREADS(UPDATE_THREADS, 1) update_kernel(const update p)
{
	begin_kernel();
	const update_step step = *p.step;
	const uint32_t closed = p.gate ? p.gate->closed : 0; /* looked at when the group is there, too */
	const weight_group group = p.groups[p.block_group[blockIdx.x]];
	const uint32_t j = p.block_first[blockIdx.x] + threadIdx.x * 4;
	if (closed || j >= group.count)
		return;
	const uint32_t count = group.count - j;
	const size_t i = (size_t)group.offset + j;
	four_floats weights = *(const four_floats *)(p.weights + i);
	if (!p.copy_only) {
		const four_floats gradients = *(const four_floats *)(p.gradients + i);
		four_floats moment1 = *(const four_floats *)(p.moment1 + i), moment2 = {};
		if (!p.sgd)
			moment2 = *(const four_floats *)(p.moment2 + i);
		UNROLL for (int k = 0; k < 4; k++)
			weights.v[k] = updated_weight(p, step, group.decays, weights.v[k], gradients.v[k], moment1.v[k], moment2.v[k]);
		store4(p.weights + i, weights, count);
		store4(p.moment1 + i, moment1, count);
		if (!p.sgd)
			store4(p.moment2 + i, moment2, count);
	}
	if (group.copy != NO_COPY)
		store_copy((T *)p.copy + group.copy, group, j, weights, count);
}

#endif
