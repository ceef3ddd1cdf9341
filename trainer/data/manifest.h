/* SPDX-License-Identifier: Apache-2.0
 * manifest.json of a prepared data set. */
#ifndef DATA_MANIFEST_H
#define DATA_MANIFEST_H

#include "data/nih.h"

enum encoding { ENCODING_PNG, ENCODING_JPEG, ENCODING_PACKED /* data/packed.h */ };
extern const char *const encoding_names[]; /* "png", "jpeg", "packed", NULL */

struct manifest {
	int size;                /* side of the stored squares, pixels */
	enum encoding encoding;
	char policy[32];         /* of the split */
	uint64_t seed;
	char source[64];         /* "ChestX-ray14 2020" */
	uint64_t source_hash;    /* of its tables */
	struct manifest_split {
		size_t images, patients;
		int shards;
		int has_oracle;
		double oracle[FINDINGS]; /* NAN where a finding has no positives */
	} split[SPLITS];
};

extern const char manifest_format[]; /* its "format" */

int manifest_write(const struct manifest *m, const char *directory, struct error *e);

/* EXIT_DATA when there is none, or one that this program cannot use: other findings, a later version, numbers out of range. */
int manifest_read(struct manifest *m, const char *directory, struct error *e);

/* DIR/train-00000-of-00004 */
int shard_path(char path[FILE_PATH], const char *directory, enum split split, int shard, int shards, struct error *e);
/* DIR/train.cxp */
int packed_path(char path[FILE_PATH], const char *directory, enum split split, struct error *e);

#endif
