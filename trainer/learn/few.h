/* SPDX-License-Identifier: Apache-2.0
 * Intervals where patients are few. A resample draws only patients that are there: with three who have a finding it knows nothing of a
 * fourth, and percentiles of resamples promise far too much. tests/unit/test_trainer_few.c counts how often each rule holds the truth. */
#ifndef LEARN_FEW_H
#define LEARN_FEW_H

#include <stddef.h>
#include <stdint.h>

#include "data/findings.h"
#include "learn/resample.h"

/* What a finding is judged by goes with the patients that show it or those that do not, whichever are fewer. Below LEAST_POSITIVES (data/findings.h)
 * AUROC and average precision are values alone, without interval, p-value or curve. Below FEW_POSITIVES intervals are so wide that hardly anything is
 * shown, which a mark says, and probabilities are not judged: the share that they are held against is itself off by a third of it or more
 * (1/sqrt(n)). Below AIM_LEAST (learn/curves.h) there is no operating point. */
enum { FEW_POSITIVES = 10 };

/* How many patients with one image each say as much as these, when the images of one patient all say the same (Kish 1965):
 * the square of the sum over the sum of squares. images: [patients] of each */
double patients_effective(const uint32_t *images, size_t patients);

/* Whether percentiles of resamples hold a share, or an AUROC, of so many effective patients: not where less than LEAST_EXPECTED of
 * them are on either side of it, as for a binomial share. */
enum { LEAST_EXPECTED = 5 };
int resamples_tell(double value, double patients);

/* 95 % interval of the AUROC r->value from so many effective patients with and without: method 5 of Newcombe (Statistics in Medicine 25,
 * 2006). It is defined where positives and negatives are told apart perfectly too. Sets low, high, method, and se as their distance / 3.92. */
void interval_of_few(struct interval *r, double with, double without);

/* Widens r, where it is narrower, to what the resamples' standard deviation says on the scale of logits: Newcombe's method takes positives and negatives
 * to vary alike, and where the few vary twice as much it holds the truth 84 to 92 times in 100, with this 91 to 98 times. Sets se, too. */
void interval_no_narrower(struct interval *r, double se_of_resamples);

/* 95 % interval of the average precision r->value, of which r->se is the resamples' standard deviation: symmetric on the scale of logits (Boyd, Eng and
 * Page 2013), spread by few_spread() for so many effective patients. Where few lack the finding it goes by the one or two of them that score highest, and
 * resamples promise too much: on that scale it reaches no less far than the AUROC's own interval. Sets low, high and method; a value of 1 has none. */
void interval_of_precision(struct interval *r, double patients, const struct interval *auroc);

/* Wilson's 95 % interval (1927) of the share r->value of n. Sets low, high, method, and se as above. */
void interval_of_share(struct interval *r, double n);

/* 95 % interval of the share r->value of images, of which patients have so many each: percentiles of n replicates of it where these tell, else Wilson's of the
 * effective patients; none with fewer than LEAST_POSITIVES patients. Overwrites replicates. */
void interval_of_images(struct interval *r, const uint32_t *images, size_t patients, double *replicates, size_t n);

/* The mean's interval by the square-and-add of Zou and Donner (2008): its distances from the estimate grow by those of one of its
 * `of` members, as far as they are above what the resamples say of that member. */
void interval_widen(struct interval *mean, const struct interval *member, double se_of_resamples, int of);

/* The same of shares: it ends at 0 and 1. */
void interval_add(struct interval *mean, const struct interval *member, double se_of_resamples, int of);

/* By how much differences of resamples are to be spread about the estimate, so that their percentiles hold the truth for so many
 * patients: Student's quantile for the normal one, and sqrt(n / (n - 1)). 1.58 for 5, 1.06 for 30, 1.002 for 1,000. patients >= 5 */
double few_spread(size_t patients);

#endif
