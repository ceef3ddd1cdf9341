/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/thumbnail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/ranking.h"
#include "image/resize.h"

enum { FEATURES = THUMBNAIL_SIDE * THUMBNAIL_SIDE, COLUMNS = FEATURES + 1, STEPS = 8 };

/* On standardised features: small against any real split, enough where a finding has few positives. */
static const double RIDGE = 1.0;

/* Rows of [FEATURES] thumbnail pixels and a one. */
static float *thumbnails(const struct dataset *d, struct error *e)
{
	size_t n = dataset_count(d), bytes = (size_t)dataset_image_size(d) * (size_t)dataset_image_size(d);
	float *rows = malloc((n * COLUMNS + 1) * sizeof *rows);

	if (!rows) {
		fail(e, EXIT_INTERNAL, "no memory for %zu thumbnails", n);
		return NULL;
	}
#pragma omp parallel
	{
		struct dataset_scratch *scratch = dataset_scratch(d);
		uint8_t *pixels = malloc(bytes), small[FEATURES];
		int side = dataset_image_size(d);
#pragma omp for schedule(dynamic, 16)
		for (size_t i = 0; i < n; i++) {
			struct error mine = { 0 };
			if (!scratch || !pixels)
				fail(&mine, EXIT_INTERNAL, "no memory to make thumbnails");
			else if (dataset_read(d, i, scratch, pixels, &mine) == 0)
				resize_area(pixels, side, side, small, THUMBNAIL_SIDE, &mine);
			if (mine.code) {
#pragma omp critical
				fail(e, mine.code, "%s", mine.text);
			}
			for (int j = 0; j < FEATURES; j++)
				rows[i * COLUMNS + (size_t)j] = mine.code ? 0 : small[j];
			rows[i * COLUMNS + FEATURES] = 1;
		}
		dataset_scratch_free(scratch);
		free(pixels);
	}
	if (e->code) {
		free(rows);
		return NULL;
	}
	return rows;
}

/* Makes both sets' features mean 0 and variance 1 in the training set. */
static void standardise(float *train, size_t n, float *test, size_t m)
{
	for (size_t j = 0; j < FEATURES; j++) {
		double sum = 0, squares = 0;
		for (size_t i = 0; i < n; i++) {
			double v = train[i * COLUMNS + j];
			sum += v;
			squares += v * v;
		}
		double mean = sum / (double)n, sd = sqrt(fmax(squares / (double)n - mean * mean, 0)) + 1e-6;
		for (size_t i = 0; i < n; i++)
			train[i * COLUMNS + j] = (float)((train[i * COLUMNS + j] - mean) / sd);
		for (size_t i = 0; i < m; i++)
			test[i * COLUMNS + j] = (float)((test[i * COLUMNS + j] - mean) / sd);
	}
}

static double product(const float *row, const double *w)
{
	double z = 0;

	for (int j = 0; j < COLUMNS; j++)
		z += w[j] * row[j];
	return z;
}

/* Solves a x = b for symmetric positive definite a by Cholesky's decomposition, in place. */
static void solve(double a[COLUMNS][COLUMNS], double b[COLUMNS])
{
	for (int i = 0; i < COLUMNS; i++)
		for (int j = 0; j <= i; j++) {
			double s = a[i][j];
			for (int k = 0; k < j; k++)
				s -= a[i][k] * a[j][k];
			a[i][j] = i == j ? sqrt(s) : s / a[j][j];
		}
	for (int i = 0; i < COLUMNS; i++) {
		for (int k = 0; k < i; k++)
			b[i] -= a[i][k] * b[k];
		b[i] /= a[i][i];
	}
	for (int i = COLUMNS - 1; i >= 0; i--) {
		for (int k = i + 1; k < COLUMNS; k++)
			b[i] -= a[k][i] * b[k];
		b[i] /= a[i][i];
	}
}

static void fit_finding(const struct dataset *d, const float *rows, int f, double w[COLUMNS])
{
	const struct sample *samples = dataset_samples(d);
	double hessian[COLUMNS][COLUMNS], gradient[COLUMNS];

	memset(w, 0, COLUMNS * sizeof *w);
	for (int step = 0; step < STEPS; step++) {
		memset(hessian, 0, sizeof hessian);
		for (int j = 0; j < COLUMNS; j++) {
			hessian[j][j] = RIDGE;
			gradient[j] = -RIDGE * w[j];
		}
		for (size_t i = 0; i < dataset_count(d); i++) {
			if (!(samples[i].known >> f & 1))
				continue;
			const float *x = rows + i * COLUMNS;
			double p = 1 / (1 + exp(-product(x, w))), v = p * (1 - p), residual = (samples[i].labels >> f & 1) - p;
			for (int j = 0; j < COLUMNS; j++) {
				gradient[j] += residual * x[j];
				for (int k = 0; k <= j; k++)
					hessian[j][k] += v * x[j] * x[k];
			}
		}
		solve(hessian, gradient);
		for (int j = 0; j < COLUMNS; j++)
			w[j] += gradient[j];
	}
}

static double score_finding(const struct dataset *d, const float *rows, int f, const double w[COLUMNS], float *score, uint8_t *positive)
{
	const struct sample *samples = dataset_samples(d);
	size_t n = 0;

	for (size_t i = 0; i < dataset_count(d); i++) {
		if (!(samples[i].known >> f & 1))
			continue;
		score[n] = (float)product(rows + i * COLUMNS, w);
		positive[n++] = samples[i].labels >> f & 1;
	}
	return auroc(score, positive, n);
}

int thumbnail_fit(const struct dataset *train, const struct dataset *test, struct thumbnail_fit *fit, struct error *e)
{
	size_t n = dataset_count(train), m = dataset_count(test);
	float *a = thumbnails(train, e), *b = a ? thumbnails(test, e) : NULL;

	*fit = (struct thumbnail_fit){ 0 };
	if (a && b)
		standardise(a, n, b, m);
#pragma omp parallel for schedule(dynamic)
	for (int f = 0; f < FINDINGS; f++) {
		double w[COLUMNS];
		float *score = malloc((m + 1) * sizeof *score);
		uint8_t *positive = malloc(m + 1);
		fit->auroc[f] = -1;
		if (a && b && score && positive) {
			fit_finding(train, a, f, w);
			fit->auroc[f] = score_finding(test, b, f, w, score, positive);
		}
		free(score);
		free(positive);
	}
	for (int f = 0; f < FINDINGS; f++)
		if (fit->auroc[f] < 0)
			fail(e, EXIT_INTERNAL, "no memory for the scores of %zu images", m);
	for (int f = 0; f < FINDINGS; f++)
		if (!isnan(fit->auroc[f])) {
			fit->mean += fit->auroc[f];
			fit->counted++;
		}
	fit->mean = fit->counted ? fit->mean / fit->counted : NAN;
	free(a);
	free(b);
	return -e->code;
}
