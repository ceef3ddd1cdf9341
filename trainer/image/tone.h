/* SPDX-License-Identifier: Apache-2.0
 * Whether an image's grays can be those of a chest X-ray, by a few numbers. */
#ifndef IMAGE_TONE_H
#define IMAGE_TONE_H

#include <stdint.h>

struct tone {
	float mean, border; /* gray, 0 to 255: of all pixels, of those at the left, right and upper edge */
	int low, high;
};

enum tone_kind {
	TONE_FINE,
	TONE_CONSTANT, /* one gray everywhere */
	TONE_INVERTED, /* a border brighter than the body, as of a negative */
	TONE_EMPTY,    /* nearly black or white */
};

/* pixels: [height][width] */
struct tone tone_measure(const uint8_t *pixels, int width, int height);

enum tone_kind tone_kind(const struct tone *t);

#endif
