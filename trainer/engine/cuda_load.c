/* SPDX-License-Identifier: Apache-2.0
 * The CUDA engine is a shared object of its own, so that one program runs with and without a driver. */
#include <dlfcn.h>

#include "engine/backend.h"

typedef int (*open_function)(struct engine **, const struct engine_conf *, struct error *);

int engine_cuda_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	/* found beside this program or in ../lib through the program's run path; never closed: CUDA does not like it */
	void *library = dlopen("libchexnet_cuda.so", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return fail(e, EXIT_USAGE, "no CUDA engine: %s: use --engine cpu, or build where nvcc is", dlerror());
	void *address = dlsym(library, "chexnet_cuda_open");
	if (!address)
		return fail(e, EXIT_INTERNAL, "libchexnet_cuda.so belongs to another version: %s", dlerror());
	open_function open;
	*(void **)&open = address;
	return open(engine, conf, e);
}
