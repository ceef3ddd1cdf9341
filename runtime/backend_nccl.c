/* SPDX-License-Identifier: Apache-2.0
 * Collectives on device memory with NCCL, ordered with the program's stream; host memory goes to the CPU back end.
 *
 * The communicator does not block: every wait looks at the mesh, because NCCL itself does not notice a dead peer. When one is
 * lost, the watching thread first sets the stop word, which the program's kernels read before they touch a weight, and
 * then ends the collectives that hang on the device; hvd_recover() shrinks the communicator. */
#include "nccl_api.h"
#include "stamps.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) ((void)(name))
#define nvtxRangePop() ((void)0)
#endif

#define RANKS_AN_ID 128 /* above twice as many, several ranks share the work of bringing the others together */

struct memory {
	struct memory *next;
	void *p, *registration;
	size_t bytes;
	bool plain; /* the driver's, not NCCL's */
};

enum { READY, DONE, FROM, TO, EVENTS }; /* from FROM to TO the program's stream waits for buckets */

struct nccl {
	struct driver cu;
	struct api nc;
	CUcontext context;
	const struct backend *host; /* for host memory */
	ncclComm_t comm, fresh; /* fresh: being formed; NCCL may write there until the one that it comes from has ended */
	ncclComm_t dying;       /* that is being aborted, by the executor */
	pthread_t executor;
	_Atomic bool dead;      /* the abort has come back … */
	bool endless;           /* … has not within the deadline: it may use all of it */
	pthread_mutex_t use; /* of comm: the watching thread may take it away, NULL then */
	double broken;       /* since when NCCL has an error, 0: it has none */
	int *member, members; /* of comm: numbers in the mesh */
	CUstream program, own;   /* own: buckets, at high priority */
	bool made;               /* program is ours, too */
	_Atomic bool hung, captured; /* the last wait for one of both was in vain; a graph holds collectives */
	CUevent event[EVENTS];
	double exposed;          /* seconds from FROM to TO, when both were last known */
	uint32_t *stop;          /* mapped into the device */
	struct memory *memory;
	struct stamp *stamps;    /* for the trace */
};

static const ncclDataType_t nccl_types[] = {
	[HVD_F32] = ncclFloat32, [HVD_F64] = ncclFloat64, [HVD_F16] = ncclFloat16, [HVD_BF16] = ncclBfloat16,
	[HVD_I32] = ncclInt32,   [HVD_I64] = ncclInt64,   [HVD_U8] = ncclUint8,    [HVD_U64] = ncclUint64,
};
static const ncclRedOp_t nccl_ops[] = { [HVD_SUM] = ncclSum, [HVD_AVG] = ncclAvg, [HVD_MIN] = ncclMin, [HVD_MAX] = ncclMax };

int nccl_usable(char why[WHY_BYTES], char gpu[16])
{
	struct driver cu;
	struct api nc;
	int version = 0;
	CUcontext context = NULL;
	CUdevice device = 0;
	if (driver_bind(&cu, why) || nccl_bind(&nc, why) || nc.ncclGetVersion(&version))
		return 0;
	/* as open_device() chooses */
	CUresult rc = !cu.cuCtxGetCurrent(&context) && context ? cu.cuCtxGetDevice(&device) : cu.cuDeviceGet(&device, 0);
	if (rc || cu.cuDeviceGetPCIBusId(gpu, 16, device))
		*gpu = 0;
	return version;
}

/* ---- errors and waits ----------------------------------------------------------------------------- */

static int cuda_failed(struct hvd *h, const struct nccl *s, const char *what, CUresult rc)
{
	const char *name = "unknown error";
	s->cu.cuGetErrorName(rc, &name);
	return fail(h, HVD_EBACKEND, "rank %d on %.63s: %s: %s (GPU %.32s)", h->world.rank, hvd_host(h, h->world.rank), what, name,
		    getenv("HVD_GPU") ? getenv("HVD_GPU") : "0 of the visible ones");
}

static int nccl_failed(struct hvd *h, const struct nccl *s, const char *what, ncclResult_t rc)
{
	int version = 0;
	s->nc.ncclGetVersion(&version);
	return fail(h, HVD_EBACKEND, "rank %d on %.63s: NCCL %d.%d.%d: %s: %s; %.160s", h->world.rank, hvd_host(h, h->world.rank), version / 10000,
		    version / 100 % 100, version % 100, what, s->nc.ncclGetErrorString(rc), s->nc.ncclGetLastError(NULL));
}

