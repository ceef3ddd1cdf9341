/* SPDX-License-Identifier: Apache-2.0
 * Where a prepared data set comes from: images with labels and splits, decoded one by one. */
#ifndef PREPARE_ORIGIN_H
#define PREPARE_ORIGIN_H

#include <signal.h>

#include "data/nih.h"
#include "image/image.h"

enum label_order { LABELS_DELL, LABELS_CHEXNET, LABELS_INFER };
extern const char *const label_order_names[]; /* "dell", "chexnet", "infer", NULL */

struct origin {
	size_t count;
	struct sample *samples;     /* [count], owned */
	uint8_t *split;             /* [count] enum split, owned */
	int side;                   /* pixels a side of the squares of a prepared set; 0: images as they came */
	struct nih_facts *facts;    /* [count] owned, or NULL: none are told */
	float *oracle;              /* [count][FINDINGS] scores of a synthetic tree, owned, or NULL */
	char name[64], policy[32];
	char twin[SAMPLE_ID];       /* a file name that two images of a split share, for which names keep folders; "": none does */
	uint64_t hash;              /* of what the labels came from */
	size_t extra, unlisted;     /* files without a row; rows in no list: left out */
	struct sample_names missing; /* rows without a file: left out by origin_nih_partial(), refused by others */
	void *state;
	/* Decodes image i (NULL: there are no images); *image belongs to the decoder. Errors name the file. Thread-safe with a decoder a thread. */
	int (*decode)(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e);
	void (*close)(void *state);
};

/* An NIH directory. */
int origin_nih(struct origin *o, const char *directory, enum split_policy policy, uint64_t seed, struct error *e);
/* The same, also where some rows have no file: what is wrong with the other images is told by the audit all the same. */
int origin_nih_partial(struct origin *o, const char *directory, enum split_policy policy, uint64_t seed, struct error *e);
/* As origin_nih(), divided by nih_divide_file(). */
int origin_nih_file(struct origin *o, const char *directory, const char *split_file, struct error *e);

/* A directory of TFRecord files train-…, val-…, test-… (or validation-…) with the keys of Dell's trainer, image/encoded,
 * image/label and image/filename, as they are divided there. `order` says what label i stands for; LABELS_INFER compares with
 * the NIH label table `table` and refuses when less than 99.9 % of the labels agree with any assignment. All records are read; `stop`, set by
 * a signal, ends that with EXIT_INTERNAL; NULL: nothing does. */
int origin_tfrecord(struct origin *o, const char *directory, enum label_order order, const char *table, const volatile sig_atomic_t *stop, struct error *e);

/* A label table alone, to be audited: no images. `reference` is the table whose images the two lists divide (NULL: this one); an
 * image that it does not know is in no split, and without lists all are for training. */
int origin_table(struct origin *o, const char *table, const char *reference, const char *train_val_list, const char *test_list, struct error *e);

/* A prepared data set. */
int origin_prepared(struct origin *o, const char *directory, struct error *e);

/* What label i of these samples stands for by comparison with NIH's table: order[i], and the share of images that agree. */
int label_order_infer(const struct sample *samples, size_t count, const struct nih *n, int order[FINDINGS], double agreement[FINDINGS],
		      struct error *e);

void origin_close(struct origin *o);

#endif
