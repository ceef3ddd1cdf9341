/* SPDX-License-Identifier: Apache-2.0
 * Times the plans that cuDNN offers for the engine's convolutions. */
#ifndef GPU_CUDNN_TIME_H
#define GPU_CUDNN_TIME_H

#include "engine/cuda/cudnn.h"

/* Prints a line a convolution and, of what is known until then every few of them ("partial": true), a JSON object; begins none after
 * `seconds`. Not live: plans of a described device, which are counted and not timed. */
int cudnn_time(struct cudnn *cudnn, int live, double seconds);

#endif
