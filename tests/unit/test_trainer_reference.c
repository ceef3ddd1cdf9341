/* SPDX-License-Identifier: Apache-2.0
 * The reference engine against finite differences in fp64, and its step against the definition of its loss. */
#include <math.h>

#include "engine/engine.h"
#include "net/builder.h"
#include "test.h"

enum { BATCH = 3, SAMPLES_PER_TENSOR = 12 };

/* Deterministic noise; the seed is printed by every test that draws from it. */
static uint64_t noise_state;

static uint32_t noise(void)
{
	noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(noise_state >> 33);
}

static void seed_noise(uint64_t seed)
{
	print_message("# seed %llu\n", (unsigned long long)seed);
	noise_state = seed;
}

/* An engine with everything it points to. */
struct fixture {
	struct net_plan plan;
	struct engine_layout layout;
	struct engine_conf conf;
	struct engine *engine;
	struct error error;
	struct engine_batch batch;
	uint8_t *pixels;
	uint32_t labels[BATCH], known[BATCH];
	float weight[BATCH];
	struct augment augment[BATCH];
	float *params, *grads;
};

static void open_fixture(struct fixture *f, int channels)
{
	size_t n = f->plan.n_weights;
	engine_layout_make(&f->layout, &f->plan, &f->error);
	f->conf.plan = &f->plan;
	f->conf.layout = &f->layout;
	f->conf.precision = PRECISION_FP64;
	f->conf.batch = BATCH;
	f->conf.channels = channels;
	f->conf.source_size = f->plan.image_size + 3;
	f->conf.threads = 1;
	engine_open(&f->engine, ENGINE_REFERENCE, &f->conf, &f->error);
	assert_string_equal(f->error.text, "");

	size_t bytes = (size_t)BATCH * f->conf.source_size * f->conf.source_size * channels;
	f->pixels = malloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		f->pixels[i] = (uint8_t)noise();
	for (int i = 0; i < BATCH; i++) {
		f->labels[i] = f->conf.loss == LOSS_SOFTMAX ? noise() % (uint32_t)f->plan.classes : noise();
		f->known[i] = noise() | 1;
		f->weight[i] = 0.5f + (float)(noise() % 100) / 100;
		f->augment[i] = (struct augment){ (int16_t)(noise() % 4), (int16_t)(noise() % 4), noise() & 1 };
	}
	f->batch = (struct engine_batch){ .count = BATCH, .pixels = f->pixels, .labels = f->labels, .known = f->known,
	                                  .weight = f->weight, .augment = f->augment };
	f->params = malloc(n * sizeof(float));
	f->grads = malloc(n * sizeof(float));
	net_init(&f->plan, noise(), NULL, f->params);
	for (int p = 0; p < f->plan.n_params; p++) /* BN away from its starting point, where scale and shift are 1 and 0 */
		for (size_t i = 0; f->plan.params[p].ndim == 1 && i < f->plan.params[p].count; i++)
			f->params[f->plan.params[p].offset + i] += ((float)(noise() % 1000) / 1000 - 0.5f) / 2;
	engine_put(f->engine, ENGINE_PARAMS, 0, f->params, n);
}

static void close_fixture(struct fixture *f)
{
	engine_close(f->engine);
	engine_layout_free(&f->layout);
	net_plan_free(&f->plan);
	free(f->pixels);
	free(f->params);
	free(f->grads);
}