/* Nothing can be asked of a communicator once a rank is lost. */
static int lost(struct hvd *h)
{
	return explain(h, atomic_load(&h->mesh->failed));
}

/* At the deadline a rank that has begun fewer collectives is lost. Where none has, or while the world is formed, recovered or closed, nobody knows
 * whose device it is that hangs. */
static int not_through(struct hvd *h, const char *what, double until)
{
	struct mesh *m = h->mesh;
	if (lived() > until) {
		bool known = m->watching && atomic_load(&m->what) >= DOING_COMPUTE;
		if (!known || mesh_late(m, -1) > 0)
			return fail(h, HVD_EBACKEND, "rank %d on %.63s: NCCL: %s is not through within %.3g s%s", h->world.rank,
				    hvd_host(h, h->world.rank), what, h->conf.deadline, known ? ", and no rank is behind" : "");
	}
	(void)(lived() > until - h->conf.deadline + 0.01 ? usleep(50) : sched_yield()); /* a small message takes a tenth of what a sleep does */
	return lost(h);
}

/* *comm is through with what it was asked for; its kernels may still run. */
static int settled(struct hvd *h, struct nccl *s, ncclComm_t *comm, const char *what, ncclResult_t rc)
{
	for (double until = lived() + h->conf.deadline; rc == ncclInProgress;) {
		int status = not_through(h, what, until);
		if (status)
			return status;
		pthread_mutex_lock(&s->use);
		ncclResult_t asked = *comm ? s->nc.ncclCommGetAsyncError(*comm, &rc) : ncclSuccess;
		pthread_mutex_unlock(&s->use);
		rc = asked ? asked : rc;
	}
	return rc ? nccl_failed(h, s, what, rc) : lost(h); /* a revoked communicator is at peace, too */
}

static bool capturing(const struct nccl *s, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return !s->cu.cuStreamIsCapturing(stream, &status) && status;
}

