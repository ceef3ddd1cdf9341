/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/calibration_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/log.h"

/* Where one finding's known images are put together, and what patients move is added up. */
struct gathered {
	float *score;
	uint8_t *positive;
	uint32_t *number, *patient; /* of all images, and of the known ones */
	double *moves, *sum;        /* [patients] the finding's skill, and those of all that are judged */
	size_t patients;
};

static int gathered_open(struct gathered *g, const struct scores *s)
{
	g->score = malloc((s->n + 1) * sizeof *g->score);
	g->positive = malloc(s->n + 1);
	g->number = malloc((s->n + 1) * sizeof *g->number);
	g->patient = malloc((s->n + 1) * sizeof *g->patient);
	g->moves = calloc(s->n + 1, sizeof *g->moves);
	g->sum = calloc(s->n + 1, sizeof *g->sum);
	if (!g->score || !g->positive || !g->number || !g->patient || !g->moves || !g->sum)
		return -1;
	long patients = patients_number(s->patient, s->n, g->number);

	g->patients = patients < 0 ? 0 : (size_t)patients;
	return patients < 0 ? -1 : 0;
}

static void gathered_close(struct gathered *g)
{
	free(g->score);
	free(g->positive);
	free(g->number);
	free(g->patient);
	free(g->moves);
	free(g->sum);
}

static size_t gather(struct gathered *g, const struct scores *s, int f)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (s->known && !(s->known[i] >> f & 1))
			continue;
		g->score[n] = s->logits[i * (size_t)s->classes + (size_t)f];
		g->positive[n] = s->labels[i] >> f & 1;
		g->patient[n++] = g->number[i];
	}
	return n;
}

static void judge_finding(struct calibration_table *c, int f, struct gathered *g, size_t patients)
{
	struct calibration *k = &c->finding[f];
	const struct interval none = value_only(NAN);

	if (patients < FEW_POSITIVES) {
		*k = (struct calibration){ .n = k->n, .positives = k->positives, .ece = NAN, .ece_by_chance = NAN, .brier = value_only(k->brier.value), .skill = none,
					   .ratio = none, .level = none, .slope = none, .intercept = none };
		return;
	}
	c->judged++;
	for (size_t i = 0; i < g->patients; i++)
		g->sum[i] += g->moves[i];
}

/* A patient moves all the findings' skills at once. Each finding's own interval is wider than its error says: the mean's grows by that. */
static void set_mean(struct calibration_table *c, const struct gathered *g)
{
	double mean = 0, variance = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (!isnan(c->finding[f].skill.value))
			mean += c->finding[f].skill.value / c->judged;
	for (size_t i = 0; i < g->patients; i++)
		variance += g->sum[i] * g->sum[i] / c->judged / c->judged;
	c->skill = value_only(c->judged ? mean : NAN);
	c->skill.se = sqrt(variance);
	c->skill.low = mean - NORMAL_95 * c->skill.se;
	c->skill.high = mean + NORMAL_95 * c->skill.se;
	for (int f = 0; f < FINDINGS; f++) {
		const struct interval *own = &c->finding[f].skill;

		if (isnan(own->value))
			continue;
		if (c->judged == 1 || isnan(own->low)) { /* one alone is the mean; one that nobody knows how sure it is leaves the mean so */
			c->skill = *own;
			c->skill.value = mean;
			return;
		}
		interval_widen(&c->skill, own, own->se, c->judged);
	}
	if (!c->judged)
		c->skill = value_only(NAN);
}

int calibration_table_of(const struct scores *s, const struct auroc_table *t, struct calibration_table *c)
{
	struct gathered g = { 0 };
	int rc = gathered_open(&g, s);

	*c = (struct calibration_table){ .skill = value_only(NAN) };
	for (int f = 0; f < FINDINGS && rc == 0; f++) {
		memset(g.moves, 0, g.patients * sizeof *g.moves); /* of whom none is known, too */
		rc = calibration_of(g.score, g.positive, g.patient, gather(&g, s, f), &c->finding[f], g.moves);
		judge_finding(c, f, &g, auroc_patients(t, f));
	}
	if (rc == 0)
		set_mean(c, &g);
	gathered_close(&g);
	return rc;
}

void calibration_table_bare(struct calibration_table *c)
{
	c->skill = value_only(c->skill.value);
	for (int f = 0; f < FINDINGS; f++) {
		struct calibration *k = &c->finding[f];
		struct interval *const all[] = { &k->brier, &k->skill, &k->ratio, &k->level, &k->slope, &k->intercept };

		for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
			*all[i] = value_only(all[i]->value);
	}
}

/* ---- telling ----------------------------------------------------------------------------------------- */

/* width: of the interval */
static void print_measure(const struct interval *v, int sign, int digits, int width, FILE *out)
{
	char interval[48] = "";

	if (isnan(v->value))
		fprintf(out, "  %6s", "n/a");
	else
		fprintf(out, sign ? "  %+6.*f" : "  %6.*f", digits, v->value);
	if (!isnan(v->low))
		snprintf(interval, sizeof interval, sign ? "%+.*f to %+.*f" : "%.*f to %.*f", digits, v->low, digits, v->high);
	if (width || *interval)
		fprintf(out, "  %-*s", width, interval);
}

void calibration_table_print(const struct calibration_table *c, FILE *out)
{
	if (!c->judged)
		return;
	fprintf(out, "\nprobabilities of the findings that %d patients or more show, and as many do not%s:\n"
		     "Brier score; its skill, above 0 where it is better than to say the finding's share of every image; images with it over the sum\n"
		     "of the probabilities, 1 when calibrated; slope of the regression on the logit, 1 when calibrated, below 1 too sure\n"
		     "  %-20s  %6s  %-14s  %6s  %-16s  %6s  %-14s  %6s\n", FEW_POSITIVES, isnan(c->skill.low) ? "" : ", with 95 % intervals", "finding", "Brier", "", "skill", "", "obs/exp", "", "slope");
	for (int f = 0; f < FINDINGS; f++) {
		const struct calibration *k = &c->finding[f];

		if (isnan(k->skill.value))
			continue;
		fprintf(out, "  %-20s", finding_names[f]);
		print_measure(&k->brier, 0, 3, 14, out);
		print_measure(&k->skill, 1, 3, 16, out);
		print_measure(&k->ratio, 0, 2, 14, out);
		print_measure(&k->slope, 0, 2, 0, out);
		fputc('\n', out);
	}
	fprintf(out, "  skill, mean of %-2d                              ", c->judged);
	print_measure(&c->skill, 1, 3, 0, out);
	fputc('\n', out);
}

void calibration_json(const struct calibration *c, cJSON *finding)
{
	json_number(finding, "ece", c->ece);
	json_number(finding, "ece_by_chance", c->ece_by_chance);
	json_measure(finding, "brier", &c->brier);
	json_measure(finding, "brier_skill", &c->skill);
	json_measure(finding, "observed_to_expected", &c->ratio);
	json_measure(finding, "calibration_in_the_large", &c->level);
	json_measure(finding, "calibration_slope", &c->slope);
	json_measure(finding, "calibration_intercept", &c->intercept);
}

void calibration_mean_json(const struct calibration_table *c, cJSON *object)
{
	json_measure(object, "mean_brier_skill", &c->skill);
	json_number(object, "mean_brier_skill_of", c->judged);
}
