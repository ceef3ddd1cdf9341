/* SPDX-License-Identifier: Apache-2.0
 * Sets of CPUs and the texts in which the kernel and Slurm write them. */
#include "test.h"

#include "../../spank/cpulist.h"

static void reads(const char *text, const char *printed)
{
	struct cpuset s;
	char buf[256];
	if (cpulist_parse(text, &s))
		fail_msg("'%s' is not read", text);
	assert_string_equal(cpulist_print(&s, buf, sizeof buf), printed);
}

static void rejects(const char *text)
{
	struct cpuset s;
	if (!cpulist_parse(text, &s))
		fail_msg("'%s' is taken", text);
	assert_true(cpuset_empty(&s));
}

static void lists(void **state)
{
	(void)state;
	reads("", "");
	reads("0", "0");
	reads("0-3,8", "0-3,8");
	reads("8,0,3,1,2", "0-3,8");
	reads(" 0-1, 4095\n", "0-1,4095");
	reads("0-6:2", "0,2,4,6");
	reads("5-5,7-8:1", "5,7-8");
	reads("63-64", "63-64");
	rejects(",");
	rejects("0,");
	rejects("0,,1");
	rejects("3-1");
	rejects("0-");
	rejects("-1");
	rejects("4096");
	rejects("0-99999999999");
	rejects("0-4:0");
	rejects("0x1");
	rejects("0 1");
}

static void masks(void **state)
{
	struct cpuset s;
	char buf[64];
	(void)state;
	assert_int_equal(cpumask_parse("0x5", 3, &s), 0);
	assert_string_equal(cpulist_print(&s, buf, sizeof buf), "0,2");
	assert_int_equal(cpumask_parse("00000001,80000000", 17, &s), 0);
	assert_string_equal(cpulist_print(&s, buf, sizeof buf), "31-32");
	assert_int_equal(cpumask_parse("0x", 2, &s), -1);
	assert_int_equal(cpumask_parse("", 0, &s), -1);
	assert_int_equal(cpumask_parse("0xg1", 4, &s), -1);
	assert_true(cpuset_empty(&s));
	/* as many digits as a set has room for, and one more */
	char digits[CPUSET_MAX / 4 + 2];
	memset(digits, '8', sizeof digits);
	assert_int_equal(cpumask_parse(digits, sizeof digits - 2, &s), 0);
	assert_true(cpuset_count(&s) == CPUSET_MAX / 4 && cpuset_has(&s, CPUSET_MAX - 1));
	assert_int_equal(cpumask_parse(digits, sizeof digits - 1, &s), -1);
}

static void bindings_as_slurm_lists_them(void **state)
{
	struct cpuset mask[3];
	char buf[64];
	(void)state;
	assert_int_equal(cpu_bind_masks("mask_cpu:", "0x3,0xc", mask, 3), 0);
	assert_string_equal(cpulist_print(&mask[1], buf, sizeof buf), "2-3");
	assert_string_equal(cpulist_print(&mask[2], buf, sizeof buf), "0-1");
	assert_int_equal(cpu_bind_masks("map_cpu:", "7,0x10", mask, 3), 0);
	assert_string_equal(cpulist_print(&mask[1], buf, sizeof buf), "16");
	assert_int_equal(cpu_bind_masks("map_cpu:", "0,4095", mask, 2), 0);
	assert_true(cpuset_has(&mask[0], 0) && cpuset_has(&mask[1], 4095));
	assert_int_equal(cpu_bind_masks("map_cpu:", "4096", mask, 1), -1);
	assert_int_equal(cpu_bind_masks("map_cpu:", "7,x", mask, 3), -1);
	assert_int_equal(cpu_bind_masks("map_cpu:", "7x", mask, 1), -1);
	assert_int_equal(cpu_bind_masks("mask_cpu:", "", mask, 1), -1);
	assert_int_equal(cpu_bind_masks("none", "0x1", mask, 1), -1);
	assert_int_equal(cpu_bind_masks(NULL, "0x1", mask, 1), -1);
}

static void short_buffers_end_in_an_ellipsis(void **state)
{
	struct cpuset s;
	char buf[16];
	(void)state;
	assert_int_equal(cpulist_parse("0,2,4,6,8,10,12,14,16", &s), 0);
	assert_string_equal(cpulist_print(&s, buf, sizeof buf), "0,2,4,6,8,10…");
}

/* Printing and reading are inverse, and the algebra is that of sets. */
static void random_sets(void **state)
{
	unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 5;
	(void)state;
	print_message("# SEED=%u\n", seed);
	for (int i = 0; i < 500; i++) {
		struct cpuset a = { 0 }, b = { 0 }, back;
		char text[CPULIST_TEXT];
		int count = 0;
		for (int k = rand_r(&seed) % 300; k > 0; k--) {
			cpuset_add(&a, rand_r(&seed) % 300);
			cpuset_add(&b, rand_r(&seed) % CPUSET_MAX);
		}
		assert_int_equal(cpulist_parse(cpulist_print(&a, text, sizeof text), &back), 0);
		assert_true(cpuset_equal(&a, &back));
		struct cpuset both = cpuset_and(&a, &b), either = cpuset_or(&a, &b);
		assert_true(cpuset_within(&both, &a) && cpuset_within(&b, &either));
		assert_int_equal(cpuset_count(&both) + cpuset_count(&either), cpuset_count(&a) + cpuset_count(&b));
		assert_int_equal(cpuset_intersects(&a, &b), cpuset_count(&both) > 0);
		assert_int_equal(cpuset_empty(&a), cpuset_count(&a) == 0);
		assert_int_equal(cpuset_within(&a, &b), cpuset_count(&both) == cpuset_count(&a));
		cpuset_add(&b, 300 + i);
		assert_false(cpuset_equal(&a, &b) || cpuset_within(&b, &a));
		for (int n = cpuset_next(&a, 0); n >= 0; n = cpuset_next(&a, n + 1))
			count++;
		assert_int_equal(count, cpuset_count(&a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(masks),
		cmocka_unit_test(bindings_as_slurm_lists_them),
		cmocka_unit_test(short_buffers_end_in_an_ellipsis),
		cmocka_unit_test(random_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
