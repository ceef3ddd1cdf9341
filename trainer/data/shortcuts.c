/* SPDX-License-Identifier: Apache-2.0 */
#include "data/shortcuts.h"

#include <math.h>
#include <stdlib.h>

#include "learn/auroc.h"

const char *const shortcut_names[SHORTCUTS] = { "view", "age", "sex", "follow_up" };

/* A column as a number; negative: it is not told. */
static float value_of(const struct nih_facts *f, enum shortcut column)
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

/* How far from one half chance alone brings an AUROC (Mann and Whitney 1947). */
static double chance(size_t with, size_t without)
{
	double n = (double)with, m = (double)without;
	return sqrt((n + m + 1) / (12 * n * m));
}

/* values, positive: [n] of the images that tell the column and of which the finding is known. part: room for as many. */
static struct told_by compare(enum shortcut column, const float *values, const uint8_t *positive, size_t n, float *part)
{
	struct told_by t = { .auroc = NAN };
	size_t ends[2] = { 0 };

	for (size_t i = 0; i < n; i++)
		t.images += positive[i];
	if (t.images < SHORTCUT_IMAGES || n - t.images < SHORTCUT_IMAGES)
		return t;
	t.auroc = auroc(values, positive, n);
	t.notable = fabs(t.auroc - 0.5) > fmax(0.15, 3 * chance(t.images, n - t.images));
	ends[1] = n - t.images; /* those without it come first */
	for (size_t i = 0; i < n; i++)
		part[ends[positive[i]]++] = values[i];
	t.without = typical(part, n - t.images, column);
	t.with = typical(part + n - t.images, t.images, column);
	return t;
}

int shortcuts_measure(struct shortcuts *s, const struct sample *samples, const struct nih_facts *facts, size_t n, struct error *e)
{
	float *values = malloc((n + 1) * sizeof *values), *part = malloc((n + 1) * sizeof *part);
	uint8_t *positive = malloc(n + 1);
	int rc = values && part && positive ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu images", n);

	*s = (struct shortcuts){ .told = { 0 } };
	for (int column = 0; !rc && column < SHORTCUTS; column++) {
		for (size_t i = 0; i < n; i++)
			s->told[column] += value_of(&facts[i], (enum shortcut)column) >= 0;
		for (int f = 0; f < FINDINGS; f++) {
			size_t m = 0;
			for (size_t i = 0; i < n; i++) {
				float value = value_of(&facts[i], (enum shortcut)column);
				if (value < 0 || !(samples[i].known >> f & 1))
					continue;
				values[m] = value;
				positive[m++] = samples[i].labels >> f & 1;
			}
			s->of[column][f] = compare((enum shortcut)column, values, positive, m, part);
		}
	}
	free(values);
	free(part);
	free(positive);
	return rc;
}
