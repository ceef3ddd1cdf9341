/* SPDX-License-Identifier: Apache-2.0
 * chexnet bench --plan: what a batch takes of a GPU's memory, and the largest that fits. */
#ifndef COMMANDS_BENCH_PLAN_H
#define COMMANDS_BENCH_PLAN_H

#include "learn/model.h"

/* Prints the plan of a training with conf->batch images on `gpu`, as engine_plan() takes it, and `resident` images of conf->source_size that stay
 * there. Needs no GPU unless that is NULL. */
int bench_plan(const struct net_conf *net, const struct model_conf *conf, const char *gpu, size_t resident, int json, struct error *e);

#endif
