/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "image/decode.h"

/* JPEG rounds each channel on its own, so a gray picture saved as colour comes back with channels a little apart. */
enum { COLOUR_TOLERANCE = 12 };

enum { FLAGS = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING };

/* Every scan goes over the whole image, be it in a hundred bytes: 480 of 8192 x 8192 pixels took four seconds and 180 KB (one core of a Xeon with AVX-512;
 * libjpeg-turbo bounds them at 500, and only where it is asked to). Encoders make 6 of a gray image and 10 of a coloured one, 18 of four components. */
enum { MAX_SCANS = 100 };

static int check_gray(const uint8_t *rgb, int width, int height, struct error *why)
{
	for (size_t i = 0; i < (size_t)width * (size_t)height; i++) {
		const uint8_t *p = rgb + 3 * i;
		if (abs(p[0] - p[1]) > COLOUR_TOLERANCE || abs(p[1] - p[2]) > COLOUR_TOLERANCE)
			return fail(why, EXIT_DATA, "a colour image (pixel %zu,%zu is %d,%d,%d); chest X-rays are gray",
				    i % (size_t)width, i / (size_t)width, p[0], p[1], p[2]);
	}
	return 0;
}

/* After an error in a header libturbojpeg 2.1 leaves the decompressor in the middle of it, and the next, sound file fails. */
static int fail_anew(struct decoder *d, struct error *why)
{
	const char *reason = tjGetErrorStr2(d->jpeg);

	/* "Insufficient memory", "Memory allocation failure"; "Backing store not supported" or "Memory limit exceeded" beyond $JPEGMEM */
	fail(why, strstr(reason, "emory") || strstr(reason, "Backing") ? EXIT_INTERNAL : EXIT_DATA, "JPEG: %s", reason);
	tjDestroy(d->jpeg);
	d->jpeg = tjInitDecompress();
	return -why->code;
}

/* Whether a scan more than are read begins in [p, end). In a scan this marker cannot be part of the data. */
static int check_scans(const uint8_t *p, const uint8_t *end, struct error *why)
{
	for (int scans = 0; (p = memmem(p, (size_t)(end - p), "\xFF\xDA", 2)); p += 2)
		if (++scans > MAX_SCANS)
			return fail(why, EXIT_DATA, "JPEG: more than %d scans, each of which goes over the whole image: save it with fewer first, as jpegtran does",
				    MAX_SCANS);
	return 0;
}

/* Those in front of the first scan, where *scans then is. */
static int check_segments(const uint8_t *file, size_t size, const uint8_t **scans, struct error *why)
{
	const uint8_t *p = file + 2, *end = file + size;

	while (end - p >= 2 && p[0] == 0xFF && p[1] != 0xDA) {
		if (p[1] == 0xD9) /* tables alone, of which some releases of libjpeg-turbo tell the size of the image before */
			return check_size(0, 0, why);
		if (p[1] == 0xFF) { /* any number of these may stand before a marker */
			p++;
			continue;
		}
		size_t length = end - p < 4 ? 0 : (size_t)p[2] << 8 | p[3];

		if (length < 2 || (size_t)(end - p - 2) < length)
			break; /* for the decoder to say */
		if (p[1] == 0xE1 && length >= 8 && memcmp(p + 4, "Exif\0", 6) == 0 && check_upright("JPEG", p + 10, length - 8, why) < 0)
			return -why->code;
		p += 2 + length;
	}
	*scans = p;
	return 0;
}

int decode_jpeg(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why)
{
	int width = 0, height = 0, subsampling, colourspace; /* which some releases leave as they are for a file of tables alone */

	if (!d->jpeg)
		return fail(why, EXIT_INTERNAL, "no memory for a JPEG decoder");
	const uint8_t *scans = file;
	if (check_segments(file, size, &scans, why) < 0)
		return -why->code;
	if (decode_jpeg_gray(d, file, size, image))
		return 0;
	if (check_scans(scans, file + size, why))
		return -why->code;
	if (tjDecompressHeader3(d->jpeg, file, (unsigned long)size, &width, &height, &subsampling, &colourspace))
		return fail_anew(d, why);
	if (check_size((uint64_t)width, (uint64_t)height, why))
		return -why->code;
	if (colourspace == TJCS_CMYK || colourspace == TJCS_YCCK)
		return fail(why, EXIT_DATA, "JPEG: a CMYK image; chest X-rays are gray");
	size_t pixels = (size_t)width * (size_t)height;
	if (scratch_reserve(&d->gray, pixels, why))
		return -why->code;
	if (colourspace != TJCS_GRAY) {
		if (scratch_reserve(&d->raw, 3 * pixels, why))
			return -why->code;
		if (tjDecompress2(d->jpeg, file, (unsigned long)size, d->raw.data, width, 0, height, TJPF_RGB, FLAGS))
			return fail_anew(d, why);
		if (check_gray(d->raw.data, width, height, why))
			return -why->code;
	}
	if (tjDecompress2(d->jpeg, file, (unsigned long)size, d->gray.data, width, 0, height, TJPF_GRAY, FLAGS))
		return fail_anew(d, why);
	*image = (struct image){ width, height, d->gray.data };
	return 0;
}
