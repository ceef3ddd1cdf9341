/* SPDX-License-Identifier: Apache-2.0
 * The functions of NCCL and of the CUDA driver that libhvd calls, opened at run time: one library serves machines with
 * and without GPUs. */
#ifndef HVD_RUNTIME_NCCL_API_H
#define HVD_RUNTIME_NCCL_API_H

#include "backend.h"

#include <cuda.h>
#include <nccl.h>

struct driver {
	CUresult (*init)(unsigned);
	CUresult (*device_count)(int *);
	CUresult (*device_get)(CUdevice *, int);
	CUresult (*context_retain)(CUcontext *, CUdevice);
	CUresult (*context_release)(CUdevice);
	CUresult (*context_current)(CUcontext *);
	CUresult (*context_set)(CUcontext);
	CUresult (*stream_create)(CUstream *, unsigned, int);
	CUresult (*stream_destroy)(CUstream);
	CUresult (*stream_wait)(CUstream, CUevent, unsigned);
	CUresult (*event_create)(CUevent *, unsigned);
	CUresult (*event_record)(CUevent, CUstream);
	CUresult (*event_destroy)(CUevent);
	CUresult (*pointer_attribute)(void *, CUpointer_attribute, CUdeviceptr);
	CUresult (*memory_set)(CUdeviceptr, unsigned char, size_t);
	CUresult (*memory_copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
	CUresult (*error_name)(CUresult, const char **);
};

struct api {
	ncclResult_t (*version)(int *);
	ncclResult_t (*unique_id)(ncclUniqueId *);
	ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
	ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
	ncclResult_t (*finalize)(ncclComm_t);
	ncclResult_t (*destroy)(ncclComm_t);
	ncclResult_t (*abort)(ncclComm_t);
	ncclResult_t (*memory)(void **, size_t);
	ncclResult_t (*memory_free)(void *);
	ncclResult_t (*allreduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream);
	ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
	ncclResult_t (*allgather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, CUstream);
	ncclResult_t (*reduce_scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream);
	ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
	ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
	ncclResult_t (*group_start)(void);
	ncclResult_t (*group_end)(void);
	const char *(*error_string)(ncclResult_t);
	const char *(*last_error)(ncclComm_t);
};

/* 0, or -1 with the reason. */
int driver_bind(struct driver *cu, char why[128]);
int nccl_bind(struct api *nc, char why[128]);

#endif
