/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions of step 2 and padding 1. A map is packed as four phases (even or odd row, even or odd column); in its
 * phase, what a tap reads moves by one when the output moves by one, so every tap is again a shifted product:
 *     phase [rows + 1][h_out + 1][16]: even slot s holds input line 2 s, odd slot s holds line 2 s - 1, outside is zero. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum { BAND_FLOATS = 64 << 10 /* of packed input: a quarter of a 1 MiB L2 */, CHANNEL_GROUP = 4 * LANES };

/* Taps of k² that reach an input pixel of each phase, from an output one (or none) further down and right. */
static const struct phase {
	int taps;
	int tap[PHASES], down[PHASES], right[PHASES];
} phases[PHASES] = { /* 2 * odd row + odd column */
	{ 1, { 4 }, { 0 }, { 0 } },
	{ 2, { 3, 5 }, { 0, 0 }, { 1, 0 } },
	{ 2, { 1, 7 }, { 1, 0 }, { 0, 0 } },
	{ 4, { 0, 2, 6, 8 }, { 1, 1, 0, 0 }, { 1, 0, 1, 0 } },
};

/* Output rows [row, row + rows) of an image; pitch floats a packed line, phase a packed phase. */
struct band {
	int row, rows;
	ptrdiff_t pitch, phase;
};

static int band_rows(const struct conv *c, int channels)
{
	int most = BAND_FLOATS / (PHASES * (c->h_out + 1) * channels) - 1;
	return most < 1 ? 1 : most > c->h_out ? c->h_out : most;
}

static struct band band_of(const struct conv *c, int row, int rows)
{
	struct band b = { row, rows < c->h_out - row ? rows : c->h_out - row, (ptrdiff_t)(c->h_out + 1) * LANES, 0 };
	b.phase = (b.rows + 1) * b.pitch;
	return b;
}

size_t cpu_conv3_stride2_scratch(const struct conv *c)
{
	size_t in = (size_t)round_up(c->c_in, LANES), out = (size_t)round_up(c->c_out, LANES), line = (size_t)c->h_out + 1;
	size_t rows = (size_t)band_rows(c, (int)in), backward_rows = (size_t)band_rows(c, (int)out), group_rows = (size_t)band_rows(c, CHANNEL_GROUP);
	size_t forward = PHASES * (rows + 1) * line * in + rows * line * out, backward = (backward_rows + 1) * line * out + line * in;
	size_t weights = (group_rows + 1) * line * (PHASES * CHANNEL_GROUP + out);
	size_t most = forward > backward ? forward : backward;
	return most > weights ? most : weights;
}

/* relu(bn(x)) of `channels` in all phases, PHASES * phase floats a block of channels. */
static void pack_phases(const struct cpu_engine *e, const struct conv *c, const struct band *b, int channels, size_t image, const struct bn_vectors *bn,
                        struct acts x, float *packed)
{
	memset(packed, 0, (size_t)round_up(channels, LANES) / LANES * PHASES * (size_t)b->phase * sizeof *packed);
	for (int phase = 0; phase < PHASES; phase++)
		for (int s = 0; s <= b->rows; s++) {
			int odd_row = phase >> 1, odd_column = phase & 1, y = 2 * (b->row + s) - odd_row;
			if (y < 0 || y >= c->h_in || (!odd_row && s == b->rows))
				continue;
			int pixels = odd_column ? c->h_in / 2 : c->h_out;
			e->kernels->at[e->storage].pack_bn(pixels, channels, acts_at(e, x, image + (size_t)(y * c->h_in + odd_column)), 2 * x.stride, bn,
			                                   packed + phase * b->phase + s * b->pitch + odd_column * LANES, PHASES * b->phase);
		}
}

static void tap_shifts(const struct band *b, ptrdiff_t tap[MAX_TAPS])
{
	for (int t = 0; t < MAX_TAPS; t++) {
		int ky = t / 3, kx = t % 3;
		tap[t] = (2 * (ky != 1) + (kx != 1)) * b->phase + (ky == 2) * b->pitch + (kx == 2) * LANES;
	}
}

