/* SPDX-License-Identifier: Apache-2.0
 * Dense blocks and transitions: reads them from the plan, and runs them forward and backward. */
#include <string.h>

#include "engine/cpu/cpu.h"

/* Walks the plan; a layer that does not fit stops it. */
struct walk {
	struct cpu_engine *e;
	int next;
};

static const struct net_layer *take(struct walk *w, enum layer_op op)
{
	const struct net_plan *plan = w->e->base.conf.plan;
	if (w->next < plan->n_layers && plan->layers[w->next].op == op)
		return &plan->layers[w->next++];
	fail(w->e->base.error, EXIT_USAGE, "the CPU engine cannot run %s: layer %d (%s) is not what a DenseNet has there", plan->model, w->next,
	     w->next < plan->n_layers ? plan->layers[w->next].name : "none");
	return NULL;
}

static int open_layer(struct walk *w, struct block *b, struct dense_layer *d)
{
	struct cpu_engine *e = w->e;
	int first = w->next;
	const struct net_layer *bn1 = take(w, OP_BN_RELU), *conv1 = bn1 ? take(w, OP_CONV) : NULL, *bn2 = conv1 ? take(w, OP_BN_RELU) : NULL;
	const struct net_layer *conv2 = bn2 ? take(w, OP_CONV) : NULL;
	if (!conv2 || !take(w, OP_CONCAT))
		return -e->base.error->code;
	d->middle.stride = round_up(conv1->c_out, LANES);
	size_t pixels = (size_t)e->base.conf.batch * (size_t)(b->h * b->h);
	if (!(d->middle.data = cpu_alloc(e, pixels * (size_t)d->middle.stride, storage_size(e->storage))) ||
	    cpu_statistics_alloc(e, &d->statistics, conv1->c_out) || cpu_bn_open(e, &d->bn1, bn1, &b->statistics) ||
	    cpu_conv_open(e, &d->conv1, conv1, 1) || cpu_bn_open(e, &d->bn2, bn2, &d->statistics) || cpu_conv_open(e, &d->conv2, conv2, 1))
		return -e->base.error->code;
	cpu_need_scratch(e, cpu_conv1_scratch(&d->conv1));
	cpu_need_scratch(e, cpu_conv3_scratch(&d->conv2));
	e->taps[first + 1] = (struct tap){ b->x, &d->bn1 };
	e->taps[first + 2] = (struct tap){ d->middle, NULL };
	e->taps[first + 3] = (struct tap){ d->middle, &d->bn2 };
	e->taps[first + 4] = (struct tap){ acts_slice(e, b->x, bn1->c_in), NULL };
	e->taps[first + 5] = (struct tap){ b->x, NULL };
	return 0;
}

static int open_transition(struct walk *w, struct block *b)
{
	struct cpu_engine *e = w->e;
	int first = w->next;
	const struct net_layer *bn = take(w, OP_BN_RELU), *conv = bn ? take(w, OP_CONV) : NULL, *pool = conv ? take(w, OP_AVGPOOL) : NULL;
	if (!pool || cpu_bn_open(e, &b->out_bn, bn, &b->statistics) || cpu_conv_open(e, &b->transition, conv, 1))
		return -e->base.error->code;
	b->transition.pool = 1;
	b->transition.h_out = pool->h_out;
	cpu_need_scratch(e, cpu_conv1_scratch(&b->transition));
	e->taps[first + 1] = (struct tap){ b->x, &b->out_bn };
	e->taps[first + 3] = (struct tap){ b[1].x, NULL };
	return 0;
}