/* Which side of its kink every ReLU and maximum is on, as one number. */
static uint64_t kinks(struct fixture *f)
{
	uint64_t hash = 0;
	for (int i = 0; i < f->plan.n_layers; i++) {
		const struct net_layer *l = &f->plan.layers[i];
		size_t in = (size_t)l->c_in * l->h_in * l->h_in * BATCH, out = (size_t)l->c_out * l->h_out * l->h_out * BATCH;
		float *x = malloc(in * sizeof *x), *y = malloc(out * sizeof *y);
		engine_tap(f->engine, l->in, 0, x);
		engine_tap(f->engine, i + 1, 0, y);
		if (l->op == OP_BN_RELU || l->op == OP_RELU || l->op == OP_ADD_RELU)
			for (size_t j = 0; j < out; j++)
				hash = hash * 31 + (y[j] > 0);
		if (l->op == OP_MAXPOOL)
			for (size_t j = 0; j < out; j++) {
				size_t plane = j / ((size_t)l->h_out * l->h_out) * (size_t)(l->h_in * l->h_in);
				for (int p = 0; p < l->h_in * l->h_in; p++)
					if (x[plane + p] == y[j])
						hash = hash * 31 + (uint64_t)p;
			}
		free(x);
		free(y);
	}
	return hash;
}

static double loss_with(struct fixture *f, size_t i, float value, uint64_t *side)
{
	double loss;
	engine_put(f->engine, ENGINE_PARAMS, i, &value, 1);
	assert_int_equal(engine_backward(f->engine, &f->batch), 0);
	engine_loss(f->engine, &loss);
	*side = kinks(f);
	engine_put(f->engine, ENGINE_PARAMS, i, &f->params[i], 1);
	return loss;
}

/* Slope of the loss along one weight, by the five-point formula; 0 where a kink lies between the points. */
static int slope(struct fixture *f, size_t i, double *value)
{
	const float h = 0x1p-15f;
	static const int at[4] = { -2, -1, 1, 2 };
	double loss[4], point[4];
	uint64_t side[4];
	for (int k = 0; k < 4; k++) {
		float moved = f->params[i] + (float)at[k] * h;
		point[k] = moved;
		loss[k] = loss_with(f, i, moved, &side[k]);
	}
	*value = 4.0 / 3 * (loss[2] - loss[1]) / (point[2] - point[1]) - 1.0 / 3 * (loss[3] - loss[0]) / (point[3] - point[0]);
	return side[0] == side[1] && side[1] == side[2] && side[2] == side[3];
}

static void check_gradients(struct fixture *f)
{
	assert_int_equal(engine_backward(f->engine, &f->batch), 0);
	engine_get(f->engine, ENGINE_GRADS, 0, f->grads, f->plan.n_weights);
	double all = 0;
	for (size_t i = 0; i < f->plan.n_weights; i++)
		all += (double)f->grads[i] * f->grads[i];
	double mean = sqrt(all / (double)f->plan.n_weights);

	int checked = 0, skipped = 0;
	for (int p = 0; p < f->plan.n_params; p++) {
		const struct net_param *param = &f->plan.params[p];
		double error = 0, norm = 0;
		int used = 0;
		for (int s = 0; s < SAMPLES_PER_TENSOR && s < (int)param->count; s++) {
			size_t i = param->offset + (param->count <= SAMPLES_PER_TENSOR ? (size_t)s : noise() % param->count);
			double expected;
			if (!slope(f, i, &expected)) {
				skipped++;
				continue;
			}
			error += (f->grads[i] - expected) * (f->grads[i] - expected);
			norm += expected * expected;
			used++;
		}
		/* A tensor whose gradient vanishes (a shift that the next BN removes) is measured against the net's mean gradient. */
		double against = fmax(sqrt(norm), 0.1 * mean);
		checked += used;
		if (sqrt(error) >= 1e-6 * against)
			print_message("# %s: relative error %.2e of %d samples\n", param->name, sqrt(error) / against, used);
		assert_true(sqrt(error) < 1e-6 * against);
	}
	print_message("# %d weights checked, %d skipped beside a kink\n", checked, skipped);
	assert_true(checked > 3 * skipped);
}

static struct net_builder start_plan(struct fixture *f, int image_size, int classes)
{
	*f = (struct fixture){ .plan = { .model = "by hand", .image_size = image_size, .classes = classes } };
	return (struct net_builder){ .plan = &f->plan, .error = &f->error };
}

