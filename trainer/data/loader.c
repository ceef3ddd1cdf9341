/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "data/hash.h"
#include "data/order.h"
#include "data/source.h"
#include "data/window.h"

/* A micro-batch's place in the ring. Micro-batch m, counted from the loader's start, lives in slot m % depth. */
struct slot {
	uint8_t *pixels;         /* [batch][size][size] */
	uint32_t *labels, *known;
	struct augment *augment; /* zeroes where nothing is augmented */
	uint64_t *sample;
	uint64_t *row_hash;
	_Atomic int done;        /* rows that are complete */
	_Atomic uint32_t ready;  /* low bits of m + 1 once all rows are; what the consumer waits on */
	pthread_mutex_t error_lock;
	int error_row;           /* lowest row that failed, so that the same error is told whatever the threads do */
	struct error error;
};

struct loader {
	struct loader_conf conf;
	uint64_t count;              /* rows this rank will read: evaluation; UINT64_MAX in training */
	size_t image_bytes, memory;
	struct slot *slots;
	_Atomic uint64_t ticket;     /* next row to be read */
	_Atomic uint32_t released;   /* low bits of the number of micro-batches given back; what threads wait on */
	_Atomic uint64_t released_all;
	_Atomic int stop;
	uint64_t next;               /* micro-batch the consumer gets next */
	pthread_t *threads;
	int n_threads;
	struct dataset_scratch **scratch;
	struct windows *windows;            /* NULL: all images in one order */
	struct window_cursor **cursor;      /* of each thread */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Place in the stream (training) or in the rank's share (evaluation) of micro-batch m's first row. */
static uint64_t micro_position(const struct loader_conf *c, uint64_t m)
{
	if (c->evaluate)
		return m * (uint64_t)c->batch;
	uint64_t step = m / (uint64_t)c->micros, global = (uint64_t)c->ranks * (uint64_t)c->micros * (uint64_t)c->batch;
	return order_micro(c->start + step * global, c->rank, c->micros, (int)(m % (uint64_t)c->micros), c->batch);
}

static int rows_in(const struct loader *l, uint64_t m)
{
	uint64_t left = l->count - m * (uint64_t)l->conf.batch;
	return left < (uint64_t)l->conf.batch ? (int)left : l->conf.batch;
}

static void note_error(struct slot *s, int row, const struct error *e)
{
	pthread_mutex_lock(&s->error_lock);
	if (!s->error.code || row < s->error_row) {
		s->error = *e;
		s->error_row = row;
	}
	pthread_mutex_unlock(&s->error_lock);
}

static uint64_t hash_row(const struct sample *sample, uint64_t pixels, const struct augment *a)
{
	uint64_t h = hash_u64(hash_bytes(0, sample->id, strlen(sample->id)), pixels);

	h = hash_u64(h, (uint64_t)sample->labels << 32 | sample->known);
	return hash_u64(h, (uint64_t)(uint16_t)a->x << 32 | (uint64_t)(uint16_t)a->y << 16 | a->flip);
}

/* A thread and what it works with. */
struct worker {
	struct loader *loader;
	struct dataset_scratch *scratch;
	struct window_cursor *cursor;
};

/* The sample at a position of the stream, ready to be read. */
static uint64_t find_sample(const struct worker *w, uint64_t position, struct error *e)
{
	const struct loader_conf *c = &w->loader->conf;
	uint64_t window, index;

	if (c->evaluate)
		return (uint64_t)c->rank + position * (uint64_t)c->ranks;
	if (!w->cursor)
		return order_sample(c->seed, dataset_count(c->dataset), position);
	index = window_sample(w->loader->windows, w->cursor, position, &window);
	windows_wait(w->loader->windows, window, e);
	return index;
}

static void read_row(const struct worker *w, struct slot *s, uint64_t m, int row)
{
	struct loader *l = w->loader;
	const struct loader_conf *c = &l->conf;
	uint64_t n = dataset_count(c->dataset), position = micro_position(c, m) + (uint64_t)row;
	int range = dataset_image_size(c->dataset) - c->image_size + 1;
	uint8_t *pixels = s->pixels + (size_t)row * l->image_bytes;
	struct error e = { 0 };

	uint64_t index = find_sample(w, position, &e);
	const struct sample *sample = &dataset_samples(c->dataset)[index];
	s->sample[row] = index;
	s->labels[row] = sample->labels;
	s->known[row] = sample->known;
	if (c->image_size && !c->evaluate)
		s->augment[row] = order_augment(c->seed, position / n, index, range);
	if (e.code || (!c->unread && dataset_read(c->dataset, index, w->scratch, pixels, &e)))
		note_error(s, row, &e);
	if (c->hash) /* at 100,000 images a second it would be a third of the time */
		s->row_hash[row] = hash_row(sample, hash_bytes(0, pixels, l->image_bytes), &s->augment[row]);
}

/* Until micro-batch m may use its slot; 0 when the loader is being closed. */
static int wait_for_slot(struct loader *l, uint64_t m)
{
	for (;;) {
		uint32_t seen = atomic_load(&l->released);
		if (atomic_load(&l->stop))
			return 0;
		if (m < atomic_load(&l->released_all) + (uint64_t)l->conf.depth)
			return 1;
		futex_wait(&l->released, seen);
	}
}

static void *decode_thread(void *argument)
{
	const struct worker w = *(struct worker *)argument;
	struct loader *l = w.loader;
	uint64_t batch = (uint64_t)l->conf.batch;

	free(argument);
	for (;;) {
		uint64_t ticket = atomic_fetch_add(&l->ticket, 1), m = ticket / batch;
		if (ticket >= l->count || !wait_for_slot(l, m))
			return NULL;
		struct slot *s = &l->slots[m % (uint64_t)l->conf.depth];
		read_row(&w, s, m, (int)(ticket % batch));
		if (atomic_fetch_add(&s->done, 1) + 1 == rows_in(l, m)) {
			atomic_store(&s->ready, (uint32_t)(m + 1));
			futex_wake(&s->ready);
		}
	}
}

/* One allocation a slot; rows of every array follow one another. */
static int make_slot(struct loader *l, struct slot *s)
{
	size_t n = (size_t)l->conf.batch;

	pthread_mutex_init(&s->error_lock, NULL);
	s->pixels = aligned_alloc(64, (n * l->image_bytes + 63) / 64 * 64);
	s->labels = calloc(n, sizeof *s->labels);
	s->known = calloc(n, sizeof *s->known);
	s->augment = calloc(n, sizeof *s->augment);
	s->sample = calloc(n, sizeof *s->sample);
	s->row_hash = calloc(n, sizeof *s->row_hash);
	if (!s->pixels || !s->labels || !s->known || !s->augment || !s->sample || !s->row_hash)
		return -1;
	memset(s->pixels, 0, n * l->image_bytes);
	l->memory += sizeof *s + n * (l->image_bytes + sizeof *s->labels + sizeof *s->known + sizeof *s->augment + sizeof *s->sample + sizeof *s->row_hash);
	return 0;
}

static int start_threads(struct loader *l, struct error *e)
{
	for (int t = 0; t < l->conf.threads; t++) {
		struct worker *start = malloc(sizeof *start);
		l->scratch[t] = dataset_scratch(l->conf.dataset);
		l->cursor[t] = l->windows ? window_cursor_new(l->windows) : NULL;
		if (!start || !l->scratch[t] || (l->windows && !l->cursor[t])) {
			free(start);
			return fail(e, EXIT_INTERNAL, "no memory for decode thread %d", t);
		}
		*start = (struct worker){ l, l->scratch[t], l->cursor[t] };
		int rc = pthread_create(&l->threads[t], NULL, decode_thread, start);
		if (rc) {
			free(start);
			return fail(e, EXIT_INTERNAL, "decode thread %d cannot be started: %s", t, strerror(rc));
		}
		l->n_threads++;
	}
	return 0;
}

int loader_open(struct loader **out, const struct loader_conf *conf, struct error *e)
{
	size_t n = dataset_count(conf->dataset), size = (size_t)dataset_image_size(conf->dataset);

	*out = NULL;
	if (conf->batch < 1 || conf->micros < 1 || conf->threads < 1 || conf->depth < 2 || conf->ranks < 1 || conf->rank < 0 || conf->rank >= conf->ranks)
		return fail(e, EXIT_USAGE, "loader: batch %d, micro-batches %d, threads %d, depth %d, rank %d of %d", conf->batch, conf->micros,
			    conf->threads, conf->depth, conf->rank, conf->ranks);
	if (conf->image_size < 0 || (size_t)conf->image_size > size)
		return fail(e, EXIT_USAGE, "windows of %d pixels cannot be cut from images of %zu", conf->image_size, size);
	if (n == 0 && !conf->evaluate)
		return fail(e, EXIT_DATA, "the %s split holds no images", dataset_split(conf->dataset));
	struct loader *l = calloc(1, sizeof *l);
	if (!l)
		return fail(e, EXIT_INTERNAL, "no memory");
	l->conf = *conf;
	l->image_bytes = size * size;
	l->count = UINT64_MAX;
	if (conf->evaluate)
		l->count = (n + (uint64_t)conf->ranks - 1 - (uint64_t)conf->rank) / (uint64_t)conf->ranks;
	l->memory = sizeof *l + (size_t)conf->threads * sizeof *l->threads;
	l->slots = calloc((size_t)conf->depth, sizeof *l->slots);
	l->threads = calloc((size_t)conf->threads, sizeof *l->threads);
	l->scratch = calloc((size_t)conf->threads, sizeof(struct dataset_scratch *));
	l->cursor = calloc((size_t)conf->threads, sizeof(struct window_cursor *));
	int rc = l->slots && l->threads && l->scratch && l->cursor ? 0 : fail(e, EXIT_INTERNAL, "no memory");
	for (int s = 0; !rc && s < conf->depth; s++)
		if (make_slot(l, &l->slots[s]))
			rc = fail(e, EXIT_INTERNAL, "no memory for %d slots of %d images of %zu x %zu", conf->depth, conf->batch, size, size);
	if (!rc && conf->window && !conf->evaluate)
		rc = windows_open(&l->windows, conf->dataset, conf->seed, conf->window, conf->start, e);
	if (!rc)
		rc = start_threads(l, e);
	if (rc) {
		loader_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

/* What the engine sees; pointers into the slot. */
static void fill_batch(const struct loader *l, struct slot *s, int rows, struct loader_batch *out)
{
	uint64_t m = l->next, h = 0;

	for (int row = 0; l->conf.hash && row < rows; row++)
		h = hash_u64(h, s->row_hash[row]);
	*out = (struct loader_batch){
		.batch = {
			.count = rows,
			.pixels = s->pixels,
			.labels = s->labels,
			.known = s->known,
			.augment = l->conf.image_size && !l->conf.evaluate ? s->augment : NULL,
		},
		.sample = s->sample,
		.position = micro_position(&l->conf, m),
		.hash = h,
		.slot = (int)(m % (uint64_t)l->conf.depth),
	};
}

int loader_next(struct loader *l, struct loader_batch *out, double *waited, struct error *e)
{
	uint64_t m = l->next;
	struct slot *s = &l->slots[m % (uint64_t)l->conf.depth];

	if (waited)
		*waited = 0;
	if (l->conf.evaluate && m * (uint64_t)l->conf.batch >= l->count)
		return 0;
	/* a slot that was never given back would never be filled again */
	if (m >= atomic_load(&l->released_all) + (uint64_t)l->conf.depth)
		return fail(e, EXIT_INTERNAL, "loader: all %d slots are in use; loader_release() comes before the next one", l->conf.depth);
	if (atomic_load(&s->ready) != (uint32_t)(m + 1)) {
		double begin = now();
		uint32_t seen;
		while ((seen = atomic_load(&s->ready)) != (uint32_t)(m + 1))
			futex_wait(&s->ready, seen);
		if (waited)
			*waited = now() - begin;
	}
	if (s->error.code)
		return fail(e, s->error.code, "%s", s->error.text);
	fill_batch(l, s, rows_in(l, m), out);
	l->next++;
	return 1;
}

void loader_release(struct loader *l, int slot)
{
	atomic_store(&l->slots[slot].done, 0);
	atomic_fetch_add(&l->released_all, 1);
	atomic_fetch_add(&l->released, 1);
	futex_wake(&l->released);
}

uint64_t loader_sample(const struct loader *l, uint64_t position)
{
	uint64_t window;
	struct window_cursor *c = l->windows ? window_cursor_new(l->windows) : NULL;
	uint64_t index = c ? window_sample(l->windows, c, position, &window) : order_sample(l->conf.seed, dataset_count(l->conf.dataset), position);

	window_cursor_free(c);
	return index;
}

size_t loader_memory(const struct loader *l)
{
	return l->memory;
}

void loader_close(struct loader *l)
{
	if (!l)
		return;
	atomic_store(&l->stop, 1);
	atomic_fetch_add(&l->released, 1);
	futex_wake(&l->released);
	if (l->windows)
		windows_stop(l->windows);
	for (int t = 0; t < l->n_threads; t++)
		pthread_join(l->threads[t], NULL);
	for (int t = 0; l->scratch && t < l->conf.threads; t++)
		dataset_scratch_free(l->scratch[t]);
	for (int t = 0; l->cursor && t < l->conf.threads; t++)
		window_cursor_free(l->cursor[t]);
	windows_close(l->windows);
	for (int i = 0; l->slots && i < l->conf.depth; i++) {
		struct slot *s = &l->slots[i];
		free(s->pixels);
		free(s->labels);
		free(s->known);
		free(s->augment);
		free(s->sample);
		free(s->row_hash);
	}
	free(l->slots);
	free(l->threads);
	free(l->scratch);
	free(l->cursor);
	free(l);
}
