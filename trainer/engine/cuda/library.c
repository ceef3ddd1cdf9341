/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens the first file that matches; patterns without a slash are left to the system's own search. */
static void *open_pattern(const char *pattern)
{
	if (!strchr(pattern, '/'))
		return dlopen(pattern, RTLD_NOW | RTLD_LOCAL);
	void *library = NULL;
	glob_t found;
	if (glob(pattern, 0, NULL, &found))
		return NULL;
	for (size_t i = 0; i < found.gl_pathc && !library; i++)
		library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
	return library;
}

static void *open_in(const char *folder, const char *below, const char *name)
{
	char pattern[PATH_MAX];
	if (!folder || snprintf(pattern, sizeof pattern, "%s/%s%s", folder, below, name) >= (int)sizeof pattern)
		return NULL;
	return open_pattern(pattern);
}

static void *beside_program(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	return open_in(path, "", name);
}

/* NVIDIA's wheels unpack to site-packages/nvidia/PART/lib; Debian's and Ubuntu's own Python has what pip installs in a folder of another name. */
static void *in_environment(const char *folder, const char *name)
{
	void *library = open_in(folder, "lib/python3*/site-packages/nvidia/*/lib/", name);
	return library ? library : open_in(folder, "local/lib/python3*/dist-packages/nvidia/*/lib/", name);
}

/* The environment is where python3 in PATH is. */
static void *in_wheels(const char *name)
{
	const char *path = getenv("PATH");
	void *library = in_environment(getenv("VIRTUAL_ENV"), name);
	for (const char *from = path; from && *from && !library;) {
		size_t length = strcspn(from, ":");
		char folder[PATH_MAX], python[PATH_MAX + 16];
		if (length && length < sizeof folder) {
			memcpy(folder, from, length);
			folder[length] = '\0';
			snprintf(python, sizeof python, "%s/python3", folder);
			char *slash = strrchr(folder, '/');
			if (slash && slash != folder && access(python, X_OK) == 0) {
				*slash = '\0';
				library = in_environment(folder, name);
			}
		}
		from += length + (from[length] == ':');
	}
	return library;
}

void *library_open(const char *name, struct error *e)
{
	void *library = beside_program(name);
	static const char *const homes[] = { "CUDNN_HOME", "NCCL_HOME", "CUDA_HOME" };
	for (size_t i = 0; i < sizeof homes / sizeof homes[0] && !library; i++) {
		library = open_in(getenv(homes[i]), "lib64/", name);
		if (!library)
			library = open_in(getenv(homes[i]), "lib/", name);
	}
	if (!library)
		library = open_pattern(name);
	if (!library)
		library = open_in("/usr/local/cuda", "lib64/", name);
	if (!library)
		library = in_wheels(name);
	if (!library)
		fail(e, EXIT_INTERNAL, "%s is not beside this program, in $CUDNN_HOME, $NCCL_HOME or $CUDA_HOME, on the system, in /usr/local/cuda, or among the "
		     "Python environment's wheels (nvidia/*/lib): set one of these", name);
	return library;
}
