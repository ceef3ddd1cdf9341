/* SPDX-License-Identifier: Apache-2.0
 * Class activation maps (Zhou et al., CVPR 2016): where in an image the evidence for a finding lies. With a global average pool
 * before the classifier the logit is the mean of the map plus the bias, so the map is exact, not an estimate. */
#ifndef LEARN_CAM_H
#define LEARN_CAM_H

#include <stdint.h>

#include "error.h"

struct cam {
	int side;              /* cells */
	const float *cells;    /* [side][side] evidence; positive speaks for the finding */
	double peak_x, peak_y; /* centre of the strongest cell, as a share of the window's side */
};

/* cells: [side][side], filled with the sum over channels of weight[c] * features[c][y][x]. features: [channels][side][side]
 * before the global pool. */
struct cam cam_make(const float *features, int channels, int side, const float *weight, float *cells);

/* The map in warm colours over the gray image [size][size]; its window of `window` pixels lies in the middle. rgb: [size][size][3].
 * Full colour is the map's own maximum; without positive evidence nothing is coloured. */
void cam_overlay(const struct cam *cam, const uint8_t *gray, int size, int window, uint8_t *rgb);

/* Writes [size][size][3] as a PNG file. */
int rgb_write_png(const char *path, const uint8_t *rgb, int size, struct error *e);

#endif
