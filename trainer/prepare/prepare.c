/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/prepare.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "data/example.h"
#include "data/order.h"
#include "data/packed.h"
#include "data/random.h"
#include "data/ranking.h"
#include "files/tfrecord.h"
#include "image/image.h"
#include "image/resize.h"
#include "progress.h"

struct job {
	const struct prepare_conf *conf;
	struct prepare_report *report;
	const struct origin *origin;
	int threads;
	struct decoder **decoder;  /* [threads] */
	uint8_t **square;        /* [threads][size * size] */
	uint8_t *shape;          /* [count] enum image_shape, of those that were decoded */
	struct staging *staging;
	struct progress progress;
	size_t images, written;  /* in all splits; so far */
};

/* Records made ahead of the writer, so that all threads decode while the order stays. */
enum { WINDOW = 16 /* a thread */ };

static uint8_t *encode(const struct job *job, const uint8_t *pixels, size_t *size)
{
	int side = job->conf->size;
	return job->conf->encoding == ENCODING_JPEG ? encode_jpeg(pixels, side, side, PREPARE_JPEG_QUALITY, size) :
						      encode_png(pixels, side, side, 1, size);
}

/* Image `index` at the size that is stored, in the thread's square. */
static int make_square(const struct job *job, size_t index, int thread, struct error *e)
{
	struct image decoded;
	struct error why = { 0 };

	if (job->origin->decode(job->origin, index, job->decoder[thread], &decoded, &why))
		return fail(e, (enum exit_code)why.code, "%.900s%s", why.text, why.code == EXIT_DATA ? " (chexnet audit names all such images)" : "");
	job->shape[index] = (uint8_t)image_shape(decoded.width, decoded.height, job->conf->size);
	return resize_area(decoded.pixels, decoded.width, decoded.height, job->square[thread], job->conf->size, e);
}

/* The whole of a record: an Example, or the pixels alone where they are packed. */
static int make_record(const struct job *job, size_t index, int thread, struct bytes *record, struct error *e)
{
	const struct sample *sample = &job->origin->samples[index];
	const char *format = encoding_names[job->conf->encoding];
	int side = job->conf->size;

	if (make_square(job, index, thread, e))
		return -e->code;
	if (job->conf->encoding == ENCODING_PACKED) {
		record->size = 0;
		return bytes_append(record, job->square[thread], (size_t)side * (size_t)side) ? fail(e, EXIT_INTERNAL, "no memory for a record") : 0;
	}
	struct example x = { .height = side, .width = side, .patient = sample->patient, .n_label = FINDINGS, .n_name = FINDINGS };
	uint8_t *encoded = encode(job, job->square[thread], &x.encoded.size);
	x.encoded.data = encoded;
	x.filename = (struct span){ (const uint8_t *)sample->id, strlen(sample->id) };
	x.format = (struct span){ (const uint8_t *)format, strlen(format) };
	x.n_known = sample->known == ALL_FINDINGS ? 0 : FINDINGS;
	for (int f = 0; f < FINDINGS; f++) {
		x.label[f] = sample->labels >> f & 1;
		x.known[f] = sample->known >> f & 1;
		x.name[f] = (struct span){ (const uint8_t *)finding_names[f], strlen(finding_names[f]) };
	}
	int rc = encoded ? example_write(record, &x) : -1;
	free(encoded);
	return rc ? fail(e, EXIT_INTERNAL, "%s: no memory to encode it", sample->id) : 0;
}

/* Where the records of one split go: shards, or one packed file. */
struct split_writer {
	struct job *job;
	enum split split;
	struct tfrecord_writer file;
	struct packed_writer packed;
	int open, shard, shards;
	size_t per_shard;
};

static int next_shard(struct split_writer *w, struct error *e)
{
	char path[FILE_PATH];

	if (w->open) {
		w->open = 0;
		w->job->report->bytes += w->file.out.size;
		if (tfrecord_commit(&w->file, e))
			return -e->code;
		w->shard++;
	}
	if (w->shard == w->shards)
		return 0;
	if (shard_path(path, w->job->staging->partial, w->split, w->shard, w->shards, e) || tfrecord_create(&w->file, path, e))
		return -e->code;
	w->open = 1;
	return 0;
}

