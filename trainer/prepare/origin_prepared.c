/* SPDX-License-Identifier: Apache-2.0
 * A prepared data set as an origin: to be looked at, or prepared once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/manifest.h"
#include "data/source.h"
#include "image/decode.h"
#include "prepare/origin.h"

struct prepared {
	struct dataset *set[SPLITS];
	size_t first[SPLITS]; /* of its samples among all */
};

static void close_prepared(void *state)
{
	struct prepared *p = state;

	for (int s = 0; s < SPLITS; s++)
		dataset_close(p->set[s]);
	free(p);
}

static int decode_prepared(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	const struct prepared *p = o->state;
	const struct dataset *set = p->set[o->split[i]];
	struct dataset_scratch scratch = { .decoder = d };
	int side = dataset_image_size(set);

	if (scratch_reserve(&d->canvas, (size_t)side * (size_t)side, e) || dataset_read(set, i - p->first[o->split[i]], &scratch, d->canvas.data, e))
		return -e->code;
	*image = (struct image){ side, side, d->canvas.data };
	return 0;
}

int origin_prepared(struct origin *o, const char *directory, struct error *e)
{
	struct prepared *p = calloc(1, sizeof *p);
	struct manifest m;
	int rc = p ? manifest_read(&m, directory, e) : fail(e, EXIT_INTERNAL, "no memory");

	*o = (struct origin){ .state = p, .decode = decode_prepared, .close = p ? close_prepared : NULL };
	for (int s = 0; !rc && s < SPLITS; s++) {
		rc = dataset_open(&p->set[s], directory, split_names[s], e);
		if (!rc) {
			p->first[s] = o->count;
			o->count += dataset_count(p->set[s]);
		}
	}
	if (!rc) {
		o->samples = malloc((o->count + 1) * sizeof *o->samples);
		o->split = malloc(o->count + 1);
		if (!o->samples || !o->split)
			rc = fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);
	}
	for (int s = 0; !rc && s < SPLITS; s++) {
		size_t n = dataset_count(p->set[s]);
		if (n)
			memcpy(o->samples + p->first[s], dataset_samples(p->set[s]), n * sizeof *o->samples);
		memset(o->split + p->first[s], s, n);
	}
	if (!rc) {
		o->side = m.size;
		o->hash = m.source_hash;
		snprintf(o->name, sizeof o->name, "%s", m.source);
		snprintf(o->policy, sizeof o->policy, "%s", m.policy);
	} else {
		origin_close(o);
	}
	return rc;
}
