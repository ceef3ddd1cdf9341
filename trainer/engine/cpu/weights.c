/* SPDX-License-Identifier: Apache-2.0
 * Panels of weights, products with them, and the sums of a weight gradient. */
#include "engine/cpu/cpu.h"

/* More image groups mean more parallel work and more memory to add up: 1 MiB a convolution costs about 2 % of a step. */
enum { WEIGHT_SUMS_LIMIT = 1 << 18 /* floats */ };

/* Floats of one image group's weight gradient. */
static size_t sums_count(const struct conv *c)
{
	return (size_t)(c->k * c->k) * (size_t)round_up(c->c_in, LANES) * (size_t)round_up(c->c_out, LANES);
}

void cpu_weights_split(struct cpu_engine *e, struct conv *c)
{
	for (c->splits = 1; 2 * c->splits <= e->base.conf.batch && 2 * c->splits <= MAX_GRAD_SPLITS &&
	                    2 * (size_t)c->splits * sums_count(c) <= WEIGHT_SUMS_LIMIT;)
		c->splits *= 2;
	size_t sums = (size_t)c->splits * sums_count(c);
	e->weight_sums_count = sums > e->weight_sums_count ? sums : e->weight_sums_count;
}

size_t cpu_panels_count(const struct conv *c, int rows, int cols, int taps)
{
	size_t deep = (size_t)round_up(rows, c->tiles ? AMX_DEPTH : LANES), count = (size_t)taps * deep * (size_t)round_up(cols, LANES);
	return c->tiles ? count / 2 : count;
}

/* Columns of 16 side by side, 32 rows in each, from which pair() makes a tile. */
static void pack_tiles(const struct cpu_engine *e, float *to, const float *w, int rows, int cols, int taps, const int *order, ptrdiff_t row_stride,
                       ptrdiff_t col_stride)
{
	for (int panel = 0; panel < cols; panel += PANEL)
		for (int t = 0; t < taps; t++)
			for (int k = 0; k < rows; k += AMX_DEPTH)
				for (int column = panel; column < cols && column < panel + PANEL; column += LANES, to += AMX_TILE / 2) {
					float tile[AMX_DEPTH][LANES] = { 0 };
					int height = rows - k < AMX_DEPTH ? rows - k : AMX_DEPTH, width = cols - column < LANES ? cols - column : LANES;
					for (int r = 0; r < height; r++)
						for (int j = 0; j < width; j++)
							tile[r][j] = w[(k + r) * row_stride + (column + j) * col_stride + order[t]];
					e->amx->pair(AMX_DEPTH, tile[0], (uint16_t *)to);
				}
}

void cpu_pack_panels(const struct cpu_engine *e, const struct conv *c, float *to, const float *w, int rows, int cols, int taps, const int *order,
                     ptrdiff_t row_stride, ptrdiff_t col_stride)
{
	if (c->tiles) {
		pack_tiles(e, to, w, rows, cols, taps, order, row_stride, col_stride);
		return;
	}
	for (int panel = 0; panel < cols; panel += PANEL) {
		int width = cols - panel > LANES ? PANEL : LANES, used = cols - panel < width ? cols - panel : width;
		for (int t = 0; t < taps; t++) {
			for (int r = 0; r < rows; r++, to += width)
				for (int j = 0; j < used; j++)
					to[j] = w[r * row_stride + (panel + j) * col_stride + order[t]];
			to += (round_up(rows, LANES) - rows) * width;
		}
	}
}

/* Rows [from, to) are on their way to the second cache. */
static void ask(const struct ahead *ahead, int from, int to)
{
	for (int i = 0; i < 2; i++)
		for (int r = from; r < to; r++)
			for (size_t b = 0; b < ahead->array[i].bytes; b += 64)
				__builtin_prefetch((const char *)ahead->array[i].at + (size_t)r * ahead->array[i].stride + b, 0, 2);
}

void cpu_multiply(const struct cpu_engine *e, const struct conv *c, const float *panels, int cols, int taps, const ptrdiff_t *tap, int blocks, ptrdiff_t plane,
                  const float *a, int pixels, float *out, int out_stride, const struct ahead *ahead)
{
	int most = c->tiles ? 2 * AMX_ROWS : TILE_ROWS, tiles = (pixels + most - 1) / most, all = tiles * ((cols + PANEL - 1) / PANEL), done = 0;
	for (int panel = 0; panel < cols; panel += PANEL) {
		int width = cols - panel > LANES ? PANEL : LANES;
		for (int i = 0; i < tiles; i++) {
			int from = c->tiles ? i * most : part_start(i, tiles, pixels);
			if (ahead)
				ask(ahead, part_start(done, all, ahead->rows), part_start(done + 1, all, ahead->rows));
			done++;
			const float *at = a + (size_t)from * LANES;
			float *to = out + (size_t)from * (size_t)out_stride + panel;
			if (c->tiles)
				e->amx->multiply(pixels - from > AMX_ROWS ? most : AMX_ROWS, width, taps, tap, (blocks + 1) / 2, plane, at, panels, to, out_stride);
			else
				e->kernels->multiply(part_start(i + 1, tiles, pixels) - from, width, taps, tap, blocks, plane, at, panels, to, out_stride);
		}
		panels += cpu_panels_count(c, blocks * LANES, width, taps);
	}
}

