/* SPDX-License-Identifier: Apache-2.0
 * Directories as a whole: made, brought to disk, removed. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int directory_make(const char *path, struct error *e)
{
	if (mkdir(path, 0777))
		return fail(e, EXIT_INTERNAL, "%s: cannot be made: %s", path, strerror(errno));
	return 0;
}

/* A file system without such a call for directories says EINVAL: nothing more can be done there. */
static int sync_by(int (*sync_it)(int fd), const char *path, struct error *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || (sync_it(fd) && errno != EINVAL)) {
		int why = errno;
		if (fd >= 0)
			close(fd);
		return fail(e, EXIT_INTERNAL, "%s: cannot be brought to disk: %s", path, strerror(why));
	}
	close(fd);
	return 0;
}

int directory_sync(const char *path, struct error *e)
{
	return sync_by(fsync, path, e);
}

int filesystem_sync(const char *path, struct error *e)
{
	return sync_by(syncfs, path, e);
}

int parent_sync(const char *path, struct error *e)
{
	char directory[FILE_PATH];
	const char *slash = strrchr(path, '/');

	if (path_join(directory, e, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".") < 0)
		return -e->code;
	return directory_sync(directory, e);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	remove(path);
	return 0;
}

void directory_remove(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
