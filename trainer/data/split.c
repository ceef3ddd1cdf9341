/* SPDX-License-Identifier: Apache-2.0
 * Which patient goes to which split. */
#include <stdlib.h>
#include <string.h>

#include "data/nih.h"
#include "data/random.h"
#include "files/csv.h"

const char *const split_names[SPLITS] = { "train", "val", "test" };
const char *const split_policy_names[] = { "official", "chexnet", "file", NULL };

int split_index(const char *name)
{
	for (int s = 0; s < SPLITS; s++)
		if (strcmp(name, split_names[s]) == 0)
			return s;
	return -1;
}

/* A patient and the place that the seed gives it. */
struct lot {
	uint64_t key;
	uint32_t patient;
	uint8_t split;
};

static int by_key(const void *a, const void *b)
{
	const struct lot *x = a, *y = b;
	return x->key < y->key ? -1 : x->key > y->key; /* no two patients have the same: mix64() is a bijection */
}

static int by_patient(const void *a, const void *b)
{
	const struct lot *x = a, *y = b;
	return x->patient < y->patient ? -1 : x->patient > y->patient;
}

/* One lot a patient of the images that take part; returns their number. */
static size_t draw_lots(const struct nih *n, int only_train_val, uint64_t seed, struct lot *lots)
{
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < n->count; i++)
		if (!only_train_val || n->images[i].list == NIH_TRAIN_VAL) {
			uint32_t patient = n->images[i].sample.patient;
			lots[count++] = (struct lot){ .key = mix64(mix64(seed) ^ patient), .patient = patient };
		}
	qsort(lots, count, sizeof *lots, by_key);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || lots[i].patient != lots[kept - 1].patient)
			lots[kept++] = lots[i];
	return kept;
}

/* `share` of the patients, rounded, but at least one where there are enough to go round. */
static size_t part(size_t patients, double share)
{
	size_t n = (size_t)((double)patients * share + 0.5);
	return n == 0 && patients > 2 ? 1 : n;
}

int nih_divide(const struct nih *n, enum split_policy policy, uint64_t seed, uint8_t *split, struct error *e)
{
	if (policy == SPLIT_OFFICIAL && !n->has_lists)
		return fail(e, EXIT_DATA, "%s: train_val_list.txt and test_list.txt, of the official split, are not both there (prepare --split chexnet divides without them)",
			    n->directory);
	struct lot *lots = malloc((n->count + 1) * sizeof *lots);
	if (!lots)
		return fail(e, EXIT_INTERNAL, "no memory for %zu patients", n->count);
	size_t patients = draw_lots(n, policy == SPLIT_OFFICIAL, seed, lots);
	size_t val = part(patients, 0.1), test = policy == SPLIT_OFFICIAL ? 0 : part(patients, 0.2);
	for (size_t i = 0; i < patients; i++)
		lots[i].split = i < val ? SPLIT_VAL : i < val + test ? SPLIT_TEST : SPLIT_TRAIN;
	qsort(lots, patients, sizeof *lots, by_patient);
	for (size_t i = 0; i < n->count; i++) {
		const struct nih_image *image = &n->images[i];
		if (policy == SPLIT_OFFICIAL && image->list != NIH_TRAIN_VAL) {
			split[i] = image->list == NIH_TEST ? SPLIT_TEST : SPLIT_NONE;
			continue;
		}
		struct lot key = { .patient = image->sample.patient };
		split[i] = ((struct lot *)bsearch(&key, lots, patients, sizeof *lots, by_patient))->split;
	}
	free(lots);
	return 0;
}

int nih_divide_file(const struct nih *n, const char *path, uint8_t *split, struct error *e)
{
	struct csv c;
	int rc = csv_open(&c, path, e);

	if (rc)
		return rc;
	memset(split, SPLIT_NONE, n->count);
	while ((rc = csv_next(&c, e)) > 0) {
		if (csv_names_columns(&c))
			continue;
		const struct nih_image *image = nih_find(n, c.field[0]);
		int s = c.n == 2 ? split_index(c.field[1]) : -1;
		if (c.n != 2)
			rc = fail(e, EXIT_DATA, "%s:%zu: %d column%s, not two: image and split", path, c.line, c.n, c.n == 1 ? "" : "s");
		else if (!image)
			rc = fail(e, EXIT_DATA, "%s:%zu: image \"%.40s\" has no row in %s", path, c.line, c.field[0], n->table);
		else if (s < 0)
			rc = fail(e, EXIT_DATA, "%s:%zu: no split is called \"%.40s\" (train, val, test)", path, c.line, c.field[1]);
		else if (split[image - n->images] != SPLIT_NONE)
			rc = fail(e, EXIT_DATA, "%s:%zu: image %s comes twice", path, c.line, c.field[0]);
		if (rc < 0)
			break;
		split[image - n->images] = (uint8_t)s;
	}
	csv_close(&c);
	return rc;
}
