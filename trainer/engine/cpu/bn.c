/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "engine/cpu/cpu.h"

int cpu_statistics_alloc(struct cpu_engine *e, struct statistics *s, int channels)
{
	float **of_float[] = { &s->mean, &s->var, &s->inverse, &s->offset };
	for (size_t i = 0; i < sizeof of_float / sizeof of_float[0]; i++)
		if (!(*of_float[i] = cpu_alloc(e, (size_t)channels, sizeof(float))))
			return -e->base.error->code;
	s->s1 = cpu_alloc(e, (size_t)channels, sizeof(double));
	s->s2 = s->s1 ? cpu_alloc(e, (size_t)channels, sizeof(double)) : NULL;
	if (channels > e->max_channels)
		e->max_channels = channels;
	return s->s2 ? 0 : -e->base.error->code;
}

int cpu_bn_open(struct cpu_engine *e, struct bn *bn, const struct net_layer *l, const struct statistics *s)
{
	size_t c = (size_t)l->c_in;
	e->bns[l->bn] = bn;
	*bn = (struct bn){ .index = l->bn, .channels = l->c_in, .pixels = l->h_in * l->h_in, .mean = s->mean, .var = s->var };
	bn->v.inverse = s->inverse;
	bn->v.offset = s->offset;
	bn->v.gamma = e->params + param_offset(e, l->weight);
	bn->beta = e->params + param_offset(e, l->bias);
	float *room = cpu_alloc(e, 4 * c, sizeof(float));
	if (!room)
		return -e->base.error->code;
	bn->v.scale = room;
	bn->v.shift = room + c;
	bn->dgamma = room + 2 * c;
	bn->dbeta = room + 3 * c;
	return 0;
}

int cpu_identity_open(struct cpu_engine *e, struct bn *bn, int channels)
{
	size_t c = (size_t)channels;
	float *one = cpu_alloc(e, 2 * c, sizeof(float));
	if (!one)
		return -e->base.error->code;
	float *zero = one + c;
	for (size_t i = 0; i < c; i++)
		one[i] = 1;
	*bn = (struct bn){ .index = -1, .channels = channels, .v = { .scale = one, .shift = zero, .inverse = zero, .offset = zero, .gamma = one } };
	return 0;
}

static float *part(const struct cpu_engine *e, int s)
{
	return e->sums + (size_t)s * 3 * (size_t)e->max_channels;
}

struct moments cpu_moments(const struct cpu_engine *e, int s)
{
	float *p = part(e, s);
	return (struct moments){ p, p + e->max_channels, p + 2 * (size_t)e->max_channels };
}

/* The last of `parts` of n that begins at or before `at`. */
static int part_at(int at, int parts, int n)
{
	return (int)((((long)at + 1) * parts - 1) / n);
}

void cpu_finish(const struct cpu_engine *e, const float *result, ptrdiff_t stride, int channels, int h, size_t at, int pixels, struct acts y)
{
	const int of_image = cpu_parts_of_image(e, h), groups = cpu_parts(e, h) / of_image;
	for (int n; pixels > 0; pixels -= n, at += (size_t)n, result += n * stride) {
		int row = (int)(at / (size_t)h), column = (int)(at % (size_t)h), part = part_at(row / h, groups, e->count) * of_image + part_at(row % h, of_image, h);
		struct moments m = cpu_moments(e, part);
		n = e->training && pixels > h - column ? h - column : pixels;
		e->kernels->at[e->storage].finish(n, channels, result, stride, acts_at(e, y, at), y.stride, e->training ? &m : NULL,
		                                  !column && row == cpu_part_row(e, h, part));
	}
}

void cpu_bn_sums(const struct cpu_engine *e, int s, int from, int to, float **sum, float **dot)
{
	*sum = part(e, s);
	*dot = *sum + e->max_channels;
	memset(*sum + from, 0, (size_t)(to - from) * sizeof(float));
	memset(*dot + from, 0, (size_t)(to - from) * sizeof(float));
}

/* Channels whose sums of all parts are added side by side. */
enum { JOINED = 64 };

void cpu_statistics_finish(struct cpu_engine *e, const struct statistics *s, int at, int channels, int h)
{
	if (!e->training)
		return;
	uint64_t t = profile_start(e->profile);
	int parts = cpu_parts(e, h);
	double total = (double)e->count * h * h;
	for (int from = 0; from < channels; from += JOINED) {
		double mean[JOINED] = { 0 }, square[JOINED] = { 0 };
		int count = channels - from < JOINED ? channels - from : JOINED;
		for (int i = 0; i < parts; i++) {
			struct moments m = cpu_moments(e, i);
			double n = (double)(cpu_part_row(e, h, i + 1) - cpu_part_row(e, h, i)) * h;
			for (int c = 0; c < count; c++)
				mean[c] += (m.sum[from + c] + n * m.shift[from + c]) / total;
		}
		for (int i = 0; i < parts; i++) {
			struct moments m = cpu_moments(e, i);
			double n = (double)(cpu_part_row(e, h, i + 1) - cpu_part_row(e, h, i)) * h;
			for (int c = 0; c < count; c++) {
				double d = mean[c] - m.shift[from + c];
				square[c] += m.square[from + c] - 2 * d * m.sum[from + c] + n * d * d;
			}
		}
		for (int c = 0; c < count; c++) {
			int to = at + from + c;
			double var = square[c] <= 0 ? 0 : square[c] / total, inverse = 1 / sqrt(var + BN_EPSILON);
			s->mean[to] = (float)mean[c];
			s->var[to] = (float)var;
			s->inverse[to] = (float)inverse;
			s->offset[to] = (float)(-mean[c] * inverse);
			s->s1[to] = s->s2[to] = 0;
		}
	}
	profile_add_serial(e->profile, e->threads, WORK_BN, t);
}

