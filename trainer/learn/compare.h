/* SPDX-License-Identifier: Apache-2.0
 * Two models judged on the same images: is the difference more than chance? */
#ifndef LEARN_COMPARE_H
#define LEARN_COMPARE_H

#include <cjson/cJSON.h>

#include "learn/predictions.h"

struct paired {
	size_t positives, negatives, positive_patients, negative_patients; /* of the mean: 0 */
	double a, b;                /* AUROC of each on the shared images */
	struct interval difference; /* b - a, 95 % interval from resamples of whole patients, spread by few_spread(). NAN but for the value with
				       fewer than LEAST_POSITIVES patients of either, or where models that differ rank alike in every resample */
	double p;                   /* two-sided, from the same resamples: smallest possible 2 / (resamples + 1). NAN where the interval is */
	double p_holm;              /* Holm's correction (1979) for the findings that were tested; of the mean: p itself */
	int p_bound, p_holm_bound;  /* p is the smallest that so many resamples can give, or Holm's rests on such a one: the true one may be smaller */
	double p_delong;            /* takes all images for independent; NAN with fewer than LEAST_POSITIVES patients of either, and of the mean */
};

struct comparison {
	size_t n, patients;    /* where nobody names them, every image counts as one */
	int named;             /* whether somebody does */
	size_t only_a, only_b; /* images that the other file does not have: left out */
	int counted;           /* findings with both positives and negatives */
	int tested;            /* those of them that have a p-value */
	double p_floor;        /* 2 / (resamples + 1) */
	int left_out;          /* resamples that lack one of those: no part of the mean's interval and p (auroc.h) */
	struct paired finding[FINDINGS], mean;
};

/* Whether so many resamples can show that a finding differs, after Holm's correction at 0.05. */
int comparison_can_show(const struct comparison *c);

/* A p-value as a reader takes it, no zero that it is not: "0.042", "<0.001", "<=0.002" where it is only a bound, "" for NAN. Returns text. */
const char *p_text(double p, int bound, char text[16]);

/* The difference b - a of two AUROCs on the same images with DeLong's standard error (DeLong, DeLong and Clarke-Pearson
 * 1988) and two-sided p-value; low and high are NAN. So is all of it without two positives and two negatives, or without memory. */
struct interval delong_difference(const float *a, const float *b, const uint8_t *positive, size_t n, double *p);

/* Compares on the images that both have; a label counts where both know it. Paths are for the error line. EXIT_DATA: no image
 * in common, or labels or patients that differ. */
int compare_predictions(struct comparison *c, const struct predictions *a, const struct predictions *b, const char *a_path,
			const char *b_path, int resamples, uint64_t seed, struct error *e);

/* Every number of a comparison; null where it is not defined. */
void comparison_json(const struct comparison *c, cJSON *object);

#endif
