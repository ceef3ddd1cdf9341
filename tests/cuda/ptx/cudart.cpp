/* SPDX-License-Identifier: Apache-2.0
 * What nvcc's objects ask of CUDA's runtime, on the machine in software: linked instead of it. Work is done at once, in the order in which
 * it is given (the shim has streams that differ), or kept in a graph while a stream is being captured. Calls that a GPU would refuse are
 * refused. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <cuda_runtime_api.h>
#include <zstd.h>

#include "ptx.h"

/* What a stream did last, when its work is done: an early kernel begins when a kernel right in front of it has begun, which may itself have been early. */
struct work_order {
	bool kernel = false;  /* else something that is waited for */
	uint64_t graph = 0;   /* in which graph's run; a graph's first kernel comes after all before */
	uint32_t settled = 0; /* the last launch that had ended when that kernel began */
};

struct CUstream_st {
	uint64_t capture = 0;     /* the number of the one that it joined last */
	std::set<size_t> newest;  /* steps of that capture which its next one comes after */
	std::shared_ptr<work_order> order = std::make_shared<work_order>();
};
struct CUevent_st {
	uint64_t capture = 0;     /* it was recorded in; 0: in none */
	std::set<size_t> newest;
};
struct CUgraph_st {
	std::vector<std::function<void()>> steps;
	std::vector<std::set<size_t>> after; /* of each step: those right before it */
};
struct CUgraphExec_st {
	std::vector<std::function<void()>> steps;
};

namespace {

struct function {
	ptx::module *home;
	std::string name;
	size_t shared_most = 0; /* cudaFuncSetAttribute(); 0: the default */
	bool launched = false;
};

std::map<const void *, function> &functions()
{
	static std::map<const void *, function> f;
	return f;
}

CUgraph_st *capture;
uint64_t captures;   /* the number of the one that goes on, or of the last */
cudaStream_t origin; /* of the capture */
cudaError_t last_error;
uint64_t graph_runs; /* begun and ended */
std::map<const char *, size_t> pinned;

cudaError_t result(cudaError_t code)
{
	if (code != cudaSuccess)
		last_error = code;
	return code;
}

[[noreturn]] void misuse(const char *call, const char *what)
{
	fprintf(stderr, "%s: %s\n", call, what);
	abort();
}

void not_in_capture(const char *call)
{
	if (capture)
		misuse(call, "while a stream is being captured");
}

bool is_captured(cudaStream_t stream)
{
	return capture && stream && stream->capture == captures;
}

cudaError_t enqueue(cudaStream_t stream, const std::function<void()> &what)
{
	if (capture && !stream)
		misuse("a call on the default stream", "while a stream is being captured");
	if (is_captured(stream)) {
		capture->after.push_back(stream->newest);
		stream->newest = { capture->steps.size() };
		capture->steps.push_back(what);
	} else {
		what();
	}
	return cudaSuccess;
}

std::shared_ptr<work_order> order_of(cudaStream_t stream)
{
	static const std::shared_ptr<work_order> of_default = std::make_shared<work_order>();
	return stream ? stream->order : of_default;
}

/* Of what is no kernel. */
cudaError_t enqueue_other(cudaStream_t stream, const std::function<void()> &what)
{
	return enqueue(stream, [what, order = order_of(stream)] {
		what();
		order->kernel = false;
	});
}

bool launch_refused(const ptx::kernel &k, const function &f, const cudaLaunchConfig_t &how, const char **why)
{
	const dim3 grid = how.gridDim, block = how.blockDim;
	*why = nullptr;
	if (block.x < 1 || block.x * block.y * block.z > k.threads_most || block.y != 1 || block.z != 1)
		*why = "more threads than the kernel was compiled for";
	else if (grid.x < 1 || grid.x > 0x7fffffff || grid.y != 1 || grid.z != 1)
		*why = "a grid of no blocks, or of more dimensions than one";
	else if (how.dynamicSmemBytes > (f.shared_most ? f.shared_most : ptx::machine.shared_default))
		*why = "more shared memory than the function was allowed";
	return *why;
}

/* PTX_CAPABILITY: of a GPU that is newer than the code that runs on it, or older than any that there is. */
int capability()
{
	const char *other = getenv("PTX_CAPABILITY");
	return other ? atoi(other) : ptx::machine.capability;
}

cudaError_t launch_kernel(const void *host, const cudaLaunchConfig_t &how, void **args)
{
	if (capability() < 75)
		return result(cudaErrorNoKernelImageForDevice);
	auto found = functions().find(host);
	if (found == functions().end())
		return result(cudaErrorInvalidDeviceFunction);
	const ptx::kernel *k = found->second.home->find(found->second.name);
	const char *why;
	if (!k)
		return result(cudaErrorInvalidDeviceFunction);
	if (launch_refused(*k, found->second, how, &why)) {
		fprintf(stderr, "%s: refused: %s (%u blocks, %u threads, %zu bytes)\n", k->name.c_str(), why, how.gridDim.x, how.blockDim.x, how.dynamicSmemBytes);
		return result(cudaErrorInvalidConfiguration);
	}
	if (is_captured(how.stream) && !found->second.launched)
		misuse(k->name.c_str(), "is launched for the first time in a capture, which is when its code would be loaded");
	found->second.launched = true;
	std::vector<uint8_t> params((const uint8_t *)args[0], (const uint8_t *)args[0] + k->param_bytes); /* every kernel of ours takes one struct */
	ptx::launch grid = { how.gridDim.x, how.blockDim.x, how.dynamicSmemBytes, how.numAttrs != 0, 0 };
	return enqueue(how.stream, [k, grid, params, order = order_of(how.stream)]() mutable {
		const bool behind_kernel = order->kernel && order->graph == graph_runs;
		grid.settled = grid.early && behind_kernel ? order->settled : (uint32_t)ptx::machine_launches;
		*order = { true, graph_runs, grid.settled };
		ptx::run(*k, grid, params.data());
	});
}

/* Does every step come before the end of the stream whose capture ends? */
bool all_joined()
{
	std::vector<bool> seen(capture->steps.size());
	std::vector<size_t> open(origin->newest.begin(), origin->newest.end());
	size_t count = 0;
	while (!open.empty()) {
		const size_t step = open.back();
		open.pop_back();
		if (seen[step])
			continue;
		seen[step] = true;
		count++;
		open.insert(open.end(), capture->after[step].begin(), capture->after[step].end());
	}
	return count == capture->steps.size();
}

bool is_pinned(const void *p, size_t bytes)
{
	auto next = pinned.upper_bound((const char *)p);
	return next != pinned.begin() && (--next, (const char *)p + bytes <= next->first + next->second);
}

/* ---- a fat binary: entries of machine code and PTX, of which PTX is taken ---- */

struct fat_wrapper {
	int magic, version;
	const uint8_t *data;
	const void *more;
};

struct fat_header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes;
};

