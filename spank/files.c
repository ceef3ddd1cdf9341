/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 32 << 20 /* bytes; the XML of a machine with 2000 CPUs has 2 MB */ };

int read_small_file(int dir, const char *path, char *buf, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	buf[n] = '\0';
	return (int)n;
}

static int check_owner(const char *path, const struct stat *st, char *error, size_t size)
{
	if (st->st_uid != 0 && st->st_uid != getuid())
		snprintf(error, size, "%s belongs to uid %u: it must belong to root", path, (unsigned)st->st_uid);
	else if (st->st_mode & (S_IWGRP | S_IWOTH))
		snprintf(error, size, "%s is writable by others than its owner: chmod go-w", path);
	else
		return 0;
	return -1;
}

/* Reads up to `size` bytes, less if the file has shrunk meanwhile; -1 with errno where it cannot be read. */
static ssize_t read_all(int fd, char *text, size_t size)
{
	size_t have = 0;
	ssize_t n = 1;
	while (have < size && n) {
		n = read(fd, text + have, size - have);
		if (n < 0 && errno != EINTR)
			return -1;
		have += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)have;
}

char *read_whole_file(const char *path, bool trusted_only, size_t *length, char *error, size_t size)
{
	char *text = NULL;
	ssize_t have;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st))
		snprintf(error, size, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
		snprintf(error, size, "%s: not a regular file of at most %d MB", path, FILE_MAX >> 20);
	else if (trusted_only && check_owner(path, &st, error, size))
		;
	else if (!(text = malloc((size_t)st.st_size + 1)))
		snprintf(error, size, "%s: out of memory", path);
	else if ((have = read_all(fd, text, (size_t)st.st_size)) < 0) {
		snprintf(error, size, "%s: %s", path, strerror(errno));
		free(text);
		text = NULL;
	} else {
		*length = (size_t)have + 1;
		text[have] = '\0';
	}
	if (fd >= 0)
		close(fd);
	return text;
}

int check_directory(const char *path, char *error, size_t size)
{
	struct stat st;
	if (stat(path, &st)) {
		snprintf(error, size, "%s: %s", path, strerror(errno));
		return -1;
	}
	return check_owner(path, &st, error, size);
}
