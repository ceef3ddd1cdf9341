/* SPDX-License-Identifier: Apache-2.0 */
#include "data/staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_existing(struct staging *s, int overwrite, const char *mark, struct error *e)
{
	struct stat st;
	char file[FILE_PATH];

	if (lstat(s->path, &st))
		return 0;
	if (path_join(file, e, "%s/%s", s->path, mark))
		return -e->code;
	if (!overwrite)
		return fail(e, EXIT_USAGE, "%s: exists already (--overwrite replaces it)", s->path);
	if (stat(file, &st))
		return fail(e, EXIT_USAGE, "%s: holds no %s, so it was not made by this command and is not replaced", s->path, mark);
	s->replaces = 1;
	return 0;
}

/* What a run that was killed, and could not clean up, has left may be many gigabytes. */
static void name_leftovers(const struct staging *s)
{
	const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
	size_t length = strlen(name);
	char parent[FILE_PATH];

	snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - s->path) + 1 : 0, s->path);
	DIR *directory = opendir(slash ? parent : ".");
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (strncmp(entry->d_name, name, length) == 0 && strncmp(entry->d_name + length, ".partial-", 9) == 0 && strlen(entry->d_name) == length + 15)
			fprintf(stderr, "chexnet: %s%s: a run that was killed left it, if none is at work on it: remove it then\n", parent, entry->d_name);
	if (directory)
		closedir(directory);
}

int staging_open(struct staging *s, const char *path, int overwrite, const char *mark, struct error *e)
{
	size_t length = strlen(path);

	*s = (struct staging){ 0 };
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (path_join(s->path, e, "%.*s", (int)length, path) || path_join(s->partial, e, "%s.partial-XXXXXX", s->path) ||
	    check_existing(s, overwrite, mark, e)) {
		s->partial[0] = '\0';
		return -e->code;
	}
	name_leftovers(s);
	if (!mkdtemp(s->partial)) {
		s->partial[0] = '\0';
		return fail(e, EXIT_INTERNAL, "%s: cannot be made: %s", s->path, strerror(errno));
	}
	/* mkdtemp() makes it private; the result is as public as any directory of this user */
	mode_t mask = umask(0);
	umask(mask);
	chmod(s->partial, 0777 & ~mask);
	return 0;
}

/* For file systems whose rename knows no flags (NFS, GlusterFS, older ZFS): a directory that was published meanwhile is not empty and
 * stays, and one to be replaced steps aside, and comes back where the new one cannot take its name. */
static int rename_plainly(struct staging *s, struct error *e)
{
	char aside[FILE_PATH];

	if (!s->replaces)
		return rename(s->partial, s->path) ? fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", s->path, strerror(errno)) : 0;
	if (path_join(aside, e, "%s.replaced%s", s->path, strrchr(s->partial, '-')))
		return -e->code;
	fprintf(stderr, "chexnet: %s: its file system cannot swap directories: the old one is called %s until the new one, %s, has taken its name\n", s->path, aside,
		s->partial);
	if (rename(s->path, aside))
		return fail(e, EXIT_INTERNAL, "%s: cannot be replaced: %s", s->path, strerror(errno));
	if (rename(s->partial, s->path)) {
		const char *why = strerror(errno);
		if (rename(aside, s->path))
			return fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s; what was there is %s now", s->path, why, aside);
		return fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", s->path, why);
	}
	strcpy(s->partial, aside);
	return 0;
}

/* Gives the new directory its name; the old one then is at s->partial. */
static int take_name(struct staging *s, struct error *e)
{
	if (renameat2(AT_FDCWD, s->partial, AT_FDCWD, s->path, s->replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
		return rename_plainly(s, e);
	return fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", s->path, strerror(errno));
}

int staging_commit(struct staging *s, struct error *e)
{
	char parent[FILE_PATH];
	const char *slash = strrchr(s->path, '/');

	if (path_join(parent, e, "%.*s", slash ? (int)(slash - s->path) + 1 : 1, slash ? s->path : ".") || directory_sync(s->partial, e))
		return -e->code;
	if (take_name(s, e))
		return -e->code;
	if (s->replaces)
		directory_remove(s->partial);
	s->partial[0] = '\0';
	return directory_sync(parent, e);
}

void staging_discard(struct staging *s)
{
	if (s->partial[0])
		directory_remove(s->partial);
	s->partial[0] = '\0';
}
