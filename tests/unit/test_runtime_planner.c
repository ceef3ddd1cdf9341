/* SPDX-License-Identifier: Apache-2.0
 * The bucket planner against all cuts there are, and against the fixed plans that others use; and the file of a plan. */
#include "tests/unit/test.h"

#include "runtime/boot.h"
#include "runtime/hvd.h"
#include "runtime/planner.h"

#include <glob.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double random_number(unsigned *seed)
{
	return (double)rand_r(seed) / RAND_MAX;
}

/* The best of all 2^(n-1) cuts. */
static double best_of_all(const double *ready, const size_t *bytes, int n, const struct cost *cost, int most)
{
	double best = INFINITY;
	for (unsigned mask = 0; mask < 1u << (n - 1); mask++) {
		int last[16], buckets = 0;
		for (int i = 0; i < n; i++)
			if (i == n - 1 || mask >> i & 1)
				last[buckets++] = i;
		double t = buckets <= most ? plan_through(ready, bytes, cost, last, buckets) : INFINITY;
		best = t < best ? t : best;
	}
	return best;
}

static void buckets_are_filled_one_after_the_other(void **state)
{
	(void)state;
	static const struct {
		size_t bytes[6], size;
		int n;
		bool statistics;
		int last[7]; /* and -1 */
	} cases[] = {
		{ { 4, 4, 4, 4, 4 }, 8, 5, false, { 1, 3, 4, -1 } },
		{ { 4, 4, 4, 4, 4 }, 8, 5, true, { 1, 3, 4, -1 } },
		{ { 5, 2, 1, 9, 3, 3 }, 8, 6, false, { 2, 3, 5, -1 } },
		{ { 5, 2, 1, 9, 3, 3 }, 8, 6, true, { 2, 3, 4, 5, -1 } },
		{ { 1, 1, 1 }, 1, 3, true, { 0, 1, 2, -1 } },
		{ { 1, 6, 1, 1, 1 }, 8, 5, true, { 2, 3, 4, -1 } },
		{ { 7 }, 8, 1, true, { 0, -1 } },
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		int last[7], buckets = plan_fill(cases[c].bytes, cases[c].n, cases[c].size, cases[c].statistics, last);
		last[buckets] = -1;
		assert_memory_equal(last, cases[c].last, ((size_t)buckets + 1) * sizeof *last);
	}
}

static void no_cut_is_better(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int round = 0; round < 400; round++) {
		int n = 1 + rand_r(&random) % 11, last[16], most = 1 + rand_r(&random) % (n + 3);
		double ready[16], t = 0;
		size_t bytes[16];
		for (int i = 0; i < n; i++) {
			t += random_number(&random) * 1e-3;
			ready[i] = t;
			bytes[i] = (size_t)(random_number(&random) * 1e6);
		}
		struct cost cost = { random_number(&random) * 1e-3, random_number(&random) * 4e-9, rand_r(&random) % 4, random_number(&random) * 1e6 };
		int buckets = plan_cut(ready, bytes, n, &cost, most, last);
		double best = best_of_all(ready, bytes, n, &cost, most);
		assert_true(buckets >= 1 && buckets <= most && buckets <= n && last[buckets - 1] == n - 1);
		assert_true(fabs(plan_through(ready, bytes, &cost, last, buckets) - best) <= best * 1e-9);
	}
}

/* A network like DenseNet-121: 27.9 MB in 364 tensors, half of the bytes ready after a tenth of 60 ms. */
static void it_hides_what_fixed_buckets_do_not(void **state)
{
	(void)state;
	enum { N = 364 };
	double ready[N], total = 0, at = 0;
	size_t bytes[N];
	int last[16], fixed[N], buckets;
	for (int i = 0; i < N; i++)
		total += bytes[i] = (size_t)(4e5 * exp(-i / 60.0) + 2e4);
	for (int i = 0; i < N; i++) {
		at += (double)bytes[i] / total;
		ready[i] = 0.06 * at * at * at + 0.06 * 0.02 * i / N;
	}
	struct cost cost = { .latency = 0.2e-3, .per_byte = 1 / 1.5e9 };
	buckets = plan_cut(ready, bytes, N, &cost, 16, last);
	double exposed = plan_through(ready, bytes, &cost, last, buckets) - ready[N - 1];

	/* PyTorch's 1 + 25 MiB */
	size_t sum = 0;
	buckets = 0;
	for (int i = 0; i < N; i++) {
		sum += bytes[i];
		if (i == N - 1 || sum >= (buckets ? 25u << 20 : 1u << 20)) {
			fixed[buckets++] = i;
			sum = 0;
		}
	}
	double exposed_fixed = plan_through(ready, bytes, &cost, fixed, buckets) - ready[N - 1];
	printf("# exposed: %.3f ms, with 1 + 25 MiB %.3f ms\n", exposed * 1e3, exposed_fixed * 1e3);
	assert_true(exposed * 5 < exposed_fixed);
}

