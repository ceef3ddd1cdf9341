/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for libnvidia-ml.so.1 on machines without a GPU: the process $NVML_USER, or the one whose number is in the
 * file of that name, holds 5 GiB on the GPU with bus number 1b. Instances begin with the bus number of their GPU:
 * MIG-1b000000-…. Who opens it is written to $NVML_LOG: user ids and program. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int nvmlInit_v2(void)
{
	uid_t real, effective, saved;
	FILE *log = getenv("NVML_LOG") ? fopen(getenv("NVML_LOG"), "a") : NULL;

	if (log && !getresuid(&real, &effective, &saved))
		fprintf(log, "%u %u %u %s\n", real, effective, saved, program_invocation_short_name);
	if (log)
		fclose(log);
	return 0;
}

static unsigned user_of_memory(void)
{
	const char *user = getenv("NVML_USER");
	unsigned pid = user ? (unsigned)atoi(user) : 0;
	FILE *f = user && *user == '/' ? fopen(user, "r") : NULL;

	if (f && fscanf(f, "%u", &pid) != 1)
		pid = 0;
	if (f)
		fclose(f);
	return pid;
}

int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
	*device = (void *)strtoul(address + 5, NULL, 16);
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	*device = (void *)(strtoul(uuid + 4, NULL, 16) >> 24);
	return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *instance, void **device)
{
	*device = instance;
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, char *info)
{
	sprintf(info + 36, "00000000:%02lX:00.0", (unsigned long)device);
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *info)
{
	struct { unsigned pid; unsigned long long memory; unsigned parts[2]; } one = { 0 };

	one.pid = user_of_memory();
	*count = (unsigned long)device == 0x1b && one.pid;
	one.memory = 5ULL << 30;
	memcpy(info, &one, *count * sizeof one);
	return 0;
}
