/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/calibration.h"

#include <math.h>
#include <stdlib.h>

struct entry {
	double logit, p;
	int positive;
};

static int by_logit(const void *a, const void *b)
{
	double x = ((const struct entry *)a)->logit, y = ((const struct entry *)b)->logit;

	return (x > y) - (x < y);
}

static double probability(double logit)
{
	return 1 / (1 + exp(-logit));
}

static void set_observed(struct calibration_bin *b, double positives)
{
	const double z = 1.959963984540054, n = (double)b->n, share = positives / n;
	double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
	double half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n);

	b->observed = share;
	b->low = fmax(middle - half, 0);
	b->high = fmin(middle + half, 1);
}

static void equal_numbers(struct calibration *c, const struct entry *e, size_t n)
{
	size_t begin = 0;

	for (size_t k = 0; k < CALIBRATION_BINS; k++) {
		size_t end = (k + 1) * n / CALIBRATION_BINS;
		double sum = 0, positives = 0;

		while (end > begin && end < n && e[end].logit == e[end - 1].logit)
			end++;
		if (end <= begin)
			continue;
		struct calibration_bin *b = &c->bin[c->bins++];

		for (size_t i = begin; i < end; i++) {
			sum += e[i].p;
			positives += e[i].positive;
		}
		b->n = end - begin;
		b->predicted = sum / (double)b->n;
		set_observed(b, positives);
		begin = end;
	}
}

static double expected_error(const struct entry *e, size_t n)
{
	double difference[ECE_BINS] = { 0 }, sum = 0;

	for (size_t i = 0; i < n; i++) {
		int k = (int)(e[i].p * ECE_BINS);

		difference[k < ECE_BINS ? k : ECE_BINS - 1] += e[i].positive - e[i].p;
	}
	for (int k = 0; k < ECE_BINS; k++)
		sum += fabs(difference[k]);
	return sum / (double)n;
}

struct line {
	double intercept, slope;
};

static double log_likelihood(const struct entry *e, size_t n, struct line l)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double z = l.intercept + l.slope * e[i].logit;

		sum += (e[i].positive ? z : 0) - (z > 0 ? z + log1p(exp(-z)) : log1p(exp(z)));
	}
	return sum;
}

/* One Newton step of the regression; 0 where the Hessian is singular. */
static int newton_step(const struct entry *e, size_t n, struct line l, struct line *step)
{
	double g0 = 0, g1 = 0, h00 = 0, h01 = 0, h11 = 0;

	for (size_t i = 0; i < n; i++) {
		double x = e[i].logit, q = probability(l.intercept + l.slope * x), w = q * (1 - q);

		g0 += e[i].positive - q;
		g1 += (e[i].positive - q) * x;
		h00 += w;
		h01 += w * x;
		h11 += w * x * x;
	}
	double determinant = h00 * h11 - h01 * h01;

	if (!(determinant > 1e-12 * h00 * h11))
		return 0;
	step->intercept = (h11 * g0 - h01 * g1) / determinant;
	step->slope = (h00 * g1 - h01 * g0) / determinant;
	return 1;
}

/* Newton's method with halved steps. With separable labels the slope grows without end: no fit. */
static void fit_line(struct calibration *c, const struct entry *e, size_t n)
{
	struct line l = { 0, 1 }, step;
	double now = log_likelihood(e, n, l);

	c->slope = c->intercept = NAN;
	for (int round = 0; round < 100; round++) {
		double scale = 1, then = now;
		struct line to = l;

		if (!newton_step(e, n, l, &step) || fabs(l.slope) > 1e3)
			return;
		for (; scale > 1e-6; scale /= 2) {
			to = (struct line){ l.intercept + scale * step.intercept, l.slope + scale * step.slope };
			then = log_likelihood(e, n, to);
			if (then >= now - 1e-12 * fabs(now)) /* rounding */
				break;
		}
		if (fabs(step.intercept) < 1e-10 * (1 + fabs(l.intercept)) && fabs(step.slope) < 1e-10 * (1 + fabs(l.slope))) {
			c->intercept = l.intercept;
			c->slope = l.slope;
			return;
		}
		l = to;
		now = then;
	}
}

int calibration_of(const float *logits, const uint8_t *positive, size_t n, struct calibration *c)
{
	struct entry *e = malloc((n + 1) * sizeof *e);
	double squares = 0;

	*c = (struct calibration){ .n = n, .ece = NAN, .brier = NAN, .skill = NAN, .slope = NAN, .intercept = NAN };
	if (!e)
		return -1;
	for (size_t i = 0; i < n; i++) {
		e[i] = (struct entry){ logits[i], probability(logits[i]), positive[i] != 0 };
		squares += (e[i].p - e[i].positive) * (e[i].p - e[i].positive);
		c->positives += positive[i] != 0;
	}
	if (n) {
		double prevalence = (double)c->positives / (double)n;

		qsort(e, n, sizeof *e, by_logit);
		equal_numbers(c, e, n);
		c->ece = expected_error(e, n);
		c->brier = squares / (double)n;
		if (c->positives && c->positives < n) {
			c->skill = 1 - c->brier / (prevalence * (1 - prevalence));
			fit_line(c, e, n);
		}
	}
	free(e);
	return 0;
}