int cpu_ranges(const struct cpu_engine *e, const struct conv *c)
{
	int tasks = e->threads > 1 ? 2 * e->threads : 1, most = (c->c_in + PANEL - 1) / PANEL, ranges = (tasks + c->splits - 1) / c->splits;
	return ranges < most ? ranges : most;
}

int cpu_range_start(const struct conv *c, int range, int ranges)
{
	int channel = PANEL * part_start(range, ranges, (c->c_in + PANEL - 1) / PANEL);
	return channel < c->c_in ? channel : c->c_in;
}

float *cpu_weight_sums(const struct cpu_engine *e, const struct conv *c, int split)
{
	return e->weight_sums[e->sums_at] + (size_t)split * sums_count(c);
}

struct reduction {
	const struct cpu_engine *e;
	const struct conv *c;
	const float *sums;
	float *to, scale;
	int add;
};

/* Input channels of one task. */
enum { REDUCED = 4 * LANES };

static int reductions(const struct conv *c)
{
	return round_up(c->c_out, LANES) / LANES * ((c->c_in + REDUCED - 1) / REDUCED);
}

/* 16 outputs of REDUCED inputs. */
static void reduce(void *context, int task, int worker)
{
	const struct reduction *j = context;
	const struct conv *c = j->c;
	int taps = c->k * c->k, in = round_up(c->c_in, LANES), out = round_up(c->c_out, LANES), block = task % (out / LANES) * LANES;
	int from_channel = task / (out / LANES) * REDUCED, to_channel = from_channel + REDUCED < c->c_in ? from_channel + REDUCED : c->c_in;
	int outputs = c->c_out - block < LANES ? c->c_out - block : LANES;
	size_t part = sums_count(c);
	uint64_t start = profile_start(j->e->profile);
	for (int ch = from_channel; ch < to_channel; ch += LANES) {
		int inputs = to_channel - ch < LANES ? to_channel - ch : LANES;
		for (int t = 0; t < taps; t++) {
			float sum[LANES][LANES] = { 0 };
			const float *from = j->sums + ((size_t)t * (size_t)in + (size_t)ch) * (size_t)out + (size_t)block;
			for (int s = 0; s < c->splits; s++, from += part)
				for (int i = 0; i < inputs; i++)
					for (int o = 0; o < LANES; o++)
						sum[i][o] += from[i * out + o];
			float *to = j->to + ((size_t)block * (size_t)c->c_in + (size_t)ch) * (size_t)taps + t;
			for (int o = 0; o < outputs; o++, to += c->c_in * taps)
				for (int i = 0; i < inputs; i++)
					to[i * taps] = (j->add ? to[i * taps] : 0) + sum[i][o] * j->scale;
		}
	}
	profile_add(j->e->profile, worker, WORK_REORDER, start);
}

void cpu_weights_reduce(const struct cpu_engine *e, const struct conv *c, float *to, float scale, int add)
{
	struct reduction job = { e, c, e->weight_sums[e->sums_at], to, scale, add };
	cpu_team_run(e->team, reductions(c), reduce, &job);
}

int cpu_weights_finish(struct cpu_engine *e, const struct conv *c)
{
	int rc = cpu_weights_settle(e);
	e->owed = c;
	e->sums_at = !e->sums_at;
	return rc;
}

/* A loop of two kinds of task, the large ones first. */
struct run {
	int count;
	cpu_task task;
	void *context;
	struct reduction reduction;
};

static void run_task(void *context, int task, int worker)
{
	struct run *r = context;
	if (task < r->count)
		r->task(r->context, task, worker);
	else
		reduce(&r->reduction, task - r->count, worker);
}

int cpu_backward_run(struct cpu_engine *e, int count, cpu_task task, void *context)
{
	const struct conv *c = e->owed;
	if (!c) {
		cpu_team_run(e->team, count, task, context);
		return 0;
	}
	struct run run = { count, task, context,
		           { e, c, e->weight_sums[!e->sums_at], e->slab + param_offset(e, c->param), 1 / (float)e->micros, e->micro > 0 } };
	cpu_team_run(e->team, count + reductions(c), run_task, &run);
	e->owed = NULL;
	return cpu_gradient_written(e, c->param);
}

int cpu_weights_settle(struct cpu_engine *e)
{
	return cpu_backward_run(e, 0, NULL, NULL);
}
