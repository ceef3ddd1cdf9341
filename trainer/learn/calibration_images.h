/* SPDX-License-Identifier: Apache-2.0
 * One finding's images as calibration_finding.c and calibration_scores.c go through them: in the order of their logits, with sums over patients. */
#ifndef LEARN_CALIBRATION_IMAGES_H
#define LEARN_CALIBRATION_IMAGES_H

#include <math.h>

#include "learn/calibration_finding.h"

struct entry {
	double logit, p;
	int positive;
	uint32_t patient;
};

/* Where what is told of images, and images, of patients are added up. */
struct room {
	size_t patients;
	double (*sum)[4]; /* [patients] */
	uint32_t *images; /* [patients] */
};

static inline double probability(double logit)
{
	return 1 / (1 + exp(-logit));
}

/* Fills what c says of all n images as a whole: brier, skill, ratio and level. effective: patients with the finding, or without it,
 * whichever are fewer. moves: [patients] or NULL: by about how much each moves the skill */
void calibration_scores(struct calibration *c, const struct entry *e, size_t n, const struct room *room, double effective, double *moves);

#endif
