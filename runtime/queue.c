/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH 4096u /* collectives in flight */

/* One producer, the program; one consumer, the thread. The two counters wrap. */
struct queue {
	struct op op[LENGTH];
	_Atomic uint32_t posted, completed;
	_Atomic uint32_t thread_sleeps, caller_sleeps;
	_Atomic int status; /* of the first collective that failed; those after it fail alike */
	_Atomic bool stop;
	pthread_t thread;
};

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int run(struct hvd *h, const struct op *op)
{
	int status = atomic_load(&h->mesh->failed); /* shared memory is in no known state then */
	if (status)
		return status;
	mesh_doing(h->mesh, op->bucket >= 0 ? DOING_BUCKET : DOING_OP + op->kind, (uint32_t)op->bucket);
	double begin = h->trace ? now() : 0;
	status = h->backend->run(h, op);
	if (h->trace)
		trace_add(h, op->bucket >= 0 ? TRACE_BUCKET : TRACE_COLLECTIVE, begin, now(), op->step,
			  op->bucket >= 0 ? (uint32_t)op->bucket : op->kind, op->n * type_size(op->type));
	if (!status)
		mesh_doing(h->mesh, DOING_COMPUTE, 0);
	return status;
}

static void *consume(void *arg)
{
	struct hvd *h = arg;
	struct queue *q = h->queue;
	for (;;) {
		uint32_t done = atomic_load(&q->completed), posted = atomic_load(&q->posted);
		if (done == posted) {
			if (atomic_load(&q->stop))
				return NULL;
			atomic_store(&q->thread_sleeps, 1);
			if (atomic_load(&q->posted) == posted && !atomic_load(&q->stop))
				sleep_on(&q->posted, posted);
			atomic_store(&q->thread_sleeps, 0);
			continue;
		}
		int status = atomic_load(&q->status);
		if (!status && (status = run(h, &q->op[done % LENGTH])))
			atomic_store(&q->status, status);
		atomic_store(&q->completed, done + 1);
		if (atomic_load(&q->caller_sleeps))
			wake(&q->completed);
	}
}

static int start(struct hvd *h)
{
	struct queue *q = calloc(1, sizeof *q);
	if (!q)
		return fail(h, HVD_ESYS, "no memory for the queue of collectives");
	h->queue = q;
	if (!thread_start(&q->thread, consume, h))
		return 0;
	free(q);
	h->queue = NULL;
	return fail(h, HVD_ESYS, "no communication thread");
}

/* What a failed collective left to say. */
static int explain(struct hvd *h, int status)
{
	if (status && atomic_load(&h->mesh->failed))
		fail(h, status, "%s", h->mesh->fault);
	return status;
}

static int wait_for(struct hvd *h, uint32_t number)
{
	struct queue *q = h->queue;
	for (;;) {
		uint32_t done = atomic_load(&q->completed);
		if ((int32_t)(done - number) >= 0)
			return explain(h, atomic_load(&q->status));
		atomic_store(&q->caller_sleeps, 1);
		if (atomic_load(&q->completed) == done)
			sleep_on(&q->completed, done);
		atomic_store(&q->caller_sleeps, 0);
	}
}

long queue_post(struct hvd *h, const struct op *op)
{
	int status = check_op(h, op);
	if (!status && !h->queue)
		status = start(h);
	if (status)
		return status;
	struct queue *q = h->queue;
	uint32_t posted = atomic_load(&q->posted);
	if (posted - atomic_load(&q->completed) == LENGTH && (status = wait_for(h, posted - LENGTH + 1)))
		return status;
	q->op[posted % LENGTH] = *op;
	atomic_store(&q->posted, posted + 1);
	if (atomic_load(&q->thread_sleeps))
		wake(&q->posted);
	return (long)(posted + 1);
}

/* Of those that were started, not a failure's number. */
static int check_number(struct hvd *h, long number)
{
	bool known = h->queue && number == (long)(uint32_t)number && (int32_t)(atomic_load(&h->queue->posted) - (uint32_t)number) >= 0;
	return known ? 0 : fail(h, HVD_EINVAL, "no such request: %ld", number);
}

int queue_test(struct hvd *h, long number)
{
	int status = check_number(h, number);
	if (status || (int32_t)(atomic_load(&h->queue->completed) - (uint32_t)number) < 0)
		return status;
	status = explain(h, atomic_load(&h->queue->status));
	return status ? status : 1;
}

int queue_wait(struct hvd *h, long number)
{
	int status = check_number(h, number);
	return status ? status : wait_for(h, (uint32_t)number);
}

int queue_drain(struct hvd *h)
{
	return h->queue ? wait_for(h, atomic_load(&h->queue->posted)) : 0;
}

int queue_run(struct hvd *h, const struct op *op)
{
	int status = check_op(h, op);
	if (!status)
		status = queue_drain(h);
	return status ? status : explain(h, run(h, op));
}

void queue_reset(struct hvd *h)
{
	if (h->queue)
		atomic_store(&h->queue->status, 0);
}

void queue_close(struct hvd *h)
{
	struct queue *q = h->queue;
	if (!q)
		return;
	atomic_store(&q->stop, true);
	wake(&q->posted);
	pthread_join(q->thread, NULL);
	free(q);
	h->queue = NULL;
}
