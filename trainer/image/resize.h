/* SPDX-License-Identifier: Apache-2.0
 * The one way in which this program changes an image's size: preparation, prediction and tests all use it. */
#ifndef IMAGE_RESIZE_H
#define IMAGE_RESIZE_H

#include <stdint.h>

#include "error.h"

#define RESIZE_NAME "area"

/* out [size][size] = mean of in [height][width] over each output pixel's area (box filter), in exact integer arithmetic,
 * rounded half up: the same bits on every machine. Non-square images are stretched. */
int resize_area(const uint8_t *in, int width, int height, uint8_t *out, int size, struct error *e);

/* Whether the square of `size` that is made of an image shows something else than a radiograph does: one stretched to twice its
 * proportions and more, or one enlarged, in which what was finer is lost. */
enum image_shape { SHAPE_FINE, SHAPE_STRETCHED, SHAPE_ENLARGED };
enum image_shape image_shape(int width, int height, int size);

#endif
