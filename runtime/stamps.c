/* SPDX-License-Identifier: Apache-2.0 */
#include "stamps.h"

#include <stdlib.h>

struct stamp {
	struct stamp *next;
	struct hvd *h;         /* NULL: what still comes of it is of no step */
	enum trace_kind kind;  /* TRACE_BUCKET, or TRACE_WAIT: of the end of a step */
	uint32_t bucket, step; /* step: times that it was stamped */
	uint64_t bytes;
	double begin;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* while it is held, no world of a stamp ends */

/* By a thread of the driver, which must not call CUDA. A stream does one thing at a time, so nobody else has this stamp. A bucket begins when those
 * before it are through: only the program's stream knows when the last gradient was there. */
static void CUDA_CB begins(void *argument)
{
	struct stamp *s = argument;
	pthread_mutex_lock(&lock);
	s->begin = now();
	if (s->h && s->kind == TRACE_WAIT)
		trace_add(s->h, TRACE_READY, s->begin, s->begin, s->step, s->bucket, s->bytes);
	pthread_mutex_unlock(&lock);
}

static void CUDA_CB ends(void *argument)
{
	struct stamp *s = argument;
	pthread_mutex_lock(&lock);
	if (s->h)
		trace_add(s->h, s->kind, s->begin, now(), s->step++, s->bucket, s->bytes);
	if (s->h && s->kind == TRACE_WAIT && s->step > s->h->step) /* of a graph: the program's calls do not count it */
		s->h->step = s->step;
	pthread_mutex_unlock(&lock);
}

static struct stamp *stamp_of(struct hvd *h, struct stamp **stamps, const struct op *op)
{
	struct stamp *s = *stamps;
	while (s && (s->bucket != (uint32_t)op->bucket || !s->h))
		s = s->next;
	if (!s && (s = calloc(1, sizeof *s))) {
		*s = (struct stamp){ .next = *stamps, .h = h, .kind = op->bucket < 0 ? TRACE_WAIT : TRACE_BUCKET, .bucket = (uint32_t)op->bucket, .step = h->step };
		*stamps = s;
	}
	if (s)
		s->bytes = op->n * type_size(op->type);
	return s;
}

CUresult stamp(struct hvd *h, const struct driver *cu, struct stamp **stamps, const struct op *op, CUstream stream, bool end)
{
	struct stamp *s = h->trace ? stamp_of(h, stamps, op) : NULL;
	return s ? cu->cuLaunchHostFunc(stream, end ? ends : begins, s) : CUDA_SUCCESS;
}

void stamps_retire(struct hvd *h, struct stamp *stamps)
{
	pthread_mutex_lock(&lock);
	for (struct stamp *s = stamps; s; s = s->next) {
		h->step = s->step > h->step ? s->step : h->step;
		s->h = NULL;
	}
	pthread_mutex_unlock(&lock);
}

void stamps_free(struct stamp **stamps)
{
	while (*stamps) {
		struct stamp *s = *stamps;
		*stamps = s->next;
		free(s);
	}
}
