/* SPDX-License-Identifier: Apache-2.0
 * 1 x 1 convolutions as products over flat pixels. Where `pool` is set, output pixels are 2 x 2 means; there and at a stride
 * a chunk stays within one row. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum { WEIGHT_CHUNK = 112, CHANNEL_GROUP = 4 * LANES };

static const ptrdiff_t one_tap[1] = { 0 };

/* A run of output pixels and the input pixel under the first of them. */
struct chunk {
	size_t out, in;
	int pixels;
};

size_t cpu_conv1_scratch(const struct conv *c)
{
	size_t in = (size_t)round_up(c->c_in, LANES), out = (size_t)round_up(c->c_out, LANES);
	size_t products = (in + out) * CHUNK, weights = CHANNEL_GROUP * WEIGHT_CHUNK;
	return products > weights ? products : weights;
}

static int next_chunk(const struct conv *c, size_t *at, size_t end, int limit, struct chunk *chunk)
{
	if (*at >= end)
		return 0;
	size_t left = end - *at, w = (size_t)c->h_out;
	*chunk = (struct chunk){ .out = *at, .in = *at };
	size_t step = c->pool ? 2 : (size_t)c->stride;
	if (step > 1) {
		size_t image = *at / (w * w), row = *at / w % w, column = *at % w;
		left = left < w - column ? left : w - column;
		chunk->in = image * (size_t)c->h_in * (size_t)c->h_in + step * row * (size_t)c->h_in + step * column;
	}
	chunk->pixels = left < (size_t)limit ? (int)left : limit;
	*at += (size_t)chunk->pixels;
	return 1;
}

static void pack_input(const struct cpu_engine *e, const struct conv *c, const struct bn_vectors *bn, int channels, struct acts x,
                       const struct chunk *chunk, float *packed, ptrdiff_t plane)
{
	if (c->pool)
		e->kernels->at[e->storage].pack_bn_pool(chunk->pixels, channels, acts_at(e, x, chunk->in), x.stride, (ptrdiff_t)c->h_in * x.stride, bn, packed,
		                                        plane);
	else
		e->kernels->at[e->storage].pack_bn(chunk->pixels, channels, acts_at(e, x, chunk->in), x.stride * c->stride, bn, packed, plane);
}

/* One product over the batch; a field is set where the product has it. */
struct job {
	struct cpu_engine *e;
	const struct conv *c;
	const struct bn *bn;
	struct acts x, y;
	struct grads dy, g;
	const struct bn *behind;
	struct acts behind_x;
	int accumulate;
};

static void forward_part(void *context, int part, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int parts = cpu_splits(e), in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES);
	float *packed = e->scratch[worker], *result = packed + (size_t)in * CHUNK;
	struct moments m = cpu_moments(e, part);
	size_t pixels = (size_t)c->h_out * (size_t)c->h_out, start = (size_t)part_start(part, parts, e->count) * pixels;
	size_t end = (size_t)part_start(part + 1, parts, e->count) * pixels;
	struct chunk chunk;
	for (size_t p = start; next_chunk(c, &p, end, CHUNK, &chunk);) {
		uint64_t t = profile_start(e->profile);
		pack_input(e, c, &j->bn->v, c->c_in, j->x, &chunk, packed, CHUNK * LANES);
		t = profile_add(e->profile, worker, WORK_BN, t);
		cpu_multiply(e, c->forward, c->c_out, 1, one_tap, in / LANES, CHUNK * LANES, packed, chunk.pixels, result, out);
		t = profile_add(e->profile, worker, WORK_FORWARD, t);
		e->kernels->at[e->storage].finish(chunk.pixels, c->c_out, result, out, acts_at(e, j->y, chunk.out), j->y.stride, e->training ? &m : NULL,
		                                  chunk.out == start);
		profile_add(e->profile, worker, WORK_BN, t);
	}
}

void cpu_conv1_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .y = y };
	cpu_team_run(e->team, cpu_splits(e), forward_part, &job);
	cpu_statistics_finish(e, s, at, c->c_out, c->h_out * c->h_out);
}

/* The result of one chunk goes through ReLU and BN into g. */
static void backward_chunk(const struct job *j, const struct chunk *chunk, const float *result, float *sum, float *dot)
{
	const struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int in = round_up(c->c_in, LANES);
	struct grads to = grads_at(j->g, chunk->in);
	const void *x = acts_at(e, j->x, chunk->in);
	if (c->pool)
		e->kernels->at[e->storage].bn_backward_pool(chunk->pixels, c->c_in, result, in, x, j->x.stride, (ptrdiff_t)c->h_in * j->x.stride, &j->bn->v,
		                                            j->bn->v.gamma, to.data, to.stride, (ptrdiff_t)c->h_in * to.stride, sum, dot);
	else
		e->kernels->at[e->storage].bn_backward(chunk->pixels, c->c_in, result, in, x, j->x.stride * c->stride, &j->bn->v, j->bn->v.gamma, j->accumulate,
		                                       (struct grads){ to.data, to.stride * c->stride, to.plane }, sum, dot);
}