/* Until the device is through with what the stream holds. */
static int waited(struct hvd *h, struct nccl *s, CUstream stream, const char *what)
{
	CUresult rc;
	if (capturing(s, stream))
		return fail(h, HVD_EINVAL, "a graph that is being captured cannot wait for %s (HVD_SYNC=1 waits for every collective)", what);
	for (double until = lived() + h->conf.deadline; (rc = s->cu.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY;) {
		int status = not_through(h, what, until);
		s->hung = status;
		if (status)
			return status;
	}
	s->hung = rc;
	return rc ? cuda_failed(h, s, what, rc) : 0;
}

static void *execute(void *arg)
{
	struct nccl *s = arg;
	s->nc.ncclCommAbort(s->dying);
	s->dead = true;
	return NULL;
}

/* An abort waits for graphs that hold collectives, so it has a thread of its own. */
static void begin_abort(struct nccl *s, ncclComm_t comm)
{
	s->dying = comm;
	s->dead = false;
	s->endless = thread_start(&s->executor, execute, s);
}

/* Aborts comm; NULL: whatever nccl_stop() has begun to abort. Returns whether that came back by the deadline. */
static bool ended(struct hvd *h, struct nccl *s, ncclComm_t comm)
{
	if (comm)
		begin_abort(s, comm);
	for (double until = lived() + h->conf.deadline; s->dying && !s->dead && !s->endless; usleep(1000))
		s->endless = lived() > until;
	if (s->dying && !s->endless && !pthread_join(s->executor, NULL))
		s->dying = NULL;
	return !s->endless;
}

/* What a call works with. A context is a thread's: libhvd's own, and others of the program's, begin without one. */
static struct nccl *entered(struct hvd *h)
{
	struct nccl *s = h->device;
	CUcontext context = NULL;
	if (s->context && !s->cu.cuCtxGetCurrent(&context) && !context)
		s->cu.cuCtxSetCurrent(s->context);
	return s;
}

/* ---- opening -------------------------------------------------------------------------------------- */

static int open_device(struct hvd *h, struct nccl *s)
{
	CUcontext context = NULL;
	CUdevice device;
	CUresult rc = s->cu.cuCtxGetCurrent(&context);
	if (!rc && !context) { /* one GPU a task is visible, as number 0 */
		rc = s->cu.cuDeviceGet(&device, 0);
		if (!rc)
			rc = s->cu.cuDevicePrimaryCtxRetain(&context, device);
		if (!rc)
			rc = s->cu.cuCtxSetCurrent(context);
	}
	if (!rc)
		rc = s->cu.cuStreamCreateWithPriority(&s->own, CU_STREAM_NON_BLOCKING, -5); /* clamped to the highest priority there is */
	if (!rc && !s->program) {
		rc = s->cu.cuStreamCreateWithPriority(&s->program, CU_STREAM_NON_BLOCKING, 0);
		s->made = !rc;
	}
	for (int e = 0; !rc && e < EVENTS; e++)
		rc = s->cu.cuEventCreate(&s->event[e], e < FROM ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT);
	if (!rc)
		rc = s->cu.cuMemHostAlloc((void **)&s->stop, sizeof *s->stop, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
	if (rc)
		return cuda_failed(h, s, "opening the GPU", rc);
	s->context = context;
	*s->stop = 0;
	h->stop = s->stop;
	h->stream = s->program;
	return 0;
}

static void enlist(struct nccl *s, struct memory *a)
{
	a->registration = NULL; /* an earlier communicator's went with it */
	pthread_mutex_lock(&s->use);
	if (s->comm) /* NCCL then needs no copies of its own where NVLink or the network can do without; not all can */
		s->nc.ncclCommRegister(s->comm, a->p, a->bytes, &a->registration);
	pthread_mutex_unlock(&s->use);
}

/* The communicator of the world as it is now, with what nccl_alloc() gave out before. The watching thread sees none that is still being formed:
 * NCCL cannot revoke that. An old one is never destroyed: its ranks are not all there. */
static int adopt(struct hvd *h, struct nccl *s, int status)
{
	const struct mesh *m = h->mesh;
	int *member = realloc(s->member, (size_t)m->members * sizeof *member);
	if (member)
		s->member = memcpy(member, m->member, (size_t)m->members * sizeof *member);
	else
		status = fail(h, HVD_ESYS, "no memory for %d ranks", m->members);
	s->members = m->members;
	pthread_mutex_lock(&s->use);
	ncclComm_t old = s->comm;
	s->comm = NULL;
	pthread_mutex_unlock(&s->use);
	if (!ended(h, s, old))
		status = fail(h, HVD_EBACKEND, "hvd_recover: ending the collectives on the device does not come back within %.3g s (graphs that hold some are destroyed before)",
			      h->conf.deadline);
	pthread_mutex_lock(&s->use);
	status = status ? status : lost(h); /* which waits for nobody while the world is not armed, as here */
	s->comm = status ? NULL : s->fresh;
	s->captured = false; /* graphs hold collectives of the old one */
	pthread_mutex_unlock(&s->use);
	if (status && s->fresh && !s->endless)
		ended(h, s, s->fresh);
	s->fresh = NULL;
	for (struct memory *a = s->memory; a; a = a->next)
		enlist(s, a);
	return status;
}

static int open_communicator(struct hvd *h, struct nccl *s)
{
	const int size = h->world.size, rank = h->world.rank;
	ncclUniqueId id = { .internal = { 0 } };
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int status = 0;
	int ids = s->nc.ncclCommInitRankScalable && size > 2 * RANKS_AN_ID ? size / RANKS_AN_ID : 1;
	config.blocking = 0;
	if (rank < ids) {
		ncclResult_t rc = s->nc.ncclGetUniqueId(&id);
		status = rc ? nccl_failed(h, s, "ncclGetUniqueId", rc) : 0;
	}
	ncclUniqueId *all = status ? NULL : gathered(h, &id, sizeof id, &status);
	if (!status)
		status = settled(h, s, &s->fresh, "forming the communicator",
				 ids > 1 ? s->nc.ncclCommInitRankScalable(&s->fresh, size, rank, ids, all, &config)
					 : s->nc.ncclCommInitRankConfig(&s->fresh, size, all[0], rank, &config));
	free(all);
	return adopt(h, s, status);
}

/* On top of an open back end for host memory. */
static int nccl_open(struct hvd *h)
{
	struct nccl *s = calloc(1, sizeof *s);
	char why[WHY_BYTES];
	if (!s)
		return fail(h, HVD_ESYS, "no memory for the NCCL back end");
	pthread_mutex_init(&s->use, NULL);
	h->device = s;
	s->host = h->backend;
	h->backend = &backend_nccl;
	s->program = h->conf.stream;
	if (nccl_bind(&s->nc, why) || driver_bind(&s->cu, why))
		return fail(h, HVD_EBACKEND, "rank %d on %.63s: %s", h->world.rank, hvd_host(h, h->world.rank), why);
	int status = open_device(h, s);
	return status || h->world.size == 1 ? status : open_communicator(h, s);
}

/* ---- a lost rank ---------------------------------------------------------------------------------- */

/* By the watching thread, which has more to do than to wait. An abort frees the communicator; one that is only revoked can be shrunk. */
static void nccl_stop(struct hvd *h)
{
	struct nccl *s = h->device;
	pthread_mutex_lock(&s->use);
	if (s->comm && s->nc.ncclCommRevoke && s->nc.ncclCommShrink && !s->captured) { /* a revoked one would not end the next collective of a graph that is under way */
		usleep(10000); /* NCCL ends what is on the device now; a launch that had not seen the stop word is then there */
		s->nc.ncclCommRevoke(s->comm, 0);
	} else if (s->comm) {
		begin_abort(s, s->comm);
		s->comm = NULL;
	}
	pthread_mutex_unlock(&s->use);
}

/* By the watching thread, at every sign of life: while a graph runs, nobody else would hear of a broken connection. A rank that is gone is named
 * by the deadline. */
static void nccl_look(struct hvd *h)
{
	struct nccl *s = h->device;
	ncclResult_t rc = ncclSuccess;
	if (pthread_mutex_trylock(&s->use))
		return; /* a call is at it */
	if (s->comm && !atomic_load(&h->mesh->failed))
		s->nc.ncclCommGetAsyncError(s->comm, &rc);
	pthread_mutex_unlock(&s->use);
	if (!rc || rc == ncclInProgress)
		s->broken = 0;
	else if (!s->broken)
		s->broken = lived();
	else if (lived() - s->broken > h->conf.deadline)
		mesh_fault(h->mesh, HVD_EBACKEND, "hears from NCCL: %s; %.160s", s->nc.ncclGetErrorString(rc), s->nc.ncclGetLastError(NULL));
}

/* 0 if all members are well, HVD_EBACKEND if one is not, or a fault. */
static int all_well(struct hvd *h, bool well)
{
	uint8_t mine = !well;
	int status;
	uint8_t *all = gathered(h, &mine, sizeof mine, &status);
	for (int w = 0; !status && w < h->mesh->members; w++)
		status = all[w] ? HVD_EBACKEND : 0;
	free(all);
	return status;
}

/* The revoked communicator without the ranks that are no members any more. Returns 0 if all ranks succeeded. Ranks that were linked with a lost one
 * keep NCCL's error of it and cannot shrink; others would wait for them there. */
static int shrink(struct hvd *h, struct nccl *s)
{
	struct mesh *m = h->mesh;
	int gone = 0, *excluded = calloc((size_t)s->members, sizeof *excluded);
	for (int i = 0, w = 0; excluded && i < s->members; i++) {
		if (w < m->members && m->member[w] == s->member[i])
			w++;
		else
			excluded[gone++] = i;
	}
	int status = all_well(h, excluded && s->comm && !settled(h, s, &s->comm, "ending collectives", ncclInProgress));
	if (!status) { /* success only means that it has begun: the old one's state says when the new one is there */
		pthread_mutex_lock(&s->use); /* nccl_look() would take what is half made for ready */
		ncclResult_t rc = s->nc.ncclCommShrink(s->comm, excluded, gone, &s->fresh, NULL, 0);
		pthread_mutex_unlock(&s->use);
		status = all_well(h, !settled(h, s, &s->comm, "shrinking", rc ? rc : ncclInProgress) && s->fresh);
	}
	free(excluded);
	return adopt(h, s, status);
}

static int nccl_recover(struct hvd *h)
{
	struct nccl *s = entered(h);
	int status = s->host->recover(h);
	if (!status && h->world.size == 1)
		status = adopt(h, s, 0);
	else if (!status)
		status = s->nc.ncclCommShrink && s->nc.ncclCommRevoke ? shrink(h, s) : HVD_EBACKEND;
	if (status == HVD_EBACKEND && h->world.size > 1 && !s->endless)
		status = open_communicator(h, s);
	if (!status) /* updates of before the loss are still to see the stop word */
		status = waited(h, s, s->program, "what was queued before the loss");
	stamps_retire(h, s->stamps);
	return status;
}

/* ---- memory and collectives ----------------------------------------------------------------------- */

/* NCCL's memory can be mapped by other GPUs, which not every driver and container allows; collectives take plain memory as well. */
static CUresult room_for(const struct nccl *s, struct memory *a, size_t bytes)
{
	CUdeviceptr p = 0;
	if (!s->nc.ncclMemAlloc(&a->p, bytes))
		return CUDA_SUCCESS;
	CUresult rc = s->cu.cuMemAlloc(&p, bytes);
	a->p = (void *)(uintptr_t)p;
	a->plain = true;
	return rc;
}

static void *nccl_alloc(struct hvd *h, size_t bytes)
{
	struct nccl *s = entered(h);
	struct memory *a = calloc(1, sizeof *a);
	CUresult rc = a ? room_for(s, a, bytes ? bytes : 1) : CUDA_ERROR_OUT_OF_MEMORY;
	char what[64];
	if (rc) {
		snprintf(what, sizeof what, "%zu bytes of device memory", bytes);
		cuda_failed(h, s, what, rc);
		free(a);
		return NULL;
	}
	a->bytes = bytes;
	a->next = s->memory;
	s->memory = a;
	/* in the order of the stream on which it is used: the default stream does not wait for that one, nor it for the default stream */
	s->cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)a->p, 0, bytes, s->program);
	enlist(s, a);
	return a->p;
}

