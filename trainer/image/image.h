/* SPDX-License-Identifier: Apache-2.0
 * Image files in memory to gray pixels, and back. */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Larger images are refused before any memory is asked for. Digital radiographs are up to about 4300 pixels wide. */
enum { IMAGE_MAX_SIDE = 8192 };

struct image {
	int width, height;
	const uint8_t *pixels; /* [height][width] gray uint8; belongs to the decoder until its next call */
};

/* A decoder's libraries and memory, for one thread. It grows to the largest image it has met and no further. */
struct decoder;
struct decoder *decoder_new(void); /* NULL: no memory */
void decoder_free(struct decoder *d);
size_t decoder_memory(const struct decoder *d);

/* A copy of an image's file, to be freed: where a mapped one is cut meanwhile, the program ends, and nobody hears of the other images. One of more
 * bytes than any image has that is read is refused. Errors name the path. */
int image_read(char **file, size_t *size, const char *path, struct error *e);

/* Decodes a PNG or JPEG file. Gray, and colour whose channels are equal everywhere, become gray; 16 bits become the upper 8,
 * and are refused where those are nearly unused; a palette is looked up; transparency and real colour are refused by name, as is
 * everything that is truncated or corrupt (a JPEG decoder's warnings are errors here). -EXIT_DATA: the reason alone is in *why. */
int decode_image(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why);

/* As decode_image(), to pixels [side][side], and without a copy where the decoder can write there. Another size is refused. */
int decode_square(struct decoder *d, const uint8_t *file, size_t size, uint8_t *pixels, int side, struct error *why);

/* A new PNG file of gray pixels [height][width], 8 bits; channels 4: RGBA with equal channels and alpha 255, as six in a
 * thousand NIH images are. To be freed. NULL: no memory. */
uint8_t *encode_png(const uint8_t *pixels, int width, int height, int channels, size_t *size);

/* A new gray JPEG file with a restart marker after each row of blocks. To be freed. NULL: no memory. */
uint8_t *encode_jpeg(const uint8_t *pixels, int width, int height, int quality, size_t *size);

#endif
