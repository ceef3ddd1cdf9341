/* SPDX-License-Identifier: Apache-2.0
 * Calibration of every finding, where its patients are enough to judge it, and the mean over these. */
#ifndef LEARN_CALIBRATION_TABLE_H
#define LEARN_CALIBRATION_TABLE_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "learn/auroc.h"
#include "learn/calibration_finding.h"

struct calibration_table {
	struct calibration finding[FINDINGS]; /* nothing but counts and the value of brier where few.h forbids more */
	struct interval skill;                /* mean over the findings that have one */
	int judged;                           /* how many those are */
};

/* t: of the same scores, of FINDINGS classes. Returns 0, or -1 without memory. */
int calibration_table_of(const struct scores *s, const struct auroc_table *t, struct calibration_table *c);

/* Takes all intervals away: values only. */
void calibration_table_bare(struct calibration_table *c);

/* A table as people read it; nothing where no finding is judged. */
void calibration_table_print(const struct calibration_table *c, FILE *out);

/* Adds one finding's numbers to its object, and the mean's to that of all. */
void calibration_json(const struct calibration *c, cJSON *finding);
void calibration_mean_json(const struct calibration_table *c, cJSON *object);

#endif
