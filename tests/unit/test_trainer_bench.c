/* SPDX-License-Identifier: Apache-2.0
 * What is told of timed steps, and of what they were computed on. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "commands/bench_run.h"
#include "learn/resample.h"

static void quantiles_of_few_values_lie_between_them(void **state)
{
	static const double seconds[] = { 1, 2, 4, 8 };

	(void)state;
	assert_close(quantile(seconds, 1, 0.5), 1, 0);
	assert_close(quantile(seconds, 2, 0.5), 1.5, 0); /* no side is preferred */
	assert_close(quantile(seconds, 3, 0.5), 2, 0);
	assert_close(quantile(seconds, 4, 0.5), 3, 0);
	assert_close(quantile(seconds, 4, 0), 1, 0);
	assert_close(quantile(seconds, 4, 1), 8, 0);
	assert_close(quantile(seconds, 4, 0.9), 4 + 0.7 * 4, 1e-12);
}

static void ranks_whose_gpus_go_without_nccl_are_told(void **state)
{
	struct place places[2] = { { .gpu = "0", .driver = 1 }, { .gpu = "1", .driver = 1 } };
	struct hvd_world at = { .size = 2, .backend = "cpu" };
	const struct world w = { .at = &at, .places = places };

	(void)state;
	unsetenv("HVD_BACKEND");
	for (enum engine_choice choice = CHOOSE_AUTO; choice <= CHOOSE_CUDA; choice++) {
		const char *line = model_fallback(&w, choice);

		assert_int_equal(line && strstr(line, "NCCL") && strstr(line, "HVD_BACKEND=nccl"), choice == CHOOSE_AUTO || choice == CHOOSE_CUDA);
	}
	setenv("HVD_BACKEND", "cpu", 1); /* as was wished */
	assert_null(model_fallback(&w, CHOOSE_CUDA));
	setenv("HVD_BACKEND", "auto", 1);
	assert_non_null(model_fallback(&w, CHOOSE_CUDA));
	unsetenv("HVD_BACKEND");
	at.backend = "nccl";
	assert_null(model_fallback(&w, CHOOSE_CUDA));
	at = (struct hvd_world){ .size = 1, .backend = "cpu" }; /* nothing is added up */
	assert_null(model_fallback(&w, CHOOSE_CUDA));
	places[0].driver = 0;
	assert_non_null(strstr(model_fallback(&w, CHOOSE_AUTO), "no CUDA driver answers"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_of_few_values_lie_between_them),
		cmocka_unit_test(ranks_whose_gpus_go_without_nccl_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
