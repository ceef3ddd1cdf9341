/* SPDX-License-Identifier: Apache-2.0 */
#include "image/decode.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file.h"

enum { MAX_BYTES = 16 * IMAGE_MAX_SIDE * IMAGE_MAX_SIDE }; /* twice the pixels of the largest image, 16 bits in four channels */

struct decoder *decoder_new(void)
{
	struct decoder *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->inflate = libdeflate_alloc_decompressor();
	d->jpeg = tjInitDecompress();
	if (!d->inflate || !d->jpeg) {
		decoder_free(d);
		return NULL;
	}
	return d;
}

void decoder_free(struct decoder *d)
{
	if (!d)
		return;
	if (d->inflate)
		libdeflate_free_decompressor(d->inflate);
	if (d->jpeg)
		tjDestroy(d->jpeg);
	free(d->tables);
	free(d->gray.data);
	free(d->packed.data);
	free(d->raw.data);
	free(d->canvas.data);
	free(d);
}

size_t decoder_memory(const struct decoder *d)
{
	return sizeof *d + d->gray.room + d->packed.room + d->raw.room + d->canvas.room;
}

int image_read(char **file, size_t *size, const char *path, struct error *e)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > MAX_BYTES)
		return fail(e, EXIT_DATA, "%s: %lld bytes, which is more than any image has that is read (%d pixels a side)", path, (long long)st.st_size, IMAGE_MAX_SIDE);
	return file_read(file, size, path, e);
}

static int begins(const uint8_t *file, size_t size, const char *magic, size_t length)
{
	return size >= length && memcmp(file, magic, length) == 0;
}

/* What a file that is no image probably is: a download gone wrong, most often. */
static const char *guess(const uint8_t *file, size_t size)
{
	size_t skip = 0;

	if (begins(file, size, "version https://git-lfs", 23))
		return "a Git LFS pointer: git lfs pull fetches the image";
	while (skip < size && (file[skip] == ' ' || file[skip] == '\n' || file[skip] == '\r' || file[skip] == '\t'))
		skip++;
	if (skip < size && file[skip] == '<')
		return "a web page, not an image: download it again";
	if (begins(file, size, "\x1f\x8b", 2))
		return "gzip-compressed: unpack it first";
	if (size >= 132 && memcmp(file + 128, "DICM", 4) == 0)
		return "DICOM: convert it to PNG first, with its window applied, and inverted where it is MONOCHROME1 (bones are to be light)";
	if (size >= 512 && file[0] == 0 && memcmp(file, file + 1, 511) == 0)
		return "begins with zeros alone, as where its content never reached the disk: copy it again";
	return "neither PNG nor JPEG";
}

int decode_image(struct decoder *d, const uint8_t *file, size_t size, struct image *image, struct error *why)
{
	*image = (struct image){ 0 };
	if (size == 0)
		return fail(why, EXIT_DATA, "an empty file");
	if (begins(file, size, "\x89PNG\r\n\x1a\n", 8))
		return decode_png(d, file, size, image, why);
	if (begins(file, size, "\xff\xd8\xff", 3))
		return decode_jpeg(d, file, size, image, why);
	return fail(why, EXIT_DATA, "%s", guess(file, size));
}

int decode_square(struct decoder *d, const uint8_t *file, size_t size, uint8_t *pixels, int side, struct error *why)
{
	struct image image;

	d->into = pixels;
	d->side = side;
	int rc = decode_image(d, file, size, &image, why);
	d->into = NULL;
	if (rc)
		return rc;
	if (image.width != side || image.height != side)
		return fail(why, EXIT_DATA, "image of %d x %d pixels where the record says %d", image.width, image.height, side);
	if (image.pixels != pixels)
		memcpy(pixels, image.pixels, (size_t)side * (size_t)side);
	return 0;
}
