/* SPDX-License-Identifier: Apache-2.0
 * The bootstrap over patients: images of one patient are not independent, so whole patients are drawn. */
#ifndef LEARN_RESAMPLE_H
#define LEARN_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#define RESAMPLES_DEFAULT "1000" /* of every command's --resamples, so that all print one interval, and one p-value, of the same predictions */

/* How an interval was made, and with it what its standard error is. */
enum interval_method {
	METHOD_NONE,           /* no interval, or one whose origin nobody asks for */
	METHOD_PERCENTILE,     /* of resamples; se: their standard deviation */
	METHOD_NEWCOMBE,       /* few.h; se: (high - low) / 3.92 */
	METHOD_WILSON,         /* few.h; se: the same */
	METHOD_SQUARE_AND_ADD, /* a mean's percentiles, widened by its members' Newcombe intervals; se: the same */
	METHOD_LOGIT,          /* few.h; se: standard deviation of resamples */
	METHOD_DELONG          /* value +- 1.96 se */
};

struct interval {
	double value, low, high; /* estimate and 95 % interval; NAN where it is not defined */
	double se;               /* standard error */
	enum interval_method method;
};

#define NORMAL_95 1.959963984540054 /* standard errors to each side that a 95 % interval of the normal distribution reaches */

/* An estimate without an interval. */
struct interval value_only(double value);

/* "percentile", "newcombe", …; "" where there is no interval. */
const char *interval_method(const struct interval *r);

/* Numbers the patients of n images 0, 1, … in ascending order of their ids. patient: [n], or NULL: each image its own.
 * number: [n]. Returns how many there are, or -1 without memory. */
long patients_number(const uint32_t *patient, size_t n, uint32_t *number);

/* Resample `resample` of a seed: weight[patient] is how often that one was drawn. Depends on nothing else, so that two models
 * judged on the same patients are judged on the same resamples. */
void patients_draw(uint16_t *weight, size_t patients, uint64_t seed, int resample);

/* Percentile interval and standard error around r->value from n replicates; NANs are left out. Overwrites replicates. */
void interval_set(struct interval *r, double *replicates, size_t n);

void sort_ascending(double *v, size_t n);

/* Linear interpolation between the order statistics of v, ascending (Hyndman and Fan's type 7). */
double quantile(const double *v, size_t n, double q);

#endif
