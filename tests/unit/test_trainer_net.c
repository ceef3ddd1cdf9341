/* SPDX-License-Identifier: Apache-2.0
 * The layer tables: torchvision's names, shapes, order and counts. */
#include <math.h>

#include "net/plan.h"
#include "test.h"

static void make(struct net_plan *plan, const struct net_conf *conf)
{
	struct error e = { 0 };
	net_plan_make(plan, conf, &e);
	assert_string_equal(e.text, "");
}

static void densenet121_has_torchvisions_parameters(void **state)
{
	(void)state;
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = 224, .classes = 14 });
	assert_int_equal(plan.n_params, 364);
	assert_int_equal(plan.n_weights, 6968206);
	assert_int_equal(plan.n_bns, 121);
	assert_int_equal(plan.n_bn_channels, 41824);

	static const struct {
		int index;
		const char *name;
		int shape[4];
	} samples[] = {
		{ 0, "features.conv0.weight", { 64, 3, 7, 7 } },
		{ 1, "features.norm0.weight", { 64 } },
		{ 2, "features.norm0.bias", { 64 } },
		{ 3, "features.denseblock1.denselayer1.norm1.weight", { 64 } },
		{ 5, "features.denseblock1.denselayer1.conv1.weight", { 128, 64, 1, 1 } },
		{ 8, "features.denseblock1.denselayer1.conv2.weight", { 32, 128, 3, 3 } },
		{ 39, "features.transition1.norm.weight", { 256 } },
		{ 41, "features.transition1.conv.weight", { 128, 256, 1, 1 } },
		{ 359, "features.denseblock4.denselayer16.conv2.weight", { 32, 128, 3, 3 } },
		{ 360, "features.norm5.weight", { 1024 } },
		{ 362, "classifier.weight", { 14, 1024 } },
		{ 363, "classifier.bias", { 14 } },
	};
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		const struct net_param *p = &plan.params[samples[i].index];
		assert_string_equal(p->name, samples[i].name);
		assert_int_equal(net_param_find(&plan, p->name), samples[i].index);
		assert_memory_equal(p->shape, samples[i].shape, sizeof p->shape);
	}
	assert_int_equal(net_param_find(&plan, "fc.weight"), -1);
	net_plan_free(&plan);
}

static void the_last_norm_has_torchvisions_name_after_any_number_of_blocks(void **state)
{
	(void)state;
	for (int blocks = 1; blocks <= NET_MAX_BLOCKS; blocks++) {
		struct net_plan plan;

		make(&plan, &(struct net_conf){ .model = "densenet", .image_size = 32, .classes = 14, .growth = 4, .init_channels = 8, .n_blocks = blocks, .block = { 1, 1, 1, 1 } });
		assert_string_equal(plan.bns[plan.n_bns - 1].name, "features.norm5");
		assert_string_equal(plan.params[plan.n_params - 4].name, "features.norm5.weight");
		net_plan_free(&plan);
	}
}

static void resnet50_has_torchvisions_parameters(void **state)
{
	(void)state;
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "resnet50", .image_size = 224, .classes = 14 });
	assert_int_equal(plan.n_params, 161);
	assert_int_equal(plan.n_weights, 25557032 - (1000 - 14) * 2049);
	assert_int_equal(plan.n_bns, 53);
	assert_int_equal(plan.n_bn_channels, 26560);

	static const struct {
		int index;
		const char *name;
		int shape[4];
	} samples[] = {
		{ 0, "conv1.weight", { 64, 3, 7, 7 } },
		{ 1, "bn1.weight", { 64 } },
		{ 3, "layer1.0.conv1.weight", { 64, 64, 1, 1 } },
		{ 6, "layer1.0.conv2.weight", { 64, 64, 3, 3 } },
		{ 9, "layer1.0.conv3.weight", { 256, 64, 1, 1 } },
		{ 12, "layer1.0.downsample.0.weight", { 256, 64, 1, 1 } },
		{ 13, "layer1.0.downsample.1.weight", { 256 } },
		{ 15, "layer1.1.conv1.weight", { 64, 256, 1, 1 } },
		{ 158, "layer4.2.bn3.bias", { 2048 } },
		{ 159, "fc.weight", { 14, 2048 } },
		{ 160, "fc.bias", { 14 } },
	};
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		const struct net_param *p = &plan.params[samples[i].index];
		assert_string_equal(p->name, samples[i].name);
		assert_memory_equal(p->shape, samples[i].shape, sizeof p->shape);
	}
	for (int i = 0; i < plan.n_layers; i++) { /* the stride is in the 3 x 3 */
		const struct net_layer *l = &plan.layers[i];
		if (!strcmp(l->name, "layer2.0.conv1"))
			assert_int_equal(l->stride, 1);
		if (!strcmp(l->name, "layer2.0.conv2") || !strcmp(l->name, "layer2.0.downsample.0"))
			assert_int_equal(l->stride * 1000 + l->h_out, 2028);
	}
	net_plan_free(&plan);
}

