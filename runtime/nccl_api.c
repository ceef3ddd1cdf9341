/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_api.h"

#include "library.h"

#include <dlfcn.h>
#include <stdio.h>

static const struct symbol driver_symbols[] = {
	{ "cuInit", offsetof(struct driver, init) },
	{ "cuDeviceGetCount", offsetof(struct driver, device_count) },
	{ "cuDeviceGet", offsetof(struct driver, device_get) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct driver, context_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct driver, context_release) },
	{ "cuCtxGetCurrent", offsetof(struct driver, context_current) },
	{ "cuCtxSetCurrent", offsetof(struct driver, context_set) },
	{ "cuStreamCreateWithPriority", offsetof(struct driver, stream_create) },
	{ "cuStreamDestroy_v2", offsetof(struct driver, stream_destroy) },
	{ "cuStreamWaitEvent", offsetof(struct driver, stream_wait) },
	{ "cuEventCreate", offsetof(struct driver, event_create) },
	{ "cuEventRecord", offsetof(struct driver, event_record) },
	{ "cuEventDestroy_v2", offsetof(struct driver, event_destroy) },
	{ "cuPointerGetAttribute", offsetof(struct driver, pointer_attribute) },
	{ "cuMemsetD8_v2", offsetof(struct driver, memory_set) },
	{ "cuMemcpyDtoDAsync_v2", offsetof(struct driver, memory_copy) },
	{ "cuGetErrorName", offsetof(struct driver, error_name) },
};

static const struct symbol nccl_symbols[] = {
	{ "ncclGetVersion", offsetof(struct api, version) },
	{ "ncclGetUniqueId", offsetof(struct api, unique_id) },
	{ "ncclCommInitRankConfig", offsetof(struct api, init) },
	{ "ncclCommGetAsyncError", offsetof(struct api, async_error) },
	{ "ncclCommFinalize", offsetof(struct api, finalize) },
	{ "ncclCommDestroy", offsetof(struct api, destroy) },
	{ "ncclCommAbort", offsetof(struct api, abort) },
	{ "ncclMemAlloc", offsetof(struct api, memory) },
	{ "ncclMemFree", offsetof(struct api, memory_free) },
	{ "ncclAllReduce", offsetof(struct api, allreduce) },
	{ "ncclBroadcast", offsetof(struct api, broadcast) },
	{ "ncclAllGather", offsetof(struct api, allgather) },
	{ "ncclReduceScatter", offsetof(struct api, reduce_scatter) },
	{ "ncclSend", offsetof(struct api, send) },
	{ "ncclRecv", offsetof(struct api, receive) },
	{ "ncclGroupStart", offsetof(struct api, group_start) },
	{ "ncclGroupEnd", offsetof(struct api, group_end) },
	{ "ncclGetErrorString", offsetof(struct api, error_string) },
	{ "ncclGetLastError", offsetof(struct api, last_error) },
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

int nccl_bind(struct api *nc, char why[128])
{
	static const char *const homes[] = { "NCCL_HOME", "CUDA_HOME", NULL };
	void *library = library_open("libnccl.so.2", homes);
	if (!library) {
		snprintf(why, 128, "%.120s", dlerror());
		return -1;
	}
	const char *missing = library_bind(library, nccl_symbols, COUNT(nccl_symbols), nc);
	if (missing)
		snprintf(why, 128, "libnccl.so.2 has no %s", missing);
	return missing ? -1 : 0;
}

int driver_bind(struct driver *cu, char why[128])
{
	int devices = 0;
	void *library = library_open("libcuda.so.1", NULL);
	if (!library) {
		snprintf(why, 128, "no CUDA driver (libcuda.so.1)");
		return -1;
	}
	const char *missing = library_bind(library, driver_symbols, COUNT(driver_symbols), cu), *name = "unknown";
	if (missing) {
		snprintf(why, 128, "the CUDA driver has no %s", missing);
		return -1;
	}
	CUresult rc = cu->init(0);
	if (!rc)
		rc = cu->device_count(&devices);
	if (rc)
		cu->error_name(rc, &name);
	if (rc || !devices)
		snprintf(why, 128, "no usable GPU (%s)", rc ? name : "CUDA_VISIBLE_DEVICES leaves none");
	return rc || !devices ? -1 : 0;
}

bool nccl_usable(char why[128])
{
	struct driver cu;
	struct api nc;
	return !driver_bind(&cu, why) && !nccl_bind(&nc, why);
}