/* 400,000 tensors, for which trying every pair of ends takes an hour, and 800 that are 500 of those each. */
static void very_many_tensors_are_cut_as_well_as_a_few(void **state)
{
	(void)state;
	enum { FEW = 800, PARTS = 500, MANY = FEW * PARTS };
	static double ready[MANY], ready_few[FEW];
	static size_t bytes[MANY], bytes_few[FEW];
	struct cost cost = { .latency = 0.2e-3, .per_byte = 1 / 1.5e9 };
	int last[16];
	for (int i = 0; i < MANY; i++) {
		double at = (i + 1.0) / MANY;
		bytes[i] = (size_t)(8e2 * exp(-8 * at)) + 40;
		ready[i] = 0.06 * at * at * at;
		bytes_few[i / PARTS] += bytes[i];
		ready_few[i / PARTS] = ready[i];
	}
	int buckets = plan_cut(ready, bytes, MANY, &cost, 16, last);
	assert_int_equal(last[buckets - 1], MANY - 1);
	const double through = plan_through(ready, bytes, &cost, last, buckets);
	buckets = plan_cut(ready_few, bytes_few, FEW, &cost, 16, last);
	const double through_few = plan_through(ready_few, bytes_few, &cost, last, buckets);
	printf("# exposed: %.3f ms of many, %.3f ms of few\n", (through - 0.06) * 1e3, (through_few - 0.06) * 1e3);
	assert_true(fabs(through - through_few) < 0.1e-3);
}

static void a_line_is_found(void **state)
{
	(void)state;
	double bytes[] = { 4096, 65536, 524288, 2097152 }, seconds[4];
	struct cost cost;
	for (int hops = 0; hops < 4; hops++) {
		for (int i = 0; i < 4; i++)
			seconds[i] = 50e-6 + (bytes[i] + hops * (bytes[i] < 131072 ? bytes[i] : 131072)) * 2e-9;
		cost = plan_fit(bytes, seconds, 4, hops, 131072);
		assert_true(fabs(cost.latency - 50e-6) < 1e-9 && fabs(cost.per_byte - 2e-9) < 1e-14);
	}
	for (int i = 0; i < 4; i++)
		seconds[i] = 1e-3 - bytes[i] * 1e-12; /* nonsense must not become a negative cost */
	cost = plan_fit(bytes, seconds, 4, 0, 0);
	assert_true(cost.latency >= 0 && cost.per_byte >= 0);
}

static void among_equal_cuts_the_one_with_the_fewest_buckets_is_taken(void **state)
{
	(void)state;
	const double ready[4] = { 0.1, 0.1, 0.1, 0.1 };
	const size_t bytes[4] = { 1, 20, 300, 4000 };
	const struct cost cost = { .per_byte = 1e-9 };
	int last[4];
	assert_int_equal(plan_cut(ready, bytes, 4, &cost, 4, last), 1);
}

/* Least squares of what the line is wrong by, as a share of each measurement: there no change of either number helps. */
static void the_line_is_the_best_in_relative_terms(void **state)
{
	(void)state;
	const double bytes[5] = { 4096, 65536, 262144, 524288, 2097152 }, seconds[5] = { 60e-6, 170e-6, 620e-6, 1000e-6, 4500e-6 };
	struct cost cost = plan_fit(bytes, seconds, 5, 2, 131072);
	double along_latency = 0, along_byte = 0, share = 0;
	for (int i = 0; i < 5; i++) {
		double x = bytes[i] + 2 * (bytes[i] < 131072 ? bytes[i] : 131072), wrong = (cost.latency + cost.per_byte * x) / seconds[i] - 1;
		along_latency += wrong / seconds[i];
		along_byte += wrong * x / seconds[i];
		share += fabs(wrong);
	}
	assert_true(cost.latency > 0 && share > 0.1);
	assert_true(fabs(along_latency) * 1e-6 < 1e-9 && fabs(along_byte) * 1e-9 < 1e-9);
}

