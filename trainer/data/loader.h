/* SPDX-License-Identifier: Apache-2.0
 * Decode threads that keep a ring of micro-batches full. A thread takes a ticket by one atomic increment; the ticket is the
 * place in the stream, so it fixes sample, slot and row: no queue, no lock, no reordering. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/dataset.h"
#include "engine/engine.h"

struct loader_conf {
	const struct dataset *dataset;
	uint64_t seed;
	uint64_t start;    /* position of the first global batch of this run */
	int batch;         /* micro-batch */
	int micros;        /* micro-batches a rank and step */
	int rank, ranks;
	int image_size;    /* for the augmentation's range; 0: no augmentation (centre window) */
	int evaluate;      /* 1: one pass, sample i = rank + k * ranks in record order, last micro-batch short, then the end */
	int hash;          /* 1: loader_batch.hash is made */
	int unread;        /* 1: pixels are not read, only which samples come, and how they are cut; not with hash */
	int window;        /* training: files in a shuffle window (data/window.h); 0: all images in one order */
	int threads;       /* decode threads, >= 1 */
	int depth;         /* slots in the ring, >= 2 */
};

struct loader;

/* One micro-batch in its slot. */
struct loader_batch {
	struct engine_batch batch;
	const uint64_t *sample;  /* [batch.count] indices into the data set */
	uint64_t position;       /* of the first image in the stream */
	uint64_t hash;           /* of sample ids, pixels, labels and augmentation, order included; 0 unless asked for */
	int slot;
};

int loader_open(struct loader **l, const struct loader_conf *conf, struct error *e);

/* The next micro-batch, waiting for the decode threads. 1: here, 0: end (evaluation), negative: -exit code with *e.
 * *waited gets the seconds this call waited. */
int loader_next(struct loader *l, struct loader_batch *out, double *waited, struct error *e);

/* Gives the slot back to the decode threads. Slots are released in the order they came. */
void loader_release(struct loader *l, int slot);

/* The sample at a position of the stream, in training; nothing is read. */
uint64_t loader_sample(const struct loader *l, uint64_t position);

size_t loader_memory(const struct loader *l); /* bytes, all allocated by loader_open() */
void loader_close(struct loader *l);

#endif
