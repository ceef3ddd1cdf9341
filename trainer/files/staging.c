/* SPDX-License-Identifier: Apache-2.0 */
#include "files/staging.h"
#include "json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int is_own(const struct staging_kind *kind, const char *name, int directory)
{
	char entry[FILE_PATH + 1];

	snprintf(entry, sizeof entry, "%s%s", name, directory ? "/" : "");
	for (const char *const *own = kind->own; *own; own++)
		if (fnmatch(*own, entry, FNM_EXTMATCH | FNM_PATHNAME) == 0)
			return 1;
	return 0;
}

/* Looks for an entry that is not of the kind: its name below the directory, or "". With `removing`, the others go on the way, and the
 * directory where nothing is left in it. Returns errno where one cannot be listed, which *foreign is then, or not be removed. */
static int find_foreign(const char *directory, const struct staging_kind *kind, int removing, char foreign[FILE_PATH])
{
	char *const roots[] = { (char *)directory, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | (removing ? 0 : FTS_COMFOLLOW), NULL);
	FTSENT *entry;
	int unread = 0;

	*foreign = '\0';
	while (tree && (entry = fts_read(tree))) {
		int is_directory = entry->fts_info == FTS_D || entry->fts_info == FTS_DP || entry->fts_info == FTS_DNR;
		const char *name = entry->fts_level ? entry->fts_path + strlen(directory) + 1 : "";
		int own = entry->fts_level == 0 || ((is_directory || entry->fts_info == FTS_F) && is_own(kind, name, is_directory));

		if (entry->fts_info == FTS_DNR)
			unread = entry->fts_errno;
		if (entry->fts_info == FTS_DNR || (!own && !*foreign))
			snprintf(foreign, FILE_PATH, "%s", name);
		if (!own && entry->fts_info == FTS_D)
			fts_set(tree, entry, FTS_SKIP);
		if (own && removing && entry->fts_info != FTS_D && remove(entry->fts_path) && errno != ENOTEMPTY && errno != EEXIST)
			unread = errno;
	}
	if (tree)
		fts_close(tree);
	controls_mend(foreign); /* it is printed */
	return unread;
}

/* That the mark says that this command made the directory. What keeps it from being read says nothing about whose it is. */
static int check_mark(const struct staging *s, struct error *e)
{
	char file[FILE_PATH], *text;
	struct error why = { 0 };
	size_t size;

	if (path_join(file, e, "%s/%s", s->path, s->kind->mark))
		return -e->code;
	int there = path_there(file, e);
	if (there < 0)
		return there;
	if (!there)
		return fail(e, EXIT_USAGE, "%s: holds no %s, so it was not made by this command and is not replaced", s->path, s->kind->mark);
	if (file_read(&text, &size, file, &why))
		return fail(e, why.code == EXIT_INTERNAL ? EXIT_INTERNAL : EXIT_USAGE, "%s, so that %s is not replaced", why.text, s->path);
	cJSON *object = json_parse(text, size, 0, NULL);
	const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, s->kind->key));

	if (!object && errno == ENOMEM)
		fail(e, EXIT_INTERNAL, "%s: no memory to read its %s", s->path, s->kind->mark);
	else if (!object)
		fail(e, EXIT_USAGE, "%s: its %s cannot be understood, so nothing tells that this command made it, and it is not replaced", s->path, s->kind->mark);
	else if (!value || strncmp(value, s->kind->begins, strlen(s->kind->begins)) != 0)
		fail(e, EXIT_USAGE, "%s: its %s is of something else, so it was not made by this command and is not replaced", s->path, s->kind->mark);
	cJSON_Delete(object);
	free(text);
	return -e->code;
}

static int holds(const char *directory, const char *path)
{
	char *a = realpath(directory, NULL), *b = realpath(path, NULL);
	size_t length = a ? strlen(a) : 0;
	int inside = a && b && strncmp(a, b, length) == 0 && (b[length] == '/' || b[length] == '\0');

	free(a);
	free(b);
	return inside;
}

static int check_foreign(const struct staging *s, struct error *e)
{
	char foreign[FILE_PATH];

	int unread = find_foreign(s->path, s->kind, 0, foreign);
	if (unread)
		return fail(e, EXIT_INTERNAL, "%s/%s: cannot be listed: %s", s->path, foreign, strerror(unread));
	return *foreign ? fail(e, EXIT_USAGE, "%s: holds %s too, which this command does not make, and is not replaced: move that away first", s->path, foreign) : 0;
}