static void what_no_line_explains_costs_nothing(void **state)
{
	(void)state;
	const double same[2] = { 4096, 4096 }, seconds[2] = { 1e-4, 3e-4 }, bytes[2] = { 1e6, 2e6 }, steep[2] = { 1e-3, 1e-2 };
	struct cost cost = plan_fit(same, seconds, 2, 0, 0);
	assert_true(cost.per_byte == 0 && cost.latency > 1e-4 && cost.latency < 3e-4);
	assert_true(plan_fit(bytes, steep, 2, 0, 0).latency == 0);
}

/* What is written is beside the plan, under another name, until it is whole. */
static void a_plan_that_has_no_room_leaves_nothing(void **state)
{
	(void)state;
	char path[1024], beside[1040], why[WHY_BYTES];
	int last[2000], fd = mkstemp(temporary_name(path, sizeof path));
	assert_true(fd >= 0);
	close(fd);
	snprintf(beside, sizeof beside, "%s.*", path);
	for (int i = 0; i < 2000; i++)
		last[i] = i;
	struct rlimit before, small;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 5000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int status = plan_write(path, 7, 2000, last, 2000, NULL, why);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(status, -1);
	assert_non_null(strstr(why, "File too large"));
	glob_t left;
	assert_int_equal(glob(beside, 0, NULL, &left), GLOB_NOMATCH);
	assert_int_equal(unlink(path), 0); /* what was there stays */
}

/* Four gradients, the first line's hash as it should be. */
static int read_text(const char *text, char *why)
{
	char path[1024];
	int last[4], ranks = 0, fd = mkstemp(temporary_name(path, sizeof path));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	int buckets = plan_read(path, 7, 4, last, &ranks, why);
	unlink(path);
	return buckets;
}

static void a_damaged_plan_is_none(void **state)
{
	(void)state;
	static const char *const damaged[] = {
		"", "hvd plan 2: 4 gradients, hash 7, 2 buckets; the last gradient of each\n1\n3\n",
		"hvd plan 1: 4 gradients, hash 7, 2 buckets; the last gradient of each\n1\n", /* cut short */
		"hvd plan 1: 4 gradients, hash 7, 2 buckets; the last gradient of each\n1\n4\n", /* beyond the last */
		"hvd plan 1: 4 gradients, hash 7, 2 buckets; the last gradient of each\n1\n2\n", /* one that nobody would sum */
		"hvd plan 1: 4 gradients, hash 7, 3 buckets; the last gradient of each\n2\n2\n3\n", /* twice */
		"hvd plan 1: 4 gradients, hash 7, 3 buckets; the last gradient of each\n2\n1\n3\n",
		"hvd plan 1: 4 gradients, hash 7, 2 buckets; the last gradient of each\n-1\n3\n",
		"hvd plan 1: 4 gradients, hash 7, 0 buckets; the last gradient of each\n",
		"hvd plan 1: 4 gradients, hash 7, 5 buckets; the last gradient of each\n0\n1\n2\n3\n4\n",
	};
	char why[WHY_BYTES];
	assert_int_equal(read_text("hvd plan 1: 4 gradients, hash 7, 2 buckets; the last gradient of each\n0\n3\n", why), 2);
	for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
		assert_int_equal(read_text(damaged[i], why), -1);
		assert_non_null(strstr(why, "is no plan, or a damaged one"));
	}
	const char *unreadable = "/sys/class/net/lo/speed"; /* can be opened and, of this device, not be read */
	if (access(unreadable, R_OK) == 0) {
		assert_int_equal(plan_read(unreadable, 7, 4, NULL, &(int){ 0 }, why), -1);
		assert_string_equal(why, "/sys/class/net/lo/speed: Invalid argument");
		assert_int_equal(profile_read(unreadable, &(struct profile){ .n = 0 }, why), -1);
		assert_string_equal(why, "/sys/class/net/lo/speed: Invalid argument");
	}
	assert_int_equal(read_text("hvd plan 1: 4 gradients, hash 8, 2 buckets; the last gradient of each\n0\n3\n", why), -1);
	assert_non_null(strstr(why, "other gradients (4 of them, here 4)"));
	assert_int_equal(read_text("hvd plan 1: 5 gradients, hash 7, 1 buckets; the last gradient of each\n4\n", why), -1);
	assert_non_null(strstr(why, "other gradients (5 of them, here 4)"));
}