static void parameter_totals_of_the_family(void **state)
{
	(void)state;
	static const struct {
		const char *model;
		size_t weights; /* torchvision's count with 1000 classes */
	} known[] = { { "densenet121", 7978856 }, { "densenet169", 14149480 }, { "densenet201", 20013928 }, { "resnet50", 25557032 } };
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		struct net_plan plan;
		make(&plan, &(struct net_conf){ .model = known[i].model, .image_size = 224, .classes = 1000 });
		assert_int_equal(plan.n_weights, known[i].weights);
		net_plan_free(&plan);
	}
}

static void parameters_tile_the_flat_array_in_order(void **state)
{
	(void)state;
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = 224, .classes = 14 });
	size_t end = 0;
	for (int i = 0; i < plan.n_params; i++) {
		size_t product = 1;
		for (int d = 0; d < plan.params[i].ndim; d++)
			product *= (size_t)plan.params[i].shape[d];
		assert_int_equal(plan.params[i].offset, end);
		assert_int_equal(plan.params[i].count, product);
		end += product;
	}
	assert_int_equal(end, plan.n_weights);
	net_plan_free(&plan);
}

/* A layer reads only what was written before it, with the shape that was written. */
static void check_joints(const struct net_conf *conf, int init_channels)
{
	struct net_plan plan;
	make(&plan, conf);
	assert_int_equal(plan.init_channels, init_channels);
	for (int i = 0; i < plan.n_layers; i++) {
		const struct net_layer *l = &plan.layers[i];
		assert_in_range(l->in, 0, i);
		assert_int_equal(l->c_in, l->in ? plan.layers[l->in - 1].c_out : 3);
		assert_int_equal(l->h_in, l->in ? plan.layers[l->in - 1].h_out : conf->image_size);
		if (l->op == OP_CONCAT)
			assert_int_equal(l->c_out, l->c_in + plan.layers[l->in2 - 1].c_out);
		if (l->op == OP_ADD_RELU) {
			assert_int_equal(plan.layers[l->in2 - 1].c_out, l->c_in);
			assert_int_equal(plan.layers[l->in2 - 1].h_out, l->h_in);
		}
	}
	const struct net_layer *last = &plan.layers[plan.n_layers - 1];
	assert_int_equal(last->op, OP_LINEAR);
	assert_int_equal(last->c_out, 14);
	assert_int_equal(plan.layers[plan.n_layers - 2].h_in, 2);
	net_plan_free(&plan);
}

static void layers_join_without_a_gap(void **state)
{
	(void)state;
	check_joints(&(struct net_conf){ .model = "densenet", .image_size = 64, .classes = 14, .growth = 12, .n_blocks = 4, .block = { 3, 4, 6, 3 } }, 24);
	check_joints(&(struct net_conf){ .model = "resnet", .image_size = 61, .classes = 14, .init_channels = 8, .n_blocks = 4, .block = { 1, 2, 1, 3 } }, 8);
}

static void unusable_configurations_are_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct net_conf conf;
		const char *word;
	} bad[] = {
		{ { .model = "densenet122", .image_size = 224, .classes = 14 }, "densenet122" },
		{ { .model = "densenet121", .image_size = 16, .classes = 14 }, "16 pixels" },
		{ { .model = "densenet121", .image_size = 224, .classes = 0 }, "0 classes" },
		{ { .model = "densenet", .image_size = 64, .classes = 14, .n_blocks = 5 }, "5 blocks" },
		{ { .model = "densenet", .image_size = 64, .classes = 14, .n_blocks = 2, .block = { 2, 0 } }, "block 2" },
		{ { .model = "densenet", .image_size = 64, .classes = 14, .growth = -1, .n_blocks = 1, .block = { 1 } }, "growth -1" },
		{ { .model = "resnet", .image_size = 64, .classes = 14, .n_blocks = 2, .block = { 2, 65 } }, "block 2" },
		{ { .model = "resnet", .image_size = 64, .classes = 14, .init_channels = -1, .n_blocks = 1, .block = { 1 } }, "-1 initial" },
		{ { .model = "densenet", .image_size = 64, .classes = 14, .growth = 257, .n_blocks = 1, .block = { 1 } }, "growth 257" },
		{ { .model = "densenet", .image_size = 64, .classes = 14, .init_channels = 1025, .n_blocks = 1, .block = { 1 } }, "1025 initial" },
		{ { .model = "densenet", .image_size = 64, .classes = 14 }, "0 blocks" },
		{ { .model = "densenet", .image_size = 4097, .classes = 14, .n_blocks = 1, .block = { 1 } }, "image size 4097" },
		{ { .model = "densenet", .image_size = 64, .classes = 65537, .n_blocks = 1, .block = { 1 } }, "65537 classes" },
		{ { .model = "resnet51", .image_size = 64, .classes = 14 }, "unknown model resnet51" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct net_plan plan;
		struct error e = { 0 };
		assert_int_equal(net_plan_make(&plan, &bad[i].conf, &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, bad[i].word));
	}
	struct net_plan plan; /* the largest of everything */
	make(&plan, &(struct net_conf){ .model = "densenet", .image_size = 4096, .classes = 65536, .growth = 256, .init_channels = 1024, .n_blocks = 1, .block = { 1 } });
	assert_string_equal(plan.model, "densenet");
	net_plan_free(&plan);
}

