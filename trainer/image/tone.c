/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tone.h"

#include <stddef.h>

struct tone tone_measure(const uint8_t *pixels, int width, int height)
{
	const int margin_x = width / 16 + 1, margin_y = height / 16 + 1;
	struct tone t = { .low = 255 };
	double sum = 0, edge = 0;
	size_t edge_pixels = 0;

	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++) {
			int v = pixels[(size_t)y * (size_t)width + (size_t)x];

			sum += v;
			t.low = v < t.low ? v : t.low;
			t.high = v > t.high ? v : t.high;
			if (x < margin_x || x >= width - margin_x || y < margin_y) {
				edge += v;
				edge_pixels++;
			}
		}
	t.mean = (float)(sum / ((double)width * height));
	t.border = (float)(edge / (double)edge_pixels);
	return t;
}

enum tone_kind tone_kind(const struct tone *t)
{
	if (t->low == t->high)
		return TONE_CONSTANT;
	if (t->border > t->mean + 30) /* as of 494 of the negatives of 621 images of ChestX-ray14; the images themselves have at most 24 */
		return TONE_INVERTED;
	return t->mean < 8 || t->mean > 247 ? TONE_EMPTY : TONE_FINE;
}
