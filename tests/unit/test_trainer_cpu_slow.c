/* SPDX-License-Identifier: Apache-2.0
 * A reference implementation of oneDNN is orders of magnitude slower and gives no error: the engine must refuse it by name. */
#include "engine/cpu/cpu.h"
#include "small_net.h"

static void a_reference_implementation_is_refused_with_the_layer_s_name(void **state)
{
	(void)state;
	struct net n;
	struct engine *engine = NULL;
	if (!cpu_baseline_open)
		skip_because("there was no oneDNN when this was built");
	make_net(&n, &(struct net_conf){ .model = "densenet", .image_size = 40, .classes = 6, .growth = 16, .n_blocks = 2, .block = { 2, 2 } }, 4, 1);
	n.conf.precision = PRECISION_FP32;
	n.conf.variant = VARIANT_BASELINE;
	assert_int_equal(engine_open(&engine, ENGINE_CPU, &n.conf, &n.error), -EXIT_USAGE);
	print_message("# %s\n", n.error.text);
	assert_null(engine);
	assert_non_null(strstr(n.error.text, "ref"));
	int named = 0;
	for (int i = 0; i < n.plan.n_layers; i++)
		named += strstr(n.error.text, n.plan.layers[i].name) != NULL;
	assert_true(named > 0);
	free_net(&n);
}

int main(void)
{
	/* Without AVX-512 there is no other implementation for blocks of 16 channels. oneDNN reads it at the first call. */
	setenv("DNNL_MAX_CPU_ISA", "SSE41", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reference_implementation_is_refused_with_the_layer_s_name),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
