/* SPDX-License-Identifier: Apache-2.0
 * Each fused operation of the CPU engine against fp64 on the shapes of DenseNet-121 at 224 x 224: relative L2 below 1e-5, and forward
 * below 3e-7. Products added one after the other have 4e-7 where there are a thousand, and every error forward flips some of ReLU's
 * decisions, of which a net's gradients change by jumps (trainer/BENCHMARKS.md). */
#include <math.h>

#include "engine/cpu/cpu.h"
#include "engine/reference/fp64.h"
#include "test.h"

enum { BATCH = 2 };

static const double limit = 1e-5, forward_limit = 3e-7;

static struct net_plan plan;
static struct engine_layout layout;
static struct error error;
static struct cpu_engine *e;
static uint64_t noise_state = 3;

static double noise(void) /* uniform, mean 0.2, deviation 0.58 */
{
	noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(noise_state >> 40) / 0x1p23 - 0.8;
}

static int open_densenet121(void **state)
{
	(void)state;
	net_plan_make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = 224, .classes = 14 }, &error);
	engine_layout_make(&layout, &plan, &error);
	struct engine_conf conf = { .plan = &plan, .layout = &layout, .batch = BATCH, .channels = 1, .source_size = 224, .threads = 2 };
	struct engine *engine = NULL;
	engine_open(&engine, ENGINE_CPU, &conf, &error);
	if (!engine)
		return -1;
	e = cpu_engine(engine);
	float *w = malloc(plan.n_weights * sizeof *w);
	net_init(&plan, 1, NULL, w);
	for (int p = 0; p < plan.n_params; p++)
		for (size_t i = 0; plan.params[p].ndim == 1 && i < plan.params[p].count; i++)
			w[plan.params[p].offset + i] += (float)noise() / 4;
	engine_put(engine, ENGINE_PARAMS, 0, w, plan.n_weights);
	free(w);
	e->count = BATCH;
	e->training = e->micros = 1;
	cpu_stem_pack(e);
	cpu_dense_pack(e);
	printf("# %s, seed 3\n", engine_describe(engine));
	return 0;
}

static int close_densenet121(void **state)
{
	(void)state;
	engine_close(&e->base);
	engine_layout_free(&layout);
	net_plan_free(&plan);
	return 0;
}

/* [n][c][pixels] in fp64 from pixels of `stride` floats. */
static double *to_planes(const float *from, int stride, int channels, int pixels)
{
	double *to = malloc(sizeof *to * BATCH * (size_t)channels * (size_t)pixels);
	for (int n = 0; n < BATCH; n++)
		for (int p = 0; p < pixels; p++)
			for (int c = 0; c < channels; c++)
				to[((size_t)n * channels + c) * pixels + p] = from[((size_t)n * pixels + p) * stride + c];
	return to;
}

static void fill(float *values, int stride, int channels, int pixels)
{
	for (size_t p = 0; p < (size_t)BATCH * pixels; p++)
		for (int c = 0; c < channels; c++)
			values[p * stride + c] = (float)noise();
}

static double *packed_to_planes(struct grads g, int channels, int pixels)
{
	double *to = malloc(sizeof *to * BATCH * (size_t)channels * (size_t)pixels);
	for (int n = 0; n < BATCH; n++)
		for (int c = 0; c < channels; c++)
			for (int p = 0; p < pixels; p++)
				to[((size_t)n * channels + c) * pixels + p] = g.data[c / 16 * g.plane + ((ptrdiff_t)n * pixels + p) * g.stride + c % 16];
	return to;
}

static void fill_packed(struct grads g, int channels, int pixels)
{
	for (int c = 0; c < channels; c++)
		for (ptrdiff_t p = 0; p < (ptrdiff_t)BATCH * pixels; p++)
			g.data[c / 16 * g.plane + p * g.stride + c % 16] = (float)noise();
}

static double *zeros(size_t count)
{
	return calloc(count, sizeof(double));
}

static double *widen(const float *from, size_t count)
{
	double *to = malloc(count * sizeof *to);
	for (size_t i = 0; i < count; i++)
		to[i] = from[i];
	return to;
}

