/* SPDX-License-Identifier: Apache-2.0
 * The little of CUDA's host side that the engine and its tests use: memory, copies, a stream, launches.
 * Without nvcc the "device" is this process and kernels run through tests/cuda/shim.h. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "lane.h"

/* 1: a kernel is put on its multiprocessors while the one before it ends, and waits there (begin_kernel()). Only for machine code of sm_90: older
 * code does not wait. */
inline unsigned launch_early;

#ifdef __CUDACC__

#include <cstdio>
#include <cuda_runtime_api.h>

typedef cudaStream_t device_stream;
enum { DEVICE_NO_MEMORY = cudaErrorMemoryAllocation };

/* Shared memory that a block can have, bytes. */
inline size_t device_shared()
{
	int device = 0, bytes = 0;
	if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
		return 48 * 1024;
	return (size_t)bytes;
}

/* 0, or CUDA's error code; device_error() tells it in words. */
template <class Args>
inline int launch(void (*kernel)(Args), unsigned blocks, unsigned threads, size_t shared_bytes, device_stream stream, const Args &args)
{
	if (shared_bytes > 48 * 1024) {
		/* All there is, and not what this launch needs: the limit is the kernel's, not the launch's, and a layer that needs less would lower it below
		 * what a graph's nodes of other layers ask for. */
		static const int most = (int)device_shared();
		cudaError_t set = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
		if (set != cudaSuccess)
			return set;
	}
	Args copy = args;
	void *list[] = { &copy };
	cudaLaunchAttribute early = {};
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	cudaLaunchConfig_t how = {};
	how.gridDim = dim3(blocks);
	how.blockDim = dim3(threads);
	how.dynamicSmemBytes = shared_bytes;
	how.stream = stream;
	how.attrs = &early;
	how.numAttrs = launch_early;
	return cudaLaunchKernelExC(&how, (const void *)kernel, list);
}

#define DEVICE_WORDS_OF(number) #number
#define DEVICE_WORDS(number) DEVICE_WORDS_OF(number)

inline const char *device_error(int code)
{
	if (code == cudaErrorInsufficientDriver) /* also where the driver's library is missing or does not answer */
		return "there is no NVIDIA driver, or it is too old for CUDA " DEVICE_WORDS(__CUDACC_VER_MAJOR__) "." DEVICE_WORDS(__CUDACC_VER_MINOR__) ", with which this was built: update it, or build with an older toolkit";
	if (code == cudaErrorNoKernelImageForDevice)
		return "this build has no code for it: build with its number in CUDA_ARCHS (70, a V100's, with a CUDA 12 toolkit and cuDNN 9.10), or use --engine cpu";
	return cudaGetErrorString((cudaError_t)code);
}

/* Where memory runs out the runtime keeps that as the last error, which device_wait() would report, of what is done then. */
inline int device_without_memory(cudaError_t code)
{
	if (code == cudaErrorMemoryAllocation)
		cudaGetLastError();
	return code;
}

inline int device_alloc(void **p, size_t bytes)
{
	return device_without_memory(cudaMalloc(p, bytes));
}

inline void device_free(void *p)
{
	cudaFree(p);
}

inline int device_upload(void *device, const void *host, size_t bytes, device_stream stream)
{
	return cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
}

inline int device_download(void *host, const void *device, size_t bytes, device_stream stream)
{
	return cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
}

/* Host memory that the device copies from and to by itself, while the program goes on. */
inline int device_alloc_host(void **p, size_t bytes)
{
	return device_without_memory(cudaMallocHost(p, bytes));
}

inline void device_free_host(void *p)
{
	cudaFreeHost(p);
}

inline int device_fill(void *device, int byte, size_t bytes, device_stream stream)
{
	return cudaMemsetAsync(device, byte, bytes, stream);
}

inline int device_wait(device_stream stream)
{
	int code = cudaStreamSynchronize(stream);
	return code ? code : cudaGetLastError();
}

