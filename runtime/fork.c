/* SPDX-License-Identifier: Apache-2.0
 * A process that the program forks has the rank's links, too. Open there they would outlive the rank, and hide its end from the others until the
 * deadline; so it closes them at once. */
#include "world.h"

#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hvd *first; /* of the handles whose worlds stand */

/* No link is just being opened or closed, and its number another file's. */
static void before(void)
{
	pthread_mutex_lock(&lock);
	for (struct hvd *h = first; h; h = h->next)
		pthread_mutex_lock(&h->mesh->lock);
}

static void after(void)
{
	for (struct hvd *h = first; h; h = h->next)
		pthread_mutex_unlock(&h->mesh->lock);
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	for (struct hvd *h = first; h; h = h->next) {
		links_close(&h->mesh->links);
		for (int i = 0; i < h->mesh->size; i++) {
			struct peer *p = &h->mesh->peer[i];
			if (p->fd >= 0)
				close(p->fd);
			p->fd = -1;
		}
	}
	after();
}

void forks_let_go(struct hvd *h)
{
	static bool told;
	pthread_mutex_lock(&lock);
	if (!told)
		told = !pthread_atfork(before, after, in_child);
	h->next = first;
	first = h;
	pthread_mutex_unlock(&lock);
}

void forks_forget(const struct hvd *h)
{
	pthread_mutex_lock(&lock);
	for (struct hvd **at = &first; *at; at = &(*at)->next)
		if (*at == h) {
			*at = h->next;
			break;
		}
	pthread_mutex_unlock(&lock);
}
