/* SPDX-License-Identifier: Apache-2.0
 * 1 x 1 convolutions as products over flat pixels. Where `pool` is set, output pixels are 2 x 2 means; there and at a stride
 * a chunk stays within one row. */
#include <string.h>

#include "engine/cpu/cpu.h"

/* Backward takes a chunk of pixels through one group of channels after another: what is packed and multiplied stays in cache while the
 * weights and the sums of their gradient go by. RESULT_STRIDE is no power of 2, of which a cache holds few lines. */
enum { CHANNEL_GROUP = 4 * PANEL, RESULT_STRIDE = CHANNEL_GROUP + LANES };

/* Pixels of a chunk. On tiles it is longer: weights' sums are loaded and stored once a chunk, which takes as long as the products of an AMX_DEPTH of pixels or two. */
static int chunk_pixels(const struct conv *c)
{
	return c->tiles ? 4 * AMX_DEPTH : 56;
}

static ptrdiff_t chunk_plane(const struct conv *c)
{
	return chunk_pixels(c) * LANES;
}

static const ptrdiff_t one_tap[1] = { 0 };

/* A run of output pixels and the input pixel under the first of them. */
struct chunk {
	size_t out, in;
	int pixels;
};

size_t cpu_conv1_scratch(const struct conv *c)
{
	size_t in = (size_t)round_up(c->c_in, LANES), out = (size_t)round_up(c->c_out, LANES);
	size_t pixels = (size_t)chunk_pixels(c);
	size_t forward = (in + out) * pixels, backward = (out + CHANNEL_GROUP + RESULT_STRIDE) * pixels;
	backward += cpu_tile_room(c, chunk_pixels(c), CHANNEL_GROUP, chunk_pixels(c), NULL).floats;
	return forward > backward ? forward : backward;
}

/* whole: of whole rows, or of one row. */
static int next_chunk(const struct conv *c, int whole, size_t *at, size_t end, struct chunk *chunk)
{
	if (*at >= end)
		return 0;
	size_t left = end - *at, w = (size_t)c->h_out, most = (size_t)chunk_pixels(c);
	*chunk = (struct chunk){ .out = *at, .in = *at };
	size_t step = c->pool ? 2 : (size_t)c->stride, image = *at / (w * w), row = *at / w % w, column = *at % w;
	if (step > 1 || (whole && w > most))
		left = left < w - column ? left : w - column;
	else if (whole)
		most -= most % w;
	if (step > 1)
		chunk->in = image * (size_t)c->h_in * (size_t)c->h_in + step * row * (size_t)c->h_in + step * column;
	chunk->pixels = (int)(left < most ? left : most);
	*at += (size_t)chunk->pixels;
	return 1;
}

static void pack_input(const struct cpu_engine *e, const struct conv *c, const struct bn_vectors *bn, struct acts x, const struct chunk *chunk,
                       float *packed)
{
	const void *from = acts_at(e, x, chunk->in);
	if (c->pool)
		e->kernels->at[e->storage].pack_bn_pool(chunk->pixels, c->c_in, from, x.stride, (ptrdiff_t)c->h_in * x.stride, bn, packed, chunk_plane(c));
	else
		e->kernels->at[e->storage].pack_bn(chunk->pixels, c->c_in, from, x.stride * c->stride, bn, packed, chunk_plane(c));
}

/* One product over the batch; a field is set where the product has it. */
struct job {
	struct cpu_engine *e;
	const struct conv *c;
	const struct bn *bn;
	struct acts x, y;
	struct grads dy, g;
	const struct behind *behind;
	int accumulate, ranges;
};

/* The input of a chunk; of the four pixels that a pool joins, the first. */
static struct ahead x_ahead(const struct cpu_engine *e, const struct conv *c, struct acts x, const struct chunk *chunk)
{
	size_t step = c->pool ? 2 : (size_t)c->stride, element = storage_size(e->storage);
	return (struct ahead){ chunk->pixels, { { acts_at(e, x, chunk->in), (size_t)c->c_in * element, step * (size_t)x.stride * element } } };
}