struct fat_entry {
	uint16_t kind, version; /* kind 1: PTX */
	uint32_t header_bytes;
	uint64_t bytes;
	uint32_t compressed_bytes; /* 0: it is not compressed */
};

std::string text_of(const fat_entry &e, const uint8_t *data)
{
	if (!e.compressed_bytes)
		return std::string((const char *)data, strnlen((const char *)data, e.bytes));
	const unsigned long long size = ZSTD_getFrameContentSize(data, e.compressed_bytes);
	if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
		misuse("PTX in an object", "compressed in a way that is not known (zstd is)");
	std::string text(size, 0);
	if (ZSTD_decompress(&text[0], size, data, e.compressed_bytes) != size)
		misuse("PTX in an object", "damaged");
	text.resize(strnlen(text.c_str(), size));
	return text;
}

}

void ptx::enqueue(void *stream, const std::function<void()> &what)
{
	enqueue_other((cudaStream_t)stream, what);
}

extern "C" {

void **__cudaRegisterFatBinary(void *wrapper)
{
	const uint8_t *data = ((const fat_wrapper *)wrapper)->data;
	fat_header h;
	memcpy(&h, data, sizeof h);
	const uint8_t *end = data + h.header_bytes + h.bytes;
	for (const uint8_t *p = data + h.header_bytes; p < end;) {
		fat_entry e;
		memcpy(&e, p, sizeof e);
		if (e.kind == 1)
			return (void **)new ptx::module(text_of(e, p + e.header_bytes));
		p += e.header_bytes + e.bytes;
	}
	misuse("an object", "without PTX");
}

void __cudaRegisterFatBinaryEnd(void **)
{
}

void __cudaUnregisterFatBinary(void **)
{
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *)
{
	functions()[host] = { (ptx::module *)handle, name };
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	*kernel = (cudaKernel_t)(uintptr_t)host;
	return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	cudaLaunchConfig_t how = {};
	how.gridDim = grid;
	how.blockDim = block;
	how.dynamicSmemBytes = shared;
	how.stream = stream;
	return launch_kernel(host, how, args);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *host, void **args)
{
	if (how->numAttrs && ptx::machine.capability < 90)
		misuse("cudaLaunchKernelExC", "early, of code for compute_80, which does not wait");
	return launch_kernel(host, *how, args);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}

static struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
	configuration = { grid, block, shared, stream };
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	*grid = configuration.grid;
	*block = configuration.block;
	*shared = configuration.shared;
	*(void **)stream = configuration.stream;
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value)
{
	auto found = functions().find(host);
	if (found == functions().end() || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || (size_t)value > ptx::machine.shared_most)
		return result(cudaErrorInvalidValue);
	found->second.shared_most = (size_t)value;
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorMemoryAllocation ? "out of memory" : error == cudaSuccess ? "no error" : "refused by the machine in software";
}

