/* SPDX-License-Identifier: Apache-2.0
 * What the communication of a measured training would cost on links that nobody has here: the plan's own cut and cost model, with
 * published speeds in the place of measured ones. */
#ifndef HVD_RUNTIME_PREDICT_H
#define HVD_RUNTIME_PREDICT_H

#include "planner.h"

#include <stdio.h>

/* Equal nodes. */
struct fabric {
	int per_node;           /* GPUs */
	double within, between; /* bytes per second in one direction: of a GPU in its node; of a node */
	double hop_within, hop_between, launch; /* seconds */
};

struct prediction {
	int buckets;
	double exposed;    /* seconds of a step that wait for communication */
	double efficiency; /* 0 … 1: what a step would take alone, of what it takes */
};

/* An all-reduce by a tree between nodes and a chain within, as NCCL's own model has it (tuning.cc); pieces do not overlap. gpus: two or more. */
struct cost predict_cost(int gpus, const struct fabric *f);

/* On a machine whose step takes `step` seconds: measured ready times are scaled to it. bucket_bytes 0: the best cut. Returns 0 or -1: no memory. */
int predict(const struct profile *p, double step, const struct cost *cost, size_t bucket_bytes, struct prediction *out);

/* The table, with what is measured, published and assumed in its heading. step 0: the measured one. Returns 0 or -1. */
int predict_table(FILE *out, const char *path, const struct profile *p, double step);

#endif