static void forward_task(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), h = c->h_out;
	float *packed = e->scratch[worker], *result = packed + in * chunk_pixels(c);
	struct grads map = { packed, LANES, chunk_plane(c) };
	size_t p = (size_t)cpu_task_row(e, h, task) * (size_t)h, end = (size_t)cpu_task_row(e, h, task + 1) * (size_t)h;
	struct chunk chunk, next;
	cpu_tiles_begin(e, c);
	for (int more = next_chunk(c, 1, &p, end, &next); more;) {
		chunk = next;
		more = next_chunk(c, 1, &p, end, &next);
		struct ahead ahead = x_ahead(e, c, j->x, &next);
		uint64_t t = profile_start(e->profile);
		pack_input(e, c, &j->bn->v, j->x, &chunk, packed);
		t = profile_add(e->profile, worker, WORK_BN, t);
		cpu_narrow(e, c, chunk.pixels, c->c_in, map, map);
		cpu_multiply(e, c, c->forward, c->c_out, 1, one_tap, in / LANES, chunk_plane(c), packed, chunk.pixels, result, out,
		             more ? &ahead : NULL);
		t = profile_add(e->profile, worker, WORK_FORWARD, t);
		cpu_finish(e, result, out, c->c_out, h, chunk.out, chunk.pixels, j->y);
		profile_add(e->profile, worker, WORK_BN, t);
	}
	cpu_tiles_end(e, c);
}

void cpu_conv1_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .y = y };
	cpu_team_run(e->team, cpu_tasks(e, c->h_out), forward_task, &job);
	cpu_statistics_finish(e, s, at, c->c_out, c->h_out);
}

/* The result of one chunk for `channels` from `channel` on goes through ReLU and BN into g; the convolution's input is packed. */
static void finish_backward(const struct job *j, const struct chunk *chunk, int channel, int channels, const float *result, float *sum, float *dot,
                            float *packed)
{
	const struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	struct bn_vectors v = bn_slice(&j->bn->v, channel);
	struct grads to = grads_slice(grads_at(j->g, chunk->in), channel);
	const void *x = acts_at(e, acts_slice(e, j->x, channel), chunk->in);
	ptrdiff_t x_row = (ptrdiff_t)c->h_in * j->x.stride, to_row = (ptrdiff_t)c->h_in * to.stride, plane = chunk_plane(c);
	if (c->pool)
		e->kernels->at[e->storage].bn_backward_pool(chunk->pixels, channels, result, RESULT_STRIDE, x, j->x.stride, x_row, &v, v.gamma, to.data,
		                                            to.stride, to_row, sum, dot, packed, plane);
	else
		e->kernels->at[e->storage].bn_backward(chunk->pixels, channels, result, RESULT_STRIDE, x, j->x.stride * c->stride, &v, v.gamma,
		                                       j->accumulate, (struct grads){ to.data, to.stride * c->stride, to.plane }, sum, dot, packed,
		                                       plane);
}

/* Packed pixels times packed gradients, added to the sums of a group of channels. */
static void add_weights(const struct cpu_engine *e, const struct conv *c, int pixels, int channels, const float *packed, struct grads grad,
                        const struct tile_room *room, float *sums)
{
	int out = round_up(c->c_out, LANES);
	if (c->tiles) {
		cpu_tile_weights(e, c, room, pixels, 1, one_tap, channels, pixels, packed, chunk_plane(c), sums, 0);
		return;
	}
	for (int o = 0; o < out; o += PANEL)
		for (int k = 0; k < round_up(channels, LANES) / LANES; k++)
			e->kernels->outer(pixels, out - o > LANES ? PANEL : LANES, packed + k * chunk_plane(c), grad.data + o / LANES * grad.plane,
			                  grad.stride, grad.plane, sums + (size_t)k * LANES * (size_t)out + o, out);
}

