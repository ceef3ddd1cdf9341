/* SPDX-License-Identifier: Apache-2.0
 * Collectives on device memory with NCCL, ordered with the program's stream; host memory goes to the CPU back end.
 *
 * The communicator does not block: every wait looks at the mesh, because NCCL itself does not notice a dead peer. */
#include "nccl_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nccl {
	struct driver cu;
	struct api nc;
	const struct backend *host; /* for host memory */
	CUdevice device;
	ncclComm_t comm;
	CUstream program, own;   /* own: buckets, at high priority */
	CUevent ready, done;
};

static const ncclDataType_t nccl_types[] = {
	[HVD_F32] = ncclFloat32, [HVD_F64] = ncclFloat64, [HVD_F16] = ncclFloat16, [HVD_BF16] = ncclBfloat16,
	[HVD_I32] = ncclInt32,   [HVD_I64] = ncclInt64,   [HVD_U8] = ncclUint8,    [HVD_U64] = ncclUint64,
};
static const ncclRedOp_t nccl_ops[] = { [HVD_SUM] = ncclSum, [HVD_AVG] = ncclAvg, [HVD_MIN] = ncclMin, [HVD_MAX] = ncclMax };

/* ---- errors and waits ----------------------------------------------------------------------------- */

static int cuda_failed(struct hvd *h, const struct nccl *s, const char *what, CUresult rc)
{
	const char *name = "unknown error";
	s->cu.error_name(rc, &name);
	return fail(h, HVD_EBACKEND, "rank %d on %.32s: %s: %s (GPU %.32s)", h->world.rank, hvd_host(h, h->world.rank), what, name,
		    getenv("HVD_GPU") ? getenv("HVD_GPU") : "0 of the visible ones");
}

static int nccl_failed(struct hvd *h, const struct nccl *s, const char *what, ncclResult_t rc)
{
	int version = 0;
	s->nc.version(&version);
	return fail(h, HVD_EBACKEND, "rank %d on %.32s: NCCL %d.%d.%d: %s: %s; %.160s", h->world.rank, hvd_host(h, h->world.rank), version / 10000,
		    version / 100 % 100, version % 100, what, s->nc.error_string(rc), s->nc.last_error(s->comm));
}

/* The communicator is through with what it was asked for; its kernels may still run. */
static int settled(struct hvd *h, const struct nccl *s, const char *what, ncclResult_t rc)
{
	double until = now() + h->conf.deadline;
	while (rc == ncclInProgress) {
		int failed = atomic_load(&h->mesh->failed);
		if (failed)
			return fail(h, failed, "%s", h->mesh->fault);
		if (now() > until)
			return fail(h, HVD_EPEER, "rank %d on %.32s: NCCL: %s is not through within %.3g s", h->world.rank,
				    hvd_host(h, h->world.rank), what, h->conf.deadline);
		usleep(50);
		ncclResult_t asked = s->nc.async_error(s->comm, &rc);
		if (asked)
			rc = asked;
	}
	return rc ? nccl_failed(h, s, what, rc) : 0;
}

/* ---- opening and closing -------------------------------------------------------------------------- */

static void nccl_close(struct hvd *h)
{
	struct nccl *s = h->device;
	if (!s)
		return;
	if (s->comm && (atomic_load(&h->mesh->failed) || settled(h, s, "closing", s->nc.finalize(s->comm))))
		s->nc.abort(s->comm);
	else if (s->comm)
		s->nc.destroy(s->comm);
	if (s->ready)
		s->cu.event_destroy(s->ready);
	if (s->done)
		s->cu.event_destroy(s->done);
	if (s->own)
		s->cu.stream_destroy(s->own);
	s->host->close(h);
	free(s);
	h->device = NULL;
}

static int open_device(struct hvd *h, struct nccl *s)
{
	CUcontext context = NULL;
	CUresult rc = s->cu.context_current(&context);
	if (!rc && !context) { /* one GPU a task is visible, as number 0 */
		rc = s->cu.device_get(&s->device, 0);
		if (!rc)
			rc = s->cu.context_retain(&context, s->device);
		if (!rc)
			rc = s->cu.context_set(context);
	}
	if (!rc)
		rc = s->cu.stream_create(&s->own, CU_STREAM_NON_BLOCKING, -5); /* clamped to the highest priority there is */
	if (!rc)
		rc = s->cu.event_create(&s->ready, CU_EVENT_DISABLE_TIMING);
	if (!rc)
		rc = s->cu.event_create(&s->done, CU_EVENT_DISABLE_TIMING);
	return rc ? cuda_failed(h, s, "opening the GPU", rc) : 0;
}

static int open_communicator(struct hvd *h, struct nccl *s)
{
	ncclUniqueId id = { .internal = { 0 } }, *all = calloc((size_t)h->world.size, sizeof *all);
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int status = all ? 0 : fail(h, HVD_ESYS, "no memory for %d ranks", h->world.size);
	config.blocking = 0;
	if (!status && h->world.rank == 0) {
		ncclResult_t rc = s->nc.unique_id(&id);
		status = rc ? nccl_failed(h, s, "ncclGetUniqueId", rc) : 0;
	}
	if (!status)
		status = mesh_gather(h->mesh, &id, sizeof id, all);
	if (!status)
		status = settled(h, s, "ncclCommInitRankConfig", s->nc.init(&s->comm, h->world.size, all[0], h->world.rank, &config));
	free(all);
	return status;
}

