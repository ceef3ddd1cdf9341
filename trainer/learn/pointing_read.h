/* SPDX-License-Identifier: Apache-2.0
 * The pointing game as chexnet predict --boxes --json printed it. */
#ifndef LEARN_POINTING_READ_H
#define LEARN_POINTING_READ_H

#include "learn/checkpoint.h"
#include "learn/pointing.h"

struct pointing_file {
	struct pointing pointing;
	size_t images; /* that have a box */
	char **name;   /* [images] their files, without the directories */
	char weights_hash[WEIGHTS_HASH]; /* of the network whose maps they are */
};

/* EXIT_DATA where it is no such array, or no image in it has a box, one stands there twice, or not all are of the same weights. To be freed, on errors
 * too. */
int pointing_read(struct pointing_file *p, const char *path, struct error *e);
void pointing_file_free(struct pointing_file *p);

#endif