static void give_back(struct nccl *s, struct memory **at)
{
	struct memory *a = *at;
	*at = a->next;
	pthread_mutex_lock(&s->use);
	if (a->registration && s->comm)
		s->nc.ncclCommDeregister(s->comm, a->registration);
	pthread_mutex_unlock(&s->use);
	if (a->plain)
		s->cu.cuMemFree((CUdeviceptr)(uintptr_t)a->p);
	else
		s->nc.ncclMemFree(a->p);
	free(a);
}

static void nccl_free(struct hvd *h, void *p)
{
	struct nccl *s = entered(h);
	struct memory **at = &s->memory;
	char error[sizeof h->error]; /* the caller asks for that of the call that failed before */
	memcpy(error, h->error, sizeof error);
	while (*at && (*at)->p != p)
		at = &(*at)->next;
	if (*at && !(s->hung && s->cu.cuStreamQuery(s->program)) && !waited(h, s, s->own, "buckets") && !waited(h, s, s->program, "the program's stream"))
		give_back(s, at); /* else closing does */
	memcpy(h->error, error, sizeof error);
}

static bool on_device(struct hvd *h, const void *p)
{
	const struct nccl *s = entered(h);
	CUmemorytype type = 0;
	return p && !s->cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)p) && type == CU_MEMORYTYPE_DEVICE;
}

