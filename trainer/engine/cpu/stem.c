/* SPDX-License-Identifier: Apache-2.0
 * 7 x 7 convolution of step 2, BN, ReLU and 3 x 3 maximum of step 2.
 *
 * A gray image counts as three equal channels, so the convolution folds into two: the gray value, and 1 inside the image
 * (0 in the padding, where a normalised channel is 0 too). With g = pixel / 255 - CENTRE:
 *     sum over c of W_c (pixel / 255 - mean_c) / std_c  =  g * sum of W_c / std_c  +  inside * sum of W_c (CENTRE - mean_c) / std_c
 * which is exact, and a third of the work less. CENTRE keeps both terms small. */
#include <string.h>

#include "engine/cpu/cpu.h"

enum { K = 7, PAD = 3, SLACK = 2 * LANES };

#define CENTRE 0.45

/* Where (ky, kx, channel) lies in a packed window. */
static int window_at(const struct stem *s, int ky, int kx, int channel)
{
	return ky * s->rows * LANES + kx * s->channels + channel;
}

static size_t input_count(const struct cpu_engine *e)
{
	size_t side = (size_t)e->base.conf.plan->image_size + 2 * PAD;
	return side * side * (size_t)e->stem.channels + SLACK;
}

int cpu_stem_open(struct cpu_engine *e)
{
	const struct net_plan *plan = e->base.conf.plan;
	const struct net_layer *conv = &plan->layers[0], *bn = &plan->layers[1], *pool = &plan->layers[2];
	struct stem *s = &e->stem;
	s->channels = e->base.conf.channels == 1 ? 2 : 3;
	s->rows = round_up(K * s->channels, LANES) / LANES;
	s->h = conv->h_out;
	struct net_layer flat = *conv;
	flat.k = 1;
	flat.c_in = K * s->rows * LANES;
	size_t pixels = (size_t)e->base.conf.batch * (size_t)s->h * (size_t)s->h;
	s->out.stride = round_up(conv->c_out, LANES);
	s->grad = (struct grads){ NULL, s->out.stride, LANES };
	if (cpu_conv_open(e, &s->conv, &flat, 0) || cpu_statistics_alloc(e, &s->statistics, conv->c_out) ||
	    cpu_bn_open(e, &s->bn, bn, &s->statistics) ||
	    !(s->folded = cpu_alloc(e, (size_t)conv->c_out * (size_t)flat.c_in, sizeof(float))) ||
	    !(s->out.data = cpu_alloc(e, pixels * (size_t)s->out.stride, storage_size(e->storage))) ||
	    !(s->grad.data = cpu_alloc(e, pixels * (size_t)s->grad.stride, sizeof(float))) ||
	    !(s->tap = cpu_alloc(e, (size_t)e->base.conf.batch * (size_t)(pool->h_out * pool->h_out) * (size_t)conv->c_out, 1)))
		return -e->base.error->code;
	cpu_need_scratch(e, input_count(e) + (size_t)s->h * (size_t)(flat.c_in + s->out.stride));
	e->taps[1] = (struct tap){ s->out, NULL };
	e->taps[2] = (struct tap){ s->out, &s->bn };
	return 0;
}

void cpu_stem_pack(struct cpu_engine *e)
{
	struct stem *s = &e->stem;
	const float *w = e->params + param_offset(e, s->conv.param);
	for (int o = 0; o < s->conv.c_out; o++)
		for (int t = 0; t < K * K; t++) {
			float *to = s->folded + (size_t)o * (size_t)s->conv.c_in;
			double gray = 0, inside = 0;
			for (int c = 0; c < 3; c++) {
				double weight = w[(o * 3 + c) * K * K + t];
				gray += weight / image_std[c];
				inside += weight * (CENTRE - image_mean[c]) / image_std[c];
				if (s->channels == 3)
					to[window_at(s, t / K, t % K, c)] = (float)weight;
			}
			if (s->channels == 2) {
				to[window_at(s, t / K, t % K, 0)] = (float)gray;
				to[window_at(s, t / K, t % K, 1)] = (float)inside;
			}
		}
	cpu_pack_panels(e, &s->conv, s->conv.forward, s->folded, s->conv.c_in, s->conv.c_out, 1, (int[1]){ 0 }, 1, s->conv.c_in);
}

