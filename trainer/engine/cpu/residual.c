/* SPDX-License-Identifier: Apache-2.0
 * Residual blocks. A block's output is a ReLU's, so its readers take it through the identity and mask their gradients by it:
 * what they add up, G, is the gradient before that ReLU, and is the gradient of both branches at once. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum { CONVS = 3 };

/* A convolution and its BN from layers[*next], with the map between them. */
static int open_pair(struct cpu_engine *e, int *next, struct conv *conv, struct bn *bn, struct statistics *s, struct acts *y)
{
	const struct net_plan *plan = e->base.conf.plan;
	const struct net_layer *c = &plan->layers[*next], *b = c + 1;
	y->stride = c->c_out;
	if (!(y->data = cpu_alloc(e, (size_t)e->base.conf.batch * (size_t)(c->h_out * c->h_out) * (size_t)c->c_out, storage_size(e->storage))) ||
	    cpu_statistics_alloc(e, s, c->c_out) || cpu_bn_open(e, bn, b, s) || cpu_conv_open(e, conv, c, 1))
		return -e->base.error->code;
	cpu_need_scratch(e, c->k == 1 ? cpu_conv1_scratch(conv) : cpu_conv3_scratch(conv));
	e->taps[*next + 1] = (struct tap){ *y, NULL };
	if (b->op == OP_BN_RELU)
		e->taps[*next + 2] = (struct tap){ *y, bn };
	*next += 2;
	return 0;
}

static int open_block(struct cpu_engine *e, int *next, struct residual *b, struct acts x)
{
	const struct net_plan *plan = e->base.conf.plan;
	b->x = x;
	b->h_in = plan->layers[*next].h_in;
	for (int i = 0; i < CONVS; i++)
		if (open_pair(e, next, &b->conv[i], &b->bn[i], &b->statistics[i], &b->y[i]))
			return -e->base.error->code;
	if (plan->layers[*next].op == OP_CONV && open_pair(e, next, &b->shortcut, &b->shortcut_bn, &b->shortcut_statistics, &b->shortcut_y))
		return -e->base.error->code;
	const struct net_layer *join = &plan->layers[(*next)++];
	b->h_out = join->h_out;
	b->out.stride = join->c_out;
	b->out.data = cpu_alloc(e, (size_t)e->base.conf.batch * (size_t)(b->h_out * b->h_out) * (size_t)join->c_out, storage_size(e->storage));
	e->taps[*next] = (struct tap){ b->out, NULL };
	return b->out.data ? 0 : -e->base.error->code;
}

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Gradients live from one convolution to the next only: one room each, for the largest block. */
static int open_gradients(struct cpu_engine *e)
{
	struct residual_net *r = &e->residual;
	size_t n = (size_t)e->base.conf.batch, map = 0, branch = 0, middle[2] = { 0 };
	for (int i = 0; i < r->n_blocks; i++) {
		const struct residual *b = &r->block[i];
		size_t in = n * (size_t)(b->h_in * b->h_in), out = n * (size_t)(b->h_out * b->h_out);
		map = most(map, most(in * (size_t)b->x.stride, out * (size_t)b->out.stride));
		branch = most(branch, out * (size_t)round_up(b->conv[2].c_out, LANES));
		middle[0] = most(middle[0], in * (size_t)round_up(b->conv[0].c_out, LANES));
		middle[1] = most(middle[1], out * (size_t)b->conv[1].c_out);
	}
	r->branch_grad = cpu_alloc(e, branch, sizeof(float));
	for (int i = 0; i < 2 && r->branch_grad; i++)
		if (!(r->map_grad[i] = cpu_alloc(e, map, sizeof(float))) || !(r->middle_grad[i] = cpu_alloc(e, middle[i], sizeof(float))))
			return -e->base.error->code;
	return r->branch_grad ? 0 : -e->base.error->code;
}

/* The gradient of block i's input; of the last block's output for i = n_blocks. */
static struct grads map_grad(const struct cpu_engine *e, int i)
{
	const struct residual_net *r = &e->residual;
	return (struct grads){ r->map_grad[i & 1], i < r->n_blocks ? r->block[i].x.stride : r->block[i - 1].out.stride, LANES };
}

