/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions of padding 1. A band of output rows of one image is packed so that every tap is the same product shifted by a
 * constant. At step 1 that takes a border of zeros. At step 2 a map is packed as four phases (even or odd row, even or odd column): in
 * its phase, what a tap reads moves by one when the output moves by one:
 *     phase [rows + 1][h_out + 1][16]: even slot s holds input line 2 s, odd slot s holds line 2 s - 1, outside is zero. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum {
	BAND_FLOATS = 96 << 10,                /* of what is packed: three eighths of a 1 MiB L2 */
	CHANNEL_GROUP = 4 * LANES,             /* input channels that backward takes at a time */
	RESULT_STRIDE = CHANNEL_GROUP + LANES, /* no power of 2, of which a cache holds few lines */
	RUN = 64                               /* pixels whose products for all taps stay in a 48 KiB L1 */
};

/* Input pixels that the same taps reach, from an output that lies `down` and `right` of the first one in the packed gradient. */
struct phase {
	int taps;
	int tap[MAX_TAPS], down[MAX_TAPS], right[MAX_TAPS];
};

static const struct phase whole = { 9, { 0, 1, 2, 3, 4, 5, 6, 7, 8 }, { 2, 2, 2, 1, 1, 1, 0, 0, 0 }, { 2, 1, 0, 2, 1, 0, 2, 1, 0 } };
static const struct phase quarter[PHASES] = { /* 2 * odd row + odd column */
	{ 1, { 4 }, { 0 }, { 0 } },
	{ 2, { 3, 5 }, { 0, 0 }, { 1, 0 } },
	{ 2, { 1, 7 }, { 1, 0 }, { 0, 0 } },
	{ 4, { 0, 2, 6, 8 }, { 1, 1, 0, 0 }, { 1, 0, 1, 0 } },
};

static const struct phase *phases_of(const struct conv *c)
{
	return c->stride == 2 ? quarter : &whole;
}

static int phase_count(const struct conv *c)
{
	return c->stride == 2 ? PHASES : 1;
}

/* Zeros before a packed gradient's first line and pixel; there is always one line and pixel of them behind. */
static int border(const struct conv *c)
{
	return c->stride == 1;
}

/* Output rows [row, row + rows) of an image. */
struct band {
	int row, rows;
	ptrdiff_t pitch, plane;  /* floats a packed line; a block of channels of one phase or of the gradient */
	ptrdiff_t tap[MAX_TAPS]; /* where a tap's value lies, from the place of the output pixel */
};

/* Most rows of a band of which this many floats are packed for each pixel: it stays in cache. */
static int band_most(const struct conv *c, int floats)
{
	int ends = border(c) + 1, most = BAND_FLOATS / ((c->h_out + ends) * floats) - ends;
	return most < 1 ? 1 : most > c->h_out ? c->h_out : most;
}

/* The first of the bands of about one size that `rows` are cut into. */
static int band_rows(int rows, int most)
{
	int bands = (rows + most - 1) / most;
	return (rows + bands - 1) / bands;
}

static struct band band_of(const struct conv *c, int row, int rows)
{
	struct band b = { .row = row, .rows = rows < c->h_out - row ? rows : c->h_out - row };
	b.pitch = (ptrdiff_t)(c->h_out + border(c) + 1) * LANES;
	b.plane = (b.rows + border(c) + 1) * b.pitch;
	for (int t = 0; t < MAX_TAPS; t++) {
		int ky = t / 3, kx = t % 3;
		if (c->stride == 1)
			b.tap[t] = ky * b.pitch + kx * LANES;
		else
			b.tap[t] = (2 * (ky != 1) + (kx != 1)) * b.plane + (ky == 2) * b.pitch + (kx == 2) * LANES;
	}
	return b;
}

static int forward_most(const struct conv *c)
{
	return band_most(c, phase_count(c) * round_up(c->c_in, LANES));
}

static int backward_rows(const struct conv *c)
{
	return band_rows(c->h_out, band_most(c, phase_count(c) * CHANNEL_GROUP + round_up(c->c_out, LANES)));
}

/* Output pixels of a band with the border between its lines: the gradient's border is zero, so they are summed as one run. */
static int run_of(const struct conv *c, const struct band *b)
{
	return b->rows * (int)(b->pitch / LANES) - border(c) - 1;
}

static struct tile_room tile_room_of(const struct conv *c, const struct band *b, float *at)
{
	return cpu_tile_room(c, run_of(c, b), CHANNEL_GROUP, phase_count(c) * (int)(b->plane / LANES), at);
}

