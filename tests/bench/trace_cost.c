/* SPDX-License-Identifier: Apache-2.0
 * What the trace costs: every rank is in two worlds, of which one is traced, and steps of the two take turns.
 *
 *   trace_cost DIRECTORY STEPS first|second     which of the two worlds is the traced one: memory that comes later may be slower
 *
 * Rank 0 prints: median step with the trace and without, ms; records a step; ns a record; their product's share of the step, %. */
#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TENSORS = 40, FLOATS = 175000, STEPS_MAX = 10000, MARKS = 100000 };

struct end {
	struct hvd *h;
	struct hvd_plan *plan;
	double seconds[STEPS_MAX];
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof *x, ascending);
	return x[n / 2];
}

static int failed(const struct end *e, const char *what)
{
	fprintf(stderr, "trace_cost: %s: %s\n", what, hvd_error(e->h));
	return 70;
}

static int join(struct end *e, const char *trace)
{
	static char names[TENSORS][16];
	struct hvd_tensor tensors[TENSORS];
	struct hvd_conf conf;
	char why[256];
	if (hvd_conf_default(&conf, why))
		return fprintf(stderr, "%s\n", why), 70;
	conf.trace = trace;
	for (int i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof names[i], "layer%d", i);
		tensors[i] = (struct hvd_tensor){ names[i], FLOATS };
	}
	return hvd_init(&e->h, &conf) || hvd_plan_open(e->h, &e->plan, tensors, TENSORS, 2u << 20) ? failed(e, "joining") : 0;
}

static int step(struct end *e, int k)
{
	float *g = hvd_plan_slab(e->plan);
	if (hvd_barrier(e->h))
		return failed(e, "barrier");
	double begin = now(), t = hvd_mark(e->h, NULL, 0);
	for (int i = 0; i < TENSORS; i++) {
		for (int j = 0; j < FLOATS; j++)
			g[(size_t)i * FLOATS + (size_t)j] = (float)(i + j + k);
		if (hvd_plan_ready(e->plan, i))
			return failed(e, "ready");
	}
	t = hvd_mark(e->h, "backward", t);
	if (hvd_plan_finish(e->plan))
		return failed(e, "finish");
	hvd_mark(e->h, "update", t);
	e->seconds[k] = now() - begin;
	return 0;
}

int main(int argc, char **argv)
{
	static struct end traced, plain;
	int steps = argc == 4 ? atoi(argv[2]) : 0, status = 0;
	if (steps < 1 || steps > STEPS_MAX)
		return 64;
	int late = !strcmp(argv[3], "second");
	if ((late && (status = join(&plain, NULL))) || (status = join(&traced, argv[1])) || (!late && (status = join(&plain, NULL))))
		return status;
	for (int k = 0; !status && k < steps; k++) {
		struct end *first = k % 2 ? &traced : &plain, *second = k % 2 ? &plain : &traced;
		if (!(status = step(first, k)))
			status = step(second, k);
	}
	if (status)
		return status;
	double with = median(traced.seconds, steps), without = median(plain.seconds, steps);
	double begin = now(), t = begin;
	for (int i = 0; i < MARKS; i++)
		t = hvd_mark(traced.h, "update", t);
	double each = (now() - begin) / MARKS;
	int records = 2 * hvd_plan_buckets(traced.plan) + 4; /* ready and bucket; wait, two marks, the barrier */
	if (hvd_world(traced.h)->rank == 0)
		printf("%.3f %.3f %d %.0f %.4f\n", with * 1e3, without * 1e3, records, each * 1e9, records * each / without * 100);
	hvd_plan_close(traced.plan);
	hvd_plan_close(plain.plan);
	return hvd_close(traced.h) || hvd_close(plain.h) ? 70 : 0;
}
