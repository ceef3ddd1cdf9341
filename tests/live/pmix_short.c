/* SPDX-License-Identifier: Apache-2.0
 * Stands before the libpmix.so.2 that $TEST_PMIX names: what a rank publishes is shorter by its last 8 bytes, as another version of libhvd may have it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* pmix_value_t, as far as a byte object takes */
struct value {
	uint16_t type;
	struct {
		char *bytes;
		size_t size;
	} object;
};

static void *real(const char *name)
{
	return dlsym(dlopen(getenv("TEST_PMIX"), RTLD_NOW | RTLD_GLOBAL), name);
}

#define FORWARD(type, name, parameters, arguments) \
	type name parameters; \
	type name parameters { return ((type (*) parameters)real(#name)) arguments; }

FORWARD(int, PMIx_Init, (void *me, void *info, size_t n), (me, info, n))
FORWARD(int, PMIx_Finalize, (const void *info, size_t n), (info, n))
FORWARD(int, PMIx_Get, (const void *rank, const char *key, const void *info, size_t n, void **value), (rank, key, info, n, value))
FORWARD(int, PMIx_Get_nb, (const void *rank, const char *key, const void *info, size_t n, void (*answer)(void), void *data), (rank, key, info, n, answer, data))
FORWARD(int, PMIx_Commit, (void), ())
FORWARD(const char *, PMIx_Error_string, (int status), (status))
FORWARD(const char *, PMIx_Get_version, (void), ())

int PMIx_Put(uint8_t scope, const char *key, struct value *v);

int PMIx_Put(uint8_t scope, const char *key, struct value *v)
{
	v->object.size -= 8;
	return ((int (*)(uint8_t, const char *, struct value *))real("PMIx_Put"))(scope, key, v);
}