static int open_block(struct walk *w, struct block *b, int layers, int channels, int h)
{
	struct cpu_engine *e = w->e;
	b->layers = layers;
	b->channels_in = channels;
	b->channels = channels + layers * e->base.conf.plan->growth;
	b->h = h;
	b->x.stride = b->channels;
	b->g = (struct grads){ NULL, b->channels, LANES };
	size_t pixels = (size_t)e->base.conf.batch * (size_t)(h * h);
	if (!(b->x.data = cpu_alloc(e, pixels * (size_t)b->channels, storage_size(e->storage))) ||
	    !(b->g.data = cpu_alloc(e, pixels * (size_t)b->channels, sizeof(float))) || cpu_statistics_alloc(e, &b->statistics, b->channels) ||
	    !(b->layer = cpu_alloc(e, (size_t)layers, sizeof *b->layer)))
		return -e->base.error->code;
	return 0;
}

int cpu_dense_open(struct cpu_engine *e)
{
	const struct net_plan *plan = e->base.conf.plan;
	struct walk w = { e, 0 };
	const struct net_layer *conv0 = take(&w, OP_CONV), *bn0 = conv0 ? take(&w, OP_BN_RELU) : NULL, *pool0 = bn0 ? take(&w, OP_MAXPOOL) : NULL;
	if (!pool0)
		return -e->base.error->code;
	if (conv0->k != 7 || conv0->stride != 2 || pool0->k != 3 || pool0->stride != 2 || cpu_stem_open(e))
		return fail(e->base.error, EXIT_USAGE, "the CPU engine cannot run the first layers of %s", plan->model);
	int channels = pool0->c_out, h = pool0->h_out;
	size_t middle = 0;
	for (int i = 0; i < plan->n_blocks; i++) {
		struct block *b = &e->block[i];
		if (open_block(&w, b, plan->block[i], channels, h))
			return -e->base.error->code;
		channels = b->channels / 2;
		h /= 2;
		size_t pixels = (size_t)e->base.conf.batch * (size_t)(b->h * b->h);
		middle = pixels > middle ? pixels : middle;
	}
	e->first = (struct joint){ .x = e->block[0].x, .g = e->block[0].g, .statistics = &e->block[0].statistics, .channels = e->block[0].channels_in, .h = e->block[0].h };
	e->taps[3] = (struct tap){ e->block[0].x, NULL };
	for (int i = 0; i < plan->n_blocks; i++) {
		struct block *b = &e->block[i];
		for (int l = 0; l < b->layers; l++)
			if (open_layer(&w, b, &b->layer[l]))
				return -e->base.error->code;
		if (i < plan->n_blocks - 1 && open_transition(&w, b))
			return -e->base.error->code;
	}
	struct block *last = &e->block[plan->n_blocks - 1];
	const struct net_layer *bn = take(&w, OP_BN_RELU), *pool = bn ? take(&w, OP_GLOBAL_AVGPOOL) : NULL, *linear = pool ? take(&w, OP_LINEAR) : NULL;
	e->last = (struct joint){ last->x, last->g, &last->statistics, &last->out_bn, last->channels, last->h };
	if (!linear || cpu_bn_open(e, &last->out_bn, bn, &last->statistics) || cpu_head_open(e, pool, linear) ||
	    !(e->middle_grad = cpu_alloc(e, middle * (size_t)round_up(plan->bottleneck * plan->growth, LANES), sizeof(float))))
		return -e->base.error->code;
	e->taps[w.next - 2] = (struct tap){ last->x, &last->out_bn };
	return 0;
}

struct packing {
	const struct cpu_engine *e;
	const struct block *b;
};

static void pack_conv(void *context, int i, int worker)
{
	const struct packing *j = context;
	const struct block *b = j->b;
	uint64_t t = profile_start(j->e->profile);
	if (i < 2 * b->layers)
		cpu_conv_pack(j->e, i & 1 ? &b->layer[i / 2].conv2 : &b->layer[i / 2].conv1);
	else
		cpu_conv_pack(j->e, &b->transition);
	profile_add(j->e->profile, worker, WORK_REORDER, t);
}

