/* SPDX-License-Identifier: Apache-2.0
 * The one resize: each pixel is the mean of the area that it covers. */
#include <math.h>

#include "data/random.h"
#include "image/resize.h"
#include "tests/unit/test.h"

/* The definition, in floating point: mean over the area of each output pixel. */
static double area_mean(const uint8_t *in, int width, int height, int x, int y, int size)
{
	double x0 = (double)x * width / size, x1 = (double)(x + 1) * width / size, y0 = (double)y * height / size, y1 = (double)(y + 1) * height / size;
	double sum = 0;
	for (int j = (int)y0; j < height && j < y1; j++)
		for (int i = (int)x0; i < width && i < x1; i++)
			sum += in[j * width + i] * (fmin(x1, i + 1) - fmax(x0, i)) * (fmin(y1, j + 1) - fmax(y0, j));
	return sum / ((x1 - x0) * (y1 - y0));
}

static void resizing_averages_areas(void **state)
{
	(void)state;
	struct stream s = stream_open(11, 0);
	struct error e = { 0 };
	for (int round = 0; round < 200; round++) {
		int width = 1 + (int)(stream_bits(&s) % 70), height = 1 + (int)(stream_bits(&s) % 70), size = 1 + (int)(stream_bits(&s) % 40);
		static uint8_t in[260 * 260], out[65 * 65];
		if (round % 4 == 0) /* four to one has a way of its own */
			width = height = 4 * (size += round / 8);
		for (int i = 0; i < width * height; i++)
			in[i] = (uint8_t)stream_bits(&s);
		assert_int_equal(resize_area(in, width, height, out, size, &e), 0);
		for (int i = 0; i < size * size; i++) {
			double mean = area_mean(in, width, height, i % size, i / size, size);
			if (fabs(out[i] - mean) > 0.5 + 1e-6)
				fail_msg("%d x %d to %d: pixel %d is %d, not %.3f", width, height, size, i, out[i], mean);
			if (round % 4 == 0) /* a half, which is exact there, goes up */
				assert_int_equal(out[i], (int)(mean + 0.5));
		}
	}
}

static void resizing_keeps_what_is_the_right_size(void **state)
{
	(void)state;
	uint8_t in[16 * 16], out[16 * 16], half[8 * 8];
	struct error e = { 0 };
	for (int i = 0; i < 256; i++)
		in[i] = (uint8_t)i;
	assert_int_equal(resize_area(in, 16, 16, out, 16, &e), 0);
	assert_memory_equal(in, out, 256);
	assert_int_equal(resize_area(in, 16, 16, half, 8, &e), 0);
	assert_int_equal(half[0], (0 + 1 + 16 + 17 + 2) / 4);
}

/* Sides without a common factor: the sum over an output pixel is of 17 million parts of up to 255. */
static void the_largest_sums_do_not_overflow(void **state)
{
	(void)state;
	enum { WIDTH = 4099, HEIGHT = 4111 };
	uint8_t *in = malloc(WIDTH * HEIGHT), out[9];
	struct error e = { 0 };

	assert_non_null(in);
	memset(in, 255, WIDTH * HEIGHT);
	assert_int_equal(resize_area(in, WIDTH, HEIGHT, out, 3, &e), 0);
	for (int i = 0; i < 9; i++)
		assert_int_equal(out[i], 255);
	free(in);
}

static void shapes_at_their_bounds(void **state)
{
	(void)state;
	assert_int_equal(image_shape(512, 256, 256), SHAPE_FINE);
	assert_int_equal(image_shape(256, 512, 256), SHAPE_FINE);
	assert_int_equal(image_shape(513, 256, 256), SHAPE_STRETCHED);
	assert_int_equal(image_shape(256, 513, 256), SHAPE_STRETCHED);
	assert_int_equal(image_shape(400, 255, 256), SHAPE_ENLARGED);
	assert_int_equal(image_shape(255, 400, 256), SHAPE_ENLARGED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resizing_averages_areas),
		cmocka_unit_test(resizing_keeps_what_is_the_right_size),
		cmocka_unit_test(the_largest_sums_do_not_overflow),
		cmocka_unit_test(shapes_at_their_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
