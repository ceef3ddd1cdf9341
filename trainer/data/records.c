/* SPDX-License-Identifier: Apache-2.0
 * A split of a prepared data set: TFRecord shards, mapped, indexed and verified when it is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/example.h"
#include "data/manifest.h"
#include "data/packed.h"
#include "data/source.h"
#include "files/tfrecord.h"
#include "image/resize.h"

struct shard {
	char path[FILE_PATH];
	struct mapped_file file;
	struct sample *samples; /* until they are put together */
	size_t *offset;         /* [count] where each record begins */
	size_t count, room, first; /* first: index of its first record in the split */
	struct error e;
};

struct records {
	struct shard *shards;
	int n_shards;
};

static void close_records(void *state)
{
	struct records *r = state;

	for (int s = 0; s < r->n_shards; s++) {
		file_unmap(&r->shards[s].file);
		free(r->shards[s].samples);
		free(r->shards[s].offset);
	}
	free(r->shards);
	free(r);
}

static int fail_at(struct error *e, const struct shard *s, size_t record, size_t offset, const struct error *why)
{
	return fail(e, why->code, "%s: record %zu at byte %zu: %s", s->path, record, offset, why->text);
}

/* The sample of a record; everything but the pixels is checked. */
static int read_sample(const struct tfrecord *record, int size, struct sample *sample, struct error *why)
{
	struct example x;

	*sample = (struct sample){ 0 };
	if (example_parse(record->data, record->size, &x, why) || example_labels(&x, NULL, &sample->labels, &sample->known, why))
		return -why->code;
	if (sample_name(sample->id, x.filename.data, x.filename.size, why))
		return -why->code;
	if (x.patient < 0 || x.patient > UINT32_MAX)
		return fail(why, EXIT_DATA, "patient/id: %s", x.patient == -1 ? "is not there" : "out of range: " PATIENT_WANTED);
	if (x.height != size || x.width != size)
		return fail(why, EXIT_DATA, "image/height and image/width: %lld x %lld where the manifest says %d", (long long)x.width,
			    (long long)x.height, size);
	sample->patient = (uint32_t)x.patient;
	return 0;
}

static int grow(struct shard *s, struct error *e)
{
	s->room = s->room * 2 + 512;
	struct sample *samples = realloc(s->samples, s->room * sizeof *samples);
	if (samples)
		s->samples = samples;
	size_t *offset = realloc(s->offset, s->room * sizeof *offset);
	if (offset)
		s->offset = offset;
	if (!samples || !offset)
		return fail(e, EXIT_INTERNAL, "%s: no memory for its index", s->path);
	return 0;
}

static void index_shard(struct shard *s, int size)
{
	struct error why = { 0 };
	struct tfrecord record;
	size_t at = 0;
	int rc;

	if (file_map(&s->file, s->path, &s->e))
		return;
	while ((rc = tfrecord_at(s->file.data, s->file.size, at, &record, &why)) > 0) {
		if (s->count == s->room && grow(s, &s->e))
			return;
		if (read_sample(&record, size, &s->samples[s->count], &why)) {
			rc = -1;
			break;
		}
		s->offset[s->count++] = at;
		at = record.next;
	}
	if (rc < 0)
		fail_at(&s->e, s, s->count, at, &why);
}

static const struct shard *shard_of(const struct records *r, size_t index)
{
	int low = 0, high = r->n_shards - 1;

	while (low < high) {
		int middle = (low + high + 1) / 2;
		if (r->shards[middle].first <= index)
			low = middle;
		else
			high = middle - 1;
	}
	return &r->shards[low];
}

static int read_record(const struct dataset *d, size_t index, struct dataset_scratch *scratch, uint8_t *pixels, struct error *e)
{
	const struct shard *s = shard_of(d->state, index);
	size_t k = index - s->first;
	struct tfrecord record;
	struct example x;
	struct error why = { 0 };

	/* The CRC again: what was read from disk since may not be what was verified. */
	if (tfrecord_at(s->file.data, s->file.size, s->offset[k], &record, &why) < 0 ||
	    example_parse(record.data, record.size, &x, &why) || decode_square(scratch->decoder, x.encoded.data, x.encoded.size, pixels, d->size, &why))
		return fail_at(e, s, k, s->offset[k], &why);
	return 0;
}

static int fetch_shard(const struct dataset *d, size_t shard, struct error *e)
{
	const struct shard *s = &((const struct records *)d->state)->shards[shard];

	return file_fetch(s->path, 0, s->file.size, e);
}