static void check(const char *layer, const char *what, const double *tested, const double *expected, size_t count)
{
	double difference = 0, norm = 0;
	for (size_t i = 0; i < count; i++) {
		difference += (tested[i] - expected[i]) * (tested[i] - expected[i]);
		norm += expected[i] * expected[i];
	}
	double relative = sqrt(difference / norm);
	printf("# %s %s: %.1e\n", layer, what, relative);
	assert_true(norm > 0 && relative < (strcmp(what, "forward") ? limit : forward_limit));
}

/* Checks and frees both. */
static void check_planes(const char *layer, const char *what, const float *tested, int stride, int channels, int pixels, double *expected)
{
	double *planes = to_planes(tested, stride, channels, pixels);
	check(layer, what, planes, expected, (size_t)BATCH * channels * pixels);
	free(planes);
	free(expected);
}

static void check_floats(const char *layer, const char *what, const float *tested, size_t count, const double *expected)
{
	double *wide = widen(tested, count);
	check(layer, what, wide, expected, count);
	free(wide);
}

/* A BN with known input: statistics in the engine, and everything the fp64 side needs. */
struct known_bn {
	double *x, *y, *mean, *var, *gamma;
};

static struct known_bn know(struct bn *bn, const struct statistics *s, const struct acts *acts)
{
	int c = bn->channels;
	struct known_bn k = { to_planes(acts->data, acts->stride, c, bn->pixels), zeros((size_t)BATCH * c * bn->pixels), zeros((size_t)c), zeros((size_t)c),
		              widen(bn->v.gamma, (size_t)c) };
	reference_bn_statistics_fp64(BATCH, c, bn->pixels, k.x, k.mean, k.var);
	for (int i = 0; i < c; i++) {
		s->mean[i] = (float)k.mean[i];
		s->var[i] = (float)k.var[i];
		s->inverse[i] = (float)(1 / sqrt(k.var[i] + BN_EPSILON));
		s->offset[i] = (float)(-k.mean[i] / sqrt(k.var[i] + BN_EPSILON));
		s->s1[i] = s->s2[i] = 0;
	}
	double *beta = widen(bn->beta, (size_t)c);
	reference_bn_apply_fp64(BATCH, c, bn->pixels, 1, k.x, k.mean, k.var, k.gamma, beta, k.y);
	free(beta);
	cpu_bn_prepare(e, bn);
	return k;
}

static void forget(struct known_bn *k)
{
	free(k->x);
	free(k->y);
	free(k->mean);
	free(k->var);
	free(k->gamma);
}

static struct net_layer layer_of(const struct conv *c)
{
	return (struct net_layer){ .op = OP_CONV, .c_in = c->c_in, .c_out = c->c_out, .k = c->k, .stride = 1, .pad = c->k / 2, .h_in = c->h_in, .h_out = c->h_in };
}

static double *weights_of(const struct conv *c)
{
	return widen(e->params + param_offset(e, c->param), plan.params[c->param].count);
}

static void check_weight_gradient(const struct conv *c, const struct net_layer *l, const double *y, const double *dy)
{
	size_t count = plan.params[c->param].count;
	double *expected = zeros(count);
	reference_conv_backward_weights_fp64(l, BATCH, y, dy, expected);
	assert_int_equal(cpu_weights_finish(e, c), 0);
	assert_int_equal(cpu_weights_settle(e), 0);
	check_floats(c->name, "weight gradient", e->slab + param_offset(e, c->param), count, expected);
	free(expected);
}

static void check_statistics(const char *name, const struct statistics *s, int at, int channels, int pixels, const double *y)
{
	double *mean = zeros((size_t)channels), *var = zeros((size_t)channels);
	reference_bn_statistics_fp64(BATCH, channels, pixels, y, mean, var);
	check_floats(name, "means", s->mean + at, (size_t)channels, mean);
	check_floats(name, "variances", s->var + at, (size_t)channels, var);
	free(mean);
	free(var);
}

