/* SPDX-License-Identifier: Apache-2.0
 * Libraries that may or may not be on a node: found, opened and searched for functions at run time. A list of functions is
 * a macro LIST(F) of F(name)…, so that a struct of pointers and the names to look for are made from one place:
 *     struct api { LIST(LIBRARY_MEMBER) };
 *     const char *const names[] = { LIST(LIBRARY_NAME) };  */
#ifndef HVD_RUNTIME_LIBRARY_H
#define HVD_RUNTIME_LIBRARY_H

#include <stddef.h>

#define LIBRARY_MEMBER(function) __typeof__(function) *function;
#define LIBRARY_NAME(function) LIBRARY_QUOTE(function)
#define LIBRARY_QUOTE(function) #function, /* after cuda.h has had its say on which version a name means */

/* Opens the first `name` that is there: in $home/lib64 and $home/lib for each variable of homes (NULL-ended, may be NULL), then as the system finds
 * it. NULL: dlerror() says why. */
void *library_open(const char *name, const char *const *homes);
/* Fills functions[n], in the order of names[n]; those that are missing are NULL. Returns the first of them, or NULL. */
const char *library_bind(void *library, const char *const *names, size_t n, void *functions);

#endif
