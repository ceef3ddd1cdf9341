/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

int nccl_bind(struct api *nc, char why[256])
{
	static const char *const homes[] = { "NCCL_HOME", "CUDA_HOME", NULL };
	static const char *const names[] = { NCCL_FUNCTIONS(LIBRARY_NAME) };
	static const char *const newer[] = { "ncclCommInitRankScalable", "ncclCommRevoke", "ncclCommShrink" };
	void *library = library_open("libnccl.so.2", homes);
	if (!library) {
		snprintf(why, 256, "%.200s; of Python's wheels: NCCL_HOME=.../nvidia/nccl", dlerror());
		return -1;
	}
	const char *missing = library_bind(library, names, COUNT(names), nc);
	library_bind(library, newer, COUNT(newer), &nc->ncclCommInitRankScalable);
	if (missing)
		snprintf(why, 256, "libnccl.so.2 has no %s", missing);
	return missing ? -1 : 0;
}

/* Without one the loader would look for the driver in some eighty places. NVIDIA's own, that of WSL, and Tegra's. */
static bool device_there(void)
{
	static const char *const nodes[] = { "/dev/nvidiactl", "/dev/dxg", "/dev/nvmap" };
	bool there = false;
	for (size_t i = 0; i < COUNT(nodes); i++)
		there |= !access(nodes[i], F_OK);
	return there;
}

int driver_bind(struct driver *cu, char why[256])
{
	static const char *const names[] = { DRIVER_FUNCTIONS(LIBRARY_NAME) "cuEventElapsedTime" };
	int devices = 0;
	const bool there = device_there();
	void *library = there ? library_open("libcuda.so.1", NULL) : NULL;
	if (!library) {
		snprintf(why, 256, "no CUDA driver: %.200s", there ? dlerror() : "no device file of one");
		return -1;
	}
	const char *missing = library_bind(library, names, COUNT(names), cu), *name = "unknown";
	if (missing) {
		snprintf(why, 256, "the CUDA driver has no %s", missing);
		return -1;
	}
	CUresult rc = cu->cuInit(0);
	if (!rc)
		rc = cu->cuDeviceGetCount(&devices);
	if (rc)
		cu->cuGetErrorName(rc, &name);
	if (rc || !devices)
		snprintf(why, 256, "no usable GPU (%s)", rc ? name : "CUDA_VISIBLE_DEVICES leaves none");
	return rc || !devices ? -1 : 0;
}

