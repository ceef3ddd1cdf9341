/* SPDX-License-Identifier: Apache-2.0
 * Files as this program reads and writes them: mapped whole, and written under a temporary name until they are complete. */
#ifndef FILES_FILE_H
#define FILES_FILE_H

#include <glob.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "error.h"

enum { FILE_PATH = 4096, FILE_NAME = 256 };

struct mapped_file {
	const uint8_t *data; /* NULL for an empty file */
	size_t size;
};

/* Opens a regular file for reading. The descriptor, or -EXIT_DATA when it is not there; -EXIT_INTERNAL when it is and cannot be
 * read, so that it may be whole: no permission, too many open files, a file server that forgot it. */
int file_open_regular(const char *path, size_t *size, struct error *e);

/* Maps a regular file for reading. Errors as file_open_regular(). A file that is cut, or whose storage fails,
 * while it is mapped ends the program where the lost bytes are read: one line on standard error with file and byte, EXIT_DATA. */
int file_map(struct mapped_file *file, const char *path, struct error *e);
void file_unmap(struct mapped_file *file);

/* Who hears of that before the program ends: `line` is what standard error got, without its "chexnet: ". Called by the thread that reads, in a
 * signal handler. NULL: nobody. */
void file_on_lost_page(void (*tell)(const char *line));

/* The whole file in memory of its own, with a NUL behind it; to be freed. Errors as file_open_regular(). */
int file_read(char **text, size_t *size, const char *path, struct error *e);

/* A file being written: PATH.partial-, with eight hexadecimal digits of its own, until output_commit() has synced it and renamed it to PATH.
 * Until then the struct is not moved.
 * Where PATH is a link, the file behind it is replaced and the link stays; the new file has the old one's owner, group, mode and access list, as far as the writer may give them.
 * What is no file (a device, a pipe), the file that is standard output, and one that is mounted by itself, is written to directly. */
struct output_file {
	int fd;
	char path[FILE_PATH], partial[FILE_PATH]; /* partial "": written to directly */
	uint8_t *buffer;
	size_t filled;
	uint64_t size; /* bytes written so far */
};

/* The longest name, without its directories, that such a file can have: most file systems take 255 bytes, and until it is complete it has 17 more. */
enum { OUTPUT_NAME = 255 - 17 };

/* Whether a file can be made there, before work is done that would be lost. EXIT_INTERNAL as output_open(). */
int output_check(const char *path, struct error *e);

/* EXIT_USAGE where the file to be written is `other`, in whatever spelling, which is read or written too; either may be NULL. */
int output_spares(const char *path, const char *other, struct error *e);

/* EXIT_USAGE where a file is there that is not empty and begins otherwise than one of this kind: it is somebody's, and is not replaced; and
 * where a directory is, or none for it. EXIT_INTERNAL where that file cannot be read. `kind`, in words, is for the error line; path may be NULL. */
int output_replaces(const char *path, const char *start, const char *kind, struct error *e);

/* EXIT_INTERNAL for everything that goes wrong while writing: no permission, no space. */
int output_open(struct output_file *out, const char *path, struct error *e);
int output_write(struct output_file *out, const void *data, size_t size, struct error *e);
int output_flush(struct output_file *out, struct error *e);
/* Over bytes that were written and flushed before. */
int output_write_at(struct output_file *out, const void *data, size_t size, uint64_t offset, struct error *e);
int output_commit(struct output_file *out, struct error *e);
void output_discard(struct output_file *out); /* removes the partial file; harmless after a commit */

/* Gives a file or directory the group, mode, access list and perhaps owner of the one at path, which it is to take the place of, as far as the caller may give them. */
void file_keep_rights(int fd, const char *path, const struct stat *old, int owner);

/* output_open(), output_write() and output_commit() in one. */
int file_write(const char *path, const void *data, size_t size, struct error *e);

/* A file inside a directory that is not in its place yet: neither a temporary name nor a sync of its own. */
int file_put(const char *path, const void *data, size_t size, struct error *e);

/* Reads bytes [offset, offset + size) front to back in large pieces and forgets them: they are in the page cache then. EXIT_DATA
 * where the file is gone or shorter. */
int file_fetch(const char *path, uint64_t offset, uint64_t size, struct error *e);

/* The exit code for an errno about a name: EXIT_DATA where nothing is there; what a file server, a limit or a permission keeps back may be whole. */
enum exit_code fault_of(int why);

/* snprintf() into a path buffer of FILE_PATH bytes; EXIT_USAGE when it does not fit. */
int path_join(char path[FILE_PATH], struct error *e, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether something is there: 1 or 0, or negative where that cannot be told: no permission, a file server that does not answer. */
int path_there(const char *path, struct error *e);

/* Whether a file or directory is mounted by itself, as docker -v does: nothing can be renamed to it. */
int is_mounted(const char *path);

/* DIRECTORY/NAMES by glob(), none where nothing matches: what is special in the directory's own name means itself. EXIT_INTERNAL where not all that is
 * in it could be seen; what was found is the caller's to globfree(). */
int path_glob(glob_t *found, const char *directory, const char *names, struct error *e);

int directory_make(const char *path, struct error *e);
/* The same where it is not there yet. EXIT_USAGE where the directory around it is not there, EXIT_INTERNAL for all else. */
int directory_ensure(const char *path, struct error *e);
/* Whether files can be made in a directory, or where it is not there yet, whether it can be made. EXIT_USAGE where path is no directory,
 * or the one around it is not there, EXIT_INTERNAL without the permission. */
int directory_check(const char *path, struct error *e);
/* Takes an exclusive lock on a file, which is made where it is not there, and keeps its descriptor in *fd, of which one before is closed.
 * 0: it is held, EWOULDBLOCK: another process has it, other errors: the file system does not lock; negative: there can be no file,
 * or it is another user's and may not even be read. */
int file_lock(int *fd, const char *path, struct error *e);
/* Whether another file has taken the place of the one that was locked; not where somebody only removed it. */
int file_lock_taken(int fd, const char *path);
/* Closes it, and removes the file unless another process holds the lock; sets *fd to -1, which it may be before. */
void file_unlock(int *fd, const char *path);
int directory_sync(const char *path, struct error *e);
/* The same for the directory that a file is in. */
int parent_sync(const char *path, struct error *e);
/* Everything written so far to the file system that holds path: for many small files. */
int filesystem_sync(const char *path, struct error *e);
/* Removes a directory tree; errors are not reported: what is left shows itself. */
void directory_remove(const char *path);

#endif
