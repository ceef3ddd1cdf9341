/* SPDX-License-Identifier: Apache-2.0
 * Where to cut gradients into buckets, from when each is ready and what an all-reduce costs. */
#ifndef HVD_RUNTIME_PLANNER_H
#define HVD_RUNTIME_PLANNER_H

#include <stddef.h>
#include <stdint.h>

/* Time of an all-reduce of n bytes: latency + n * per_byte, in seconds. */
struct cost {
	double latency, per_byte;
};

/* ready[n]: seconds into the backward pass, ascending; bytes[n]. Writes into last[] the last tensor of each bucket and returns
 * the number of buckets, at most `most`: the cut after which the all-reduces, one after the other, are through first; of equal
 * ones, that with the fewest buckets. *through: when that is. */
int plan_cut(const double *ready, const size_t *bytes, int n, const struct cost *cost, int most, int *last, double *through);

/* When the all-reduces of a given cut are through. */
double plan_through(const double *ready, const size_t *bytes, const struct cost *cost, const int *last, int buckets);

/* Least squares through (bytes[i], seconds[i]); neither term is negative. */
struct cost plan_fit(const double *bytes, const double *seconds, int n);

/* A cut as a file of a few lines of text. hash: of the names and sizes of the gradients. Reading returns the number of buckets, 0: no
 * such file, or -1: it is for other gradients, or no plan at all; why[WHY_BYTES]. last[n]. */
int plan_read(const char *path, uint64_t hash, int n, int *last, char *why);
int plan_write(const char *path, uint64_t hash, int n, const int *last, int buckets, char *why);

#endif
