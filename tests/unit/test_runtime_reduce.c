/* SPDX-License-Identifier: Apache-2.0
 * Rounding to bf16 and f16, by their definition. */
#include "tests/unit/test.h"

#include "runtime/reduce.h"

#include <float.h>
#include <math.h>

static uint16_t narrow(enum hvd_type type, float f)
{
	uint16_t x;
	arithmetic(type, HVD_SUM, 0)->store(&x, &f, 1, 1);
	return x;
}

static float wide(enum hvd_type type, uint16_t x)
{
	float f;
	arithmetic(type, HVD_SUM, 0)->load(&f, &x, 1);
	return f;
}

static uint16_t narrowed(float f)
{
	return narrow(HVD_BF16, f);
}

static float widened(uint16_t x)
{
	return wide(HVD_BF16, x);
}

static const struct format {
	enum hvd_type type;
	int fraction;  /* bits */
	int bias;      /* of the exponent */
	uint16_t infinity;
} formats[] = { { HVD_BF16, 7, 127, 0x7f80 }, { HVD_F16, 10, 15, 0x7c00 } };

/* What IEEE 754 says that these 16 bits are. */
static double meaning(const struct format *f, uint32_t x)
{
	const int exponent = (int)(x & 0x7fff) >> f->fraction, fraction = (int)x & ((1 << f->fraction) - 1);
	double y = exponent ? ldexp((1 << f->fraction) + fraction, exponent - f->bias - f->fraction) : ldexp(fraction, 1 - f->bias - f->fraction);

	if ((x & 0x7fff) >= f->infinity)
		y = fraction ? NAN : INFINITY;
	return x & 0x8000 ? -y : y;
}

static void sixteen_bits_mean_what_they_mean_and_come_back_as_they_were(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		for (uint32_t x = 0; x < 0x10000; x++) {
			const float y = wide(formats[i].type, (uint16_t)x);
			if (isnan(y)) {
				assert_true(isnan(meaning(&formats[i], x)));
				continue;
			}
			assert_true((double)y == meaning(&formats[i], x) && !signbit(y) == !(x & 0x8000));
			assert_int_equal(narrow(formats[i].type, y), x);
		}
}

static void what_lies_between_goes_to_the_nearest_and_from_the_middle_to_even(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		const enum hvd_type type = formats[i].type;
		for (uint16_t x = 0; x < formats[i].infinity - 1; x++) {
			const float low = wide(type, x), high = wide(type, (uint16_t)(x + 1)), middle = low / 2 + high / 2;
			assert_int_equal(narrow(type, nextafterf(middle, 0)), x);
			assert_int_equal(narrow(type, middle), x + (x & 1));
			assert_int_equal(narrow(type, nextafterf(middle, INFINITY)), x + 1);
			assert_int_equal(narrow(type, -middle), 0x8000 | (x + (x & 1)));
		}
		assert_int_equal(narrow(type, FLT_MAX), formats[i].infinity);
		assert_int_equal(narrow(type, -INFINITY), 0x8000 | formats[i].infinity);
		assert_int_equal(narrow(type, FLT_TRUE_MIN), 0);
	}
	/* f16 ends at 65504, and half a step above it */
	assert_int_equal(narrow(HVD_F16, nextafterf(65520, 0)), 0x7bff);
	assert_int_equal(narrow(HVD_F16, 65520), 0x7c00);
	assert_int_equal(narrow(HVD_F16, 65536), 0x7c00);
}

static void not_a_number_stays_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		for (uint32_t payload = 1; payload < 0x800000; payload += payload < 0x10000 ? 1 : 0x1001) {
			const enum hvd_type type = formats[i].type;
			uint32_t bits = 0x7f800000 | payload;
			float f;
			memcpy(&f, &bits, sizeof f);
			assert_true(isnan(wide(type, narrow(type, f))) && isnan(wide(type, narrow(type, -f))));
		}
}

/* The same with vectors as for one. */
static void many_at_once_are_as_each_alone(void **state)
{
	enum { N = 0x10000 };
	float *all = malloc(N * sizeof *all);
	uint16_t *each = malloc(N * sizeof *each);
	(void)state;
	assert_true(all && each);
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		const enum hvd_type type = formats[i].type;
		for (uint32_t x = 0; x < N; x++)
			each[x] = (uint16_t)x;
		arithmetic(type, HVD_SUM, 0)->load(all, each, N);
		arithmetic(type, HVD_SUM, 0)->fold(all, each, N);
		arithmetic(type, HVD_SUM, 0)->store(each, all, N, 4);
		for (uint32_t x = 0; x < N; x++)
			if (!isnan(all[x]))
				assert_int_equal(each[x], narrow(type, 2 * wide(type, (uint16_t)x) / 4));
	}
	free(each);
	free(all);
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

/* Also with a sanitizer, to which signed numbers that do so are an error. */
static void sums_of_integers_wrap_around(void **state)
{
	int32_t most = INT32_MAX, small = 1, sum32;
	int64_t least = INT64_MIN, minus = -1, sum64;
	(void)state;
	arithmetic(HVD_I32, HVD_SUM, 0)->load(&sum32, &most, 1);
	arithmetic(HVD_I32, HVD_SUM, 0)->fold(&sum32, &small, 1);
	arithmetic(HVD_I64, HVD_SUM, 0)->load(&sum64, &least, 1);
	arithmetic(HVD_I64, HVD_SUM, 0)->fold(&sum64, &minus, 1);
	assert_true(sum32 == INT32_MIN && sum64 == INT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sixteen_bits_mean_what_they_mean_and_come_back_as_they_were),
		cmocka_unit_test(what_lies_between_goes_to_the_nearest_and_from_the_middle_to_even),
		cmocka_unit_test(not_a_number_stays_one),
		cmocka_unit_test(many_at_once_are_as_each_alone),
		cmocka_unit_test(narrow_sums_are_rounded_after_every_rank),
		cmocka_unit_test(sums_of_integers_wrap_around),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
