/* SPDX-License-Identifier: Apache-2.0
 * Libraries that may or may not be on a node: found, opened and searched for functions at run time. */
#ifndef HVD_RUNTIME_LIBRARY_H
#define HVD_RUNTIME_LIBRARY_H

#include <stddef.h>

struct symbol {
	const char *name;
	size_t offset; /* of the function pointer in the struct that is filled */
};

/* Opens `name`: in $home/lib64 and $home/lib for each variable of homes (NULL-ended, may be NULL), then as the system finds it. */
void *library_open(const char *name, const char *const *homes);
/* Returns the name of the first function that is missing, or NULL. */
const char *library_bind(void *library, const struct symbol *symbols, size_t n, void *functions);

#endif
