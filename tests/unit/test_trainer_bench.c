/* SPDX-License-Identifier: Apache-2.0
 * What is told of timed steps. */
#include "tests/unit/test.h"

#include "commands/bench_run.h"

static void quantiles_of_few_values_lie_between_them(void **state)
{
	static const double seconds[] = { 1, 2, 4, 8 };

	(void)state;
	assert_close(bench_at(seconds, 1, 0.5), 1, 0);
	assert_close(bench_at(seconds, 2, 0.5), 1.5, 0); /* no side is preferred */
	assert_close(bench_at(seconds, 3, 0.5), 2, 0);
	assert_close(bench_at(seconds, 4, 0.5), 3, 0);
	assert_close(bench_at(seconds, 4, 0), 1, 0);
	assert_close(bench_at(seconds, 4, 1), 8, 0);
	assert_close(bench_at(seconds, 4, 0.9), 4 + 0.7 * 4, 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_of_few_values_lie_between_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
