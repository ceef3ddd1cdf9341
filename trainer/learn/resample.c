/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_patient(const void *a, const void *b)
{
	uint32_t x = ((const uint32_t *)a)[0], y = ((const uint32_t *)b)[0];

	return (x > y) - (x < y);
}

long patients_number(const uint32_t *patient, size_t n, uint32_t *number)
{
	uint32_t (*pair)[2] = malloc((n + 1) * sizeof *pair);
	long patients = 0;

	if (!pair)
		return -1;
	for (size_t i = 0; i < n; i++) {
		pair[i][0] = patient ? patient[i] : (uint32_t)i;
		pair[i][1] = (uint32_t)i;
	}
	qsort(pair, n, sizeof *pair, by_patient);
	for (size_t i = 0; i < n; i++) {
		if (i == 0 || pair[i][0] != pair[i - 1][0])
			patients++;
		number[pair[i][1]] = (uint32_t)(patients - 1);
	}
	free(pair);
	return patients;
}

/* SplitMix64 (Steele, Lea and Flood 2014): one stream a resample. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void patients_draw(uint16_t *weight, size_t patients, uint64_t seed, int resample)
{
	uint64_t state = seed;

	state = next_random(&state) + (uint64_t)resample * 0xd1342543de82ef95u;
	memset(weight, 0, patients * sizeof *weight);
	for (size_t i = 0; i < patients; i++)
		weight[(unsigned __int128)next_random(&state) * patients >> 64]++;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_ascending(double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_value);
}

double quantile(const double *v, size_t n, double q)
{
	double at = q * (double)(n - 1);
	size_t i = (size_t)at;

	return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

struct interval value_only(double value)
{
	return (struct interval){ value, NAN, NAN, NAN, METHOD_NONE };
}

const char *interval_method(const struct interval *r)
{
	static const char *const names[] = { "", "percentile", "newcombe", "wilson", "square-and-add", "logit", "delong" };

	return isnan(r->low) ? "" : names[r->method];
}

void interval_set(struct interval *r, double *replicates, size_t n)
{
	size_t k = 0;
	double sum = 0, square = 0;

	r->low = r->high = r->se = NAN;
	r->method = METHOD_NONE;
	for (size_t i = 0; i < n; i++)
		if (!isnan(replicates[i]))
			replicates[k++] = replicates[i];
	if (k < 2 || isnan(r->value))
		return;
	sort_ascending(replicates, k);
	for (size_t i = 0; i < k; i++)
		sum += replicates[i];
	for (size_t i = 0; i < k; i++)
		square += (replicates[i] - sum / (double)k) * (replicates[i] - sum / (double)k);
	r->low = quantile(replicates, k, 0.025);
	r->high = quantile(replicates, k, 0.975);
	r->se = sqrt(square / (double)(k - 1));
	r->method = METHOD_PERCENTILE;
}
