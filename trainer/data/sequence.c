/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sequence.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/example.h"
#include "data/image.h"
#include "data/loader.h"
#include "data/manifest.h"
#include "data/order.h"
#include "data/random.h"
#include "data/tfrecord.h"

const char *const sequence_names[SEQUENCES] = { "old", "new", "ours" };

static const struct sequence_step old_steps[] = {
	{ "list", "names of all files" },
	{ "read", "one file after the other, record by record" },
	{ "map", "check, parse and decode every record, N at a time" },
	{ "shard", "keep every R-th decoded image: a rank decodes the other ranks' images too" },
	{ "shuffle", "buffer of 500 decoded images" },
	{ "repeat", "from the first file on" },
	{ "batch", "copy images together" },
	{ "prefetch", "batches ahead of the step" },
};

static const struct sequence_step new_steps[] = {
	{ "list", "names of all files" },
	{ "data set", "of names, not of records" },
	{ "shard", "names dealt out to the ranks: unequal shares unless their number divides" },
	{ "shuffle", "order of the files" },
	{ "interleave", "ten files read in turn" },
	{ "prefetch", "records ahead of their decoding" },
	{ "shuffle", "buffer of 500 records: same-patient neighbours stay near each other" },
	{ "repeat", "from the first file on" },
	{ "map and batch", "parse and decode into the batch, N at a time; the last batch is dropped" },
	{ "prefetch", "batches ahead of the step" },
};

static const struct sequence_step our_steps[] = {
	{ "list", "manifest.json: files, counts, findings, source" },
	{ "check", "CRC and schema of every record, named to file, record and byte; patients in two splits are refused" },
	{ "order", "keyed permutation of all images, or of a few files at a time (--shuffle-window); no state" },
	{ "share", "positions dealt out: rank, micro-batch and row are arithmetic, so all ranks make equal steps" },
	{ "fetch", "mapped files, any record at once" },
	{ "decode", "N threads take tickets by one atomic addition; the ticket is position, slot and row: no queue, no copy" },
	{ "augment", "window and flip keyed by (seed, epoch, image), cut on the device" },
	{ "hand over", "ring of slots, pinned for GPUs: the next steps are ready while one computes" },
	{ "normalise", "uint8 x 1 channel to the device, normalised there" },
	{ "resume", "at the exact position, on any number of ranks" },
};

const struct sequence_step *sequence_steps(enum sequence_kind kind, int *count)
{
	static const struct {
		const struct sequence_step *steps;
		int n;
	} all[SEQUENCES] = {
		{ old_steps, sizeof old_steps / sizeof *old_steps },
		{ new_steps, sizeof new_steps / sizeof *new_steps },
		{ our_steps, sizeof our_steps / sizeof *our_steps },
	};

	*count = all[kind].n;
	return all[kind].steps;
}

enum { INTERLEAVE = 10, SHUFFLE = 500, BATCHES_AHEAD = 4, RING = 4096 };

/* What stages hand on is one block of memory each, given away with it: a record, a decoded picture, a batch. NULL ends an
 * epoch, and the next call begins another; &broken stands for the sequence's error. */
typedef void *stage(struct sequence *s);
static char broken;

struct record {
	const uint8_t *data;
	size_t size, number, offset;
	const char *path;
};

struct picture {
	char id[SAMPLE_ID];
	uint8_t pixels[];
};

struct batch {
	uint8_t *pixels;
	char id[][SAMPLE_ID];
};

struct shard {
	char path[FILE_PATH];
	struct mapped_file file;
};

struct cursor {
	int shard; /* -1: none is left */
	size_t offset, number;
};

/* A stage's items made by a thread of their own, up to `room` ahead. */
struct ahead {
	struct sequence *sequence;
	stage *from;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void *ring[RING];
	unsigned first, last, room;
	int started, stop;
};

/* One picture to be decoded. */
struct job {
	const struct record *record;
	uint8_t *pixels;
	char *id;
};

/* Threads that decode a block of records together; the caller is one of them. */
struct team {
	pthread_t *threads;
	struct decoder **decoders;
	pthread_barrier_t begin, end;
	struct job *jobs;
	_Atomic int next;
	int count, helpers, stop;
};

struct sequence {
	struct sequence_conf conf;
	size_t image_bytes;
	int size;
	pthread_mutex_t error_lock;
	struct error error;
	_Atomic uint64_t decoded;
	struct sequence_batch given;

