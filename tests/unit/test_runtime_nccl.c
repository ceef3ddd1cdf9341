/* SPDX-License-Identifier: Apache-2.0
 * The NCCL back end without a GPU: the driver and NCCL are stand-ins whose device memory is the host's, and whose collectives are
 * those of the CPU back end. What is checked is what libhvd asks of them: buckets on their own stream, memory registered, a lost rank
 * (stop word, then revoke), and a smaller communicator. */
#include "tests/unit/runtime_world.h"

#ifdef HAVE_NCCL

#include "runtime/backend.h"
#include "runtime/nccl_api.h"

int __wrap_driver_bind(struct driver *cu, char why[128]);
int __wrap_nccl_bind(struct api *nc, char why[128]);

static struct hvd *world;         /* for the stand-in's collectives */
static CUstream on[64];           /* the stream of each collective so far */
static int collectives, registered, shrunk, ids_made, ended; /* ended: communicators */
static _Atomic int revoked, stop_at_revoke;
static bool old_nccl, no_stream, stuck;      /* without Revoke and Shrink; a collective never ends */
static bool noticed;              /* the first communicator knows of a broken connection */
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

static CUresult a_stream(CUstream *s, unsigned flags, int priority)
{
	*s = (CUstream)(uintptr_t)(priority < 0 ? &own_stream : &program_stream);
	return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult query(CUstream s)
{
	(void)s;
	return stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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
	if (s == (CUstream)(uintptr_t)&program_stream) /* no other is waited for */
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

#define PUT(slot, function) ((slot) = (__typeof__(slot))(void *)(function))

int __wrap_driver_bind(struct driver *cu, char why[128])
{
	(void)why;
	void (**every)(void) = (void *)cu;
	for (size_t i = 0; i < sizeof *cu / sizeof *every; i++)
		every[i] = (void (*)(void))fine;
	PUT(cu->cuDeviceGetCount, one_device);
	PUT(cu->cuCtxGetCurrent, a_context);
	PUT(cu->cuCtxSetCurrent, set_context);
	PUT(cu->cuDevicePrimaryCtxRetain, context_of_device);
	PUT(cu->cuMemcpyAsync, copy);
	PUT(cu->cuStreamCreateWithPriority, a_stream);
	PUT(cu->cuStreamQuery, query);
	PUT(cu->cuMemAlloc, allocate_plain);
	PUT(cu->cuMemFree, release_plain);
	PUT(cu->cuMemHostAlloc, host_alloc);
	PUT(cu->cuMemFreeHost, host_free);
	PUT(cu->cuPointerGetAttribute, where);
	PUT(cu->cuMemsetD8Async, set);
	return 0;
}

static ncclResult_t version(int *v)
{
	*v = 22809;
	return ncclSuccess;
}

static ncclResult_t id(ncclUniqueId *i)
{
	ids_made++;
	memset(i, 7, sizeof *i);
	return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *c, int size, ncclUniqueId i, int rank, ncclConfig_t *config)
{
	*c = (ncclComm_t)(uintptr_t)&collectives;
	stuck = noticed = false;
	return size == world->world.size && rank == world->world.rank && i.internal[3] == 7 && !config->blocking ? ncclInProgress : ncclInvalidArgument;
}

static ncclResult_t state_of(ncclComm_t c, ncclResult_t *rc)
{
	*rc = noticed ? ncclRemoteError : c && stuck && !revoked ? ncclInProgress : ncclSuccess;
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
	(void)c, (void)bytes;
	registered++;
	*handle = p;
	return ncclSuccess;
}

static ncclResult_t delist(ncclComm_t c, void *handle)
{
	must(c && handle && !ended); /* its memory is not asked after any more */
	return ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t c)
{
	must(c && !ended++);
	return ncclSuccess;
}

static ncclResult_t sum(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s)
{
	must(c && type == ncclFloat32);
	on[collectives++ % 64] = s;
	if (stuck)
		return ncclInProgress;
	struct op o = { .kind = OP_ALLREDUCE, .bucket = -1, .in = in, .out = out, .n = n, .op = op == ncclAvg ? HVD_AVG : HVD_SUM };
	return backend_cpu.run(world, &o) ? ncclInProgress : ncclSuccess;
}

static ncclResult_t revoke_it(ncclComm_t c, int flags)
{
	(void)c, (void)flags;
	stop_at_revoke = (int)*hvd_stop_word(world);
	revoked++;
	return ncclInProgress;
}

static ncclResult_t shrink(ncclComm_t c, int *gone, int n, ncclComm_t *fresh, ncclConfig_t *config, int flags)
{
	(void)config;
	must(c && revoked && n == 1 && gone[0] == 1 && !flags);
	shrunk++;
	stuck = false;
	*fresh = (ncclComm_t)(uintptr_t)&shrunk;
	return ncclInProgress;
}

static ncclResult_t abort_it(ncclComm_t c)
{
	(void)c;
	if (old_nccl) {
		stop_at_revoke = (int)*hvd_stop_word(world);
		stuck = false;
	}
	return ncclSuccess;
}

static const char *text(void)
{
	return "a text";
}

int __wrap_nccl_bind(struct api *nc, char why[128])
{
	(void)why;
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

static void sums_and_buckets(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 }, { "c", 10 } };
	struct hvd *h = open_world(quick_conf());
	struct hvd_plan *p;
	double host = 1;
	(void)arg;
	works(h, hvd_plan_open(h, &p, t, 3, 4000));
	float *slab = hvd_plan_slab(p);
	must(registered == 1 && ids_made == !meeting_rank);
	for (int step = 0; step < 3; step++) {
		for (int i = 0; i < 2010; i++)
			slab[i] = (float)(meeting_rank + i);
		for (int i = 0; i < 3; i++)
			works(h, hvd_plan_ready(p, i));
		works(h, hvd_plan_finish(p));
		must(slab[0] == 1 && slab[2009] == 2010); /* means of 0, 1 and 2 */
	}
	must(collectives == 9 && on[0] == (CUstream)(uintptr_t)&own_stream);
	works(h, hvd_allreduce(h, slab, slab, 10, HVD_F32, HVD_SUM));
	must(slab[0] == 3 && on[9] == (CUstream)(uintptr_t)&program_stream);
	works(h, hvd_allreduce(h, &host, &host, 1, HVD_F64, HVD_SUM)); /* host memory does not go to NCCL */
	must(host == 3 && collectives == 10 && !*hvd_stop_word(h));
	float mine = (float)meeting_rank;
	works(h, hvd_copy(h, slab, &mine, sizeof mine));
	long request = hvd_start_allreduce(h, slab, slab, 1, HVD_F32, HVD_SUM); /* by a thread of libhvd's */
	must(request >= 0);
	works(h, hvd_wait(h, request));
	works(h, hvd_copy(h, &mine, slab, sizeof mine));
	must(mine == 3 && collectives == 11);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void device_memory_goes_to_nccl_and_buckets_to_a_stream_of_their_own(void **state)
{
	(void)state;
	run_ranks("aab", sums_and_buckets, NULL);
	no_stream = true; /* libhvd makes one */
	run_ranks("aab", sums_and_buckets, NULL);
	no_stream = false;
}

static void read_where_it_writes(void *arg)
{
	(void)arg;
	struct hvd *h = open_world(quick_conf());
	const size_t n[] = { 100, 0 };
	float *p = hvd_alloc(h, 1000 * sizeof *p), *own = p + 100 * meeting_rank, host[4] = { 0 };
	must(p);
	must(hvd_allgather(h, p, p, 100, HVD_F32) == HVD_EINVAL);
	must(!strcmp(hvd_error(h), "an all-gather in device memory: in and out overlap; only hvd_allreduce() and hvd_broadcast() work in place there"));
	must(hvd_allgather(h, own, p, 100, HVD_F32) == HVD_EINVAL); /* NCCL's own way, in which rank 0 has in == out */
	must(hvd_allgatherv(h, p, p, n, HVD_F32) == HVD_EINVAL);
	must(hvd_reduce_scatter(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EINVAL);
	must(hvd_alltoall(h, p + 199, p, 100, HVD_F32) == HVD_EINVAL);
	must(!strncmp(hvd_error(h), "an all-to-all in", 16));
	works(h, hvd_allgather(h, p + 200, p, 100, HVD_F32));
	works(h, hvd_reduce_scatter(h, p, p + 200, 100, HVD_F32, HVD_SUM));
	works(h, hvd_alltoall(h, p, p + 200, 100, HVD_F32));
	works(h, hvd_allgather(h, host, host, 2, HVD_F32));
	works(h, hvd_close(h));
}

static void only_all_reduce_and_broadcast_work_in_place_on_a_device(void **state)
{
	(void)state;
	run_ranks("ab", read_where_it_writes, NULL);
}

/* A driver or a container that does not let memory be mapped. */
static void sum_in_plain_memory(void *arg)
{
	(void)arg;
	none_of_nccl = true;
	struct hvd *h = open_world(quick_conf());
	float *p = hvd_alloc(h, 400), *kept = hvd_alloc(h, 400); /* what is kept, closing frees */
	must(p && kept && plain == 2 && registered == 2 && p[0] == 0);
	p[0] = (float)meeting_rank + 1;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	must(p[0] == 3 && collectives == 1);
	hvd_free(h, p);
	must(plain == 1);
	none_at_all = true;
	must(!hvd_alloc(h, 400) && strstr(hvd_error(h), "400 bytes of device memory"));
	works(h, hvd_close(h));
	must(plain == 0);
}

static void without_memory_of_nccl_buffers_are_plain_memory(void **state)
{
	(void)state;
	run_ranks("ab", sum_in_plain_memory, NULL);
}

static void too_slow(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = 1;
	conf.sync = 1;
	conf.on_death = 1; /* calls return */
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 400);
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	stuck = true;
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	must(strstr(hvd_error(h), "an all-reduce is not through within 1 s"));
	stuck = false;
	hvd_close(h);
}

static void a_collective_that_never_ends_is_named_at_the_deadline(void **state)
{
	(void)state;
	run_ranks("ab", too_slow, NULL);
}

/* Rank 1 dies while the others' collective hangs on the device. */
enum { REVOKED, ABORTED, NOTICED }; /* NCCL revokes; cannot yet; could, but one rank's has noticed the death, too */
static void die(void *arg)
{
	struct hvd_conf conf = quick_conf();
	const int way = *(const int *)arg;
	old_nccl = way == ABORTED;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 400);
	must(p);
	noticed = way == NOTICED && !meeting_rank;
	stuck = true; /* before anybody dies: the watching thread may be at it at once, and ends it */
	works(h, hvd_barrier(h));
	if (meeting_rank == 1)
		raise(SIGKILL);
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	must(strstr(hvd_error(h), "lost rank 1 on node-a"));
	for (double end = now() + 20; !*hvd_stop_word(h) && now() < end;) /* the watching thread is at it */
		usleep(1000);
	must(*hvd_stop_word(h) == 1);
	ids_made = registered = 0;
	works(h, hvd_recover(h));
	must(stop_at_revoke == 1); /* the stop word comes first */
	must(hvd_world(h)->size == 2 && *hvd_stop_word(h) == 0 && registered == 1);
	must(way == REVOKED ? shrunk == 1 && !ids_made : !shrunk && ids_made == !meeting_rank);
	p[0] = 1;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	must(p[0] == 2);
	works(h, hvd_close(h));
}

static void survivors_stop_the_device_and_shrink(void **state)
{
	(void)state;
	for (int way = REVOKED; way <= NOTICED; way++) {
		int status[RANKS_MAX];
		spawn_ranks("aab", die, &way, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[1], SIGKILL);
		assert_int_equal(status[2], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_memory_goes_to_nccl_and_buckets_to_a_stream_of_their_own),
		cmocka_unit_test(only_all_reduce_and_broadcast_work_in_place_on_a_device),
		cmocka_unit_test(without_memory_of_nccl_buffers_are_plain_memory),
		cmocka_unit_test(a_collective_that_never_ends_is_named_at_the_deadline),
		cmocka_unit_test(survivors_stop_the_device_and_shrink),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void without_nccl(void **state)
{
	(void)state;
	skip_because("built without nccl.h");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(without_nccl) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