/* BN + ReLU + 1 x 1, and back into the block's G on top of what is there. dy is dense. */
static void check_conv1(struct block *b, struct dense_layer *d)
{
	const struct conv *c = &d->conv1;
	struct net_layer l = layer_of(c);
	int pixels = b->h * b->h;
	size_t out = (size_t)BATCH * c->c_out * pixels, in = (size_t)BATCH * c->c_in * pixels;
	fill(b->x.data, b->x.stride, c->c_in, pixels);
	struct known_bn k = know(&d->bn1, &b->statistics, &b->x);
	double *w = weights_of(c), *y = zeros(out);
	cpu_conv1_forward(e, c, &d->bn1, b->x, d->middle, &d->statistics, 0);
	reference_conv_forward_fp64(&l, BATCH, k.y, w, y);
	check_statistics(c->name, &d->statistics, 0, c->c_out, pixels, y);
	check_planes(c->name, "forward", d->middle.data, d->middle.stride, c->c_out, pixels, y);

	struct grads middle = cpu_middle_grad(e, b);
	fill_packed(middle, c->c_out, pixels);
	fill(b->g.data, b->g.stride, c->c_in, pixels);
	double *dy = packed_to_planes(middle, c->c_out, pixels), *g = to_planes(b->g.data, b->g.stride, c->c_in, pixels);
	double *dz = zeros(in), *dgamma = zeros((size_t)c->c_in), *dbeta = zeros((size_t)c->c_in), *unused = zeros(in);
	cpu_conv1_backward(e, c, &d->bn1, middle, NULL, b->x, b->g, 1);
	assert_int_equal(cpu_bn_finish(e, &d->bn1, &b->statistics, c->splits), 0);
	reference_conv_backward_data_fp64(&l, BATCH, dy, w, dz);
	reference_bn_backward_fp64(BATCH, c->c_in, pixels, 1, k.x, k.y, k.mean, k.var, k.gamma, dz, unused, dgamma, dbeta);
	for (size_t i = 0; i < in; i++)
		g[i] += k.y[i] > 0 ? k.gamma[i / (size_t)pixels % (size_t)c->c_in] * dz[i] : 0;
	check_planes(c->name, "data gradient", b->g.data, (int)b->g.stride, c->c_in, pixels, g);
	check_floats(c->name, "BN scale gradient", d->bn1.dgamma, (size_t)c->c_in, dgamma);
	check_floats(c->name, "BN shift gradient", d->bn1.dbeta, (size_t)c->c_in, dbeta);

	check_weight_gradient(c, &l, k.y, dy);
	forget(&k);
	free(w);
	free(dy);
	free(dz);
	free(dgamma);
	free(dbeta);
	free(unused);
}

/* BN + ReLU + 3 x 3 into a slice of the block, and back, with the correction that completes BN's gradient. */
static void check_conv3(struct block *b, struct dense_layer *d)
{
	const struct conv *c = &d->conv2;
	struct net_layer l = layer_of(c);
	int pixels = b->h * b->h, at = d->bn1.channels;
	size_t out = (size_t)BATCH * c->c_out * pixels, in = (size_t)BATCH * c->c_in * pixels;
	struct acts produced = acts_slice(e, b->x, at);
	struct grads dproduced = grads_slice(b->g, at);
	fill(d->middle.data, d->middle.stride, c->c_in, pixels);
	struct known_bn k = know(&d->bn2, &d->statistics, &d->middle);
	double *w = weights_of(c), *y = zeros(out);
	cpu_conv3_forward(e, c, &d->bn2, d->middle, produced, &b->statistics, at);
	reference_conv_forward_fp64(&l, BATCH, k.y, w, y);
	check_statistics(c->name, &b->statistics, at, c->c_out, pixels, y);
	check_planes(c->name, "forward", produced.data, produced.stride, c->c_out, pixels, y);

	fill(dproduced.data, dproduced.stride, c->c_out, pixels);
	double *dy = to_planes(dproduced.data, dproduced.stride, c->c_out, pixels);
	double *dz = zeros(in), *dx = zeros(in), *dgamma = zeros((size_t)c->c_in), *dbeta = zeros((size_t)c->c_in);
	struct grads middle = cpu_middle_grad(e, b);
	cpu_conv3_backward(e, c, &d->bn2, dproduced, NULL, d->middle, middle);
	assert_int_equal(cpu_bn_finish(e, &d->bn2, &d->statistics, c->splits), 0);
	cpu_correct_map(e, &(struct behind){ &d->statistics, 0, d->bn2.v.gamma, d->middle }, c->c_in, pixels, middle, middle);
	reference_conv_backward_data_fp64(&l, BATCH, dy, w, dz);
	reference_bn_backward_fp64(BATCH, c->c_in, pixels, 1, k.x, k.y, k.mean, k.var, k.gamma, dz, dx, dgamma, dbeta);
	double *tested = packed_to_planes(middle, c->c_in, pixels);
	check(c->name, "data gradient", tested, dx, in);
	free(tested);
	free(dx);
	check_floats(c->name, "BN scale gradient", d->bn2.dgamma, (size_t)c->c_in, dgamma);
	check_floats(c->name, "BN shift gradient", d->bn2.dbeta, (size_t)c->c_in, dbeta);

	check_weight_gradient(c, &l, k.y, dy);
	forget(&k);
	free(w);
	free(dy);
	free(dz);
	free(dgamma);
	free(dbeta);
}

