/* SPDX-License-Identifier: Apache-2.0
 * In place of cuda_load.c: the CUDA engine on the shim, linked into the program. */
extern "C" {
#include "cuda_engine.h"

int engine_cuda_open(engine **g, const engine_conf *conf, error *e)
{
	return chexnet_cuda_open(g, conf, e);
}

int engine_cuda_plan(const engine_conf *conf, const char *gpu, int ask_cudnn, engine_room *room, error *e)
{
	return chexnet_cuda_plan(conf, gpu, ask_cudnn, room, e);
}
}
