/* SPDX-License-Identifier: Apache-2.0
 * A directory that takes its name whole where several users are: whose it is then, who may read it, and what another one's files keep from it. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "staging_set.h"

/* Becomes a user whom permissions stop, where that is possible. */
static void be_nobody(void)
{
	if (geteuid() != 0)
		skip_because("only root can become another user");
	assert_int_equal(chmod(scratch, 0755), 0);
	assert_int_equal(seteuid(65534), 0);
	if (faccessat(AT_FDCWD, scratch, X_OK, AT_EACCESS)) {
		assert_int_equal(seteuid(0), 0);
		skip_because("another user may not enter the build folder");
	}
}

static void its_files_are_open_to_whom_those_of_the_one_that_it_replaces_were(void **state)
{
	(void)state;
	static const char of_directory[] = "system.posix_acl_default", of_file[] = "system.posix_acl_access";
	enum { NOBODY = -1, USER = 4242 };
	const struct { uint32_t version; struct { uint16_t tag, perm; int32_t id; } entry[5]; } list =
		{ 2, { { 1, 7, NOBODY }, { 2, 5, USER }, { 4, 0, NOBODY }, { 16, 5, NOBODY }, { 32, 0, NOBODY } } };
	const char *path = scratch_path("listed"), *file = scratch_path("listed/text");
	struct error e = { 0 };
	char kept[sizeof list + 1];

	assert_int_equal(publish(path, "first", 0, &e), 0);
	if (setxattr(path, of_directory, &list, sizeof list, 0))
		skip_because("the file system of %s keeps no access lists", path);
	assert_int_equal(publish(path, "second", 1, &e), 0);
	assert_int_equal(getxattr(path, of_directory, kept, sizeof kept), sizeof list);
	assert_memory_equal(kept, &list, sizeof list);
	assert_int_equal(getxattr(file, of_file, kept, sizeof kept), sizeof list);
}

static void it_belongs_to_whom_the_one_that_it_replaces_did(void **state)
{
	(void)state;
	const char *parent = scratch_path("users"), *path = scratch_path("users/set"), *files[] = { scratch_path("users/set/images"), scratch_path("users/set/images/7") };
	struct error e = { 0 };
	struct stat st;

	if (geteuid() != 0)
		skip_because("only root can give directories away");
	assert_int_equal(mkdir(parent, 0777) || publish(path, "first", 0, &e), 0);
	for (int i = 0; i < 2; i++) { /* in a directory of all, as /scratch, and in the user's own */
		assert_int_equal(i ? chown(parent, 65534, 65534) : chmod(parent, 01777), 0);
		assert_int_equal(chmod(path, 0700) || chown(path, 65534, 65534), 0);
		assert_int_equal(publish(path, "second", 1, &e), 0);
		assert_int_equal(stat(path, &st), 0);
		assert_true(st.st_uid == 65534 && st.st_gid == 65534 && (st.st_mode & 07777) == 0700);
		holds(path, "second");
		for (int k = 0; k < 2; k++) {
			assert_int_equal(stat(files[k], &st), 0);
			assert_int_equal(st.st_uid, 65534);
		}
	}
	/* in a directory that somebody put into it in time, and could exchange for another one at any moment, nothing is given */
	struct staging s;
	char planted[FILE_PATH + 8];

	assert_int_equal(staging_open(&s, path, 1, &kind, NULL, &e), 0);
	snprintf(planted, sizeof planted, "%s/planted", s.partial);
	assert_int_equal(mkdir(planted, 0777) || chown(planted, 4242, 4242), 0);
	put(planted, "file", "root's");
	assert_int_equal(staging_commit(&s, &e), 0);
	staging_discard(&s);
	assert_int_equal(stat(scratch_path("users/set/planted/file"), &st), 0);
	assert_int_equal(st.st_uid, 0);
}

/* A group's directory. */
static void anothers_lock_file_keeps_nobody_out_unless_it_is_held(void **state)
{
	(void)state;
	static const mode_t modes[] = { 0644, 0600 };
	const char *parent = scratch_path("group"), *path = scratch_path("group/set"), *lock = scratch_path("group/set.partial-lock");

	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(chmod(parent, 0777), 0);
	for (int i = 0; i < 4; i++) {
		int held = i & 1, readable = i < 2;
		struct staging s;
		struct error e = { 0 };

		scratch_write(lock, "", 0);
		assert_int_equal(chmod(lock, modes[!readable]), 0);
		int fd = open(lock, O_RDONLY | O_CLOEXEC);
		if (held)
			assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
		be_nobody();
		int rc = staging_open(&s, path, 0, &kind, NULL, &e);
		staging_discard(&s);
		assert_int_equal(seteuid(0), 0);
		close(fd);
		if (readable && !held)
			assert_int_equal(rc, 0);
		else if (readable)
			assert_non_null(strstr(e.text, "/group/set: another chexnet is making it; if that one's node went down, remove "));
		else
			assert_non_null(strstr(e.text, "/group/set.partial-lock: cannot be locked: Permission denied: it is another user's: remove it if "));
		assert_int_equal(access(lock, F_OK), readable && !held ? -1 : 0);
		unlink(lock);
	}
}

