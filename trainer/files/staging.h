/* SPDX-License-Identifier: Apache-2.0
 * A directory that appears whole or not at all: it is filled under a temporary name beside its own and renamed. */
#ifndef FILES_STAGING_H
#define FILES_STAGING_H

#include "files/file.h"

/* The directories that a command makes, to know one by. */
struct staging_kind {
	const char *mark;         /* a file of JSON that each has, */
	const char *key, *begins; /* and how the text of a key in it begins */
	const char *const *own;   /* NULL-terminated patterns of fnmatch(3), extended, for all that it may hold; a directory's end in '/' */
};

struct staging {
	char path[FILE_PATH];    /* where it will be */
	char partial[FILE_PATH]; /* where it is filled */
	const struct staging_kind *kind;
	int replaces;            /* path exists and may go */
	mode_t rights;           /* of what is replaced, which its owner may remove meanwhile; 0: nothing is */
	int lock;                /* descriptor of PATH.partial-lock, or -1: one at a time */
};

/* Makes the temporary directory. An existing path is refused (EXIT_USAGE) unless overwrite is set and it is of this kind, with nothing
 * else in it, and does not hold `source`, which is read meanwhile (NULL: nothing is). So is one that another process is at work on, and
 * one in a directory that is not there. A link to a directory, and `.`, stand for what they name: that is replaced, where it lies. EXIT_INTERNAL
 * where permissions or a file server keep back whose it is. */
int staging_open(struct staging *s, const char *path, int overwrite, const struct staging_kind *kind, const char *source, struct error *e);

/* Syncs the directory and gives it its name, and the rights of what was there before, which is removed afterwards. What is not of the kind and has come
 * into that since staging_open() is kept, as PATH.replaced-XXXXXX, and named on standard error;
 * so is what cannot be removed. */
int staging_commit(struct staging *s, struct error *e);
void staging_discard(struct staging *s); /* in the end, also after a commit: removes what is left of the temporary directory */

#endif
