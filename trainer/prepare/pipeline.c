/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/pipeline.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/loader.h"
#include "data/order.h"
#include "data/random.h"
#include "image/resize.h"

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int rate_of_loader(struct rate *r, const struct dataset *d, int threads, double seconds, struct error *e)
{
	struct loader_conf conf = { .dataset = d, .seed = 1, .batch = 32, .micros = 1, .ranks = 1, .threads = threads, .depth = 4 };
	struct loader_batch b;
	struct loader *l;

	*r = (struct rate){ 0 };
	if (loader_open(&l, &conf, e))
		return -e->code;
	double begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	int rc = 1;
	while (rc == 1 && now(CLOCK_MONOTONIC) - begin < seconds && (rc = loader_next(l, &b, NULL, e)) == 1) {
		r->images += (size_t)b.batch.count;
		loader_release(l, b.slot);
	}
	r->seconds = now(CLOCK_MONOTONIC) - begin;
	r->cpu_seconds = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	loader_close(l);
	return rc < 0 ? rc : 0;
}

int rate_of_decoding(struct rate *r, const struct origin *o, int size, int threads, double seconds, struct error *e)
{
	double begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	_Atomic size_t next = 0;
	size_t images = 0;

#pragma omp parallel num_threads(threads) reduction(+ : images)
	{
		struct decoder *d = decoder_new();
		uint8_t *square = malloc((size_t)size * (size_t)size);
		struct error mine = { 0 };
		struct image image;
		if (!d || !square)
			fail(&mine, EXIT_INTERNAL, "no memory for a decoder");
		while (!mine.code && now(CLOCK_MONOTONIC) - begin < seconds)
			if (o->decode(o, atomic_fetch_add(&next, 1) % o->count, d, &image, &mine) == 0 &&
			    resize_area(image.pixels, image.width, image.height, square, size, &mine) == 0)
				images++;
		if (mine.code) {
#pragma omp critical
			fail(e, mine.code, "%s", mine.text);
		}
		decoder_free(d);
		free(square);
	}
	*r = (struct rate){ images, now(CLOCK_MONOTONIC) - begin, now(CLOCK_PROCESS_CPUTIME_ID) - cpu };
	return -e->code;
}

static int by_id(const void *a, const void *b)
{
	return strcmp((*(const struct sample *const *)a)->id, (*(const struct sample *const *)b)->id);
}

/* Pairs of the same patient in the batches of an order; per batch. */
static double pairs_per_batch(const uint32_t *patients, size_t n, size_t batch)
{
	size_t pairs = 0, batches = n / batch;

	for (size_t b = 0; b < batches; b++)
		for (size_t i = b * batch; i < (b + 1) * batch; i++)
			for (size_t j = b * batch; j < i; j++)
				pairs += patients[i] == patients[j];
	return batches ? (double)pairs / (double)batches : 0;
}

enum { FILE_RECORDS = 256, FILES_AT_ONCE = 10, BUFFER = 500 };

/* What a shuffle buffer gives out when records come from `at_once` files in turn: the new approach, whose files are shuffled, and
 * with one file at a time the old one, whose files are not. */
static void buffered_order(const uint32_t *by_name, size_t n, int at_once, uint64_t seed, uint32_t *out)
{
	size_t files = (n + FILE_RECORDS - 1) / FILE_RECORDS, taken[FILES_AT_ONCE] = { 0 }, file[FILES_AT_ONCE], next_file = 0, given = 0, read = 0;
	uint32_t buffer[BUFFER];
	size_t held = 0;
	struct stream s = stream_open(seed, 0);

	for (int k = 0; k < at_once; k++)
		file[k] = next_file++;
	for (size_t turn = 0; given < n; turn++) {
		int k = (int)(turn % (size_t)at_once);
		if (read < n && file[k] < files) {
			/* the order of records within a file is never shuffled */
			size_t which = at_once > 1 ? order_sample(seed, files, file[k]) : file[k], at = which * FILE_RECORDS + taken[k]++;
			if (at < n) {
				buffer[held++] = by_name[at];
				read++;
			}
			if (taken[k] == FILE_RECORDS || at + 1 >= n) {
				taken[k] = 0;
				file[k] = next_file++;
			}
		}
		if (held == BUFFER || (read == n && held)) {
			size_t pick = stream_bits(&s) % held;
			out[given++] = buffer[pick];
			buffer[pick] = buffer[--held];
		}
	}
}

int shuffle_measure(struct shuffle_quality *q, const struct sample *samples, size_t n, int batch, uint64_t seed, struct error *e)
{
	const struct sample **sorted = malloc((n + 1) * sizeof(struct sample *));
	uint32_t *by_name = malloc((n + 1) * sizeof *by_name), *order = malloc((n + 1) * sizeof *order);
	int rc = sorted && by_name && order ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu samples", n);

	*q = (struct shuffle_quality){ 0 };
	if (!rc && n > 1) {
		double pairs = 0;
		for (size_t i = 0; i < n; i++)
			sorted[i] = &samples[i];
		qsort(sorted, n, sizeof(struct sample *), by_id);
		for (size_t i = 0, run = 0; i < n; i++) {
			by_name[i] = sorted[i]->patient;
			run = i && by_name[i] == by_name[i - 1] ? run + 1 : 0;
			pairs += (double)run;
		}
		q->chance = pairs * batch * (batch - 1) / ((double)n * (double)(n - 1));
		for (size_t i = 0; i < n; i++)
			order[i] = samples[order_sample(seed, n, i)].patient;
		q->keyed = pairs_per_batch(order, n, (size_t)batch);
		buffered_order(by_name, n, 1, seed, order);
		q->old = pairs_per_batch(order, n, (size_t)batch);
		buffered_order(by_name, n, FILES_AT_ONCE, seed, order);
		q->new = pairs_per_batch(order, n, (size_t)batch);
	}
	free(sorted);
	free(by_name);
	free(order);
	return rc;
}
