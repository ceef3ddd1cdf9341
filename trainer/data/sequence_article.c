/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sequence_article.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/decode_team.h"
#include "data/order.h"
#include "data/random.h"
#include "files/ahead.h"
#include "files/tfrecord.h"

enum { INTERLEAVE = 10, SHUFFLE = 500, BATCHES_AHEAD = 4 };

/* What stages hand on is one block of memory each, given away with it: a record, a decoded picture, a batch. NULL ends an
 * epoch, and the next call begins another; &ahead_broken stands for the article's error. */
typedef void *stage(struct article *a);

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

struct article {
	struct sequence_conf conf;
	size_t image_bytes;
	struct shard *shards;
	int n_shards;
	struct ahead *records, *batches; /* records: the new approach's */
	struct batch *current;

	/* of the thread that reads */
	struct cursor cursor[INTERLEAVE]; /* old: the first alone */
	int turn, next_name, begun;       /* new */
	uint64_t epoch;                   /* new */

	/* of the thread that makes batches, which in the old approach reads too */
	struct decode_team *team;
	struct decode_job *jobs;   /* [batch] */
	struct record **record;    /* [batch] to be decoded */
	struct picture **block;    /* [batch] old: decoded, not yet dealt out */
	int taken, mapped, ended;
	uint64_t index;            /* old: of the next decoded image in the epoch */
	void *buffer[SHUFFLE];
	int held, drained;
	struct stream random;

	pthread_mutex_t error_lock;
	struct error error;
};

static void *break_with(struct article *a, const struct error *why)
{
	pthread_mutex_lock(&a->error_lock);
	fail(&a->error, why->code, "%s", why->text);
	pthread_mutex_unlock(&a->error_lock);
	return &ahead_broken;
}

static void *no_memory(struct article *a)
{
	struct error e = { 0 };

	fail(&e, EXIT_INTERNAL, "no memory");
	return break_with(a, &e);
}

