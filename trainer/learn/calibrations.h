/* SPDX-License-Identifier: Apache-2.0
 * Calibration of every finding, where its patients are enough to judge it, and the mean over these. */
#ifndef LEARN_CALIBRATIONS_H
#define LEARN_CALIBRATIONS_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "learn/auroc.h"
#include "learn/calibration.h"

struct calibrations {
	struct calibration finding[FINDINGS]; /* nothing but counts and the value of brier where few.h forbids more */
	struct interval skill;                /* mean over the findings that have one */
	int judged;                           /* how many those are */
};

/* t: of the same scores, of FINDINGS classes. Returns 0, or -1 without memory. */
int calibrations_of(const struct scores *s, const struct auroc_table *t, struct calibrations *c);

/* Takes all intervals away: values only. */
void calibrations_bare(struct calibrations *c);

/* A table as people read it; nothing where no finding is judged. */
void calibrations_print(const struct calibrations *c, FILE *out);

/* Adds one finding's numbers to its object, and the mean's to that of all. */
void calibration_json(const struct calibration *c, cJSON *finding);
void calibrations_mean_json(const struct calibrations *c, cJSON *object);

#endif
