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
		cmocka_unit_test(short_buffers_end_in_an_ellipsis),
		cmocka_unit_test(random_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
