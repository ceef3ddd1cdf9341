/* SPDX-License-Identifier: Apache-2.0
 * How fast images arrive, and how well they are shuffled. */
#ifndef PREPARE_PIPELINE_H
#define PREPARE_PIPELINE_H

#include "prepare/origin.h"

struct rate {
	size_t images;
	double seconds;     /* wall */
	double cpu_seconds; /* of all threads */
};

/* Reads a split through the loader (keyed order, no augmentation) for about `seconds`. */
int rate_of_loader(struct rate *r, const struct dataset *d, int threads, double seconds, struct error *e);

/* Decodes an origin's images and reduces them to `size` for about `seconds`: what preparation and NIH directories cost. */
int rate_of_decoding(struct rate *r, const struct origin *o, int size, int threads, double seconds, struct error *e);

/* Mean number of pairs of images of the same patient in a batch, over one epoch. */
struct shuffle_quality {
	double keyed;     /* order_sample(), which this program uses */
	/* Dell's, one rank, files of 256 records in the order of names, a shuffle buffer of 500: one file after the
	 * other; ten read in turn. */
	double old, new;
	double chance;    /* expected of a uniform shuffle */
};
int shuffle_measure(struct shuffle_quality *q, const struct sample *samples, size_t n, int batch, uint64_t seed, struct error *e);

#endif
