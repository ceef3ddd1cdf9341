/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/ranking.h"
#include "learn/log.h"

/* ---- DeLong ----------------------------------------------------------------------------------------- */

/* Structural components: of a positive the share of negatives that score lower, of a negative the share of positives that
 * score higher, ties counting one half. placement: [n] in image order. e: room for n. */
static void placements(const float *score, const uint8_t *positive, size_t n, struct scored *e, double *placement)
{
	size_t all[2] = { 0, 0 }, below[2] = { 0, 0 };

	for (size_t i = 0; i < n; i++) {
		e[i] = (struct scored){ score[i], (uint32_t)i };
		all[positive[i] != 0]++;
	}
	scored_sort(e, n);
	for (size_t begin = 0, end; begin < n; begin = end) {
		size_t tied[2] = { 0, 0 };

		for (end = begin; end < n && e[end].score == e[begin].score; end++)
			tied[positive[e[end].image] != 0]++;
		for (size_t i = begin; i < end; i++)
			placement[e[i].image] = positive[e[i].image] ?
							((double)below[0] + 0.5 * (double)tied[0]) / (double)all[0] :
							((double)(all[1] - below[1] - tied[1]) + 0.5 * (double)tied[1]) / (double)all[1];
		below[0] += tied[0];
		below[1] += tied[1];
	}
}

/* Mean and variance of that mean of b - a over one side. */
static void moments(const double *a, const double *b, const uint8_t *positive, size_t n, int side, double *mean, double *variance)
{
	double sum = 0, square = 0, k = 0;

	for (size_t i = 0; i < n; i++)
		if ((positive[i] != 0) == side) {
			sum += b[i] - a[i];
			k++;
		}
	*mean = sum / k;
	for (size_t i = 0; i < n; i++)
		if ((positive[i] != 0) == side)
			square += (b[i] - a[i] - *mean) * (b[i] - a[i] - *mean);
	*variance = square / (k - 1) / k;
}

struct interval delong_difference(const float *a, const float *b, const uint8_t *positive, size_t n, double *p)
{
	struct interval r = { NAN, NAN, NAN, NAN, METHOD_NONE };
	struct scored *e = malloc((n + 1) * sizeof *e);
	double *va = malloc((n + 1) * sizeof *va), *vb = malloc((n + 1) * sizeof *vb);
	size_t positives = 0;

	for (size_t i = 0; i < n; i++)
		positives += positive[i] != 0;
	*p = NAN;
	if (e && va && vb && positives > 1 && n - positives > 1) {
		double mean[2], variance[2];

		placements(a, positive, n, e, va);
		placements(b, positive, n, e, vb);
		moments(va, vb, positive, n, 0, &mean[0], &variance[0]);
		moments(va, vb, positive, n, 1, &mean[1], &variance[1]);
		r.value = mean[1];
		r.se = sqrt(variance[0] + variance[1]);
		*p = r.se > 0 ? erfc(fabs(r.value) / r.se / sqrt(2)) : r.value == 0 ? 1 : 0;
	}
	free(e);
	free(va);
	free(vb);
	return r;
}

/* ---- the shared images ------------------------------------------------------------------------------ */

struct pairing {
	size_t n;
	float *a, *b;                       /* [n][FINDINGS] */
	uint32_t *labels, *known, *patient; /* [n] */
	int has_patients;
};

static void pairing_free(struct pairing *s)
{
	free(s->a);
	free(s->b);
	free(s->labels);
	free(s->known);
	free(s->patient);
}