int cpu_residual_open(struct cpu_engine *e)
{
	const struct net_plan *plan = e->base.conf.plan;
	const struct net_layer *pool = &plan->layers[2], *average = &plan->layers[plan->n_layers - 2], *linear = average + 1;
	struct residual_net *r = &e->residual;
	struct acts x = { NULL, pool->c_out };
	int next = 3;
	for (int i = 0; i < plan->n_blocks; i++)
		r->n_blocks += plan->block[i];
	if (cpu_stem_open(e) || !(x.data = cpu_alloc(e, (size_t)e->base.conf.batch * (size_t)(pool->h_out * pool->h_out) * (size_t)pool->c_out, storage_size(e->storage))) ||
	    cpu_identity_open(e, &r->identity, linear->c_in) || !(r->block = cpu_alloc(e, (size_t)r->n_blocks, sizeof *r->block)))
		return -e->base.error->code;
	e->first = (struct joint){ .x = x, .channels = pool->c_out, .h = pool->h_out };
	e->taps[3] = (struct tap){ x, NULL };
	for (int i = 0; i < r->n_blocks; i++, x = r->block[i - 1].out)
		if (open_block(e, &next, &r->block[i], x))
			return -e->base.error->code;
	if (open_gradients(e))
		return -e->base.error->code;
	e->first.g = map_grad(e, 0);
	e->last = (struct joint){ x, map_grad(e, r->n_blocks), NULL, &r->identity, linear->c_in, average->h_in };
	return cpu_head_open(e, average, linear);
}

static void pack_conv(void *context, int task, int worker)
{
	const struct cpu_engine *e = context;
	const struct residual *b = &e->residual.block[task / (CONVS + 1)];
	int i = task % (CONVS + 1);
	(void)worker;
	if (i < CONVS || b->shortcut.forward)
		cpu_conv_pack(e, i < CONVS ? &b->conv[i] : &b->shortcut);
}

void cpu_residual_pack(struct cpu_engine *e)
{
	cpu_team_run(e->team, e->residual.n_blocks * (CONVS + 1), pack_conv, e);
}

/* A pass over maps of h rows, part by part. */
struct pass {
	struct cpu_engine *e;
	const struct residual *b;
	const struct bn *bn; /* sums: of this BN, whose input is y */
	struct acts y;
	struct grads from, to;
	int h;
};

static size_t first_pixel(const struct pass *j, int part)
{
	return (size_t)cpu_part_row(j->e, j->h, part) * (size_t)j->h;
}

static void join_part(void *context, int part, int worker)
{
	const struct pass *j = context;
	const struct residual *b = j->b;
	const struct cpu_engine *e = j->e;
	int projected = b->shortcut.forward != NULL;
	size_t at = first_pixel(j, part);
	struct acts shortcut = projected ? b->shortcut_y : b->x;
	(void)worker;
	e->kernels->at[e->storage].join((int)(first_pixel(j, part + 1) - at), b->conv[2].c_out, acts_at(e, b->y[2], at), b->y[2].stride, &b->bn[2].v, acts_at(e, shortcut, at),
	                                shortcut.stride, projected ? &b->shortcut_bn.v : &e->residual.identity.v, acts_at(e, b->out, at), b->out.stride);
}

void cpu_residual_forward(struct cpu_engine *e)
{
	const struct bn *identity = &e->residual.identity;
	for (int i = 0; i < e->residual.n_blocks; i++) {
		struct residual *b = &e->residual.block[i];
		cpu_conv1_forward(e, &b->conv[0], identity, b->x, b->y[0], &b->statistics[0], 0);
		cpu_bn_prepare(e, &b->bn[0]);
		cpu_conv3_forward(e, &b->conv[1], &b->bn[0], b->y[0], b->y[1], &b->statistics[1], 0);
		cpu_bn_prepare(e, &b->bn[1]);
		cpu_conv1_forward(e, &b->conv[2], &b->bn[1], b->y[1], b->y[2], &b->statistics[2], 0);
		cpu_bn_prepare(e, &b->bn[2]);
		if (b->shortcut.forward) {
			cpu_conv1_forward(e, &b->shortcut, identity, b->x, b->shortcut_y, &b->shortcut_statistics, 0);
			cpu_bn_prepare(e, &b->shortcut_bn);
		}
		struct pass pass = { .e = e, .b = b, .h = b->h_out };
		cpu_team_run(e->team, cpu_parts(e, pass.h), join_part, &pass);
	}
}

static void sums_part(void *context, int part, int worker)
{
	const struct pass *j = context;
	const struct cpu_engine *e = j->e;
	size_t at = first_pixel(j, part);
	float *sum, *dot;
	(void)worker;
	cpu_bn_sums(e, part, 0, j->bn->channels, &sum, &dot);
	e->kernels->at[e->storage].bn_sums((int)(first_pixel(j, part + 1) - at), j->bn->channels, j->from.data + at * (size_t)j->from.stride, j->from.stride, acts_at(e, j->y, at),
	                                   j->y.stride, &j->bn->v, sum, dot);
}

