/* SPDX-License-Identifier: Apache-2.0
 * Communication that the backward pass of DenseNet-121 does not hide, with the plan of the runtime and with buckets of
 * 1 MiB and then 25 MiB, as PyTorch DDP has them; and what the planner's model says of both, from what an all-reduce costs that is
 * posted and waited for as in a step. One rank on each of two nodes.
 *
 *   overlap MILLISECONDS STEPS     of the backward pass, which sleeps; of each plan, which take turns
 *
 * Rank 0 prints: latency us, MB/s; then for each plan buckets, exposed ms as the model says and median as measured. */
#include "chain.h"
#include "planner.h"

#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TENSORS_MAX = 512, STEPS_MAX = 1000, CUTS_MAX = 16, SIZES = 6 };

/* The gradients, in the order of the backward pass. */
struct gradients {
	int n;
	size_t bytes[TENSORS_MAX];
	double ready[TENSORS_MAX]; /* shares of the backward pass, then seconds */
	struct hvd_tensor tensor[TENSORS_MAX];
	char name[TENSORS_MAX][16];
};

struct cut {
	int last[TENSORS_MAX], buckets;
	double through; /* seconds into the step, by the model */
};

/* ---- the network ---------------------------------------------------------------------------------- */

/* One tensor; work: of the layer's backward pass, 0.4 parts multiplications and 0.6 parts bytes of activations. */
static void add(struct gradients *g, double count, double work)
{
	g->bytes[g->n] = (size_t)count * sizeof(float);
	g->ready[g->n++] = work;
}

/* k x k convolution of `in` channels to `out`, `side` pixels wide, and the batch normalisation of its input, in forward order. */
static void unit(struct gradients *g, double in, double out, double k, double side)
{
	double pixels = side * side, work = 0.4 * in * out * k * k * pixels / 2.8e9 + 0.6 * (in + out) * pixels / 12e6;
	add(g, in, 0);
	add(g, in, 0);
	add(g, in * out * k * k, work);
}

static void densenet121(struct gradients *g)
{
	static const int blocks[4] = { 6, 12, 24, 16 };
	double channels = 64, side = 56, sum = 0;
	add(g, 3 * 64 * 49, 0.05);
	add(g, 64, 0);
	add(g, 64, 0);
	for (int b = 0; b < 4; b++, side /= 2) {
		for (int l = 0; l < blocks[b]; l++, channels += 32) {
			unit(g, channels, 128, 1, side);
			unit(g, 128, 32, 3, side);
		}
		if (b < 3)
			unit(g, channels, channels / 2, 1, side);
		channels /= b < 3 ? 2 : 1;
	}
	add(g, channels, 0);
	add(g, channels, 0);
	add(g, channels * 14, 0.001);
	add(g, 14, 0);
	for (int i = 0; i < g->n / 2; i++) { /* backward */
		size_t bytes = g->bytes[i];
		double work = g->ready[i];
		g->bytes[i] = g->bytes[g->n - 1 - i];
		g->ready[i] = g->ready[g->n - 1 - i];
		g->bytes[g->n - 1 - i] = bytes;
		g->ready[g->n - 1 - i] = work;
	}
	for (int i = 0; i < g->n; i++)
		g->ready[i] = sum += g->ready[i];
	for (int i = 0; i < g->n; i++) {
		g->ready[i] /= sum;
		snprintf(g->name[i], sizeof g->name[i], "tensor%d", i);
		g->tensor[i] = (struct hvd_tensor){ g->name[i], g->bytes[i] / sizeof(float) };
	}
}

/* ---- the model ------------------------------------------------------------------------------------ */

static void ddp(const struct gradients *g, const struct cost *cost, struct cut *c)
{
	size_t sum = 0;
	*c = (struct cut){ .buckets = 0 };
	for (int i = 0; i < g->n; i++) {
		sum += g->bytes[i];
		if (sum >= (c->buckets ? 25u << 20 : 1u << 20) || i == g->n - 1) {
			c->last[c->buckets++] = i;
			sum = 0;
		}
	}
	c->through = plan_through(g->ready, g->bytes, cost, c->last, c->buckets);
}

static void best(const struct gradients *g, const struct cost *cost, struct cut *c)
{
	c->buckets = plan_cut(g->ready, g->bytes, g->n, cost, CUTS_MAX, c->last);
	c->through = plan_through(g->ready, g->bytes, cost, c->last, c->buckets);
}

/* ---- measurement ---------------------------------------------------------------------------------- */

