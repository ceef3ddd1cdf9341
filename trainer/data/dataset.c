/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hash.h"
#include "data/source.h"
#include "utf8.h"

int sample_name(char id[SAMPLE_ID], const void *name, size_t size, struct error *why)
{
	if (size == 0 || size >= SAMPLE_ID)
		return fail(why, EXIT_DATA, "image/filename: %zu bytes, not 1 to %d", size, SAMPLE_ID - 1);
	if (memchr(name, '\0', size) || memchr(name, '\n', size) || memchr(name, '\r', size))
		return fail(why, EXIT_DATA, "image/filename: a NUL or a line end in the name \"%.*s\"", (int)size, (const char *)name);
	memset(id, 0, SAMPLE_ID);
	memcpy(id, name, size);
	if (!utf8_valid(id)) /* it is to be a field of a file of predictions */
		return fail(why, EXIT_DATA, "image/filename: bytes that are no UTF-8 in the name \"%s\": write the records with names in UTF-8", utf8_mend(id));
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return strcmp((*(const struct sample *const *)a)->id, (*(const struct sample *const *)b)->id);
}

const struct sample *sample_twin(const struct sample **samples, size_t n)
{
	qsort(samples, n, sizeof *samples, by_id);
	for (size_t i = 1; i < n; i++)
		if (strcmp(samples[i]->id, samples[i - 1]->id) == 0)
			return samples[i];
	return NULL;
}

void sample_names_add(struct sample_names *n, const char *id)
{
	if (n->count++ < 5)
		n->used += (size_t)snprintf(n->text + n->used, sizeof n->text - n->used, "%s%s", n->used ? ", " : "", id);
	else if (n->count == 6)
		snprintf(n->text + n->used, sizeof n->text - n->used, ", …");
	controls_mend(n->text);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

int dataset_seal(struct dataset *d, struct error *e)
{
	uint64_t h = hash_u64(0, d->count);

	uint32_t *patients = realloc(d->patients, (d->count + 1) * sizeof *patients);
	if (!patients)
		return fail(e, EXIT_INTERNAL, "no memory for the patients of %zu images", d->count);
	d->patients = patients;
	d->n_patients = 0;
	for (size_t i = 0; i < d->count; i++)
		d->patients[i] = d->samples[i].patient;
	qsort(d->patients, d->count, sizeof *d->patients, by_number);
	for (size_t i = 0; i < d->count; i++)
		if (i == 0 || d->patients[i] != d->patients[d->n_patients - 1])
			d->patients[d->n_patients++] = d->patients[i];
	for (size_t i = 0; i < d->count; i++) {
		const struct sample *s = &d->samples[i];
		h = hash_bytes(h, s->id, strlen(s->id));
		h = hash_u64(hash_u64(h, s->patient), (uint64_t)s->labels << 32 | s->known);
	}
	d->hash = hash_u64(h, (uint64_t)d->size);
	return 0;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	if (d->close)
		d->close(d->state);
	free(d->samples);
	free(d->patients);
	free(d->shard_first);
	free(d->kept);
	free((void *)d->progress);
	free(d);
}

size_t dataset_count(const struct dataset *d)
{
	return d->count;
}

int dataset_image_size(const struct dataset *d)
{
	return d->size;
}

const struct sample *dataset_samples(const struct dataset *d)
{
	return d->samples;
}

const char *dataset_split(const struct dataset *d)
{
	return d->split;
}

const char *dataset_split_policy(const struct dataset *d)
{
	return d->policy;
}

const char *dataset_describe(const struct dataset *d)
{
	return d->describe;
}

uint64_t dataset_hash(const struct dataset *d)
{
	return d->hash;
}

const char *dataset_resize(const struct dataset *d)
{
	return d->resize;
}

const char *dataset_source(const struct dataset *d)
{
	return d->source;
}

static const char *last_source(const char *sources)
{
	static const char then[] = ", then ";

	for (const char *next; (next = strstr(sources, then));)
		sources = next + sizeof then - 1;
	return sources;
}

int source_is_synthetic(const char *source)
{
	return strncmp(last_source(source), "synthetic", 9) == 0;
}

int source_is_chestxray14(const char *source)
{
	return strncmp(last_source(source), "ChestX-ray14", 12) == 0;
}

int source_differs(const char *trained_on, const char *judged)
{
	return (source_is_synthetic(trained_on) && source_is_chestxray14(judged)) || (source_is_chestxray14(trained_on) && source_is_synthetic(judged));
}

const char *dataset_stored_as(const struct dataset *d)
{
	return d->stored_as;
}

uint64_t dataset_pixel_hash(const struct dataset *d)
{
	return hash_bytes(d->hash, d->stored_as, strlen(d->stored_as));
}

const double *dataset_oracle(const struct dataset *d)
{
	struct dataset *measured = (struct dataset *)d;

	if (measured->measure) {
		measured->measure(measured);
		measured->measure = NULL;
	}
	for (int f = 0; f < FINDINGS; f++)
		if (d->masked >> f & 1)
			measured->oracle[f] = NAN;
	return d->has_oracle ? d->oracle : NULL;
}

struct dataset_scratch *dataset_scratch(const struct dataset *d)
{
	struct dataset_scratch *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->decoder = decoder_new();
	s->work = d->scratch_floats ? malloc(d->scratch_floats * sizeof *s->work) : NULL;
	if (!s->decoder || (d->scratch_floats && !s->work)) {
		dataset_scratch_free(s);
		return NULL;
	}
	return s;
}

void dataset_scratch_free(struct dataset_scratch *s)
{
	if (!s)
		return;
	decoder_free(s->decoder);
	free(s->work);
	free(s);
}

enum progress { UNREAD, BEING_KEPT, KEPT };

/* And a byte of an image's progress. */
static size_t decoded_bytes(const struct dataset *d)
{
	return d->count * ((size_t)d->size * (size_t)d->size + 1);
}

size_t dataset_keep_bytes(const struct dataset *d)
{
	return d->kept || d->mapped ? 0 : decoded_bytes(d);
}

size_t dataset_kept_bytes(const struct dataset *d)
{
	return d->kept ? decoded_bytes(d) : 0;
}

int dataset_keep(struct dataset *d, size_t limit)
{
	size_t bytes = (size_t)d->size * (size_t)d->size;

	if (d->kept || d->mapped || dataset_keep_bytes(d) > limit)
		return d->kept != NULL;
	d->kept = malloc(d->count * bytes + 1);
	d->progress = calloc(d->count + 1, sizeof *d->progress);
	if (!d->kept || !d->progress) {
		free(d->kept);
		free((void *)d->progress);
		d->kept = NULL;
		d->progress = NULL;
		return 0;
	}
	return 1;
}

int dataset_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	size_t bytes = (size_t)d->size * (size_t)d->size;
	uint8_t expected = UNREAD;

	if (!d->kept)
		return d->read(d, index, s, pixels, e);
	if (atomic_load_explicit(&d->progress[index], memory_order_acquire) == KEPT) {
		memcpy(pixels, d->kept + index * bytes, bytes);
		return 0;
	}
	/* two threads may want the same image at the same time: both make it, one keeps it */
	int rc = d->read(d, index, s, pixels, e);
	if (!rc && atomic_compare_exchange_strong(&d->progress[index], &expected, BEING_KEPT)) {
		memcpy(d->kept + index * bytes, pixels, bytes);
		atomic_store_explicit(&d->progress[index], KEPT, memory_order_release);
	}
	return rc;
}