size_t cpu_conv3_scratch(const struct conv *c)
{
	struct band f = band_of(c, 0, forward_most(c)), b = band_of(c, 0, backward_rows(c));
	size_t in = (size_t)round_up(c->c_in, LANES), out = (size_t)round_up(c->c_out, LANES), phases = (size_t)phase_count(c), h = (size_t)c->h_out;
	size_t spare = c->tiles ? AMX_ROWS - 1 : 0; /* pixels that a multiplication may write behind the last */
	size_t forward = phases * (size_t)f.plane * in / LANES + ((size_t)f.rows * h + spare) * out;
	size_t backward = (size_t)b.plane * (phases * CHANNEL_GROUP + out) / LANES + (h + spare) * RESULT_STRIDE + tile_room_of(c, &b, NULL).floats;
	return forward > backward ? forward : backward;
}

/* Zeros around the pixels of one packed line, or in place of a line outside the map. */
static void clear_line(const struct band *b, int blocks, int before, int inside, float *line)
{
	for (int k = 0; k < blocks; k++, line += b->plane) {
		memset(line, 0, (size_t)(inside ? before * LANES : b->pitch) * sizeof *line);
		memset(line + b->pitch - LANES, 0, LANES * sizeof *line);
	}
}

/* relu(bn(x)) of `channels` with a border. */
static void pack_bordered(const struct cpu_engine *e, const struct conv *c, const struct band *b, int channels, size_t image, const struct bn_vectors *bn,
                          struct acts x, float *packed)
{
	for (int r = -1; r <= b->rows; r++) {
		int y = b->row + r, inside = y >= 0 && y < c->h_in;
		float *line = packed + (r + 1) * b->pitch;
		clear_line(b, round_up(channels, LANES) / LANES, 1, inside, line);
		if (inside)
			e->kernels->at[e->storage].pack_bn(c->h_in, channels, acts_at(e, x, image + (size_t)(y * c->h_in)), x.stride, bn, line + LANES, b->plane);
	}
}

/* The same in all phases, PHASES * plane floats a block of channels. */
static void pack_phases(const struct cpu_engine *e, const struct conv *c, const struct band *b, int channels, size_t image, const struct bn_vectors *bn,
                        struct acts x, float *packed)
{
	memset(packed, 0, (size_t)round_up(channels, LANES) / LANES * PHASES * (size_t)b->plane * sizeof *packed);
	for (int phase = 0; phase < PHASES; phase++)
		for (int s = 0; s <= b->rows; s++) {
			int odd_row = phase >> 1, odd_column = phase & 1, y = 2 * (b->row + s) - odd_row;
			if (y < 0 || y >= c->h_in || (!odd_row && s == b->rows))
				continue;
			int pixels = odd_column ? c->h_in / 2 : c->h_out;
			e->kernels->at[e->storage].pack_bn(pixels, channels, acts_at(e, x, image + (size_t)(y * c->h_in + odd_column)), 2 * x.stride, bn,
			                                   packed + phase * b->plane + s * b->pitch + odd_column * LANES, PHASES * b->plane);
		}
}

static void pack_values(const struct cpu_engine *e, const struct conv *c, const struct band *b, int channels, int n, const struct bn_vectors *bn,
                        struct acts x, float *packed)
{
	size_t image = (size_t)n * (size_t)(c->h_in * c->h_in);
	(c->stride == 2 ? pack_phases : pack_bordered)(e, c, b, channels, image, bn, x, packed);
}

/* The gradient with its border, corrected. */
static void pack_gradient(const struct cpu_engine *e, const struct conv *c, const struct band *b, int n, const struct behind *behind, struct grads dy,
                          float *packed)
{
	size_t image = (size_t)n * (size_t)(c->h_out * c->h_out);
	for (int r = -border(c); r <= b->rows; r++) {
		int y = b->row + r, inside = y >= 0 && y < c->h_out;
		float *line = packed + (r + border(c)) * b->pitch;
		clear_line(b, round_up(c->c_out, LANES) / LANES, border(c), inside, line);
		if (inside)
			cpu_pack_gradient(e, behind, c->h_out, c->c_out, dy, image + (size_t)(y * c->h_out), line + border(c) * LANES, b->plane);
	}
}

