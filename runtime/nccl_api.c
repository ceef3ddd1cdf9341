/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_api.h"

#include <dlfcn.h>
#include <unistd.h>

int nccl_bind(struct api *nc, char why[WHY_BYTES])
{
	static const char *const homes[] = { "NCCL_HOME", "CUDA_HOME", NULL };
	static const char *const names[] = { NCCL_FUNCTIONS(LIBRARY_NAME) };
	static const char *const newer[] = { "ncclCommInitRankScalable", "ncclCommRevoke", "ncclCommShrink" };
	void *library = library_open("libnccl.so.2", homes);
	if (!library)
		return refuse(why, -1, "%.200s; of Python's wheels: NCCL_HOME=.../nvidia/nccl", dlerror());
	const char *missing = library_bind(library, names, COUNT(names), nc);
	library_bind(library, newer, COUNT(newer), &nc->ncclCommInitRankScalable);
	return missing ? refuse(why, -1, "libnccl.so.2 has no %s", missing) : 0;
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

int driver_bind(struct driver *cu, char why[WHY_BYTES])
{
	static const char *const names[] = { DRIVER_FUNCTIONS(LIBRARY_NAME) "cuEventElapsedTime" };
	int devices = 0;
	const bool there = device_there();
	void *library = there ? library_open("libcuda.so.1", NULL) : NULL;
	if (!library)
		return refuse(why, -1, "no CUDA driver: %.200s", there ? dlerror() : "no device file of one");
	const char *missing = library_bind(library, names, COUNT(names), cu), *name = "unknown";
	if (missing)
		return refuse(why, -1, "the CUDA driver has no %s", missing);
	CUresult rc = cu->cuInit(0);
	if (!rc)
		rc = cu->cuDeviceGetCount(&devices);
	if (rc)
		cu->cuGetErrorName(rc, &name);
	return rc || !devices ? refuse(why, -1, "no usable GPU (%s)", rc ? name : "CUDA_VISIBLE_DEVICES leaves none") : 0;
}
