/* SPDX-License-Identifier: Apache-2.0
 * When every kernel of a program ran, from CUPTI's activity records: in graphs too, and with no hardware counters, which not every machine lets be read.
 *
 *     CUDA_INJECTION64_PATH=build/gpu/libtimeline.so TIMELINE_OUT=FILE chexnet bench …
 *
 * CUDA's driver loads it into the program. FILE gets a line for each kernel, copy and fill: begin and end (ns), graph, launch (the same for all of one
 * launched graph), name. A last line, "end N", says how many records were dropped. CUPTI is opened at run time: a wheel of PyTorch's may be all
 * that has it. */
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {

constexpr size_t BUFFER_BYTES = 8 << 20;

struct cupti_library {
	decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
	decltype(&cuptiActivityEnable) enable;
	decltype(&cuptiActivityFlushAll) flush;
	decltype(&cuptiActivityGetNextRecord) next;
	decltype(&cuptiActivityGetNumDroppedRecords) dropped;
	decltype(&cuptiGetResultString) words;
} cupti;

FILE *out;
std::mutex writing;
size_t lost;

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void complain(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("timeline: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

const char *words(CUptiResult code)
{
	const char *text = nullptr;
	return cupti.words(code, &text) == CUPTI_SUCCESS && text ? text : "unknown error";
}

/* The name as in the source; each is read once. */
const char *readable(const char *name)
{
	static auto &known = *new std::unordered_map<std::string, std::string>; /* still there when end() asks */
	auto found = known.find(name);
	if (found == known.end()) {
		int status;
		char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
		found = known.emplace(name, text ? text : name).first;
		free(text);
	}
	return found->second.c_str();
}

void tell(const CUpti_Activity *record)
{
	auto line = [](const auto *r, const char *name) {
		fprintf(out, "%llu %llu %u %u %s\n", (unsigned long long)r->start, (unsigned long long)r->end, r->graphId, r->correlationId, name);
	};
	switch (record->kind) {
	case CUPTI_ACTIVITY_KIND_KERNEL:
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
		auto *kernel = (const CUpti_ActivityKernel10 *)record;
		line(kernel, readable(kernel->name));
		break;
	}
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		line((const CUpti_ActivityMemcpy6 *)record, "copy");
		break;
	case CUPTI_ACTIVITY_KIND_MEMSET:
		line((const CUpti_ActivityMemset4 *)record, "fill");
		break;
	default:
		break;
	}
}

void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *most_records)
{
	*buffer = (uint8_t *)aligned_alloc(8, BUFFER_BYTES);
	*size = *buffer ? BUFFER_BYTES : 0;
	*most_records = 0;
}

void CUPTIAPI buffer_filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t, size_t valid)
{
	std::lock_guard<std::mutex> lock(writing);
	CUpti_Activity *record = nullptr;
	while (valid && cupti.next(buffer, valid, &record) == CUPTI_SUCCESS)
		tell(record);
	size_t dropped = 0;
	if (cupti.dropped(context, stream, &dropped) == CUPTI_SUCCESS)
		lost += dropped;
	free(buffer);
}

void end()
{
	const CUptiResult code = cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	if (code != CUPTI_SUCCESS)
		complain("cuptiActivityFlushAll: %s", words(code));
	std::lock_guard<std::mutex> lock(writing);
	fprintf(out, "end %zu\n", lost);
	fflush(out);
}

template <class F> bool find(void *library, const char *name, F *to)
{
	*to = (F)dlsym(library, name);
	return *to != nullptr;
}

bool begin(const char *path)
{
	void *library = dlopen("libcupti.so.13", RTLD_NOW);
	if (!library) {
		complain("%s", dlerror());
		return false;
	}
	if (!find(library, "cuptiActivityRegisterCallbacks", &cupti.register_callbacks) || !find(library, "cuptiActivityEnable", &cupti.enable) || !find(library, "cuptiActivityFlushAll", &cupti.flush) ||
	    !find(library, "cuptiActivityGetNextRecord", &cupti.next) || !find(library, "cuptiActivityGetNumDroppedRecords", &cupti.dropped) || !find(library, "cuptiGetResultString", &cupti.words)) {
		complain("%s", dlerror());
		return false;
	}
	CUptiResult code = cupti.register_callbacks(buffer_wanted, buffer_filled);
	for (CUpti_ActivityKind kind : { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET })
		if (code == CUPTI_SUCCESS)
			code = cupti.enable(kind);
	if (code != CUPTI_SUCCESS) {
		complain("CUPTI records nothing: %s", words(code));
		return false;
	}
	out = fopen(path, "w");
	if (!out)
		complain("%s cannot be written", path);
	return out;
}

} // namespace

/* Called by the driver. 1: go on. */
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void)
{
	const char *path = getenv("TIMELINE_OUT");
	if (!path)
		complain("TIMELINE_OUT says no file");
	else if (begin(path))
		atexit(end);
	return 1;
}
