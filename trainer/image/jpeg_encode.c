/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <turbojpeg.h>

#include "image/image.h"

struct jump {
	struct jpeg_error_mgr manager; /* first: libjpeg hands its address back */
	jmp_buf back;
};

static void on_error(j_common_ptr info)
{
	longjmp(((struct jump *)info->err)->back, 1);
}

static void say_nothing(j_common_ptr info)
{
	(void)info;
}

uint8_t *encode_jpeg(const uint8_t *pixels, int width, int height, int quality, size_t *size)
{
	struct jpeg_compress_struct c;
	struct jump jump;
	/* the most there can be, with the markers: libjpeg frees a room that it outgrows, and where there is no memory then tells nobody of the next one */
	unsigned long length = tjBufSize(width, height, TJSAMP_GRAY) + (unsigned long)height;
	unsigned char *file = malloc(length);

	if (!file)
		return NULL;
	c.err = jpeg_std_error(&jump.manager);
	jump.manager.error_exit = on_error;
	jump.manager.output_message = say_nothing;
	if (setjmp(jump.back)) {
		jpeg_destroy_compress(&c);
		free(file);
		return NULL;
	}
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &file, &length);
	c.image_width = (JDIMENSION)width;
	c.image_height = (JDIMENSION)height;
	c.input_components = 1;
	c.in_color_space = JCS_GRAYSCALE;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, quality, TRUE);
	c.dct_method = JDCT_ISLOW;
	c.restart_in_rows = 1; /* the decoder reads two rows of blocks at a time; 0.5 % of the file */
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height) {
		JSAMPROW row = (JSAMPROW)(pixels + (size_t)c.next_scanline * (size_t)width);
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	*size = length;
	return file;
}
