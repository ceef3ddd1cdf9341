/* SPDX-License-Identifier: Apache-2.0 */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whoever's file it is, to read it is enough for a lock, except on a file server, which lends that to writers alone. */
static int lock_of_another(int *fd, const char *path)
{
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) == 0)
		return *fd < 0 ? errno : 0;
	int why = errno == EBADF ? EACCES : errno;
	if (why == EACCES) {
		close(*fd);
		*fd = -1;
	}
	return why;
}

/* Is path still the file that fd has open? Somebody may have removed it, and another put a new one there. */
static int is_there(int fd, const char *path)
{
	struct stat own, there;

	if (fstat(fd, &own))
		return errno != ESTALE; /* so a file server says that another node removed it */
	if (stat(path, &there))
		return errno != ENOENT;
	return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

int file_lock(int *fd, const char *path, struct error *e)
{
	do {
		if (*fd >= 0)
			close(*fd);
		*fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); /* whoever has it writes its name there */
		int why = *fd >= 0 ? (flock(*fd, LOCK_EX | LOCK_NB) ? errno : 0) : errno;
		if (*fd < 0 && why == EACCES && access(path, F_OK) == 0) {
			why = lock_of_another(fd, path);
			if (why == EACCES)
				return fail(e, EXIT_INTERNAL, "%s: cannot be locked: %s: it is another user's: remove it if none of that one's is at work here", path, strerror(why));
			if (why == 0)
				unlink(path); /* a killed run left it: one of our own takes its place, unless the directory keeps everybody's files */
		}
		if (*fd < 0)
			return fail(e, EXIT_INTERNAL, "%s: cannot be written: %s", path, why == ELOOP ? "it is a link: remove it" : strerror(why));
		if (why)
			return why;
	} while (!is_there(*fd, path)); /* its holder was just ending */
	return 0;
}

int file_lock_taken(int fd, const char *path)
{
	return fd >= 0 && access(path, F_OK) == 0 && !is_there(fd, path);
}

void file_unlock(int *fd, const char *path)
{
	if (*fd < 0)
		return;
	if ((flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && is_there(*fd, path)) /* it is ours, not one that was only looked at or has come since */
		unlink(path);
	close(*fd);
	*fd = -1;
}
