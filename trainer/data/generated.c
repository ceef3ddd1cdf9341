/* SPDX-License-Identifier: Apache-2.0
 * A split of synthetic X-rays, drawn when they are first read and kept in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/source.h"
#include "data/ranking.h"
#include "data/synth.h"

struct generated {
	struct synth_conf conf;
	struct synth_case *cases; /* of all splits; this split's come first */
};

static void close_generated(void *state)
{
	struct generated *g = state;

	free(g->cases);
	free(g);
}

static int read_generated(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	const struct generated *g = d->state;

	(void)e;
	synth_draw(&g->conf, &g->cases[index], s->work, pixels, NULL, NULL);
	return 0;
}

/* The cases of one split, moved to the front. */
static size_t keep_split(const struct synth_conf *conf, struct synth_case *cases, enum split split)
{
	size_t kept = 0;

	for (size_t i = 0; i < conf->images; i++)
		if (synth_split(conf, &cases[i]) == split)
			cases[kept++] = cases[i];
	return kept;
}

static int ratios(const struct generated *g, size_t count, float *ratio)
{
	size_t floats = SYNTH_WORK * (size_t)g->conf.size * (size_t)g->conf.size;
	int failed = 0;

#pragma omp parallel
	{
		float *work = malloc(floats * sizeof *work);
#pragma omp for schedule(dynamic, 32)
		for (size_t i = 0; i < count; i++) {
			if (work) {
				synth_oracle(&g->conf, &g->cases[i], work, ratio + i * FINDINGS);
			} else {
#pragma omp atomic write
				failed = 1;
			}
		}
		free(work);
	}
	return failed ? -1 : 0;
}

/* Without memory the oracle stays unknown. */
static void measure_oracle(struct dataset *d)
{
	float *ratio = malloc((d->count + 1) * FINDINGS * sizeof *ratio), *score = malloc((d->count + 1) * sizeof *score);
	uint8_t *positive = malloc(d->count + 1);

	if (ratio && score && positive && ratios(d->state, d->count, ratio) == 0) {
		d->has_oracle = 1;
		for (int f = 0; f < FINDINGS; f++) {
			for (size_t i = 0; i < d->count; i++) {
				score[i] = ratio[i * FINDINGS + (size_t)f];
				positive[i] = d->samples[i].labels >> f & 1;
			}
			d->oracle[f] = auroc(score, positive, d->count);
			d->has_oracle &= !(d->oracle[f] < 0);
		}
	}
	free(ratio);
	free(score);
	free(positive);
}

static int make(struct dataset *d, struct generated *g, enum split split, struct error *e)
{
	size_t bytes = (size_t)d->size * (size_t)d->size;

	g->cases = synth_plan(&g->conf);
	if (!g->cases)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", g->conf.images);
	d->count = keep_split(&g->conf, g->cases, split);
	d->samples = malloc((d->count + 1) * sizeof *d->samples);
	if (!d->samples || !dataset_keep(d, SIZE_MAX))
		return fail(e, EXIT_INTERNAL, "no memory for %zu images of %zu bytes", d->count, bytes);
	for (size_t i = 0; i < d->count; i++)
		d->samples[i] = g->cases[i].sample;
	d->scratch_floats = SYNTH_WORK * bytes;
	snprintf(d->describe, sizeof d->describe, "synthetic X-rays, contrast %g, %.1f MB in memory", g->conf.contrast, (double)dataset_kept_bytes(d) / 1e6);
	return 0;
}

int dataset_open_synthetic(struct dataset **out, const struct synth_conf *conf, const char *split, struct error *e)
{
	int s = split_index(split);

	*out = NULL;
	if (s < 0)
		return fail(e, EXIT_USAGE, "no split is called %s (train, val, test)", split);
	struct dataset *d = calloc(1, sizeof *d);
	struct generated *g = calloc(1, sizeof *g);
	if (!d || !g) {
		free(d);
		free(g);
		return fail(e, EXIT_INTERNAL, "no memory");
	}
	g->conf = *conf;
	d->read = read_generated;
	d->close = close_generated;
	d->measure = measure_oracle;
	d->state = g;
	d->size = conf->size;
	d->resize = "none";
	d->stored_as = "exact";
	snprintf(d->split, sizeof d->split, "%s", split);
	snprintf(d->policy, sizeof d->policy, "synthetic");
	snprintf(d->source, sizeof d->source, "synthetic");
	if (make(d, g, (enum split)s, e) || dataset_seal(d, e)) {
		dataset_close(d);
		return -e->code;
	}
	*out = d;
	return 0;
}
