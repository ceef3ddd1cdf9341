/* SPDX-License-Identifier: Apache-2.0
 * How much memory a batch takes, and the largest that fits: for --batch=auto and for chexnet bench --plan. */
#ifndef LEARN_BATCH_MEMORY_H
#define LEARN_BATCH_MEMORY_H

#include "learn/model.h"

/* Part of the memory that is left to others, and the largest batch that auto takes: larger ones gain no speed and cost accuracy. */
enum { BATCH_SPARE_PERCENT = 10, BATCH_AUTO_MOST = 256 };

/* What training takes, as a function of the batch. Elsewhere than on a GPU that is fixed + batch * image bytes; there the two only
 * describe what the engine's planner says for each batch. */
struct batch_memory {
	double fixed, image;
	double resident;          /* of `fixed`: images that stay on the GPU */
	double free;              /* on the GPU that is here; 0: elsewhere, or not known */
	enum engine_kind kind;
	const char *gpu;          /* as engine_plan() takes it */
	struct net_plan plan;
	struct engine_layout layout;
	struct engine_conf conf;
};

/* Measures the CPU engine's part by opening engines for one and two images, and adds what a training holds beside it in host memory:
 * weights and moments for checkpoints, and `slots` micro-batches of pixels. A GPU's part is planned, for `gpu` (NULL: the one that
 * is here), and nothing is allocated; `resident` images of conf->source_size, engine_keep()'s, come on top of it. */
int batch_memory_open(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, const char *gpu, int slots,
		      size_t resident, struct error *e);
void batch_memory_close(struct batch_memory *m);

/* Bytes for `batch` images, resident ones included. *room, unless it is NULL, gets a GPU's parts without those. Negative with *e set where it cannot be planned. */
int batch_memory_bytes(struct batch_memory *m, int batch, double *bytes, struct engine_room *room, struct error *e);

/* The largest batch up to `most` within `bytes`; 0: not even one. */
int batch_memory_largest(struct batch_memory *m, double bytes, int most, int *batch, struct error *e);

/* Bytes of host memory for this rank: its share of what is available, less BATCH_SPARE_PERCENT. promised: bytes that each rank of the
 * machine has allocated and not written yet. 0: cannot be told. */
double batch_memory_host(const struct world *w, size_t promised);

/* What --batch=auto makes of it: the largest power of two up to BATCH_AUTO_MOST, at least 1. */
int batch_memory_auto(int largest);

#endif