void cpu_bn_prepare(struct cpu_engine *e, struct bn *bn)
{
	if (bn->index < 0)
		return;
	uint64_t t = profile_start(e->profile);
	size_t at = e->base.conf.plan->bns[bn->index].offset;
	for (int c = 0; c < bn->channels; c++) {
		double mean = e->training ? bn->mean[c] : e->running_mean[at + (size_t)c];
		double var = e->training ? bn->var[c] : e->running_var[at + (size_t)c];
		double scale = bn->v.gamma[c] / sqrt(var + BN_EPSILON);
		bn->v.scale[c] = (float)scale;
		bn->v.shift[c] = (float)(bn->beta[c] - mean * scale);
	}
	profile_add_serial(e->profile, e->threads, WORK_BN, t);
}

int cpu_bn_finish(struct cpu_engine *e, struct bn *bn, const struct statistics *s, int parts)
{
	if (bn->index < 0)
		return 0;
	const struct net_bn *net = &e->base.conf.plan->bns[bn->index];
	uint64_t t = profile_start(e->profile);
	for (int c = 0; c < bn->channels; c++) {
		double dbeta = 0, dgamma = 0;
		for (int i = 0; i < parts; i++) {
			dbeta += part(e, i)[c];
			dgamma += part(e, i)[e->max_channels + c];
		}
		bn->dbeta[c] = (float)dbeta;
		bn->dgamma[c] = (float)dgamma;
		s->s1[c] += bn->v.gamma[c] * dbeta;
		s->s2[c] += bn->v.gamma[c] * dgamma;
	}
	profile_add_serial(e->profile, e->threads, WORK_BN, t);
	float share = 1 / (float)e->micros;
	int rc = cpu_gradient(e, net->bias, bn->dbeta, share);
	return rc ? rc : cpu_gradient(e, net->weight, bn->dgamma, share);
}

void cpu_correction(struct cpu_engine *e, const struct behind *behind, int channels, int pixels)
{
	const struct statistics *s = behind->statistics;
	float *a = e->coefficients, *b = a + e->max_channels, *c = b + e->max_channels;
	double total = (double)e->count * pixels;
	for (int i = 0; i < channels; i++) {
		int at = behind->at + i;
		double inverse = s->inverse[at], offset = s->offset[at];
		a[i] = (float)(behind->gamma ? behind->gamma[i] * inverse : inverse);
		b[i] = (float)(-inverse * inverse * s->s2[at] / total);
		c[i] = (float)(-inverse * (s->s1[at] + offset * s->s2[at]) / total);
	}
}

void cpu_correct(const struct cpu_engine *e, const struct behind *behind, int pixels, int channels, struct grads g, size_t pixel, struct grads to)
{
	const float *a = e->coefficients, *b = a + e->max_channels, *c = b + e->max_channels;
	struct acts x = acts_slice(e, behind->x, behind->at);
	e->kernels->at[e->storage].correct(pixels, channels, grads_at(g, pixel), acts_at(e, x, pixel), x.stride, a, b, c, to);
}

void cpu_pack_gradient(const struct cpu_engine *e, const struct behind *behind, int pixels, int channels, struct grads g, size_t pixel, float *packed,
                       ptrdiff_t plane)
{
	if (behind)
		cpu_correct(e, behind, pixels, channels, g, pixel, (struct grads){ packed, LANES, plane });
	else
		e->kernels->pack(pixels, channels, grads_at(g, pixel).data, g.stride, packed, plane);
}

struct correction {
	const struct cpu_engine *e;
	const struct behind *behind;
	int channels, pixels;
	struct grads g, to;
};

static void correct_image(void *context, int image, int worker)
{
	const struct correction *j = context;
	size_t pixel = (size_t)image * (size_t)j->pixels;
	uint64_t t = profile_start(j->e->profile);
	cpu_correct(j->e, j->behind, j->pixels, j->channels, j->g, pixel, grads_at(j->to, pixel));
	profile_add(j->e->profile, worker, WORK_BN, t);
}

void cpu_correct_map(struct cpu_engine *e, const struct behind *behind, int channels, int pixels, struct grads g, struct grads to)
{
	struct correction job = { e, behind, channels, pixels, g, to };
	cpu_correction(e, behind, channels, pixels);
	cpu_team_run(e->team, e->count, correct_image, &job);
}

void cpu_statistics_to_slab(struct cpu_engine *e, const struct bn *bn)
{
	const struct net_plan *plan = e->base.conf.plan;
	float *mean = e->slab + e->base.conf.layout->groups[plan->n_params].offset + plan->bns[bn->index].offset;
	float *square = mean + plan->n_bn_channels, share = 1 / (float)e->micros;
	for (int c = 0; c < bn->channels; c++) {
		float m = bn->mean[c] * share, q = (bn->var[c] + bn->mean[c] * bn->mean[c]) * share;
		mean[c] = e->micro ? mean[c] + m : m;
		square[c] = e->micro ? square[c] + q : q;
	}
}