/* Lines [from, end) of [image_size + 6][image_size + 6][channels], the border zero. */
static void load_image(const struct cpu_engine *e, int image, int from, int end, float *to)
{
	const struct engine_conf *conf = &e->base.conf;
	const struct augment a = engine_window(conf, e->batch, image);
	int size = conf->plan->image_size, channels = e->stem.channels, side = size + 2 * PAD;
	const uint8_t *pixels = e->batch->pixels + (size_t)image * (size_t)conf->source_size * (size_t)conf->source_size * (size_t)conf->channels;
	float value[3][256];
	for (int v = 0; v < 256; v++)
		for (int c = 0; c < 3; c++)
			value[c][v] = channels == 2 ? (float)(v / 255.0 - CENTRE) : (float)((v / 255.0 - image_mean[c]) / image_std[c]);

	memset(to, 0, ((size_t)(end - from) * (size_t)side * (size_t)channels + SLACK) * sizeof *to);
	for (int y = from - PAD < 0 ? 0 : from - PAD; y < size && y < end - PAD; y++) {
		const uint8_t *row = pixels + ((size_t)(a.y + y) * (size_t)conf->source_size + (size_t)a.x) * (size_t)conf->channels;
		float *line = to + ((size_t)(y + PAD - from) * (size_t)side + PAD) * (size_t)channels;
		for (int x = 0; x < size; x++) {
			const uint8_t *pixel = row + (a.flip ? size - 1 - x : x) * conf->channels;
			if (channels == 2) {
				line[2 * x] = value[0][*pixel];
				line[2 * x + 1] = 1;
				continue;
			}
			for (int c = 0; c < 3; c++)
				line[3 * x + c] = value[c][pixel[c]];
		}
	}
}

/* Windows of output row `row`, packed: a window's row is contiguous in the image. What lies behind it meets zero weights. */
static void pack_row(const struct cpu_engine *e, int row, const float *image, float *packed)
{
	const struct stem *s = &e->stem;
	size_t pitch = ((size_t)e->base.conf.plan->image_size + 2 * PAD) * (size_t)s->channels;
	for (int ky = 0; ky < K; ky++)
		for (int b = 0; b < s->rows; b++) {
			const float *from = image + (size_t)(2 * row + ky) * pitch + b * LANES;
			float *to = packed + (size_t)(ky * s->rows + b) * (size_t)s->h * LANES;
			for (int x = 0; x < s->h; x++)
				memcpy(to + x * LANES, from + 2 * x * s->channels, LANES * sizeof *to);
		}
}

static void convolve_task(void *context, int task, int worker)
{
	static const ptrdiff_t tap[1] = { 0 };
	struct cpu_engine *e = context;
	struct stem *s = &e->stem;
	int h = s->h, end = cpu_task_row(e, h, task + 1);
	float *lines = e->scratch[worker], *packed = lines + input_count(e), *result = packed + h * s->conv.c_in;
	for (int at = cpu_task_row(e, h, task), rows; at < end; at += rows) {
		int first = at % h;
		rows = end - at < h - first ? end - at : h - first;
		load_image(e, at / h, 2 * first, 2 * (first + rows - 1) + K, lines);
		for (int r = 0; r < rows; r++) {
			uint64_t t = profile_start(e->profile);
			pack_row(e, r, lines, packed);
			cpu_multiply(e, &s->conv, s->conv.forward, s->conv.c_out, 1, tap, s->conv.c_in / LANES, h * LANES, packed, h, result, s->out.stride, NULL);
			t = profile_add(e->profile, worker, WORK_FORWARD, t);
			cpu_finish(e, result, s->out.stride, s->conv.c_out, h, (size_t)(at + r) * (size_t)h, h, s->out);
			profile_add(e->profile, worker, WORK_BN, t);
		}
	}
}

static void maxpool_task(void *context, int task, int worker)
{
	struct cpu_engine *e = context;
	struct stem *s = &e->stem;
	const struct joint *to = &e->first;
	int h = s->h, pooled = to->h, c = s->conv.c_out;
	float *result = e->scratch[worker];
	uint64_t t = profile_start(e->profile);
	for (int at = cpu_task_row(e, pooled, task); at < cpu_task_row(e, pooled, task + 1); at++) {
		size_t pixel = (size_t)at * (size_t)pooled;
		e->kernels->at[e->storage].maxpool(h, at % pooled, c, acts_at(e, s->out, (size_t)(at / pooled) * (size_t)(h * h)), s->out.stride, &s->bn.v, result,
		                                   s->out.stride, s->tap + pixel * (size_t)c);
		cpu_finish(e, result, s->out.stride, c, pooled, pixel, pooled, to->x);
	}
	profile_add(e->profile, worker, WORK_POOL, t);
}

void cpu_stem_forward(struct cpu_engine *e)
{
	struct stem *s = &e->stem;
	const struct joint *to = &e->first;
	cpu_team_run(e->team, cpu_tasks(e, s->h), convolve_task, e);
	cpu_statistics_finish(e, &s->statistics, 0, s->conv.c_out, s->h);
	cpu_bn_prepare(e, &s->bn);
	cpu_team_run(e->team, cpu_tasks(e, to->h), maxpool_task, e);
	if (to->statistics)
		cpu_statistics_finish(e, to->statistics, 0, s->conv.c_out, to->h);
}

