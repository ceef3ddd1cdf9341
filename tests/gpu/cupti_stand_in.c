/* SPDX-License-Identifier: Apache-2.0
 * CUPTI as far as timeline.cpp asks for it, with the records of a made-up run: CUPTI_STEPS graphs, 10 µs from one to the next, of a loss (2 µs), two
 * merges (1 µs each) and a fill (1 µs). CUPTI_DROPPED: so many it says it has lost; CUPTI_REFUSES: it is not allowed to record. */
#include <cupti.h>
#include <stdlib.h>
#include <string.h>

enum { IN_ONE = 16 /* records a buffer */ };

static CUpti_BuffersCallbackRequestFunc wanted;
static CUpti_BuffersCallbackCompleteFunc filled;
static unsigned enabled;

static union record {
	CUpti_Activity any;
	CUpti_ActivityKernel10 kernel;
	CUpti_ActivityMemset4 fill;
} records[IN_ONE];
static size_t count;

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete)
{
	wanted = request;
	filled = complete;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
	enabled |= kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? 1 : kind == CUPTI_ACTIVITY_KIND_MEMSET ? 2 : 0;
	return getenv("CUPTI_REFUSES") ? CUPTI_ERROR_INSUFFICIENT_PRIVILEGES : CUPTI_SUCCESS;
}

static void flush(void)
{
	uint8_t *buffer;
	size_t size, most;
	wanted(&buffer, &size, &most);
	if (size < count * sizeof *records)
		abort();
	memcpy(buffer, records, count * sizeof *records);
	filled(NULL, 0, buffer, size, count * sizeof *records);
	count = 0;
}

static union record *next(void)
{
	if (count == IN_ONE)
		flush();
	memset(&records[count], 0, sizeof *records);
	return &records[count++];
}

static void kernel(const char *name, uint64_t start, uint64_t ns, uint32_t launch)
{
	if (enabled & 1)
		next()->kernel = (CUpti_ActivityKernel10){ .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .name = name, .start = start, .end = start + ns, .graphId = 7, .correlationId = launch };
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
	(void)flag;
	const int steps = atoi(getenv("CUPTI_STEPS"));
	for (int i = 0; i < steps; i++) {
		const uint64_t at = 1000000 + 10000 * (uint64_t)i;
		kernel("_ZN12_GLOBAL__N_116head_loss_kernelE9head_loss", at, 2000, (uint32_t)i);
		kernel("_Z20bn_statistics_kernel13bn_statistics", at + 2500, 1000, (uint32_t)i);
		kernel("_Z17layer_sums_kernel10layer_sums", at + 3000, 1000, (uint32_t)i);
		if (enabled & 2)
			next()->fill = (CUpti_ActivityMemset4){ .kind = CUPTI_ACTIVITY_KIND_MEMSET, .start = at + 5000, .end = at + 6000, .graphId = 7, .correlationId = (uint32_t)i };
	}
	flush();
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, CUpti_Activity **record)
{
	union record *next_one = *record ? (union record *)*record + 1 : (union record *)buffer;
	if ((uint8_t *)next_one >= buffer + bytes)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = &next_one->any;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
	(void)context, (void)stream;
	*dropped = getenv("CUPTI_DROPPED") ? (size_t)atoi(getenv("CUPTI_DROPPED")) : 0;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
	*text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "another";
	return CUPTI_SUCCESS;
}
