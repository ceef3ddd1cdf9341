/* SPDX-License-Identifier: Apache-2.0
 * Whether a probability of 20 % is right in 20 of 100 images. */
#ifndef LEARN_CALIBRATION_H
#define LEARN_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

enum { CALIBRATION_BINS = 10, ECE_BINS = 15 };

struct calibration_bin {
	size_t n;
	double predicted;           /* mean probability */
	double observed, low, high; /* share of positives, Wilson's 95 % interval (1927) */
};

struct calibration {
	size_t n, positives;
	int bins;                                       /* of them used: fewer than CALIBRATION_BINS with few images or many ties */
	struct calibration_bin bin[CALIBRATION_BINS];   /* of equal numbers of images, probabilities ascending; ties stay together */
	double ece;        /* Σ n_b/n |observed - predicted| over ECE_BINS bins of equal width (Guo et al. 2017) */
	double brier;      /* mean squared error of the probability (Brier 1950) */
	double skill;      /* 1 - brier / brier of the prevalence alone; NAN without positives or negatives */
	double slope, intercept; /* of a logistic regression of the label on the logit: 1 and 0 when calibrated (Cox 1958); NAN where the fit does not exist */
};

/* Of n images' logits. Returns 0, or -1 without memory. */
int calibration_of(const float *logits, const uint8_t *positive, size_t n, struct calibration *c);

#endif