	/* old and new */
	struct shard *shards;
	int n_shards;
	struct cursor cursor[INTERLEAVE]; /* old: the first alone */
	uint64_t epoch;                   /* new */
	int turn, next_name, begun;
	struct team team;
	struct record **records;  /* [batch] to be decoded */
	struct picture **block;   /* [batch] old: decoded, not yet dealt out */
	int taken, mapped, ended;
	uint64_t index;           /* old: of the next decoded image in the epoch */
	void *buffer[SHUFFLE];
	int held, drained;
	struct stream random;
	struct ahead record_ahead, batch_ahead;
	struct batch *current;

	/* ours */
	struct dataset *dataset;
	struct loader *loader;
	char (*ids)[SAMPLE_ID];
	int slot; /* -1: none is held */
};

static void *break_with(struct sequence *s, const struct error *why)
{
	pthread_mutex_lock(&s->error_lock);
	fail(&s->error, why->code, "%s", why->text);
	pthread_mutex_unlock(&s->error_lock);
	return &broken;
}

static void *no_memory(struct sequence *s)
{
	struct error e = { 0 };

	fail(&e, EXIT_INTERNAL, "no memory");
	return break_with(s, &e);
}

/* ---- prefetch ---------------------------------------------------------------------------------------- */

static void *ahead_thread(void *argument)
{
	struct ahead *a = argument;

	for (;;) {
		void *item = a->from(a->sequence);
		pthread_mutex_lock(&a->lock);
		while (a->last - a->first == a->room && !a->stop)
			pthread_cond_wait(&a->changed, &a->lock);
		int stop = a->stop;
		if (!stop)
			a->ring[a->last++ % RING] = item;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
		if (stop && item != &broken)
			free(item);
		if (stop || item == &broken)
			return NULL;
	}
}

static int ahead_start(struct ahead *a, struct sequence *s, stage *from, int room, struct error *e)
{
	a->sequence = s;
	a->from = from;
	a->room = room < RING ? (unsigned)room : RING;
	a->started = pthread_create(&a->thread, NULL, ahead_thread, a) == 0;
	return a->started ? 0 : fail(e, EXIT_INTERNAL, "a thread that reads ahead cannot be started");
}

static void *ahead_take(struct ahead *a)
{
	void *item = &broken;

	pthread_mutex_lock(&a->lock);
	while (a->first == a->last && !a->stop)
		pthread_cond_wait(&a->changed, &a->lock);
	if (a->first != a->last && a->ring[a->first % RING] != &broken) /* an error stays where it is */
		item = a->ring[a->first++ % RING];
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return item;
}

