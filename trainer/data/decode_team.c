/* SPDX-License-Identifier: Apache-2.0 */
#include "data/decode_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/example.h"
#include "image/image.h"

struct member {
	struct decode_team *team;
	struct decoder *decoder;
	pthread_t thread; /* of all but the first, who is the caller */
};

struct decode_team {
	int size, threads, helpers, count;
	int whole, stop; /* whole: all helpers are there */
	const struct decode_job *jobs;
	_Atomic int next;
	_Atomic uint64_t decoded;
	pthread_mutex_t gate; /* closed until all helpers are there: half a team would wait for ever at the barriers */
	pthread_barrier_t begin, end;
	pthread_mutex_t error_lock;
	struct error error; /* of the lowest job that failed */
	int failed;
	struct member member[];
};

static int decode(struct decode_team *t, const struct decode_job *job, struct decoder *d, struct error *e)
{
	const struct record *r = job->record;
	struct error why = { 0 };
	struct example x;

	int rc = example_parse(r->data, r->size, &x, &why);
	if (!rc)
		rc = sample_name(job->id, x.filename.data, x.filename.size, &why);
	if (!rc)
		rc = decode_square(d, x.encoded.data, x.encoded.size, job->pixels, t->size, &why);
	if (rc)
		return fail(e, why.code, "%s: record %zu at byte %zu: %s", r->path, r->number, r->offset, why.text);
	atomic_fetch_add(&t->decoded, 1);
	return 0;
}

static void work(struct member *m)
{
	struct decode_team *t = m->team;

	for (int i; (i = atomic_fetch_add(&t->next, 1)) < t->count;) {
		struct error e = { 0 };
		if (decode(t, &t->jobs[i], m->decoder, &e) == 0)
			continue;
		pthread_mutex_lock(&t->error_lock);
		if (!t->error.code || i < t->failed) {
			t->error = e;
			t->failed = i;
		}
		pthread_mutex_unlock(&t->error_lock);
	}
}

static void *helper(void *argument)
{
	struct member *m = argument;
	struct decode_team *t = m->team;

	pthread_mutex_lock(&t->gate);
	int whole = t->whole;
	pthread_mutex_unlock(&t->gate);
	while (whole) {
		pthread_barrier_wait(&t->begin);
		if (t->stop)
			break;
		work(m);
		pthread_barrier_wait(&t->end);
	}
	return NULL;
}

int decode_team_run(struct decode_team *t, const struct decode_job *jobs, int count, struct error *e)
{
	t->jobs = jobs;
	t->count = count;
	atomic_store(&t->next, 0);
	if (t->helpers)
		pthread_barrier_wait(&t->begin);
	work(&t->member[0]);
	if (t->helpers)
		pthread_barrier_wait(&t->end);
	return t->error.code ? fail(e, t->error.code, "%s", t->error.text) : 0;
}

static int start_helpers(struct decode_team *t, struct error *e)
{
	pthread_mutex_lock(&t->gate);
	for (int i = 1; i < t->threads && !e->code; i++) {
		int rc = pthread_create(&t->member[i].thread, NULL, helper, &t->member[i]);
		if (rc)
			fail(e, EXIT_INTERNAL, "decode thread %d cannot be started: %s", i, strerror(rc));
		else
			t->helpers++;
	}
	t->whole = !e->code;
	pthread_barrier_init(&t->begin, NULL, (unsigned)t->helpers + 1);
	pthread_barrier_init(&t->end, NULL, (unsigned)t->helpers + 1);
	pthread_mutex_unlock(&t->gate);
	return -e->code;
}

static void free_team(struct decode_team *t)
{
	for (int i = 1; i <= t->helpers; i++)
		pthread_join(t->member[i].thread, NULL);
	for (int i = 0; i < t->threads; i++)
		decoder_free(t->member[i].decoder);
	free(t);
}

struct decode_team *decode_team_open(int threads, int size, struct error *e)
{
	struct decode_team *t = calloc(1, sizeof *t + (size_t)threads * sizeof *t->member);

	if (!t) {
		fail(e, EXIT_INTERNAL, "no memory for %d threads", threads);
		return NULL;
	}
	t->size = size;
	t->threads = threads;
	pthread_mutex_init(&t->gate, NULL);
	pthread_mutex_init(&t->error_lock, NULL);
	for (int i = 0; i < threads && !e->code; i++) {
		t->member[i] = (struct member){ .team = t, .decoder = decoder_new() };
		if (!t->member[i].decoder)
			fail(e, EXIT_INTERNAL, "no memory for a decoder");
	}
	if (!e->code)
		start_helpers(t, e);
	if (e->code) {
		free_team(t);
		return NULL;
	}
	return t;
}

uint64_t decode_team_images(const struct decode_team *t)
{
	return atomic_load(&t->decoded);
}

void decode_team_close(struct decode_team *t)
{
	if (!t)
		return;
	t->stop = 1;
	if (t->helpers)
		pthread_barrier_wait(&t->begin);
	free_team(t);
}