cudaError_t cudaGetLastError(void)
{
	const cudaError_t code = last_error;
	last_error = cudaSuccess;
	return code;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	not_in_capture("cudaMalloc");
	*p = ptx::memory_allocate(bytes);
	return result(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *p)
{
	not_in_capture("cudaFree");
	return result(!p || ptx::memory_free(p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	not_in_capture("cudaMallocHost");
	*p = malloc(bytes);
	pinned[(char *)*p] = bytes;
	return result(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
	not_in_capture("cudaFreeHost");
	pinned.erase((char *)p);
	free(p);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	if (bytes && kind != cudaMemcpyDefault && (ptx::memory_is_device(to) != to_device || ptx::memory_is_device(from) != from_device))
		misuse("cudaMemcpy", "memory is not where the kind of the copy says");
	if (is_captured(stream) && !(to_device || is_pinned(to, bytes)))
		misuse("cudaMemcpy", "to host memory that is not pinned, in a capture");
	if (is_captured(stream) && !(from_device || is_pinned(from, bytes)))
		misuse("cudaMemcpy", "of host memory that is not pinned, in a capture");
	return enqueue_other(stream, [=] { ptx::memory_copy(to, from, bytes); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	not_in_capture("cudaMemcpy");
	return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t stream)
{
	if (bytes && !ptx::memory_is_device(p))
		misuse("cudaMemset", "memory is not the device's");
	return enqueue_other(stream, [=] {
		memset(p, byte, bytes);
		ptx::memory_written(p, bytes);
	});
}

cudaError_t cudaMemset(void *p, int byte, size_t bytes)
{
	not_in_capture("cudaMemset");
	return cudaMemsetAsync(p, byte, bytes, nullptr);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
	*unused = *total = (size_t)4 << 30;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
	memset(attributes, 0, sizeof *attributes);
	attributes->type = ptx::memory_is_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
	return cudaSuccess;
}

/* ---- the device ---- */

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return result(device ? cudaErrorInvalidDevice : cudaSuccess);
}

/* PTX_CACHE: bytes of the second-level cache. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int)
{
	switch ((int)attribute) {
	case cudaDevAttrMultiProcessorCount:
		*value = (int)ptx::machine.sms;
		return cudaSuccess;
	case cudaDevAttrL2CacheSize:
		*value = getenv("PTX_CACHE") ? atoi(getenv("PTX_CACHE")) : 60 << 20;
		return cudaSuccess;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*value = (int)ptx::machine.shared_most;
		return cudaSuccess;
	}
	return result(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int)
{
	memset(properties, 0, sizeof *properties);
	snprintf(properties->name, sizeof properties->name, "machine in software");
	properties->major = capability() / 10;
	properties->minor = capability() % 10;
	properties->multiProcessorCount = (int)ptx::machine.sms;
	return cudaSuccess;
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
	*stream = new CUstream_st;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	if (is_captured(stream))
		misuse("cudaStreamDestroy", "of a stream that is being captured");
	delete stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	not_in_capture("cudaStreamSynchronize or a query");
	return cudaSuccess;
}

/* PTX_FAULT: what a kernel that faulted leaves. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return getenv("PTX_FAULT") ? result(cudaErrorIllegalAddress) : cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	*status = is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	*event = new CUevent_st;
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	event->capture = is_captured(stream) ? captures : 0;
	event->newest = event->capture ? stream->newest : std::set<size_t>();
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
	if (event->capture && !(capture && event->capture == captures))
		misuse("cudaStreamWaitEvent", "for an event that was recorded in a capture that has ended");
	if (is_captured(stream) && !event->capture)
		misuse("cudaStreamWaitEvent", "a captured stream waits for an event from outside the capture");
	if (!event->capture)
		return cudaSuccess;
	if (!stream)
		misuse("cudaStreamWaitEvent", "the default stream cannot join a capture");
	if (!is_captured(stream))
		stream->newest.clear();
	stream->capture = captures;
	stream->newest.insert(event->newest.begin(), event->newest.end());
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	not_in_capture("cudaEventSynchronize or a query");
	if (event->capture)
		misuse("cudaEventSynchronize", "the event was recorded in a capture");
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
	*ms = 1; /* there is no time here */
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
	if (capture || !stream)
		misuse("cudaStreamBeginCapture", "a second capture, or the default stream");
	capture = new CUgraph_st;
	origin = stream;
	stream->capture = ++captures;
	stream->newest.clear();
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	if (!capture || stream != origin)
		misuse("cudaStreamEndCapture", "of a stream whose capture did not begin");
	if (!all_joined())
		misuse("cudaStreamEndCapture", "a stream that joined the capture has work that nothing in the first one waits for");
	*graph = capture;
	capture = nullptr;
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
	*exec = new CUgraphExec_st{ graph->steps };
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	delete graph;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	delete exec;
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	not_in_capture("cudaGraphLaunch");
	return enqueue_other(stream, [exec] {
		graph_runs++;
		for (const auto &step : exec->steps)
			step();
		graph_runs++;
	});
}

}
