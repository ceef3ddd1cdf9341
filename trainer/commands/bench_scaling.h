/* SPDX-License-Identifier: Apache-2.0
 * chexnet bench --scaling: what more ranks gain. */
#ifndef COMMANDS_BENCH_SCALING_H
#define COMMANDS_BENCH_SCALING_H

#include "learn/model.h"

struct scaling_conf {
	struct model_conf model; /* of every rank; source_size is that of the data, where there are any */
	const char *data;        /* prepared data set for the real input; NULL: only pixels in memory are measured */
	int steps, warmup, rounds;
	int forward, resident, json;
	uint64_t seed;
};

/* Collective. The first 1, 2, 4 … ranks, and all of them, each in turn a world of its own (learn/world.h, world_first()), `rounds` times
 * over; one row a size on rank 0, as a table or one JSON object. */
int bench_scaling(struct world *w, const struct scaling_conf *conf, struct error *e);

#endif
