/* SPDX-License-Identifier: Apache-2.0
 * What png.c, jpeg.c and decode.c share. */
#ifndef DATA_DECODE_H
#define DATA_DECODE_H

#include <libdeflate.h>
#include <turbojpeg.h>

#include "data/image.h"

struct scratch {
	uint8_t *data;
	size_t room;
};

struct decoder {
	struct libdeflate_decompressor *inflate;
	tjhandle jpeg;
	struct scratch gray;   /* the result */
	struct scratch packed; /* IDAT chunks put together */
	struct scratch canvas; /* for callers */
	struct scratch raw;    /* inflated PNG rows, or colour pixels */
};

/* Makes room for `size` bytes; what was there is lost. */
int scratch_reserve(struct scratch *s, size_t size, struct error *why);

int check_size(uint64_t width, uint64_t height, struct error *why);

int decode_png(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why);
int decode_jpeg(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why);

#endif