/* The gradient's rows from b->row, `rows` of them, each with a zero behind it; rows below the map are zero. */
static void pack_gradient(const struct cpu_engine *e, const struct conv *c, const struct band *b, int rows, size_t image, struct grads dy, float *packed)
{
	ptrdiff_t plane = rows * b->pitch;
	for (int r = 0; r < rows; r++)
		for (int k = 0; k < round_up(c->c_out, LANES) / LANES; k++)
			memset(packed + k * plane + r * b->pitch, 0, (size_t)b->pitch * sizeof *packed);
	for (int r = 0; r < rows && b->row + r < c->h_out; r++)
		e->kernels->pack(c->h_out, c->c_out, dy.data + (image + (size_t)((b->row + r) * c->h_out)) * (size_t)dy.stride, dy.stride, packed + r * b->pitch,
		                 plane);
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
	int parts = cpu_splits(e), in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), h = c->h_out, rows = band_rows(c, in), first = 1;
	struct moments m = cpu_moments(e, part);
	for (int n = part_start(part, parts, e->count); n < part_start(part + 1, parts, e->count); n++)
		for (int row = 0; row < h; row += rows, first = 0) {
			struct band b = band_of(c, row, rows);
			float *packed = e->scratch[worker], *result = packed + b.phase * PHASES * (in / LANES);
			ptrdiff_t tap[MAX_TAPS];
			tap_shifts(&b, tap);
			pack_phases(e, c, &b, c->c_in, (size_t)n * (size_t)(c->h_in * c->h_in), &j->bn->v, j->x, packed);
			for (int r = 0; r < b.rows; r++)
				cpu_multiply(e, c->forward, c->c_out, MAX_TAPS, tap, in / LANES, PHASES * b.phase, packed + r * b.pitch, h, result + r * h * out, out);
			e->kernels->at[e->storage].finish(b.rows * h, c->c_out, result, out, acts_at(e, j->y, (size_t)n * (size_t)(h * h) + (size_t)(row * h)),
			                                  j->y.stride, e->training ? &m : NULL, first);
		}
}

void cpu_conv3_stride2_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .y = y };
	cpu_team_run(e->team, cpu_splits(e), forward_part, &job);
}

void cpu_conv3_stride2_pack(const struct conv *c, const float *w)
{
	size_t tap = (size_t)round_up(c->c_in, LANES) * (size_t)round_up(c->c_out, LANES), taps = 0;
	for (int p = 0; p < PHASES; p++) {
		cpu_pack_panels(c->backward + taps * tap, w, c->c_out, c->c_in, phases[p].taps, phases[p].tap, (ptrdiff_t)c->c_in * MAX_TAPS, MAX_TAPS);
		taps += (size_t)phases[p].taps;
	}
}

/* The gradient of one input row's pixels of one phase, from the packed gradient `packed` of output row r of the band and the next. */
static void backward_row(const struct job *j, const struct band *b, size_t image, int r, const float *packed, float *result, float *sum, float *dot)
{
	const struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES);
	const float *panels = c->backward;
	for (int p = 0; p < PHASES; p++) {
		int y = 2 * (b->row + r) + (p >> 1), pixels = p & 1 ? c->h_in / 2 : c->h_out;
		ptrdiff_t tap[PHASES];
		for (int t = 0; t < phases[p].taps; t++)
			tap[t] = phases[p].down[t] * b->pitch + phases[p].right[t] * LANES;
		if (y < c->h_in && pixels) {
			size_t pixel = image + (size_t)(y * c->h_in + (p & 1));
			struct grads to = grads_at(j->g, pixel);
			to.stride *= 2;
			cpu_multiply(e, panels, c->c_in, phases[p].taps, tap, out / LANES, (b->rows + 1) * b->pitch, packed + r * b->pitch, pixels, result, in);
			e->kernels->at[e->storage].bn_backward(pixels, c->c_in, result, in, acts_at(e, j->x, pixel), 2 * j->x.stride, &j->bn->v, NULL, 0, to, sum,
			                                       dot);
		}
		panels += (size_t)phases[p].taps * (size_t)in * (size_t)out;
	}
}