/* In a directory where others write, too. */
static void a_lock_that_is_a_link_is_not_written_through(void **state)
{
	(void)state;
	const char *path = scratch_path("linked"), *lock = scratch_path("linked.partial-lock"), *file = scratch_path("thesis");
	struct staging s;
	struct error e = { 0 };
	struct stat st;

	scratch_write(file, "mine", 4);
	assert_int_equal(symlink(file, lock), 0);
	assert_int_not_equal(staging_open(&s, path, 0, &kind, NULL, &e), 0);
	staging_discard(&s);
	assert_non_null(strstr(e.text, "/linked.partial-lock: cannot be written: it is a link: remove it"));
	assert_int_equal(lstat(lock, &st), 0);
	assert_int_equal(stat(file, &st) || st.st_size != 4, 0);
}

static void what_may_not_be_read_is_not_called_somebody_elses(void **state)
{
	(void)state;
	static const struct {
		const char *entry, *words; /* which is closed to the user */
	} cases[] = {
		{ "", "mark: cannot be read: Permission denied" },
		{ "mark", "mark: cannot be read: Permission denied" },
		{ "images", "images: cannot be listed: Permission denied" },
	};

	be_nobody(); /* or not, before anything is closed that only root could remove */
	assert_int_equal(seteuid(0), 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *path = scratch_path("closed%zu", i);
		struct staging s;
		struct error e = { 0 };

		assert_int_equal(publish(path, "first", 0, &e), 0);
		assert_int_equal(chmod(scratch_path("closed%zu/%s", i, cases[i].entry), 0), 0);
		be_nobody();
		int rc = staging_open(&s, path, 1, &kind, NULL, &e);
		staging_discard(&s);
		assert_int_equal(seteuid(0), 0);
		assert_int_equal(rc, -EXIT_INTERNAL);
		if (!strstr(e.text, cases[i].words))
			fail_msg("%s", e.text);
	}
}

/* It may be many gigabytes, of a directory that its owner had closed against changes. */
static void what_cannot_be_removed_is_named(void **state)
{
	(void)state;
	const char *parent = scratch_path("protected"), *file = scratch_path("told");
	char path[FILE_PATH], thesis[FILE_PATH + 16], *told = NULL;
	struct error e = { 0 };

	snprintf(path, sizeof path, "%s/set", parent);
	assert_int_equal(mkdir(parent, 0777), 0);
	assert_int_equal(chmod(parent, 0777), 0);
	scratch_write(file, "", 0);
	assert_int_equal(chmod(file, 0666), 0);
	be_nobody();
	int rc = publish(path, "first", 0, &e) || chmod(scratch_path("protected/set/images"), 0555) || replace_telling(path, "second", &told, &e);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, 0);
	holds(path, "second");
	assert_non_null(strstr(told, "set: not all of what it replaced could be removed: Permission denied: the rest is in "));
	assert_non_null(strstr(told, "set.replaced-"));
	assert_non_null(strstr(told, ": remove it"));
	free(told);
	/* not what came into it meanwhile, which is somebody's */
	snprintf(thesis, sizeof thesis, "%s/thesis.tex", path);
	comes_in_early = thesis;
	be_nobody();
	rc = chmod(scratch_path("protected/set/images"), 0555) || replace_telling(path, "third", &told, &e);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, 0);
	comes_in_early = NULL;
	assert_non_null(strstr(told, "Permission denied: the rest is in "));
	assert_non_null(strstr(told, " now, and so is thesis.tex: look before you remove it"));
	free(told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_files_are_open_to_whom_those_of_the_one_that_it_replaces_were),
		cmocka_unit_test(it_belongs_to_whom_the_one_that_it_replaces_did),
		cmocka_unit_test(what_cannot_be_removed_is_named),
		cmocka_unit_test(anothers_lock_file_keeps_nobody_out_unless_it_is_held),
		cmocka_unit_test(a_lock_that_is_a_link_is_not_written_through),
		cmocka_unit_test(what_may_not_be_read_is_not_called_somebody_elses),
	};
	umask(022); /* what another user may read here is the tests' to say, not that of the shell that they are started from */
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
