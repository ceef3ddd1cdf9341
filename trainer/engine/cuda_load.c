/* SPDX-License-Identifier: Apache-2.0
 * The CUDA engine is a shared object of its own, so that one program runs with and without a driver. */
#include <dlfcn.h>

#include "engine/backend.h"

/* A function of the library. Found beside this program or in ../lib through the program's run path; never closed: CUDA does not like it. */
static void *find(const char *name, struct error *e)
{
	void *library = dlopen("libchexnet_cuda.so", RTLD_NOW | RTLD_LOCAL);
	void *address = library ? dlsym(library, name) : NULL;
	if (!library)
		fail(e, EXIT_USAGE, "no CUDA engine: %s: use --engine cpu, or build where nvcc is", dlerror());
	else if (!address)
		fail(e, EXIT_INTERNAL, "libchexnet_cuda.so belongs to another version: %s", dlerror());
	return address;
}

int engine_cuda_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	int (*open)(struct engine **, const struct engine_conf *, struct error *);
	*(void **)&open = find("chexnet_cuda_open", e);
	return open ? open(engine, conf, e) : -e->code;
}

int engine_cuda_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e)
{
	int (*plan)(const struct engine_conf *, const char *, int, struct engine_room *, struct error *);
	*(void **)&plan = find("chexnet_cuda_plan", e);
	return plan ? plan(conf, gpu, ask_cudnn, room, e) : -e->code;
}
