/* SPDX-License-Identifier: Apache-2.0
 * A directory takes its name whole, also where the file system's rename knows no flags, and what was there before is never lost. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "staging_set.h"

int __real_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);
int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static int flags_fail_with; /* errno of a rename with flags; 0: they are known */
static const char *comes_in; /* a file that somebody makes just before a rename with flags, or NULL */
static int renames_left;    /* of those without flags, until one of them fails; 0: none does */

int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	if (flags && comes_in)
		scratch_write(comes_in, "thesis", 6);
	if (flags && flags_fail_with) {
		errno = flags_fail_with;
		return -1;
	}
	return __real_renameat2(from_directory, from, to_directory, to, flags);
}

int __wrap_rename(const char *from, const char *to)
{
	if (renames_left && --renames_left == 0) {
		errno = EIO;
		return -1;
	}
	return __real_rename(from, to);
}

int __wrap_fsync(int fd);

static int syncs_left; /* until one of them fails; 0: none does */

int __wrap_fsync(int fd)
{
	(void)fd;
	errno = EIO;
	return syncs_left && --syncs_left == 0 ? -1 : 0;
}

int __real_file_lock(int *fd, const char *path, struct error *e);
int __wrap_file_lock(int *fd, const char *path, struct error *e);

static const char *made_before; /* a directory that its last holder makes just before a lock is taken, or NULL */

int __wrap_file_lock(int *fd, const char *path, struct error *e)
{
	if (made_before) {
		assert_int_equal(mkdir(made_before, 0777), 0);
		fill(made_before, "other");
	}
	return __real_file_lock(fd, path, e);
}

static void holds_it_alone(const char *directory)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, NULL, NULL);

	assert_int_equal(n, 3); /* it, . and .. */
	while (n > 0)
		free(entries[--n]);
	free(entries);
}

static const int refusals[] = { 0, EINVAL, ENOSYS, EOPNOTSUPP };

static void it_takes_its_name_and_replaces_on_any_file_system(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		const char *parent = scratch_path("any%zu", i), *path = scratch_path("any%zu/set", i);
		struct error e = { 0 };

		flags_fail_with = refusals[i];
		assert_int_equal(mkdir(parent, 0777), 0);
		assert_int_equal(publish(path, "first", 0, &e), 0);
		holds(path, "first");
		assert_int_equal(publish(path, "second", 1, &e), 0);
		holds(path, "second");
		holds_it_alone(parent);
	}
}

static void what_was_published_meanwhile_stays(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		const char *path = scratch_path("meanwhile%zu", i);
		struct staging s;
		struct error e = { 0 };

		flags_fail_with = refusals[i];
		assert_int_equal(staging_open(&s, path, 0, &kind, NULL, &e), 0);
		assert_int_equal(mkdir(path, 0777), 0);
		fill(path, "other");
		assert_int_equal(staging_commit(&s, &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, "somebody has made it meanwhile"));
		staging_discard(&s);
		holds(path, "other");
	}
}

/* What would be refused after hours of work is refused at once. */
static void what_was_published_while_it_waited_for_the_lock_stays(void **state)
{
	(void)state;
	const char *path = scratch_path("waited");
	struct staging s;
	struct error e = { 0 };

	made_before = path;
	assert_int_equal(staging_open(&s, path, 0, &kind, NULL, &e), -EXIT_USAGE);
	made_before = NULL;
	assert_non_null(strstr(e.text, "waited: exists already"));
	assert_int_not_equal(access(scratch_path("waited.partial-lock"), F_OK), 0);
	holds(path, "other");
}

static void one_at_a_time_makes_a_directory(void **state)
{
	(void)state;
	const char *parent = scratch_path("two"), *path = scratch_path("two/set");
	char self[32];
	struct staging first, second;
	struct error e = { 0 };

	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(staging_open(&first, path, 0, &kind, NULL, &e), 0);
	assert_int_equal(staging_open(&second, path, 1, &kind, NULL, &e), -EXIT_USAGE);
	snprintf(self, sizeof self, ", process %d)", (int)getpid());
	assert_non_null(strstr(e.text, "another chexnet is making it ("));
	assert_non_null(strstr(e.text, self));
	staging_discard(&second);
	fill(first.partial, "first");
	e = (struct error){ 0 };
	assert_int_equal(staging_commit(&first, &e), 0);
	staging_discard(&first);
	holds_it_alone(parent);
	assert_int_equal(publish(path, "second", 1, &e), 0);
	holds_it_alone(parent);
}