static int make_pairing(struct pairing *s, const struct predictions *a, const struct predictions *b, const size_t *row)
{
	size_t room = a->n + 1;

	*s = (struct pairing){
		.a = malloc(room * FINDINGS * sizeof *s->a), .b = malloc(room * FINDINGS * sizeof *s->b),
		.labels = malloc(room * sizeof *s->labels), .known = malloc(room * sizeof *s->known),
		.patient = malloc(room * sizeof *s->patient), .has_patients = a->has_patients || b->has_patients,
	};
	if (!s->a || !s->b || !s->labels || !s->known || !s->patient)
		return -1;
	for (size_t i = 0; i < a->n; i++) {
		if (row[i] == PREDICTIONS_NONE)
			continue;
		const struct sample *x = &a->samples[i], *y = &b->samples[row[i]];

		memcpy(s->a + s->n * FINDINGS, a->logits + i * FINDINGS, FINDINGS * sizeof *s->a);
		memcpy(s->b + s->n * FINDINGS, b->logits + row[i] * FINDINGS, FINDINGS * sizeof *s->b);
		s->labels[s->n] = x->labels;
		s->known[s->n] = x->known & y->known;
		s->patient[s->n++] = a->has_patients ? x->patient : y->patient;
	}
	return 0;
}

/* ---- paired resamples ------------------------------------------------------------------------------- */

/* Two-sided: how rarely a resample falls on the other side of no difference. Overwrites d. */
static void judge(struct paired *p, double *d, int resamples)
{
	int below = 0, above = 0, k = 0;

	for (int i = 0; i < resamples; i++) {
		below += d[i] <= 0;
		above += d[i] >= 0;
		k += !isnan(d[i]);
	}
	p->difference.value = p->b - p->a;
	p->p = k ? fmin(1, 2.0 * ((below < above ? below : above) + 1) / (k + 1)) : NAN;
	p->p_bound = k && (!below || !above);
	interval_set(&p->difference, d, (size_t)resamples);
	if (!isnan(p->difference.low)) { /* what is spread may leave what a difference can be */
		p->difference.low = fmax(p->difference.low, -1);
		p->difference.high = fmin(p->difference.high, 1);
	}
}

/* Column f of the differences of every resample; FINDINGS: of the mean, over the findings that t counts. */
static void differences(const double *difference, int resamples, int f, const struct auroc_table *t, double *d)
{
	for (int i = 0; i < resamples; i++) {
		const double *row = difference + (size_t)i * FINDINGS;

		d[i] = f < FINDINGS ? row[f] : isnan(t->mean.low) ? NAN : auroc_mean(t, row);
	}
}

static double deviation(const double *d, int n, double *mean)
{
	double sum = 0, square = 0;
	int k = 0;

	for (int i = 0; i < n; i++)
		if (!isnan(d[i])) {
			sum += d[i];
			k++;
		}
	*mean = sum / k;
	for (int i = 0; i < n; i++)
		if (!isnan(d[i]))
			square += (d[i] - *mean) * (d[i] - *mean);
	return k > 1 ? sqrt(square / (k - 1)) : NAN;
}

/* What lies about `centre` lies about `value` then, so many times as far away. */
static void spread(double *d, int n, double centre, double value, double by)
{
	for (int i = 0; i < n; i++)
		d[i] = value + by * (d[i] - centre);
}

static int same_scores(const struct pairing *s, int f)
{
	for (size_t i = 0; i < s->n; i++)
		if ((s->known[i] >> f & 1) && s->a[i * FINDINGS + (size_t)f] != s->b[i * FINDINGS + (size_t)f])
			return 0;
	return 1;
}

struct both {
	struct auroc_table a, b;
};

static size_t least_patients(const struct paired *p)
{
	return p->positive_patients < p->negative_patients ? p->positive_patients : p->negative_patients;
}

/* Spreads a finding's differences as its patients ask for. Returns 0, or the variance that its resamples say nothing of: as large as if
 * both models erred on different patients. */
static double judge_finding(struct paired *p, const struct both *t, int f, int same, double *difference, int resamples, double *d)
{
	const double a = t->a.rough[f].se, b = t->b.rough[f].se;

	*p = (struct paired){ .positives = t->a.positives[f], .negatives = t->a.negatives[f], .positive_patients = t->a.positive_patients[f],
			      .negative_patients = t->a.negative_patients[f], .a = t->a.class[f].value, .b = t->b.class[f].value };
	const size_t least = least_patients(p);
	double mean;

	differences(difference, resamples, f, &t->a, d);
	int tells = same || (least >= LEAST_POSITIVES && deviation(d, resamples, &mean) > 0);

	if (tells) {
		spread(d, resamples, p->b - p->a, p->b - p->a, least >= LEAST_POSITIVES ? few_spread(least) : 1);
		for (int i = 0; i < resamples; i++)
			difference[(size_t)i * FINDINGS + (size_t)f] = d[i];
	}
	judge(p, d, tells && least >= LEAST_POSITIVES ? resamples : 0);
	return tells || isnan(p->a) ? 0 : a * a + b * b;
}

