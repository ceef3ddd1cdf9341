/* SPDX-License-Identifier: Apache-2.0
 * uint8 images, cut and mirrored, to the first convolution's input: normalised as ImageNet's, channels padded to 8. */
#ifndef CUDA_IMAGES_H
#define CUDA_IMAGES_H

#include "channel_pass.h"

/* ImageNet's, as in engine.c, which is not part of the shared object. */
static const double pixel_mean[3] = { 0.485, 0.456, 0.406 }, pixel_deviation[3] = { 0.229, 0.224, 0.225 };

/* An image wherever it lies on the device, and what of it enters the network. */
struct image_window {
	const uint8_t *pixels; /* [source][source][channels] */
	int16_t x, y;
	uint8_t flip;
};

template <class T> struct gather_images {
	const image_window *window;   /* [images] */
	T *out;                       /* [images][side][side][8] */
	float scale[3], bias[3];      /* normalised = scale · byte + bias */
	int source, side, channels;   /* channels: 1 or 3 */
	enum { SUMS = 0 };
	typedef no_state state;

	DEVICE state begin(int) const
	{
		return {};
	}
	DEVICE void apply(const state &, long pixel, int, octet (&)[2]) const
	{
		const map_pixel at = map_pixel_of(pixel, side);
		const image_window w = window[at.image];
		const uint8_t *from = w.pixels + (size_t)(((w.y + at.row) * source + w.x + (w.flip ? side - 1 - at.column : at.column)) * channels);
		octet v = {};
		UNROLL for (int i = 0; i < 3; i++)
			v.v[i] = fmaf(scale[i], (float)from[channels == 3 ? i : 0], bias[i]);
		store8(out + (size_t)pixel * 8, v);
	}
};

#endif
