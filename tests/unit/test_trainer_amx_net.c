/* SPDX-License-Identifier: Apache-2.0
 * Whole small networks with bf16 products: on emulated tiles, and in the object code for the processor's tiles (amx_trap.h). */
#include "engine/cpu/cpu.h"
#include "small_net.h"
#if defined __x86_64__
#include "amx_trap.h"
#endif

enum { BATCHES = 2, BATCH = 8, MAX_RATIOS = 4096 };

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Gradients of one batch. */
static float *gradients(struct net *n, struct engine *engine)
{
	assert_int_equal(engine_backward(engine, &n->batch), 0);
	return read_array(n, engine, ENGINE_GRADS);
}

/* Each tensor's error of `a` against `exact`, as a multiple of the error of `b`; those with next to no gradient are left out. Returns how
 * many ratios there are now. */
static int add_ratios(const struct net *n, const float *a, const float *b, const float *exact, double *ratios, int count)
{
	double norm = 0;
	for (size_t i = 0; i < n->plan.n_weights; i++)
		norm += (double)exact[i] * exact[i];
	for (int p = 0; p < n->plan.n_params && count < MAX_RATIOS; p++) {
		const struct net_param *param = &n->plan.params[p];
		double own = 0;
		for (size_t i = 0; i < param->count; i++)
			own += (double)exact[param->offset + i] * exact[param->offset + i];
		if (own / (double)param->count >= 1e-6 * norm / (double)n->plan.n_weights)
			ratios[count++] = distance(a + param->offset, exact + param->offset, param->count) / distance(b + param->offset, exact + param->offset, param->count);
	}
	return count;
}

static void print_ratios(const char *name, double *ratios, int count, double *mean, double *most)
{
	double sum = 0;
	for (int i = 0; i < count; i++)
		sum += log(ratios[i]);
	qsort(ratios, (size_t)count, sizeof *ratios, ascending);
	*mean = exp(sum / count);
	*most = ratios[(int)(0.95 * (count - 1))];
	print_message("# tensors' errors against %s: geometric mean %.2f, 95th percentile %.2f of %d\n", name, *mean, *most, count);
}

/* Plain library primitives, or NULL where the library has none that multiply bf16 on this processor. */
static struct engine *open_library(struct net *n)
{
	int avx512 = 0;
	if (!cpu_baseline_open) {
		print_message("# not measured against the library: there was no oneDNN when this was built\n");
		return NULL;
	}
#if defined __x86_64__
	avx512 = __builtin_cpu_supports("avx512bw");
#endif
	if (!avx512) {
		struct engine_conf conf = n->conf;
		struct engine *engine;
		conf.precision = PRECISION_BF16;
		conf.variant = VARIANT_BASELINE;
		assert_int_equal(engine_open(&engine, ENGINE_CPU, &conf, &n->error), -EXIT_USAGE);
		assert_non_null(strstr(n->error.text, "oneDNN has no bf16 on this processor"));
		print_message("# not measured against the library: %s\n", n->error.text);
		n->error = (struct error){ 0 };
		return NULL;
	}
	return open_engine(n, ENGINE_CPU, PRECISION_BF16, VARIANT_BASELINE, 2);
}

/* The bar is the error of exact arithmetic on activations stored in bf16, which is rounding's part whatever the products are, and where it
 * can run the net that of a plain step of library primitives, which multiplies bf16 by bf16 too, as PyTorch's autocast does. Tensor by
 * tensor, against fp64: geometric mean at most 1.2 times theirs, 95th percentile at most 1.5 times. */
static void errors_are_those_of_bf16(void **state)
{
	const struct net_conf *conf = *state;
	int count = 0;
	static double ratios[2][MAX_RATIOS];
	struct net n;
	make_net(&n, conf, BATCH, 1);
	struct engine *amx = open_engine(&n, ENGINE_CPU, PRECISION_BF16, VARIANT_AMX, 2), *oracle = open_engine(&n, ENGINE_REFERENCE, PRECISION_FP64, VARIANT_BEST, 2);
	struct engine *rival[2] = { open_engine(&n, ENGINE_REFERENCE, PRECISION_BF16, VARIANT_BEST, 2),
		                    !strcmp(conf->model, "densenet") && conf->growth % 16 == 0 ? open_library(&n) : NULL };
	print_message("# %s\n", engine_describe(amx));
	assert_non_null(strstr(engine_describe(amx), "AMX"));
	for (int i = 0; i < BATCHES; i++) {
		for (int p = 0; p < BATCH * n.conf.source_size * n.conf.source_size; p++)
			n.pixels[p] = (uint8_t)noise();
		float *exact = gradients(&n, oracle), *tested = gradients(&n, amx);
		double loss, expected;
		engine_loss(amx, &loss);
		engine_loss(oracle, &expected);
		assert_true(fabs(loss - expected) < 0.01 * expected);
		int before = count;
		for (int r = 0; r < 2 && rival[r]; r++) {
			float *theirs = gradients(&n, rival[r]);
			count = add_ratios(&n, tested, theirs, exact, ratios[r], before);
			free(theirs);
		}
		free(exact);
		free(tested);
	}
	for (int r = 0; r < 2 && rival[r]; r++) {
		double mean, most;
		print_ratios(r ? "the library's" : "bf16 storage's", ratios[r], count, &mean, &most);
		assert_true(mean <= 1.2);
		assert_true(most <= 1.5);
		engine_close(rival[r]);
	}
	engine_close(amx);
	engine_close(oracle);
	free_net(&n);
}

