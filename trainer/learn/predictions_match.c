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

static int check_labels(const struct sample *a, const struct sample *b, const char *a_path, const char *b_path, struct error *e)
{
	uint32_t differ = (a->labels ^ b->labels) & a->known & b->known;

	if (!differ)
		return 0;
	int f = __builtin_ctz(differ);

	return fail(e, EXIT_DATA, "image %s: %s is %u in %s and %u in %s: these are predictions for different labels", a->id, finding_names[f],
		    a->labels >> f & 1, a_path, b->labels >> f & 1, b_path);
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
			found = check_labels(&a->samples[i], &b->samples[at->row], a_path, b_path, e) ? -e->code : found + 1;
	}
	free(names);
	return found;
}
