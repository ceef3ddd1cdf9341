/* SPDX-License-Identifier: Apache-2.0
 * What decode.c, decode_checks.c and the files of PNG and JPEG share. */
#ifndef IMAGE_DECODE_H
#define IMAGE_DECODE_H

#include <libdeflate.h>
#include <turbojpeg.h>

#include "image/image.h"

struct scratch {
	uint8_t *data;
	size_t room;
};

struct decoder {
	struct libdeflate_decompressor *inflate;
	tjhandle jpeg;
	struct gray_tables *tables; /* decode_jpeg_gray()'s; NULL until it needs them */
	int narrow; /* 1: as on a processor without AVX-512, for tests */
	uint8_t *into; /* where a result of `side` x `side` may be put instead; NULL: nowhere */
	int side;
	struct scratch gray;   /* the result */
	struct scratch packed; /* IDAT chunks put together */
	struct scratch canvas; /* for callers */
	struct scratch raw;    /* inflated PNG rows, colour pixels, or coefficients */
};

/* Makes room for `size` bytes; what was there is lost. */
int scratch_reserve(struct scratch *s, size_t size, struct error *why);

int check_size(uint64_t width, uint64_t height, struct error *why);

/* Refuses what its Exif data (tiff: from the byte order on) says is to be shown turned: viewers turn such a picture, so whoever
 * looked at it saw a chest upright where the network would see it lie. */
int check_upright(const char *format, const uint8_t *tiff, size_t size, struct error *why);

int decode_png(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why);
/* Undoes the row filters, 0 to 4, of `height` rows of 1 + width bytes. Behind them raw holds `width` zeros, and both raw's zeros and out
 * [height][width] have PNG_UNFILTER_BEYOND bytes more, which are read and mean nothing. */
enum { PNG_UNFILTER_BEYOND = 8 };
void png_unfilter(const uint8_t *raw, size_t width, size_t height, uint8_t *out);
/* 1: *image is there; 0: not a baseline JPEG of one component without a fault, or a processor without AVX2, and decode_jpeg() asks libjpeg-turbo. */
int decode_jpeg_gray(struct decoder *d, const uint8_t *file, size_t size, struct image *image);
int decode_jpeg(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why);

#endif