/* On top of an open back end for host memory. */
static int nccl_open(struct hvd *h)
{
	struct nccl *s = calloc(1, sizeof *s);
	char why[128];
	if (!s)
		return fail(h, HVD_ESYS, "no memory for the NCCL back end");
	h->device = s;
	s->host = h->backend;
	h->backend = &backend_nccl;
	s->program = h->conf.stream;
	if (nccl_bind(&s->nc, why) || driver_bind(&s->cu, why))
		return fail(h, HVD_EBACKEND, "rank %d on %.32s: %s", h->world.rank, hvd_host(h, h->world.rank), why);
	int status = open_device(h, s);
	return status || h->world.size == 1 ? status : open_communicator(h, s);
}

/* ---- memory and collectives ----------------------------------------------------------------------- */

static void *nccl_alloc(struct hvd *h, size_t bytes)
{
	const struct nccl *s = h->device;
	void *p = NULL;
	ncclResult_t rc = s->nc.memory(&p, bytes ? bytes : 1);
	if (rc) {
		nccl_failed(h, s, "ncclMemAlloc", rc);
		return NULL;
	}
	s->cu.memory_set((CUdeviceptr)(uintptr_t)p, 0, bytes);
	return p;
}

static void nccl_free(struct hvd *h, void *p)
{
	const struct nccl *s = h->device;
	s->nc.memory_free(p);
}

static bool on_device(const struct nccl *s, const void *p)
{
	CUmemorytype type = 0;
	return p && !s->cu.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)p) && type == CU_MEMORYTYPE_DEVICE;
}

/* Blocks of any sizes between all ranks: sends and receives that NCCL takes as one. */
static int exchange(struct hvd *h, const struct nccl *s, const struct op *op, CUstream stream)
{
	const size_t size = type_size(op->type), own = (size_t)h->world.rank;
	size_t at = 0;
	ncclResult_t rc = s->nc.group_start();
	for (int r = 0; !rc && r < h->world.size; r++) {
		size_t n = op->blocks ? op->blocks[r] : op->n, mine = op->blocks ? op->blocks[own] : op->n;
		const uint8_t *from = (const uint8_t *)op->in + (op->kind == OP_ALLTOALL ? (size_t)r * n * size : 0);
		rc = s->nc.send(from, mine, nccl_types[op->type], r, s->comm, stream);
		if (!rc || rc == ncclInProgress)
			rc = s->nc.receive((uint8_t *)op->out + at, n, nccl_types[op->type], r, s->comm, stream);
		rc = rc == ncclInProgress ? ncclSuccess : rc;
		at += n * size;
	}
	ncclResult_t ended = s->nc.group_end();
	return settled(h, s, "an exchange of blocks", rc ? rc : ended);
}

static int enqueue(struct hvd *h, const struct nccl *s, const struct op *op, CUstream stream)
{
	ncclDataType_t type = nccl_types[op->type];
	if (h->world.size == 1) {
		if (op->in == op->out)
			return 0;
		CUresult rc = s->cu.memory_copy((CUdeviceptr)(uintptr_t)op->out, (CUdeviceptr)(uintptr_t)op->in, op->n * type_size(op->type), stream);
		return rc ? cuda_failed(h, s, "a copy", rc) : 0;
	}
	switch (op->kind) {
	case OP_ALLREDUCE:
		return settled(h, s, "all-reduce", s->nc.allreduce(op->in, op->out, op->n, type, nccl_ops[op->op], s->comm, stream));
	case OP_BROADCAST:
		return settled(h, s, "broadcast", s->nc.broadcast(op->in, op->out, op->n, type, op->root, s->comm, stream));
	case OP_REDUCE_SCATTER:
		return settled(h, s, "reduce-scatter", s->nc.reduce_scatter(op->in, op->out, op->n, type, nccl_ops[op->op], s->comm, stream));
	case OP_ALLTOALL:
		return exchange(h, s, op, stream);
	case OP_ALLGATHER:
		if (op->blocks)
			return exchange(h, s, op, stream);
		return settled(h, s, "all-gather", s->nc.allgather(op->in, op->out, op->n, type, s->comm, stream));
	case OP_BARRIER:
		break;
	}
	return HVD_EINVAL;
}

static int nccl_run(struct hvd *h, const struct op *op)
{
	const struct nccl *s = h->device;
	if (op->kind == OP_BARRIER || !on_device(s, op->out))
		return s->host->run(h, op);
	return enqueue(h, s, op, s->program);
}

/* A bucket: after what the program's stream has done so far, beside what it does next. */
static int nccl_post(struct hvd *h, const struct op *op)
{
	const struct nccl *s = h->device;
	CUresult rc = s->cu.event_record(s->ready, s->program);
	if (!rc)
		rc = s->cu.stream_wait(s->own, s->ready, 0);
	return rc ? cuda_failed(h, s, "ordering a bucket", rc) : enqueue(h, s, op, s->own);
}

static int nccl_join(struct hvd *h)
{
	const struct nccl *s = h->device;
	CUresult rc = s->cu.event_record(s->done, s->own);
	if (!rc)
		rc = s->cu.stream_wait(s->program, s->done, 0);
	return rc ? cuda_failed(h, s, "joining the buckets", rc) : 0;
}

const struct backend backend_nccl = {
	.name = "nccl",
	.open = nccl_open,
	.close = nccl_close,
	.alloc = nccl_alloc,
	.free = nccl_free,
	.run = nccl_run,
	.post = nccl_post,
	.join = nccl_join,
};
