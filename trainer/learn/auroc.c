/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/auroc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct interval auroc_delong(const float *score, const uint8_t *positive, size_t n)
{
	double variance;
	struct interval r = { auroc_with_variance(score, positive, n, &variance), NAN, NAN, NAN, METHOD_NONE };
	const double se = sqrt(fmax(variance, 0));

	if (se > 0) { /* of a perfect ranking it knows nothing: an interval of no width would be none */
		r.low = fmax(r.value - NORMAL_95 * se, 0);
		r.high = fmin(r.value + NORMAL_95 * se, 1);
		r.se = se;
		r.method = METHOD_DELONG;
	}
	return r;
}

/* ---- bootstrap over patients ------------------------------------------------------------------------ */

/* A class's known images in ascending order of score: patient << 1 | positive. Ties count one half because the statistic
 * is the mean over two orders, negatives first and positives first within each tie; without ties one order is enough. */
struct ranking {
	size_t n;
	int ties;
	uint32_t *low, *high;
	double effective[2]; /* patients_effective() of negatives and positives */
};

struct resampling {
	const struct scores *s;
	size_t patients;
	uint32_t *patient; /* [n] 0 … patients - 1 */
	struct ranking ranking[32];
};

static int rank_class(struct resampling *r, int c)
{
	const struct scores *s = r->s;
	struct ranking *k = &r->ranking[c];
	struct scored *e = malloc((s->n + 1) * sizeof *e);

	k->low = malloc((s->n + 1) * sizeof *k->low);
	k->high = malloc((s->n + 1) * sizeof *k->high);
	if (!e || !k->low || !k->high) {
		free(e);
		return -1;
	}
	for (size_t i = 0; i < s->n; i++)
		if (!s->known || (s->known[i] >> c & 1))
			e[k->n++] = (struct scored){ s->logits[i * (size_t)s->classes + (size_t)c], (uint32_t)i };
	scored_sort(e, k->n);
	for (size_t begin = 0; begin < k->n;) {
		size_t end = tie_end(e, begin, k->n), front = begin, back = end;

		for (size_t i = begin; i < end; i++) {
			uint32_t positive = s->labels[e[i].image] >> c & 1, word = r->patient[e[i].image] << 1 | positive;
			size_t at = positive ? --back : front++;

			k->low[at] = word;
			k->high[begin + end - 1 - at] = word;
		}
		k->ties |= front > begin && back < end;
		begin = end;
	}
	free(e);
	return 0;
}

/* Resamples are taken so many at a time: what a patient weighs in each lies side by side, and one pass over a ranking serves them all. */
enum { LANES = 16 };

typedef uint16_t lanes[LANES];

/* u: Σ over positives of the weight of all negatives before it; the totals too. */
static void weighted_u(const uint32_t *order, size_t n, const lanes *weight, uint64_t u[LANES], uint32_t pos[LANES], uint32_t neg[LANES])
{
	uint32_t below[LANES] = { 0 }, positives[LANES] = { 0 };
	uint64_t sum[LANES] = { 0 };

	for (size_t i = 0; i < n; i++) {
		const uint16_t *w = weight[order[i] >> 1];

		if (order[i] & 1) {
			for (int l = 0; l < LANES; l++) {
				sum[l] += (uint64_t)w[l] * below[l];
				positives[l] += w[l];
			}
		} else {
			for (int l = 0; l < LANES; l++)
				below[l] += w[l];
		}
	}
	memcpy(u, sum, sizeof sum);
	memcpy(pos, positives, sizeof positives);
	memcpy(neg, below, sizeof below);
}

static void weighted_auroc(const struct ranking *k, const lanes *weight, double auroc[LANES])
{
	uint64_t u[LANES], high[LANES];
	uint32_t pos[LANES], neg[LANES];

	weighted_u(k->low, k->n, weight, u, pos, neg);
	memcpy(high, u, sizeof u);
	if (k->ties)
		weighted_u(k->high, k->n, weight, high, pos, neg);
	for (int l = 0; l < LANES; l++)
		auroc[l] = pos[l] && neg[l] ? 0.5 * ((double)u[l] + (double)high[l]) / ((double)pos[l] * (double)neg[l]) : NAN;
}

size_t auroc_patients(const struct auroc_table *t, int c)
{
	return t->positive_patients[c] < t->negative_patients[c] ? t->positive_patients[c] : t->negative_patients[c];
}

double auroc_mean(const struct auroc_table *t, const double *replicate)
{
	double sum = 0;

	for (int c = 0; c < t->classes; c++)
		if (!isnan(t->class[c].value))
			sum += replicate[c];
	return t->counted ? sum / t->counted : NAN;
}

/* What to believe of a class of which resamples say t->class[c]. effective: patients without and with. Returns whether it is more than
 * they say. */
static int judge_class(struct auroc_table *t, int c, const double effective[2])
{
	struct interval *r = &t->class[c];
	int few = !isnan(r->value) && (r->se == 0 || !resamples_tell(r->value, fmin(effective[0], effective[1])));

	if (few) {
		const double se = r->se;

		interval_of_few(r, effective[1], effective[0]);
		interval_no_narrower(r, se);
	}
	t->rough[c] = *r;
	if (auroc_patients(t, c) < LEAST_POSITIVES)
		r->low = r->high = r->se = NAN;
	return few;
}

/* Percentiles of fewer than 40 are hardly more than the smallest and the largest. */
static int enough_left(int resamples, int left_out)
{
	return left_out < 0.9 * resamples && resamples - left_out >= 40;
}