static void backward_part(void *context, int part, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int parts = cpu_splits(e), out = round_up(c->c_out, LANES), rows = band_rows(c, out);
	float *sum, *dot;
	cpu_bn_sums(e, part, c->c_in, &sum, &dot);
	for (int n = part_start(part, parts, e->count); n < part_start(part + 1, parts, e->count); n++)
		for (int row = 0; row < c->h_out; row += rows) {
			struct band b = band_of(c, row, rows);
			float *packed = e->scratch[worker], *result = packed + (b.rows + 1) * b.pitch * (out / LANES);
			pack_gradient(e, c, &b, b.rows + 1, (size_t)n * (size_t)(c->h_out * c->h_out), j->dy, packed);
			for (int r = 0; r < b.rows; r++)
				backward_row(j, &b, (size_t)n * (size_t)(c->h_in * c->h_in), r, packed, result, sum, dot);
		}
}

void cpu_conv3_stride2_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, struct acts x, struct grads g)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy, .g = g };
	cpu_team_run(e->team, cpu_splits(e), backward_part, &job);
}

static int channel_groups(const struct conv *c)
{
	return (c->c_in + CHANNEL_GROUP - 1) / CHANNEL_GROUP;
}

/* What lies behind a row of the gradient is zero, so a band's rows are summed as one run. */
static void weights_part(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), rows = band_rows(c, CHANNEL_GROUP);
	int split = task / channel_groups(c), channel = task % channel_groups(c) * CHANNEL_GROUP;
	int channels = c->c_in - channel < CHANNEL_GROUP ? c->c_in - channel : CHANNEL_GROUP, blocks = round_up(channels, LANES) / LANES;
	float *sums = cpu_weight_sums(e, c, split) + (size_t)channel * (size_t)out;
	for (int t = 0; t < MAX_TAPS; t++)
		memset(sums + (size_t)t * (size_t)in * (size_t)out, 0, (size_t)blocks * LANES * (size_t)out * sizeof *sums);
	struct bn_vectors v = { j->bn->v.scale + channel, j->bn->v.shift + channel, NULL, NULL, NULL };
	for (int n = part_start(split, c->splits, e->count); n < part_start(split + 1, c->splits, e->count); n++)
		for (int row = 0; row < c->h_out; row += rows) {
			struct band b = band_of(c, row, rows);
			float *values = e->scratch[worker], *grads = values + b.phase * PHASES * blocks;
			ptrdiff_t tap[MAX_TAPS], plane = b.rows * b.pitch;
			tap_shifts(&b, tap);
			pack_phases(e, c, &b, channels, (size_t)n * (size_t)(c->h_in * c->h_in), &v, acts_slice(e, j->x, channel), values);
			pack_gradient(e, c, &b, b.rows, (size_t)n * (size_t)(c->h_out * c->h_out), j->dy, grads);
			for (int o = 0; o < out; o += PANEL)
				for (int k = 0; k < blocks; k++)
					for (int t = 0; t < MAX_TAPS; t++)
						e->kernels->outer(b.rows * (c->h_out + 1) - 1, out - o > LANES ? PANEL : LANES, values + k * PHASES * b.phase + tap[t],
						                  grads + o / LANES * plane, LANES, plane,
						                  sums + ((size_t)t * (size_t)in + (size_t)k * LANES) * (size_t)out + o, out);
		}
}

void cpu_conv3_stride2_weights(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct grads dy)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy };
	cpu_team_run(e->team, c->splits * channel_groups(c), weights_part, &job);
}