static void finish_plan(struct net_builder *b, int x)
{
	x = net_add_pool(b, OP_GLOBAL_AVGPOOL, x, 0, 0, 0, "gap");
	net_add_linear(b, x, b->plan->classes, "fc");
	assert_string_equal(b->error->text, "");
}

static void gradients_of_convolutions(void **state)
{
	(void)state;
	seed_noise(1);
	struct fixture f;
	struct net_builder b = start_plan(&f, 9, 3);
	int x = net_add_conv(&b, 0, 4, 3, 1, 1, "three");
	x = net_add_conv(&b, x, 5, 3, 2, 1, "strided");
	x = net_add_conv(&b, x, 3, 1, 1, 0, "one");
	x = net_add_conv(&b, x, 4, 5, 2, 2, "wide");
	finish_plan(&b, x);
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_normalisation_and_relu(void **state)
{
	(void)state;
	seed_noise(2);
	struct fixture f;
	struct net_builder b = start_plan(&f, 6, 3);
	int x = net_add_conv(&b, 0, 4, 3, 1, 1, "conv");
	x = net_add_bn(&b, OP_BN, x, "bn");
	x = net_add_join(&b, OP_RELU, x, -1, "relu");
	x = net_add_conv(&b, x, 4, 3, 1, 1, "conv2");
	x = net_add_bn(&b, OP_BN_RELU, x, "bn2");
	finish_plan(&b, x);
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_pools(void **state)
{
	(void)state;
	seed_noise(3);
	struct fixture f;
	struct net_builder b = start_plan(&f, 14, 3);
	int x = net_add_conv(&b, 0, 4, 3, 1, 1, "conv");
	x = net_add_pool(&b, OP_MAXPOOL, x, 3, 2, 1, "max");
	x = net_add_conv(&b, x, 4, 3, 1, 1, "conv2");
	x = net_add_pool(&b, OP_AVGPOOL, x, 2, 2, 0, "average");
	x = net_add_conv(&b, x, 4, 1, 1, 0, "conv3");
	finish_plan(&b, x);
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_joins(void **state)
{
	(void)state;
	seed_noise(4);
	struct fixture f;
	struct net_builder b = start_plan(&f, 7, 3);
	int x = net_add_conv(&b, 0, 4, 3, 1, 1, "conv");
	int y = net_add_conv(&b, x, 4, 3, 1, 1, "branch");
	x = net_add_join(&b, OP_ADD_RELU, x, y, "add");
	y = net_add_conv(&b, x, 3, 1, 1, 0, "new");
	x = net_add_join(&b, OP_CONCAT, x, y, "concat");
	x = net_add_conv(&b, x, 4, 3, 1, 1, "last");
	finish_plan(&b, x);
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_softmax_on_rgb(void **state)
{
	(void)state;
	seed_noise(5);
	struct fixture f;
	struct net_builder b = start_plan(&f, 8, 5);
	int x = net_add_conv(&b, 0, 4, 3, 1, 1, "conv");
	x = net_add_bn(&b, OP_BN_RELU, x, "bn");
	finish_plan(&b, x);
	f.conf.loss = LOSS_SOFTMAX;
	open_fixture(&f, 3);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_a_small_densenet(void **state)
{
	(void)state;
	seed_noise(6);
	struct fixture f = { 0 };
	static const float pos_weight[5] = { 1, 2, 0.5f, 3, 1.5f };
	net_plan_make(&f.plan, &(struct net_conf){ .model = "densenet", .image_size = 24, .classes = 5, .growth = 4, .n_blocks = 2, .block = { 2, 2 } }, &f.error);
	f.conf.pos_weight = pos_weight;
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

static void gradients_of_a_small_resnet(void **state)
{
	(void)state;
	seed_noise(12);
	struct fixture f = { 0 };
	net_plan_make(&f.plan, &(struct net_conf){ .model = "resnet", .image_size = 22, .classes = 5, .init_channels = 3, .n_blocks = 2, .block = { 2, 1 } }, &f.error);
	open_fixture(&f, 1);
	check_gradients(&f);
	close_fixture(&f);
}

/* The loss of one batch from the engine's own logits, with unknown labels, weights and pos_weight, as engine.h defines it. */
static void loss_is_the_weighted_mean_over_images_and_classes(void **state)
{
	(void)state;
	seed_noise(7);
	struct fixture f = { 0 };
	static const float pos_weight[4] = { 1, 2, 0.5f, 3 };
	struct net_builder b = start_plan(&f, 8, 4);
	finish_plan(&b, net_add_conv(&b, 0, 6, 3, 1, 1, "conv"));
	f.conf.pos_weight = pos_weight;
	open_fixture(&f, 1);
	assert_int_equal(engine_backward(f.engine, &f.batch), 0);
	double loss, expected = 0;
	engine_loss(f.engine, &loss);
	float logits[BATCH * 4];
	engine_tap(f.engine, f.plan.n_layers, 0, logits);
	for (int i = 0; i < BATCH; i++)
		for (int c = 0; c < 4; c++) {
			double p = 1 / (1 + exp(-(double)logits[i * 4 + c]));
			if (f.known[i] >> c & 1)
				expected -= f.weight[i] * (f.labels[i] >> c & 1 ? pos_weight[c] * log(p) : log(1 - p)) / (BATCH * 4);
		}
	assert_true(fabs(loss - expected) < 1e-6 * expected);
	close_fixture(&f);
}

static void input_is_cut_mirrored_and_normalised(void **state)
{
	(void)state;
	seed_noise(8);
	struct fixture f;
	struct net_builder b = start_plan(&f, 5, 2);
	finish_plan(&b, net_add_conv(&b, 0, 2, 3, 1, 1, "conv"));
	open_fixture(&f, 1);
	f.augment[0] = (struct augment){ 2, 1, 0 };
	f.augment[1] = (struct augment){ 0, 3, 1 };
	assert_int_equal(engine_backward(f.engine, &f.batch), 0);
	float input[BATCH][3][5][5];
	engine_tap(f.engine, 0, 0, &input[0][0][0][0]);
	static const double mean[3] = { 0.485, 0.456, 0.406 }, deviation[3] = { 0.229, 0.224, 0.225 };
	for (int c = 0; c < 3; c++)
		for (int y = 0; y < 5; y++)
			for (int x = 0; x < 5; x++) {
				double plain = f.pixels[(y + 1) * 8 + x + 2] / 255.0, mirrored = f.pixels[64 + (y + 3) * 8 + 4 - x] / 255.0;
				assert_true(fabs(input[0][c][y][x] - (plain - mean[c]) / deviation[c]) < 1e-6);
				assert_true(fabs(input[1][c][y][x] - (mirrored - mean[c]) / deviation[c]) < 1e-6);
			}
	close_fixture(&f);
}

/* Two steps by PyTorch's formulas from the engine's own gradients: decay on weights, none on BN and bias. */
static void steps_follow_pytorchs_formulas(void **state)
{
	(void)state;
	seed_noise(9);
	for (int sgd = 0; sgd < 2; sgd++) {
		struct fixture f;
		struct net_builder b = start_plan(&f, 6, 3);
		finish_plan(&b, net_add_bn(&b, OP_BN_RELU, net_add_conv(&b, 0, 4, 3, 1, 1, "conv"), "bn"));
		f.conf.optimizer = sgd ? OPTIMIZER_SGD : OPTIMIZER_ADAM;
		f.conf.beta1 = 0.9;
		f.conf.beta2 = 0.99;
		f.conf.epsilon = 1e-3;
		f.conf.weight_decay = 0.1;
		open_fixture(&f, 1);
		const double lr = 0.01;
		size_t n = f.plan.n_weights;
		double *w = malloc(n * sizeof *w), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
		for (size_t i = 0; i < n; i++)
			w[i] = f.params[i];
		for (int step = 1; step <= 2; step++) {
			uint64_t token;
			assert_int_equal(engine_train(f.engine, &f.batch, 0, 1, lr, &token), 0);
			engine_get(f.engine, ENGINE_GRADS, 0, f.grads, n);
			for (int p = 0; p < f.plan.n_params; p++) {
				const struct net_param *param = &f.plan.params[p];
				for (size_t i = param->offset; i < param->offset + param->count; i++) {
					double g = f.grads[i] + (param->ndim > 1 ? 0.1 * w[i] : 0);
					m[i] = sgd ? 0.9 * m[i] + g : 0.9 * m[i] + 0.1 * g;
					v[i] = 0.99 * v[i] + 0.01 * g * g;
					w[i] -= sgd ? lr * m[i] : lr * m[i] / (1 - pow(0.9, step)) / (sqrt(v[i] / (1 - pow(0.99, step))) + 1e-3);
				}
			}
		}
		engine_get(f.engine, ENGINE_PARAMS, 0, f.params, n);
		for (size_t i = 0; i < n; i++)
			assert_true(fabs(f.params[i] - w[i]) < 1e-6);
		free(w);
		free(m);
		free(v);
		close_fixture(&f);
	}
}

/* One update a step, from the mean and E[x²] over the micro-batches, unbiased over one micro-batch's pixels. */
static void running_statistics_take_one_update_a_step(void **state)
{
	(void)state;
	seed_noise(10);
	struct fixture f;
	struct net_builder b = start_plan(&f, 6, 2);
	finish_plan(&b, net_add_bn(&b, OP_BN_RELU, net_add_conv(&b, 0, 2, 3, 1, 1, "conv"), "bn"));
	open_fixture(&f, 1);
	enum { PIXELS = 36, MICROS = 3 };
	double sum[2] = { 0 }, square[2] = { 0 };
	for (int micro = 0; micro < MICROS; micro++) {
		uint64_t token;
		float x[BATCH][2][PIXELS];
		f.augment[0].x = (int16_t)micro;
		assert_int_equal(engine_train(f.engine, &f.batch, micro, MICROS, 0, &token), 0);
		engine_tap(f.engine, 1, 0, &x[0][0][0]);
		for (int i = 0; i < BATCH * 2 * PIXELS; i++) {
			double value = x[i / (2 * PIXELS)][i / PIXELS % 2][i % PIXELS];
			sum[i / PIXELS % 2] += value;
			square[i / PIXELS % 2] += value * value;
		}
	}
	float mean[2], var[2];
	engine_get(f.engine, ENGINE_RUNNING_MEAN, 0, mean, 2);
	engine_get(f.engine, ENGINE_RUNNING_VAR, 0, var, 2);
	for (int c = 0; c < 2; c++) {
		double n = BATCH * PIXELS, m = sum[c] / (MICROS * n), v = square[c] / (MICROS * n) - m * m;
		assert_true(fabs(mean[c] - 0.1 * m) < 1e-6);
		assert_true(fabs(var[c] - (0.9 + 0.1 * v * n / (n - 1))) < 1e-6);
	}
	close_fixture(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_of_convolutions),
		cmocka_unit_test(gradients_of_normalisation_and_relu),
		cmocka_unit_test(gradients_of_pools),
		cmocka_unit_test(gradients_of_joins),
		cmocka_unit_test(gradients_of_softmax_on_rgb),
		cmocka_unit_test(gradients_of_a_small_densenet),
		cmocka_unit_test(gradients_of_a_small_resnet),
		cmocka_unit_test(loss_is_the_weighted_mean_over_images_and_classes),
		cmocka_unit_test(steps_follow_pytorchs_formulas),
		cmocka_unit_test(running_statistics_take_one_update_a_step),
		cmocka_unit_test(input_is_cut_mirrored_and_normalised),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
