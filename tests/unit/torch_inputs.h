/* SPDX-License-Identifier: Apache-2.0
 * Weights and images on which an engine and PyTorch compute the same. They come from integer arithmetic and square roots, which are the same on every
 * machine. */
#ifndef TESTS_TORCH_INPUTS_H
#define TESTS_TORCH_INPUTS_H

#include <math.h>

#include "data/random.h"
#include "net/plan.h"

/* Uniform in ±width: no function whose last bit a library may round its own way. */
static inline float spread(uint64_t key, size_t i, double width)
{
	return (float)(width * ((double)(mix64(key ^ i) >> 11) * 0x1p-52 - 1));
}

/* params: [n_weights], table order. */
static inline void torch_params(const struct net_plan *plan, float *params)
{
	for (int p = 0; p < plan->n_params; p++) {
		const struct net_param *param = &plan->params[p];
		double fan_in = param->ndim > 1 ? (double)param->count / param->shape[0] : 1;

		for (size_t i = 0; i < param->count; i++) {
			float *w = &params[param->offset + i];

			switch (param->kind) {
			case PARAM_CONV_WEIGHT: /* He's variance */
				*w = spread(mix64((uint64_t)p), i, sqrt(6 / fan_in));
				break;
			case PARAM_BN_WEIGHT:
				*w = 1 + spread(mix64((uint64_t)p), i, 0.25);
				break;
			default:
				*w = spread(mix64((uint64_t)p), i, 1 / sqrt(fan_in) / 4);
			}
		}
	}
}

/* `pixels` random bytes, never of one value; labels: [images], bit c: class c, a quarter of them. */
static inline void torch_images(uint8_t *bytes, size_t pixels, int32_t *labels, int images, int classes)
{
	for (size_t i = 0; i < pixels; i++)
		bytes[i] = (uint8_t)mix64(~i);
	for (int i = 0; i < images; i++)
		labels[i] = (int32_t)(mix64(~(uint64_t)i << 32) & mix64((uint64_t)i << 32) & ((1u << classes) - 1));
}

#endif