/* Blocks of any sizes between all ranks: sends and receives that NCCL takes as one. */
static ncclResult_t exchange(const struct hvd *h, const struct nccl *s, const struct op *op, CUstream stream)
{
	const size_t size = type_size(op->type), own = (size_t)h->world.rank;
	size_t at = 0;
	ncclResult_t rc = s->nc.ncclGroupStart();
	for (int r = 0; !rc && r < h->world.size; r++) {
		size_t n = op->blocks ? op->blocks[r] : op->n, mine = op->blocks ? op->blocks[own] : op->n;
		const uint8_t *from = (const uint8_t *)op->in + (op->kind == OP_ALLTOALL ? (size_t)r * n * size : 0);
		rc = s->nc.ncclSend(from, mine, nccl_types[op->type], r, s->comm, stream);
		if (!rc || rc == ncclInProgress)
			rc = s->nc.ncclRecv((uint8_t *)op->out + at, n, nccl_types[op->type], r, s->comm, stream);
		rc = rc == ncclInProgress ? ncclSuccess : rc;
		at += n * size;
	}
	ncclResult_t ended = s->nc.ncclGroupEnd();
	return rc ? rc : ended;
}

static ncclResult_t call(const struct hvd *h, const struct nccl *s, const struct op *op, CUstream stream)
{
	ncclDataType_t type = nccl_types[op->type];
	switch (op->kind) {
	case OP_ALLREDUCE:
		return s->nc.ncclAllReduce(op->in, op->out, op->n, type, nccl_ops[op->op], s->comm, stream);
	case OP_BROADCAST:
		return s->nc.ncclBroadcast(op->in, op->out, op->n, type, op->root, s->comm, stream);
	case OP_REDUCE_SCATTER:
		return s->nc.ncclReduceScatter(op->in, op->out, op->n, type, nccl_ops[op->op], s->comm, stream);
	case OP_ALLGATHER:
		if (!op->blocks)
			return s->nc.ncclAllGather(op->in, op->out, op->n, type, s->comm, stream);
		break;
	case OP_ALLTOALL:
	case OP_BARRIER:
		break;
	}
	return exchange(h, s, op, stream);
}