/* This program's numbers have a decimal comma from here on: of a locale that is made here, as a machine may have none but C. */
static void take_a_decimal_comma(char folder[1024])
{
	char command[2400];
	assert_non_null(mkdtemp(temporary_name(folder, 1024)));
	snprintf(command, sizeof command,
		 "cd '%s' && { printf '<code_set_name> X\nCHARMAP\n' && for i in $(seq 0 127); do printf '<U%%04X> \\x%%02x X\n' $i $i; done && echo END CHARMAP; } >X && "
		 "printf 'LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n' >source && "
		 "{ localedef -c -f \"$PWD/X\" -i source ./comma >told 2>&1; [ -s comma/LC_NUMERIC ] || cat told; }", folder);
	assert_int_equal(system(command), 0);
	setenv("LOCPATH", folder, 1);
	assert_non_null(setlocale(LC_NUMERIC, "comma"));
	snprintf(command, sizeof command, "%.1f", 0.5);
	assert_string_equal(command, "0,5");
}

static void numbers_have_a_decimal_point_whatever_the_program_s_language(void **state)
{
	(void)state;
	char folder[1024], path[1100], text[4096], why[WHY_BYTES] = "";
	int last = 0;
	size_t bytes = 4;
	double ready = 0.25;
	struct hvd_conf conf;
	take_a_decimal_comma(folder);
	setenv("HVD_DEADLINE", "2.5", 1);
	int status = hvd_conf_default(&conf, why);
	unsetenv("HVD_DEADLINE");
	snprintf(path, sizeof path, "%s/plan", folder);
	int wrote = plan_write(path, 7, 1, &last, 1, &(struct profile){ .n = 1, .ranks = 2, .step = 0.5, .bytes = &bytes, .ready = &ready }, text);
	FILE *f = fopen(path, "r");
	text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
	if (f)
		fclose(f);
	assert_non_null(localeconv());
	assert_string_equal(localeconv()->decimal_point, ","); /* the program's stays */
	setlocale(LC_NUMERIC, "C");
	snprintf(path, sizeof path, "rm -r '%s'", folder);
	assert_int_equal(system(path), 0);
	assert_int_equal(status, 0);
	assert_true(conf.deadline == 2.5);
	assert_int_equal(wrote, 0);
	assert_non_null(strstr(text, "step 0.500000000 s"));
	assert_non_null(strstr(text, "4 0.250000000\n"));
}

static void a_place_where_no_file_can_be_is_told(void **state)
{
	(void)state;
	char why[WHY_BYTES];
	int last = 0;
	assert_int_equal(plan_write("/no such directory/plan", 7, 1, &last, 1, &(struct profile){ .n = 0 }, why), -1);
	assert_string_equal(why, "cannot write /no such directory/plan: No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_are_filled_one_after_the_other),
		cmocka_unit_test(no_cut_is_better),
		cmocka_unit_test(it_hides_what_fixed_buckets_do_not),
		cmocka_unit_test(very_many_tensors_are_cut_as_well_as_a_few),
		cmocka_unit_test(a_line_is_found),
		cmocka_unit_test(among_equal_cuts_the_one_with_the_fewest_buckets_is_taken),
		cmocka_unit_test(the_line_is_the_best_in_relative_terms),
		cmocka_unit_test(what_no_line_explains_costs_nothing),
		cmocka_unit_test(a_plan_that_has_no_room_leaves_nothing),
		cmocka_unit_test(a_damaged_plan_is_none),
		cmocka_unit_test(numbers_have_a_decimal_point_whatever_the_program_s_language),
		cmocka_unit_test(a_place_where_no_file_can_be_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
