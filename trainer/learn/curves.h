/* SPDX-License-Identifier: Apache-2.0
 * ROC and precision-recall curves of one finding with pointwise 95 % bands from resamples of whole patients, no narrower than few.h says. */
#ifndef LEARN_CURVES_H
#define LEARN_CURVES_H

#include "learn/auroc.h"

enum { CURVE_GRID = 101 }; /* false positive rates, and recalls, 0 to 1 in steps of 0.01 */

struct point {
	double x, y;
};

struct curve {
	size_t n;
	struct point *points; /* [n] x ascending */
	double value[CURVE_GRID], low[CURVE_GRID], high[CURVE_GRID]; /* y at x = i / (CURVE_GRID - 1), and its 95 % band; NAN: none */
};

/* A threshold, and what it does: scores of it or more are flagged. */
struct operating_point {
	double threshold;                /* a score; infinite: nothing may be flagged; NAN: too few patients, and all others are NAN too */
	double below;                    /* the greatest score that is not flagged; -infinite: all are */
	struct interval sensitivity, specificity; /* of a threshold chosen on the same images only the one of these that was not aimed at has a 95 % interval */
	struct interval ppv, npv;        /* share of the flagged that are positive, of the others that are negative; NAN: there are none. With an interval where others chose the threshold */
	uint64_t flagged[2], passed[2];  /* images, negatives and positives: of both that are flagged and that are not, the cross-tabulation that STARD asks for */
};

/* Of the least threshold with a specificity of 90 % or more, and of the greatest with a sensitivity of 90 % or more. By simulation
 * the intervals hold the truth in 50 to 85 of 100 rounds with 5 positive patients, and in 89 to 99 with 20 to 80 (test_trainer_operating.c). */
enum aim { AIM_SPECIFICITY, AIM_SENSITIVITY, AIMS };
enum { AIM_PERCENT = 90, AIM_LEAST = 20 };

struct curves {
	size_t positives, negatives;
	struct operating_point at[AIMS];
	struct interval average_precision;
	struct curve roc; /* (false positive rate, true positive rate), from (0, 0) to (1, 1) */
	struct curve pr;  /* (recall, precision), one point a distinct score, from the first hit until all are found */
};

/* Average precision: Σ (recallᵢ - recallᵢ₋₁) · precisionᵢ over the distinct scores from the highest down, without interpolation
 * (what scikit-learn's average_precision_score computes). NAN without a positive. */
double average_precision(const float *score, const uint8_t *positive, size_t n);

/* Curves of class c. Without both positives and negatives they have no points. Precision between two points is taken from the
 * point of the next higher recall, which average precision does too. resamples 0: no bands and no interval. Depends on the seed
 * only. Returns 0, or -1 without memory; to be freed with curves_free(), then too. */
int curves_of(const struct scores *s, int c, int resamples, uint64_t seed, struct curves *out);

/* Takes back what the patients behind class c are too few for: interval, bands and operating points; widens the intervals of the latter, and the
 * bands, where resamples do not tell (few.h), a precision-recall curve's only towards 1; and gives average precision interval_of_precision(): percentiles of resamples are too high and too narrow where few
 * patients lack the finding (test_trainer_curves.c). */
void curves_judge(struct curves *curves, const struct auroc_table *t, int c);

/* Judges a threshold that other patients chose, as operating_probability() prints it, on class c of these images: all four shares get
 * intervals, from LEAST_POSITIVES patients on that have images of which they are shares. All but the threshold is NAN where no probability says it. Returns 0, or -1 without memory. */
int operating_judge(struct operating_point *at, const struct scores *s, int c, int resamples, uint64_t seed);

/* The threshold as a probability: rounded down to as few significant digits, but three or more, as flag the same images. NAN where no
 * number does: nothing may be flagged, or the probabilities at the threshold and below it are one to double precision. */
double operating_probability(const struct operating_point *at, int *digits);
void curves_free(struct curves *c);

#endif
