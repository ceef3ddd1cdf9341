/* SPDX-License-Identifier: Apache-2.0
 * The last BN and ReLU, the mean over pixels, the classifier and the loss. Small: plain loops in a fixed order. */
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/reference/fp32.h"

int cpu_head_open(struct cpu_engine *e, const struct net_layer *pool, const struct net_layer *linear)
{
	struct head *h = &e->head;
	size_t n = (size_t)e->base.conf.batch;
	h->features = linear->c_in;
	h->pixels = pool->h_in * pool->h_in;
	h->weight = linear->weight;
	h->bias = linear->bias;
	if (!(h->pooled = cpu_alloc(e, n * (size_t)h->features, sizeof(float))) || !(h->dpooled = cpu_alloc(e, n * (size_t)h->features, sizeof(float))) ||
	    !(h->logits = cpu_alloc(e, n * (size_t)linear->c_out, sizeof(float))) || !(h->dlogits = cpu_alloc(e, n * (size_t)linear->c_out, sizeof(float))))
		return -e->base.error->code;
	cpu_need_scratch(e, (size_t)h->pixels * (size_t)round_up(h->features, LANES));
	return 0;
}

static void copy_features(const struct cpu_engine *e, const struct joint *b, int image, float *packed, float *features)
{
	int pixels = e->head.pixels;
	e->kernels->at[e->storage].pack_bn(pixels, b->channels, acts_at(e, b->x, (size_t)image * (size_t)pixels), b->x.stride, &b->bn->v, packed,
	                                   pixels * LANES);
	for (int c = 0; c < b->channels; c++)
		for (int p = 0; p < pixels; p++)
			features[c * pixels + p] = packed[(c / LANES * pixels + p) * LANES + c % LANES];
}

struct forward {
	struct cpu_engine *e;
	float *features;
};

static void forward_image(void *context, int n, int worker)
{
	const struct forward *j = context;
	struct cpu_engine *e = j->e;
	struct head *h = &e->head;
	const struct joint *b = &e->last;
	int classes = e->base.conf.plan->classes;
	const float *w = e->params + param_offset(e, h->weight), *bias = e->params + param_offset(e, h->bias);
	float *pooled = h->pooled + (size_t)n * (size_t)h->features;
	uint64_t t = profile_start(e->profile);
	e->kernels->at[e->storage].average(h->pixels, h->features, acts_at(e, b->x, (size_t)n * (size_t)h->pixels), b->x.stride, &b->bn->v, pooled);
	profile_add(e->profile, worker, WORK_BN, t);
	if (j->features)
		copy_features(e, b, n, e->scratch[worker], j->features + (size_t)n * (size_t)h->features * (size_t)h->pixels);
	for (int o = 0; o < classes; o++) {
		double sum = bias[o];
		for (int c = 0; c < h->features; c++)
			sum += (double)w[(size_t)o * (size_t)h->features + (size_t)c] * pooled[c];
		h->logits[(size_t)n * (size_t)classes + (size_t)o] = (float)sum;
	}
}

void cpu_head_forward(struct cpu_engine *e, float *features)
{
	struct forward job = { e, features };
	cpu_bn_prepare(e, e->last.bn);
	cpu_team_run(e->team, e->count, forward_image, &job);
}

static void classifier_output(void *context, int o, int worker)
{
	struct cpu_engine *e = context;
	struct head *h = &e->head;
	int classes = e->base.conf.plan->classes;
	float *row = e->slab + param_offset(e, h->weight) + (size_t)o * (size_t)h->features, *dbias = e->slab + param_offset(e, h->bias) + o;
	(void)worker;
	if (!e->micro) {
		memset(row, 0, (size_t)h->features * sizeof *row);
		*dbias = 0;
	}
	for (int n = 0; n < e->count; n++) {
		float g = h->dlogits[(size_t)n * (size_t)classes + (size_t)o] / (float)e->micros;
		*dbias += g;
		for (int c = 0; c < h->features; c++)
			row[c] += g * h->pooled[(size_t)n * (size_t)h->features + (size_t)c];
	}
}

static int classifier_gradient(struct cpu_engine *e)
{
	cpu_team_run(e->team, e->base.conf.plan->classes, classifier_output, e);
	int rc = cpu_gradient_written(e, e->head.bias);
	return rc ? rc : cpu_gradient_written(e, e->head.weight);
}

/* G of the last block starts here: every pixel gets 1 / pixels of the pooled gradient. */
static void pooled_part(void *context, int part, int worker)
{
	struct cpu_engine *e = context;
	struct head *h = &e->head;
	const struct joint *b = &e->last;
	int classes = e->base.conf.plan->classes;
	const float *w = e->params + param_offset(e, h->weight);
	float *sum, *dot;
	uint64_t t = profile_start(e->profile);
	cpu_bn_sums(e, part, 0, b->channels, &sum, &dot);
	for (int n = cpu_part_row(e, 1, part); n < cpu_part_row(e, 1, part + 1); n++) {
		float *d = h->dpooled + (size_t)n * (size_t)h->features;
		memset(d, 0, (size_t)h->features * sizeof *d);
		for (int o = 0; o < classes; o++) {
			float g = h->dlogits[(size_t)n * (size_t)classes + (size_t)o] / (float)h->pixels;
			for (int c = 0; c < h->features; c++)
				d[c] += g * w[(size_t)o * (size_t)h->features + (size_t)c];
		}
		size_t pixel = (size_t)n * (size_t)h->pixels;
		e->kernels->at[e->storage].bn_backward(h->pixels, b->channels, d, 0, acts_at(e, b->x, pixel), b->x.stride, &b->bn->v, b->bn->v.gamma, 0,
		                                       grads_at(b->g, pixel), sum, dot, NULL, 0);
	}
	profile_add(e->profile, worker, WORK_BN, t);
}

static int pooled_gradient(struct cpu_engine *e)
{
	const struct joint *b = &e->last;
	cpu_team_run(e->team, cpu_parts(e, 1), pooled_part, e);
	return cpu_bn_finish(e, b->bn, b->statistics, cpu_parts(e, 1));
}

int cpu_head_backward(struct cpu_engine *e)
{
	e->loss = reference_loss_fp32(&e->base.conf, e->batch, e->head.logits, e->head.dlogits);
	int rc = classifier_gradient(e);
	return rc ? rc : pooled_gradient(e);
}
