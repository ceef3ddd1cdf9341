/* SPDX-License-Identifier: Apache-2.0
 * What stands behind a struct dataset: one split of prepared files, or images made in memory. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include "data/dataset.h"
#include "image/image.h"

struct dataset_scratch {
	struct decoder *decoder;
	float *work; /* for drawing; NULL where nothing is drawn */
};

struct dataset {
	/* Fills pixels [size][size] with sample `index`; called by many threads at once. */
	int (*read)(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e);
	void (*close)(void *state);
	/* Sets has_oracle and oracle when somebody asks; NULL: they are set, or never will be. */
	void (*measure)(struct dataset *d);
	/* Reads a shard's bytes front to back; NULL where there are no shards. */
	int (*fetch)(const struct dataset *d, size_t shard, struct error *e);
	void *state;

	/* Pixels that were read before, when they are kept: [count][size][size], and how far each is. */
	uint8_t *kept;
	_Atomic uint8_t *progress;

	struct sample *samples; /* [count], owned */
	size_t count;
	uint32_t *patients; /* [n_patients] ascending, each once, owned */
	size_t n_patients;
	uint64_t *shard_first; /* [shards + 1] index of each shard's first sample, owned; NULL: none */
	size_t shards;
	uint64_t stored;       /* bytes of all shards */
	int size;
	int mapped;      /* pixels lie in a mapped file as they are: keeping them once more gains nothing */
	char split[16], policy[32], source[64];
	char describe[160];
	const char *resize, *stored_as;
	size_t scratch_floats;
	uint64_t hash;
	int has_oracle;
	double oracle[FINDINGS];
	uint32_t masked; /* findings of which labels of some images were left out: their oracle, of all labels, is none of the others' */
};

/* A split of a prepared directory. */
int records_open(struct dataset **d, const char *directory, enum split split, struct error *e);

/* Sets hash and patients from samples; to be called when they are complete. */
int dataset_seal(struct dataset *d, struct error *e);

#endif
