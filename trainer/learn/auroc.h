/* SPDX-License-Identifier: Apache-2.0
 * Area under the ROC curve, exactly, and how sure it is. */
#ifndef LEARN_AUROC_H
#define LEARN_AUROC_H

#include <stddef.h>
#include <stdint.h>

#include "data/findings.h"
#include "data/ranking.h"
#include "learn/few.h"

/* What a network said about a set of images; arrays are borrowed. */
struct scores {
	size_t n;                /* images */
	int classes;             /* 1 … 32 */
	const float *logits;     /* [n][classes] */
	const uint32_t *labels;  /* [n] bit c: class c present */
	const uint32_t *known;   /* [n] bit c: label c is known; others are left out of class c. NULL: all known */
	const uint32_t *patient; /* [n] who it is: images of one patient are not independent. NULL: each image its own */
};

struct auroc_table {
	int classes;
	size_t positives[32], negatives[32]; /* images */
	size_t positive_patients[32], negative_patients[32]; /* who have at least one of them */
	double effective[32];      /* patients_effective() of the positives or the negatives, whichever is less */
	struct interval class[32]; /* NAN but for the value with fewer than LEAST_POSITIVES of either */
	struct interval rough[32]; /* the same, with a rough interval for those too: not to be shown, but part of the mean's */
	struct interval mean; /* over the classes that have both positives and negatives */
	int counted;          /* how many those are */
	int left_out;         /* resamples that lack one of those, whose mean would be of others; the interval is NAN where a tenth or less is left, or fewer than 40 */
	int mostly_few;       /* most of those have no interval of their own: the mean has none, either */
	size_t patients;
};

/* auroc() with the standard error and Wald interval of DeLong's variance; without a spread there is no interval. */
struct interval auroc_delong(const float *score, const uint8_t *positive, size_t n);

/* AUROC of every class and their mean with 95 % intervals: percentiles of `resamples` resamples of whole patients, and what few.h says
 * where those do not tell. 0: values only. Depends on the seed only, not on threads. replicates: [resamples][classes], or NULL.
 * Returns 0, or -1 without memory. */
int auroc_bootstrap(const struct scores *s, int resamples, uint64_t seed, struct auroc_table *table, double *replicates);

/* Patients that class c has, or those that it has not, whichever are fewer: few.h says what so many tell. */
size_t auroc_patients(const struct auroc_table *t, int c);

/* The mean of one resample over the classes that the table counts, NAN where it lacks one. replicate: [classes] */
double auroc_mean(const struct auroc_table *t, const double *replicate);

#endif