/* NCCL would read what it has written. In such a way that all ranks see it alike: nobody waits for one that was refused. */
static bool overlaps(const struct hvd *h, const struct op *op)
{
	const size_t size = type_size(op->type);
	const uintptr_t in = (uintptr_t)op->in, out = (uintptr_t)op->out;
	size_t one = op->n * size, all = op->blocks ? 0 : one * (size_t)h->world.size;
	for (int r = 0; op->blocks && r < h->world.size; r++)
		all += op->blocks[r] * size;
	if (op->blocks)
		one = op->blocks[h->world.rank] * size;
	bool gathers = op->kind == OP_ALLGATHER, reduces = op->kind == OP_REDUCE_SCATTER;
	return (gathers || reduces || op->kind == OP_ALLTOALL) && (in == out || (in < out + (reduces ? one : all) && out < in + (gathers ? one : all)));
}

static int enqueue(struct hvd *h, struct nccl *s, const struct op *op, CUstream stream)
{
	const char *what = op->bucket >= 0 ? "a bucket" : op_name(op->kind);
	if (h->world.size == 1) {
		if (op->in == op->out)
			return 0;
		CUresult rc = s->cu.cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)op->out, (CUdeviceptr)(uintptr_t)op->in,
						      (op->blocks ? op->blocks[0] : op->n) * type_size(op->type), stream);
		return rc ? cuda_failed(h, s, "a copy", rc) : 0;
	}
	if (overlaps(h, op))
		return fail(h, HVD_EINVAL, "%s in device memory: in and out overlap; only hvd_allreduce() and hvd_broadcast() work in place there", what);
	s->captured = capturing(s, stream) || s->captured;
	nvtxRangePushA(what);
	pthread_mutex_lock(&s->use);
	ncclResult_t rc = s->comm ? call(h, s, op, stream) : ncclInProgress; /* taken away: settled() says why */
	pthread_mutex_unlock(&s->use);
	int status = settled(h, s, &s->comm, what, rc);
	if (!status && h->conf.sync)
		status = waited(h, s, stream, what);
	if (status == HVD_EBACKEND && mesh_reason(h->mesh, -1)) /* NCCL hears of a broken connection before it is known whose */
		status = lost(h);
	nvtxRangePop();
	return status;
}

static int nccl_run(struct hvd *h, const struct op *op)
{
	struct nccl *s = h->device;
	const bool device = on_device(h, op->out); /* a barrier has none */
	if (op->in && op->in != op->out && on_device(h, op->in) != device)
		return fail(h, HVD_EINVAL, "%s: in is in %s memory and out in %s memory: both have to be in one", op_name(op->kind), device ? "host" : "device", device ? "device" : "host");
	if (!device)
		return s->host->run(h, op);
	return enqueue(h, s, op, s->program);
}

static int nccl_copy(struct hvd *h, void *to, const void *from, size_t bytes)
{
	struct nccl *s = entered(h);
	CUresult rc = s->cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, s->program);
	return rc ? cuda_failed(h, s, "a copy", rc) : waited(h, s, s->program, "a copy");
}

