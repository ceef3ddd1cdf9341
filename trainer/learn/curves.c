/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/curves.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	float score;
	uint32_t patient;
	uint8_t positive;
	uint8_t last; /* of the entries with this score */
};

static int from_the_top(const void *a, const void *b)
{
	float x = ((const struct entry *)a)->score, y = ((const struct entry *)b)->score;

	return (x < y) - (x > y);
}

static void sort_entries(struct entry *e, size_t n)
{
	qsort(e, n, sizeof *e, from_the_top);
	for (size_t i = 0; i < n; i++)
		e[i].last = i + 1 == n || e[i + 1].score != e[i].score;
}

/* What one resample says. */
struct reading {
	double average_precision;
	struct operating_point at[AIMS];
	double roc[CURVE_GRID], pr[CURVE_GRID]; /* y at x = i / (CURVE_GRID - 1); NAN where it is not defined */
};

/* cut: the threshold and what is below it. flagged, all: negatives, positives */
static struct operating_point operate(const double cut[2], const uint64_t flagged[2], const uint64_t all[2])
{
	const double fp = (double)flagged[0], tp = (double)flagged[1], tn = (double)(all[0] - flagged[0]), fn = (double)(all[1] - flagged[1]);

	return (struct operating_point){
		.threshold = cut[0], .below = cut[1], .sensitivity = value_only(tp / (tp + fn)), .specificity = value_only(tn / (tn + fp)),
		.ppv = value_only(tp + fp > 0 ? tp / (tp + fp) : NAN), .npv = value_only(tn + fn > 0 ? tn / (tn + fn) : NAN),
		.flagged = { flagged[0], flagged[1] }, .passed = { all[0] - flagged[0], all[1] - flagged[1] },
	};
}

/* Walks down the scores once. weight: [patients], NULL: everybody once. True positive rates are interpolated linearly between
 * the points, the upper end where the curve rises upright; precision is that of the first point whose recall reaches the abscissa. */
static void read_curves(const struct entry *e, size_t n, const uint16_t *weight, struct reading *r)
{
	uint64_t all[2] = { 0, 0 }, now[2] = { 0, 0 }, from[2] = { 0, 0 }; /* negatives, positives */
	uint64_t roc = 0, pr = 0, least = 0, flagged[AIMS][2] = { { 0 } }; /* least: positives that a sensitivity asks for */
	double sum = 0, cut[AIMS][2] = { { INFINITY, INFINITY }, { INFINITY, INFINITY } };

	for (size_t i = 0; i < n; i++)
		all[e[i].positive] += weight ? weight[e[i].patient] : 1;
	least = (all[1] * AIM_PERCENT + 99) / 100;
	for (int i = 0; i < CURVE_GRID; i++)
		r->roc[i] = r->pr[i] = NAN;
	for (size_t i = 0; i < n; i++) {
		now[e[i].positive] += weight ? weight[e[i].patient] : 1;
		if (!e[i].last)
			continue;
		if (now[1] > from[1]) {
			double precision = (double)now[1] / (double)(now[0] + now[1]);

			sum += (double)(now[1] - from[1]) * precision;
			for (; pr * all[1] <= now[1] * (CURVE_GRID - 1); pr++)
				r->pr[pr] = precision;
		}
		for (; roc * all[0] < now[0] * (CURVE_GRID - 1); roc++) {
			double along = ((double)(roc * all[0]) / (CURVE_GRID - 1) - (double)from[0]) / (double)(now[0] - from[0]);

			r->roc[roc] = ((double)from[1] + along * (double)(now[1] - from[1])) / (double)all[1];
		}
		for (int aim = 0; aim < AIMS; aim++)
			if (aim == AIM_SPECIFICITY ? now[0] * 100 <= all[0] * (100 - AIM_PERCENT) : from[1] < least) {
				cut[aim][0] = e[i].score;
				cut[aim][1] = i + 1 < n ? e[i + 1].score : -INFINITY;
				memcpy(flagged[aim], now, sizeof now);
			}
		from[0] = now[0];
		from[1] = now[1];
	}
	for (; all[0] && roc < CURVE_GRID; roc++)
		r->roc[roc] = 1;
	for (int aim = 0; aim < AIMS; aim++)
		r->at[aim] = operate(cut[aim], flagged[aim], all);
	r->average_precision = all[1] ? sum / (double)all[1] : NAN;
}

