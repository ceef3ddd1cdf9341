/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <pthread.h>
#include <stdlib.h>

#define ROOM 64 /* for collectives in flight, at first */

/* The program posts, a thread carries out. */
struct queue {
	struct op *op; /* [room] */
	long room;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	long posted, completed, device; /* numbers of the last ones; device: on device memory */
	long forgotten;                 /* up to which none is asked for any more */
	long failed;                    /* the first collective that failed, 0: none; … */
	int status;                     /* … those after it fail alike */
	char error[ERROR_BYTES];        /* its line, for those that ask for it or a later one */
	bool stop;
	pthread_t thread;
};

static int run(struct hvd *h, const struct op *op, bool beside)
{
	int status = atomic_load(&h->mesh->failed); /* shared memory is in no known state then */
	if (status)
		return status;
	mesh_doing(h->mesh, op->bucket >= 0 ? DOING_BUCKET : DOING_OP + op->kind, (uint32_t)op->bucket);
	double begin = h->trace ? now() : 0;
	status = h->backend->run(h, op);
	if (h->trace)
		trace_add(h, op->bucket >= 0 ? TRACE_BUCKET : TRACE_COLLECTIVE, begin, now(), op->bucket >= 0 ? op->step : h->step,
			  op->bucket >= 0 ? (uint32_t)op->bucket : op->kind + beside * OP_KINDS, (op->blocks ? op->blocks[h->world.rank] : op->n) * type_size(op->type));
	if (!status)
		mesh_doing(h->mesh, DOING_COMPUTE, 0);
	return status;
}

static void *consume(void *arg)
{
	struct hvd *h = arg;
	struct queue *q = h->queue;
	error_line = q->error;
	pthread_mutex_lock(&q->lock);
	for (;;) {
		while (q->completed == q->posted && !q->stop)
			pthread_cond_wait(&q->changed, &q->lock);
		if (q->completed == q->posted)
			break;
		int status = q->status;
		struct op op = q->op[q->completed % q->room];
		pthread_mutex_unlock(&q->lock);
		if (!status)
			status = run(h, &op, true);
		pthread_mutex_lock(&q->lock);
		q->completed++;
		if (status && !q->status) {
			q->status = status;
			q->failed = q->completed;
		}
		pthread_cond_broadcast(&q->changed);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

static int start(struct hvd *h)
{
	struct queue *q = h->queue = calloc(1, sizeof *q);
	const char *lack = "no memory for the queue of collectives";
	if (q && (q->op = calloc(ROOM, sizeof *q->op))) {
		q->room = ROOM;
		pthread_mutex_init(&q->lock, NULL);
		pthread_cond_init(&q->changed, NULL);
		if (!thread_start(&q->thread, consume, h))
			return 0;
		lack = "cannot start a thread for communication";
		free(q->op);
	}
	free(q);
	h->queue = NULL;
	return tell_lack(h, fail(h, HVD_ESYS, "%s", lack));
}

static int wait_for(struct hvd *h, long number)
{
	struct queue *q = h->queue;
	pthread_mutex_lock(&q->lock);
	while (q->completed < number)
		pthread_cond_wait(&q->changed, &q->lock);
	int status = number < q->failed ? 0 : q->status;
	pthread_mutex_unlock(&q->lock);
	if (status && q->error[0])
		fail(h, status, "%s", q->error);
	return explain(h, status);
}

/* Twice the room. False: no memory. */
static bool grow(struct queue *q)
{
	struct op *op = calloc((size_t)q->room * 2, sizeof *op);
	if (!op)
		return false;
	for (long i = q->completed; i < q->posted; i++)
		op[i % (q->room * 2)] = q->op[i % q->room];
	free(q->op);
	q->op = op;
	q->room *= 2;
	return true;
}

/* HVD_EINVAL with the reason, or 0. */
static int check_op(struct hvd *h, const struct op *op)
{
	const bool sums = op->kind == OP_ALLREDUCE || op->kind == OP_REDUCE_SCATTER;
	if (!h->world.size)
		return HVD_EINVAL; /* the line of hvd_init(), which failed, stays */
	if ((unsigned)op->type > HVD_U64 || (unsigned)op->op > HVD_MAX)
		return fail(h, HVD_EINVAL, "no such type or operation (%d, %d)", (int)op->type, (int)op->op);
	if (sums && op->op == HVD_AVG && op->type > HVD_BF16)
		return fail(h, HVD_EINVAL, "HVD_AVG is for floating-point types, not %s", type_name(op->type));
	size_t most = op->n; /* of a block */
	for (int r = 0; op->blocks && r < h->world.size; r++)
		most = op->blocks[r] > most ? op->blocks[r] : most;
	if (most > PTRDIFF_MAX / 8 / (size_t)h->world.size)
		return fail(h, HVD_EINVAL, "no memory holds %zu elements of each of %d ranks", most, h->world.size);
	const uint8_t *in = op->in, *out = op->out;
	const size_t bytes = op->n * type_size(op->type);
	if (op->kind == OP_ALLREDUCE && in != out && in < out + bytes && out < in + bytes)
		return fail(h, HVD_EINVAL, "hvd_allreduce: in and out overlap, and are not equal");
	if (op->root < 0 || op->root >= h->world.size)
		return fail(h, HVD_EINVAL, "no such root: rank %d of %d", op->root, h->world.size);
	return 0;
}

long queue_post(struct hvd *h, const struct op *op)
{
	int status = check_op(h, op);
	if (!status && !h->queue)
		status = start(h);
	if (status)
		return status;
	struct queue *q = h->queue;
	pthread_mutex_lock(&q->lock);
	while (q->posted - q->completed == q->room && !grow(q)) /* others may wait for what comes after this one: without memory alone it is waited for room */
		pthread_cond_wait(&q->changed, &q->lock);
	q->op[q->posted % q->room] = *op;
	long number = ++q->posted;
	if (h->backend->on_device && h->backend->on_device(h, op->out))
		q->device = number;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return number;
}

/* Of those that were started, not a failure's number. */
static int check_number(struct hvd *h, long number)
{
	bool known = h->queue && number > h->queue->forgotten && number <= h->queue->posted;
	return known ? 0 : fail(h, HVD_EINVAL, "no such request: %ld", number);
}

int hvd_test(struct hvd *h, long number)
{
	int status = check_number(h, number);
	if (status)
		return status;
	pthread_mutex_lock(&h->queue->lock);
	bool through = h->queue->completed >= number;
	pthread_mutex_unlock(&h->queue->lock);
	if (!through)
		return 0;
	status = wait_for(h, number);
	return status ? status : 1;
}

int hvd_wait(struct hvd *h, long number)
{
	int status = check_number(h, number);
	return status ? status : wait_for(h, number);
}

int queue_drain(struct hvd *h)
{
	return h->queue ? wait_for(h, h->queue->posted) : 0;
}

int queue_drain_device(struct hvd *h)
{
	return h->queue ? wait_for(h, h->queue->device) : 0;
}

int queue_run(struct hvd *h, const struct op *op)
{
	int status = check_op(h, op);
	if (!status)
		status = queue_drain(h);
	return status ? status : explain(h, run(h, op, false));
}

void queue_reset(struct hvd *h)
{
	if (!h->queue)
		return;
	h->queue->failed = h->queue->status = h->queue->error[0] = 0;
	h->queue->forgotten = h->queue->posted; /* nobody can say any more which of them failed */
}

void queue_close(struct hvd *h)
{
	struct queue *q = h->queue;
	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	free(q->op);
	free(q);
	h->queue = NULL;
}
