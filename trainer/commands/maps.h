/* SPDX-License-Identifier: Apache-2.0
 * What predict shows of where the evidence lies: overlays (--maps) and the pointing game (--boxes). */
#ifndef COMMANDS_MAPS_H
#define COMMANDS_MAPS_H

#include "engine/engine.h"
#include "files/file.h"
#include "learn/cam.h"
#include "learn/pointing.h"

struct maps {
	const char *directory; /* NULL: no overlays */
	struct boxes boxes;    /* n 0: none */
	struct pointing pointing;
	int finding;           /* of the overlays; -1: the most probable one */
	uint32_t untrained;    /* findings of which no map is made; to be set after opening */
	int ten_crops;         /* the logits are those of ten crops, which every overlay tells; to be set after opening */
	const char *weights_hash; /* told in every overlay; to be set after opening */
	const struct net_plan *plan;
	int source_size;       /* side of the squares that the window is cut from, pixels */
	int channels;
	struct cam_grid grid;
	float *features;       /* [batch][channels][side][side], to be filled by crops_forward(); NULL where nothing is to be shown */
	float *weight;         /* [FINDINGS][channels] the classifier's */
	float *cells;          /* [side][side] of the map at hand */
	uint8_t *rgb;          /* [source_size][source_size][3] */
};

/* An image as it was read, before it was resized. */
struct original {
	int width, height;
	uint64_t hash; /* of its file */
};

/* What an overlay shows of an image. */
struct shown {
	int finding;
	char file[FILE_PATH];
	double x, y; /* of the strongest evidence, as a share of the image's sides; NAN where nothing speaks for the finding */
	double peak, raised; /* as in struct cam */
	int cells;   /* a side */
	struct cam_window window;
};

/* EXIT_USAGE where two of the images would have the same overlay, or one's would have too long a name: they are named for their images. finding:
 * the option, or NULL. */
int maps_check_names(const char *directory, const char *finding, int n, char **paths, struct error *e);

/* EXIT_USAGE where two of the images have one name, by which boxes are found. */
int maps_check_once(int n, char **paths, struct error *e);

/* directory, finding and boxes are the options, NULL where they are not given; at least one of the first and the last is. Errors of the engine
 * are in *engine_error. To be closed on errors too. */
int maps_open(struct maps *m, const char *directory, const char *finding, const char *boxes, const struct net_plan *plan, struct engine *engine,
	      const struct error *engine_error, int source_size, int batch, struct error *e);
void maps_close(struct maps *m);

/* Scores the boxes of the image in row `row` of the batch. maps: [FINDINGS] of it; returns how many there are. */
int maps_point(struct maps *m, int row, const char *path, const struct original *original, struct pointed *maps, struct error *e);

/* Writes DIR/IMAGE.FINDING.png for the image in row `row` of the batch. gray: [source_size][source_size]. EXIT_USAGE where that
 * is there and shows another image, or is no map. */
int maps_write(struct maps *m, int row, const char *path, const struct original *original, const uint8_t *gray, const float *logits, struct shown *s, struct error *e);

#endif