/* A bucket: after what the program's stream has done so far, beside what it does next. */
static int nccl_post(struct hvd *h, const struct op *op)
{
	struct nccl *s = entered(h);
	int status = lost(h);
	if (status)
		return status;
	mesh_doing(h->mesh, DOING_BUCKET, (uint32_t)op->bucket);
	CUresult rc = s->cu.cuEventRecord(s->event[READY], s->program);
	if (!rc)
		rc = s->cu.cuStreamWaitEvent(s->own, s->event[READY], 0);
	if (!rc)
		rc = stamp(h, &s->cu, &s->stamps, op, s->own, false);
	if (rc)
		return cuda_failed(h, s, "ordering a bucket", rc);
	status = enqueue(h, s, op, s->own);
	rc = status ? CUDA_SUCCESS : stamp(h, &s->cu, &s->stamps, op, s->own, true);
	return rc ? cuda_failed(h, s, "stamping a bucket", rc) : status;
}

static int nccl_join(struct hvd *h)
{
	static const struct op step = { .bucket = -1 };
	struct nccl *s = entered(h);
	CUresult rc = s->cu.cuEventRecord(s->event[DONE], s->own);
	const unsigned flag = capturing(s, s->program) ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT; /* else the graph would not record it */
	if (!rc)
		rc = stamp(h, &s->cu, &s->stamps, &step, s->program, false);
	if (!rc)
		rc = s->cu.cuEventRecordWithFlags(s->event[FROM], s->program, flag);
	if (!rc)
		rc = s->cu.cuStreamWaitEvent(s->program, s->event[DONE], 0);
	if (!rc)
		rc = s->cu.cuEventRecordWithFlags(s->event[TO], s->program, flag);
	if (!rc)
		rc = stamp(h, &s->cu, &s->stamps, &step, s->program, true);
	mesh_doing(h->mesh, DOING_COMPUTE, 0);
	return rc ? cuda_failed(h, s, "joining the buckets", rc) : lost(h);
}

static double nccl_exposed(struct hvd *h)
{
	struct nccl *s = entered(h);
	float ms = -1;
	/* a question about an event may spoil a graph that is being captured */
	if (!capturing(s, s->program) && !s->cu.cuEventElapsedTime(&ms, s->event[FROM], s->event[TO]) && ms >= 0) /* else the next step is under way */
		s->exposed = ms * 1e-3;
	return s->exposed;
}

static void release(struct hvd *h, struct nccl *s)
{
	while (s->memory)
		give_back(s, &s->memory);
	if (s->stamps && (s->cu.cuStreamQuery(s->own) || s->cu.cuStreamQuery(s->program)))
		stamps_retire(h, s->stamps); /* streams hold calls of them yet */
	else
		stamps_free(&s->stamps);
	for (int e = 0; e < EVENTS; e++)
		if (s->event[e])
			s->cu.cuEventDestroy(s->event[e]);
	if (s->own)
		s->cu.cuStreamDestroy(s->own);
	if (s->made)
		s->cu.cuStreamDestroy(s->program);
	if (s->stop)
		s->cu.cuMemFreeHost(s->stop);
}

static void nccl_close(struct hvd *h)
{
	struct nccl *s = entered(h);
	const bool failed = atomic_load(&h->mesh->failed);
	bool through = ended(h, s, failed ? s->comm : NULL);
	if (s->comm && !failed && (through = !settled(h, s, &s->comm, "closing", s->nc.ncclCommFinalize(s->comm))))
		s->nc.ncclCommDestroy(s->comm);
	s->comm = NULL; /* what is registered went with it */
	if (through) /* else a graph still holds collectives, or a rank died while closing: an abort and frees would wait for them */
		release(h, s);
	else
		stamps_retire(h, s->stamps);
	if (s->host->close)
		s->host->close(h);
	if (s->endless)
		return;
	pthread_mutex_destroy(&s->use);
	free(s->member);
	free(s);
}

const struct backend backend_nccl = {
	.name = "nccl",
	.open = nccl_open,
	.close = nccl_close,
	.alloc = nccl_alloc,
	.free = nccl_free,
	.copy = nccl_copy,
	.on_device = on_device,
	.run = nccl_run,
	.post = nccl_post,
	.join = nccl_join,
	.exposed = nccl_exposed,
	.stop = nccl_stop,
	.look = nccl_look,
	.recover = nccl_recover,
};
