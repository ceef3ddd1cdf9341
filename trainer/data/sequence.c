/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "data/loader.h"
#include "data/sequence_article.h"

enum { DEPTH = 4 }; /* as many batches ahead as the others have */

struct sequence {
	struct article *article; /* NULL: ours, and then: */
	struct dataset *dataset;
	struct loader *loader;
	char (*ids)[SAMPLE_ID];
	int slot; /* -1: none is held */
	uint64_t decoded;
};

static int open_ours(struct sequence *s, const struct sequence_conf *conf, struct error *e)
{
	s->ids = calloc((size_t)conf->batch, sizeof *s->ids);
	if (!s->ids)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (dataset_open(&s->dataset, conf->directory, "train", e))
		return -e->code;
	struct loader_conf lc = {
		.dataset = s->dataset, .seed = conf->seed, .batch = conf->batch, .micros = 1, .rank = conf->rank, .ranks = conf->ranks,
		.threads = conf->threads, .depth = DEPTH,
	};
	return loader_open(&s->loader, &lc, e);
}

int sequence_open(struct sequence **out, const struct sequence_conf *conf, struct error *e)
{
	struct manifest m;

	*out = NULL;
	if (manifest_read(&m, conf->directory, e))
		return -e->code;
	if (m.encoding == ENCODING_PACKED)
		return fail(e, EXIT_USAGE, "%s is packed, and pipelines are compared on TFRecords: chexnet prepare --format=jpeg", conf->directory);
	if (m.split[SPLIT_TRAIN].images < (size_t)conf->ranks)
		return fail(e, EXIT_DATA, "%s: %zu training images for %d ranks", conf->directory, m.split[SPLIT_TRAIN].images, conf->ranks);
	struct sequence *s = calloc(1, sizeof *s);
	if (!s)
		return fail(e, EXIT_INTERNAL, "no memory");
	s->slot = -1;
	if (conf->kind == SEQUENCE_OURS ? open_ours(s, conf, e) : article_open(&s->article, conf, &m, e)) {
		sequence_close(s);
		return -e->code;
	}
	*out = s;
	return 0;
}

static int next_of_ours(struct sequence *s, struct sequence_batch *out, struct error *e)
{
	struct loader_batch b;

	if (s->slot >= 0)
		loader_release(s->loader, s->slot);
	s->slot = -1;
	if (loader_next(s->loader, &b, NULL, e) != 1)
		return -e->code;
	s->slot = b.slot;
	for (int i = 0; i < b.batch.count; i++)
		memcpy(s->ids[i], dataset_samples(s->dataset)[b.sample[i]].id, SAMPLE_ID);
	s->decoded += (uint64_t)b.batch.count;
	*out = (struct sequence_batch){ b.batch.count, b.batch.pixels, (const char (*)[SAMPLE_ID])s->ids };
	return 0;
}

int sequence_next(struct sequence *s, struct sequence_batch *out, struct error *e)
{
	return s->article ? article_next(s->article, out, e) : next_of_ours(s, out, e);
}

uint64_t sequence_decoded(const struct sequence *s)
{
	return s->article ? article_decoded(s->article) : s->decoded;
}

void sequence_close(struct sequence *s)
{
	if (!s)
		return;
	article_close(s->article);
	loader_close(s->loader);
	dataset_close(s->dataset);
	free(s->ids);
	free(s);
}
