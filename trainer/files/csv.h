/* SPDX-License-Identifier: Apache-2.0
 * Comma-separated values as RFC 4180 has them: quoted fields, doubled quotes, CRLF or LF, a byte order mark, no newline needed
 * at the end. */
#ifndef FILES_CSV_H
#define FILES_CSV_H

#include <stddef.h>

#include "error.h"

enum { CSV_FIELDS = 64 };

struct csv {
	char path[4096];
	char *text;              /* the whole file; fields are cut out of it */
	size_t size, at;
	size_t line;             /* of the row that csv_next() gave, from 1 */
	size_t next_line;
	char *field[CSV_FIELDS]; /* NUL-terminated */
	int n;
};

int csv_open(struct csv *c, const char *path, struct error *e);
void csv_close(struct csv *c);

/* 1: a row, 0: end, -EXIT_DATA: FILE:LINE and the reason. Empty lines are passed over. */
int csv_next(struct csv *c, struct error *e);

/* Writes a text without line ends as a field, quoted where it has to be: at most twice its length and three bytes. Returns its length. */
int csv_quote(char *field, const char *text);

/* In files of image,WHAT rows: whether this is a first row that only says so, as pandas writes one. */
int csv_names_columns(const struct csv *c);

#endif
