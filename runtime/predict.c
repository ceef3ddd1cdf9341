/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include "base.h"

#include <stdlib.h>

#define PER_NODE 8
#define ATTAINED 0.8 /* of a link's speed */

static const struct {
	const char *name;
	double speed; /* bytes per second in one direction */
} within[] = { { "NVLink 4", 450e9 }, { "PCIe 5 x16", 63e9 } };
static const int between[] = { 25, 100, 200, 400 }; /* Gb/s */
static const int worlds[] = { 16, 64, 1024 };

struct cost predict_cost(int gpus, const struct fabric *f)
{
	int here = gpus < f->per_node ? gpus : f->per_node, nodes = (gpus + here - 1) / here, levels = 0;
	while (1 << levels < nodes)
		levels++;
	return (struct cost){
		.latency = f->launch + 2 * ((here - 1) * f->hop_within + levels * f->hop_between),
		.per_byte = 2.0 * (here - 1) / here / f->within + 2.0 * (nodes - 1) / nodes / f->between,
	};
}

int predict(const struct profile *p, double step, const struct cost *cost, size_t bucket_bytes, struct prediction *out)
{
	double *ready = calloc((size_t)p->n, sizeof *ready);
	int *last = calloc((size_t)p->n, sizeof *last);
	out->buckets = 0;
	if (ready && last) {
		for (int i = 0; i < p->n; i++)
			ready[i] = p->ready[i] * step / p->step;
		out->buckets = bucket_bytes ? plan_fill(p->bytes, p->n, bucket_bytes, true, last) : plan_cut(ready, p->bytes, p->n, cost, BUCKETS_MAX, last);
		out->exposed = plan_through(ready, p->bytes, cost, last, out->buckets) - ready[p->n - 1];
		out->efficiency = step / (step + out->exposed);
	}
	free(ready);
	free(last);
	return out->buckets ? 0 : -1;
}

static void heading(FILE *out, const char *path, const struct profile *p, double step)
{
	double bytes = 0;
	for (int i = 0; i < p->n; i++)
		bytes += (double)p->bytes[i];
	fprintf(out, "# PREDICTION, not a measurement: efficiency of data-parallel training, %d gradients of %.1f MB in all\n"
		     "# measured (by %d ranks of the run that left %s): when each gradient is ready, as a share of the step\n",
		p->n, bytes * 1e-6, p->ranks, path);
	fprintf(out, step > 0 ? "# assumed: every GPU takes %.1f ms a step (--step)\n" : "# measured there: a step takes %.1f ms\n", (step > 0 ? step : p->step) * 1e3);
	fprintf(out, "# assumed: %d GPUs and one network card a node; links attain %.0f %% of their speed; ranks are equally fast\n"
		     "# best cut: the plan's own for such links; runs with NCCL have buckets of 2 MiB, or the cut of a file (HVD_PLAN)\n"
		     "# published: NVLink 4 900 GB/s and PCIe 5 x16 126 GB/s, both directions together; network by its name; NCCL 2.28's tuning.cc: tree, Simple:\n"
		     "#   8.4 us, 4 us a hop in the node, 14 us between nodes\n",
		PER_NODE, ATTAINED * 100);
	fprintf(out, "#%5s %-10s %8s %18s %26s %26s\n", "", "", "between", "an all-reduce", "best cut", "buckets of 2 MiB");
	fprintf(out, "#%5s %-10s %8s %8s %9s %8s %8s %8s %8s %8s %8s\n", "GPUs", "in a node", "Gb/s", "us +", "GB/s", "buckets", "ms", "%", "buckets", "ms", "%");
}

static int line(FILE *out, const struct profile *p, double step, const struct cost *cost, double *efficiency)
{
	struct prediction best, filled;
	if (predict(p, step, cost, 0, &best) || predict(p, step, cost, BUCKET_BYTES, &filled))
		return -1;
	fprintf(out, " %8.0f %9.2f %8d %8.2f %8.2f %8d %8.2f %8.2f\n", cost->latency * 1e6, cost->per_byte > 0 ? 1e-9 / cost->per_byte : 0, best.buckets,
		best.exposed * 1e3, best.efficiency * 100, filled.buckets, filled.exposed * 1e3, filled.efficiency * 100);
	*efficiency = best.efficiency;
	return 0;
}

int predict_table(FILE *out, const char *path, const struct profile *p, double step)
{
	double efficiency, own = step > 0 ? step : p->step;
	heading(out, path, p, step);
	fprintf(out, " %5d %-10s %8s", p->ranks, "as there", "");
	int status = line(out, p, p->step, &p->cost, &efficiency), good = 0;
	for (size_t w = 0; w < COUNT(worlds); w++)
		for (size_t i = 0; i < COUNT(within); i++)
			for (size_t b = 0; !status && b < COUNT(between); b++) {
				struct fabric f = { PER_NODE, within[i].speed * ATTAINED, between[b] * 1e9 / 8 * ATTAINED, 4e-6, 14e-6, 8.4e-6 };
				struct cost cost = predict_cost(worlds[w], &f);
				fprintf(out, " %5d %-10s %8d", worlds[w], within[i].name, between[b]);
				status = line(out, p, own, &cost, &efficiency);
				good += !w && efficiency >= 0.95;
			}
	if (!status)
		fprintf(out, "# 95 %% at %d GPUs: reached by the best cut on %d of these %zu links\n", worlds[0], good, COUNT(within) * COUNT(between));
	return status;
}
