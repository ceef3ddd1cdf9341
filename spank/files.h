/* SPDX-License-Identifier: Apache-2.0
 * Files that are read while some user id of the process may be root. */
#ifndef SPANK_FILES_H
#define SPANK_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The beginning of DIR/path (dir: a descriptor, or AT_FDCWD) as terminated text. Never waits, as a pipe could make it.
 * Returns its length, or -1. */
int read_small_file(int dir, const char *path, char *buf, size_t size);

/* A whole regular file as one terminated block for free(), *length with the terminator; NULL and one line in error.
 * trusted_only refuses a file that anybody but root or this process's real user could have written; check and reading
 * go through one descriptor. */
char *read_whole_file(const char *path, bool trusted_only, size_t *length, char *error, size_t size);

/* 0 if only root or this process's real user can change what the directory holds; -1 and one line in error. */
int check_directory(const char *path, char *error, size_t size);

#endif
