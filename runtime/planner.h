/* SPDX-License-Identifier: Apache-2.0
 * Where to cut gradients into buckets, from when each is ready and what an all-reduce costs. */
#ifndef HVD_RUNTIME_PLANNER_H
#define HVD_RUNTIME_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Time of an all-reduce. Its first piece, or all of it if it is no larger, crosses `hops` links (there and back) before and after the one that is
 * busy all the time: latency + per_byte * (bytes + hops * min(bytes, piece)). */
struct cost {
	double latency, per_byte; /* seconds */
	double hops, piece;       /* 0: a line */
};

#define BUCKETS_MAX 16 /* of a cut by measurement; more gain nothing on any link that was modelled */
#define BUCKET_BYTES (2u << 20) /* of a cut without one */

/* The cut after each tensor that fills a bucket of this size; statistics: the last tensor is ready after all others, and travels alone.
 * Returns the number of buckets; last[n]. */
int plan_fill(const size_t *bytes, int n, size_t bucket_bytes, bool statistics, int *last);

/* ready[n]: seconds into the backward pass, ascending; bytes[n]. Writes into last[] the last tensor of each bucket and returns
 * the number of buckets, at most `most`, or 0 without memory: the cut after which the all-reduces, one after the other, are through
 * first; of equal ones, that with the fewest buckets. */
int plan_cut(const double *ready, const size_t *bytes, int n, const struct cost *cost, int most, int *last);

/* When the all-reduces of a given cut are through. */
double plan_through(const double *ready, const size_t *bytes, const struct cost *cost, const int *last, int buckets);

/* Latency and per_byte by least squares of the relative errors at (bytes[i], seconds[i]); neither is negative. */
struct cost plan_fit(const double *bytes, const double *seconds, int n, double hops, double piece);

/* What a training measured of itself: enough to say what its communication would cost elsewhere. */
struct profile {
	int n, ranks;
	double step;      /* seconds of a step, less what it waited for communication */
	struct cost cost; /* among those ranks */
	size_t *bytes;    /* [n] of each gradient */
	double *ready;    /* [n] seconds into the backward pass, ascending */
};

/* A cut as a file of a few lines of text, then the measurements behind it, if there are any. hash: of the names and sizes of the
 * gradients. Reading a cut returns the number of buckets, 0: no such file, or -1: it is for other gradients, or no plan at all;
 * why[WHY_BYTES]. last[n]. *ranks: that measured; stays where none did. */
int plan_read(const char *path, uint64_t hash, int n, int *last, int *ranks, char *why);
/* Where there is none: can one be written? 0 or -1 and why[WHY_BYTES]. */
int plan_writable(const char *path, char *why);
int plan_write(const char *path, uint64_t hash, int n, const int *last, int buckets, const struct profile *measured, char *why);
/* 0 or -1. The caller frees p->bytes and p->ready, on failure too. */
int profile_read(const char *path, struct profile *p, char *why);

#endif