static int check_existing(struct staging *s, int overwrite, const char *source, struct error *e)
{
	struct stat st;

	if (lstat(s->path, &st))
		return 0;
	if (is_mounted(s->path))
		return fail(e, EXIT_USAGE, "%s: is mounted, as a container's volume is, and what is made takes its name when it is complete: choose a directory in it, as %s/set", s->path, s->path);
	if (!overwrite)
		return fail(e, EXIT_USAGE, "%s: exists already (--overwrite replaces it)", s->path);
	if (check_mark(s, e))
		return -e->code;
	if (source && holds(s->path, source))
		return fail(e, EXIT_USAGE, "%s: what is read lies in it (%s), so it is not replaced: choose another place", s->path, source);
	s->replaces = 1;
	return check_foreign(s, e);
}

/* What a run that was killed, and could not clean up, has left may be many gigabytes. */
static void name_leftovers(const struct staging *s)
{
	const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
	size_t length = strlen(name);
	char parent[FILE_PATH];

	snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - s->path) + 1 : 0, s->path);
	DIR *directory = opendir(slash ? parent : ".");
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (strncmp(entry->d_name, name, length) == 0 && strncmp(entry->d_name + length, ".partial-", 9) == 0 && strlen(entry->d_name) == length + 15)
			fprintf(stderr, "chexnet: %s%s: a run that was killed left it, if none is at work on it: remove it then\n", parent, controls_mend(entry->d_name));
	if (directory)
		closedir(directory);
}

/* Every task of a step runs the whole command, and where one that fails ends the step, none comes to an end. */
static const char *step_advice(char *text, size_t size)
{
	const char *tasks = getenv("SLURM_STEP_NUM_TASKS");

	*text = '\0';
	if (tasks && atoi(tasks) > 1)
		snprintf(text, size, "; this step has %d tasks where one is enough (srun -n1 --hvd=off)", atoi(tasks));
	return text;
}

/* That two commands make one directory would be found out when the later one is done. Where the file system does not lock, it is. */
static int claim(struct staging *s, struct error *e)
{
	char path[FILE_PATH], self[300] = "", holder[300] = "", advice[96];

	if (path_join(path, e, "%s.partial-lock", s->path))
		return -e->code;
	int why = file_lock(&s->lock, path, e);
	if (why == EWOULDBLOCK) {
		ssize_t n = pread(s->lock, holder, sizeof holder - 1, 0);
		holder[n > 0 ? n : 0] = '\0';
		return fail(e, EXIT_USAGE, "%s: another chexnet is making it%s%s%s%s; if that one's node went down, remove %s", s->path, *holder ? " (" : "", holder,
			    *holder ? ")" : "", step_advice(advice, sizeof advice), path);
	}
	gethostname(self, 256);
	snprintf(self + strlen(self), 32, ", process %d", (int)getpid());
	if (why == 0 && (ftruncate(s->lock, 0) || pwrite(s->lock, self, strlen(self), 0) < 0))
		return 0; /* a full disk: whose it is is told to nobody */
	return -e->code;
}

static void release(struct staging *s)
{
	char path[FILE_PATH + 16];

	snprintf(path, sizeof path, "%s.partial-lock", s->path);
	file_unlock(&s->lock, path);
}

/* What root makes anew is its user's up to the last file: umask may close them to all but their owner. Before the directory is given, too: nobody else gets into it
 * yet, and what somebody put there before it was closed, and could exchange while it is given, is not root's. */
static void give_files(int fd, uid_t owner)
{
	char path[32];
	char *const roots[] = { path, NULL };

	snprintf(path, sizeof path, "/proc/self/fd/%d/", fd);
	FTS *tree = geteuid() == 0 ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
	FTSENT *entry;

	while (tree && (entry = fts_read(tree)))
		if (entry->fts_statp->st_uid != 0)
			fts_set(tree, entry, FTS_SKIP);
		else if (entry->fts_level > 0 && (entry->fts_info == FTS_DP || entry->fts_statp->st_nlink == 1))
			(void)!lchown(entry->fts_path, owner, (gid_t)-1);
	if (tree)
		fts_close(tree);
}

/* What the old directory's own access list gave to the files that were made in it: umask may close them to those whom it names. */
static void keep_default_list(int fd, const char *path)
{
	static const char name[] = "system.posix_acl_default";
	char list[4096];
	const ssize_t n = getxattr(path, name, list, sizeof list);

	if (n > 0)
		fsetxattr(fd, name, list, (size_t)n, 0);
}

