/* SPDX-License-Identifier: Apache-2.0
 * chexnet bench --ablate: what each knob of the practice guides gains here. */
#ifndef COMMANDS_ABLATE_H
#define COMMANDS_ABLATE_H

#include "learn/model.h"

struct ablate_conf {
	struct model_conf model; /* as asked for; a knob changes one thing of it */
	const char *data;        /* prepared data set, or NULL: synthetic X-rays */
	int steps, rounds;
	int json;
	uint64_t seed;
};

/* Collective. Runs every measurable knob's two sides alternately and prints one row a knob on rank 0. */
int ablate(struct world *w, const struct ablate_conf *conf, struct error *e);

#endif