static void dense_layers(void **state)
{
	(void)state;
	static const struct {
		int block, layer;
	} chosen[] = { { 0, 5 }, { 1, 11 }, { 2, 12 }, { 3, 15 } };
	for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
		struct block *b = &e->block[chosen[i].block];
		check_conv1(b, &b->layer[chosen[i].layer]);
		check_conv3(b, &b->layer[chosen[i].layer]);
	}
}

static void transitions(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct block *b = &e->block[i], *next = &e->block[i + 1];
		const struct conv *c = &b->transition;
		struct net_layer l = layer_of(c), pool = { .op = OP_AVGPOOL, .c_in = c->c_out, .k = 2, .stride = 2, .h_in = b->h, .h_out = b->h / 2 };
		int pixels = b->h * b->h, pooled = pixels / 4;
		size_t in = (size_t)BATCH * c->c_in * pixels, wide = (size_t)BATCH * c->c_out * pixels;
		fill(b->x.data, b->x.stride, c->c_in, pixels);
		struct known_bn k = know(&b->out_bn, &b->statistics, &b->x);
		double *w = weights_of(c), *y = zeros(wide), *small = zeros(wide / 4);
		cpu_conv1_forward(e, c, &b->out_bn, b->x, next->x, &next->statistics, 0);
		reference_conv_forward_fp64(&l, BATCH, k.y, w, y);
		reference_pool_forward_fp64(&pool, BATCH, y, small);
		check_statistics(c->name, &next->statistics, 0, c->c_out, pooled, small);
		check_planes(c->name, "forward", next->x.data, next->x.stride, c->c_out, pooled, small);

		fill(next->g.data, next->g.stride, c->c_out, pooled);
		double *dy = to_planes(next->g.data, next->g.stride, c->c_out, pooled), *dwide = zeros(wide), *dz = zeros(in);
		cpu_conv1_backward(e, c, &b->out_bn, next->g, NULL, b->x, b->g, 0);
		reference_pool_backward_fp64(&pool, BATCH, y, dy, dwide);
		reference_conv_backward_data_fp64(&l, BATCH, dwide, w, dz);
		for (size_t j = 0; j < in; j++)
			dz[j] = k.y[j] > 0 ? k.gamma[j / (size_t)pixels % (size_t)c->c_in] * dz[j] : 0;
		check_planes(c->name, "data gradient", b->g.data, (int)b->g.stride, c->c_in, pixels, dz);
		check_weight_gradient(c, &l, k.y, dwide);
		forget(&k);
		free(w);
		free(y);
		free(dy);
		free(dwide);
	}
}

