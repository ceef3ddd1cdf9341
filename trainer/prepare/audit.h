/* SPDX-License-Identifier: Apache-2.0
 * What is wrong with a data set: shared patients, labels in another order, duplicates, rows that are missing, odd images,
 * findings too rare to judge, or told by the view, age, sex or follow-up number alone. */
#ifndef PREPARE_AUDIT_H
#define PREPARE_AUDIT_H

#include "prepare/origin.h"
#include "prepare/shortcuts.h"

enum audit_kind { AUDIT_LEAK, AUDIT_LABELS, AUDIT_DUPLICATES, AUDIT_DROPPED, AUDIT_IMAGES, AUDIT_COUNTS, AUDIT_SHORTCUTS };
extern const char *const audit_kind_names[]; /* "leak", … */

struct audit_item {
	enum audit_kind kind;
	int problem;       /* 1: results would be wrong; 0: worth knowing */
	size_t count;      /* patients, images or labels concerned */
	char text[400];
};

/* Images that cannot be decoded are named up to so many, for whoever has to fetch them again. */
enum { AUDIT_BROKEN = 1000 };

/* All that there can be: 14 findings in three splits that are rare, 14 with other labels, 14 told by each of four columns, the images that are
 * broken, and some twenty single ones. */
enum { AUDIT_ITEMS = 150 + AUDIT_BROKEN };

struct audit {
	size_t images[SPLITS], patients_of[SPLITS], patients;
	size_t positives[SPLITS][FINDINGS], negatives[SPLITS][FINDINGS];                 /* images; those whose label is not known are neither */
	size_t positive_patients[SPLITS][FINDINGS], negative_patients[SPLITS][FINDINGS]; /* who have at least one of them */
	struct shortcuts shortcuts;
	struct audit_item items[AUDIT_ITEMS];
	int n_items, problems;
};

struct audit_conf {
	const char *table;       /* NIH's label table to compare with, or NULL */
	const char *train_val_list, *test_list; /* to find what is missing; or NULL */
	int pixels;              /* decode every image, where there are images */
	int threads;             /* 0: those of the affinity mask */
	const char *tell;        /* who says how far it is (progress.h), or NULL */
};

int audit_run(struct audit *a, const struct origin *o, const struct audit_conf *conf, struct error *e);

/* Its parts: adds an item, or where there are too many, puts it in the last one's place; compares findings with the other columns of n, or of
 * the origin's own, of which n (or NULL) takes none away. */
void audit_say(struct audit *a, enum audit_kind kind, int problem, size_t count, const char *format, ...) __attribute__((format(printf, 5, 6)));
int audit_shortcuts(struct audit *a, const struct origin *o, const struct nih *n, struct error *e);

/* Opens what PATH is: a prepared set, an NIH directory (divided by its lists, without them by SPLIT_CHEXNET; some files may be missing), or TFRecords (labels taken in this
 * program's order). */
int audit_open(struct origin *o, const char *path, struct error *e);

#endif