/* Permissions, and whether a group is handed down. */
static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

static void what_its_owner_removes_meanwhile_is_in_nobodys_way(void **state)
{
	(void)state;
	const char *parent = scratch_path("removed"), *path = scratch_path("removed/set");
	struct staging s;
	struct error e = { 0 };

	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(publish(path, "first", 0, &e) || chmod(path, 0751), 0);
	assert_int_equal(staging_open(&s, path, 1, &kind, NULL, &e), 0);
	fill(s.partial, "second");
	directory_remove(path);
	assert_int_equal(staging_commit(&s, &e), 0);
	staging_discard(&s);
	holds(path, "second");
	holds_it_alone(parent);
	assert_int_equal(mode_of(path), 0751);
}

static void it_is_as_public_as_any_other_that_is_made_there(void **state)
{
	(void)state;
	const char *parent = scratch_path("shared"), *path = scratch_path("shared/set"), *other = scratch_path("shared/other");

	assert_int_equal(mkdir(parent, 0777) || chmod(parent, 02775), 0);
	for (int closed = 0; closed < 2; closed++) {
		struct error e = { 0 };
		mode_t mask = umask(closed ? 027 : 002);

		assert_int_equal(publish(path, "text", 0, &e) || mkdir(other, 0777), 0);
		umask(mask);
		assert_int_equal(mode_of(path), mode_of(other));
		/* a user who is not in the group of the build folder cannot set S_ISGID there */
		assert_int_equal(mode_of(path), (closed ? 0750 : 0775) | (mode_of(parent) & S_ISGID));
		assert_int_equal(mode_of(scratch_path("shared/set/images")), mode_of(path));
		directory_remove(path);
		directory_remove(other);
	}
}

static void it_is_as_public_as_the_one_that_it_replaces(void **state)
{
	(void)state;
	static const mode_t modes[] = { 0700, 02770, 0755, 0500 };
	const char *parent = scratch_path("closed"), *path = scratch_path("closed/set");

	assert_int_equal(mkdir(parent, 0777), 0);
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		struct error e = { 0 };
		struct staging s;

		assert_int_equal(publish(path, "first", i > 0, &e) || chmod(path, modes[i]), 0);
		mode_t mode = mode_of(path);
		assert_int_equal(staging_open(&s, path, 1, &kind, NULL, &e), 0);
		assert_int_equal(mode_of(s.partial), 0700 | (mode & S_ISGID));
		fill(s.partial, "second");
		assert_int_equal(staging_commit(&s, &e), 0);
		staging_discard(&s);
		assert_int_equal(mode_of(path), mode | 0700);
	}
}

static void a_directory_without_one_around_it_is_refused(void **state)
{
	(void)state;
	const char *const places[] = { scratch_path("nowhere/x/y"), scratch_path("file/y") }, *file = scratch_path("file");
	struct staging s;

	scratch_write(file, "x", 1);
	for (size_t i = 0; i < 2; i++) {
		struct error e = { 0 };

		assert_int_equal(staging_open(&s, places[i], 0, &kind, NULL, &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, i ? "/file/y: cannot be made: there is no directory " : "/nowhere/x/y: cannot be made: there is no directory "));
		staging_discard(&s);
	}
}

static void what_cannot_be_replaced_comes_back(void **state)
{
	(void)state;
	const char *parent = scratch_path("back"), *path = scratch_path("back/set");
	struct error e = { 0 };

	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(publish(path, "first", 0, &e), 0);
	flags_fail_with = EINVAL;
	for (int nth = 1; nth <= 2; nth++) {
		char *told, aside[FILE_PATH];

		renames_left = nth;
		e = (struct error){ 0 };
		assert_int_equal(replace_telling(path, "second", &told, &e), -EXIT_INTERNAL);
		snprintf(aside, sizeof aside, " %s.replaced-", path);
		assert_non_null(strstr(told, aside));
		snprintf(aside, sizeof aside, " %s.partial-", path);
		assert_non_null(strstr(told, aside));
		assert_ptr_equal(strchr(told, '\n'), told + strlen(told) - 1);
		free(told);
		assert_non_null(strstr(e.text, "Input/output error"));
		holds(path, "first");
		holds_it_alone(parent);
	}
}

