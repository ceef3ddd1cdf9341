/* SPDX-License-Identifier: Apache-2.0
 * Initial weights. A value depends on (seed, parameter, index) only. */
#include <math.h>

#include "net/plan.h"

static uint64_t mix(uint64_t x) /* splitmix64's finaliser */
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static double uniform(uint64_t key, uint64_t i) /* (0, 1) */
{
	return ((double)(mix(key ^ mix(i)) >> 11) + 0.5) * 0x1p-53;
}

/* Box-Muller: an even index takes the cosine, the next one the sine of the same pair. */
static double normal(uint64_t key, uint64_t i)
{
	double radius = sqrt(-2 * log(uniform(key, i & ~(uint64_t)1)));
	double angle = 2 * M_PI * uniform(key, i | 1);
	return radius * (i & 1 ? sin(angle) : cos(angle));
}

/* A class without positives (or negatives) among the training images must not start at minus (plus) infinity. */
static double logit(double prevalence)
{
	double p = fmin(fmax(prevalence, 1e-4), 1 - 1e-4);
	return log(p / (1 - p));
}

static void init_param(const struct net_param *p, enum net_family family, uint64_t key, const double *prevalence, float *w)
{
	double fan_in = p->ndim > 1 ? (double)p->count / p->shape[0] : 1;
	double fan = family == NET_RESNET && p->ndim > 1 ? (double)p->count / p->shape[1] : fan_in;
	for (size_t i = 0; i < p->count; i++) {
		switch (p->kind) {
		case PARAM_CONV_WEIGHT:
			w[i] = (float)(sqrt(2 / fan) * normal(key, i));
			break;
		case PARAM_BN_WEIGHT:
			w[i] = 1;
			break;
		case PARAM_BN_BIAS:
			w[i] = 0;
			break;
		case PARAM_LINEAR_WEIGHT:
			w[i] = (float)((2 * uniform(key, i) - 1) / sqrt(fan_in));
			break;
		case PARAM_LINEAR_BIAS:
			w[i] = prevalence ? (float)logit(prevalence[i]) : 0;
			break;
		}
	}
}

void net_init(const struct net_plan *plan, uint64_t seed, const double *prevalence, float *weights)
{
#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < plan->n_params; i++)
		init_param(&plan->params[i], plan->family, mix(mix(seed) + (uint64_t)i), prevalence, weights + plan->params[i].offset);
}