/* The rights of the directory that is replaced: while the new one is filled, its group alone and nothing for anybody else, who could put links in root's way. */
static void keep_rights(struct staging *s, int filled)
{
	int fd = s->replaces || s->rights ? open(s->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	struct stat old, own;

	if (fd >= 0 && stat(s->path, &old) == 0) {
		if (filled)
			give_files(fd, old.st_uid);
		else
			keep_default_list(fd, s->path);
		file_keep_rights(fd, s->path, &old, filled);
		if (fstat(fd, &own) == 0)
			s->rights = (own.st_mode & 03777) | S_IRWXU;
	}
	if (fd >= 0 && s->rights)
		fchmod(fd, filled ? s->rights : s->rights & (S_ISGID | S_IRWXU));
	if (fd >= 0)
		close(fd);
}

static int make_partial(struct staging *s, struct error *e)
{
	char path[FILE_PATH];

	if (path_join(path, e, "%s.partial-XXXXXX", s->path))
		return -e->code;
	/* mkdtemp() makes it private; this one is as public as any that is made here, by umask or access list, and hands down a group as they do */
	if (!mkdtemp(path) || rmdir(path) || mkdir(path, 0777))
		return fail(e, EXIT_INTERNAL, "%s: cannot be made: %s", s->path, strerror(errno));
	strcpy(s->partial, path);
	keep_rights(s, 0);
	return 0;
}

/* What the name stands for, as it was given where that can be replaced: a link, and `.`, cannot. */
static int set_path(struct staging *s, const char *path, struct error *e)
{
	size_t length = strlen(path);
	struct stat st;

	while (length > 1 && path[length - 1] == '/')
		length--;
	if (path_join(s->path, e, "%.*s", (int)length, path))
		return -e->code;
	const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
	int stands_for = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (lstat(s->path, &st) == 0 && S_ISLNK(st.st_mode));
	char *real = stands_for ? realpath(s->path, NULL) : NULL;

	if (real)
		path_join(s->path, e, "%s", real);
	free(real);
	return -e->code;
}

int staging_open(struct staging *s, const char *path, int overwrite, const struct staging_kind *kind, const char *source, struct error *e)
{
	*s = (struct staging){ .kind = kind, .lock = -1 };
	if (set_path(s, path, e) || check_existing(s, overwrite, source, e) || (!s->replaces && directory_check(s->path, e)))
		return -e->code;
	if (claim(s, e) == 0 && check_existing(s, overwrite, source, e) == 0) { /* once more: the holder of a moment ago may have made it */
		name_leftovers(s);
		make_partial(s, e);
	}
	if (e->code)
		release(s);
	return -e->code;
}

static int refused_name(const struct staging *s, struct error *e)
{
	if (errno == EEXIST || errno == ENOTEMPTY)
		return fail(e, EXIT_USAGE, "%s: somebody has made it meanwhile, and it is not replaced", s->path);
	return fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", s->path, strerror(errno));
}

/* For file systems whose rename knows no flags (NFS, GlusterFS, older ZFS): a directory that was published meanwhile is not empty and
 * stays, and one to be replaced steps aside, and comes back where the new one cannot take its name. */
static int rename_plainly(struct staging *s, struct error *e)
{
	char aside[FILE_PATH];

	if (!s->replaces)
		return rename(s->partial, s->path) ? refused_name(s, e) : 0;
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
	return refused_name(s, e);
}

/* Of the old directory, at s->partial, only what the command makes: what came into it meanwhile is kept. */
static void remove_replaced(const struct staging *s)
{
	char foreign[FILE_PATH], kept[FILE_PATH + 16];
	struct stat st;
	int why = find_foreign(s->partial, s->kind, 1, foreign);

	if (lstat(s->partial, &st))
		return;
	snprintf(kept, sizeof kept, "%s.replaced%s", s->path, strrchr(s->partial, '-'));
	const char *place = rename(s->partial, kept) ? s->partial : kept;

	if (*foreign && !why)
		fprintf(stderr, "chexnet: %s: what it replaced held %s too, which this command does not make: that is in %s now\n", s->path, foreign, place);
	else /* on NFS, a file that is open stays under another name */
		fprintf(stderr, "chexnet: %s: not all of what it replaced could be removed: %s: the rest is in %s now%s%s: %s\n", s->path,
			strerror(why ? why : ENOTEMPTY), place, *foreign ? ", and so is " : "", foreign, *foreign ? "look before you remove it" : "remove it");
}

int staging_commit(struct staging *s, struct error *e)
{
	char parent[FILE_PATH];
	const char *slash = strrchr(s->path, '/');
	struct stat st;

	s->replaces = s->replaces && (lstat(s->path, &st) == 0 || errno != ENOENT); /* not what its owner has removed meanwhile */
	if (path_join(parent, e, "%.*s", slash ? (int)(slash - s->path) + 1 : 1, slash ? s->path : ".") || directory_sync(s->partial, e))
		return -e->code;
	keep_rights(s, 1);
	if (take_name(s, e))
		return -e->code;
	if (s->replaces)
		remove_replaced(s); /* what came into the old one since staging_open() is no reason to throw hours of work away: it is kept */
	s->partial[0] = '\0';
	return directory_sync(parent, e);
}

void staging_discard(struct staging *s)
{
	if (s->partial[0])
		directory_remove(s->partial);
	s->partial[0] = '\0';
	release(s);
}
