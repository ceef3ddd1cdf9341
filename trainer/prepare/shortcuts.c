/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/shortcuts.h"

#include <math.h>
#include <stdlib.h>

#include "data/ranking.h"

const char *const shortcut_names[SHORTCUTS] = { "view", "age", "sex", "follow_up" };

float shortcut_value(const struct nih_facts *f, enum shortcut column)
{
	switch (column) {
	case SHORTCUT_VIEW:
		return f->view ? (float)(f->view == 'A') : -1;
	case SHORTCUT_AGE:
		return f->age;
	case SHORTCUT_SEX:
		return f->sex ? (float)(f->sex == 'M') : -1;
	default:
		return (float)f->follow_up;
	}
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return x < y ? -1 : x > y;
}

/* The share of ones, or the median; values are sorted for it. */
static double typical(float *values, size_t n, enum shortcut column)
{
	double sum = 0;

	if (column == SHORTCUT_AGE || column == SHORTCUT_FOLLOW_UP) {
		qsort(values, n, sizeof *values, by_value);
		return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
	}
	for (size_t i = 0; i < n; i++)
		sum += values[i];
	return sum / (double)n;
}

/* Images that tell a column and of which a finding is known, and room to compare those with it and those without. */
struct compared {
	size_t n;
	float *values, *part;    /* [n] of the column; in two parts */
	uint8_t *positive;       /* [n] */
	uint32_t *number;        /* [all images] of its patient, from 0 */
	uint32_t *patient;       /* [n] number of the patient */
	uint32_t *seen, round;   /* [2][patients] the round, one a comparison, in which a patient was counted last */
};

static int compared_open(struct compared *c, size_t images, struct error *e)
{
	size_t room = images + 1;

	*c = (struct compared){ .values = malloc(room * sizeof *c->values), .part = malloc(room * sizeof *c->part), .positive = malloc(room),
				.number = malloc(room * sizeof *c->number), .patient = malloc(room * sizeof *c->patient), .seen = calloc(2 * room, sizeof *c->seen) };
	return c->values && c->part && c->positive && c->number && c->patient && c->seen ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu images", images);
}

static void compared_close(struct compared *c)
{
	free(c->values);
	free(c->part);
	free(c->positive);
	free(c->number);
	free(c->patient);
	free(c->seen);
}

static int by_patient(const void *a, const void *b)
{
	uint32_t x = (*(const struct sample *const *)a)->patient, y = (*(const struct sample *const *)b)->patient;
	return (x > y) - (x < y);
}

static int number_patients(struct compared *c, const struct sample *samples, size_t n, struct error *e)
{
	const struct sample **sorted = malloc((n + 1) * sizeof *sorted);
	uint32_t number = 0;

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
	for (size_t i = 0; i < n; i++)
		sorted[i] = &samples[i];
	qsort(sorted, n, sizeof *sorted, by_patient);
	for (size_t i = 0; i < n; i++) {
		number += i > 0 && sorted[i]->patient != sorted[i - 1]->patient;
		c->number[sorted[i] - samples] = number;
	}
	free(sorted);
	return 0;
}

/* How far from one half chance alone brings an AUROC (Mann and Whitney 1947). Images of one patient are alike, so patients count, not images. */
static double chance(struct compared *c)
{
	double patients[2] = { 0, 0 };

	c->round++;
	for (size_t i = 0; i < c->n; i++) {
		uint32_t *seen = &c->seen[2 * c->patient[i] + c->positive[i]];
		patients[c->positive[i]] += *seen != c->round;
		*seen = c->round;
	}
	return sqrt((patients[0] + patients[1] + 1) / (12 * patients[0] * patients[1]));
}

static struct told_by compare(struct compared *c, enum shortcut column)
{
	struct told_by t = { .auroc = NAN };
	size_t ends[2] = { 0 };

	for (size_t i = 0; i < c->n; i++)
		t.images += c->positive[i];
	if (t.images < SHORTCUT_IMAGES || c->n - t.images < SHORTCUT_IMAGES)
		return t;
	t.auroc = auroc(c->values, c->positive, c->n);
	t.notable = fabs(t.auroc - 0.5) > fmax(0.15, 3 * chance(c));
	ends[1] = c->n - t.images; /* those without it come first */
	for (size_t i = 0; i < c->n; i++)
		c->part[ends[c->positive[i]]++] = c->values[i];
	t.without = typical(c->part, c->n - t.images, column);
	t.with = typical(c->part + c->n - t.images, t.images, column);
	return t;
}

int shortcuts_measure(struct shortcuts *s, const struct sample *samples, const struct nih_facts *facts, size_t n, struct error *e)
{
	struct compared c;
	int rc = compared_open(&c, n, e);

	*s = (struct shortcuts){ .told = { 0 } };
	if (!rc)
		rc = number_patients(&c, samples, n, e);
	for (int column = 0; !rc && column < SHORTCUTS; column++) {
		for (size_t i = 0; i < n; i++)
			s->told[column] += shortcut_value(&facts[i], (enum shortcut)column) >= 0;
		for (int f = 0; f < FINDINGS; f++) {
			c.n = 0;
			for (size_t i = 0; i < n; i++) {
				float value = shortcut_value(&facts[i], (enum shortcut)column);
				if (value < 0 || !(samples[i].known >> f & 1))
					continue;
				c.values[c.n] = value;
				c.patient[c.n] = c.number[i];
				c.positive[c.n++] = samples[i].labels >> f & 1;
			}
			s->of[column][f] = compare(&c, (enum shortcut)column);
			if (s->of[column][f].auroc < 0)
				rc = fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
		}
	}
	compared_close(&c);
	return rc;
}