double average_precision(const float *score, const uint8_t *positive, size_t n)
{
	struct entry *e = malloc((n + 1) * sizeof *e);

	if (!e)
		return NAN;
	for (size_t i = 0; i < n; i++)
		e[i] = (struct entry){ .score = score[i], .positive = positive[i] != 0 };
	sort_entries(e, n);
	struct reading r;

	read_curves(e, n, NULL, &r);
	free(e);
	return r.average_precision;
}

/* ---- points and bands ------------------------------------------------------------------------------- */

/* A point a distinct score; of points on one upright or level stretch of the ROC curve only the ends are kept. */
static int set_points(const struct entry *e, size_t n, struct curves *out)
{
	double tp = 0, fp = 0;
	size_t roc = 1, pr = 0;

	out->roc.points = malloc((n + 2) * sizeof *out->roc.points);
	out->pr.points = malloc((n + 1) * sizeof *out->pr.points);
	if (!out->roc.points || !out->pr.points)
		return -1;
	out->roc.points[0] = (struct point){ 0, 0 };
	for (size_t i = 0; i < n; i++) {
		*(e[i].positive ? &tp : &fp) += 1;
		if (!e[i].last)
			continue;
		struct point p = { fp / (double)out->negatives, tp / (double)out->positives }, *last = &out->roc.points[roc - 1];

		if (roc > 1 && ((last[-1].x == last->x && last->x == p.x) || (last[-1].y == last->y && last->y == p.y)))
			*last = p;
		else
			out->roc.points[roc++] = p;
		if (tp > 0 && (pr == 0 || out->pr.points[pr - 1].x < 1))
			out->pr.points[pr++] = (struct point){ p.y, tp / (tp + fp) };
	}
	out->roc.n = roc;
	out->pr.n = pr;
	return 0;
}

enum { SINGLE = 1 + AIMS, COLUMNS = SINGLE + 2 * CURVE_GRID };

/* What a threshold that aims at one leaves of the other. */
static struct interval *left_of(struct operating_point *at, int aim)
{
	return aim == AIM_SPECIFICITY ? &at[aim].sensitivity : &at[aim].specificity;
}

/* Column k of all readings. */
static double value_of(struct reading *r, int k)
{
	if (k < SINGLE)
		return k == 0 ? r->average_precision : left_of(r->at, k - 1)->value;
	return k < SINGLE + CURVE_GRID ? r->roc[k - SINGLE] : r->pr[k - SINGLE - CURVE_GRID];
}

static void set_values(struct curves *out, const struct reading *r)
{
	out->average_precision.value = r->average_precision;
	for (int aim = 0; aim < AIMS; aim++)
		out->at[aim] = r->at[aim];
	memcpy(out->roc.value, r->roc, sizeof r->roc);
	memcpy(out->pr.value, r->pr, sizeof r->pr);
}

static void set_bands(struct curves *out, struct reading *readings, int resamples, double *column)
{
	for (int k = 0; k < COLUMNS; k++) {
		struct interval r = { .value = 0 };

		for (int b = 0; b < resamples; b++)
			column[b] = value_of(&readings[b], k);
		if (k < SINGLE) {
			interval_set(k == 0 ? &out->average_precision : left_of(out->at, k - 1), column, (size_t)resamples);
			continue;
		}
		struct curve *c = k < SINGLE + CURVE_GRID ? &out->roc : &out->pr;
		int at = (k - SINGLE) % CURVE_GRID;

		interval_set(&r, column, (size_t)resamples);
		c->low[at] = r.low;
		c->high[at] = r.high;
	}
}

static int resample(const struct entry *e, size_t n, size_t patients, int resamples, uint64_t seed, struct reading *readings)
{
	int failed = 0;

#pragma omp parallel reduction(| : failed)
	{
		uint16_t *weight = malloc((patients + 1) * sizeof *weight);

		failed |= !weight;
#pragma omp for schedule(static)
		for (int b = 0; b < resamples; b++) {
			if (!weight)
				continue;
			patients_draw(weight, patients, seed, b);
			read_curves(e, n, weight, &readings[b]);
		}
		free(weight);
	}
	return failed ? -1 : 0;
}

static int add_bands(const struct entry *e, size_t n, size_t patients, int resamples, uint64_t seed, struct curves *out)
{
	struct reading *readings = malloc(((size_t)resamples + 1) * sizeof *readings);
	double *column = malloc(((size_t)resamples + 1) * sizeof *column);
	int rc = readings && column ? resample(e, n, patients, resamples, seed, readings) : -1;

	if (rc == 0)
		set_bands(out, readings, resamples, column);
	free(readings);
	free(column);
	return rc;
}