static struct behind behind_stem(const struct stem *s)
{
	return (struct behind){ &s->statistics, 0, s->bn.v.gamma, s->out };
}

static void weights_part(void *context, int split, int worker)
{
	struct cpu_engine *e = context;
	struct stem *s = &e->stem;
	int h = s->h, out = s->out.stride, blocks = s->conv.c_in / LANES;
	struct behind behind = behind_stem(s);
	float *image = e->scratch[worker], *packed = image + input_count(e), *sums = cpu_weight_sums(e, &s->conv, split);
	memset(sums, 0, (size_t)s->conv.c_in * (size_t)out * sizeof *sums);
	for (int n = part_start(split, s->conv.splits, e->count); n < part_start(split + 1, s->conv.splits, e->count); n++) {
		load_image(e, n, 0, e->base.conf.plan->image_size + 2 * PAD, image);
		for (int row = 0; row < h; row++) {
			size_t pixel = ((size_t)n * (size_t)h + (size_t)row) * (size_t)h;
			struct grads grad = grads_at(s->grad, pixel);
			uint64_t t = profile_start(e->profile);
			cpu_correct(e, &behind, h, s->conv.c_out, s->grad, pixel, grad);
			t = profile_add(e->profile, worker, WORK_BN, t);
			pack_row(e, row, image, packed);
			for (int o = 0; o < out; o += PANEL)
				for (int k = 0; k < blocks; k++)
					e->kernels->outer(h, out - o > LANES ? PANEL : LANES, packed + k * h * LANES, grad.data + o, out, LANES, sums + k * LANES * out + o, out);
			profile_add(e->profile, worker, WORK_WEIGHTS, t);
		}
	}
}

/* Back from the folded channels to torchvision's three; `folded` is free between two passes. */
static int unfold_gradient(struct cpu_engine *e)
{
	struct stem *s = &e->stem;
	float *dw = e->slab + param_offset(e, s->conv.param);
	cpu_weights_reduce(e, &s->conv, s->folded, 1 / (float)e->micros, 0);
	for (int o = 0; o < s->conv.c_out; o++)
		for (int c = 0; c < 3; c++)
			for (int t = 0; t < K * K; t++) {
				const float *from = s->folded + (size_t)o * (size_t)s->conv.c_in;
				float *to = dw + (o * 3 + c) * K * K + t, sum = 0;
				if (s->channels == 3)
					sum = from[window_at(s, t / K, t % K, c)];
				else
					sum = (float)((from[window_at(s, t / K, t % K, 0)] + (CENTRE - image_mean[c]) * from[window_at(s, t / K, t % K, 1)]) / image_std[c]);
				*to = (e->micro ? *to : 0) + sum;
			}
	memset(s->folded, 0, (size_t)s->conv.c_out * (size_t)s->conv.c_in * sizeof *s->folded);
	return cpu_gradient_written(e, s->conv.param);
}

static void unpool_part(void *context, int part, int worker)
{
	struct cpu_engine *e = context;
	struct stem *s = &e->stem;
	const struct joint *to = &e->first;
	int h = s->h, c = s->conv.c_out;
	float *sum, *dot;
	uint64_t t = profile_start(e->profile);
	cpu_bn_sums(e, part, 0, c, &sum, &dot);
	for (int at = cpu_part_row(e, h, part); at < cpu_part_row(e, h, part + 1); at++) {
		size_t pixel = (size_t)(at / h) * (size_t)(h * h), window = (size_t)(at / h) * (size_t)(to->h * to->h);
		e->kernels->at[e->storage].unpool(h, at % h, c, to->g.data + window * (size_t)to->g.stride, to->g.stride, s->tap + window * (size_t)c,
		                                  acts_at(e, s->out, pixel), s->out.stride, &s->bn.v, s->grad.data + pixel * (size_t)s->grad.stride,
		                                  s->grad.stride, sum, dot);
	}
	profile_add(e->profile, worker, WORK_POOL, t);
}

int cpu_stem_backward(struct cpu_engine *e)
{
	struct stem *s = &e->stem;
	cpu_team_run(e->team, cpu_parts(e, s->h), unpool_part, e);
	int rc = cpu_bn_finish(e, &s->bn, &s->statistics, cpu_parts(e, s->h));
	if (rc)
		return rc;
	struct behind behind = behind_stem(s);
	cpu_correction(e, &behind, s->conv.c_out, s->h * s->h);
	rc = cpu_backward_run(e, s->conv.splits, weights_part, e);
	return rc ? rc : unfold_gradient(e);
}