/* Decodes jobs [0, count); -1: broken. */
static int decode_jobs(struct article *a, int count)
{
	struct error e = { 0 };

	if (decode_team_run(a->team, a->jobs, count, &e) == 0)
		return 0;
	break_with(a, &e);
	return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* The record at the cursor, which moves on; NULL at the file's end. */
static void *read_record(struct article *a, struct cursor *c)
{
	const struct shard *file = &a->shards[c->shard];
	struct error why = { 0 }, e = { 0 };
	struct tfrecord t;
	int rc = tfrecord_at(file->file.data, file->file.size, c->offset, &t, &why);

	if (rc < 0) {
		fail(&e, why.code, "%s: record %zu at byte %zu: %s", file->path, c->number, c->offset, why.text);
		return break_with(a, &e);
	}
	struct record *r = rc ? malloc(sizeof *r) : NULL;
	if (rc && !r)
		return no_memory(a);
	if (rc) {
		*r = (struct record){ t.data, t.size, c->number++, c->offset, file->path };
		c->offset = t.next;
	}
	return r;
}

/* Old, steps 1 and 2. */
static void *read_in_sequence(struct article *a)
{
	struct cursor *c = &a->cursor[0];

	for (; c->shard < a->n_shards; *c = (struct cursor){ .shard = c->shard + 1 }) {
		void *r = read_record(a, c);
		if (r)
			return r;
	}
	*c = (struct cursor){ 0 };
	return NULL;
}

/* New, steps 1 to 4: this rank's next file in the epoch's order, or -1. */
static int next_file(struct article *a)
{
	int ranks = a->conf.ranks, own = (a->n_shards - a->conf.rank + ranks - 1) / ranks;

	if (a->next_name == own)
		return -1;
	return a->conf.rank + ranks * (int)order_sample(a->conf.seed, (uint64_t)own, a->epoch * (uint64_t)own + (uint64_t)a->next_name++);
}

/* Step 5. */
static void *interleave(void *from)
{
	struct article *a = from;

	if (!a->begun)
		for (int k = 0; k < INTERLEAVE; k++)
			a->cursor[k] = (struct cursor){ .shard = next_file(a) };
	a->begun = 1;
	for (int empty = 0; empty < INTERLEAVE; a->turn = (a->turn + 1) % INTERLEAVE) {
		struct cursor *c = &a->cursor[a->turn];
		void *r = NULL;
		while (c->shard >= 0 && !(r = read_record(a, c)))
			*c = (struct cursor){ .shard = next_file(a) };
		if (r) {
			a->turn = (a->turn + 1) % INTERLEAVE;
			return r;
		}
		empty++;
	}
	a->epoch++;
	a->next_name = a->begun = 0;
	return NULL;
}

/* Step 6. */
static void *records_ahead(struct article *a)
{
	return ahead_take(a->records);
}

/* ---- decoding and dealing out ------------------------------------------------------------------------ */

/* Old, step 3, a block at a time. -1: broken; 0: the block is empty. */
static int map_block(struct article *a)
{
	int n = 0, rc = 0;

	a->taken = a->mapped = 0;
	for (void *r; !rc && n < a->conf.batch && (r = read_in_sequence(a));) {
		struct picture *p = r == &ahead_broken ? NULL : malloc(sizeof *p + a->image_bytes);
		if (!p) {
			if (r != &ahead_broken) {
				free(r);
				no_memory(a);
			}
			rc = -1;
			continue;
		}
		a->record[n] = r;
		a->block[n] = p;
		a->jobs[n++] = (struct decode_job){ r, p->pixels, p->id };
	}
	a->ended = n < a->conf.batch;
	if (!rc)
		rc = decode_jobs(a, n);
	for (int i = 0; i < n; i++)
		free(a->record[i]);
	a->mapped = n;
	return rc ? rc : n;
}

/* Old, steps 3 and 4. */
static void *map_and_shard(struct article *a)
{
	for (;;) {
		if (a->taken == a->mapped) {
			int n = a->ended ? 0 : map_block(a);
			if (n < 0)
				return &ahead_broken;
			if (n == 0) {
				a->ended = 0;
				a->index = 0;
				return NULL;
			}
		}
		struct picture *p = a->block[a->taken++];
		if (a->index++ % (uint64_t)a->conf.ranks == (uint64_t)a->conf.rank)
			return p;
		free(p);
	}
}

/* ---- shuffle, repeat, batch -------------------------------------------------------------------------- */

/* A buffer is filled, and one at random goes out for one that comes in; at the end of an epoch it runs empty. */
static void *shuffle_and_repeat(struct article *a, stage *from)
{
	for (;;) {
		while (!a->drained && a->held < SHUFFLE) {
			void *item = from(a);
			if (item == &ahead_broken)
				return item;
			if (item)
				a->buffer[a->held++] = item;
			else
				a->drained = 1;
		}
		if (a->held) {
			int pick = (int)(stream_bits(&a->random) % (uint32_t)a->held);
			void *item = a->buffer[pick];
			a->buffer[pick] = a->buffer[--a->held];
			return item;
		}
		a->drained = 0;
	}
}

static struct batch *new_batch(struct article *a)
{
	size_t n = (size_t)a->conf.batch, head = sizeof(struct batch) + n * SAMPLE_ID;
	struct batch *b = malloc(head + n * a->image_bytes);

	if (b)
		b->pixels = (uint8_t *)b + head;
	return b;
}

/* Old, steps 5 to 7. */
static void *old_batch(void *from)
{
	struct article *a = from;
	struct batch *b = new_batch(a);

	if (!b)
		return no_memory(a);
	for (int i = 0; i < a->conf.batch; i++) {
		struct picture *p = shuffle_and_repeat(a, map_and_shard);
		if ((void *)p == &ahead_broken) {
			free(b);
			return p;
		}
		memcpy(b->id[i], p->id, SAMPLE_ID);
		memcpy(b->pixels + (size_t)i * a->image_bytes, p->pixels, a->image_bytes);
		free(p);
	}
	return b;
}

/* New, steps 7 to 9. */
static void *new_approach_batch(void *from)
{
	struct article *a = from;
	struct batch *b = new_batch(a);
	int n = 0, rc = 0;

	if (!b)
		return no_memory(a);
	for (; n < a->conf.batch && !rc; n++) {
		struct record *r = shuffle_and_repeat(a, records_ahead);
		if ((void *)r == &ahead_broken)
			rc = -1;
		a->record[n] = rc ? NULL : r;
		a->jobs[n] = (struct decode_job){ r, b->pixels + (size_t)n * a->image_bytes, b->id[n] };
	}
	if (!rc)
		rc = decode_jobs(a, n);
	for (int i = 0; i < n; i++)
		free(a->record[i]);
	if (!rc)
		return b;
	free(b);
	return &ahead_broken;
}

/* ---- opening and closing ----------------------------------------------------------------------------- */

static int open_shards(struct article *a, const struct manifest *m, struct error *e)
{
	const struct sequence_conf *conf = &a->conf;
	int shards = m->split[SPLIT_TRAIN].shards;

	if (conf->kind == SEQUENCE_NEW && shards < conf->ranks)
		return fail(e, EXIT_DATA, "%s: %d file%s dealt out to %d ranks in the new approach: chexnet prepare --shards=%d", conf->directory, shards,
			    shards == 1 ? " is" : "s are", conf->ranks, conf->ranks);
	a->shards = calloc((size_t)shards, sizeof *a->shards);
	if (!a->shards)
		return fail(e, EXIT_INTERNAL, "no memory for %d files", shards);
	for (; a->n_shards < shards; a->n_shards++) {
		struct shard *file = &a->shards[a->n_shards];
		if (shard_path(file->path, conf->directory, SPLIT_TRAIN, a->n_shards, shards, e) || file_map(&file->file, file->path, e))
			return -e->code;
	}
	return 0;
}

static int open_all(struct article *a, const struct manifest *m, struct error *e)
{
	const struct sequence_conf *conf = &a->conf;
	size_t batch = (size_t)conf->batch;

	a->jobs = calloc(batch, sizeof *a->jobs);
	a->record = calloc(batch, sizeof(struct record *));
	a->block = calloc(batch, sizeof(struct picture *));
	if (!a->jobs || !a->record || !a->block)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (open_shards(a, m, e) || !(a->team = decode_team_open(conf->threads, m->size, e)))
		return -e->code;
	if (conf->kind == SEQUENCE_NEW && !(a->records = ahead_start(interleave, a, conf->batch, e)))
		return -e->code;
	a->batches = ahead_start(conf->kind == SEQUENCE_NEW ? new_approach_batch : old_batch, a, BATCHES_AHEAD, e);
	return -e->code;
}

int article_open(struct article **out, const struct sequence_conf *conf, const struct manifest *m, struct error *e)
{
	struct article *a = calloc(1, sizeof *a);

	*out = NULL;
	if (!a)
		return fail(e, EXIT_INTERNAL, "no memory");
	a->conf = *conf;
	a->image_bytes = (size_t)m->size * (size_t)m->size;
	a->random = stream_open(conf->seed, (uint64_t)conf->rank);
	pthread_mutex_init(&a->error_lock, NULL);
	if (open_all(a, m, e)) {
		article_close(a);
		return -e->code;
	}
	*out = a;
	return 0;
}

int article_next(struct article *a, struct sequence_batch *out, struct error *e)
{
	free(a->current);
	a->current = NULL;
	void *item = ahead_take(a->batches);
	if (item == &ahead_broken) {
		pthread_mutex_lock(&a->error_lock);
		fail(e, a->error.code, "%s", a->error.text);
		pthread_mutex_unlock(&a->error_lock);
		return -e->code;
	}
	a->current = item;
	*out = (struct sequence_batch){ a->conf.batch, a->current->pixels, (const char (*)[SAMPLE_ID])a->current->id };
	return 0;
}

uint64_t article_decoded(const struct article *a)
{
	return decode_team_images(a->team);
}

void article_close(struct article *a)
{
	if (!a)
		return;
	ahead_stop(a->batches);
	ahead_stop(a->records);
	ahead_free(a->batches);
	ahead_free(a->records);
	decode_team_close(a->team);
	for (; a->taken < a->mapped; a->taken++)
		free(a->block[a->taken]);
	for (int i = 0; i < a->held; i++)
		free(a->buffer[i]);
	for (int i = 0; i < a->n_shards; i++)
		file_unmap(&a->shards[i].file);
	free(a->shards);
	free(a->jobs);
	free(a->record);
	free(a->block);
	free(a->current);
	free(a);
}