/* unknown: variance of the sum over the findings that resamples say nothing of */
static void judge_mean(struct paired *p, const struct both *t, double unknown, const double *difference, int resamples, double *d)
{
	*p = (struct paired){ .a = t->a.mean.value, .b = t->b.mean.value };
	differences(difference, resamples, FINDINGS, &t->a, d);
	double mean, se = deviation(d, resamples, &mean), more = unknown / ((double)t->a.counted * t->a.counted);

	if (more > 0 && se > 0) /* about their mean: resamples that have all of a few patients are not centred on the estimate */
		spread(d, resamples, mean, p->b - p->a, sqrt(1 + more / (se * se)));
	judge(p, d, more > 0 && !(se > 0) ? 0 : resamples);
}

static int resample(struct comparison *c, const struct pairing *s, int resamples, uint64_t seed)
{
	struct scores scores = { s->n, FINDINGS, s->a, s->labels, s->known, s->has_patients ? s->patient : NULL };
	size_t room = (size_t)resamples * FINDINGS + 1;
	double *a = malloc(room * sizeof *a), *b = malloc(room * sizeof *b), *d = malloc(((size_t)resamples + 1) * sizeof *d), unknown = 0;
	struct both t;
	int rc = a && b && d && auroc_bootstrap(&scores, resamples, seed, &t.a, a) == 0 ? 0 : -1;

	scores.logits = s->b;
	if (rc == 0)
		rc = auroc_bootstrap(&scores, resamples, seed, &t.b, b);
	if (rc == 0) {
		for (size_t i = 0; i < room - 1; i++)
			b[i] -= a[i];
		for (int f = 0; f < FINDINGS; f++)
			unknown += judge_finding(&c->finding[f], &t, f, same_scores(s, f), b, resamples, d);
		judge_mean(&c->mean, &t, unknown, b, resamples, d);
		c->patients = t.a.patients;
		c->named = s->has_patients;
		c->counted = t.a.counted;
		c->left_out = t.a.left_out;
	}
	free(a);
	free(b);
	free(d);
	return rc;
}

static int add_delong(struct comparison *c, const struct pairing *s)
{
	float *a = malloc((s->n + 1) * sizeof *a), *b = malloc((s->n + 1) * sizeof *b);
	uint8_t *positive = malloc(s->n + 1);
	int rc = a && b && positive ? 0 : -1;

	for (int f = 0; rc == 0 && f < FINDINGS; f++) {
		size_t n = 0;

		for (size_t i = 0; i < s->n; i++)
			if (s->known[i] >> f & 1) {
				a[n] = s->a[i * FINDINGS + (size_t)f];
				b[n] = s->b[i * FINDINGS + (size_t)f];
				positive[n++] = s->labels[i] >> f & 1;
			}
		delong_difference(a, b, positive, n, &c->finding[f].p_delong);
		if (isnan(c->finding[f].p))
			c->finding[f].p_delong = NAN;
	}
	free(a);
	free(b);
	free(positive);
	return rc;
}

