/* SPDX-License-Identifier: Apache-2.0
 * One order for everything. Training reads an infinite stream of positions p = 0, 1, 2, …; epoch e = p / n and the sample is
 * a keyed permutation of p mod n, so the order depends on nothing but the seed: not on ranks, threads or restarts. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stdint.h>

#include "engine/engine.h"

/* Sample at a position: a Feistel permutation keyed by (seed, position / n), cycle-walked into [0, n). */
uint64_t order_sample(uint64_t seed, uint64_t n, uint64_t position);

/* Window and flip of a sample in an epoch: Philox keyed by (seed, epoch, sample). range: source_size - image_size + 1. */
struct augment order_augment(uint64_t seed, uint64_t epoch, uint64_t sample, int range);

/* First position of micro-batch `micro` (of `micros` on each of `ranks`) of `rank`, in step `step_start + …`:
 * start + (rank * micros + micro) * batch. The same (start, global batch) gives the same positions for any split. */
static inline uint64_t order_micro(uint64_t start, int rank, int micros, int micro, int batch)
{
	return start + ((uint64_t)rank * micros + micro) * batch;
}

#endif
