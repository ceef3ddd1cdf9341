/* SPDX-License-Identifier: Apache-2.0 */
#include "stamps.h"

#include <stdlib.h>

struct stamp {
	struct stamp *next;
	struct hvd *h;
	uint32_t bucket, step; /* step: times that the bucket was reduced */
	uint64_t bytes;
	double begin;
};

/* By a thread of the driver, which must not call CUDA. One bucket is reduced at a time, so nobody else has this stamp. */
static void CUDA_CB ready(void *argument)
{
	struct stamp *s = argument;
	s->begin = now();
	trace_add(s->h, TRACE_READY, s->begin, s->begin, s->step, s->bucket, s->bytes);
}

static void CUDA_CB reduced(void *argument)
{
	struct stamp *s = argument;
	trace_add(s->h, TRACE_BUCKET, s->begin, now(), s->step++, s->bucket, s->bytes);
}

static struct stamp *stamp_of(struct hvd *h, struct stamp **stamps, const struct op *op)
{
	struct stamp *s = *stamps;
	while (s && s->bucket != (uint32_t)op->bucket)
		s = s->next;
	if (!s && (s = calloc(1, sizeof *s))) {
		*s = (struct stamp){ .next = *stamps, .h = h, .bucket = (uint32_t)op->bucket, .step = h->step };
		*stamps = s;
	}
	if (s)
		s->bytes = op->n * type_size(op->type);
	return s;
}

CUresult stamp_bucket(struct hvd *h, const struct driver *cu, struct stamp **stamps, const struct op *op, CUstream stream, bool end)
{
	struct stamp *s = h->trace ? stamp_of(h, stamps, op) : NULL;
	return s ? cu->cuLaunchHostFunc(stream, end ? reduced : ready, s) : CUDA_SUCCESS;
}

void stamps_retire(struct hvd *h, struct stamp *stamps)
{
	for (struct stamp *s = stamps; s; s = s->next) {
		h->step = s->step > h->step ? s->step : h->step;
		s->bucket = UINT32_MAX; /* nobody looks for it any more */
	}
}

void stamps_free(struct stamp **stamps)
{
	while (*stamps) {
		struct stamp *s = *stamps;
		*stamps = s->next;
		free(s);
	}
}