static struct operating_point no_point(void)
{
	return (struct operating_point){ .threshold = NAN, .below = NAN, .sensitivity = value_only(NAN), .specificity = value_only(NAN), .ppv = value_only(NAN), .npv = value_only(NAN) };
}

int curves_of(const struct scores *s, int c, int resamples, uint64_t seed, struct curves *out)
{
	struct entry *e = malloc((s->n + 1) * sizeof *e);
	uint32_t *number = malloc((s->n + 1) * sizeof *number);
	long patients = e && number ? patients_number(s->patient, s->n, number) : -1;
	size_t n = 0;
	int rc = patients < 0 ? -1 : 0;

	*out = (struct curves){ .average_precision = value_only(NAN) };
	for (int aim = 0; aim < AIMS; aim++)
		out->at[aim] = no_point();
	for (size_t i = 0; rc == 0 && i < s->n; i++) {
		int positive = s->labels[i] >> c & 1;

		if (s->known && !(s->known[i] >> c & 1))
			continue;
		e[n++] = (struct entry){ s->logits[i * (size_t)s->classes + (size_t)c], number[i], (uint8_t)positive, 0 };
		out->positives += positive != 0;
	}
	out->negatives = n - out->positives;
	if (rc == 0 && out->positives && out->negatives) {
		sort_entries(e, n);
		struct reading r;

		read_curves(e, n, NULL, &r);
		set_values(out, &r);
		rc = set_points(e, n, out);
		if (rc == 0)
			rc = add_bands(e, n, (size_t)patients, resamples, seed, out);
	}
	free(e);
	free(number);
	return rc;
}

/* Where resamples do not tell, as where all positives that are there are above a threshold, and a band would have no width. A ROC curve ends at (1, 1)
 * whatever it is of, and small precisions go by the many that are flagged. */
static void widen_band(struct curve *c, double patients, int of_precision)
{
	for (int i = 0; i < CURVE_GRID - !of_precision; i++) {
		struct interval share = { .value = c->value[i] };

		if (isnan(c->low[i]) || resamples_tell(of_precision ? fmax(share.value, 0.5) : share.value, patients))
			continue;
		interval_of_share(&share, patients);
		c->low[i] = fmin(c->low[i], share.low);
		c->high[i] = fmax(c->high[i], share.high);
	}
}

/* A ranking that is perfect in every resample says nothing of the next patient either. */
void curves_judge(struct curves *curves, const struct auroc_table *t, int c)
{
	if (isnan(t->class[c].low) || curves->average_precision.se == 0) {
		curves->average_precision = value_only(curves->average_precision.value);
		for (int i = 0; i < CURVE_GRID; i++)
			curves->roc.low[i] = curves->roc.high[i] = curves->pr.low[i] = curves->pr.high[i] = NAN;
	} else if (!isnan(curves->average_precision.low)) {
		interval_of_precision(&curves->average_precision, t->effective[c], &t->class[c]);
		widen_band(&curves->roc, t->effective[c], 0);
		widen_band(&curves->pr, t->effective[c], 1);
	}
	for (int aim = 0; aim < AIMS; aim++) {
		struct interval *left = left_of(curves->at, aim);

		if (auroc_patients(t, c) < AIM_LEAST)
			curves->at[aim] = no_point();
		else if (!isnan(left->low) && !resamples_tell(left->value, t->effective[c]))
			interval_of_share(left, t->effective[c]);
	}
}

/* Cuts digits off. */
static double rounded_down(double p, int digits)
{
	char text[40];

	snprintf(text, sizeof text, "%.20e", p);
	char *exponent = strchr(text, 'e');

	memmove(text + digits + 1, exponent, strlen(exponent) + 1); /* behind the digits and their point */
	return strtod(text, NULL);
}

double operating_probability(const struct operating_point *at, int *digits)
{
	const double p = 1 / (1 + exp(-at->threshold)), below = 1 / (1 + exp(-at->below));

	if (isinf(at->threshold) || !(p > below))
		return NAN;
	for (*digits = 3; *digits < 17; ++*digits)
		if (rounded_down(p, *digits) > below)
			return rounded_down(p, *digits);
	return p;
}

/* ---- thresholds that other patients chose ------------------------------------------------------------ */

