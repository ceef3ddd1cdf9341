/* SPDX-License-Identifier: Apache-2.0
 * What libchexnet_cuda.so exports. */
#ifndef CUDA_ENGINE_H
#define CUDA_ENGINE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/backend.h"

/* Opens the engine on the current CUDA device; the rest goes through engine->ops. */
__attribute__((visibility("default"))) int chexnet_cuda_open(struct engine **engine, const struct engine_conf *conf, struct error *e);

/* engine_plan() for it. */
__attribute__((visibility("default"))) int chexnet_cuda_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e);

#ifdef __cplusplus
}
#endif
#endif
