/* SPDX-License-Identifier: Apache-2.0
 * The public calls of a world, from hvd_init() to hvd_close(); the queue and the back end do the work. */
#include "queue.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All ranks know each other, and agree on the back end. */
static int form_world(struct hvd *h, struct boot *boot)
{
	int status = mesh_open(h->mesh, boot, &h->conf, h->error);
	if (status)
		return status;
	describe_world(h);
	if (h->world.size > 1) {
		h->backend = &backend_cpu;
		status = h->backend->open(h);
		if (status)
			mesh_fault(h->mesh, status, "cannot open back end cpu: %s", h->error);
	}
	return explain(h, status ? status : choose_backend(h)); /* and a barrier: every rank stands on its own feet */
}

int handle_new(struct hvd **out, const struct hvd_conf *conf)
{
	struct hvd *h = *out = calloc(1, sizeof *h);
	if (!h)
		return HVD_ESYS;
	h->process = getpid();
	h->backend = &backend_single;
	h->stop = &h->stop_word;
	h->mesh = calloc(1, sizeof *h->mesh);
	if (!h->mesh)
		return fail(h, HVD_ESYS, "no memory for a handle");
	if (!conf)
		return hvd_conf_default(&h->conf, h->error);
	if (conf->size != sizeof *conf)
		return fail(h, HVD_EINVAL, "hvd_init: struct hvd_conf has %zu bytes here, %zu in the caller: fill it with hvd_conf_default(), and build the program with this hvd.h",
			    sizeof *conf, conf->size);
	h->conf = *conf;
	return conf_check(conf, h->error);
}

int handle_form(struct hvd *h, struct boot *boot)
{
	int status = form_world(h, boot);
	if (!h->conf.on_death || h->parent) {
		pthread_mutex_lock(&h->mesh->lock);
		links_close(&h->mesh->links);
		pthread_mutex_unlock(&h->mesh->lock);
	}
	if (boot->finish) /* lets go of whoever brought the ranks together */
		boot->finish(boot);
	h->world.backend = h->backend->name;
	if (!status)
		status = tell_lack(h, trace_open(h));
	if (status)
		return status;
	arm(h);
	return explain(h, atomic_load(&h->mesh->failed)); /* before it was armed */
}

int hvd_init_from(struct hvd **out, const struct hvd_conf *conf, int (*find)(struct boot *, char *))
{
	int nowhere;
	while ((nowhere = open("/dev/null", O_RDWR)) >= 0 && nowhere <= STDERR_FILENO) /* what is printed must not land in a descriptor of this library */
		;
	close(nowhere);
	int status = handle_new(out, conf);
	if (status)
		return status;
	struct boot boot = { .deadline = (*out)->conf.deadline };
	status = find(&boot, (*out)->error);
	return status ? status : handle_form(*out, &boot);
}

int hvd_init(struct hvd **h, const struct hvd_conf *conf)
{
	return hvd_init_from(h, conf, boot_from_step);
}

int hvd_close(struct hvd *h)
{
	int status = 0;
	if (!h)
		return 0;
	if (h->process != getpid()) /* here are none of the threads that would be waited for */
		return fail(h, HVD_EINVAL, "hvd_close: this process was forked by a rank, which alone closes its world");
	if (h->children)
		return fail(h, HVD_EINVAL, "hvd_close: %d sub-worlds are still open", h->children);
	queue_close(h);
	if (h->mesh) {
		status = atomic_load(&h->mesh->failed);
		if (!watch_told(h->mesh))
			return status; /* that thread may use all of it for ever */
		mesh_close(h->mesh);
	}
	if (h->parent) /* which that thread used, too */
		h->parent->children--;
	if (h->backend->close)
		h->backend->close(h);
	trace_close(h);
	mesh_free(h->mesh);
	free(h->of_parent);
	free(h);
	return status;
}

const struct hvd_world *hvd_world(const struct hvd *h)
{
	return &h->world;
}

const char *hvd_error(const struct hvd *h)
{
	return h ? h->error : "no memory for a handle";
}

int hvd_lost(const struct hvd *h)
{
	const int lost = h->mesh->lost;
	for (int r = 0; r < h->world.size; r++)
		if (h->mesh->member[r] == lost)
			return r;
	return -1;
}

void *hvd_stream(const struct hvd *h)
{
	return h->stream;
}

const uint32_t *hvd_stop_word(const struct hvd *h)
{
	return h->stop;
}

void *hvd_alloc(struct hvd *h, size_t bytes)
{
	if (queue_drain(h))
		return NULL;
	mesh_doing(h->mesh, DOING_ALLOC, 0);
	void *p = h->backend->alloc(h, bytes);
	if (!p)
		explain(h, atomic_load(&h->mesh->failed));
	mesh_doing(h->mesh, DOING_COMPUTE, 0);
	return p;
}

void hvd_free(struct hvd *h, void *p)
{
	if (!p || h->process != getpid()) /* a forked process has no thread that its requests would come to an end in */
		return;
	queue_drain(h); /* it may still be written to */
	h->backend->free(h, p);
}

int hvd_copy(struct hvd *h, void *to, const void *from, size_t bytes)
{
	if (h->backend->copy)
		return h->backend->copy(h, to, from, bytes);
	memcpy(to, from, bytes);
	return 0;
}

#define ALLREDUCE &(struct op){ .kind = OP_ALLREDUCE, .bucket = -1, .in = in, .out = out, .n = n, .type = type, .op = op }
#define BROADCAST &(struct op){ .kind = OP_BROADCAST, .bucket = -1, .in = buffer, .out = buffer, .n = n, .type = type, .root = root }
#define ALLGATHER &(struct op){ .kind = OP_ALLGATHER, .bucket = -1, .in = in, .out = out, .n = n, .type = type }

int hvd_allreduce(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op)
{
	return queue_run(h, ALLREDUCE);
}

int hvd_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root)
{
	return queue_run(h, BROADCAST);
}

int hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	return queue_run(h, ALLGATHER);
}

int hvd_allgatherv(struct hvd *h, const void *in, void *out, const size_t *n, enum hvd_type type)
{
	if (!n)
		return fail(h, HVD_EINVAL, "hvd_allgatherv: no sizes of the blocks");
	return queue_run(h, &(struct op){ .kind = OP_ALLGATHER, .bucket = -1, .in = in, .out = out, .blocks = n, .type = type });
}

int hvd_reduce_scatter(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op)
{
	return queue_run(h, &(struct op){ .kind = OP_REDUCE_SCATTER, .bucket = -1, .in = in, .out = out, .n = n, .type = type, .op = op });
}

int hvd_alltoall(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	return queue_run(h, &(struct op){ .kind = OP_ALLTOALL, .bucket = -1, .in = in, .out = out, .n = n, .type = type });
}

int hvd_barrier(struct hvd *h)
{
	return queue_run(h, &(struct op){ .kind = OP_BARRIER, .bucket = -1 });
}

long hvd_start_allreduce(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op)
{
	return queue_post(h, ALLREDUCE);
}

long hvd_start_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root)
{
	return queue_post(h, BROADCAST);
}

long hvd_start_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	return queue_post(h, ALLGATHER);
}