static int as_it_was(void **state)
{
	(void)state;
	flags_fail_with = renames_left = 0;
	comes_in = comes_in_early = NULL;
	return 0;
}

static void what_a_killed_run_left_is_named(void **state)
{
	(void)state;
	static const char *const names[] = { "killed/set.partial-aB3xYz", "killed/set.partial-short", "killed/other.partial-aB3xYz", "killed/set.replaced-aB3xYz" };
	char *told, wanted[FILE_PATH + 200];
	struct error e = { 0 };

	assert_int_equal(mkdir(scratch_path("killed"), 0777), 0);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		assert_int_equal(mkdir(scratch_path("%s", names[i]), 0777), 0);
	const char *path = scratch_path("killed/set");

	assert_int_equal(replace_telling(path, "first", &told, &e), 0);
	snprintf(wanted, sizeof wanted, "chexnet: %s.partial-aB3xYz: a run that was killed left it, if none is at work on it: remove it then\n", path);
	assert_string_equal(told, wanted);
	free(told);
	/* in a directory where others write, too, by any name, which is not to reach a terminal */
	e = (struct error){ 0 };
	assert_int_equal(rmdir(scratch_path("%s", names[0])) || mkdir(scratch_path("killed/set.partial-\033[31mX"), 0777), 0);
	path = scratch_path("killed/set");
	assert_int_equal(replace_telling(path, "second", &told, &e), 0);
	snprintf(wanted, sizeof wanted, "chexnet: %s.partial-?[31mX: a run that was killed left it, if none is at work on it: remove it then\n", path);
	assert_string_equal(told, wanted);
	free(told);
}

static void what_the_command_does_not_make_keeps_it_from_being_replaced(void **state)
{
	(void)state;
	static const struct {
		const char *name, *text, *words; /* text NULL: a directory */
	} cases[] = {
		{ "thesis.tex", "thesis", "holds thesis.tex too, which this command does not make" },
		{ "run7", NULL, "holds run7 too" },
		{ "images/seven", "thesis", "holds images/seven too" },
		{ "images/8", NULL, "holds images/8 too" },
		{ "mark", "{\"made_by\":\"another test\"}", "its mark is of something else" },
		{ "mark", "{\"name\":\"x\"}", "its mark is of something else" },
		{ "mark", "{\"made_by\":\"te", "its mark cannot be understood" },
		{ "mark", "", "its mark cannot be understood" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *path = scratch_path("theirs%zu", i), *entry = scratch_path("theirs%zu/%s", i, cases[i].name);
		struct staging s;
		struct error e = { 0 };

		assert_int_equal(mkdir(path, 0777), 0);
		fill(path, "first");
		if (cases[i].text)
			scratch_write(entry, cases[i].text, strlen(cases[i].text));
		else
			assert_int_equal(mkdir(entry, 0777), 0);
		assert_int_equal(staging_open(&s, path, 1, &kind, NULL, &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, cases[i].words));
		holds(path, "first");
		assert_int_equal(access(entry, F_OK), 0);
	}
}

/* Hours of work are not thrown away for a stray file, nor is the stray file. */
static void what_came_in_meanwhile_is_set_aside(void **state)
{
	(void)state;
	for (int k = 0; k < 4; k++) {
		int plainly = k & 1, at_the_last_moment = k & 2;
		const char *path = scratch_path("late%d", k), *said;
		char *told, kept[FILE_PATH + 64], thesis[FILE_PATH];
		struct error e = { 0 };

		snprintf(thesis, sizeof thesis, "%s", scratch_path("late%d/thesis\033.tex", k));
		assert_int_equal(publish(path, "first", 0, &e), 0);
		*(at_the_last_moment ? &comes_in : &comes_in_early) = thesis;
		flags_fail_with = plainly ? EINVAL : 0;
		assert_int_equal(replace_telling(path, "second", &told, &e), 0);
		as_it_was(NULL);
		holds(path, "second");
		assert_int_equal(access(thesis, F_OK), -1);
		said = strstr(told, "what it replaced held thesis?.tex too, which this command does not make: that is in ");
		assert_non_null(said);
		said = strstr(said, " is in ") + 7;
		assert_non_null(strstr(said, ".replaced-"));
		snprintf(kept, sizeof kept, "%.*s", (int)strcspn(said, " "), said);
		holds_it_alone(kept);
		snprintf(kept, sizeof kept, "%.*s/thesis\033.tex", (int)strcspn(said, " "), said);
		assert_int_equal(access(kept, F_OK), 0);
		free(told);
	}
}

static void what_is_read_is_not_replaced(void **state)
{
	(void)state;
	const char *path = scratch_path("read"), *link = scratch_path("link"), *images = scratch_path("link/images"), *beside = scratch_path("read2");
	const char *const inside[] = { path, link, images };
	struct staging s;
	struct error e = { 0 };

	assert_int_equal(publish(path, "first", 0, &e), 0);
	assert_int_equal(symlink("read", link), 0);
	assert_int_equal(mkdir(beside, 0777), 0);
	for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
		e = (struct error){ 0 };
		assert_int_equal(staging_open(&s, path, 1, &kind, inside[i], &e), -EXIT_USAGE);
		assert_non_null(strstr(e.text, "what is read lies in it"));
	}
	e = (struct error){ 0 };
	assert_int_equal(staging_open(&s, path, 1, &kind, beside, &e), 0);
	staging_discard(&s);
	holds(path, "first");
}

