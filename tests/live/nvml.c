/* SPDX-License-Identifier: Apache-2.0
 * A libnvidia-ml.so.1 for machines without a GPU: the process $NVML_USER holds 5 GiB on the GPU with bus number 1b. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
	*device = (void *)strtoul(address + 5, NULL, 16);
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	(void)uuid;
	*device = (void *)0x1bUL;
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
	const char *user = getenv("NVML_USER");

	*count = (unsigned long)device == 0x1b && user;
	one.pid = user ? (unsigned)atoi(user) : 0;
	one.memory = 5ULL << 30;
	memcpy(info, &one, *count * sizeof one);
	return 0;
}
