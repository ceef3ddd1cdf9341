/* SPDX-License-Identifier: Apache-2.0
 * Rounding to bf16, by its definition. */
#include "tests/unit/test.h"

#include "runtime/reduce.h"

#include <float.h>
#include <math.h>

static uint16_t narrowed(float f)
{
	uint16_t x;
	arithmetic(HVD_BF16, HVD_SUM, 0)->store(&x, &f, 1, 1);
	return x;
}

static float widened(uint16_t x)
{
	float f;
	arithmetic(HVD_BF16, HVD_SUM, 0)->load(&f, &x, 1);
	return f;
}

static void what_bf16_can_hold_comes_back_as_it_was(void **state)
{
	(void)state;
	for (uint32_t x = 0; x < 0x10000; x++)
		if (!isnan(widened((uint16_t)x)))
			assert_int_equal(narrowed(widened((uint16_t)x)), x);
}

static void what_lies_between_goes_to_the_nearest_and_from_the_middle_to_even(void **state)
{
	(void)state;
	for (uint16_t x = 0; x < 0x7f7f; x++) {
		float low = widened(x), high = widened((uint16_t)(x + 1)), middle = low / 2 + high / 2;
		assert_int_equal(narrowed(nextafterf(middle, 0)), x);
		assert_int_equal(narrowed(middle), x + (x & 1));
		assert_int_equal(narrowed(nextafterf(middle, INFINITY)), x + 1);
		assert_int_equal(narrowed(-middle), 0x8000 | (x + (x & 1)));
	}
	assert_true(isinf(widened(narrowed(FLT_MAX))));
}

static void not_a_number_stays_one(void **state)
{
	(void)state;
	for (uint32_t payload = 1; payload < 0x800000; payload += payload < 0x10000 ? 1 : 0x1001) {
		uint32_t bits = 0x7f800000 | payload;
		float f;
		memcpy(&f, &bits, sizeof f);
		assert_true(isnan(widened(narrowed(f))) && isnan(widened(narrowed(-f))));
	}
}

/* Sums that stay bf16 between ranks, and the mean at the end. */
static void narrow_sums_are_rounded_after_every_rank(void **state)
{
	(void)state;
	const struct arithmetic *thin = arithmetic(HVD_BF16, HVD_AVG, 1);
	uint16_t sum, mean, large = narrowed(256), one = narrowed(1), three = narrowed(3);
	assert_true(thin->size == 2 && thin->running == 2);
	thin->load(&sum, &large, 1);
	thin->fold(&sum, &one, 1); /* 257 is half way to 258, the other of which is even */
	assert_true(widened(sum) == 256);
	thin->fold(&sum, &three, 1); /* 259 */
	assert_true(widened(sum) == 260);
	thin->store(&mean, &sum, 1, 4);
	assert_true(widened(mean) == 65);
	thin->store(&mean, &sum, 1, 1);
	assert_int_equal(mean, sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_bf16_can_hold_comes_back_as_it_was),
		cmocka_unit_test(what_lies_between_goes_to_the_nearest_and_from_the_middle_to_even),
		cmocka_unit_test(not_a_number_stays_one),
		cmocka_unit_test(narrow_sums_are_rounded_after_every_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