/* The folded gray convolution against the three channels it stands for, and the fused BN, ReLU and maximum. */
static void stem(void **state)
{
	(void)state;
	struct stem *s = &e->stem;
	struct block *b = &e->block[0];
	int size = 224, pixels = s->h * s->h, pooled = b->h * b->h, c = s->conv.c_out;
	const struct net_layer *l = &plan.layers[0], *pool = &plan.layers[2];
	uint8_t *images = malloc((size_t)BATCH * size * size);
	double *x = zeros((size_t)BATCH * 3 * size * size), *y = zeros((size_t)BATCH * c * pixels);
	for (int i = 0; i < BATCH * size * size; i++)
		images[i] = (uint8_t)(int)((noise() + 0.8) * 127);
	for (int n = 0; n < BATCH; n++)
		for (int i = 0; i < 3 * size * size; i++)
			x[n * 3 * size * size + i] = (images[n * size * size + i % (size * size)] / 255.0 - image_mean[i / (size * size)]) / image_std[i / (size * size)];
	struct engine_batch batch = { .count = BATCH, .pixels = images };
	e->batch = &batch;
	cpu_stem_forward(e);
	double *w = weights_of(&s->conv);
	reference_conv_forward_fp64(l, BATCH, x, w, y);
	check_statistics("features.conv0", &s->statistics, 0, c, pixels, y);
	check_planes("features.conv0", "forward", s->out.data, s->out.stride, c, pixels, y);

	struct known_bn k = know(&s->bn, &s->statistics, &s->out);
	double *top = zeros((size_t)BATCH * c * pooled), *dtop, *dz = zeros((size_t)BATCH * c * pixels), *dx = zeros((size_t)BATCH * c * pixels);
	double *dgamma = zeros((size_t)c), *dbeta = zeros((size_t)c);
	cpu_stem_forward(e);
	reference_pool_forward_fp64(pool, BATCH, k.y, top);
	check_planes("features.pool0", "forward", b->x.data, b->x.stride, c, pooled, top);

	fill(b->g.data, b->g.stride, c, pooled);
	dtop = to_planes(b->g.data, b->g.stride, c, pooled);
	assert_int_equal(cpu_stem_backward(e), 0);
	reference_pool_backward_fp64(pool, BATCH, k.y, dtop, dz);
	reference_bn_backward_fp64(BATCH, c, pixels, 1, k.x, k.y, k.mean, k.var, k.gamma, dz, dx, dgamma, dbeta);
	check_floats("features.norm0", "BN scale gradient", s->bn.dgamma, (size_t)c, dgamma);
	check_floats("features.norm0", "BN shift gradient", s->bn.dbeta, (size_t)c, dbeta);
	size_t count = plan.params[l->weight].count;
	double *dw = zeros(count);
	reference_conv_backward_weights_fp64(l, BATCH, x, dx, dw);
	check_floats("features.conv0", "weight gradient", e->slab + param_offset(e, l->weight), count, dw);
	check_planes("features.norm0", "data gradient", s->grad.data, s->grad.stride, c, pixels, dx);
	forget(&k);
	double *to_free[] = { x, w, dtop, dz, dgamma, dbeta, dw };
	for (size_t i = 0; i < sizeof to_free / sizeof to_free[0]; i++)
		free(to_free[i]);
	free(images);
}

enum { UPDATED = 1 << 14 };

/* Weights, then the moments of Adam, then those of SGD, after an update each. */
static void update(const struct cpu_kernels *kernels, float after[4][UPDATED])
{
	const struct adam_step step = { .beta1 = 0.9f, .beta2 = 0.999f, .decay = 1e-5f, .rate = 1.1e-4f, .correction = 3.3f, .epsilon = 1e-8f };
	static float gradient[UPDATED];
	noise_state = 5;
	for (int i = 0; i < UPDATED; i++) {
		gradient[i] = (float)(noise() * exp(-20 * fabs(noise())));
		after[0][i] = (float)noise();
		after[1][i] = after[3][i] = (float)(0.3 * noise() * gradient[i]);
		after[2][i] = gradient[i] * gradient[i];
	}
	kernels->adam(UPDATED, gradient, after[0], after[1], after[2], &step);
	kernels->sgd(UPDATED, gradient, after[0], after[3], 0.01f, 0.9f, 1e-3f);
}

