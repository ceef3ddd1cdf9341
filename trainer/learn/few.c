/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/few.h"

#include <math.h>

static const double z = NORMAL_95;

double patients_effective(const uint32_t *images, size_t patients)
{
	double sum = 0, square = 0;

	for (size_t i = 0; i < patients; i++) {
		sum += images[i];
		square += (double)images[i] * images[i];
	}
	return square > 0 ? sum * sum / square : 0;
}

int resamples_tell(double value, double patients)
{
	return patients * fmin(value, 1 - value) >= LEAST_EXPECTED;
}

/* Of an AUROC a, after Hanley and McNeil (1982) with the sizes of both sides replaced by their mean. */
static double variance(double a, double with, double without)
{
	double others = fmax((with + without) / 2 - 1, 0);

	return a * (1 - a) * (1 + others * ((1 - a) / (2 - a) + a / (1 + a))) / (with * without);
}

/* The a between value and edge from which value is just z standard errors away. */
static double bound(double value, double edge, double with, double without)
{
	double inside = value, outside = edge;

	for (int i = 0; i < 60; i++) {
		double a = (inside + outside) / 2;

		*((a - value) * (a - value) > z * z * variance(a, with, without) ? &outside : &inside) = a;
	}
	return inside;
}

static void set_error(struct interval *r, enum interval_method method)
{
	r->se = (r->high - r->low) / (2 * z);
	r->method = method;
}

void interval_of_few(struct interval *r, double with, double without)
{
	r->low = bound(r->value, 0, with, without);
	r->high = bound(r->value, 1, with, without);
	set_error(r, METHOD_NEWCOMBE);
}

static double logit(double p)
{
	return log(p / (1 - p));
}

static double share(double logit)
{
	return 1 / (1 + exp(-logit));
}

/* Half of a 95 % interval on the scale of logits, by the delta method. */
static double half_width(double value, double se)
{
	return z * se / (value * (1 - value));
}

void interval_no_narrower(struct interval *r, double se_of_resamples)
{
	const double at = logit(r->value), half = half_width(r->value, se_of_resamples);

	if (!isfinite(at) || !(se_of_resamples > 0))
		return;
	r->low = fmin(r->low, share(at - half));
	r->high = fmax(r->high, share(at + half));
	set_error(r, r->method);
}

void interval_of_precision(struct interval *r, double patients, const struct interval *auroc)
{
	const double at = logit(r->value), half = half_width(r->value, r->se) * few_spread((size_t)fmax(patients, LEAST_POSITIVES));
	const double down = fmax(half, logit(auroc->value) - logit(auroc->low)), up = fmax(half, logit(auroc->high) - logit(auroc->value));

	r->low = isfinite(at) ? share(at - down) : NAN;
	r->high = isfinite(at) ? share(at + up) : NAN;
	r->method = METHOD_LOGIT;
}

void interval_of_share(struct interval *r, double n)
{
	double middle = (r->value + z * z / (2 * n)) / (1 + z * z / n);
	double half = z * sqrt(r->value * (1 - r->value) / n + z * z / (4 * n * n)) / (1 + z * z / n);

	r->low = r->value > 0 ? fmax(middle - half, 0) : 0; /* what is rounded off may leave 1e-18 */
	r->high = r->value < 1 ? fmin(middle + half, 1) : 1;
	set_error(r, METHOD_WILSON);
}

void interval_of_images(struct interval *r, const uint32_t *images, size_t patients, double *replicates, size_t n)
{
	const double effective = patients_effective(images, patients);
	size_t with = 0;

	for (size_t p = 0; p < patients; p++)
		with += images[p] > 0;
	if (with < LEAST_POSITIVES)
		return;
	if (resamples_tell(r->value, effective))
		interval_set(r, replicates, n);
	else
		interval_of_share(r, effective);
}

static double added(double distance, double member, double known, int of)
{
	return sqrt(distance * distance + fmax(member * member - known * known, 0) / ((double)of * of));
}

void interval_widen(struct interval *mean, const struct interval *member, double se_of_resamples, int of)
{
	double known = isnan(se_of_resamples) ? 0 : z * se_of_resamples;

	mean->low = mean->value - added(fmax(mean->value - mean->low, 0), member->value - member->low, known, of);
	mean->high = mean->value + added(fmax(mean->high - mean->value, 0), member->high - member->value, known, of);
	set_error(mean, METHOD_SQUARE_AND_ADD);
}

void interval_add(struct interval *mean, const struct interval *member, double se_of_resamples, int of)
{
	interval_widen(mean, member, se_of_resamples, of);
	mean->low = fmax(mean->low, 0);
	mean->high = fmin(mean->high, 1);
	set_error(mean, METHOD_SQUARE_AND_ADD);
}

/* Student's quantile by the first terms of the expansion of Cornish and Fisher (1937): within 0.3 % from 4 degrees of freedom on. */
double few_spread(size_t patients)
{
	double n = (double)patients, v = n - 1, z2 = z * z;
	double t = 1 + (z2 + 1) / (4 * v) + ((5 * z2 + 16) * z2 + 3) / (96 * v * v) + (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v);

	return t * sqrt(n / v);
}
