/* SPDX-License-Identifier: Apache-2.0
 * Predicted efficiency: the plan's own model, fed with other links, and nothing made up where there are no measurements. */
#include "tests/unit/test.h"

#include "runtime/boot.h"
#include "runtime/predict.h"

#include <math.h>
#include <unistd.h>

enum { N = 40 };

static size_t bytes[N];
static double ready[N];

/* 28 MB, ready evenly over 60 of 100 ms. */
static struct profile profile(void)
{
	for (int i = 0; i < N; i++) {
		bytes[i] = 700000;
		ready[i] = 0.06 * i / (N - 1);
	}
	return (struct profile){ .n = N, .ranks = 4, .step = 0.1, .cost = { .latency = 1e-4, .per_byte = 1e-9 }, .bytes = bytes, .ready = ready };
}

static struct fabric fabric(double within, double between)
{
	return (struct fabric){ 8, within, between, 4e-6, 14e-6, 8e-6 };
}

static void one_gpu_waits_for_nobody(void **state)
{
	(void)state;
	struct profile p = profile();
	struct fabric f = fabric(1e9, 1e8);
	struct cost cost = predict_cost(1, &f);
	struct prediction x;
	for (size_t fixed = 0; fixed <= BUCKET_BYTES; fixed += BUCKET_BYTES) {
		assert_int_equal(predict(&p, 0.1, &cost, fixed, &x), 0);
		assert_true(x.exposed < 1e-12 && x.efficiency > 1 - 1e-9 && x.efficiency <= 1);
	}
}

static void an_all_reduce_costs_what_its_links_cost(void **state)
{
	(void)state;
	struct fabric f = fabric(100e9, 10e9);
	struct cost node = predict_cost(8, &f), two = predict_cost(16, &f), many = predict_cost(1024, &f);
	assert_close(node.latency, 8e-6 + 2 * 7 * 4e-6, 1e-12);
	assert_close(node.per_byte, 2 * 7 / 8.0 / 100e9, 1e-20);
	assert_close(two.latency - node.latency, 2 * 14e-6, 1e-12);
	assert_close(two.per_byte - node.per_byte, 1 / 10e9, 1e-20);
	assert_close(many.latency - node.latency, 2 * 7 * 14e-6, 1e-12);
	assert_close(many.per_byte - node.per_byte, 2 * 127 / 128.0 / 10e9, 1e-20);
}

static void faster_links_never_hurt(void **state)
{
	(void)state;
	struct profile p = profile();
	for (int gpus = 2; gpus <= 4096; gpus *= 2) {
		double before[2] = { 0, 0 };
		for (double speed = 1e8; speed < 1e12; speed *= 1.7) {
			struct fabric f = fabric(10 * speed, speed);
			struct cost cost = predict_cost(gpus, &f);
			struct prediction best, fixed;
			assert_int_equal(predict(&p, 0.02, &cost, 0, &best), 0);
			assert_int_equal(predict(&p, 0.02, &cost, BUCKET_BYTES, &fixed), 0);
			assert_true(best.efficiency >= before[0] && fixed.efficiency >= before[1]);
			before[0] = best.efficiency;
			before[1] = fixed.efficiency;
		}
		assert_true(before[0] > 0.9 && before[0] < 1);
	}
}

static void it_says_what_the_plan_says(void **state)
{
	(void)state;
	struct profile p = profile();
	struct prediction x;
	double through;
	int last[N], buckets = plan_cut(ready, bytes, N, &p.cost, BUCKETS_MAX, last, &through);
	assert_int_equal(predict(&p, p.step, &p.cost, 0, &x), 0);
	assert_int_equal(x.buckets, buckets);
	assert_close(x.exposed, through - ready[N - 1], 1e-12);
	assert_close(x.efficiency, 0.1 / (0.1 + through - ready[N - 1]), 1e-12);

	/* twice as slow a machine, on links twice as slow: the same but for the clock */
	struct cost slower = { .latency = 2 * p.cost.latency, .per_byte = 2 * p.cost.per_byte };
	struct prediction y;
	assert_int_equal(predict(&p, 2 * p.step, &slower, 0, &y), 0);
	assert_true(y.buckets == x.buckets && fabs(y.efficiency - x.efficiency) < 1e-12);
}

static void measurements_survive_a_file(void **state)
{
	(void)state;
	char path[1024], why[WHY_BYTES], *text = NULL;
	int last[] = { 9, N - 1 }, ranks = 0, fd = mkstemp(temporary_name(path, sizeof path));
	struct profile p = profile(), q;
	size_t size;
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(plan_write(path, 7, N, last, 2, &p, why), 0);
	assert_int_equal(plan_read(path, 7, N, last, &ranks, why), 2);
	assert_int_equal(ranks, 4);
	assert_int_equal(profile_read(path, &q, why), 0);
	assert_true(q.n == N && q.ranks == 4 && !memcmp(q.bytes, bytes, sizeof bytes));
	assert_close(q.step, 0.1, 1e-9);
	assert_close(q.cost.per_byte, 1e-9, 1e-15);
	for (int i = 0; i < N; i++)
		assert_close(q.ready[i], ready[i], 1e-9);
	FILE *out = open_memstream(&text, &size);
	assert_int_equal(predict_table(out, path, &q, 0.023), 0);
	fclose(out);
	printf("%s", text);
	assert_non_null(strstr(text, "# PREDICTION, not a measurement"));
	assert_non_null(strstr(text, "\n  1024 PCIe 5 x16      400 "));
	assert_true(!strstr(text, "nan") && !strstr(text, "inf"));
	free(text);
	free(q.bytes);
	free(q.ready);

	/* without measurements, or with half of them: no prediction */
	for (int cut = 0; cut < 2; cut++) {
		if (cut)
			assert_int_equal(truncate(path, 700), 0);
		else
			assert_int_equal(plan_write(path, 7, N, last, 2, NULL, why), 0);
		assert_int_equal(profile_read(path, &q, why), -1);
		assert_non_null(strstr(why, "holds no measurements"));
		free(q.bytes);
		free(q.ready);
		assert_int_equal(plan_write(path, 7, N, last, 2, &p, why), 0);
	}
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_gpu_waits_for_nobody),
		cmocka_unit_test(an_all_reduce_costs_what_its_links_cost),
		cmocka_unit_test(faster_links_never_hurt),
		cmocka_unit_test(it_says_what_the_plan_says),
		cmocka_unit_test(measurements_survive_a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
