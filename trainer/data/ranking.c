/* SPDX-License-Identifier: Apache-2.0 */
#include "data/ranking.h"

#include <math.h>
#include <stdlib.h>

static int by_score(const void *a, const void *b)
{
	float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;

	return (x > y) - (x < y);
}

void scored_sort(struct scored *s, size_t n)
{
	qsort(s, n, sizeof *s, by_score);
}

size_t tie_end(const struct scored *s, size_t begin, size_t n)
{
	size_t end = begin + 1;

	while (end < n && s[end].score == s[begin].score)
		end++;
	return end;
}

/* For a positive the structural component is the share of negatives below it, for a negative the share of positives above
 * it; the AUROC is the mean of either, and its variance the sum of both variances of the mean. */
double auroc_with_variance(const float *score, const uint8_t *positive, size_t n, double *variance)
{
	struct scored *s = malloc((n + 1) * sizeof *s);
	size_t pos = 0, seen_pos = 0, seen_neg = 0;

	*variance = NAN;
	if (!s)
		return -1;
	for (size_t i = 0; i < n; i++) {
		s[i] = (struct scored){ score[i], (uint32_t)i };
		pos += positive[i] != 0;
	}
	const size_t neg = n - pos;
	double sum10 = 0, square10 = 0, sum01 = 0, square01 = 0, m = (double)pos, k = (double)neg;

	scored_sort(s, n);
	for (size_t begin = 0; pos && neg && begin < n;) {
		size_t end = tie_end(s, begin, n), p = 0;

		for (size_t i = begin; i < end; i++)
			p += positive[s[i].image] != 0;
		size_t q = end - begin - p;
		double v10 = ((double)seen_neg + 0.5 * (double)q) / k;
		double v01 = ((double)(pos - seen_pos - p) + 0.5 * (double)p) / m;

		sum10 += (double)p * v10;
		square10 += (double)p * v10 * v10;
		sum01 += (double)q * v01;
		square01 += (double)q * v01 * v01;
		seen_pos += p;
		seen_neg += q;
		begin = end;
	}
	free(s);
	if (pos > 1 && neg > 1)
		*variance = (square10 - sum10 * sum10 / m) / (m - 1) / m + (square01 - sum01 * sum01 / k) / (k - 1) / k;
	return pos && neg ? sum10 / m : NAN;
}

double auroc(const float *score, const uint8_t *positive, size_t n)
{
	double variance;

	return auroc_with_variance(score, positive, n, &variance);
}
