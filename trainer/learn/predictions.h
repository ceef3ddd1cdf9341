/* SPDX-License-Identifier: Apache-2.0
 * A file of predictions: what a network said about every image of a split, and what is needed to judge it.
 *
 *   # rows=25596 model=densenet121 checkpoint=run/best.safetensors weights_hash=0123456789abcdef data=00c0ffee00c0ffee policy=official version=0.1.0 trained_on=synthetic source=synthetic command=chexnet%20eval leak=0
 *   id,patient,split,Atelectasis_label,…,Hernia_label,Atelectasis_logit,…,Hernia_logit
 *   00000013_000.png,13,test,0,…,,-2.1972246,…
 *
 * A label is 0, 1 or empty (unknown); 0.0 and 1.0 are read too. Synthetic images add oracle=0.98,… with a figure, or nothing, for each finding, and weights
 * with a leak behind them leaky=yes, those of eval --crops=ten crops=ten, and weights that do not name the findings of their outputs order=assumed. The first line's values have spaces, percent signs, control characters and bytes that are no UTF-8 as %XX; keys that are not known are passed over. A file that
 * notes its rows is refused when it has others, or when its last line has no end: not all of it was copied. Columns are found by
 * name, so files made by other programs can be read too. */
#ifndef LEARN_PREDICTIONS_H
#define LEARN_PREDICTIONS_H

#include "data/dataset.h"
#include "learn/auroc.h"

/* Where predictions come from; "" where it is not known. */
struct provenance {
	char model[64];        /* "densenet121" */
	char checkpoint[1024]; /* file of the weights, or what was averaged */
	char weights_hash[1200]; /* model_values_hash(), of several members with a comma between */
	char data[64];         /* dataset_hash() as 16 hexadecimal digits */
	char policy[64];       /* how patients were divided into splits: dataset_split_policy() */
	char split[16];        /* "test" */
	char version[32];      /* of the program that wrote the file */
	char crops[16];        /* "ten": an image's probability is the mean over crops; "": over none, as in training */
	char pos_weight[16];   /* "balanced": positives weighed more in training, so probabilities are above the shares; "": no */
	char order[16];        /* "assumed": the weights did not say which findings their outputs stand for, and were taken to be in this program's order; "": they did */
	char trained_on[160];  /* what the weights learned from, as in struct checkpoint_notes */
	char source[64];       /* what these images are: dataset_source() */
	char command[2048];    /* as it was typed; ends with "…" where it was longer */
	int has_oracle;        /* synthetic images, of which is known: */
	double oracle[FINDINGS]; /* the AUROC that nobody can be expected to pass; NAN: not of this finding */
	long leaked;           /* patients of this split that the weights were trained on; 0: none; -1: not checked */
	int leaky;             /* the weights were trained with --allow-leak on splits that share patients, whoever they are */
};

struct predictions {
	struct provenance about;
	size_t n;
	struct sample *samples; /* [n] id, patient, labels, known */
	float *logits;          /* [n][FINDINGS] */
	int has_patients;       /* 0: the file names none, and every image counts as a patient of its own */
};

/* Writes PATH (another name beside it until it is complete). Borrows everything; a logit that is not finite is refused by the image's
 * name. EXIT_DATA for that, EXIT_INTERNAL when the file cannot be written. */
int predictions_write(const char *path, const struct predictions *p, struct error *e);

/* Reads what predictions_write() wrote; to be freed with predictions_free(), on errors too. EXIT_DATA names file, line and column. */
int predictions_read(struct predictions *p, const char *path, struct error *e);
void predictions_free(struct predictions *p);

/* Labels, known and patients as the arrays that learn/auroc.h works on; logits are borrowed. -1: no memory. */
struct score_arrays {
	struct scores scores;
	uint32_t *labels, *known, *patient;
};
int predictions_scores(const struct predictions *p, struct score_arrays *a);
void score_arrays_free(struct score_arrays *a);

/* A finding's images with a known label: *score and *positive have room for p->n; returns how many there are. */
size_t predictions_of(const struct predictions *p, int finding, float *score, uint8_t *positive);

/* Finds a's images in b by id: row[i] (room for a->n) is the row of b that speaks of a's row i, or PREDICTIONS_NONE. Returns how many
 * there are. Images are refused as by predictions_agree(). */
#define PREDICTIONS_NONE ((size_t)-1)
long predictions_match(const struct predictions *a, const struct predictions *b, const char *a_path, const char *b_path, size_t *row,
		       struct error *e);

/* Whether a's row i and b's row j, of one image, name the same patient where both name one, and the same labels where both know them.
 * Otherwise -EXIT_DATA, with the names a_path and b_path in the line. */
int predictions_agree(const struct predictions *a, size_t i, const struct predictions *b, size_t j, const char *a_path, const char *b_path, struct error *e);

/* 1: the two come from different splits, -1: one names a split or a policy and the other does not, 0: neither. */
int splits_differ(const struct provenance *a, const struct provenance *b);

/* Whether the images are the split of that name of the weights' training: one of another data set is none of it, whatever its name. */
int is_own_split(const struct provenance *about, const char *name);

#endif
