/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's algorithm without its rounding: the same sources built with double for float, against the fp64 reference.
 * Fused kernels, the shared normalisation and its one deferred correction, the folded stem: exact identities all of them. */
#include "engine/cpu/cpu.h"
#include "small_net.h"

/* The plain C kernels are the ones that can be built in fp64. */
const struct cpu_kernels *cpu_kernels_best(void)
{
	return &cpu_kernels_portable;
}

/* bf16 only. */
const struct cpu_amx cpu_amx_emulated;

const struct cpu_amx *cpu_amx_best(const char **why)
{
	*why = NULL;
	return NULL;
}

int engine_cuda_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	(void)engine;
	(void)conf;
	return fail(e, EXIT_USAGE, "no CUDA in fp64");
}

int engine_cuda_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e)
{
	(void)conf, (void)gpu, (void)ask_cudnn, (void)room;
	return fail(e, EXIT_USAGE, "not in this test");
}

static void compare(struct net *n, struct engine *cpu, struct engine *oracle, enum engine_what what, const char *name, double limit)
{
	float *a = read_array(n, cpu, what), *b = read_array(n, oracle, what);
	size_t count = what == ENGINE_RUNNING_MEAN || what == ENGINE_RUNNING_VAR ? n->plan.n_bn_channels : n->plan.n_weights;
	double d = distance(a, b, count);
	print_message("# %s: %.1e\n", name, d);
	assert_true(d < limit);
	free(a);
	free(b);
}

static void check_gradients(const struct net_conf *conf, int batch, int channels)
{
	struct net n;
	make_net(&n, conf, batch, channels);
	struct engine *cpu = open_engine(&n, ENGINE_CPU, PRECISION_FP32, VARIANT_BEST, 2);
	struct engine *oracle = open_engine(&n, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, 2);
	double loss, expected;
	assert_int_equal(engine_backward(cpu, &n.batch), 0);
	assert_int_equal(engine_backward(oracle, &n.batch), 0);
	engine_loss(cpu, &loss);
	engine_loss(oracle, &expected);
	assert_true(fabs(loss - expected) < 1e-9 * expected);
	compare(&n, cpu, oracle, ENGINE_GRADS, "gradients", 1e-6);
	engine_close(cpu);
	engine_close(oracle);
	free_net(&n);
}

static void gradients_within_1e_6(void **state)
{
	(void)state;
	struct net_conf conf = { .model = "densenet", .image_size = 64, .classes = 14, .growth = 16, .n_blocks = 4, .block = { 2, 2, 2, 2 } };
	check_gradients(&conf, 4, 1);
	conf.growth = 12;
	conf.init_channels = 20;
	conf.image_size = 48;
	check_gradients(&conf, 3, 1);
	check_gradients(&(struct net_conf){ .model = "densenet", .image_size = 75, .classes = 3, .growth = 5, .init_channels = 7, .n_blocks = 3, .block = { 2, 1, 1 } }, 4, 3);
}

/* Twenty steps of two micro-batches: an error that compounds would show. */
static void trajectories_within_1e_9(void **state)
{
	(void)state;
	struct net n;
	make_net(&n, &(struct net_conf){ .model = "densenet", .image_size = 32, .classes = 6, .growth = 8, .n_blocks = 2, .block = { 2, 2 } }, 4, 1);
	struct engine *cpu = open_engine(&n, ENGINE_CPU, PRECISION_FP32, VARIANT_BEST, 2);
	struct engine *oracle = open_engine(&n, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, 2);
	for (int step = 0; step < 20; step++)
		for (int micro = 0; micro < 2; micro++) {
			uint64_t token;
			for (int i = 0; i < 4; i++)
				n.labels[i] = noise();
			assert_int_equal(engine_train(cpu, &n.batch, micro, 2, 1e-3, &token), 0);
			assert_int_equal(engine_train(oracle, &n.batch, micro, 2, 1e-3, &token), 0);
		}
	double loss, expected;
	engine_loss(cpu, &loss);
	engine_loss(oracle, &expected);
	print_message("# losses after 20 steps: %.12f and %.12f\n", loss, expected);
	assert_true(fabs(loss - expected) < 1e-9 * expected);
	compare(&n, cpu, oracle, ENGINE_PARAMS, "parameters after 20 steps", 1e-9);
	compare(&n, cpu, oracle, ENGINE_RUNNING_VAR, "running variances after 20 steps", 1e-9);
	engine_close(cpu);
	engine_close(oracle);
	free_net(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_within_1e_6),
		cmocka_unit_test(trajectories_within_1e_9),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
