/* SPDX-License-Identifier: Apache-2.0
 * What a model may read instead of a finding: how well each of a table's other columns tells each finding by itself. */
#ifndef PREPARE_SHORTCUTS_H
#define PREPARE_SHORTCUTS_H

#include "data/nih.h"

enum shortcut { SHORTCUT_VIEW, SHORTCUT_AGE, SHORTCUT_SEX, SHORTCUT_FOLLOW_UP, SHORTCUTS };
/* A column as a number: 1 for AP and for men, 0 for PA and for women; negative: it is not told. */
float shortcut_value(const struct nih_facts *f, enum shortcut column);
extern const char *const shortcut_names[SHORTCUTS]; /* "view", "age", "sex", "follow_up" */

enum { SHORTCUT_IMAGES = 30 /* with a finding, and without it, that tell the column: with fewer nothing is compared */ };

struct shortcuts {
	size_t told[SHORTCUTS]; /* images that tell the column */
	struct told_by {
		double auroc;         /* of the column alone; over one half: AP views, the old, men, late images have the finding more often. NAN: not compared */
		size_t images;        /* with the finding that tell the column */
		double with, without; /* share of AP views or of men, median of years or follow-up numbers */
		int notable;          /* 0.15 and more than three standard errors of chance, an image a patient, away from one half */
	} of[SHORTCUTS][FINDINGS];
};

int shortcuts_measure(struct shortcuts *s, const struct sample *samples, const struct nih_facts *facts, size_t n, struct error *e);

#endif
