/* SPDX-License-Identifier: Apache-2.0
 * fp16 holds neither large nor small gradients, so the loss is multiplied before the backward pass and gradients are divided on their
 * way into the slab. A dynamic factor is halved after an overflow and doubled after many steps without one; the step that
 * overflowed is skipped. All of that happens on the device: the state lives there, and a captured graph reads it anew.
 *
 * The slab is searched after the all-reduce: a value that is not finite on one rank makes the mean not finite on all, so
 * that all skip the same step and keep the same factor. */
#ifndef CUDA_LOSS_SCALE_H
#define CUDA_LOSS_SCALE_H

#include "update.h"
#include "vector.h"

struct loss_scale {
	float scale, unscale;    /* unscale = 1 / scale */
	uint32_t good;           /* steps in a row without an overflow since the factor last changed */
	int overflow;            /* found in this step's gradients */
	uint32_t patience;       /* steps without an overflow after which the factor is doubled */
	uint64_t steps, skipped; /* of the optimiser: made, and skipped */
};

/* Halving ends and doubling ends here: far beyond what fp16 can use, and the factor stays a power of two, or what the user began with. */
static const float least_loss_scale = 0x1p-24f, most_loss_scale = 0x1p24f;

struct find_overflow {
	const float *gradients; /* [count], a multiple of 8 */
	size_t count;
	loss_scale *state;
};

enum { OVERFLOW_THREADS = 256, SETTLE_THREADS = 32 };

/* Whoever finds one writes the same word, so their order does not matter. */
KERNEL THREADS(OVERFLOW_THREADS, 1) find_overflow_kernel(const find_overflow p)
{
	begin_kernel();
	const uint32_t exponent = 0x7f800000;
	bool found = false;
	for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < p.count; i += (size_t)gridDim.x * blockDim.x * 8) {
		const octet v = load8(p.gradients + i);
		UNROLL for (int j = 0; j < 8; j++)
			found |= (float_bits(v.v[j]) & exponent) == exponent;
	}
	if (found)
		p.state->overflow = 1;
}

inline int find_overflow_launch(const find_overflow &p, int sms, device_stream stream)
{
	const size_t wanted = (p.count / 8 + OVERFLOW_THREADS - 1) / OVERFLOW_THREADS, most = (size_t)(8 * sms);
	return launch(find_overflow_kernel, (unsigned)(wanted < most ? wanted : most), OVERFLOW_THREADS, 0, stream, p);
}

struct settle_step {
	step_gate *gate;           /* is closed or opened */
	const volatile int *stop;  /* mapped host memory: non-zero forbids the step; NULL: none */
	loss_scale *state;         /* NULL: the factor does not change */
	update_step *step;         /* gets the corrections of the step that is to be made, where the factor changes */
	double beta1, beta2;
};

/* The factor of the next step, and whether this one overflowed. */
DEVICE bool settle_scale(const settle_step &p)
{
	loss_scale s = *p.state;
	const bool overflowed = s.overflow;
	s.overflow = 0;
	if (overflowed) {
		s.skipped++;
		s.good = 0;
		s.scale = s.scale > 2 * least_loss_scale ? s.scale / 2 : least_loss_scale;
	} else {
		s.steps++;
		if (++s.good == s.patience) {
			s.good = 0;
			s.scale = s.scale < most_loss_scale / 2 ? 2 * s.scale : most_loss_scale;
		}
		p.step->correction1 = (float)(1 - pow(p.beta1, (double)s.steps));
		p.step->correction2 = (float)(1 - pow(p.beta2, (double)s.steps));
	}
	s.unscale = 1 / s.scale;
	*p.state = s;
	return overflowed;
}

/* One thread: whether this step is made, Adam's corrections for it, and the factor of the next step. */
KERNEL THREADS(SETTLE_THREADS, 1) settle_step_kernel(const settle_step p)
{
	begin_kernel();
	if (threadIdx.x)
		return;
	if (p.stop && *p.stop) { /* this step's gradients say nothing */
		p.gate->closed = 1;
		if (p.state)
			p.state->overflow = 0;
		return;
	}
	p.gate->closed = p.state && settle_scale(p);
	p.gate->passed++;
}

#endif
