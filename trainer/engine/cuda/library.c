/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a file, or what the system finds of a name without a slash. Of one that is there and cannot be loaded `why` gets the loader's reason. */
static void *open_file(const char *path, struct error *why)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *reason = library ? NULL : dlerror();
	if (reason && (strchr(path, '/') ? access(path, F_OK) == 0 : strncmp(reason, path, strlen(path)) != 0)) /* it begins with the file that is missing or bad */
		fail(why, EXIT_INTERNAL, "%s", reason);
	return library;
}

/* Opens the first file that matches, unless an earlier place has one that cannot be loaded: nothing else is taken instead of that. */
static void *open_in(const char *folder, const char *below, const char *name, struct error *why)
{
	char pattern[PATH_MAX];
	void *library = NULL;
	glob_t found;
	if (!folder || why->code || snprintf(pattern, sizeof pattern, "%s/%s%s", folder, below, name) >= (int)sizeof pattern || glob(pattern, 0, NULL, &found))
		return NULL;
	for (size_t i = 0; i < found.gl_pathc && !library && !why->code; i++)
		library = open_file(found.gl_pathv[i], why);
	globfree(&found);
	return library;
}

static void *beside_program(const char *name, struct error *why)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	return open_in(path, "", name, why);
}

/* NVIDIA's wheels unpack to site-packages/nvidia/PART/lib; Debian's and Ubuntu's own Python has what pip installs in a folder of another name. */
static void *in_environment(const char *folder, const char *name, struct error *why)
{
	void *library = open_in(folder, "lib/python3*/site-packages/nvidia/*/lib/", name, why);
	return library ? library : open_in(folder, "local/lib/python3*/dist-packages/nvidia/*/lib/", name, why);
}

/* The environment is where python3 in PATH is. */
static void *in_wheels(const char *name, struct error *why)
{
	const char *path = getenv("PATH");
	void *library = in_environment(getenv("VIRTUAL_ENV"), name, why);
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
				library = in_environment(folder, name, why);
			}
		}
		from += length + (from[length] == ':');
	}
	return library;
}

void *library_open(const char *name, struct error *e)
{
	struct error why = { 0 };
	void *library = beside_program(name, &why);
	static const char *const homes[] = { "CUDNN_HOME", "NCCL_HOME", "CUDA_HOME" };
	for (size_t i = 0; i < sizeof homes / sizeof homes[0] && !library; i++) {
		library = open_in(getenv(homes[i]), "lib64/", name, &why);
		if (!library)
			library = open_in(getenv(homes[i]), "lib/", name, &why);
	}
	if (!library && !why.code)
		library = open_file(name, &why);
	if (!library)
		library = open_in("/usr/local/cuda", "lib64/", name, &why);
	if (!library)
		library = in_wheels(name, &why);
	if (!library && why.code)
		fail(e, EXIT_INTERNAL, "%s is there and cannot be loaded: %s: mend that, or set CUDNN_HOME or NCCL_HOME to where another one is", name, why.text);
	else if (!library)
		fail(e, EXIT_INTERNAL, "%s is not beside this program, in $CUDNN_HOME, $NCCL_HOME or $CUDA_HOME, on the system, in /usr/local/cuda, or among the "
		     "Python environment's wheels (nvidia/*/lib): set one of these", name);
	return library;
}
