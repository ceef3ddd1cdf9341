/* SPDX-License-Identifier: Apache-2.0
 * Finds NVIDIA's libraries at run time. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dlopen()s e.g. "libcudnn.so.9", looking beside this program, in $CUDNN_HOME and $CUDA_HOME (lib64, lib), where the system
 * looks, in /usr/local/cuda, and in the wheels of the Python environment in use. NULL with all places named, or with the loader's reason where one of
 * them has it and it cannot be loaded: no other is taken in its place. */
void *library_open(const char *name, struct error *e);

#ifdef __cplusplus
}
#endif
#endif