static int writer_open(struct split_writer *w, size_t count, struct error *e)
{
	const struct prepare_conf *conf = w->job->conf;
	char path[FILE_PATH];

	if (conf->encoding == ENCODING_PACKED) {
		w->shards = 1;
		if (packed_path(path, w->job->staging->partial, w->split, e) ||
		    packed_create(&w->packed, path, w->split, conf->size, count, w->job->origin->hash, e))
			return -e->code;
		w->open = 1;
		return 0;
	}
	const size_t wanted = (count + PREPARE_SHARD - 1) / PREPARE_SHARD;
	w->shards = conf->shards ? conf->shards : (int)(wanted < PREPARE_SHARDS ? wanted : PREPARE_SHARDS);
	w->per_shard = (count + (size_t)w->shards - 1) / (size_t)w->shards;
	w->shards = (int)((count + w->per_shard - 1) / w->per_shard); /* none is empty */
	return next_shard(w, e);
}

static int writer_append(struct split_writer *w, size_t index, const struct bytes *record, struct error *e)
{
	if (w->job->conf->encoding == ENCODING_PACKED)
		return packed_append(&w->packed, &w->job->origin->samples[index], record->data, e);
	if (w->file.records == w->per_shard && next_shard(w, e))
		return -e->code;
	return tfrecord_append(&w->file, record->data, record->size, e);
}

static int writer_commit(struct split_writer *w, struct error *e)
{
	if (w->job->conf->encoding != ENCODING_PACKED)
		return next_shard(w, e);
	w->open = 0;
	w->job->report->bytes += w->packed.out.size;
	return packed_commit(&w->packed, e);
}

static void writer_discard(struct split_writer *w)
{
	if (w->open && w->job->conf->encoding == ENCODING_PACKED)
		packed_discard(&w->packed);
	else if (w->open)
		tfrecord_discard(&w->file);
	w->open = 0;
}

/* As the images so far tell; NAN where there are none. */
static double bytes_of_one(const struct split_writer *w)
{
	const struct job *job = w->job;

	if (job->conf->encoding == ENCODING_PACKED)
		return (double)job->conf->size * job->conf->size;
	return job->written ? (double)(job->report->bytes + (w->open ? w->file.out.size : 0)) / (double)job->written : NAN;
}

/* Hours of work would be lost to a disk that is full in the end. A quota is not seen here: whom it stops say_need() tells. */
static void say_room(const struct split_writer *w)
{
	const struct job *job = w->job;
	const double wanted = bytes_of_one(w) * (double)(job->images - job->written);
	struct statvfs room;

	if (job->conf->tell && statvfs(job->staging->partial, &room) == 0 && (double)room.f_bavail * (double)room.f_frsize < wanted)
		fprintf(stderr, "%s: warning: there is room for %.1f MB, and what is still to be written takes about %.1f MB\n", job->conf->tell,
			1e-6 * (double)room.f_bavail * (double)room.f_frsize, 1e-6 * wanted);
}

/* Whom a full disk or a quota stopped has nothing, and needs to know how much is wanted. */
static int say_need(const struct split_writer *w, struct error *e)
{
	const double all = bytes_of_one(w) * (double)w->job->images;
	const struct error why = *e;

	e->code = 0;
	if (isnan(all))
		return fail(e, (enum exit_code)why.code, "%s; nothing is left behind", why.text);
	return fail(e, (enum exit_code)why.code, "%s; nothing is left behind, and all takes about %.1f MB", why.text, 1e-6 * all);
}

