/* SPDX-License-Identifier: Apache-2.0
 * The driver and NCCL as stand-ins: device memory is the host's, collectives are those of the CPU back end, and communicators begin, are
 * revoked, shrink and end as NCCL 2.28's do. Needs nccl.h, and --wrap=driver_bind,--wrap=nccl_bind. */
#ifndef TESTS_NCCL_WORLD_H
#define TESTS_NCCL_WORLD_H

#include "tests/unit/runtime_world.h"

#include "runtime/backend.h"
#include "runtime/nccl_api.h"

int __wrap_driver_bind(struct driver *cu, char why[WHY_BYTES]);
int __wrap_nccl_bind(struct api *nc, char why[WHY_BYTES]);

static struct hvd *world;         /* for the stand-in's collectives */
static CUstream on[64];           /* the stream of each collective so far */
static int collectives, registered, shrunk, ids_made;
static _Atomic int stop_at_revoke;
static bool old_nccl, no_stream;  /* without Revoke and Shrink */
static bool capturing;            /* what is put on a stream becomes part of a graph */
static _Atomic bool stuck;        /* a collective never ends */
static bool idle;                 /* collectives do nothing */
static bool together;             /* such a one begins when all ranks are in it, and each has heard so of the others */
static _Atomic bool noticed;              /* the first communicator knows of a broken connection */
static bool none_registered, shrinks_for_ever; /* ncclCommRegister fails; a shrink is never through */
static bool shrink_called;
static int shrinking;             /* when so many are at it, rank 2 dies */
static _Atomic bool graph_left;           /* what ends a communicator never comes back */
static double looks_late;         /* the stream is asked about for so long, and until a rank is lost */
static _Atomic int asked;         /* how often a stream was */
static bool behind;               /* the program's stream never comes to its end */
static int bucket_writes;                    /* looks at its stream until the last one is through */
static double takes, through;                /* seconds of a collective, and when the last one has taken them */
static int queued;                           /* what the program's stream holds still: it must see the stop word */

static struct communicator {
	bool gone, revoked, finalized;
	int looks;                /* until its child is there */
	ncclComm_t *child;        /* NCCL writes it there when a shrink is through; only the parent's state tells */
} communicators[8];
static _Atomic int made;

static struct communicator *of(ncclComm_t c)
{
	struct communicator *s = (void *)c;
	must(s >= communicators && s < communicators + made && !s->gone);
	return s;
}

static ncclComm_t make(void)
{
	must(made < 8);
	return (ncclComm_t)(void *)&communicators[made++];
}

static bool none_of_nccl, none_at_all;       /* ncclMemAlloc fails; cuMemAlloc, too */
static int plain;                            /* allocations of cuMemAlloc */
static const char program_stream, own_stream;
static void *device[8];           /* allocations */

static CUresult fine(void)
{
	return CUDA_SUCCESS;
}