static void images_are_refused_or_leave_something_at_every_layer(void **state)
{
	(void)state;
	static const char *const models[] = { "densenet121", "resnet50" };
	for (int m = 0; m < 2; m++) {
		int refused = 0;
		for (int size = 1; size <= 70; size++) {
			struct net_conf conf = { .model = models[m], .image_size = size, .classes = 14 };
			struct net_plan plan;
			struct error e = { 0 };
			if (net_plan_make(&plan, &conf, &e)) {
				refused = size;
				continue;
			}
			for (int l = 0; l < plan.n_layers; l++)
				assert_true(plan.layers[l].h_out >= 1);
			net_plan_free(&plan);
		}
		printf("# %s: %d pixels are too few\n", models[m], refused);
		assert_true(refused < 32);
	}
}

/* No two alike, none following from the one before, and of the right shape. */
static void check_normal(const float *w, size_t n, double deviation)
{
	double pairs = 0, fourth = 0, inside = 0;
	for (size_t i = 0; i + 1 < n; i += 2) {
		pairs += (double)w[i] * w[i + 1];
		assert_true(w[i] != w[i + 1]);
	}
	for (size_t i = 0; i < n; i++) {
		fourth += pow(w[i] / deviation, 4);
		inside += fabs(w[i]) < 0.67449 * deviation; /* half of them */
	}
	assert_true(fabs(pairs / (double)(n / 2) / (deviation * deviation)) < 5 / sqrt((double)(n / 2)));
	assert_true(fabs(fourth / (double)n - 3) < 5 * sqrt(96 / (double)n));
	assert_true(fabs(inside / (double)n - 0.5) < 2.5 / sqrt((double)n));
}

static void initial_weights_are_torchvisions_and_keyed(void **state)
{
	(void)state;
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = 224, .classes = 14 });
	double prevalence[14];
	for (int c = 0; c < 14; c++)
		prevalence[c] = 0.01 * (c + 1);
	prevalence[3] = 0;
	prevalence[4] = 1;
	float *w = malloc(plan.n_weights * sizeof *w), *again = malloc(plan.n_weights * sizeof *w);
	net_init(&plan, 7, prevalence, w);
	net_init(&plan, 7, prevalence, again);
	assert_memory_equal(w, again, plan.n_weights * sizeof *w);
	net_init(&plan, 8, NULL, again);

	const struct net_param *p = &plan.params[net_param_find(&plan, "features.denseblock3.denselayer24.conv1.weight")];
	double sum = 0, square = 0, same = 0;
	for (size_t i = p->offset; i < p->offset + p->count; i++) {
		sum += w[i];
		square += (double)w[i] * w[i];
		same += w[i] == again[i];
	}
	double n = (double)p->count, deviation = sqrt(2.0 / p->shape[1]);
	assert_true(fabs(sum / n) < 5 * deviation / sqrt(n));
	assert_true(fabs(square / n / (deviation * deviation) - 1) < 5 * sqrt(2 / n));
	assert_true(same < 10);
	check_normal(w + p->offset, p->count, deviation);

	p = &plan.params[net_param_find(&plan, "classifier.weight")];
	sum = square = 0;
	for (size_t i = p->offset; i < p->offset + p->count; i++) {
		assert_true(fabsf(w[i]) <= 1 / sqrtf(1024));
		sum += w[i];
		square += (double)w[i] * w[i];
	}
	n = (double)p->count; /* uniform: a third of the bound's square */
	assert_true(fabs(sum / n) < 5 / sqrt(3 * 1024 * n) && fabs(square / n * 3 * 1024 - 1) < 5 * sqrt(0.8 / n));
	p = &plan.params[net_param_find(&plan, "classifier.bias")];
	assert_true(fabs(w[p->offset] - log(0.01 / 0.99)) < 1e-6);
	assert_true(fabs(w[p->offset + 3] - log(1e-4)) < 1e-3 && fabs(w[p->offset + 4] + log(1e-4)) < 1e-3);
	assert_true(again[p->offset] == 0);
	p = &plan.params[net_param_find(&plan, "features.norm0.weight")];
	assert_true(w[p->offset] == 1 && w[p->offset + p->count] == 0);
	free(w);
	free(again);
	net_plan_free(&plan);

	/* a ResNet's convolutions keep the variance of the gradient: fan out, 256 here */
	make(&plan, &(struct net_conf){ .model = "resnet50", .image_size = 224, .classes = 14 });
	w = malloc(plan.n_weights * sizeof *w);
	net_init(&plan, 7, NULL, w);
	p = &plan.params[net_param_find(&plan, "layer1.0.conv3.weight")];
	square = 0;
	for (size_t i = p->offset; i < p->offset + p->count; i++)
		square += (double)w[i] * w[i];
	assert_true(fabs(square / (double)p->count * 256 / 2 - 1) < 5 * sqrt(2 / (double)p->count));
	p = &plan.params[net_param_find(&plan, "fc.weight")];
	for (size_t i = p->offset; i < p->offset + p->count; i++)
		assert_true(fabsf(w[i]) <= 1 / sqrtf(2048)); /* fan in, here too */
	free(w);
	net_plan_free(&plan);
}