/* Its own directory before it has its name, and the one around it afterwards: the name itself might not be there after a power cut. */
static void what_does_not_reach_the_disk_is_no_success(void **state)
{
	(void)state;
	const char *path = scratch_path("unsynced");

	for (int i = 1; i <= 2; i++) {
		struct error e = { 0 };

		syncs_left = i;
		assert_int_equal(publish(path, "first", 0, &e), -EXIT_INTERNAL);
		assert_int_equal(syncs_left, 0);
		assert_non_null(strstr(e.text, ": cannot be brought to disk: Input/output error"));
		assert_int_equal(access(path, F_OK), i == 1 ? -1 : 0);
	}
	directory_remove(path);
}

/* "set/.", "link" and "link/" stand for a directory: that is replaced where it lies, and the link stays one to it. */
static void what_a_name_stands_for_is_replaced(void **state)
{
	(void)state;
	static const char *const names[] = { "alias", "alias/", "elsewhere/set/.", "elsewhere/set/images/.." };
	const char *link = scratch_path("alias"), *parent = scratch_path("elsewhere"), *path = scratch_path("elsewhere/set");
	struct error e = { 0 };
	struct stat st;

	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(publish(path, "first", 0, &e), 0);
	assert_int_equal(symlink("elsewhere/set", link), 0);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char text[8], name[FILE_PATH];

		snprintf(text, sizeof text, "%zu", i);
		snprintf(name, sizeof name, "%s/%s", scratch, names[i]);
		if (publish(name, text, 1, &e))
			fail_msg("%s", e.text);
		holds(path, text);
		holds_it_alone(parent);
		assert_int_equal(lstat(link, &st), 0);
		assert_true(S_ISLNK(st.st_mode));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(it_takes_its_name_and_replaces_on_any_file_system, as_it_was),
		cmocka_unit_test_teardown(what_was_published_meanwhile_stays, as_it_was),
		cmocka_unit_test_teardown(what_cannot_be_replaced_comes_back, as_it_was),
		cmocka_unit_test(what_was_published_while_it_waited_for_the_lock_stays),
		cmocka_unit_test(one_at_a_time_makes_a_directory),
		cmocka_unit_test(what_its_owner_removes_meanwhile_is_in_nobodys_way),
		cmocka_unit_test(it_is_as_public_as_any_other_that_is_made_there),
		cmocka_unit_test(it_is_as_public_as_the_one_that_it_replaces),
		cmocka_unit_test(a_directory_without_one_around_it_is_refused),
		cmocka_unit_test(what_a_killed_run_left_is_named),
		cmocka_unit_test(what_the_command_does_not_make_keeps_it_from_being_replaced),
		cmocka_unit_test_teardown(what_came_in_meanwhile_is_set_aside, as_it_was),
		cmocka_unit_test(what_is_read_is_not_replaced),
		cmocka_unit_test(what_does_not_reach_the_disk_is_no_success),
		cmocka_unit_test(what_a_name_stands_for_is_replaced),
	};

	umask(022); /* what another user may read here is the tests' to say, not that of the shell that they are started from */
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
