/* SPDX-License-Identifier: Apache-2.0
 * Input pipelines to be compared: Dell's "old approach" and "new approach", step by step, and this program's
 * loader. All three read the same files with the same decoders and give gray uint8, so what differs is the order of the steps. */
#ifndef DATA_SEQUENCE_H
#define DATA_SEQUENCE_H

#include "data/dataset.h"

enum sequence_kind { SEQUENCE_OLD, SEQUENCE_NEW, SEQUENCE_OURS, SEQUENCES };
extern const char *const sequence_names[SEQUENCES]; /* "old", "new", "ours" */

struct sequence_step {
	const char *name, *what;
};

/* Its steps, in the order in which an image passes them: 8, 10 and what is done here. */
const struct sequence_step *sequence_steps(enum sequence_kind kind, int *count);

struct sequence_conf {
	enum sequence_kind kind;
	const char *directory; /* prepared as TFRecords; its train split is read */
	int rank, ranks;
	int threads;           /* that decode, of this rank */
	int batch;
	uint64_t seed;
};

struct sequence_batch {
	int count;
	const uint8_t *pixels;        /* [count][size][size] */
	const char (*id)[SAMPLE_ID];  /* [count] */
};

struct sequence;

/* EXIT_USAGE where the data are packed, EXIT_DATA where a rank would get no file or no image. */
int sequence_open(struct sequence **s, const struct sequence_conf *conf, struct error *e);

/* The next batch of an endless stream; it stays until the next call. Errors of a record name file, record and byte. */
int sequence_next(struct sequence *s, struct sequence_batch *b, struct error *e);

/* Images that this rank has decoded so far, for itself or in vain. */
uint64_t sequence_decoded(const struct sequence *s);

void sequence_close(struct sequence *s);

#endif
