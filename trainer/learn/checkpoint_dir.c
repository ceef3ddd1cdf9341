/* SPDX-License-Identifier: Apache-2.0
 * A directory of checkpoints. */
#include "learn/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file.h"

void checkpoint_path(char *path, size_t size, const char *directory, uint64_t step)
{
	snprintf(path, size, "%s/checkpoint-%08" PRIu64 ".safetensors", directory, step);
}

/* The step in a checkpoint's file name, or -1 for any other name. */
static int64_t step_of(const char *name)
{
	static const char head[] = "checkpoint-";
	char *end;

	if (strncmp(name, head, sizeof head - 1) || name[sizeof head - 1] < '0' || name[sizeof head - 1] > '9')
		return -1;
	int64_t step = strtoll(name + sizeof head - 1, &end, 10);
	return strcmp(end, ".safetensors") == 0 ? step : -1;
}

static int only_checkpoints(const struct dirent *entry)
{
	return step_of(entry->d_name) >= 0;
}

static int by_step(const struct dirent **a, const struct dirent **b)
{
	int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);

	return (x > y) - (x < y);
}

int checkpoint_below(char *path, size_t size, const char *directory, uint64_t *step, struct error *e)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_checkpoints, by_step), found = 0;
	uint64_t below = *step;

	if (n < 0)
		return errno == ENOENT ? 0 : fail(e, EXIT_INTERNAL, "%s: %s", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		uint64_t at = (uint64_t)step_of(entries[i]->d_name);

		if (at < below) {
			found = 1;
			*step = at;
			snprintf(path, size, "%s/%s", directory, entries[i]->d_name);
		}
		free(entries[i]);
	}
	free(entries);
	return found;
}

int checkpoint_latest(char *path, size_t size, const char *directory, struct error *e)
{
	uint64_t step = UINT64_MAX;

	return checkpoint_below(path, size, directory, &step, e);
}

