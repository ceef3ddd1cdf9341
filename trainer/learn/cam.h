/* SPDX-License-Identifier: Apache-2.0
 * Class activation maps (Zhou et al., CVPR 2016): where in an image the evidence for a finding lies. With a global average pool
 * before the classifier the logit is the mean of the map plus the bias, so the map is exact, not an estimate. */
#ifndef LEARN_CAM_H
#define LEARN_CAM_H

#include <stdint.h>

#include "error.h"
#include "net/plan.h"

/* Where a network's last cells lie in its window. A cell stands for half a pitch on each side of its centre, the middle of the pixels that can
 * reach it, and that is not an even division of the window: DenseNet's pools drop the last row and column of an odd number (3 cells of 32
 * pixels in 112, and nothing in the rest), and ResNet's padded strides put the first cell on the corner (measured: 0.1 pixels off on average
 * where an even division is 7.4 off, with cells of 16). */
struct cam_grid {
	int side;             /* cells */
	double first, pitch;  /* pixels of the window from its left and upper edge to the first centre, and from one centre to the next */
};

struct cam_grid cam_grid_of(const struct net_plan *plan);

struct cam {
	struct cam_grid grid;
	const float *cells;    /* [side][side] evidence; positive speaks for the finding */
	double peak_x, peak_y; /* centre of the strongest cell, in pixels of the window */
};

/* cells: [side][side], filled with the sum over channels of weight[c] * features[c][y][x]. features: [channels][side][side]
 * before the global pool. */
struct cam cam_make(const float *features, int channels, const struct cam_grid *grid, const float *weight, float *cells);

/* The map in warm colours over the gray image [size][size]; its window of `window` pixels lies in the middle. rgb: [size][size][3].
 * Full colour is the map's own maximum; without positive evidence, and where no cell is, nothing is coloured. */
void cam_overlay(const struct cam *cam, const uint8_t *gray, int size, int window, uint8_t *rgb);

/* Writes [size][size][3] as a PNG file. */
int rgb_write_png(const char *path, const uint8_t *rgb, int size, struct error *e);

#endif
