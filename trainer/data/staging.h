/* SPDX-License-Identifier: Apache-2.0
 * A directory that appears whole or not at all: it is filled under a temporary name beside its own and renamed. */
#ifndef DATA_STAGING_H
#define DATA_STAGING_H

#include "data/file.h"

struct staging {
	char path[FILE_PATH];    /* where it will be */
	char partial[FILE_PATH]; /* where it is filled */
	int replaces;            /* path exists and may go */
};

/* Makes the temporary directory. An existing path is refused (EXIT_USAGE) unless overwrite is set and it holds the file `mark`,
 * which shows that this program made it. */
int staging_open(struct staging *s, const char *path, int overwrite, const char *mark, struct error *e);

/* Syncs the directory and gives it its name; what was there before is removed afterwards. */
int staging_commit(struct staging *s, struct error *e);
void staging_discard(struct staging *s); /* removes the temporary directory; harmless after a commit */

#endif
