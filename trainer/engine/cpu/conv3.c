/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions of step 1. A band of rows of one image is packed with a border, so that every tap is the same product shifted
 * by a constant. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum { BAND_FLOATS = 64 << 10 /* of packed input: a quarter of a 1 MiB L2 */, CHANNEL_GROUP = 4 * LANES };

/* Rows of a band so that its packed input stays in cache; `channels` padded. */
static int band_rows(int h, int channels)
{
	int most = BAND_FLOATS / ((h + 2) * channels) - 2;
	most = most < 1 ? 1 : most > h ? h : most;
	int bands = (h + most - 1) / most;
	return (h + bands - 1) / bands;
}

size_t cpu_conv3_scratch(const struct conv *c)
{
	if (c->stride == 2)
		return cpu_conv3_stride2_scratch(c);
	size_t in = (size_t)round_up(c->c_in, LANES), out = (size_t)round_up(c->c_out, LANES), h = (size_t)c->h_in;
	size_t rows = (size_t)band_rows(c->h_in, (int)in), weight_rows = (size_t)band_rows(c->h_in, CHANNEL_GROUP + (int)out);
	size_t products = (rows + 2) * (h + 2) * (in > out ? in : out) + rows * h * (in > out ? in : out);
	size_t weights = (weight_rows + 2) * (h + 2) * (CHANNEL_GROUP + out);
	return products > weights ? products : weights;
}

/* Rows [row, row + rows) of an image with a border of one pixel; plane floats a block of channels. */
struct band {
	int row, rows, h;
	ptrdiff_t plane;
};

static struct band band_of(int row, int rows, int h)
{
	struct band b = { row, rows < h - row ? rows : h - row, h, 0 };
	b.plane = (ptrdiff_t)(b.rows + 2) * (h + 2) * LANES;
	return b;
}

/* Packed rows from -1 to rows, the border zero. Exactly one of x (with bn) and g is packed. */
static void pack_band(const struct cpu_engine *e, const struct band *b, int channels, size_t image, const struct bn_vectors *bn, struct acts x,
                      struct grads g, float *packed)
{
	int blocks = round_up(channels, LANES) / LANES, pitch = (b->h + 2) * LANES;
	for (int r = -1; r <= b->rows; r++) {
		float *to = packed + (r + 1) * pitch;
		size_t pixel = image + (size_t)(b->row + r) * (size_t)b->h;
		int inside = b->row + r >= 0 && b->row + r < b->h;
		for (int k = 0; k < blocks; k++) {
			float *line = to + k * b->plane;
			if (!inside)
				memset(line, 0, (size_t)pitch * sizeof *line);
			memset(line, 0, LANES * sizeof *line);
			memset(line + pitch - LANES, 0, LANES * sizeof *line);
		}
		if (!inside)
			continue;
		if (bn)
			e->kernels->at[e->storage].pack_bn(b->h, channels, acts_at(e, x, pixel), x.stride, bn, to + LANES, b->plane);
		else
			e->kernels->pack(b->h, channels, g.data + pixel * (size_t)g.stride, g.stride, to + LANES, b->plane);
	}
}

/* The taps' shifts from an output pixel's top left neighbour; backward runs through them the other way. */
static void tap_shifts(int h, int backward, ptrdiff_t tap[MAX_TAPS])
{
	for (int t = 0; t < MAX_TAPS; t++) {
		int k = backward ? MAX_TAPS - 1 - t : t;
		tap[t] = (ptrdiff_t)(k / 3 * (h + 2) + k % 3) * LANES;
	}
}

static void multiply_band(const struct cpu_engine *e, const struct band *b, const float *panels, int rows_of_b, int cols, int backward,
                          const float *packed, float *result)
{
	int out = round_up(cols, LANES), blocks = round_up(rows_of_b, LANES) / LANES;
	ptrdiff_t tap[MAX_TAPS];
	tap_shifts(b->h, backward, tap);
	for (int r = 0; r < b->rows; r++)
		cpu_multiply(e, panels, cols, MAX_TAPS, tap, blocks, b->plane, packed + r * (b->h + 2) * LANES, b->h, result + (size_t)r * (size_t)b->h * (size_t)out,
		             out);
}

/* One product over the batch; a field is set where the product has it. */
struct job {
	struct cpu_engine *e;
	const struct conv *c;
	const struct bn *bn;
	struct acts x, y;
	struct grads dy, g;
};

static void forward_part(void *context, int part, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int parts = cpu_splits(e), in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), h = c->h_in, rows = band_rows(h, in), first = 1;
	struct moments m = cpu_moments(e, part);
	for (int n = part_start(part, parts, e->count); n < part_start(part + 1, parts, e->count); n++)
		for (int row = 0; row < h; row += rows, first = 0) {
			struct band b = band_of(row, rows, h);
			size_t image = (size_t)n * (size_t)(h * h);
			float *packed = e->scratch[worker], *result = packed + b.plane * (in / LANES);
			uint64_t t = profile_start(e->profile);
			pack_band(e, &b, c->c_in, image, &j->bn->v, j->x, (struct grads){ 0 }, packed);
			t = profile_add(e->profile, worker, WORK_BN, t);
			multiply_band(e, &b, c->forward, c->c_in, c->c_out, 0, packed, result);
			t = profile_add(e->profile, worker, WORK_FORWARD, t);
			e->kernels->at[e->storage].finish(b.rows * h, c->c_out, result, out, acts_at(e, j->y, image + (size_t)(row * h)), j->y.stride,
			                                  e->training ? &m : NULL, first);
			profile_add(e->profile, worker, WORK_BN, t);
		}
}

