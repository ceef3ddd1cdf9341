/* SPDX-License-Identifier: Apache-2.0
 * Calibration of every finding, where its patients are enough to judge it, and the mean over these. */
#ifndef LEARN_CALIBRATIONS_H
#define LEARN_CALIBRATIONS_H

#include "learn/auroc.h"
#include "learn/calibration.h"

struct calibrations {
	struct calibration finding[FINDINGS]; /* nothing but counts and the value of brier where few.h forbids more */
	struct interval skill;                /* mean over the findings that have one */
	int judged;                           /* how many those are */
};

/* t: of the same scores, of FINDINGS classes. Returns 0, or -1 without memory. */
int calibrations_of(const struct scores *s, const struct auroc_table *t, struct calibrations *c);

#endif