size_t dataset_shards(const struct dataset *d, const uint64_t **first)
{
	*first = d->shard_first;
	return d->shards;
}

uint64_t dataset_stored(const struct dataset *d)
{
	return d->stored;
}

int dataset_fetch(const struct dataset *d, size_t shard, struct error *e)
{
	uint64_t i = d->shard_first[shard], end = d->shard_first[shard + 1];

	while (d->kept && i < end && atomic_load_explicit(&d->progress[i], memory_order_relaxed) == KEPT)
		i++;
	return d->kept && i == end ? 0 : d->fetch(d, shard, e);
}

size_t dataset_patients(const struct dataset *d)
{
	return d->n_patients;
}

size_t dataset_leak(const struct dataset *a, const struct dataset *b, uint32_t *example)
{
	size_t shared = 0;

	for (size_t i = 0, j = 0; i < a->n_patients && j < b->n_patients;) {
		if (a->patients[i] == b->patients[j]) {
			if (shared++ == 0 && example)
				*example = a->patients[i];
			i++, j++;
		} else if (a->patients[i] < b->patients[j]) {
			i++;
		} else {
			j++;
		}
	}
	return shared;
}

uint32_t dataset_labelled(const struct dataset *d, int shows)
{
	uint32_t findings = 0;

	for (size_t i = 0; i < d->count; i++)
		findings |= d->samples[i].known & (shows ? d->samples[i].labels : ~d->samples[i].labels);
	return findings;
}

void dataset_prevalence(const struct dataset *d, double prevalence[FINDINGS])
{
	for (int f = 0; f < FINDINGS; f++) {
		size_t positive = 0, known = 0;
		for (size_t i = 0; i < d->count; i++) {
			uint32_t bit = 1u << f & d->samples[i].known;
			known += bit != 0;
			positive += (d->samples[i].labels & bit) != 0;
		}
		prevalence[f] = known ? (double)positive / (double)known : 0;
	}
}