/* One product over the batch; a field is set where the product has it. */
struct job {
	struct cpu_engine *e;
	const struct conv *c;
	const struct bn *bn;
	struct acts x, y;
	struct grads dy, g;
	const struct behind *behind;
	int ranges;
};

static void forward_task(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int blocks = round_up(c->c_in, LANES) / LANES, out = round_up(c->c_out, LANES), h = c->h_out;
	int end = cpu_task_row(e, h, task + 1);
	cpu_tiles_begin(e, c);
	for (int at = cpu_task_row(e, h, task), rows; at < end; at += rows) {
		int image = at / h, row = at % h, left = end - at < h - row ? end - at : h - row;
		rows = band_rows(left, forward_most(c));
		struct band b = band_of(c, row, rows);
		ptrdiff_t plane = phase_count(c) * b.plane;
		float *packed = e->scratch[worker], *result = packed + plane * blocks;
		struct grads map = { packed, LANES, plane };
		uint64_t t = profile_start(e->profile);
		pack_values(e, c, &b, c->c_in, image, &j->bn->v, j->x, packed);
		t = profile_add(e->profile, worker, WORK_BN, t);
		cpu_narrow(e, c, (int)(plane / LANES), c->c_in, map, map);
		for (int r = 0; r < rows; r++)
			cpu_multiply(e, c, c->forward, c->c_out, MAX_TAPS, b.tap, blocks, plane, packed + r * b.pitch, h, result + r * h * out, out, NULL);
		t = profile_add(e->profile, worker, WORK_FORWARD, t);
		cpu_finish(e, result, out, c->c_out, h, (size_t)at * (size_t)h, rows * h, j->y);
		profile_add(e->profile, worker, WORK_BN, t);
	}
	cpu_tiles_end(e, c);
}

void cpu_conv3_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .y = y };
	cpu_team_run(e->team, cpu_tasks(e, c->h_out), forward_task, &job);
	cpu_statistics_finish(e, s, at, c->c_out, c->h_out);
}

void cpu_conv3_pack_backward(const struct cpu_engine *e, const struct conv *c, const float *w)
{
	const struct phase *phase = phases_of(c);
	float *to = c->backward;
	for (int p = 0; p < phase_count(c); to += cpu_panels_count(c, c->c_out, c->c_in, phase[p++].taps))
		cpu_pack_panels(e, c, to, w, c->c_out, c->c_in, phase[p].taps, phase[p].tap, (ptrdiff_t)c->c_in * MAX_TAPS, MAX_TAPS);
}

/* The gradient of a band's first output pixel. */
static struct grads first_of(const struct conv *c, const struct band *b, float *grads)
{
	return (struct grads){ grads + border(c) * (b->pitch + LANES), LANES, b->plane };
}

static void add_weights(const struct cpu_engine *e, const struct conv *c, const struct band *b, int channels, const float *values, float *grads,
                        const struct tile_room *room, float *sums)
{
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), run = run_of(c, b);
	const float *first = first_of(c, b, grads).data;
	if (c->tiles) {
		ptrdiff_t plane = phase_count(c) * b->plane;
		cpu_tile_weights(e, c, room, run, MAX_TAPS, b->tap, channels, (int)(plane / LANES), values, plane, sums, (size_t)in * (size_t)out);
		return;
	}
	for (int o = 0; o < out; o += PANEL)
		for (int k = 0; k < round_up(channels, LANES) / LANES; k++)
			for (int p = 0; p < run; p += RUN)
				for (int t = 0; t < MAX_TAPS; t++)
					e->kernels->outer(run - p < RUN ? run - p : RUN, out - o > LANES ? PANEL : LANES,
					                  values + k * phase_count(c) * b->plane + b->tap[t] + p * LANES, first + o / LANES * b->plane + p * LANES, LANES, b->plane,
					                  sums + ((size_t)t * (size_t)in + (size_t)k * LANES) * (size_t)out + o, out);
}

