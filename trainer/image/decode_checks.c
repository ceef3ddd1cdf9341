/* SPDX-License-Identifier: Apache-2.0
 * What PNG and JPEG files have in common before their pixels are decoded: room, a size that is read, and a side that is up. */
#include "image/decode.h"

#include <stdlib.h>
#include <string.h>

int scratch_reserve(struct scratch *s, size_t size, struct error *why)
{
	if (size <= s->room)
		return 0;
	free(s->data);
	s->data = malloc(size);
	s->room = s->data ? size : 0;
	if (!s->data)
		return fail(why, EXIT_INTERNAL, "no memory for %zu bytes of pixels", size);
	return 0;
}

int check_size(uint64_t width, uint64_t height, struct error *why)
{
	if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE)
		return fail(why, EXIT_DATA, "an image of %llu x %llu pixels; 1 to %d a side are read", (unsigned long long)width,
			    (unsigned long long)height, IMAGE_MAX_SIDE);
	return 0;
}

static unsigned number(const uint8_t *p, int bytes, int little)
{
	unsigned n = 0;

	for (int i = 0; i < bytes; i++)
		n = n << 8 | p[little ? bytes - 1 - i : i];
	return n;
}

/* The orientation in Exif's first directory (tag 274, Exif 2.32, 4.6.4), or 1: as it lies. */
static unsigned exif_orientation(const uint8_t *tiff, size_t size)
{
	if (size < 8 || (memcmp(tiff, "II*", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
		return 1;
	int little = tiff[0] == 'I';
	size_t at = number(tiff + 4, 4, little);

	if (at > size - 2)
		return 1;
	for (unsigned entries = number(tiff + at, 2, little), i = 0; i < entries && size - at >= 2 + 12 * (size_t)(i + 1); i++) {
		const uint8_t *entry = tiff + at + 2 + 12 * (size_t)i;

		if (number(entry, 2, little) == 274 && number(entry + 2, 2, little) == 3)
			return number(entry + 8, 2, little);
	}
	return 1;
}

int check_upright(const char *format, const uint8_t *tiff, size_t size, struct error *why)
{
	unsigned orientation = exif_orientation(tiff, size);

	if (orientation > 1 && orientation <= 8)
		return fail(why, EXIT_DATA, "%s: its Exif orientation, %u, says that it is shown turned or mirrored: turn its pixels first, as "
			    "convert -auto-orient does", format, orientation);
	return 0;
}
