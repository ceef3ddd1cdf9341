/* SPDX-License-Identifier: Apache-2.0
 * What pages and charts are made of: ticks, counts, rates, pictures inside the page. */
#include "tests/unit/report_page.h"

static void ticks_are_round_and_inside(void **state)
{
	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 5000; round++) {
		double scale = pow(10, floor(16 * uniform() - 8)), low = scale * (2 * uniform() - 1), high = low + scale * (0.01 + uniform());
		int most = 2 + (int)(9 * uniform());
		double ticks[TICKS_MAX];
		int n = nice_ticks(low, high, most, ticks);

		assert_in_range(n, 1, most);
		assert_true(n >= most / 2.5 - 1);
		for (int i = 0; i < n; i++)
			assert_true(ticks[i] >= low - 1e-6 * scale && ticks[i] <= high + 1e-6 * scale);
		if (n > 1) {
			double step = ticks[1] - ticks[0], lead = step / pow(10, floor(log10(step * (1 + 1e-9))));

			assert_true(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6);
		}
		double top = nice_top(high - low);

		assert_true(top >= (high - low) * (1 - 1e-9) && top <= 2.5 * (1 + 1e-9) * (high - low));
	}
	assert_int_equal(nice_ticks(1, 1, 5, (double[TICKS_MAX]){ 0 }), 0);
}

/* RFC 4648, section 10. */
static void data_addresses_are_base64(void **state)
{
	static const char *const vectors[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
						  { "fooba", "Zm9vYmE=" }, { "foobar", "Zm9vYmFy" } };

	(void)state;
	for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
		struct page page = { 0 };
		char expected[64];

		page_data(&page, "image/png", vectors[i][0], strlen(vectors[i][0]));
		snprintf(expected, sizeof expected, "data:image/png;base64,%s", vectors[i][1]);
		assert_string_equal(page.text, expected);
		free(page.text);
	}
}

static void counts_have_commas_where_they_belong(void **state)
{
	struct page page = { 0 };

	(void)state;
	for (size_t n = 1; n < 100000000; n *= 7) {
		page_count(&page, n);
		page_put(&page, " ");
	}
	page_rate(&page, 99.96);
	page_put(&page, " ");
	page_rate(&page, 7321.4);
	assert_string_equal(page.text, "1 7 49 343 2,401 16,807 117,649 823,543 5,764,801 40,353,607 100.0 7,321");
	free(page.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks_are_round_and_inside),
		cmocka_unit_test(data_addresses_are_base64),
		cmocka_unit_test(counts_have_commas_where_they_belong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
