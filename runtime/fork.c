/* SPDX-License-Identifier: Apache-2.0
 * A process that the program forks has the rank's links, too. Open there they would outlive the rank, and hide its end from the others until the
 * deadline; so it closes them at once. */
#include "mesh.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mesh *first; /* of those that have links, or are being formed */

/* No link is just being opened or closed, and its number another file's. */
static void before(void)
{
	pthread_mutex_lock(&lock);
	for (struct mesh *m = first; m; m = m->next)
		pthread_mutex_lock(&m->lock);
}

static void after(void)
{
	for (struct mesh *m = first; m; m = m->next)
		pthread_mutex_unlock(&m->lock);
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	for (struct mesh *m = first; m; m = m->next) {
		links_let_go(&m->links);
		for (int i = 0; i < m->size; i++)
			close_fd(&m->peer[i].fd);
	}
	after();
}

void forks_let_go(struct mesh *m)
{
	static bool told;
	pthread_mutex_lock(&lock);
	if (!told)
		told = !pthread_atfork(before, after, in_child);
	m->next = first;
	first = m;
	pthread_mutex_unlock(&lock);
}

void forks_forget(const struct mesh *m)
{
	pthread_mutex_lock(&lock);
	for (struct mesh **at = &first; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	pthread_mutex_unlock(&lock);
}
