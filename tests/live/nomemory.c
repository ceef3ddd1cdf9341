/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into chexnet: the N-th time that it, or cJSON for it, asks for memory, there is none. N is $NO_MEMORY_AT; 0: count only. Without $NO_MEMORY
 * in the environment nothing happens; the file that it names gets the number of calls at the end. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

/* AddressSanitizer's, where chexnet brings them along */
void *__interceptor_malloc(size_t n) __attribute__((weak));
void *__interceptor_calloc(size_t n, size_t m) __attribute__((weak));
void *__interceptor_realloc(void *p, size_t n) __attribute__((weak));
void *__interceptor_memalign(size_t align, size_t n) __attribute__((weak));
#define GIVE(name, ...) (__interceptor_##name ? __interceptor_##name(__VA_ARGS__) : __libc_##name(__VA_ARGS__))

static atomic_long calls;
static long wanted = -1;

__attribute__((constructor)) static void read_wish(void)
{
	const char *at = getenv("NO_MEMORY_AT");

	wanted = getenv("NO_MEMORY") && at ? atol(at) : -1;
}

__attribute__((destructor)) static void tell(void)
{
	FILE *f = wanted >= 0 ? fopen(getenv("NO_MEMORY"), "w") : NULL;

	if (f) {
		fprintf(f, "%ld\n", atomic_load(&calls));
		fclose(f);
	}
}

static int fails(const void *caller)
{
	static _Thread_local int inside; /* dladdr() may ask, too */
	Dl_info where;
	int no = 0;

	if (wanted < 0 || inside)
		return 0;
	inside = 1;
	if (dladdr(caller, &where) && where.dli_fname) {
		const char *slash = strrchr(where.dli_fname, '/'), *name = slash ? slash + 1 : where.dli_fname;

		if (strcmp(name, "chexnet") == 0 || strncmp(name, "libcjson", 8) == 0)
			no = atomic_fetch_add(&calls, 1) + 1 == wanted;
	}
	inside = 0;
	if (no)
		errno = ENOMEM;
	return no;
}

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : GIVE(malloc, n);
}

void *calloc(size_t n, size_t m)
{
	return fails(__builtin_return_address(0)) ? NULL : GIVE(calloc, n, m);
}

void *realloc(void *p, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : GIVE(realloc, p, n);
}

void *reallocarray(void *p, size_t n, size_t m)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, m, &bytes) || fails(__builtin_return_address(0))) {
		errno = ENOMEM;
		return NULL;
	}
	return GIVE(realloc, p, bytes);
}

void *aligned_alloc(size_t align, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : GIVE(memalign, align, n);
}