/* The error of an earlier kernel that ends all work on the device, without waiting; in a capture only what is known already. */
inline int device_fault(device_stream stream)
{
	cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t code = cudaStreamIsCapturing(stream, &capture);
	if (code == cudaSuccess && capture == cudaStreamCaptureStatusNone)
		code = cudaStreamQuery(stream);
	if (code != cudaErrorNotReady)
		return code;
	cudaGetLastError();
	return 0;
}

inline int device_sms()
{
	int device = 0, sms = 0;
	if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
		return 1;
	return sms;
}

/* Bytes, free or not; 0: not known. */
inline double device_memory()
{
	size_t unused, total;
	return cudaMemGetInfo(&unused, &total) == cudaSuccess ? (double)total : 0;
}

/* Bytes that are free; 0: not known. */
inline double device_room()
{
	size_t room, total;
	return cudaMemGetInfo(&room, &total) == cudaSuccess ? (double)room : 0;
}

inline int device_stream_make(device_stream *stream)
{
	return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}

inline void device_stream_free(device_stream stream)
{
	cudaStreamDestroy(stream);
}

/* A moment in a stream. */
typedef cudaEvent_t device_event;

inline int device_event_make(device_event *event)
{
	return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

inline void device_event_free(device_event event)
{
	cudaEventDestroy(event);
}

inline int device_event_record(device_event event, device_stream stream)
{
	return cudaEventRecord(event, stream);
}

/* The stream goes on after it; the program does not wait. */
inline int device_stream_after(device_stream stream, device_event event)
{
	return cudaStreamWaitEvent(stream, event, 0);
}

inline int device_event_wait(device_event event)
{
	return cudaEventSynchronize(event);
}

/* 1: it has come, 0: not yet, negative: CUDA's error code. */
inline int device_event_come(device_event event)
{
	cudaError_t code = cudaEventQuery(event);
	if (code == cudaErrorNotReady)
		cudaGetLastError(); /* it is no error, but the runtime may keep it as the last one, which device_wait() would report */
	return code == cudaSuccess ? 1 : code == cudaErrorNotReady ? 0 : -(int)code;
}

/* Can kernels write there? (A slab of the NCCL back end is device memory, the CPU back end's is not.) */
inline bool device_reaches(const void *p)
{
	cudaPointerAttributes attributes;
	if (cudaPointerGetAttributes(&attributes, p) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	return attributes.type == cudaMemoryTypeDevice;
}

/* "NVIDIA H200, sm_90" */
inline int device_describe(char *text, size_t size, int *capability)
{
	int device = 0;
	cudaDeviceProp properties;
	cudaError_t code = cudaGetDevice(&device);
	if (code == cudaSuccess)
		code = cudaGetDeviceProperties(&properties, device);
	if (code != cudaSuccess)
		return code;
	*capability = 10 * properties.major + properties.minor;
	snprintf(text, size, "%.80s, sm_%d", properties.name, *capability);
	return 0;
}

typedef cudaGraphExec_t device_graph;

inline int device_capture_begin(device_stream stream)
{
	return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}

/* *graph is NULL after a failure. */
inline int device_capture_end(device_stream stream, device_graph *graph)
{
	cudaGraph_t captured = nullptr;
	cudaError_t code = cudaStreamEndCapture(stream, &captured);
	*graph = nullptr;
	if (code == cudaSuccess)
		code = cudaGraphInstantiate(graph, captured, 0);
	if (captured)
		cudaGraphDestroy(captured);
	if (code != cudaSuccess)
		cudaGetLastError(); /* or device_wait() would report it again, of what is done then */
	return code;
}

inline int device_graph_launch(device_graph graph, device_stream stream)
{
	return cudaGraphLaunch(graph, stream);
}

inline void device_graph_free(device_graph graph)
{
	cudaGraphExecDestroy(graph);
}

#endif

#endif