/* A seed stands for the same weights in every version, on every machine: those of the numbers' definition, up to rounding of libm. */
static void a_seed_gives_weights_that_stay(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		float first[4];
	} known[] = {
		{ "features.conv0.weight", { -0.0606007203f, -0.051832065f, 0.14714551f, -0.0408878922f } },
		{ "classifier.weight", { 0.0038182952f, 0.00936163031f, -0.014480086f, -0.010044123f } },
	};
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "densenet121", .image_size = 224, .classes = 14 });
	float *w = malloc(plan.n_weights * sizeof *w);
	net_init(&plan, 7, NULL, w);
	for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
		for (size_t i = 0; i < 4; i++) {
			float got = w[plan.params[net_param_find(&plan, known[k].name)].offset + i];
			if (!(fabsf(got - known[k].first[i]) <= 1e-6f * fabsf(got)))
				fail_msg("%s[%zu]: %.9g, not %.9g", known[k].name, i, got, known[k].first[i]);
		}
	free(w);
	net_plan_free(&plan);
}

/* No two layers begin alike, with one seed or with two. */
static void every_layer_of_every_seed_begins_with_weights_of_its_own(void **state)
{
	(void)state;
	enum { SEEDS = 20 };
	struct net_plan plan;
	make(&plan, &(struct net_conf){ .model = "densenet", .image_size = 64, .classes = 14, .growth = 8, .n_blocks = 2, .block = { 3, 3 } });
	float *w = malloc(plan.n_weights * sizeof *w);
	double first[SEEDS * 64];
	int n = 0;
	for (int seed = 0; seed < SEEDS; seed++) {
		net_init(&plan, (uint64_t)seed, NULL, w);
		for (int i = 0; i < plan.n_params; i++)
			if (plan.params[i].kind == PARAM_CONV_WEIGHT) /* in units of its deviation */
				first[n++] = w[plan.params[i].offset] * sqrt((double)plan.params[i].count / plan.params[i].shape[0]);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			if (fabs(first[i] - first[j]) <= 1e-6 * fabs(first[i]))
				fail_msg("convolutions %d and %d of %d seeds begin with the same %g", i, j, SEEDS, first[i]);
	free(w);
	net_plan_free(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(densenet121_has_torchvisions_parameters),
		cmocka_unit_test(the_last_norm_has_torchvisions_name_after_any_number_of_blocks),
		cmocka_unit_test(resnet50_has_torchvisions_parameters),
		cmocka_unit_test(parameter_totals_of_the_family),
		cmocka_unit_test(parameters_tile_the_flat_array_in_order),
		cmocka_unit_test(layers_join_without_a_gap),
		cmocka_unit_test(unusable_configurations_are_refused_by_name),
		cmocka_unit_test(images_are_refused_or_leave_something_at_every_layer),
		cmocka_unit_test(initial_weights_are_torchvisions_and_keyed),
		cmocka_unit_test(a_seed_gives_weights_that_stay),
		cmocka_unit_test(every_layer_of_every_seed_begins_with_weights_of_its_own),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