static int failed(struct hvd *h, const char *what)
{
	fprintf(stderr, "overlap: %s: %s\n", what, hvd_error(h));
	return 70;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void wait_until(double t)
{
	struct timespec at = { .tv_sec = (time_t)t, .tv_nsec = (long)((t - (double)(time_t)t) * 1e9) };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* Median of nine rounds each; the slowest rank counts. */
static int measure_cost(struct hvd *h, float *p, struct cost *cost)
{
	static const size_t sizes[SIZES] = { 16384, 65536, 131072, 524288, 2097152, 8388608 };
	double bytes[SIZES], seconds[SIZES], round[9];
	for (int k = 0; k < SIZES; k++) {
		for (int i = 0; i < 9; i++) {
			if (hvd_barrier(h))
				return failed(h, "barrier");
			double begin = now() + 1e-3; /* the communication thread sleeps by then */
			wait_until(begin);
			long request = hvd_start_allreduce(h, p, p, sizes[k] / sizeof *p, HVD_F32, HVD_AVG);
			if (request < 0 || hvd_wait(h, request))
				return failed(h, "all-reduce");
			round[i] = now() - begin;
		}
		if (hvd_allreduce(h, round, round, 9, HVD_F64, HVD_MAX))
			return failed(h, "all-reduce");
		qsort(round, 9, sizeof *round, ascending);
		bytes[k] = (double)sizes[k];
		seconds[k] = round[4];
	}
	*cost = plan_fit(bytes, seconds, SIZES, 1, CHAIN_PIECE);
	return 0;
}

/* One step by the runtime's plan, or by a cut of our own (plan NULL). Returns exposed seconds, or < 0. */
static double step(struct hvd *h, struct hvd_plan *plan, float *slab, const struct gradients *g, const struct cut *cut)
{
	if (hvd_barrier(h))
		return -1;
	double begin = now();
	long request = 0;
	size_t from = 0, to = 0;
	for (int i = 0, b = 0; i < g->n; i++) {
		wait_until(begin + g->ready[i]);
		to += g->bytes[i] / sizeof(float);
		if (plan ? hvd_plan_ready(plan, i) : 0)
			return -1;
		if (!plan && i == cut->last[b]) {
			request = hvd_start_allreduce(h, slab + from, slab + from, to - from, HVD_F32, HVD_AVG);
			if (request < 0)
				return -1;
			from = to;
			b++;
		}
	}
	double done = now();
	if (plan ? hvd_plan_finish(plan) : hvd_wait(h, request))
		return -1;
	return now() - done;
}

static int compare(struct hvd *h, struct gradients *g, int steps)
{
	static double exposed[2][STEPS_MAX];
	static struct cut cuts[2];
	struct hvd_plan *plan;
	struct cost cost;
	size_t bytes = 0;
	for (int i = 0; i < g->n; i++)
		bytes += g->bytes[i];
	if (hvd_plan_open(h, &plan, g->tensor, g->n, 0))
		return failed(h, "plan");
	float *slab = hvd_alloc(h, bytes);
	if (!slab || measure_cost(h, slab, &cost))
		return failed(h, "memory");
	best(g, &cost, &cuts[0]);
	ddp(g, &cost, &cuts[1]);
	for (int k = -10; k < steps; k++) /* in the first seven the runtime measures, too */
		for (int other = 0; other < 2; other++) {
			double e = step(h, other ? NULL : plan, slab, g, &cuts[1]);
			if (e < 0)
				return failed(h, "step");
			if (k >= 0)
				exposed[other][k] = e;
		}
	for (int other = 0; other < 2; other++) {
		if (hvd_allreduce(h, exposed[other], exposed[other], (size_t)steps, HVD_F64, HVD_MAX))
			return failed(h, "all-reduce");
		qsort(exposed[other], (size_t)steps, sizeof(double), ascending);
	}
	if (hvd_world(h)->rank == 0)
		printf("%.0f %.1f  %d %.2f %.2f  %d %.2f %.2f\n", cost.latency * 1e6, 1e-6 / cost.per_byte, hvd_plan_buckets(plan),
		       (cuts[0].through - g->ready[g->n - 1]) * 1e3, exposed[0][steps / 2] * 1e3, cuts[1].buckets,
		       (cuts[1].through - g->ready[g->n - 1]) * 1e3, exposed[1][steps / 2] * 1e3);
	hvd_free(h, slab);
	hvd_plan_close(plan);
	return 0;
}

int main(int argc, char **argv)
{
	static struct gradients g;
	struct hvd *h;
	int steps = argc == 3 ? atoi(argv[2]) : 0;
	if (steps < 1 || steps > STEPS_MAX)
		return 64;
	densenet121(&g);
	for (int i = 0; i < g.n; i++)
		g.ready[i] *= atof(argv[1]) * 1e-3;
	if (hvd_init(&h, NULL))
		return failed(h, "hvd_init");
	int status = compare(h, &g, steps);
	return hvd_close(h) && !status ? 70 : status;
}