static void summarise(const struct resampling *r, const double *replicates, int resamples, double *column, struct auroc_table *t)
{
	const struct scores *s = r->s;
	double values[32], se[32];
	int few[32] = { 0 }, without = 0;

	t->counted = 0;
	for (int c = 0; c < s->classes; c++) {
		values[c] = t->class[c].value;
		t->counted += !isnan(values[c]);
		for (int b = 0; b < resamples; b++)
			column[b] = replicates[(size_t)b * (size_t)s->classes + (size_t)c];
		interval_set(&t->class[c], column, (size_t)resamples);
		se[c] = t->class[c].se;
		if (resamples)
			few[c] = judge_class(t, c, r->ranking[c].effective);
		without += !isnan(values[c]) && isnan(t->class[c].low);
	}
	t->mean.value = auroc_mean(t, values);
	for (int b = 0; b < resamples; b++) {
		column[b] = auroc_mean(t, replicates + (size_t)b * (size_t)s->classes);
		t->left_out += t->counted && isnan(column[b]);
	}
	t->mostly_few = resamples && 2 * without > t->counted;
	interval_set(&t->mean, column, enough_left(resamples, t->left_out) && !t->mostly_few ? (size_t)resamples : 0);
	for (int c = 0; c < s->classes && !isnan(t->mean.low); c++)
		if (t->counted == 1 && !isnan(values[c])) /* one alone is the mean, and as sure */
			t->mean = t->class[c];
		else if (few[c])
			interval_add(&t->mean, &t->rough[c], se[c], t->counted);
}

static int resample_all(const struct resampling *r, int resamples, uint64_t seed, double *replicates)
{
	int classes = r->s->classes, failed = 0;

#pragma omp parallel reduction(| : failed)
	{
		uint16_t *one = malloc((r->patients + 1) * sizeof *one);
		lanes *weight = calloc(r->patients + 1, sizeof *weight);

		failed |= !one || !weight;
#pragma omp for schedule(static)
		for (int b = 0; b < resamples; b += LANES) {
			int n = resamples - b < LANES ? resamples - b : LANES;
			double auroc[LANES];

			if (!one || !weight)
				continue;
			for (int l = 0; l < n; l++) {
				patients_draw(one, r->patients, seed, b + l);
				for (size_t p = 0; p < r->patients; p++)
					weight[p][l] = one[p];
			}
			for (int c = 0; c < classes; c++) {
				weighted_auroc(&r->ranking[c], (const lanes *)weight, auroc);
				for (int l = 0; l < n; l++)
					replicates[(size_t)(b + l) * (size_t)classes + (size_t)c] = auroc[l];
			}
		}
		free(one);
		free(weight);
	}
	return failed ? -1 : 0;
}

/* Who has a positive (side 1) or a negative of a class. images: [patients], overwritten */
static size_t count_patients(struct ranking *k, uint32_t side, uint32_t *images, size_t patients)
{
	size_t n = 0;

	memset(images, 0, patients * sizeof *images);
	for (size_t i = 0; i < k->n; i++)
		if ((k->low[i] & 1) == side)
			n += images[k->low[i] >> 1]++ == 0;
	k->effective[side] = patients_effective(images, patients);
	return n;
}

/* The point estimate is the resample in which everybody is drawn once. */
static int estimate(struct resampling *r, struct auroc_table *t)
{
	lanes *once = malloc((r->patients + 1) * sizeof *once);
	double auroc[LANES];
	uint32_t *images = malloc((r->patients + 1) * sizeof *images);

	if (!once || !images) {
		free(once);
		free(images);
		return -1;
	}
	for (size_t i = 0; i < r->patients; i++)
		for (int l = 0; l < LANES; l++)
			once[i][l] = 1;
	for (int c = 0; c < t->classes; c++) {
		struct ranking *k = &r->ranking[c];

		for (size_t i = 0; i < k->n; i++)
			t->positives[c] += k->low[i] & 1;
		t->negatives[c] = k->n - t->positives[c];
		t->positive_patients[c] = count_patients(k, 1, images, r->patients);
		t->negative_patients[c] = count_patients(k, 0, images, r->patients);
		t->effective[c] = fmin(k->effective[0], k->effective[1]);
		weighted_auroc(k, (const lanes *)once, auroc);
		t->class[c].value = auroc[0];
	}
	free(once);
	free(images);
	return 0;
}

int auroc_bootstrap(const struct scores *s, int resamples, uint64_t seed, struct auroc_table *table, double *replicates)
{
	struct resampling r = { .s = s };
	double *own = replicates ? NULL : malloc(((size_t)resamples * (size_t)s->classes + 1) * sizeof *own);
	double *column = malloc(((size_t)resamples + 1) * sizeof *column);
	double *all = replicates ? replicates : own;
	int rc = -1;

	r.patient = malloc((s->n + 1) * sizeof *r.patient);
	if (all && column && r.patient) {
		long patients = patients_number(s->patient, s->n, r.patient);

		r.patients = patients < 0 ? 0 : (size_t)patients;
		rc = patients < 0 ? -1 : 0;
	}
	*table = (struct auroc_table){ .classes = s->classes, .patients = r.patients };
	for (int c = 0; rc == 0 && c < s->classes; c++)
		rc = rank_class(&r, c);
	if (rc == 0)
		rc = estimate(&r, table);
	if (rc == 0)
		rc = resample_all(&r, resamples, seed, all);
	if (rc == 0)
		summarise(&r, all, resamples, column, table);
	for (int c = 0; c < s->classes; c++) {
		free(r.ranking[c].low);
		free(r.ranking[c].high);
	}
	free(r.patient);
	free(column);
	free(own);
	return rc;
}