/* Parameters after two steps. kernels NULL: the emulated ones. */
static float *trained(struct net *n, const struct cpu_amx *kernels, int threads)
{
	struct engine *e = open_engine(n, ENGINE_CPU, PRECISION_BF16, VARIANT_AMX, threads);
	if (kernels)
		cpu_engine(e)->amx = kernels;
	for (int step = 0; step < 2; step++) {
		uint64_t token;
		assert_int_equal(engine_train(e, &n->batch, 0, 1, 1e-3, &token), 0);
	}
	float *params = read_array(n, e, ENGINE_PARAMS);
	engine_close(e);
	return params;
}

static void bits_do_not_depend_on_threads(void **state)
{
	struct net n;
	make_net(&n, *state, 8, 1);
	float *first = trained(&n, NULL, 1);
	for (int threads = 2; threads <= 4; threads++) {
		float *params = trained(&n, NULL, threads);
		assert_memory_equal(params, first, n.plan.n_weights * sizeof *params);
		free(params);
	}
	free(first);
	free_net(&n);
}

/* A step of every kernel as it will run where there is AMX, in several threads. Trapped, its bits are the emulation's; a real processor may
 * round the sums inside an instruction in another order, which the net amplifies. */
static void code_for_the_processor_trains_as_the_emulation_does(void **state)
{
#if defined __x86_64__
	const char *why;
	int real = cpu_amx_best(&why) != NULL;
	struct net n;
	if (!__builtin_cpu_supports("avx512bf16"))
		skip_because("the object code for AMX needs AVX512_BF16");
	if (!real)
		trap_amx();
	make_net(&n, *state, 4, 1);
	float *emulated = trained(&n, NULL, 2), *processor = trained(&n, &cpu_amx_processor, 2);
	double d = distance(processor, emulated, n.plan.n_weights);
	print_message("# %s; parameters after two steps differ by %.1e\n", real ? "on this processor's AMX" : "AMX's instructions trapped and emulated", d);
	assert_true(real ? d < 0.01 : d == 0);
	if (!real)
		for (int i = 0; i < N_TRAPS; i++)
			assert_true(atomic_load(&trapped[i]) > 0);
	free(emulated);
	free(processor);
	free_net(&n);
#else
	(void)state;
	skip_because("not an x86-64");
#endif
}

static void only_bf16_takes_it(void **state)
{
	struct net n;
	make_net(&n, *state, 2, 1);
	struct engine *fp32 = open_engine(&n, ENGINE_CPU, PRECISION_FP32, VARIANT_AMX, 1), *plain = open_engine(&n, ENGINE_CPU, PRECISION_BF16, VARIANT_PORTABLE, 1);
	struct engine *best = open_engine(&n, ENGINE_CPU, PRECISION_BF16, VARIANT_BEST, 1);
	const char *why;
	assert_null(strstr(engine_describe(fp32), "AMX"));
	assert_null(strstr(engine_describe(plain), "AMX"));
	print_message("# %s\n", engine_describe(best));
	assert_int_equal(cpu_engine(best)->amx == cpu_amx_best(&why), 1);
	assert_int_equal(strstr(engine_describe(best), "AMX") != NULL, cpu_engine(best)->amx || why);
	engine_close(fp32);
	engine_close(plain);
	engine_close(best);
	free_net(&n);
}

#define OF(test, net) { #test "_in_a_" #net, test, NULL, NULL, &net }

int main(void)
{
	static struct net_conf densenet = { .model = "densenet", .image_size = 64, .classes = 14, .growth = 16, .n_blocks = 4, .block = { 2, 2, 2, 2 } };
	static struct net_conf resnet = { .model = "resnet", .image_size = 48, .classes = 14, .init_channels = 8, .n_blocks = 4, .block = { 1, 2, 1, 1 } };
	static struct net_conf narrow_densenet = { .model = "densenet", .image_size = 43, .classes = 5, .growth = 5, .init_channels = 7, .n_blocks = 3, .block = { 3, 2, 2 } };
	static struct net_conf narrow_resnet = { .model = "resnet", .image_size = 37, .classes = 3, .init_channels = 5, .n_blocks = 3, .block = { 1, 2, 1 } };
	const struct CMUnitTest tests[] = {
		OF(errors_are_those_of_bf16, densenet),
		OF(errors_are_those_of_bf16, narrow_densenet),
		OF(errors_are_those_of_bf16, resnet),
		OF(bits_do_not_depend_on_threads, narrow_densenet),
		OF(bits_do_not_depend_on_threads, narrow_resnet),
		OF(code_for_the_processor_trains_as_the_emulation_does, narrow_densenet),
		OF(code_for_the_processor_trains_as_the_emulation_does, narrow_resnet),
		OF(only_bf16_takes_it, narrow_densenet),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
