/* SPDX-License-Identifier: Apache-2.0
 * Is a task honest? A logistic regression that sees 8 x 8 thumbnails only: what brightness and coarse shape alone give away. */
#ifndef PREPARE_THUMBNAIL_H
#define PREPARE_THUMBNAIL_H

#include "data/dataset.h"

enum { THUMBNAIL_SIDE = 8 };

struct thumbnail_fit {
	double auroc[FINDINGS]; /* on `test`; NAN where it has no positives or no negatives */
	double mean;            /* over the findings that have a value */
	int counted;
};

/* Fits one logistic regression a finding on `train` (Newton's method, ridge penalty) and scores `test`. */
int thumbnail_fit(const struct dataset *train, const struct dataset *test, struct thumbnail_fit *fit, struct error *e);

#endif