void cpu_dense_pack(struct cpu_engine *e)
{
	for (int i = 0; i < e->base.conf.plan->n_blocks; i++) {
		struct packing job = { e, &e->block[i] };
		cpu_team_run(e->team, 2 * job.b->layers + (job.b->transition.forward != NULL), pack_conv, &job);
	}
}

void cpu_dense_forward(struct cpu_engine *e)
{
	for (int i = 0; i < e->base.conf.plan->n_blocks; i++) {
		struct block *b = &e->block[i];
		for (int l = 0; l < b->layers; l++) {
			struct dense_layer *d = &b->layer[l];
			cpu_bn_prepare(e, &d->bn1);
			cpu_conv1_forward(e, &d->conv1, &d->bn1, b->x, d->middle, &d->statistics, 0);
			cpu_bn_prepare(e, &d->bn2);
			cpu_conv3_forward(e, &d->conv2, &d->bn2, d->middle, acts_slice(e, b->x, d->bn1.channels), &b->statistics, d->bn1.channels);
		}
		if (!b->transition.forward)
			continue;
		cpu_bn_prepare(e, &b->out_bn);
		cpu_conv1_forward(e, &b->transition, &b->out_bn, b->x, b[1].x, &b[1].statistics, 0);
	}
}

struct grads cpu_middle_grad(const struct cpu_engine *e, const struct block *b)
{
	return (struct grads){ e->middle_grad, LANES, (ptrdiff_t)e->base.conf.batch * b->h * b->h * LANES };
}

static int layer_backward(struct cpu_engine *e, struct block *b, struct dense_layer *d)
{
	struct grads produced = grads_slice(b->g, d->bn1.channels), middle = cpu_middle_grad(e, b);
	struct behind behind_layer = { &b->statistics, d->bn1.channels, NULL, b->x }, behind_conv1 = { &d->statistics, 0, d->bn2.v.gamma, d->middle };
	int rc;
	if ((rc = cpu_conv3_backward(e, &d->conv2, &d->bn2, produced, &behind_layer, d->middle, middle)) || (rc = cpu_weights_finish(e, &d->conv2)) ||
	    (rc = cpu_bn_finish(e, &d->bn2, &d->statistics, d->conv2.splits)))
		return rc;
	rc = cpu_conv1_backward(e, &d->conv1, &d->bn1, middle, &behind_conv1, b->x, b->g, 1);
	rc = rc ? rc : cpu_bn_finish(e, &d->bn1, &b->statistics, d->conv1.splits);
	return rc ? rc : cpu_weights_finish(e, &d->conv1);
}

/* Starts G of block b from that of the next block's first channels, which is complete. */
static int transition_backward(struct cpu_engine *e, struct block *b)
{
	struct behind behind = { &b[1].statistics, 0, NULL, b[1].x };
	int rc;
	if (b->h & 1) /* the last row and column feed no mean */
		memset(b->g.data, 0, (size_t)e->count * (size_t)(b->h * b->h) * (size_t)b->g.stride * sizeof *b->g.data);
	if ((rc = cpu_conv1_backward(e, &b->transition, &b->out_bn, b[1].g, &behind, b->x, b->g, 0)) || (rc = cpu_weights_finish(e, &b->transition)))
		return rc;
	return cpu_bn_finish(e, &b->out_bn, &b->statistics, b->transition.splits);
}

int cpu_dense_backward(struct cpu_engine *e)
{
	for (int i = e->base.conf.plan->n_blocks - 1; i >= 0; i--) {
		struct block *b = &e->block[i];
		int rc = b->transition.forward ? transition_backward(e, b) : 0;
		for (int l = b->layers - 1; l >= 0 && !rc; l--)
			rc = layer_backward(e, b, &b->layer[l]);
		if (rc)
			return rc;
	}
	struct block *first = &e->block[0];
	struct behind behind_stem = { &first->statistics, 0, NULL, first->x };
	cpu_correct_map(e, &behind_stem, first->channels_in, first->h * first->h, first->g, first->g);
	return 0;
}
