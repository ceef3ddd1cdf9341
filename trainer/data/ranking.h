/* SPDX-License-Identifier: Apache-2.0
 * Scores in order, and how well that order ranks positives above negatives. */
#ifndef DATA_RANKING_H
#define DATA_RANKING_H

#include <stddef.h>
#include <stdint.h>

struct scored {
	float score;
	uint32_t image;
};

/* Ascending. */
void scored_sort(struct scored *s, size_t n);
/* Of ascending ones: behind the last that scores as s[begin] does. */
size_t tie_end(const struct scored *s, size_t begin, size_t n);

/* Area under the ROC curve: the probability that a random positive scores higher than a random negative, ties counting one half: the
 * Mann-Whitney statistic, by sorting. NAN without a positive or a negative, -1 without memory. */
double auroc(const float *score, const uint8_t *positive, size_t n);
/* The same with DeLong's variance (DeLong, DeLong and Clarke-Pearson 1988, by mid-ranks as in Sun and Xu 2014), which takes all images for
 * independent; NAN with fewer than two of either. */
double auroc_with_variance(const float *score, const uint8_t *positive, size_t n, double *variance);

#endif