void cpu_conv3_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .y = y };
	if (c->stride == 2)
		cpu_conv3_stride2_forward(e, c, bn, x, y);
	else
		cpu_team_run(e->team, cpu_splits(e), forward_part, &job);
	cpu_statistics_finish(e, s, at, c->c_out, c->h_out * c->h_out);
}

static void backward_part(void *context, int part, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int parts = cpu_splits(e), in = round_up(c->c_in, LANES), h = c->h_in, rows = band_rows(h, in);
	float *sum, *dot;
	cpu_bn_sums(e, part, c->c_in, &sum, &dot);
	for (int n = part_start(part, parts, e->count); n < part_start(part + 1, parts, e->count); n++)
		for (int row = 0; row < h; row += rows) {
			struct band b = band_of(row, rows, h);
			size_t image = (size_t)n * (size_t)(h * h), pixel = image + (size_t)(row * h);
			float *packed = e->scratch[worker], *result = packed + b.plane * (round_up(c->c_out, LANES) / LANES);
			uint64_t t = profile_start(e->profile);
			pack_band(e, &b, c->c_out, image, NULL, (struct acts){ 0 }, j->dy, packed);
			t = profile_add(e->profile, worker, WORK_BN, t);
			multiply_band(e, &b, c->backward, c->c_out, c->c_in, 1, packed, result);
			t = profile_add(e->profile, worker, WORK_DATA, t);
			e->kernels->at[e->storage].bn_backward(b.rows * h, c->c_in, result, in, acts_at(e, j->x, pixel), j->x.stride, &j->bn->v, NULL, 0,
			                                       grads_at(j->g, pixel), sum, dot);
			profile_add(e->profile, worker, WORK_BN, t);
		}
}

void cpu_conv3_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, struct acts x, struct grads g)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy, .g = g };
	if (c->stride == 2)
		cpu_conv3_stride2_backward(e, c, bn, dy, x, g);
	else
		cpu_team_run(e->team, cpu_splits(e), backward_part, &job);
}

/* The gradient band's border is zero, so its pixels and the border between its rows are summed as one run. */
static void outer_band(const struct cpu_engine *e, const struct conv *c, const struct band *b, const float *values, int blocks, const float *grads,
                       float *sums)
{
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), run = b->rows * (b->h + 2) - 2;
	const float *first = grads + (b->h + 3) * LANES;
	ptrdiff_t tap[MAX_TAPS];
	tap_shifts(b->h, 0, tap);
	for (int o = 0; o < out; o += PANEL)
		for (int k = 0; k < blocks; k++)
			for (int t = 0; t < MAX_TAPS; t++)
				e->kernels->outer(run, out - o > LANES ? PANEL : LANES, values + k * b->plane + tap[t], first + o / LANES * b->plane, LANES, b->plane,
				                  sums + ((size_t)t * (size_t)in + (size_t)k * LANES) * (size_t)out + o, out);
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
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), h = c->h_in, rows = band_rows(h, CHANNEL_GROUP + out);
	int split = task / channel_groups(c), channel = task % channel_groups(c) * CHANNEL_GROUP;
	int channels = c->c_in - channel < CHANNEL_GROUP ? c->c_in - channel : CHANNEL_GROUP, blocks = round_up(channels, LANES) / LANES;
	float *sums = cpu_weight_sums(e, c, split) + (size_t)channel * (size_t)out;
	for (int t = 0; t < MAX_TAPS; t++)
		memset(sums + (size_t)t * (size_t)in * (size_t)out, 0, (size_t)blocks * LANES * (size_t)out * sizeof *sums);
	struct bn_vectors v = { j->bn->v.scale + channel, j->bn->v.shift + channel, NULL, NULL, NULL };
	for (int n = part_start(split, c->splits, e->count); n < part_start(split + 1, c->splits, e->count); n++)
		for (int row = 0; row < h; row += rows) {
			struct band b = band_of(row, rows, h);
			float *values = e->scratch[worker], *grads = values + b.plane * blocks;
			uint64_t t = profile_start(e->profile);
			pack_band(e, &b, channels, (size_t)n * (size_t)(h * h), &v, acts_slice(e, j->x, channel), (struct grads){ 0 }, values);
			pack_band(e, &b, c->c_out, (size_t)n * (size_t)(h * h), NULL, (struct acts){ 0 }, j->dy, grads);
			t = profile_add(e->profile, worker, WORK_BN, t);
			outer_band(e, c, &b, values, blocks, grads, sums);
			profile_add(e->profile, worker, WORK_WEIGHTS, t);
		}
}

void cpu_conv3_weights(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct grads dy)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy };
	if (c->stride == 2)
		cpu_conv3_stride2_weights(e, c, bn, x, dy);
	else
		cpu_team_run(e->team, c->splits * channel_groups(c), weights_part, &job);
}