static void backward_part(void *context, int part, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int parts = cpu_splits(e), in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES);
	float *packed = e->scratch[worker], *result = packed + (size_t)out * CHUNK, *sum, *dot;
	const float *a = e->coefficients, *b = a + e->max_channels;
	cpu_bn_sums(e, part, c->c_in, &sum, &dot);
	size_t pixels = (size_t)c->h_out * (size_t)c->h_out, end = (size_t)part_start(part + 1, parts, e->count) * pixels;
	struct chunk chunk;
	for (size_t p = (size_t)part_start(part, parts, e->count) * pixels; next_chunk(c, &p, end, CHUNK, &chunk);) {
		struct grads grad = grads_at(j->dy, chunk.out);
		uint64_t t = profile_start(e->profile);
		if (j->behind)
			e->kernels->at[e->storage].correct(chunk.pixels, c->c_out, grad, acts_at(e, j->behind_x, chunk.out), j->behind_x.stride, a, b,
			                                   b + e->max_channels, grad);
		if (grad.stride != LANES) {
			e->kernels->pack(chunk.pixels, c->c_out, grad.data, grad.stride, packed, CHUNK * LANES);
			grad = (struct grads){ packed, LANES, CHUNK * LANES };
		}
		t = profile_add(e->profile, worker, WORK_BN, t);
		cpu_multiply(e, c->backward, c->c_in, 1, one_tap, out / LANES, grad.plane, grad.data, chunk.pixels, result, in);
		t = profile_add(e->profile, worker, WORK_DATA, t);
		backward_chunk(j, &chunk, result, sum, dot);
		profile_add(e->profile, worker, WORK_BN, t);
	}
}

void cpu_conv1_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, const struct bn *behind,
                        const struct statistics *behind_statistics, struct acts behind_x, struct acts x, struct grads g, int accumulate)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy, .g = g, .behind = behind, .behind_x = behind_x, .accumulate = accumulate };
	if (behind)
		cpu_correction(e, behind_statistics, 0, c->c_out, behind->pixels, behind->v.gamma);
	cpu_team_run(e->team, cpu_splits(e), backward_part, &job);
}

static struct bn_vectors vectors_from(const struct bn_vectors *v, int channel)
{
	return (struct bn_vectors){ v->scale + channel, v->shift + channel, v->inverse + channel, v->offset + channel, v->gamma + channel };
}

static int channel_groups(const struct conv *c)
{
	return (c->c_in + CHANNEL_GROUP - 1) / CHANNEL_GROUP;
}

static void weights_part(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int out = round_up(c->c_out, LANES), split = task / channel_groups(c), channel = task % channel_groups(c) * CHANNEL_GROUP;
	int channels = c->c_in - channel < CHANNEL_GROUP ? c->c_in - channel : CHANNEL_GROUP, blocks = round_up(channels, LANES) / LANES;
	float *packed = e->scratch[worker], *sums = cpu_weight_sums(e, c, split) + (size_t)channel * (size_t)out;
	memset(sums, 0, (size_t)blocks * LANES * (size_t)out * sizeof *sums);
	struct bn_vectors v = vectors_from(&j->bn->v, channel);
	size_t pixels = (size_t)c->h_out * (size_t)c->h_out, end = (size_t)part_start(split + 1, c->splits, e->count) * pixels;
	struct chunk chunk;
	for (size_t p = (size_t)part_start(split, c->splits, e->count) * pixels; next_chunk(c, &p, end, WEIGHT_CHUNK, &chunk);) {
		uint64_t t = profile_start(e->profile);
		pack_input(e, c, &v, channels, acts_slice(e, j->x, channel), &chunk, packed, WEIGHT_CHUNK * LANES);
		t = profile_add(e->profile, worker, WORK_BN, t);
		struct grads grad = grads_at(j->dy, chunk.out);
		for (int o = 0; o < out; o += PANEL)
			for (int k = 0; k < blocks; k++)
				e->kernels->outer(chunk.pixels, out - o > LANES ? PANEL : LANES, packed + k * WEIGHT_CHUNK * LANES, grad.data + o / LANES * grad.plane,
				                  grad.stride, grad.plane, sums + (size_t)k * LANES * (size_t)out + o, out);
		profile_add(e->profile, worker, WORK_WEIGHTS, t);
	}
}

void cpu_conv1_weights(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct grads dy)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy };
	cpu_team_run(e->team, c->splits * channel_groups(c), weights_part, &job);
}