/* Holm: the k-th smallest of m p-values times m - k + 1, never below the one before it. */
static void correct(struct comparison *c)
{
	int done[FINDINGS] = { 0 }, left = 0, bound = 0;
	double floor_p = 0;

	for (int f = 0; f < FINDINGS; f++) {
		c->finding[f].p_holm = NAN;
		left += !isnan(c->finding[f].p);
	}
	for (c->tested = left; left > 0; left--) {
		int smallest = -1;

		for (int f = 0; f < FINDINGS; f++)
			if (!done[f] && !isnan(c->finding[f].p) && (smallest < 0 || c->finding[f].p < c->finding[smallest].p))
				smallest = f;
		if (left * c->finding[smallest].p >= floor_p)
			bound = c->finding[smallest].p_bound;
		floor_p = fmax(floor_p, fmin(1, left * c->finding[smallest].p));
		c->finding[smallest].p_holm = floor_p;
		c->finding[smallest].p_holm_bound = bound && floor_p < 1;
		done[smallest] = 1;
	}
	c->mean.p_holm = c->mean.p;
	c->mean.p_holm_bound = c->mean.p_bound;
	c->mean.p_delong = NAN;
}

int comparison_can_show(const struct comparison *c)
{
	return c->tested * c->p_floor <= 0.05;
}

const char *p_text(double p, int bound, char text[16])
{
	if (isnan(p))
		*text = '\0';
	else if (p < 0.0005)
		snprintf(text, 16, "<0.001");
	else
		snprintf(text, 16, "%s%.3f", bound ? "<=" : "", p);
	return text;
}

int compare_predictions(struct comparison *c, const struct predictions *a, const struct predictions *b, const char *a_path,
			const char *b_path, int resamples, uint64_t seed, struct error *e)
{
	size_t *row = malloc((a->n + 1) * sizeof *row);
	struct pairing s = { 0 };

	*c = (struct comparison){ 0 };
	if (!row)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", a->n);
	long shared = predictions_match(a, b, a_path, b_path, row, e);
	if (shared == 0)
		fail(e, EXIT_DATA, "%s and %s have no image in common", a_path, b_path);
	if (shared > 0) {
		c->n = (size_t)shared;
		c->p_floor = 2.0 / (resamples + 1);
		c->only_a = a->n - c->n;
		c->only_b = b->n - c->n;
		if (make_pairing(&s, a, b, row) || resample(c, &s, resamples, seed) || add_delong(c, &s))
			fail(e, EXIT_INTERNAL, "no memory for %d resamples of %ld images", resamples, shared);
		correct(c);
	}
	pairing_free(&s);
	free(row);
	return e->code ? -e->code : 0;
}

/* ---- for programs ----------------------------------------------------------------------------------- */

static cJSON *paired_json(const struct comparison *c, const struct paired *p)
{
	cJSON *o = cJSON_CreateObject();
	const int finding = p != &c->mean; /* of which nothing is counted */

	json_number(o, "positives", finding ? (double)p->positives : NAN);
	json_number(o, "positive_patients", finding && c->named ? (double)p->positive_patients : NAN);
	json_number(o, "negatives", finding ? (double)p->negatives : NAN);
	json_number(o, "a", p->a);
	json_number(o, "b", p->b);
	json_number(o, "difference", p->difference.value);
	json_number(o, "low", p->difference.low);
	json_number(o, "high", p->difference.high);
	json_number(o, "se", p->difference.se);
	json_number(o, "p", p->p);
	json_number(o, "p_holm", p->p_holm);
	cJSON_AddBoolToObject(o, "p_is_bound", p->p_bound);
	cJSON_AddBoolToObject(o, "holm_is_bound", p->p_holm_bound);
	json_number(o, "p_delong", p->p_delong);
	return o;
}

void comparison_json(const struct comparison *c, cJSON *object)
{
	json_number(object, "images", (double)c->n);
	json_number(object, "patients", c->named ? (double)c->patients : NAN);
	json_number(object, "only_a", (double)c->only_a);
	json_number(object, "only_b", (double)c->only_b);
	json_number(object, "counted", c->counted);
	json_number(object, "tested", c->tested);
	json_number(object, "p_floor", c->p_floor);
	json_number(object, "mean_resamples_left_out", c->left_out);
	cJSON_AddItemToObject(object, "mean", paired_json(c, &c->mean));
	cJSON *findings = cJSON_AddObjectToObject(object, "findings");

	for (int f = 0; f < FINDINGS; f++)
		cJSON_AddItemToObject(findings, finding_names[f], paired_json(c, &c->finding[f]));
}
