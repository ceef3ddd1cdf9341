/* SPDX-License-Identifier: Apache-2.0
 * The learning rate's course. */
#include "tests/unit/test.h"

#include <math.h>

#include "learn/schedule.h"

static void a_larger_global_batch_scales_the_rate_as_asked(void **state)
{
	(void)state;
	struct schedule s = { .rate = 1e-4, .base_batch = 64, .global_batch = 256 };

	assert_close(schedule_peak(&s), 1e-4, 1e-18);
	s.scaling = SCALING_SQRT;
	assert_close(schedule_peak(&s), 2e-4, 1e-18);
	s.scaling = SCALING_LINEAR;
	assert_close(schedule_peak(&s), 4e-4, 1e-18);
	s.global_batch = 96; /* half as large again */
	assert_close(schedule_peak(&s), 1.5e-4, 1e-18);
	s.scaling = SCALING_SQRT;
	assert_close(schedule_peak(&s), 1e-4 * sqrt(1.5), 1e-18);
	s.global_batch = 16; /* smaller than the base: unchanged */
	assert_close(schedule_peak(&s), 1e-4, 1e-18);
}

static void a_global_batch_that_no_int_counts_is_refused(void **state)
{
	struct error e = { 0 };

	(void)state;
	assert_int_equal(schedule_global_batch(16, 4, 8, &e), 512);
	assert_int_equal(schedule_global_batch(4096, 4096, 127, &e), 4096 * 4096 * 127);
	assert_int_equal(e.code, 0);
	for (int ranks = 128; ranks <= 1024; ranks *= 2) {
		char text[64];

		snprintf(text, sizeof text, "--batch=4096 x --accumulate=4096 x %d ranks", ranks);
		assert_int_equal(schedule_global_batch(4096, 4096, ranks, &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, text));
		e = (struct error){ 0 };
	}
}

static void warm_up_rises_to_the_peak_in_equal_steps(void **state)
{
	(void)state;
	struct schedule s = { .rate = 0.1, .base_batch = 1, .global_batch = 1, .warmup = 10, .steps = 100 };

	for (uint64_t i = 0; i < 10; i++)
		assert_close(schedule_rate(&s, i), 0.01 * (double)(i + 1), 1e-15);
	assert_close(schedule_rate(&s, 10), 0.1, 1e-15);
	assert_close(schedule_rate(&s, 1000), 0.1, 1e-15);
}

static void cosine_falls_from_peak_to_the_final_share(void **state)
{
	(void)state;
	struct schedule s = { .rate = 1, .base_batch = 1, .global_batch = 1, .warmup = 5, .decay = DECAY_COSINE, .steps = 105, .final_share = 0.01 };

	assert_close(schedule_rate(&s, 5), 1, 1e-15);
	assert_close(schedule_rate(&s, 55), 0.505, 1e-12); /* half way */
	assert_close(schedule_rate(&s, 105), 0.01, 1e-12);
	assert_close(schedule_rate(&s, 130), 0.01, 1e-12); /* and does not rise again */
	assert_close(schedule_rate(&s, 500), 0.01, 1e-12);
	for (uint64_t i = 5; i < 105; i++)
		assert_true(schedule_rate(&s, i + 1) < schedule_rate(&s, i));
	s.final_share = 0; /* PyTorch's CosineAnnealingLR(T_max=100): the last of the 100 steps still moves the weights */
	assert_close(schedule_rate(&s, 104), 0.5 * (1 + cos(0.99 * M_PI)), 1e-12);
}

static void a_plateau_scales_what_follows_the_warm_up(void **state)
{
	(void)state;
	struct schedule s = { .rate = 1, .base_batch = 1, .global_batch = 1, .warmup = 2, .decay = DECAY_PLATEAU, .steps = 100 };

	assert_close(schedule_rate(&s, 50), 1, 1e-15);
	s.factor = 0.01;
	assert_close(schedule_rate(&s, 50), 0.01, 1e-15);
	assert_true(schedule_warms_up(&s, 1) && !schedule_warms_up(&s, 2));
	s.moved = 10;
	assert_true(schedule_warms_up(&s, 11) && !schedule_warms_up(&s, 12));
}

static void a_run_of_one_step_has_a_rate(void **state)
{
	(void)state;
	struct schedule s = { .rate = 1, .base_batch = 1, .global_batch = 1, .decay = DECAY_COSINE, .steps = 1 };

	assert_close(schedule_rate(&s, 0), 1, 1e-15);
	s.warmup = 1; /* nothing is left to fall in */
	assert_close(schedule_rate(&s, 0), 1, 1e-15);
	assert_close(schedule_rate(&s, 1), 1, 1e-15);
}

static void a_run_whose_batch_changed_goes_on_in_the_middle_of_the_curve(void **state)
{
	(void)state;
	struct schedule s = { .rate = 1, .base_batch = 1, .global_batch = 1, .warmup = 5, .decay = DECAY_COSINE, .steps = 106 };
	struct schedule later = s;

	later.moved = -20; /* each of its first steps was worth more of these */
	later.steps -= 20;
	for (uint64_t i = 0; i < 86; i++)
		assert_close(schedule_rate(&later, i), schedule_rate(&s, i + 20), 1e-15);
	later.moved = 30;
	later.steps = 136;
	for (uint64_t i = 30; i < 136; i++)
		assert_close(schedule_rate(&later, i), schedule_rate(&s, i - 30), 1e-15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_larger_global_batch_scales_the_rate_as_asked),
		cmocka_unit_test(a_global_batch_that_no_int_counts_is_refused),
		cmocka_unit_test(warm_up_rises_to_the_peak_in_equal_steps),
		cmocka_unit_test(cosine_falls_from_peak_to_the_final_share),
		cmocka_unit_test(a_plateau_scales_what_follows_the_warm_up),
		cmocka_unit_test(a_run_of_one_step_has_a_rate),
		cmocka_unit_test(a_run_whose_batch_changed_goes_on_in_the_middle_of_the_curve),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