/* Puts the shards' samples together in order. */
static int join_shards(struct dataset *d, struct records *r, size_t expected, const char *directory, struct error *e)
{
	d->shards = (size_t)r->n_shards;
	d->shard_first = calloc(d->shards + 1, sizeof *d->shard_first);
	if (!d->shard_first)
		return fail(e, EXIT_INTERNAL, "no memory for %zu shards", d->shards);
	for (int s = 0; s < r->n_shards; s++) {
		r->shards[s].first = d->count;
		d->count += r->shards[s].count;
		d->shard_first[s + 1] = d->count;
	}
	if (d->count != expected)
		return fail(e, EXIT_DATA, "%s: %zu %s records where the manifest says %zu: a shard is cut short or from another preparation",
			    directory, d->count, d->split, expected);
	d->samples = malloc((d->count + 1) * sizeof *d->samples);
	if (!d->samples)
		return fail(e, EXIT_INTERNAL, "no memory for %zu samples", d->count);
	for (int s = 0; s < r->n_shards; s++) {
		struct shard *shard = &r->shards[s];
		if (shard->count)
			memcpy(d->samples + shard->first, shard->samples, shard->count * sizeof *d->samples);
		free(shard->samples);
		shard->samples = NULL;
	}
	return 0;
}

static int check_unique(const struct dataset *d, const char *directory, struct error *e)
{
	const struct sample **sorted = malloc((d->count + 1) * sizeof(struct sample *));

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for %zu samples", d->count);
	for (size_t i = 0; i < d->count; i++)
		sorted[i] = &d->samples[i];
	const struct sample *twin = sample_twin(sorted, d->count);
	free(sorted);
	return twin ? fail(e, EXIT_DATA, "%s: image %s is twice in the %s split", directory, twin->id, d->split) : 0;
}

static int open_shards(struct dataset *d, struct records *r, const char *directory, enum split split, const struct manifest *m, struct error *e)
{
	const struct manifest_split *info = &m->split[split];
	size_t bytes = 0;

	r->shards = calloc((size_t)info->shards + 1, sizeof *r->shards);
	if (!r->shards)
		return fail(e, EXIT_INTERNAL, "no memory for %d shards", info->shards);
	r->n_shards = info->shards;
	for (int s = 0; s < r->n_shards; s++)
		if (shard_path(r->shards[s].path, directory, split, s, r->n_shards, e))
			return -e->code;
#pragma omp parallel for schedule(dynamic)
	for (int s = 0; s < r->n_shards; s++)
		index_shard(&r->shards[s], m->size);
	for (int s = 0; s < r->n_shards; s++) {
		if (r->shards[s].e.code)
			return fail(e, r->shards[s].e.code, "%s", r->shards[s].e.text);
		bytes += r->shards[s].file.size;
	}
	d->stored = bytes;
	snprintf(d->describe, sizeof d->describe, "TFRecord, %d shard%s, %.1f MB", r->n_shards, r->n_shards == 1 ? "" : "s", (double)bytes / 1e6);
	if (join_shards(d, r, info->images, directory, e) || check_unique(d, directory, e))
		return -e->code;
	return 0;
}

static int open_packed(struct dataset *d, const char *directory, enum split split, const struct manifest *m, struct error *e)
{
	char path[FILE_PATH];

	if (m->split[split].images == 0) {
		d->samples = calloc(1, sizeof *d->samples);
		return d->samples ? 0 : fail(e, EXIT_INTERNAL, "no memory");
	}
	if (packed_path(path, directory, split, e) || packed_open(d, path, split, m->split[split].images, m->size, m->source_hash, e) ||
	    check_unique(d, directory, e))
		return -e->code;
	return 0;
}

static int open_records(struct dataset *d, const char *directory, enum split split, const struct manifest *m, struct error *e)
{
	struct records *r = calloc(1, sizeof *r);

	if (!r)
		return fail(e, EXIT_INTERNAL, "no memory");
	d->read = read_record;
	d->close = close_records;
	d->fetch = fetch_shard;
	d->state = r;
	return open_shards(d, r, directory, split, m, e);
}

int records_open(struct dataset **out, const char *directory, enum split split, struct error *e)
{
	struct manifest m;

	if (manifest_read(&m, directory, e))
		return -e->code;
	struct dataset *d = calloc(1, sizeof *d);
	if (!d)
		return fail(e, EXIT_INTERNAL, "no memory");
	d->size = m.size;
	d->resize = RESIZE_NAME;
	d->stored_as = m.encoding == ENCODING_JPEG ? "jpeg" : "exact";
	snprintf(d->split, sizeof d->split, "%s", split_names[split]);
	snprintf(d->policy, sizeof d->policy, "%s", m.policy);
	snprintf(d->source, sizeof d->source, "%s", m.source);
	d->has_oracle = m.split[split].has_oracle;
	memcpy(d->oracle, m.split[split].oracle, sizeof d->oracle);
	if ((m.encoding == ENCODING_PACKED ? open_packed : open_records)(d, directory, split, &m, e) || dataset_seal(d, e)) {
		dataset_close(d);
		return -e->code;
	}
	*out = d;
	return 0;
}
