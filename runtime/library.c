/* SPDX-License-Identifier: Apache-2.0 */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *library_open(const char *name, const char *const *homes)
{
	static const char *const folders[] = { "lib64", "lib" };
	for (; homes && *homes; homes++) {
		const char *home = getenv(*homes);
		for (int i = 0; home && i < 2; i++) {
			char path[4096];
			snprintf(path, sizeof path, "%s/%s/%s", home, folders[i], name);
			void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
			if (library || !access(path, F_OK))
				return library;
		}
	}
	return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

const char *library_bind(void *library, const char *const *names, size_t n, void *functions)
{
	const char *missing = NULL;
	for (size_t i = 0; i < n; i++) {
		void *found = dlsym(library, names[i]);
		missing = found || missing ? missing : names[i];
		memcpy((char *)functions + i * sizeof found, &found, sizeof found);
	}
	return missing;
}
