/* SPDX-License-Identifier: Apache-2.0
 * The functions of NCCL and of the CUDA driver that libhvd calls, opened at run time: one library serves machines with
 * and without GPUs. */
#ifndef HVD_RUNTIME_NCCL_API_H
#define HVD_RUNTIME_NCCL_API_H

#include "backend.h"
#include "library.h"

#include <cuda.h>
#include <nccl.h>

#define DRIVER_FUNCTIONS(F) \
	F(cuInit) F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetPCIBusId) F(cuDevicePrimaryCtxRetain) F(cuCtxGetDevice) F(cuCtxGetCurrent) F(cuCtxSetCurrent) \
	F(cuStreamCreateWithPriority) F(cuStreamDestroy) F(cuStreamWaitEvent) F(cuStreamQuery) F(cuStreamIsCapturing) F(cuEventCreate) \
	F(cuEventRecord) F(cuEventRecordWithFlags) F(cuEventDestroy) F(cuLaunchHostFunc) F(cuPointerGetAttribute) F(cuMemsetD8Async) F(cuMemcpyAsync) F(cuMemcpyDtoDAsync) F(cuMemAlloc) F(cuMemFree) \
	F(cuMemHostAlloc) F(cuMemFreeHost) F(cuGetErrorName)

#define NCCL_FUNCTIONS(F) \
	F(ncclGetVersion) F(ncclGetUniqueId) F(ncclCommInitRankConfig) F(ncclCommGetAsyncError) F(ncclCommFinalize) F(ncclCommDestroy) \
	F(ncclCommAbort) F(ncclMemAlloc) F(ncclMemFree) F(ncclCommRegister) F(ncclCommDeregister) F(ncclAllReduce) F(ncclBroadcast) \
	F(ncclAllGather) F(ncclReduceScatter) F(ncclSend) F(ncclRecv) F(ncclGroupStart) F(ncclGroupEnd) F(ncclGetErrorString) F(ncclGetLastError)

struct driver {
	DRIVER_FUNCTIONS(LIBRARY_MEMBER)
	/* By its first name, that of every driver: what headers say is that of the newest only. */
	CUresult (*cuEventElapsedTime)(float *, CUevent, CUevent);
};

struct api {
	NCCL_FUNCTIONS(LIBRARY_MEMBER)
	/* Since NCCL 2.23, 2.28 and 2.27; NULL in an older one. */
	ncclResult_t (*ncclCommInitRankScalable)(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
	ncclResult_t (*ncclCommRevoke)(ncclComm_t, int);
	ncclResult_t (*ncclCommShrink)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
};

/* 0, or -1 with the reason. */
int driver_bind(struct driver *cu, char why[WHY_BYTES]);
int nccl_bind(struct api *nc, char why[WHY_BYTES]);

#endif
