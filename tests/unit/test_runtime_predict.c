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
	int last[N], buckets = plan_cut(ready, bytes, N, &p.cost, BUCKETS_MAX, last);
	const double through = plan_through(ready, bytes, &p.cost, last, buckets);
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

static int read_text(const char *text, char *why)
{
	char path[1024];
	struct profile p;
	int fd = mkstemp(temporary_name(path, sizeof path));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	int status = profile_read(path, &p, why);
	free(p.bytes);
	free(p.ready);
	unlink(path);
	return status;
}

static void measurements_that_cannot_be_are_none(void **state)
{
	(void)state;
#define CUT "hvd plan 1: 2 gradients, hash 7, 1 buckets; the last gradient of each\n1\n"
#define MEASURED "measured by 2 ranks: step 0.1 s, all-reduce 0.001 s + 1e-9 s a byte; bytes and seconds of each gradient\n"
	static const char *const wrong[] = {
		CUT MEASURED "8 0.05\n8 0.04\n", /* ready before the one before it */
		CUT MEASURED "8 -1\n8 0.04\n",   CUT MEASURED "8 0.05\n8 0.2\n", /* later than the step */
		CUT MEASURED "-8 0.05\n8 0.06\n",
		CUT MEASURED "8 0.05\n",         CUT MEASURED "8 nan\n8 0.05\n",
		CUT "measured by 0 ranks: step 0.1 s, all-reduce 0.001 s + 1e-9 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		CUT "measured by 2 ranks: step 0.1 s, all-reduce -1 s + 1e-9 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		CUT "measured by 2 ranks: step 0.1 s, all-reduce 0.001 s + -1 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		CUT "measured by 2 ranks: step 0.1 s, all-reduce inf s + 1e-9 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		CUT "measured by 2 ranks: step 0.1 s, all-reduce 0.001 s + 1e300 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		CUT "measured by 2 ranks: step 0 s, all-reduce 0.001 s + 1e-9 s a byte; bytes and seconds of each gradient\n8 0\n8 0\n",
		CUT "measured by 2 ranks: step inf s, all-reduce 0.001 s + 1e-9 s a byte; bytes and seconds of each gradient\n8 0.05\n8 0.06\n",
		"hvd plan 1: 2 gradients, hash 7, 2 buckets; the last gradient of each\n1\n1\n" MEASURED "8 0.05\n8 0.06\n",
		"hvd plan 1: 2 gradients, hash 7, 3 buckets; the last gradient of each\n0\n1\n2\n" MEASURED "8 0.05\n8 0.06\n",
		"hvd plan 1: 2 gradients, hash 7, -1 buckets; the last gradient of each\n" MEASURED "8 0.05\n8 0.06\n",
	};
	char why[WHY_BYTES];
	struct profile p;
	assert_int_equal(read_text(CUT MEASURED "8 0.05\n8 0.06\n", why), 0);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(read_text(wrong[i], why), -1);
		assert_non_null(strstr(why, "holds no measurements"));
	}
	assert_int_equal(profile_read("/dev/null", &p, why), -1);
	assert_string_equal(why, "/dev/null: not a regular file");
	assert_int_equal(profile_read("no such file", &p, why), -1);
	assert_string_equal(why, "no such file: No such file or directory");
}

/* A row of the table: what all-reduces cost, then number of buckets, what they leave exposed and the efficiency, of the best cut and of 2 MiB. */
static void row_says(const char *table, const char *head, const struct profile *p, double step, const struct cost *cost)
{
	double us, speed, ms[2], percent[2];
	int buckets[2];
	const char *row = strstr(table, head);
	assert_non_null(row);
	assert_int_equal(sscanf(row + strlen(head), "%lf %lf %d %lf %lf %d %lf %lf", &us, &speed, &buckets[0], &ms[0], &percent[0], &buckets[1], &ms[1], &percent[1]), 8);
	assert_close(us, cost->latency * 1e6, 0.51);
	assert_close(speed, 1e-9 / cost->per_byte, 0.0051);
	for (int i = 0; i < 2; i++) {
		struct prediction x;
		assert_int_equal(predict(p, step, cost, i ? BUCKET_BYTES : 0, &x), 0);
		assert_int_equal(buckets[i], x.buckets);
		assert_close(ms[i], x.exposed * 1e3, 0.0051);
		assert_close(percent[i], x.efficiency * 100, 0.0051);
	}
}

static void the_table_says_what_is_predicted(void **state)
{
	(void)state;
	struct profile p = profile();
	struct fabric slow = { 8, 0.8 * 450e9, 0.8 * 25e9 / 8, 4e-6, 14e-6, 8.4e-6 }, fast = { 8, 0.8 * 63e9, 0.8 * 400e9 / 8, 4e-6, 14e-6, 8.4e-6 };
	struct cost few = predict_cost(16, &slow), many = predict_cost(1024, &fast);
	for (int typed = 0; typed < 2; typed++) { /* --step */
		char *text = NULL;
		size_t size;
		FILE *out = open_memstream(&text, &size);
		assert_int_equal(predict_table(out, "a.plan", &p, typed ? 0.021 : 0), 0);
		fclose(out);
		assert_non_null(strstr(text, ", 40 gradients of 28.0 MB in all\n# measured (by 4 ranks of the run that left a.plan)"));
		assert_non_null(strstr(text, typed ? "\n# assumed: every GPU takes 21.0 ms a step (--step)\n" : "\n# measured there: a step takes 100.0 ms\n"));
		row_says(text, "\n     4 as there           ", &p, p.step, &p.cost);
		row_says(text, "\n    16 NVLink 4         25 ", &p, typed ? 0.021 : p.step, &few);
		row_says(text, "\n  1024 PCIe 5 x16      400 ", &p, typed ? 0.021 : p.step, &many);
		int good = 0, said = -1;
		for (const char *row = text; (row = strstr(row, "\n    16 ")); row++) {
			double percent;
			assert_int_equal(sscanf(row + 28, "%*f %*f %*d %*f %lf", &percent), 1);
			good += percent >= 95;
		}
		assert_int_equal(sscanf(strstr(text, "# 95 %"), "# 95 %% at 16 GPUs: reached by the best cut on %d of these 8 links\n", &said), 1);
		assert_int_equal(said, good);
		assert_true(typed ? good > 0 && good < 8 : good > 0);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_all_reduce_costs_what_its_links_cost),
		cmocka_unit_test(faster_links_never_hurt),
		cmocka_unit_test(it_says_what_the_plan_says),
		cmocka_unit_test(measurements_survive_a_file),
		cmocka_unit_test(measurements_that_cannot_be_are_none),
		cmocka_unit_test(the_table_says_what_is_predicted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
