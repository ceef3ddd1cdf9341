/* SPDX-License-Identifier: Apache-2.0
 * Labels that are neither learnt nor judged, on top of those that the data themselves do not know. */
#ifndef DATA_LABEL_MASK_H
#define DATA_LABEL_MASK_H

#include "data/dataset.h"

struct label_mask {
	uint32_t findings; /* of every image */
	struct label_mask_row {
		char id[SAMPLE_ID];
		uint32_t findings;
		int used; /* label_mask_apply() saw its image */
	} *rows;           /* [n] of single images, sorted by id */
	size_t n;
	uint64_t hash;
};

/* text: "Hernia,Mass", or "file:PATH" with rows image,Hernia|Mass (and "All" for all of an image's labels). Errors name file and
 * line: an unknown finding, an image that comes twice. EXIT_USAGE where no finding is left. */
int label_mask_read(struct label_mask *m, const char *text, struct error *e);
void label_mask_free(struct label_mask *m);

/* Makes those labels of d unknown; returns how many were known before. The data set's hash stays: these are the same data. */
size_t label_mask_apply(struct label_mask *m, struct dataset *d);
/* Rows whose image is in none of the data sets that it was applied to. */
size_t label_mask_unused(const struct label_mask *m);

#endif
