/* SPDX-License-Identifier: Apache-2.0 */
#include "files/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum exit_code fault_of(int why)
{
	return why == ENOENT || why == ENOTDIR || why == ELOOP || why == ENAMETOOLONG ? EXIT_DATA : EXIT_INTERNAL;
}

/* A directory that a training left is what people have in hand when a command wants one of its files. */
static int refuse_kind(const char *path, mode_t mode, struct error *e)
{
	static const char *const names[] = { "model.safetensors", "test.csv", "log.jsonl" };
	char file[FILE_PATH], there[64] = "";

	if (!S_ISDIR(mode))
		return fail(e, EXIT_DATA, "%s: not a regular file", path);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if ((size_t)snprintf(file, sizeof file, "%s/%s", path, names[i]) < sizeof file && access(file, F_OK) == 0)
			snprintf(there + strlen(there), sizeof there - strlen(there), "%s%s", *there ? " or " : "", names[i]);
	return fail(e, EXIT_DATA, *there ? "%s: a directory, not a file: name %s in it" : "%s: a directory, not a file%s", path, there);
}

int file_open_regular(const char *path, size_t *size, struct error *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* for a pipe's writer nobody waits: it is refused below */

	if (fd < 0 && errno == EWOULDBLOCK) /* a file server's client holds a lease of it, and gives that up for whoever waits */
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(e, fault_of(errno), "%s: cannot be read: %s", path, strerror(errno));
	if (fstat(fd, &st)) {
		fail(e, EXIT_INTERNAL, "%s: cannot be read: %s", path, strerror(errno));
		close(fd);
		return -EXIT_INTERNAL;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return refuse_kind(path, st.st_mode, e);
	}
	*size = (size_t)st.st_size;
	return fd;
}

int path_there(const char *path, struct error *e)
{
	struct stat st;

	if (stat(path, &st) == 0)
		return 1;
	return errno == ENOENT || errno == ENOTDIR ? 0 : fail(e, fault_of(errno), "%s: cannot be read: %s", path, strerror(errno));
}

int file_read(char **text, size_t *size, const char *path, struct error *e)
{
	size_t have = 0, want;
	int fd = file_open_regular(path, &want, e);

	*text = NULL;
	if (fd < 0)
		return fd;
	char *buffer = malloc(want + 1);
	if (!buffer) {
		close(fd);
		return fail(e, EXIT_INTERNAL, "%s: no memory for its %zu bytes", path, want);
	}
	while (have < want) {
		ssize_t n = read(fd, buffer + have, want - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int why = errno;
			close(fd);
			free(buffer);
			return fail(e, n < 0 ? EXIT_INTERNAL : EXIT_DATA, "%s: reading stopped at byte %zu of %zu: %s", path, have, want, n < 0 ? strerror(why) : "the file is shorter than it was");
		}
		have += (size_t)n;
	}
	close(fd);
	buffer[have] = '\0';
	*text = buffer;
	*size = have;
	return 0;
}

int file_fetch(const char *path, uint64_t offset, uint64_t size, struct error *e)
{
	enum { PIECE = 1 << 20 };
	size_t have;
	int fd = file_open_regular(path, &have, e);

	if (fd < 0)
		return fd;
	char *piece = malloc(PIECE);
	uint64_t end = offset + size;
	int rc = piece ? 0 : fail(e, EXIT_INTERNAL, "%s: no memory", path);
	if (!rc)
		posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_SEQUENTIAL);
	while (!rc && offset < end) {
		ssize_t n = pread(fd, piece, end - offset < PIECE ? end - offset : PIECE, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			rc = fail(e, n < 0 ? EXIT_INTERNAL : EXIT_DATA, "%s: reading stopped at byte %llu of %llu: %s", path, (unsigned long long)offset, (unsigned long long)end,
				  n < 0 ? strerror(errno) : "the file is shorter than it was");
		else
			offset += (uint64_t)n;
	}
	free(piece);
	close(fd);
	return rc;
}

int path_join(char path[FILE_PATH], struct error *e, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(path, FILE_PATH, format, args);
	va_end(args);
	if (n < 0 || n >= FILE_PATH)
		return fail(e, EXIT_USAGE, "path of more than %d bytes: %.80s…", FILE_PATH - 1, path);
	return 0;
}

/* Why glob() did not see all that is in a directory, of which it says nothing itself: 0, or the last errno. */
static _Thread_local int unseen;

static void *glob_opendir(const char *path)
{
	DIR *d = opendir(path);

	if (!d && errno != ENOENT && errno != ENOTDIR)
		unseen = errno;
	return d;
}

static struct dirent *glob_readdir(void *d)
{
	errno = 0;
	struct dirent *entry = readdir(d);

	if (!entry && errno)
		unseen = errno;
	return entry;
}

static void glob_closedir(void *d)
{
	closedir(d);
}

int path_glob(glob_t *found, const char *directory, const char *names, struct error *e)
{
	char plain[2 * FILE_PATH], pattern[FILE_PATH];
	size_t n = 0;

	*found = (glob_t){ .gl_opendir = glob_opendir, .gl_readdir = glob_readdir, .gl_closedir = glob_closedir, .gl_stat = stat, .gl_lstat = lstat };
	for (const char *c = directory; *c && n < sizeof plain - 2; c++) {
		if (strchr("*?[\\", *c))
			plain[n++] = '\\';
		plain[n++] = *c;
	}
	plain[n] = '\0';
	if (path_join(pattern, e, "%s/%s", plain, names))
		return -e->code;
	unseen = 0;
	int rc = glob(pattern, GLOB_ALTDIRFUNC, NULL, found);
	if (!unseen && rc == 0)
		return 0;
	globfree(found);
	if (!unseen && rc == GLOB_NOMATCH)
		return 0;
	return fail(e, EXIT_INTERNAL, "%s: cannot be listed: %s", directory, strerror(unseen ? unseen : ENOMEM));
}
