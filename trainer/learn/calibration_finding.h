/* SPDX-License-Identifier: Apache-2.0
 * Calibration of one finding: whether a probability of 20 % is right in 20 of 100 images. */
#ifndef LEARN_CALIBRATION_FINDING_H
#define LEARN_CALIBRATION_FINDING_H

#include <stddef.h>
#include <stdint.h>

#include "learn/few.h"

enum { CALIBRATION_BINS = 10, CALIBRATION_LEAST = 5, ECE_BINS = 15 };

struct calibration_bin {
	size_t n;
	double predicted;           /* mean probability */
	double observed, low, high; /* share of positives, Wilson's 95 % interval (1927) of n over the design effect: images of one patient are alike */
};

struct calibration {
	size_t n, positives;
	int bins;                                       /* of them used: each has CALIBRATION_LEAST of the rarer label, but for ties */
	struct calibration_bin bin[CALIBRATION_BINS];   /* of equal numbers of the rarer label, probabilities ascending; ties stay together. Of equal
							   numbers of images nearly all would lie at 0 where a finding is rare */
	double ece;        /* Σ n_b/n |observed - predicted| over ECE_BINS bins of equal width (Guo et al. 2017) */
	double ece_by_chance; /* about what it is on average where all these probabilities are right: never 0 */
	/* Of all images as a whole. All but the first is NAN without positives or negatives; an interval also where it would have no width. They take a patient's
	 * images for one, and are spread as few.h says. tests/unit/test_trainer_calibration_scores.c counts how often they hold the truth: with 10 patients and more
	 * 89 to 99 times in 100, but for the skill where ten patients show it and nearly all probabilities are many times too small: then 75 to 90, next to it. */
	struct interval brier; /* mean squared error of the probability (Brier 1950) */
	struct interval skill; /* 1 - brier / brier of the prevalence alone */
	struct interval ratio; /* share that shows it to mean probability: observed to expected, 1 when calibrated in the large */
	struct interval level; /* what is to be added to every logit for that: the calibration intercept, with the slope held at 1 (Cox 1958), 0 when calibrated */
	struct interval slope; /* of a logistic regression of the label on the logit: 1 and 0 when calibrated (Cox 1958); NAN where the fit does not exist. */
	struct interval intercept; /* of the same regression. Intervals take a patient's images for one (Liang and Zeger 1986), and are spread as few.h says */
};

/* Of n images' logits. patient: [n] numbered from 0, or NULL: each image its own. moves: [one more than the greatest of these] or NULL: by about how
 * much each patient moves the skill, 0 where there is none. Returns 0, or -1 without memory. */
int calibration_of(const float *logits, const uint8_t *positive, const uint32_t *patient, size_t n, struct calibration *c, double *moves);

/* Whether all of n logits, and not one number many times, are in 0 … 1: another program's probabilities, most likely. */
int logits_like_probabilities(const float *logits, size_t n);

#endif