struct tally {
	uint32_t *all[2], *flagged[2]; /* [patients] their negative and positive images, and the flagged ones of those */
};

static int count_images(struct tally *t, const struct scores *s, int c, const uint32_t *number, double threshold)
{
	for (int k = 0; k < 2; k++) { /* no more patients than images */
		t->all[k] = calloc(s->n + 1, sizeof *t->all[k]);
		t->flagged[k] = calloc(s->n + 1, sizeof *t->flagged[k]);
		if (!t->all[k] || !t->flagged[k])
			return -1;
	}
	for (size_t i = 0; i < s->n; i++) {
		const int positive = s->labels[i] >> c & 1;

		if (s->known && !(s->known[i] >> c & 1))
			continue;
		t->all[positive][number[i]]++;
		t->flagged[positive][number[i]] += 1 / (1 + exp(-(double)s->logits[i * (size_t)s->classes + (size_t)c])) >= threshold;
	}
	return 0;
}

/* weight: [patients], NULL: everybody once */
static struct operating_point point_of(const struct operating_point *chosen, const struct tally *t, size_t patients, const uint16_t *weight)
{
	uint64_t all[2] = { 0, 0 }, flagged[2] = { 0, 0 };

	for (int k = 0; k < 2; k++)
		for (size_t p = 0; p < patients; p++) {
			all[k] += (uint64_t)t->all[k][p] * (weight ? weight[p] : 1);
			flagged[k] += (uint64_t)t->flagged[k][p] * (weight ? weight[p] : 1);
		}
	return operate((const double[]){ chosen->threshold, chosen->below }, flagged, all);
}

enum { SHARES = 4 };

static struct interval *share_of(struct operating_point *at, int k)
{
	struct interval *const all[SHARES] = { &at->sensitivity, &at->specificity, &at->ppv, &at->npv };

	return all[k];
}

/* Images of each patient of which share k is one: that show it, that do not, that are flagged, and that are not. */
static void count_of_share(const struct tally *t, int k, size_t patients, uint32_t *images)
{
	for (size_t p = 0; p < patients; p++) {
		const uint32_t flagged = t->flagged[0][p] + t->flagged[1][p];

		images[p] = k < 2 ? t->all[!k][p] : k == 2 ? flagged : t->all[0][p] + t->all[1][p] - flagged;
	}
}

static int judge_tally(struct operating_point *at, const struct tally *t, size_t patients, int resamples, uint64_t seed)
{
	double *drawn = malloc((SHARES * (size_t)resamples + 1) * sizeof *drawn); /* [SHARES][resamples] */
	uint16_t *weight = malloc((patients + 1) * sizeof *weight);
	uint32_t *images = malloc((patients + 1) * sizeof *images);
	const int rc = drawn && weight && images ? 0 : -1;

	for (int b = 0; rc == 0 && b < resamples; b++) {
		patients_draw(weight, patients, seed, b);
		struct operating_point now = point_of(at, t, patients, weight);

		for (int k = 0; k < SHARES; k++)
			drawn[k * resamples + b] = share_of(&now, k)->value;
	}
	if (rc == 0) {
		*at = point_of(at, t, patients, NULL);
		for (int k = 0; k < SHARES; k++) {
			count_of_share(t, k, patients, images);
			interval_of_images(share_of(at, k), images, patients, drawn + k * resamples, (size_t)resamples);
		}
	}
	free(drawn);
	free(weight);
	free(images);
	return rc;
}

int operating_judge(struct operating_point *at, const struct scores *s, int c, int resamples, uint64_t seed)
{
	uint32_t *number = malloc((s->n + 1) * sizeof *number);
	struct tally t = { 0 };
	int digits, rc = number ? 0 : -1;
	double threshold = operating_probability(at, &digits);

	if (isnan(threshold)) {
		at->sensitivity = at->specificity = value_only(NAN);
		at->ppv = at->npv = value_only(NAN);
	} else if (rc == 0) {
		long patients = patients_number(s->patient, s->n, number);

		rc = patients < 0 || count_images(&t, s, c, number, threshold) ? -1 : judge_tally(at, &t, (size_t)patients, resamples, seed);
	}
	for (int k = 0; k < 2; k++) {
		free(t.all[k]);
		free(t.flagged[k]);
	}
	free(number);
	return rc;
}

void curves_free(struct curves *c)
{
	free(c->roc.points);
	free(c->pr.points);
	*c = (struct curves){ 0 };
}
