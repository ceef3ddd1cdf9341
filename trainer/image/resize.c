/* SPDX-License-Identifier: Apache-2.0 */
#include "image/resize.h"

#include <stdlib.h>
#include <string.h>

/* One output coordinate's share of the input: weights first, full, …, full, last over inputs begin … end - 1. Lengths are in
 * units of 1 / to of an input pixel after dividing by the common factor, so that all are whole numbers adding up to `from`. */
struct reach {
	int begin, end;
	uint32_t first, full, last;
};

static int common_factor(int a, int b)
{
	while (b) {
		int r = a % b;
		a = b;
		b = r;
	}
	return a;
}

static struct reach reach_of(int64_t x, int64_t from, int64_t to)
{
	int64_t low = x * from, high = (x + 1) * from; /* in units of 1 / to input pixels */
	struct reach r = { .begin = (int)(low / to), .end = (int)((high + to - 1) / to), .full = (uint32_t)to };

	if (r.end - r.begin == 1) {
		r.first = r.last = (uint32_t)from;
	} else {
		r.first = (uint32_t)((r.begin + 1) * to - low);
		r.last = (uint32_t)(high - (r.end - 1) * to);
	}
	return r;
}

static uint32_t weight(const struct reach *r, int i)
{
	return i == r->begin ? r->first : i == r->end - 1 ? r->last : r->full;
}

/* Rows first, so that the inner loops run along memory: 1024 to 256 pixels takes a fifth of the time of columns first. */
static void add_row(const uint8_t *restrict in, uint32_t w, int width, uint32_t *restrict sum)
{
	if (w == 1)
		for (int x = 0; x < width; x++)
			sum[x] += in[x];
	else
		for (int x = 0; x < width; x++)
			sum[x] += w * in[x];
}

/* total / area rounded half up. For whole ratios the area is small or a power of two, and a 64-bit division would be half of the
 * time that a resize takes. */
static uint8_t mean(uint64_t total, uint64_t area)
{
	total += area / 2;
	if ((area & (area - 1)) == 0)
		return (uint8_t)(total >> __builtin_ctzll(area));
	return total <= UINT32_MAX ? (uint8_t)((uint32_t)total / (uint32_t)area) : (uint8_t)(total / area);
}

static uint64_t add_columns(const uint32_t *sum, const struct reach *r)
{
	uint64_t middle = 0;

	for (int i = r->begin + 1; i < r->end - 1; i++)
		middle += sum[i];
	uint64_t total = (uint64_t)r->first * sum[r->begin] + r->full * middle;
	if (r->end - r->begin > 1)
		total += (uint64_t)r->last * sum[r->end - 1];
	return total;
}

/* 1024 to 256, the size of nearly all images: 16-bit sums, and four columns added by one multiplication. */
static void quarter(const uint8_t *in, uint8_t *out, size_t size)
{
	enum { CHUNK = 64 };
	size_t width = 4 * size;
	uint16_t sum[4 * CHUNK];

	for (size_t y = 0; y < size; y++)
		for (size_t begin = 0; begin < size; begin += CHUNK) {
			size_t n = size - begin < CHUNK ? size - begin : CHUNK;
			const uint8_t *a = in + 4 * (y * width + begin), *b = a + width, *c = b + width, *d = c + width;
			for (size_t x = 0; x < 4 * n; x++)
				sum[x] = (uint16_t)(a[x] + b[x] + c[x] + d[x]);
			for (size_t x = 0; x < n; x++) {
				uint64_t four;
				memcpy(&four, sum + 4 * x, sizeof four);
				out[y * size + begin + x] = (uint8_t)(((four * 0x0001000100010001 >> 48) + 8) >> 4);
			}
		}
}

int resize_area(const uint8_t *in, int width, int height, uint8_t *out, int size, struct error *e)
{
	if (width == size && height == size) {
		memcpy(out, in, (size_t)size * (size_t)size);
		return 0;
	}
	if (width == 4 * size && height == 4 * size) {
		quarter(in, out, (size_t)size);
		return 0;
	}
	int gx = common_factor(width, size), gy = common_factor(height, size);
	uint64_t area = (uint64_t)(width / gx) * (uint64_t)(height / gy);
	struct reach *columns = malloc((size_t)size * sizeof *columns);
	uint32_t *sum = malloc((size_t)width * sizeof *sum); /* at most 255 * height */
	int rc = columns && sum ? 0 : fail(e, EXIT_INTERNAL, "no memory to resize an image");

	for (int x = 0; !rc && x < size; x++)
		columns[x] = reach_of(x, width / gx, size / gx);
	for (int y = 0; !rc && y < size; y++) {
		struct reach rows = reach_of(y, height / gy, size / gy);
		memset(sum, 0, (size_t)width * sizeof *sum);
		for (int j = rows.begin; j < rows.end; j++)
			add_row(in + (size_t)j * (size_t)width, weight(&rows, j), width, sum);
		for (int x = 0; x < size; x++)
			out[(size_t)y * (size_t)size + (size_t)x] = mean(add_columns(sum, &columns[x]), area);
	}
	free(columns);
	free(sum);
	return rc;
}

enum image_shape image_shape(int width, int height, int size)
{
	int longer = width > height ? width : height, shorter = width > height ? height : width;

	return longer > 2 * shorter ? SHAPE_STRETCHED : shorter < size ? SHAPE_ENLARGED : SHAPE_FINE;
}