/* Ranks update their own copies: on nodes with and without AVX-512 these stay one model only if no bit differs. */
static void updates_are_the_same_bits_on_every_processor(void **state)
{
	(void)state;
	static float portable[4][UPDATED], best[4][UPDATED];
	if (cpu_kernels_best() == &cpu_kernels_portable)
		skip_because("this processor has no other kernels than those in plain C");
	update(&cpu_kernels_portable, portable);
	update(cpu_kernels_best(), best);
	for (int k = 0; k < 4; k++)
		for (int i = 0; i < UPDATED; i++)
			if (memcmp(&portable[k][i], &best[k][i], sizeof(float)) != 0)
				fail_msg("array %d, value %d: %.9g and %.9g", k, i, portable[k][i], best[k][i]);
}

/* Sums of squares in fp32, of values far from the one that they are taken about, lose more than a small variance is. */
static void a_variance_that_rounding_takes_below_0_is_0(void **state)
{
	(void)state;
	struct stem *s = &e->stem;
	for (int i = 0; i < cpu_parts(e, s->h); i++) {
		struct moments m = cpu_moments(e, i);
		double n = (double)(cpu_part_row(e, s->h, i + 1) - cpu_part_row(e, s->h, i)) * s->h;
		m.shift[0] = 0;
		m.sum[0] = (float)(1000 * n);
		m.square[0] = (float)(999999 * n); /* 1,000,000 less one millionth */
	}
	cpu_statistics_finish(e, &s->statistics, 0, 1, s->h);
	assert_true(s->statistics.var[0] >= 0);
	assert_true(fabs(s->statistics.inverse[0] * sqrt(BN_EPSILON) - 1) < 1e-6);
	assert_true(fabs(s->statistics.offset[0] * sqrt(BN_EPSILON) + 1000) < 1e-2);
}

/* That many threads have work, which a test may have no cores for, is counted here. */
static void parts_cover_every_row_once_and_are_many(void **state)
{
	(void)state;
	struct cpu_engine some = { .most_parts = MAX_PARTS };
	for (some.count = 1; some.count <= 2 * MAX_PARTS + 1; some.count++)
		for (int h = 1; h <= 300; h++) {
			int parts = cpu_parts(&some, h), of_image = cpu_parts_of_image(&some, h);
			assert_in_range(parts, some.count < MAX_PARTS ? some.count : MAX_PARTS, MAX_PARTS);
			assert_int_equal(cpu_part_row(&some, h, 0), 0);
			assert_int_equal(cpu_part_row(&some, h, parts), some.count * h);
			for (int part = 0; part < parts; part++) {
				int from = cpu_part_row(&some, h, part), end = cpu_part_row(&some, h, part + 1);
				assert_true(end - from >= (of_image > 1 ? PART_ROWS : h));
				assert_true(of_image > 1 ? from / h == (end - 1) / h : from % h == 0);
			}
		}
	static const struct { int count, h, threads, tasks; } of_densenet121[] = {
		{ 1, 112, 64, 16 }, { 1, 56, 64, 8 }, { 1, 56, 2, 4 }, { 1, 56, 1, 1 }, { 8, 56, 2, 8 }, { 8, 56, 64, 64 }, { 8, 14, 8, 16 }, { 16, 28, 16, 32 }, { 64, 7, 64, 64 },
	};
	for (size_t i = 0; i < sizeof of_densenet121 / sizeof of_densenet121[0]; i++) {
		some.count = of_densenet121[i].count;
		some.threads = of_densenet121[i].threads;
		assert_int_equal(cpu_tasks(&some, of_densenet121[i].h), of_densenet121[i].tasks);
		assert_int_equal(cpu_task_row(&some, of_densenet121[i].h, of_densenet121[i].tasks), some.count * of_densenet121[i].h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(updates_are_the_same_bits_on_every_processor),
		cmocka_unit_test(parts_cover_every_row_once_and_are_many),
		cmocka_unit_test(dense_layers),
		cmocka_unit_test(transitions),
		cmocka_unit_test(stem),
		cmocka_unit_test(a_variance_that_rounding_takes_below_0_is_0),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, open_densenet121, close_densenet121);
}
