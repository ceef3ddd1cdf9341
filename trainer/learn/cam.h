/* SPDX-License-Identifier: Apache-2.0
 * Class activation maps (Zhou et al., CVPR 2016): where in an image the evidence for a finding lies. With a global average pool
 * before the classifier the logit is the mean of the map plus the bias, so the map is exact, not an estimate. */
#ifndef LEARN_CAM_H
#define LEARN_CAM_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "learn/checkpoint.h"
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

/* Columns at the right of a window, and rows at its lower edge, that lie under no cell: no map colours them, and what is there counts for the
 * cells before. 0 or 1 of a DenseNet's window that is a multiple of the pitch. */
int cam_uncovered(const struct cam_grid *grid, int window);
enum { CAM_UNCOVERED = 2 }; /* fewer are not worth a word */

struct cam {
	struct cam_grid grid;
	const float *cells;    /* [side][side] evidence; positive speaks for the finding */
	double peak_x, peak_y; /* centre of the strongest cell, in pixels of the window */
	double peak;           /* what that cell adds to the logit; where it is not positive nothing speaks for the finding */
	double raised;         /* what all positive cells together add to the logit */
};

/* cells: [side][side], filled with the sum over channels of weight[c] * features[c][y][x]. features: [channels][side][side]
 * before the global pool. */
struct cam cam_make(const float *features, int channels, const struct cam_grid *grid, const float *weight, float *cells);

/* Evidence from which on a map has full colours: positive cells that together raise the logit by 2, the odds 7.4-fold. Below, colours are
 * fainter in proportion, so that the largest of hardly any evidence does not look like a find. Measured with small DenseNets: 0.1 logits in the
 * median image of one whose labels no image shows, 0.25 in one of twenty; 4 to 7 where a sign is found. */
#define CAM_FULL 2.0

/* The map in warm colours over the gray image [size][size]; its window of `window` pixels lies in the middle. rgb: [size][size][3].
 * The strongest cell has the strongest colour, full where raised is CAM_FULL or more; without positive evidence nothing is coloured. Where no
 * cell is nothing can be, and the image is half as bright; a white frame runs round the window, which is all that the network saw. */
void cam_overlay(const struct cam *cam, const uint8_t *gray, int size, int window, uint8_t *rgb);

/* What the network sees of an image, in that image's own pixels. */
struct cam_window {
	int image_width, image_height; /* 0: not told */
	double x, y, width, height;
};

enum { IMAGE_HASH = 17 }; /* 16 hexadecimal digits */

/* What a picture of a map says about itself, in a tEXt chunk. */
struct cam_about {
	int finding;
	double probability; /* of the finding, for the image */
	int ten_crops;      /* that is the mean over ten windows (learn/crops.h), and the map is of the middle one */
	double raised;      /* as in struct cam */
	int side;           /* cells */
	struct cam_window window;
	char weights_hash[WEIGHTS_HASH]; /* of the network; "": not told */
	char image_hash[IMAGE_HASH];     /* of the image's file; "": not told */
};

/* Writes [size][size][3] as a PNG file. about NULL: it says nothing. */
int cam_write_png(const char *path, const uint8_t *rgb, int size, const struct cam_about *about, struct error *e);

/* 1: the PNG file in memory tells, 0: it does not, or is none; -1: no memory. */
int cam_read_about(const void *png, size_t size, struct cam_about *about);

#endif