/* The data gradient of a group of channels where the band's row r is: one input row, or two at step 2. */
static void backward_row(const struct job *j, const struct band *b, int n, int r, int channel, int channels, const float *packed, float *result,
                         float *sum, float *dot, int worker)
{
	const struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int out = round_up(c->c_out, LANES);
	struct bn_vectors v = bn_slice(&j->bn->v, channel);
	const float *panels = c->backward;
	for (int p = 0; p < phase_count(c); p++) {
		const struct phase *phase = &phases_of(c)[p];
		int y = c->stride * (b->row + r) + (p >> 1), pixels = p & 1 ? c->h_in / 2 : c->h_out;
		ptrdiff_t tap[MAX_TAPS];
		for (int t = 0; t < phase->taps; t++)
			tap[t] = phase->down[t] * b->pitch + phase->right[t] * LANES;
		if (y < c->h_in) {
			size_t pixel = (size_t)n * (size_t)(c->h_in * c->h_in) + (size_t)(y * c->h_in + (p & 1));
			struct grads to = grads_at(j->g, pixel);
			to.data += channel / LANES * to.plane;
			to.stride *= c->stride;
			uint64_t t = profile_start(e->profile);
			cpu_multiply(e, c, panels + cpu_panels_count(c, c->c_out, channel, phase->taps), channels, phase->taps, tap, out / LANES, b->plane,
			             packed + r * b->pitch, pixels, result, RESULT_STRIDE, NULL);
			t = profile_add(e->profile, worker, WORK_DATA, t);
			e->kernels->at[e->storage].bn_backward(pixels, channels, result, RESULT_STRIDE, acts_at(e, acts_slice(e, j->x, channel), pixel),
			                                       c->stride * j->x.stride, &v, NULL, 0, to, sum, dot, NULL, 0);
			profile_add(e->profile, worker, WORK_BN, t);
		}
		panels += cpu_panels_count(c, c->c_out, c->c_in, phase->taps);
	}
}

/* One group of images and one range of channels. */
static void backward_part(void *context, int task, int worker)
{
	const struct job *j = context;
	struct cpu_engine *e = j->e;
	const struct conv *c = j->c;
	int split = task / j->ranges, from = cpu_range_start(c, task % j->ranges, j->ranges), to = cpu_range_start(c, task % j->ranges + 1, j->ranges);
	int in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), rows = backward_rows(c);
	float *sums = cpu_weight_sums(e, c, split), *sum, *dot;
	for (int t = 0; t < MAX_TAPS; t++)
		memset(sums + (size_t)(t * in + from) * (size_t)out, 0, (size_t)round_up(to - from, LANES) * (size_t)out * sizeof *sums);
	cpu_bn_sums(e, split, from, to, &sum, &dot);
	cpu_tiles_begin(e, c);
	for (int n = part_start(split, c->splits, e->count); n < part_start(split + 1, c->splits, e->count); n++)
		for (int row = 0; row < c->h_out; row += rows) {
			struct band b = band_of(c, row, rows);
			float *grads = e->scratch[worker], *values = grads + b.plane * (out / LANES);
			float *result = values + phase_count(c) * b.plane * (CHANNEL_GROUP / LANES);
			struct grads gradient = { grads, LANES, b.plane };
			struct tile_room room = tile_room_of(c, &b, result + (c->h_out + AMX_ROWS - 1) * RESULT_STRIDE);
			uint64_t t = profile_start(e->profile);
			pack_gradient(e, c, &b, n, j->behind, j->dy, grads);
			cpu_tile_gradient(e, c, &room, run_of(c, &b), first_of(c, &b, grads));
			cpu_narrow(e, c, (int)(b.plane / LANES), c->c_out, gradient, gradient);
			profile_add(e->profile, worker, WORK_BN, t);
			for (int channel = from; channel < to; channel += CHANNEL_GROUP) {
				int channels = to - channel < CHANNEL_GROUP ? to - channel : CHANNEL_GROUP;
				struct bn_vectors v = bn_slice(&j->bn->v, channel);
				t = profile_start(e->profile);
				pack_values(e, c, &b, channels, n, &v, acts_slice(e, j->x, channel), values);
				t = profile_add(e->profile, worker, WORK_BN, t);
				add_weights(e, c, &b, channels, values, grads, &room, sums + (size_t)channel * (size_t)out);
				profile_add(e->profile, worker, WORK_WEIGHTS, t);
				for (int r = 0; r < b.rows; r++)
					backward_row(j, &b, n, r, channel, channels, grads, result, sum + channel, dot + channel, worker);
			}
		}
	cpu_tiles_end(e, c);
}

int cpu_conv3_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, const struct behind *behind, struct acts x,
                       struct grads g)
{
	struct job job = { .e = e, .c = c, .bn = bn, .x = x, .dy = dy, .g = g, .behind = behind, .ranges = cpu_ranges(e, c) };
	if (behind)
		cpu_correction(e, behind, c->c_out, c->h_out * c->h_out);
	return cpu_backward_run(e, c->splits * job.ranges, backward_part, &job);
}
