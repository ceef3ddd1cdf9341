/* SPDX-License-Identifier: Apache-2.0 */
#include "data/window.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "data/hash.h"
#include "data/order.h"

/* Keeps the order of files apart from that of images, and both from the permutation of all images. */
static const uint64_t SALT_FILES = 0x66696C6573, SALT_IMAGES = 0x77696E646F77;

struct windows {
	const struct dataset *dataset;
	const uint64_t *first;  /* [shards + 1] */
	uint64_t seed, shards, files, count;
	struct window_cursor *cursor; /* the reader's */
	pthread_t thread;
	int started;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic uint64_t entered; /* latest window that somebody wants */
	_Atomic uint64_t fetched; /* windows before this one have been read */
	_Atomic int failed;
	int stop;
	struct error error;
};

struct window_cursor {
	uint64_t epoch;   /* UINT64_MAX: none yet */
	uint64_t *shard;  /* [shards] in the epoch's order */
	uint64_t *start;  /* [shards + 1] images of the epoch before each */
};

struct window_cursor *window_cursor_new(const struct windows *w)
{
	struct window_cursor *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->epoch = UINT64_MAX;
	c->shard = calloc(w->shards, sizeof *c->shard);
	c->start = calloc(w->shards + 1, sizeof *c->start);
	if (c->shard && c->start)
		return c;
	window_cursor_free(c);
	return NULL;
}

void window_cursor_free(struct window_cursor *c)
{
	if (!c)
		return;
	free(c->shard);
	free(c->start);
	free(c);
}

static void turn_to(const struct windows *w, struct window_cursor *c, uint64_t epoch)
{
	if (c->epoch == epoch)
		return;
	c->epoch = epoch;
	for (uint64_t i = 0; i < w->shards; i++) {
		uint64_t shard = order_sample(w->seed ^ SALT_FILES, w->shards, epoch * w->shards + i);
		c->shard[i] = shard;
		c->start[i + 1] = c->start[i] + w->first[shard + 1] - w->first[shard];
	}
}

/* The last i in [low, high) with start[i] <= at. */
static uint64_t place(const uint64_t *start, uint64_t low, uint64_t high, uint64_t at)
{
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		if (start[middle] <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static uint64_t windows_per_epoch(const struct windows *w)
{
	return (w->shards + w->files - 1) / w->files;
}

static uint64_t end_of(const struct windows *w, uint64_t begin)
{
	return begin + w->files < w->shards ? begin + w->files : w->shards;
}

uint64_t window_sample(const struct windows *w, struct window_cursor *c, uint64_t position, uint64_t *window)
{
	turn_to(w, c, position / w->count);
	uint64_t at = position % w->count, begin = place(c->start, 0, w->shards, at) / w->files * w->files, end = end_of(w, begin);
	uint64_t number = c->epoch * windows_per_epoch(w) + begin / w->files, size = c->start[end] - c->start[begin];
	/* a permutation for every window: its number stands where the epoch's does elsewhere */
	uint64_t drawn = c->start[begin] + order_sample(w->seed ^ SALT_IMAGES, size, number * size + at - c->start[begin]);
	uint64_t i = place(c->start, begin, end, drawn);

	*window = number;
	return w->first[c->shard[i]] + drawn - c->start[i];
}

/* ---- reading ahead ----------------------------------------------------------------------------------- */

static int stopped(struct windows *w)
{
	pthread_mutex_lock(&w->lock);
	int stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	return stop;
}

static int fetch_window(struct windows *w, uint64_t number, struct error *e)
{
	uint64_t begin = number % windows_per_epoch(w) * w->files, end = end_of(w, begin);

	turn_to(w, w->cursor, number / windows_per_epoch(w));
	for (uint64_t i = begin; i < end && !stopped(w); i++)
		if (dataset_fetch(w->dataset, w->cursor->shard[i], e))
			return -e->code;
	return 0;
}

/* Reads the window that is used and the one behind it. */
static void *read_ahead(void *argument)
{
	struct windows *w = argument;
	struct error e = { 0 };

	for (uint64_t number = atomic_load(&w->fetched);; number++) {
		pthread_mutex_lock(&w->lock);
		while (number > atomic_load(&w->entered) + 1 && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		int stop = w->stop;
		pthread_mutex_unlock(&w->lock);
		int rc = stop ? 0 : fetch_window(w, number, &e);
		pthread_mutex_lock(&w->lock);
		if (rc)
			w->error = e;
		atomic_store(&w->failed, rc != 0);
		if (!rc)
			atomic_store(&w->fetched, number + 1);
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		if (stop || rc)
			return NULL;
	}
}

int windows_wait(struct windows *w, uint64_t window, struct error *e)
{
	if (atomic_load(&w->entered) >= window && atomic_load(&w->fetched) > window)
		return 0;
	pthread_mutex_lock(&w->lock);
	if (atomic_load(&w->entered) < window)
		atomic_store(&w->entered, window);
	pthread_cond_broadcast(&w->changed);
	while (atomic_load(&w->fetched) <= window && !atomic_load(&w->failed) && !w->stop)
		pthread_cond_wait(&w->changed, &w->lock);
	int rc = atomic_load(&w->fetched) <= window && atomic_load(&w->failed) ? fail(e, w->error.code, "%s", w->error.text) : 0;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

int windows_open(struct windows **out, const struct dataset *d, uint64_t seed, int files, uint64_t position, struct error *e)
{
	const uint64_t *first;
	size_t shards = dataset_shards(d, &first);
	uint64_t number;

	*out = NULL;
	if (!shards)
		return fail(e, EXIT_USAGE, "--shuffle-window: these images are in memory, not in files");
	struct windows *w = calloc(1, sizeof *w);
	if (!w)
		return fail(e, EXIT_INTERNAL, "no memory");
	*w = (struct windows){ .dataset = d, .first = first, .seed = seed, .shards = shards, .files = (uint64_t)files, .count = dataset_count(d) };
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->cursor = window_cursor_new(w);
	if (!w->cursor) {
		windows_close(w);
		return fail(e, EXIT_INTERNAL, "no memory for the order of %zu files", shards);
	}
	window_sample(w, w->cursor, position, &number);
	w->entered = w->fetched = number;
	int rc = pthread_create(&w->thread, NULL, read_ahead, w);
	w->started = rc == 0;
	if (rc) {
		windows_close(w);
		return fail(e, EXIT_INTERNAL, "the thread that reads files ahead cannot be started");
	}
	*out = w;
	return 0;
}

void windows_stop(struct windows *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = 1;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

void windows_close(struct windows *w)
{
	if (!w)
		return;
	windows_stop(w);
	if (w->started)
		pthread_join(w->thread, NULL);
	window_cursor_free(w->cursor);
	free(w);
}

uint64_t window_layout(const struct dataset *d)
{
	const uint64_t *first;
	size_t shards = dataset_shards(d, &first);

	return hash_bytes(shards, first, shards ? (shards + 1) * sizeof *first : 0);
}