/* What finish_backward() will read of x and G. */
static struct ahead backward_ahead(const struct job *j, const struct chunk *chunk, int channel, int channels)
{
	const struct cpu_engine *e = j->e;
	size_t step = j->c->pool ? 2 : (size_t)j->c->stride, element = storage_size(e->storage), n = (size_t)channels;
	return (struct ahead){ chunk->pixels,
		               { { acts_at(e, acts_slice(e, j->x, channel), chunk->in), n * element, step * (size_t)j->x.stride * element },
		                 { grads_slice(grads_at(j->g, chunk->in), channel).data, n * sizeof(float), step * (size_t)j->g.stride * sizeof(float) } } };
}

/* One group of images and one range of channels. */
static void backward_part(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int split = task / j->ranges, from = cpu_range_start(c, task % j->ranges, j->ranges), to = cpu_range_start(c, task % j->ranges + 1, j->ranges);
	int out = round_up(c->c_out, LANES);
	float *gradient = e->scratch[worker], *result = gradient + out * chunk_pixels(c), *packed = result + RESULT_STRIDE * chunk_pixels(c);
	struct grads room_for_gradient = { gradient, LANES, chunk_plane(c) };
	struct tile_room room = cpu_tile_room(c, chunk_pixels(c), CHANNEL_GROUP, chunk_pixels(c), packed + CHANNEL_GROUP * chunk_pixels(c));
	float *sums = cpu_weight_sums(e, c, split), *sum, *dot;
	memset(sums + (size_t)from * (size_t)out, 0, (size_t)round_up(to - from, LANES) * (size_t)out * sizeof *sums);
	cpu_bn_sums(e, split, from, to, &sum, &dot);
	cpu_tiles_begin(e, c);
	size_t pixels = (size_t)c->h_out * (size_t)c->h_out, end = (size_t)part_start(split + 1, c->splits, e->count) * pixels;
	struct chunk chunk;
	for (size_t p = (size_t)part_start(split, c->splits, e->count) * pixels; next_chunk(c, 0, &p, end, &chunk);) {
		struct grads grad = grads_at(j->dy, chunk.out);
		uint64_t t = profile_start(e->profile);
		if (j->behind || grad.stride != LANES) {
			cpu_pack_gradient(e, j->behind, chunk.pixels, c->c_out, j->dy, chunk.out, gradient, chunk_plane(c));
			grad = room_for_gradient;
		}
		cpu_tile_gradient(e, c, &room, chunk.pixels, grad);
		grad = cpu_narrow(e, c, chunk.pixels, c->c_out, grad, room_for_gradient);
		t = profile_add(e->profile, worker, WORK_BN, t);
		for (int channel = from; channel < to; channel += CHANNEL_GROUP) {
			int channels = to - channel < CHANNEL_GROUP ? to - channel : CHANNEL_GROUP;
			struct ahead ahead = backward_ahead(j, &chunk, channel, channels);
			cpu_multiply(e, c, c->backward + cpu_panels_count(c, c->c_out, channel, 1), channels, 1, one_tap, out / LANES, grad.plane, grad.data, chunk.pixels, result,
			             RESULT_STRIDE, &ahead);
			t = profile_add(e->profile, worker, WORK_DATA, t);
			finish_backward(j, &chunk, channel, channels, result, sum + channel, dot + channel, packed);
			t = profile_add(e->profile, worker, WORK_BN, t);
			add_weights(e, c, chunk.pixels, channels, packed, grad, &room, sums + (size_t)channel * (size_t)out);
			t = profile_add(e->profile, worker, WORK_WEIGHTS, t);
		}
	}
	cpu_tiles_end(e, c);
}

int cpu_conv1_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, const struct behind *behind, struct acts x,
                       struct grads g, int accumulate)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy, .g = g, .behind = behind, .accumulate = accumulate, .ranges = cpu_ranges(e, c) };
	if (behind)
		cpu_correction(e, behind, c->c_out, c->h_out * c->h_out);
	return cpu_backward_run(e, c->splits * job.ranges, backward_part, &job);
}
