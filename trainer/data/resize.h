/* SPDX-License-Identifier: Apache-2.0
 * The one way in which this program changes an image's size: preparation, prediction and tests all use it. */
#ifndef DATA_RESIZE_H
#define DATA_RESIZE_H

#include <stdint.h>

#include "error.h"

#define RESIZE_NAME "area"

/* out [size][size] = mean of in [height][width] over each output pixel's area (box filter), in exact integer arithmetic,
 * rounded half up: the same bits on every machine. Non-square images are stretched. */
int resize_area(const uint8_t *in, int width, int height, uint8_t *out, int size, struct error *e);

#endif
