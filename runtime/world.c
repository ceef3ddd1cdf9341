/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local char *error_line;

int fail(struct hvd *h, int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(error_line ? error_line : h->error, ERROR_BYTES, format, args);
	va_end(args);
	return status;
}

int explain(struct hvd *h, int status)
{
	struct hvd *top = h;
	int failed = status ? atomic_load(&h->mesh->failed) : 0;
	while (top->parent)
		top = top->parent;
	if (failed) {
		/* The watcher ends the process, before the program does with a status of its own. Of a death a sub-world may hear first;
		 * while that is being formed hvd_split() waits. */
		if (top->mesh->armed && (top == h || (failed == HVD_EPEER && h->mesh->owner && h->mesh->cause != CAUSE_LEFT && mesh_reason(top->mesh, -1))))
			watch_told(top->mesh);
		fail(h, status, "%s", h->mesh->fault);
	}
	return status;
}

int tell_lack(struct hvd *h, int status)
{
	if (status != HVD_ESYS || h->world.size < 2 || atomic_load(&h->mesh->failed))
		return status;
	return explain(h, mesh_fault(h->mesh, status, "cannot go on: %s", h->error));
}

void *gathered(struct hvd *h, const void *mine, size_t bytes, int *status)
{
	*status = HVD_EINVAL;
	if (!h->world.size)
		return NULL; /* the line of hvd_init(), which failed, stays */
	void *all = calloc((size_t)h->mesh->members, bytes);
	*status = explain(h, all ? mesh_gather(h->mesh, mine, bytes, all) : mesh_fault(h->mesh, HVD_ESYS, "has no memory for %d ranks", h->mesh->members));
	if (!*status)
		return all;
	free(all);
	return NULL;
}

const char *hvd_host(const struct hvd *h, int rank)
{
	if (rank < 0 || rank >= h->world.size)
		return NULL;
	return h->mesh->peer[h->mesh->member[rank]].host;
}

void describe_world(struct hvd *h)
{
	const struct mesh *m = h->mesh;
	struct hvd_world *w = &h->world;
	*w = (struct hvd_world){ .rank = m->me, .size = m->members, .epoch = w->epoch, .backend = w->backend };
	for (int r = 0; r < w->size; r++) {
		bool here = !strcmp(hvd_host(h, r), hvd_host(h, w->rank));
		int first = 0;
		while (strcmp(hvd_host(h, first), hvd_host(h, r)))
			first++;
		if (here && first == r)
			w->node = w->nodes;
		w->nodes += first == r;
		w->local_size += here;
		w->local_rank += here && r < w->rank;
	}
}

void arm(struct hvd *h)
{
	struct mesh *m = h->mesh;
	mesh_doing(m, DOING_COMPUTE, 0);
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		if (m->peer[i].doing.sequence <= m->sequence) /* what it said before it, too, had formed this world */
			m->peer[i].doing = (struct activity){ .what = DOING_COMPUTE, .sequence = m->sequence };
	m->owner = h;
	atomic_store(&m->armed, !h->conf.on_death && !h->parent);
	pthread_mutex_unlock(&m->lock);
}