/* Makes records [first, first + n) of the order at once and writes them one after another. */
static int write_window(struct split_writer *w, const size_t *order, size_t n, struct bytes *records, struct error *errors, struct error *e)
{
	struct job *job = w->job;

#pragma omp parallel for schedule(dynamic) num_threads(job->threads)
	for (size_t i = 0; i < n; i++) {
		errors[i] = (struct error){ 0 };
		make_record(job, order[i], omp_get_thread_num(), &records[i], &errors[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (errors[i].code)
			return fail(e, errors[i].code, "%s", errors[i].text);
		if (writer_append(w, order[i], &records[i], e))
			return say_need(w, e);
	}
	job->written += n;
	if (job->written == n)
		say_room(w);
	progress_tell(&job->progress, job->written);
	return job->conf->stop && *job->conf->stop ? fail(e, EXIT_INTERNAL, "interrupted; nothing is left behind") : 0;
}

/* The images of a split in a seeded random order, so that readers who shuffle little still shuffle well. */
static size_t *order_split(const struct job *job, enum split split, size_t *count)
{
	size_t n = 0, room = (job->origin->count + 1) * sizeof(size_t), *table = malloc(room), *order = malloc(room);

	for (size_t i = 0; table && order && i < job->origin->count; i++)
		if (job->origin->split[i] == split)
			table[n++] = i;
	for (size_t i = 0; table && order && i < n; i++)
		order[i] = table[order_sample(mix64(job->conf->seed + split), n, i)];
	if (!table) {
		free(order);
		order = NULL;
	}
	free(table);
	*count = n;
	return order;
}

static int write_split(struct job *job, enum split split, struct error *e)
{
	struct manifest_split *info = &job->report->manifest.split[split];
	size_t count, window = (size_t)job->threads * WINDOW;
	size_t *order = order_split(job, split, &count);
	struct bytes *records = calloc(window, sizeof *records);
	struct error *errors = calloc(window, sizeof *errors);
	struct split_writer w = { .job = job, .split = split };
	int rc = order && records && errors ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu records", window);

	if (!rc && count)
		rc = writer_open(&w, count, e);
	for (size_t i = 0; !rc && i < count; i += window)
		rc = write_window(&w, order + i, count - i < window ? count - i : window, records, errors, e);
	if (!rc && count && writer_commit(&w, e))
		rc = say_need(&w, e);
	writer_discard(&w);
	info->images = count;
	info->shards = w.shards;
	for (size_t i = 0; records && i < window; i++)
		free(records[i].data);
	free(records);
	free(errors);
	free(order);
	return rc;
}

/* Training takes no split with a name twice, and a packed file none that is longer than NIH's: to be told before the work. */
static int check_names(const struct job *job, struct error *e)
{
	const struct origin *o = job->origin;
	const struct sample **sorted = malloc((o->count + 1) * sizeof *sorted), *twin = NULL, *longest = NULL;
	int s;

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);
	for (s = 0; s < SPLITS && !twin; s++) {
		size_t n = 0;
		for (size_t i = 0; i < o->count; i++)
			if (o->split[i] == s) {
				sorted[n++] = &o->samples[i];
				if (strlen(o->samples[i].id) > PACKED_ID)
					longest = &o->samples[i];
			}
		twin = sample_twin(sorted, n);
	}
	free(sorted);
	if (twin)
		return fail(e, EXIT_DATA, "%s: two images called %s are in the %s split, and a name tells one image", o->name, twin->id, split_names[s - 1]);
	if (longest && job->conf->encoding == ENCODING_PACKED)
		return fail(e, EXIT_USAGE, "--format=packed has room for names of %d bytes, not for %s: --format=png", PACKED_ID, longest->id);
	return 0;
}

struct membership {
	uint32_t patient;
	uint8_t split;
};

static int by_patient(const void *a, const void *b)
{
	const struct membership *x = a, *y = b;
	if (x->patient != y->patient)
		return x->patient < y->patient ? -1 : 1;
	return x->split - y->split;
}

/* Counts patients a split, those in more than one, and positives. */
static int count_all(const struct job *job, struct error *e)
{
	struct membership *m = malloc((job->origin->count + 1) * sizeof *m);
	struct prepare_report *r = job->report;
	size_t n = 0;

	if (!m)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", job->origin->count);
	for (size_t i = 0; i < job->origin->count; i++) {
		if (job->origin->split[i] == SPLIT_NONE)
			continue;
		m[n++] = (struct membership){ job->origin->samples[i].patient, job->origin->split[i] };
		for (int f = 0; f < FINDINGS; f++) {
			int known = job->origin->samples[i].known >> f & 1;
			r->known[job->origin->split[i]][f] += (size_t)known;
			r->positives[job->origin->split[i]][f] += (size_t)known & job->origin->samples[i].labels >> f;
		}
	}
	if (n == 0) {
		free(m);
		return fail(e, EXIT_DATA, "%s: none of the %zu images is in a split", job->origin->name, job->origin->count);
	}
	qsort(m, n, sizeof *m, by_patient);
	int counted = 0; /* a patient in three splits leaks once */
	for (size_t i = 0; i < n; i++) {
		int same = i && m[i].patient == m[i - 1].patient;
		if (!same)
			counted = 0;
		if (same && m[i].split == m[i - 1].split)
			continue;
		r->manifest.split[m[i].split].patients++;
		if (same && !counted) {
			counted = 1;
			if (r->leaked++ == 0)
				r->leak_example = m[i].patient;
		}
	}
	free(m);
	return 0;
}

static int measure_oracle(const struct job *job, enum split split, struct error *e)
{
	struct manifest_split *info = &job->report->manifest.split[split];
	float *score = malloc((job->origin->count + 1) * sizeof *score);
	uint8_t *positive = malloc(job->origin->count + 1);
	int rc = score && positive ? 0 : fail(e, EXIT_INTERNAL, "no memory for the oracle's scores");

	for (int f = 0; !rc && f < FINDINGS; f++) {
		size_t n = 0;
		for (size_t i = 0; i < job->origin->count; i++)
			if (job->origin->split[i] == split) {
				positive[n] = job->origin->samples[i].labels >> f & 1;
				score[n++] = job->origin->oracle[i * FINDINGS + (size_t)f];
			}
		info->oracle[f] = auroc(score, positive, n);
		if (info->oracle[f] < 0)
			rc = fail(e, EXIT_INTERNAL, "no memory for the oracle's scores");
	}
	info->has_oracle = !rc;
	free(score);
	free(positive);
	return rc;
}

static int make_workers(struct job *job, struct error *e)
{
	size_t n = (size_t)job->threads, bytes = (size_t)job->conf->size * (size_t)job->conf->size;

	job->decoder = calloc(n, sizeof(struct decoder *));
	job->square = calloc(n, sizeof(uint8_t *));
	job->shape = calloc(job->origin->count + 1, 1);
	for (size_t t = 0; job->decoder && job->square && t < n; t++) {
		job->decoder[t] = decoder_new();
		job->square[t] = malloc(bytes);
		if (!job->decoder[t] || !job->square[t])
			return fail(e, EXIT_INTERNAL, "no memory for thread %zu", t);
	}
	return job->decoder && job->square && job->shape ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu threads", n);
}

static void free_job(struct job *job)
{
	for (int t = 0; t < job->threads; t++) {
		if (job->decoder)
			decoder_free(job->decoder[t]);
		if (job->square)
			free(job->square[t]);
	}
	free(job->decoder);
	free(job->square);
	free(job->shape);
}

static void name_shapes(const struct job *job)
{
	for (size_t i = 0; i < job->origin->count; i++)
		if (job->shape[i] != SHAPE_FINE)
			sample_names_add(job->shape[i] == SHAPE_STRETCHED ? &job->report->stretched : &job->report->enlarged, job->origin->samples[i].id);
}

static void describe(const struct job *job)
{
	struct manifest *m = &job->report->manifest;

	m->size = job->conf->size;
	m->encoding = job->conf->encoding;
	m->seed = job->conf->seed;
	m->source_hash = job->origin->hash;
	snprintf(m->policy, sizeof m->policy, "%s", job->origin->policy);
	snprintf(m->source, sizeof m->source, "%s", job->origin->name);
}

static const char *const own[] = { "manifest.json", "@(train|val|test)-+([0-9])-of-+([0-9])", "@(train|val|test).cxp", NULL };
static const struct staging_kind kind = { "manifest.json", "format", manifest_format, own };

int prepare_claim(const struct prepare_conf *conf, struct staging *staging, struct error *e)
{
	return staging_open(staging, conf->out, conf->overwrite, &kind, conf->source, e);
}

static size_t count_images(const struct origin *o)
{
	size_t n = 0;

	for (size_t i = 0; i < o->count; i++)
		n += o->split[i] != SPLIT_NONE;
	return n;
}

int prepare_claimed(const struct prepare_conf *conf, struct staging *staging, const struct origin *origin, struct prepare_report *report, struct error *e)
{
	struct job job = { .conf = conf, .origin = origin, .report = report, .staging = staging, .threads = conf->threads ? conf->threads : omp_get_max_threads() };

	memset(report, 0, sizeof *report);
	int rc = make_workers(&job, e);
	if (!rc)
		rc = check_names(&job, e);
	if (!rc)
		rc = count_all(&job, e);
	if (!rc) {
		describe(&job);
		job.images = count_images(origin);
		progress_begin(&job.progress, conf->tell, job.images);
	}
	for (int s = 0; !rc && s < SPLITS; s++) {
		rc = write_split(&job, (enum split)s, e);
		if (!rc && origin->oracle)
			rc = measure_oracle(&job, (enum split)s, e);
	}
	progress_end(&job.progress);
	if (!rc)
		rc = manifest_write(&report->manifest, staging->partial, e);
	if (!rc)
		rc = staging_commit(staging, e);
	if (!rc)
		name_shapes(&job);
	free_job(&job);
	return rc;
}

int prepare(const struct prepare_conf *conf, const struct origin *origin, struct prepare_report *report, struct error *e)
{
	struct staging staging;
	int rc = prepare_claim(conf, &staging, e);

	if (!rc)
		rc = prepare_claimed(conf, &staging, origin, report, e);
	staging_discard(&staging);
	return rc;
}
