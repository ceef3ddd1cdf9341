/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "learn/predictions.h"

struct name {
	const char *id;
	size_t row;
};

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->id, ((const struct name *)b)->id);
}

int predictions_agree(const struct predictions *a, size_t i, const struct predictions *b, size_t j, const char *a_path, const char *b_path, struct error *e)
{
	const struct sample *x = &a->samples[i], *y = &b->samples[j];
	uint32_t differ = (x->labels ^ y->labels) & x->known & y->known;

	if (a->has_patients && b->has_patients && x->patient != y->patient)
		return fail(e, EXIT_DATA, "image %s: of patient %u in %s and of patient %u in %s: these are predictions for different images", x->id, x->patient, a_path,
			    y->patient, b_path);
	if (!differ)
		return 0;
	int f = __builtin_ctz(differ);

	return fail(e, EXIT_DATA, "image %s: %s is %u in %s and %u in %s: these are predictions for different labels", x->id, finding_names[f],
		    x->labels >> f & 1, a_path, y->labels >> f & 1, b_path);
}

long predictions_match(const struct predictions *a, const struct predictions *b, const char *a_path, const char *b_path, size_t *row,
		       struct error *e)
{
	struct name *names = malloc((b->n + 1) * sizeof *names);
	long found = 0;

	if (!names)
		return fail(e, EXIT_INTERNAL, "no memory for %zu names", b->n);
	for (size_t i = 0; i < b->n; i++)
		names[i] = (struct name){ b->samples[i].id, i };
	qsort(names, b->n, sizeof *names, by_id);
	for (size_t i = 0; i < a->n && found >= 0; i++) {
		struct name key = { a->samples[i].id, 0 }, *at = bsearch(&key, names, b->n, sizeof *names, by_id);

		row[i] = at ? at->row : PREDICTIONS_NONE;
		if (at)
			found = predictions_agree(a, i, b, at->row, a_path, b_path, e) ? -e->code : found + 1;
	}
	free(names);
	return found;
}

static int names_differ(const char *a, const char *b)
{
	return strcmp(a, b) == 0 ? 0 : *a && *b ? 1 : -1;
}

int splits_differ(const struct provenance *a, const struct provenance *b)
{
	int split = names_differ(a->split, b->split), policy = names_differ(a->policy, b->policy);

	return split > 0 || policy > 0 ? 1 : split < 0 || policy < 0 ? -1 : 0;
}

int is_own_split(const struct provenance *about, const char *name)
{
	return strcmp(about->split, name) == 0 && !source_differs(about->trained_on, about->source);
}
