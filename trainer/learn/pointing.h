/* SPDX-License-Identifier: Apache-2.0
 * The pointing game (Zhang et al., ECCV 2016): does an activation map's strongest point lie in a box that a radiologist drew for
 * that finding? Scored against chance, the share of the map's cells whose middle lies in a box: it can have no other strongest point. */
#ifndef LEARN_POINTING_H
#define LEARN_POINTING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "data/findings.h"
#include "error.h"
#include "learn/few.h"

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

/* What came of one map. */
struct pointed {
	int finding, hit;
	double chance; /* that one of its cells at random does; 0: none can */
};

/* The middles of a map's cells as shares of the image's sides: the first, and from one to the next. */
struct pointing_grid {
	int side;
	double first, pitch;
};

/* A map's peak as such shares (learn/cam.h), the image's size in pixels. */
struct pointed pointing_at(const struct boxes *b, const char *image, int finding, double peak_x, double peak_y, const struct pointing_grid *grid, int width, int height);

/* The patient that NIH's names begin with, "images/00004296_000.png": 4296; 0: the name is of another kind. */
uint32_t pointing_patient(const char *path);

/* The maps of all images. */
struct pointing {
	size_t n, unnamed; /* unnamed: images whose patient is not known */
	struct pointed *map; /* [n] */
	uint32_t *patient; /* [n] */
};

/* Adds all the maps of one image. patient: 0 where nobody knows: the image is then one of its own. -1: no memory. To be freed. */
int pointing_add(struct pointing *p, uint32_t patient, const struct pointed *maps, int n);
void pointing_free(struct pointing *p);

struct pointing_score {
	int maps, hits, beyond; /* beyond: maps that can hit nothing */
	size_t patients;
	double chance;         /* the hits that cells at random would make */
	struct interval share; /* hits / maps, with interval_of_images() */
};

/* p: how likely cells at random are to make hits so far from chance, at most, and to either side: by Poisson's distribution, whose tails are no lighter
 * than theirs (Hoeffding 1956), of as many maps as say as much where a patient's all hit or all miss (few.h). Standard deviations would promise far too much of
 * few maps: of ten with boxes over 1 % of the image each, one hit is 2.9 of them above chance, and cells at random make it in one of ten such tries. */
struct pointing_table {
	struct pointing_score all, finding[FINDINGS];
	size_t unnamed;
	double p; /* of all; NAN where chance makes no hit */
};

/* Depends on the seed only. -1: no memory. */
int pointing_judge(const struct pointing *p, int resamples, uint64_t seed, struct pointing_table *t);

void pointing_print(const struct pointing_table *t, FILE *out);

#endif
