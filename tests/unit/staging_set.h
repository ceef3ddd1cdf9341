/* SPDX-License-Identifier: Apache-2.0
 * A directory of a kind that takes its name whole, for the tests of staging. */
#ifndef STAGING_SET_H
#define STAGING_SET_H

#include <fcntl.h>
#include <sys/stat.h>

#include "files/staging.h"
#include "scratch.h"

static const char *comes_in_early; /* a file that somebody makes while the new directory is filled, or NULL */

static const char *const own[] = { "mark", "text", "images/", "images/+([0-9])", NULL };
static const struct staging_kind kind = { "mark", "made_by", "test ", own };
static const char marked[] = "{\"made_by\":\"test 1\"}";

static inline void put(const char *directory, const char *name, const char *text)
{
	char path[FILE_PATH + 32];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	scratch_write(path, text, strlen(text));
}

/* Puts all that a directory of the kind may hold into it, with `text` in the file of that name. */
static inline void fill(const char *directory, const char *text)
{
	char images[FILE_PATH + 8];

	snprintf(images, sizeof images, "%s/images", directory);
	assert_int_equal(mkdir(images, 0777), 0);
	put(images, "7", "seven");
	put(directory, "mark", marked);
	put(directory, "text", text);
}

/* A directory `path` of the kind with `text`; returns as staging_commit() does. */
static inline int publish(const char *path, const char *text, int overwrite, struct error *e)
{
	struct staging s;

	assert_int_equal(staging_open(&s, path, overwrite, &kind, NULL, e), 0);
	fill(s.partial, text);
	if (comes_in_early)
		scratch_write(comes_in_early, "thesis", 6);
	int rc = staging_commit(&s, e);

	staging_discard(&s);
	return rc;
}

/* The same to replace it, with what is said on standard error. */
static inline int replace_telling(const char *path, const char *text, char **told, struct error *e)
{
	const char *file = scratch_path("told");
	int kept = dup(STDERR_FILENO), fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	struct error none = { 0 };
	size_t size;

	assert_true(kept >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	int rc = publish(path, text, 1, e);

	dup2(kept, STDERR_FILENO);
	close(kept);
	close(fd);
	assert_int_equal(file_read(told, &size, file, &none), 0);
	return rc;
}

static inline void holds(const char *path, const char *expected)
{
	char file[FILE_PATH + 8], *text;
	struct error e = { 0 };
	size_t size;

	snprintf(file, sizeof file, "%s/text", path);
	assert_int_equal(file_read(&text, &size, file, &e), 0);
	assert_string_equal(text, expected);
	free(text);
}

#endif