int checkpoint_is_of(const char *path, const char *directory, struct error *e)
{
	struct dirent **entries;
	struct stat file, own;
	int n = scandir(directory, &entries, only_checkpoints, NULL), found = 0;

	if (n < 0 || stat(path, &file))
		fail(e, EXIT_INTERNAL, "%s: %s", n < 0 ? directory : path, strerror(errno));
	for (int i = 0; i < n; i++) {
		char name[FILE_PATH];

		if (!e->code && path_join(name, e, "%s/%s", directory, entries[i]->d_name) == 0)
			found |= stat(name, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino;
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return e->code ? -e->code : found;
}

/* rename() that replaces nothing. Only one training has the directory (OUTPUT/lock), so a look is enough where rename knows no flags (NFS). */
static int rename_beside(const char *from, const char *to)
{
	struct stat st;

	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
		return -1;
	if (lstat(to, &st) == 0)
		errno = EEXIST;
	else if (errno == ENOENT)
		return rename(from, to);
	return -1;
}

static int set_aside(const char *path, struct error *e)
{
	char aside[FILE_PATH + 96];
	int n = 1;

	snprintf(aside, sizeof aside, "%s.abandoned", path);
	while (rename_beside(path, aside)) {
		if (errno != EEXIST)
			return fail(e, EXIT_INTERNAL, "%s: cannot be renamed: %s", path, strerror(errno));
		snprintf(aside, sizeof aside, "%s.abandoned-%d", path, ++n);
	}
	return 0;
}

/* How many were set aside; *e gets the first that could not be. */
static int abandon(const char *directory, uint64_t after, struct error *e)
{
	struct dirent **entries = NULL;
	int n = scandir(directory, &entries, only_checkpoints, by_step), abandoned = 0;

	if (n < 0)
		fail(e, EXIT_INTERNAL, "%s: %s", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		char path[FILE_PATH];

		if ((uint64_t)step_of(entries[i]->d_name) > after && path_join(path, e, "%s/%s", directory, entries[i]->d_name) == 0)
			abandoned += set_aside(path, e) == 0;
		free(entries[i]);
	}
	free(entries);
	return abandoned;
}

int checkpoint_holds_best(const char *path, const struct checkpoint_notes *at, struct error *e)
{
	struct checkpoint *c;
	struct checkpoint_notes notes = { 0 };
	struct error why = { 0 };

	if (checkpoint_open(&c, path, NULL, &notes, &why) < 0)
		return why.code == EXIT_INTERNAL ? fail(e, EXIT_INTERNAL, "%s", why.text) : 0;
	checkpoint_close(c);
	return notes.step == at->best_step && notes.best_auroc == at->best_auroc;
}

static int only_best(const struct dirent *entry)
{
	return fnmatch("best.safetensors?(.new|.abandoned?(-+([0-9])))", entry->d_name, FNM_EXTMATCH) == 0;
}

int checkpoint_find_best(char path[FILE_PATH], const char *directory, const struct checkpoint_notes *at, struct error *e)
{
	struct dirent **entries;
	struct error unread = { 0 };
	int n = scandir(directory, &entries, only_best, alphasort), held = 0;

	if (n < 0)
		return fail(e, EXIT_INTERNAL, "%s: %s", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		struct error why = { 0 };

		if (held != 1 && path_join(path, &why, "%s/%s", directory, entries[i]->d_name) == 0)
			held = checkpoint_holds_best(path, at, &why);
		if (why.code)
			unread = why;
		free(entries[i]);
	}
	free(entries);
	return held == 1 ? 1 : unread.code ? fail(e, EXIT_INTERNAL, "%s", unread.text) : 0;
}

int checkpoint_take_best(const char *directory, const struct checkpoint_notes *at, struct error *e)
{
	char best[FILE_PATH], new[FILE_PATH];
	struct error unread = { 0 };

	if (path_join(best, e, "%s/best.safetensors", directory) < 0 || path_join(new, e, "%s.new", best) < 0 || checkpoint_holds_best(new, at, &unread) != 1)
		return -e->code;
	return rename(new, best) ? fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", best, strerror(errno)) : parent_sync(best, e);
}

int checkpoint_take_over_best(const char *directory, const struct checkpoint_notes *at, struct error *e)
{
	char best[FILE_PATH];
	int left = 0;

	if (path_join(best, e, "%s/best.safetensors", directory) == 0 && checkpoint_holds_best(best, at, e) == 0 && access(best, F_OK) == 0)
		left = set_aside(best, e) == 0;
	if (!e->code)
		checkpoint_take_best(directory, at, e);
	return left;
}

int checkpoint_new_path(char path[FILE_PATH], const char *directory, uint64_t step, uint64_t after, struct error *e)
{
	return path_join(path, e, "%s/checkpoint-%08" PRIu64 ".safetensors.new-%" PRIu64, directory, step, after);
}

static int only_new(const struct dirent *entry)
{
	return fnmatch("checkpoint-+([0-9]).safetensors.new-+([0-9])", entry->d_name, FNM_EXTMATCH) == 0;
}

static int take_over(const char *directory, const char *name, struct checkpoint_left *left, struct error *e)
{
	char path[FILE_PATH], new[FILE_PATH];
	struct checkpoint *c;
	struct checkpoint_notes notes;

	if (path_join(new, e, "%s/%s", directory, name) < 0 || checkpoint_open(&c, new, NULL, &notes, e) < 0)
		return -e->code;
	checkpoint_close(c);
	left->after = strtoull(strrchr(name, '-') + 1, NULL, 10);
	left->checkpoints += abandon(directory, left->after, &left->why);
	left->best += checkpoint_take_over_best(directory, &notes, &left->why);
	checkpoint_path(path, sizeof path, directory, notes.step);
	if (notes.step > left->after && access(path, F_OK) == 0)
		return fail(e, EXIT_INTERNAL, "%s", left->why.text);
	return rename(new, path) ? fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", path, strerror(errno)) : parent_sync(path, e);
}

int checkpoint_take_over(const char *directory, struct checkpoint_left *left, struct error *e)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_new, alphasort);

	*left = (struct checkpoint_left){ 0 };
	if (n < 0)
		return fail(e, EXIT_INTERNAL, "%s: %s", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (!e->code)
			take_over(directory, entries[i]->d_name, left, e);
		free(entries[i]);
	}
	free(entries);
	return -e->code;
}

void checkpoint_prune(const char *directory, int keep, uint64_t step)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_checkpoints, by_step), reached = n;

	while (reached > 0 && (uint64_t)step_of(entries[reached - 1]->d_name) > step)
		reached--;
	for (int i = 0; i < n; i++) {
		char path[4096];

		if (i < reached - keep && snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) < (int)sizeof path)
			unlink(path);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

int checkpoint_sweep(const char *directory, int removing, char name[FILE_NAME])
{
	static const char digit[] = "[0-9a-f]";
	char pattern[176] = "@(@(checkpoint-+([0-9])|best|model).safetensors?(.new?(-+([0-9])))|test.csv).partial-";
	DIR *d = opendir(directory);
	const struct dirent *entry;
	struct stat st;
	int found = 0;

	for (int i = 0; i < 8; i++)
		strcat(pattern, digit);
	while (d && (entry = readdir(d)))
		if (fnmatch(pattern, entry->d_name, FNM_EXTMATCH) == 0 && fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
			if (removing)
				unlinkat(dirfd(d), entry->d_name, 0);
			snprintf(name, FILE_NAME, "%s", entry->d_name);
			found++;
		}
	if (d)
		closedir(d);
	return found;
}
