/* SPDX-License-Identifier: Apache-2.0 */
#include "hwloc_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct hwloc_functions hwloc;

static const struct {
	const char *name;
	void *slot;
} functions[] = {
	{ "hwloc_get_api_version", &hwloc.get_api_version },
	{ "hwloc_topology_init", &hwloc.topology_init },
	{ "hwloc_topology_destroy", &hwloc.topology_destroy },
	{ "hwloc_topology_load", &hwloc.topology_load },
	{ "hwloc_topology_set_xmlbuffer", &hwloc.topology_set_xmlbuffer },
	{ "hwloc_topology_set_flags", &hwloc.topology_set_flags },
	{ "hwloc_topology_set_io_types_filter", &hwloc.topology_set_io_types_filter },
	{ "hwloc_topology_set_cache_types_filter", &hwloc.topology_set_cache_types_filter },
	{ "hwloc_topology_set_components", &hwloc.topology_set_components },
	{ "hwloc_topology_get_allowed_cpuset", &hwloc.topology_get_allowed_cpuset },
	{ "hwloc_bitmap_next", &hwloc.bitmap_next },
	{ "hwloc_get_type_depth", &hwloc.get_type_depth },
	{ "hwloc_get_obj_by_depth", &hwloc.get_obj_by_depth },
};

/* ---- environment --------------------------------------------------------------------------------- */

/* hwloc opens every plugin it finds, and with them X, OpenCL and the GPU driver, before any of them can be refused;
 * only a variable that names a place without plugins keeps them out. The other HWLOC_ variables could replace the
 * machine by another one. Some releases (2.7 is one) put ZES_ENABLE_SYSMAN there as soon as they are opened, unless it is
 * there: text of the library, which is gone when that is closed, and the next getenv() crashes. setenv() would move the
 * environment while slurmstepd's other threads read it, so hwloc is shown a copy. */
static char **hide_environment(void)
{
	enum { ROOM = 4096 };
	static char no_plugins[] = "HWLOC_PLUGINS_PATH=/dev/null", nothing_to_put[] = "ZES_ENABLE_SYSMAN=1", *copy[ROOM];
	char **real = environ;
	int n = 0;

	copy[n++] = no_plugins;
	copy[n++] = nothing_to_put;
	for (char **v = real; v && *v && n < ROOM - 1; v++)
		if (strncmp(*v, "HWLOC_", 6))
			copy[n++] = *v;
	copy[n] = NULL;
	environ = copy;
	return real;
}

/* ---- library ------------------------------------------------------------------------------------- */

/* The library may be there already: slurmd's own hwloc would then be the one that is found. */
void *hwloc_library_open(char *error, size_t size)
{
	char **real = hide_environment();
	void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);

	environ = real;
	if (!library) {
		snprintf(error, size, "hwloc 2 cannot be opened: %s (Debian: libhwloc15)", dlerror());
		return NULL;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *symbol = dlsym(library, functions[i].name);
		if (!symbol) {
			snprintf(error, size, "libhwloc.so.15 has no %s", functions[i].name);
			goto fail;
		}
		memcpy(functions[i].slot, &symbol, sizeof symbol);
	}
	if (hwloc.get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
		snprintf(error, size, "hwloc with API %x found, %x needed", hwloc.get_api_version() >> 16, HWLOC_API_VERSION >> 16);
		goto fail;
	}
	return library;
fail:
	dlclose(library);
	return NULL;
}

void hwloc_library_close(void *library)
{
	if (library)
		dlclose(library);
}

/* ---- topology ------------------------------------------------------------------------------------ */

/* Of the running machine only CPUs and memory: caches alone would be twenty files for each CPU, devices sysfs.h reads
 * better, and x86 would visit every CPU in turn, also those where other jobs compute. In a file a device may hang on a
 * cache, and on nothing else that says where it is. */
static void narrow(hwloc_topology_t t, bool live)
{
	static const char *const unwanted[] = { "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "x86" };

	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
		hwloc.topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
	if (live)
		hwloc.topology_set_cache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
	else
		hwloc.topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

/* Slurm counts cores over the whole machine, also those that this process may not use. */
static int set_flags(hwloc_topology_t t)
{
	unsigned long needed = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, spared = 0;

#if HWLOC_API_VERSION >= 0x00020800
	spared = HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
#endif
	/* the library found may be older than the header */
	return hwloc.topology_set_flags(t, needed | spared) && hwloc.topology_set_flags(t, needed) ? -1 : 0;
}

hwloc_topology_t hwloc_load(const char *xml, size_t length)
{
	hwloc_topology_t t = NULL;
	char **real = hide_environment();

	if (hwloc.topology_init(&t)) {
		t = NULL;
	} else {
		narrow(t, !xml);
		if (set_flags(t) || (xml && hwloc.topology_set_xmlbuffer(t, xml, (int)length)) || hwloc.topology_load(t)) {
			hwloc.topology_destroy(t);
			t = NULL;
		}
	}
	environ = real;
	return t;
}