/* Gradient of y, the input of a BN without ReLU, from that of the BN's output. */
static int bn_backward(struct cpu_engine *e, struct bn *bn, const struct statistics *s, struct acts y, int h, struct grads from, struct grads to)
{
	struct pass pass = { .e = e, .bn = bn, .y = y, .from = from, .h = h };
	cpu_team_run(e->team, cpu_parts(e, h), sums_part, &pass);
	int rc = cpu_bn_finish(e, bn, s, cpu_parts(e, h));
	if (!rc)
		cpu_correct_map(e, &(struct behind){ s, 0, bn->v.gamma, y }, bn->channels, bn->pixels, from, to);
	return rc;
}

static void add_shortcut(void *context, int part, int worker)
{
	const struct pass *j = context;
	const struct residual *b = j->b;
	const struct cpu_engine *e = j->e;
	size_t at = first_pixel(j, part);
	float *sum, *dot;
	(void)worker;
	cpu_bn_sums(e, part, 0, b->x.stride, &sum, &dot); /* nobody reads them: the identity has no parameters */
	e->kernels->at[e->storage].bn_backward((int)(first_pixel(j, part + 1) - at), b->x.stride,
	                                       j->from.data + at * (size_t)j->from.stride, j->from.stride, acts_at(e, b->x, at), b->x.stride,
	                                       &e->residual.identity.v, NULL, 1, grads_at(j->to, at), sum, dot, NULL, 0);
}

/* From out, the sum of both branches' gradients, to in. */
static int block_backward(struct cpu_engine *e, struct residual *b, struct grads out, struct grads in)
{
	const struct bn *identity = &e->residual.identity;
	struct residual_net *r = &e->residual;
	ptrdiff_t images = e->base.conf.batch;
	struct grads branch = { r->branch_grad, LANES, images * b->h_out * b->h_out * LANES };
	struct grads first = { r->middle_grad[0], LANES, images * b->h_in * b->h_in * LANES }, second = { r->middle_grad[1], b->conv[1].c_out, LANES };
	struct behind behind_conv1 = { &b->statistics[0], 0, b->bn[0].v.gamma, b->y[0] }, behind_conv2 = { &b->statistics[1], 0, NULL, b->y[1] };
	int rc = bn_backward(e, &b->bn[2], &b->statistics[2], b->y[2], b->h_out, out, branch);
	if (!rc && b->shortcut.forward)
		rc = bn_backward(e, &b->shortcut_bn, &b->shortcut_statistics, b->shortcut_y, b->h_out, out, out);
	if (rc)
		return rc;
	if ((rc = cpu_conv1_backward(e, &b->conv[2], &b->bn[1], branch, NULL, b->y[1], second, 0)) || (rc = cpu_weights_finish(e, &b->conv[2])) ||
	    (rc = cpu_bn_finish(e, &b->bn[1], &b->statistics[1], b->conv[2].splits)))
		return rc;
	if ((rc = cpu_conv3_backward(e, &b->conv[1], &b->bn[0], second, &behind_conv2, b->y[0], first)) || (rc = cpu_weights_finish(e, &b->conv[1])) ||
	    (rc = cpu_bn_finish(e, &b->bn[0], &b->statistics[0], b->conv[1].splits)))
		return rc;
	if ((rc = cpu_conv1_backward(e, &b->conv[0], identity, first, &behind_conv1, b->x, in, 0)) || (rc = cpu_weights_finish(e, &b->conv[0])))
		return rc;
	if (b->shortcut.forward) {
		rc = cpu_conv1_backward(e, &b->shortcut, identity, out, NULL, b->x, in, 1);
		return rc ? rc : cpu_weights_finish(e, &b->shortcut);
	}
	struct pass pass = { .e = e, .b = b, .from = out, .to = in, .h = b->h_in };
	cpu_team_run(e->team, cpu_parts(e, pass.h), add_shortcut, &pass);
	return 0;
}

int cpu_residual_backward(struct cpu_engine *e)
{
	for (int i = e->residual.n_blocks - 1; i >= 0; i--) {
		int rc = block_backward(e, &e->residual.block[i], map_grad(e, i + 1), map_grad(e, i));
		if (rc)
			return rc;
	}
	return 0;
}