static CUresult one_device(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

static _Thread_local CUcontext current; /* as on a GPU, a thread begins without one */

static CUresult context_of_device(CUcontext *c, CUdevice d)
{
	(void)d;
	*c = (CUcontext)(uintptr_t)&own_stream;
	return CUDA_SUCCESS;
}

static CUresult a_context(CUcontext *c)
{
	*c = current;
	return CUDA_SUCCESS;
}

static CUresult set_context(CUcontext c)
{
	current = c;
	return CUDA_SUCCESS;
}

static CUresult (*call_back)(CUstream s, CUhostFn function, void *argument); /* NULL: nobody is called */

static CUresult called_back(CUstream s, CUhostFn function, void *argument)
{
	return call_back ? call_back(s, function, argument) : CUDA_SUCCESS;
}

static CUresult an_order(void)
{
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult a_stream(CUstream *s, unsigned flags, int priority)
{
	*s = (CUstream)(uintptr_t)(priority < 0 ? &own_stream : &program_stream);
	return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult query(CUstream s)
{
	asked++;
	if (queued && s == (CUstream)(uintptr_t)&program_stream) {
		must(stop_word(world));
		return --queued ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	}
	if (behind && s == (CUstream)(uintptr_t)&program_stream)
		return CUDA_ERROR_NOT_READY;
	if (bucket_writes && s == (CUstream)(uintptr_t)&own_stream)
		return --bucket_writes ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	if (now() < through)
		return CUDA_ERROR_NOT_READY;
	for (double end = now() + looks_late; looks_late > 0 && (now() < end || !world->mesh->failed);)
		usleep(1000);
	return looks_late > 0 || stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream s, CUstreamCaptureStatus *status)
{
	(void)s;
	*status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **p, size_t bytes, unsigned flags)
{
	*p = calloc(1, bytes);
	return flags & CU_MEMHOSTALLOC_DEVICEMAP ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_free(void *p)
{
	free(p);
	return CUDA_SUCCESS;
}

static CUresult where(void *type, CUpointer_attribute a, CUdeviceptr p)
{
	bool there = false;
	for (int i = 0; i < 8; i++)
		there |= device[i] && (uintptr_t)p >= (uintptr_t)device[i] && (uintptr_t)p < (uintptr_t)device[i] + (1 << 20);
	*(CUmemorytype *)type = there ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	return !current ? CUDA_ERROR_INVALID_CONTEXT : a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(CUdeviceptr p, unsigned char value, size_t n, CUstream s)
{
	if (current && s == (CUstream)(uintptr_t)&program_stream) /* no other is waited for */
		memset((void *)(uintptr_t)p, value, n);
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
	memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
	return current && s == (CUstream)(uintptr_t)&program_stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int room(void **p, size_t bytes)
{
	must(bytes <= 1 << 20 && !posix_memalign(p, 64, 1 << 20));
	for (int i = 0; i < 8; i++)
		if (!device[i]) {
			device[i] = memset(*p, 0xff, 1 << 20);
			return 0;
		}
	return -1;
}

static void give_back(void *p)
{
	must(!bucket_writes);
	for (int i = 0; i < 8; i++)
		device[i] = device[i] == p ? NULL : device[i];
	free(p);
}

static CUresult allocate_plain(CUdeviceptr *to, size_t bytes)
{
	void *p;
	if (none_at_all || room(&p, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*to = (CUdeviceptr)(uintptr_t)p;
	plain++;
	return CUDA_SUCCESS;
}

static CUresult release_plain(CUdeviceptr p)
{
	give_back((void *)(uintptr_t)p);
	plain--;
	return CUDA_SUCCESS;
}

static float between_events = -1; /* milliseconds; less than 0: the device is not through with them */

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
	(void)from, (void)to;
	must(!capturing);
	*ms = between_events;
	return between_events < 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static bool one_gpu; /* for all ranks of a node */

static CUresult bus_of_device(char *text, int size, CUdevice which)
{
	(void)which;
	snprintf(text, (size_t)size, "0000:%02x:00.0", one_gpu ? 0x15 : 0x15 + meeting_rank);
	return CUDA_SUCCESS;
}

#define PUT(slot, function) ((slot) = (__typeof__(slot))(void *)(function))

int __wrap_driver_bind(struct driver *cu, char why[WHY_BYTES])
{
	(void)why;
	void (**every)(void) = (void *)cu;
	for (size_t i = 0; i < sizeof *cu / sizeof *every; i++)
		every[i] = (void (*)(void))fine;
	PUT(cu->cuDeviceGetCount, one_device);
	PUT(cu->cuCtxGetCurrent, a_context);
	PUT(cu->cuDeviceGetPCIBusId, bus_of_device);
	PUT(cu->cuCtxSetCurrent, set_context);
	PUT(cu->cuDevicePrimaryCtxRetain, context_of_device);
	PUT(cu->cuMemcpyAsync, copy);
	PUT(cu->cuEventRecord, an_order);
	PUT(cu->cuEventElapsedTime, elapsed);
	PUT(cu->cuStreamWaitEvent, an_order);
	PUT(cu->cuMemcpyDtoDAsync, copy);
	PUT(cu->cuStreamCreateWithPriority, a_stream);
	PUT(cu->cuStreamQuery, query);
	PUT(cu->cuStreamIsCapturing, is_capturing);
	PUT(cu->cuLaunchHostFunc, called_back);
	PUT(cu->cuMemAlloc, allocate_plain);
	PUT(cu->cuMemFree, release_plain);
	PUT(cu->cuMemHostAlloc, host_alloc);
	PUT(cu->cuMemFreeHost, host_free);
	PUT(cu->cuPointerGetAttribute, where);
	PUT(cu->cuMemsetD8Async, set);
	return 0;
}

static int nccl_version = 22809; /* 0: there is none */

static ncclResult_t version(int *v)
{
	*v = nccl_version;
	return ncclSuccess;
}

static ncclResult_t id(ncclUniqueId *i)
{
	ids_made++;
	memset(i, 7, sizeof *i);
	return ncclSuccess;
}

static bool fails_on_rank_1; /* where the others wait for it */

static ncclResult_t init(ncclComm_t *c, int size, ncclUniqueId i, int rank, ncclConfig_t *config)
{
	if (fails_on_rank_1 && rank == 1)
		return ncclSystemError;
	*c = make();
	noticed = false;
	stuck = fails_on_rank_1;
	return size == world->world.size && rank == world->world.rank && i.internal[3] == 7 && !config->blocking ? ncclInProgress : ncclInvalidArgument;
}

static ncclResult_t state_of(ncclComm_t c, ncclResult_t *rc)
{
	struct communicator *s = of(c);
	must(!shrink_called);
	if (s->child && !shrinks_for_ever && !--s->looks) {
		*s->child = make();
		s->child = NULL;
	}
	*rc = noticed ? ncclRemoteError : stuck || s->child || (graph_left && s->finalized) ? ncclInProgress : ncclSuccess;
	return ncclSuccess;
}

static ncclResult_t allocate(void **p, size_t bytes)
{
	return none_of_nccl || room(p, bytes) ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t release(void *p)
{
	must(!none_of_nccl);
	give_back(p);
	return ncclSuccess;
}

static ncclResult_t enlist(ncclComm_t c, void *p, size_t bytes, void **handle)
{
	(void)p, (void)bytes;
	registered++;
	if (none_registered)
		return ncclSystemError;
	*handle = of(c);
	return ncclSuccess;
}

static ncclResult_t delist(ncclComm_t c, void *handle)
{
	must(of(c) == handle && !bucket_writes);
	return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t c)
{
	of(c)->finalized = true;
	bucket_writes = 0;
	return of(c)->revoked ? ncclInvalidArgument : graph_left ? ncclInProgress : ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t c)
{
	must(!of(c)->revoked && of(c)->finalized && !of(c)->child);
	of(c)->gone = true;
	return ncclSuccess;
}

static ncclResult_t sum(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s)
{
	must(type == ncclFloat32);
	if (of(c)->revoked)
		return ncclInvalidUsage;
	on[collectives++ % 64] = s;
	through = takes > 0 ? now() + takes : 0;
	bucket_writes = s == (CUstream)(uintptr_t)&own_stream ? 3 : bucket_writes;
	for (int i = 0; together && i < world->mesh->size; i++)
		while (i != meeting_rank && peer_now(world->mesh, i).doing.sequence < world->mesh->sequence)
			usleep(1000);
	if (stuck || idle)
		return stuck ? ncclInProgress : ncclSuccess;
	struct op o = { .kind = OP_ALLREDUCE, .bucket = -1, .in = in, .out = out, .n = n, .op = op == ncclAvg ? HVD_AVG : HVD_SUM };
	return backend_cpu.run(world, &o) ? ncclInProgress : ncclSuccess;
}

static ncclResult_t revoke_it(ncclComm_t c, int flags)
{
	struct communicator *s = of(c);
	stop_at_revoke = (int)stop_word(world);
	const bool again = s->revoked;
	s->revoked = true;
	stuck = false;
	usleep(again ? 50000 : 0);
	of(c); /* nobody ends it meanwhile */
	return again || flags ? ncclInvalidArgument : ncclInProgress;
}

/* The child is there, and its state asked for, only once the parent's is no more "in progress". */
static ncclResult_t shrink(ncclComm_t c, int *gone, int n, ncclComm_t *fresh, ncclConfig_t *config, int flags)
{
	(void)config;
	must(of(c)->revoked && n == 1 && gone[0] == 1 && !flags);
	shrunk++;
	shrink_called = true;
	world->backend->look(world); /* as the watching thread does at any moment: what is half made is not asked about */
	shrink_called = false;
	if (shrinking)
		wait_at(0, shrinking);
	if (shrinking && meeting_rank == 2)
		raise(SIGKILL);
	of(c)->child = fresh;
	of(c)->looks = 3;
	*fresh = NULL;
	return ncclSuccess;
}

/* With what it was shrinking to. */
static ncclResult_t abort_it(ncclComm_t c)
{
	struct communicator *s = of(c);
	while (graph_left)
		usleep(1000);
	s->gone = true;
	usleep(shrinks_for_ever ? 100000 : 0); /* somebody may use it meanwhile */
	if (!s->revoked) {
		stop_at_revoke = (int)stop_word(world);
		stuck = false;
	}
	return ncclSuccess;
}

static const char *text(void)
{
	return "a text";
}

int __wrap_nccl_bind(struct api *nc, char why[WHY_BYTES])
{
	if (!nccl_version)
		return refuse(why, HVD_EBACKEND, "no NCCL");
	void (**every)(void) = (void *)nc;
	for (size_t i = 0; i < sizeof *nc / sizeof *every; i++)
		every[i] = (void (*)(void))fine;
	PUT(nc->ncclGetVersion, version);
	PUT(nc->ncclGetUniqueId, id);
	PUT(nc->ncclCommInitRankConfig, init);
	PUT(nc->ncclCommGetAsyncError, state_of);
	PUT(nc->ncclMemAlloc, allocate);
	PUT(nc->ncclMemFree, release);
	PUT(nc->ncclCommRegister, enlist);
	PUT(nc->ncclCommDeregister, delist);
	PUT(nc->ncclCommFinalize, finalize);
	PUT(nc->ncclCommDestroy, destroy);
	PUT(nc->ncclAllReduce, sum);
	PUT(nc->ncclCommAbort, abort_it);
	PUT(nc->ncclGetErrorString, text);
	PUT(nc->ncclGetLastError, text);
	PUT(nc->ncclCommRevoke, old_nccl ? NULL : (void *)revoke_it);
	PUT(nc->ncclCommShrink, old_nccl ? NULL : (void *)shrink);
	return 0;
}

/* A test's own way into the world, to know the handle before the communicator is formed. */
static struct hvd *open_world(struct hvd_conf conf)
{
	struct boot boot;
	char why[WHY_BYTES];
	conf.backend = "nccl";
	conf.stream = no_stream ? NULL : (void *)(uintptr_t)&program_stream;
	int status = handle_new(&world, &conf);
	works(world, status);
	works(world, meet(&boot, why));
	works(world, handle_form(world, &boot));
	must(!strcmp(hvd_world(world)->backend, "nccl") && hvd_stream(world) == (void *)(uintptr_t)&program_stream);
	return world;
}

#endif
