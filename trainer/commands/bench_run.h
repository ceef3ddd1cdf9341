/* SPDX-License-Identifier: Apache-2.0
 * Steps that are timed: for chexnet bench, in one world or in several. */
#ifndef COMMANDS_BENCH_RUN_H
#define COMMANDS_BENCH_RUN_H

#include "data/loader.h"
#include "learn/gpu_meter.h"
#include "learn/log.h"
#include "learn/model.h"

/* The first part is the caller's, and stays as it is. */
struct bench_run {
	struct world *world;
	struct model_conf model_conf;
	int steps, warmup;       /* that count; before them */
	int forward;             /* evaluation instead of training steps */
	int resident;            /* the random pixels stay on the GPU */
	uint64_t seed;           /* of pixels and weights */
	struct gpu_meter *gpu;   /* started with the steps that count; NULL: none */
	int (*between)(void *context, struct error *e); /* after every step, collective; NULL: nothing */
	void *context;

	struct model model;
	uint8_t *pixels;         /* [batch][source_size][source_size] */
	uint32_t *labels;        /* [batch] */
	uint64_t *kept;          /* [batch] numbers of the images that are resident; NULL: they are fed */
	float *logits;           /* [batch][classes] */
	double *seconds;         /* [steps] of this rank */
	double total;            /* seconds of all counted steps */
	double input, exposed;   /* of them: waiting for images, for other ranks */
	double ended_first;      /* now() at the end of the very first step; 0: it is still to come */
	double loss;
};

/* Collective over run->world; errors are agreed. Fills model, pixels and labels. */
int bench_run_open(struct bench_run *run, struct error *e);

/* Collective. Warm-up and counted steps on the random pixels, or on the micro-batches of `feed`. */
int bench_run_measure(struct bench_run *run, struct loader *feed, struct error *e);

/* Collective. Afterwards seconds[] are those of the slowest rank, ascending, the same on all ranks: a step ends when all have it. The same
 * of total, input and exposed. */
int bench_run_gather(struct bench_run *run, struct error *e);
void bench_run_close(struct bench_run *run);

/* {"median", "min", "p10", "p90", "max"} in milliseconds, of n ascending seconds, as o's "step_ms". */
void bench_step_json(cJSON *o, const double *sorted, int n);

#endif
