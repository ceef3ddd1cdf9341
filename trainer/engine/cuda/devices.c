/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gpu_sheet sheets[] = {
	{ "h200", "NVIDIA H200", 90, 132, 141e9, 1980000, 3201000, 62914560, 232448 },
	{ "h100", "NVIDIA H100 80GB HBM3", 90, 132, 80e9, 1980000, 2619000, 52428800, 232448 },
	{ "a100", "NVIDIA A100-SXM4-80GB", 80, 108, 80e9, 1410000, 1593000, 41943040, 166912 },
	{ "a100-40", "NVIDIA A100-SXM4-40GB", 80, 108, 40e9, 1410000, 1215000, 41943040, 166912 },
	{ "t4", "Tesla T4", 75, 40, 16e9, 1590000, 5001000, 4194304, 65536 },
};

enum { SHEETS = sizeof sheets / sizeof sheets[0] };

int gpu_sheet_find(struct gpu_sheet *sheet, const char *name, struct error *e)
{
	char names[128] = "", *end;
	size_t used = 0;

	for (int i = 0; i < SHEETS; i++) {
		if (strcmp(name, sheets[i].name) == 0) {
			*sheet = sheets[i];
			return 0;
		}
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", sheets[i].name);
	}
	double gib = strtod(name, &end);

	if (end == name || *end || !(gib > 0 && gib < 1e6))
		return fail(e, EXIT_USAGE, "no data sheet of a GPU \"%s\": known are %s, or say its memory in GiB", name, names);
	*sheet = sheets[0];
	sheet->memory = gib * 0x1p30;
	return 0;
}

void gpu_sheet_json(const struct gpu_sheet *s, char *json, size_t size)
{
	const int ampere = s->capability >= 80;

	snprintf(json, size,
	         "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
	         "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,"
	         "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":15000000000,"
	         "\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\"}",
	         s->sms, s->shared, ampere ? 1024 : 0, ampere ? 32 : 16, ampere ? 2048 : 1024, s->clock_khz, s->memory_khz, s->l2, 10 * s->capability, s->full_name);
}