static void ahead_stop(struct ahead *a)
{
	pthread_mutex_lock(&a->lock);
	a->stop = 1;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static void ahead_free(struct ahead *a)
{
	if (a->started)
		pthread_join(a->thread, NULL);
	for (; a->first != a->last; a->first++)
		if (a->ring[a->first % RING] != &broken)
			free(a->ring[a->first % RING]);
}

/* ---- map --------------------------------------------------------------------------------------------- */

static int decode(struct sequence *s, const struct job *job, struct decoder *d)
{
	const struct record *r = job->record;
	struct error why = { 0 }, e = { 0 };
	struct example x;
	struct image image;

	int rc = example_parse(r->data, r->size, &x, &why);
	if (!rc && (x.filename.size == 0 || x.filename.size >= SAMPLE_ID))
		rc = fail(&why, EXIT_DATA, "image/filename: %zu bytes, not 1 to %d", x.filename.size, SAMPLE_ID - 1);
	if (!rc)
		rc = decode_image(d, x.encoded.data, x.encoded.size, &image, &why);
	if (!rc && (image.width != s->size || image.height != s->size))
		rc = fail(&why, EXIT_DATA, "image of %d x %d pixels where the manifest says %d", image.width, image.height, s->size);
	if (rc) {
		fail(&e, why.code, "%s: record %zu at byte %zu: %s", r->path, r->number, r->offset, why.text);
		break_with(s, &e);
		return rc;
	}
	memset(job->id, 0, SAMPLE_ID);
	memcpy(job->id, x.filename.data, x.filename.size);
	memcpy(job->pixels, image.pixels, s->image_bytes);
	atomic_fetch_add(&s->decoded, 1);
	return 0;
}

static void team_work(struct sequence *s, struct decoder *d)
{
	struct team *t = &s->team;

	for (int i; (i = atomic_fetch_add(&t->next, 1)) < t->count;)
		if (decode(s, &t->jobs[i], d))
			return;
}

struct helper_start {
	struct sequence *sequence;
	struct decoder *decoder;
};

static void *helper(void *argument)
{
	struct helper_start start = *(struct helper_start *)argument;
	struct team *t = &start.sequence->team;

	free(argument);
	for (;;) {
		pthread_barrier_wait(&t->begin);
		if (t->stop)
			return NULL;
		team_work(start.sequence, start.decoder);
		pthread_barrier_wait(&t->end);
	}
}

/* Decodes jobs [0, count); -1: the sequence is broken. */
static int team_run(struct sequence *s, int count)
{
	struct team *t = &s->team;

	t->count = count;
	atomic_store(&t->next, 0);
	if (t->helpers)
		pthread_barrier_wait(&t->begin);
	team_work(s, t->decoders[0]);
	if (t->helpers)
		pthread_barrier_wait(&t->end);
	return s->error.code ? -1 : 0;
}

static int team_open(struct sequence *s, struct error *e)
{
	struct team *t = &s->team;
	int threads = s->conf.threads;

	t->threads = calloc((size_t)threads, sizeof *t->threads);
	t->decoders = calloc((size_t)threads, sizeof(struct decoder *));
	t->jobs = calloc((size_t)s->conf.batch, sizeof *t->jobs);
	if (!t->threads || !t->decoders || !t->jobs)
		return fail(e, EXIT_INTERNAL, "no memory for %d threads", threads);
	for (int i = 0; i < threads; i++)
		if (!(t->decoders[i] = decoder_new()))
			return fail(e, EXIT_INTERNAL, "no memory for a decoder");
	pthread_barrier_init(&t->begin, NULL, (unsigned)threads);
	pthread_barrier_init(&t->end, NULL, (unsigned)threads);
	for (int i = 1; i < threads; i++) {
		struct helper_start *start = malloc(sizeof *start);
		if (start)
			*start = (struct helper_start){ s, t->decoders[i] };
		/* half a team would wait for ever at its barrier */
		if (!start || pthread_create(&t->threads[i - 1], NULL, helper, start))
			abort();
		t->helpers++;
	}
	return 0;
}

static void team_close(struct sequence *s)
{
	struct team *t = &s->team;

	t->stop = 1;
	if (t->helpers)
		pthread_barrier_wait(&t->begin);
	for (int i = 0; i < t->helpers; i++)
		pthread_join(t->threads[i], NULL);
	for (int i = 0; t->decoders && i < s->conf.threads; i++)
		decoder_free(t->decoders[i]);
	free(t->threads);
	free(t->decoders);
	free(t->jobs);
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* The record at the cursor, which moves on; NULL at the file's end. */
static void *read_record(struct sequence *s, struct cursor *c)
{
	const struct shard *file = &s->shards[c->shard];
	struct error why = { 0 }, e = { 0 };
	struct tfrecord t;
	int rc = tfrecord_at(file->file.data, file->file.size, c->offset, &t, &why);

	if (rc < 0) {
		fail(&e, why.code, "%s: record %zu at byte %zu: %s", file->path, c->number, c->offset, why.text);
		return break_with(s, &e);
	}
	struct record *r = rc ? malloc(sizeof *r) : NULL;
	if (rc && !r)
		return no_memory(s);
	if (rc) {
		*r = (struct record){ t.data, t.size, c->number++, c->offset, file->path };
		c->offset = t.next;
	}
	return r;
}

/* Old, steps 1 and 2. */
static void *read_in_sequence(struct sequence *s)
{
	struct cursor *c = &s->cursor[0];

	for (; c->shard < s->n_shards; *c = (struct cursor){ .shard = c->shard + 1 }) {
		void *r = read_record(s, c);
		if (r)
			return r;
	}
	*c = (struct cursor){ 0 };
	return NULL;
}

/* New, steps 1 to 4: this rank's next file in the epoch's order, or -1. */
static int next_file(struct sequence *s)
{
	int ranks = s->conf.ranks, own = (s->n_shards - s->conf.rank + ranks - 1) / ranks;

	if (s->next_name == own)
		return -1;
	return s->conf.rank + ranks * (int)order_sample(s->conf.seed, (uint64_t)own, s->epoch * (uint64_t)own + (uint64_t)s->next_name++);
}

/* Step 5. */
static void *interleave(struct sequence *s)
{
	if (!s->begun)
		for (int k = 0; k < INTERLEAVE; k++)
			s->cursor[k] = (struct cursor){ .shard = next_file(s) };
	s->begun = 1;
	for (int empty = 0; empty < INTERLEAVE; s->turn = (s->turn + 1) % INTERLEAVE) {
		struct cursor *c = &s->cursor[s->turn];
		void *r = NULL;
		while (c->shard >= 0 && !(r = read_record(s, c)))
			*c = (struct cursor){ .shard = next_file(s) };
		if (r) {
			s->turn = (s->turn + 1) % INTERLEAVE;
			return r;
		}
		empty++;
	}
	s->epoch++;
	s->next_name = s->begun = 0;
	return NULL;
}

/* Step 6. */
static void *records_ahead(struct sequence *s)
{
	return ahead_take(&s->record_ahead);
}

/* Old, step 3, a block at a time. 0: the block is empty. */
static int map_block(struct sequence *s)
{
	int n = 0;

	s->taken = s->mapped = 0;
	for (void *r; n < s->conf.batch && (r = read_in_sequence(s)); n++) {
		struct picture *p = r == &broken ? NULL : malloc(sizeof *p + s->image_bytes);
		if (!p) {
			if (r != &broken) {
				free(r);
				no_memory(s);
			}
			break;
		}
		s->records[n] = r;
		s->block[n] = p;
		s->team.jobs[n] = (struct job){ r, p->pixels, p->id };
	}
	s->ended = n < s->conf.batch;
	int rc = s->error.code ? -1 : team_run(s, n);
	for (int i = 0; i < n; i++)
		free(s->records[i]);
	s->mapped = n;
	return rc ? rc : n;
}

/* Old, steps 3 and 4. */
static void *map_and_shard(struct sequence *s)
{
	for (;;) {
		if (s->taken == s->mapped) {
			int n = s->ended ? 0 : map_block(s);
			if (n < 0)
				return &broken;
			if (n == 0) {
				s->ended = 0;
				s->index = 0;
				return NULL;
			}
		}
		struct picture *p = s->block[s->taken++];
		if (s->index++ % (uint64_t)s->conf.ranks == (uint64_t)s->conf.rank)
			return p;
		free(p);
	}
}

/* ---- shuffle, repeat, batch -------------------------------------------------------------------------- */

/* A buffer is filled, and one at random goes out for one that comes in; at the end of an epoch it runs empty. */
static void *shuffle_and_repeat(struct sequence *s, stage *from)
{
	for (;;) {
		while (!s->drained && s->held < SHUFFLE) {
			void *item = from(s);
			if (item == &broken)
				return item;
			if (item)
				s->buffer[s->held++] = item;
			else
				s->drained = 1;
		}
		if (s->held) {
			int pick = (int)(stream_bits(&s->random) % (uint32_t)s->held);
			void *item = s->buffer[pick];
			s->buffer[pick] = s->buffer[--s->held];
			return item;
		}
		s->drained = 0;
	}
}

static struct batch *new_batch(struct sequence *s)
{
	size_t n = (size_t)s->conf.batch, head = sizeof(struct batch) + n * SAMPLE_ID;
	struct batch *b = malloc(head + n * s->image_bytes);

	if (b)
		b->pixels = (uint8_t *)b + head;
	return b;
}

/* Old, steps 5 to 7. */
static void *old_batch(struct sequence *s)
{
	struct batch *b = new_batch(s);

	if (!b)
		return no_memory(s);
	for (int i = 0; i < s->conf.batch; i++) {
		struct picture *p = shuffle_and_repeat(s, map_and_shard);
		if ((void *)p == &broken) {
			free(b);
			return p;
		}
		memcpy(b->id[i], p->id, SAMPLE_ID);
		memcpy(b->pixels + (size_t)i * s->image_bytes, p->pixels, s->image_bytes);
		free(p);
	}
	return b;
}

/* New, steps 7 to 9. */
static void *new_approach_batch(struct sequence *s)
{
	struct batch *b = new_batch(s);
	int n = 0, rc = 0;

	if (!b)
		return no_memory(s);
	for (; n < s->conf.batch && !rc; n++) {
		struct record *r = shuffle_and_repeat(s, records_ahead);
		if ((void *)r == &broken)
			rc = -1;
		s->records[n] = rc ? NULL : r;
		s->team.jobs[n] = (struct job){ r, b->pixels + (size_t)n * s->image_bytes, b->id[n] };
	}
	if (!rc)
		rc = team_run(s, n);
	for (int i = 0; i < n; i++)
		free(s->records[i]);
	if (!rc)
		return b;
	free(b);
	return &broken;
}

/* ---- opening and closing ----------------------------------------------------------------------------- */

static int open_shards(struct sequence *s, const struct manifest *m, struct error *e)
{
	const struct sequence_conf *conf = &s->conf;
	const struct manifest_split *train = &m->split[SPLIT_TRAIN];

	if (conf->kind == SEQUENCE_NEW && train->shards < conf->ranks)
		return fail(e, EXIT_DATA, "%s: %d files are dealt out to %d ranks in the new approach: chexnet prepare --shards=%d", conf->directory,
			    train->shards, conf->ranks, conf->ranks);
	s->shards = calloc((size_t)train->shards, sizeof *s->shards);
	if (!s->shards)
		return fail(e, EXIT_INTERNAL, "no memory for %d files", train->shards);
	for (; s->n_shards < train->shards; s->n_shards++) {
		struct shard *file = &s->shards[s->n_shards];
		if (shard_path(file->path, conf->directory, SPLIT_TRAIN, s->n_shards, train->shards, e) || file_map(&file->file, file->path, e))
			return -e->code;
	}
	return 0;
}

static int open_rival(struct sequence *s, const struct manifest *m, struct error *e)
{
	int is_new = s->conf.kind == SEQUENCE_NEW;

	s->random = stream_open(s->conf.seed, (uint64_t)s->conf.rank);
	s->records = calloc((size_t)s->conf.batch, sizeof(struct record *));
	s->block = calloc((size_t)s->conf.batch, sizeof(struct picture *));
	if (!s->records || !s->block)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (open_shards(s, m, e) || team_open(s, e) || (is_new && ahead_start(&s->record_ahead, s, interleave, s->conf.batch, e)))
		return -e->code;
	return ahead_start(&s->batch_ahead, s, is_new ? new_approach_batch : old_batch, BATCHES_AHEAD, e);
}

static int open_ours(struct sequence *s, struct error *e)
{
	struct loader_conf conf = {
		.seed = s->conf.seed, .batch = s->conf.batch, .micros = 1, .rank = s->conf.rank, .ranks = s->conf.ranks, .threads = s->conf.threads,
		.depth = BATCHES_AHEAD,
	};

	s->ids = calloc((size_t)s->conf.batch, sizeof *s->ids);
	if (!s->ids)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (dataset_open(&s->dataset, s->conf.directory, "train", e))
		return -e->code;
	conf.dataset = s->dataset;
	return loader_open(&s->loader, &conf, e);
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
	s->conf = *conf;
	s->size = m.size;
	s->image_bytes = (size_t)m.size * (size_t)m.size;
	s->slot = -1;
	pthread_mutex_init(&s->error_lock, NULL);
	for (int i = 0; i < 2; i++) {
		struct ahead *a = i ? &s->record_ahead : &s->batch_ahead;
		pthread_mutex_init(&a->lock, NULL);
		pthread_cond_init(&a->changed, NULL);
	}
	if (conf->kind == SEQUENCE_OURS ? open_ours(s, e) : open_rival(s, &m, e)) {
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
	atomic_fetch_add(&s->decoded, (uint64_t)b.batch.count);
	*out = (struct sequence_batch){ b.batch.count, b.batch.pixels, (const char (*)[SAMPLE_ID])s->ids };
	return 0;
}

int sequence_next(struct sequence *s, struct sequence_batch *out, struct error *e)
{
	if (s->loader)
		return next_of_ours(s, out, e);
	free(s->current);
	s->current = NULL;
	void *item = ahead_take(&s->batch_ahead);
	if (item == &broken) {
		pthread_mutex_lock(&s->error_lock);
		fail(e, s->error.code, "%s", s->error.text);
		pthread_mutex_unlock(&s->error_lock);
		return -e->code;
	}
	s->current = item;
	*out = (struct sequence_batch){ s->conf.batch, s->current->pixels, (const char (*)[SAMPLE_ID])s->current->id };
	return 0;
}

uint64_t sequence_decoded(const struct sequence *s)
{
	return atomic_load(&s->decoded);
}

void sequence_close(struct sequence *s)
{
	if (!s)
		return;
	ahead_stop(&s->batch_ahead);
	ahead_stop(&s->record_ahead);
	ahead_free(&s->batch_ahead);
	ahead_free(&s->record_ahead);
	team_close(s);
	for (; s->taken < s->mapped; s->taken++)
		free(s->block[s->taken]);
	for (int i = 0; i < s->held; i++)
		free(s->buffer[i]);
	for (int i = 0; i < s->n_shards; i++)
		file_unmap(&s->shards[i].file);
	free(s->shards);
	free(s->records);
	free(s->block);
	free(s->current);
	loader_close(s->loader);
	dataset_close(s->dataset);
	free(s->ids);
	free(s);
}
