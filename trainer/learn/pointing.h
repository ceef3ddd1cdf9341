/* SPDX-License-Identifier: Apache-2.0
 * The pointing game (Zhang et al., ECCV 2016): does an activation map's strongest point lie in a box that a radiologist drew for
 * that finding? Scored against chance, the share of what the network saw of the
 * image that the boxes cover: no map peaks outside of it. */
#ifndef LEARN_POINTING_H
#define LEARN_POINTING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "data/findings.h"
#include "error.h"

struct box {
	char image[64];         /* "00004296_000.png" */
	int finding;
	double x, y, w, h;      /* pixels of the original image, from its top left */
};

struct boxes {
	size_t n;
	struct box *box;        /* [n] sorted by image, each once */
};

/* Reads NIH's BBox_List_2017.csv; to be freed, on errors too. EXIT_DATA names file and line. */
int boxes_read(struct boxes *b, const char *path, struct error *e);
void boxes_free(struct boxes *b);

/* Findings with a box in an image, one bit each. */
uint32_t boxes_findings(const struct boxes *b, const char *image);

/* EXIT_DATA where a box lies outside of an image of that size: the image is not the one that the boxes were drawn in. */
int boxes_fit(const struct boxes *b, const char *image, int width, int height, struct error *e);

struct pointing {
	int maps[FINDINGS], hits[FINDINGS];
	double chance[FINDINGS]; /* the hits that points anywhere in what the network saw would make */
};

/* Counts one map: its peak as a share of the image's sides (learn/cam.h), where the window that the network saw begins and ends as such shares, the
 * image's size in pixels. */
void pointing_add(struct pointing *p, const struct boxes *b, const char *image, int finding, double peak_x, double peak_y, const double window[2], int width,
		  int height);

/* The sums over findings. p: how likely points anywhere are to make hits so far from chance, at most, and to either side: by Poisson's distribution, whose
 * tails are no lighter than theirs (Hoeffding 1956). Standard deviations would promise far too much of few maps: of ten with boxes over 1 % of the image
 * each, one hit is 2.9 of them above chance, and points anywhere make it in one of ten such tries. */
struct pointing_sum {
	int maps, hits;
	double chance, p;
};
struct pointing_sum pointing_total(const struct pointing *p);

void pointing_print(const struct pointing *p, FILE *out);

#endif
