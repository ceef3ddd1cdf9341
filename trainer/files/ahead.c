/* SPDX-License-Identifier: Apache-2.0 */
#include "files/ahead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

char ahead_broken;

struct ahead {
	void *(*make)(void *from);
	void *from;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned first, last, room; /* items [first, last) are there */
	int stop;
	void *ring[];
};

static void *ahead_thread(void *argument)
{
	struct ahead *a = argument;

	for (;;) {
		void *item = a->make(a->from);
		pthread_mutex_lock(&a->lock);
		while (a->last - a->first == a->room && !a->stop)
			pthread_cond_wait(&a->changed, &a->lock);
		int stop = a->stop;
		if (!stop)
			a->ring[a->last++ % a->room] = item;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
		if (stop && item != &ahead_broken)
			free(item);
		if (stop || item == &ahead_broken)
			return NULL;
	}
}

struct ahead *ahead_start(void *(*make)(void *from), void *from, int room, struct error *e)
{
	struct ahead *a = calloc(1, sizeof *a + (size_t)room * sizeof *a->ring);

	if (!a) {
		fail(e, EXIT_INTERNAL, "no memory to read ahead");
		return NULL;
	}
	a->make = make;
	a->from = from;
	a->room = (unsigned)room;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	int rc = pthread_create(&a->thread, NULL, ahead_thread, a);
	if (rc) {
		fail(e, EXIT_INTERNAL, "a thread that reads ahead cannot be started: %s", strerror(rc));
		free(a);
		return NULL;
	}
	return a;
}

void *ahead_take(struct ahead *a)
{
	void *item = &ahead_broken;

	pthread_mutex_lock(&a->lock);
	while (a->first == a->last && !a->stop)
		pthread_cond_wait(&a->changed, &a->lock);
	if (!a->stop && a->ring[a->first % a->room] != &ahead_broken) /* that one stays where it is */
		item = a->ring[a->first++ % a->room];
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return item;
}

void ahead_stop(struct ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = 1;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	ahead_stop(a);
	pthread_join(a->thread, NULL);
	for (; a->first != a->last; a->first++)
		if (a->ring[a->first % a->room] != &ahead_broken)
			free(a->ring[a->first % a->room]);
	free(a);
}
