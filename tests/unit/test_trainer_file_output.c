/* SPDX-License-Identifier: Apache-2.0
 * Files that are written, and what is told of them before the work is done. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "files/file.h"
#include "files/partials.h"
#include "scratch.h"

int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);

static int stat_fails_with; /* errno; 0: it does not */

int __wrap_stat(const char *path, struct stat *st)
{
	errno = stat_fails_with;
	return stat_fails_with ? -1 : __real_stat(path, st);
}

int __real_fchown(int fd, uid_t owner, gid_t group);
int __wrap_fchown(int fd, uid_t owner, gid_t group);

static int fchown_fails_with; /* errno; 0: it does not */

int __wrap_fchown(int fd, uid_t owner, gid_t group)
{
	errno = fchown_fails_with;
	return fchown_fails_with ? -1 : __real_fchown(fd, owner, group);
}

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);

static int ends_while_made; /* a signal that comes while a new file is made; 0: none does */
static mode_t made_with;    /* the rights that the last new file began with */

int __wrap_open(const char *path, int flags, mode_t mode)
{
	int fd = __real_open(path, flags, mode);

	if (flags & O_EXCL)
		made_with = mode;
	if (ends_while_made && flags & O_EXCL)
		raise(ends_while_made);
	return fd;
}

static void assert_holds(const char *path, const char *words)
{
	struct error e = { 0 };
	char *text;
	size_t size;

	assert_int_equal(file_read(&text, &size, path, &e), 0);
	assert_string_equal(text, words);
	free(text);
}

static void a_link_keeps_its_place_and_its_file_is_replaced(void **state)
{
	(void)state;
	const char *file = scratch_path("model"), *link = scratch_path("link");
	struct error e = { 0 };
	struct stat st;

	scratch_write(file, "old", 3);
	assert_int_equal(symlink("model", link), 0);
	assert_int_equal(output_check(link, &e), 0);
	assert_holds(file, "old");
	assert_int_equal(file_write(link, "new", 3, &e), 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_holds(file, "new");
}

static int entries(const char *directory)
{
	struct dirent **found;
	int n = scandir(directory, &found, NULL, NULL);

	assert_true(n >= 2); /* . and .. */
	for (int i = 0; i < n; i++)
		free(found[i]);
	free(found);
	return n - 2;
}

static void a_link_to_what_is_not_there_yet_keeps_its_place_too(void **state)
{
	(void)state;
	const char *directory = scratch_path("far"), *link = scratch_path("first"), *round = scratch_path("round");
	struct error e = { 0 }, loop = { 0 }, gone = { 0 };
	struct stat st;

	assert_int_equal(mkdir(directory, 0777), 0);
	assert_int_equal(symlink("far/second", link), 0);
	assert_int_equal(symlink("third", scratch_path("far/second")), 0);
	assert_int_equal(output_check(link, &e), 0);
	assert_int_equal(file_write(link, "new", 3, &e), 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(lstat(scratch_path("far/third"), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_holds(link, "new");
	assert_int_equal(symlink("round", round), 0);
	assert_int_equal(file_write(round, "new", 3, &loop), -EXIT_USAGE);
	assert_non_null(strstr(loop.text, "round: cannot be written: Too many levels of symbolic links"));
	assert_int_equal(lstat(round, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(symlink("nowhere/file", scratch_path("lost")), 0);
	assert_int_equal(output_check(scratch_path("lost"), &gone), -EXIT_USAGE);
	assert_non_null(strstr(gone.text, "lost: cannot be written: No such file or directory"));
}

/* In a directory where everybody may write, as /tmp, Linux says EACCES of other users' links (fs.protected_symlinks). */
static void a_link_that_the_kernel_refuses_is_not_followed(void **state)
{
	(void)state;
	const char *mine = scratch_path("notes"), *planted = scratch_path("planted");
	struct error checked = { 0 }, written = { 0 };

	scratch_write(mine, "mine", 4);
	assert_int_equal(symlink("notes", planted), 0);
	stat_fails_with = EACCES;
	output_check(planted, &checked);
	file_write(planted, "new", 3, &written);
	stat_fails_with = 0;
	assert_holds(mine, "mine");
	assert_int_equal(checked.code, EXIT_INTERNAL);
	assert_non_null(strstr(written.text, "planted: cannot be written: Permission denied"));
}

/* As a program that starts this one hands over its temporary files. */
static void an_open_file_without_a_name_is_written_to(void **state)
{
	(void)state;
	const char *directory = scratch_path("nameless"), *file = scratch_path("nameless/file");
	char open_file[64], text[16] = "";
	struct error e = { 0 };

	assert_int_equal(mkdir(directory, 0777), 0);
	scratch_write(file, "of before", 9);
	int fd = open(file, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(unlink(file), 0);
	snprintf(open_file, sizeof open_file, "/dev/fd/%d", fd);
	assert_int_equal(output_check(open_file, &e), 0);
	assert_int_equal(file_write(open_file, "new", 3, &e), 0);
	assert_int_equal(pread(fd, text, sizeof text - 1, 0), 3);
	assert_string_equal(text, "new");
	close(fd);
	assert_int_equal(entries(directory), 0);
}

/* Notes, a link that somebody planted, a pipe: none of them is a file that this program was asked to write. */
static void what_has_a_name_like_a_half_written_file_is_left_alone(void **state)
{
	(void)state;
	char directory[FILE_PATH], notes[FILE_PATH + 32], link[FILE_PATH + 32], pipe[FILE_PATH + 32], victim[FILE_PATH + 32], out[FILE_PATH + 32];
	struct error e = { 0 };
	struct stat st;

	snprintf(directory, sizeof directory, "%s", scratch_path("beside"));
	assert_int_equal(mkdir(directory, 0777), 0);
	snprintf(victim, sizeof victim, "%s/victim", directory);
	snprintf(notes, sizeof notes, "%s/a.html.partial", directory);
	snprintf(link, sizeof link, "%s/b.html.partial", directory);
	snprintf(pipe, sizeof pipe, "%s/c.html.partial", directory);
	scratch_write(notes, "notes", 5);
	scratch_write(victim, "all", 3);
	assert_int_equal(symlink("victim", link), 0);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	for (const char *name = "abc"; *name; name++) {
		snprintf(out, sizeof out, "%s/%c.html", directory, *name);
		assert_int_equal(output_check(out, &e), 0);
		assert_int_equal(file_write(out, "page", 4, &e), 0);
		assert_int_equal(lstat(out, &st), 0);
		assert_true(S_ISREG(st.st_mode));
		assert_holds(out, "page");
	}
	assert_holds(notes, "notes");
	assert_holds(victim, "all");
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(entries(directory), 7);
}

static void two_runs_that_write_the_same_file_leave_one_of_the_two_whole(void **state)
{
	(void)state;
	const char *directory = scratch_path("two"), *path = scratch_path("two/out");
	struct output_file first, second, third;
	struct error e = { 0 };

	assert_int_equal(mkdir(directory, 0777), 0);
	assert_int_equal(output_open(&first, path, &e), 0);
	assert_int_equal(output_write(&first, "first, the longer one", 21, &e), 0);
	assert_int_equal(output_flush(&first, &e), 0);
	assert_int_equal(output_open(&second, path, &e), 0);
	assert_int_equal(output_write(&second, "second", 6, &e), 0);
	assert_int_equal(output_open(&third, path, &e), 0);
	assert_int_equal(output_commit(&first, &e), 0);
	assert_holds(path, "first, the longer one");
	output_discard(&third);
	assert_int_equal(output_commit(&second, &e), 0);
	assert_holds(path, "second");
	assert_int_equal(entries(directory), 1);
}

static void write_and_end(const char *path, int number)
{
	struct output_file out, other, done;
	struct error e = { 0 };
	pid_t pid;
	int status;

	partials_go_with_signals();
	if (file_write(path, "old", 3, &e) || output_open(&done, scratch_path("ended/done"), &e) || output_commit(&done, &e) || output_open(&other, scratch_path("ended/other"), &e) || output_open(&out, path, &e) ||
	    output_write(&out, "new", 3, &e))
		_exit(1);
	pid = fork(); /* a child's end is none of the file */
	if (pid == 0) {
		raise(number);
		_exit(2);
	}
	waitpid(pid, &status, 0);
	if (access(out.partial, F_OK))
		_exit(3);
	raise(number);
	_exit(4);
}

static void end_while_it_is_made(const char *path, int number)
{
	struct output_file out;
	struct error e = { 0 };

	partials_go_with_signals();
	ends_while_made = number;
	output_open(&out, path, &e);
	_exit(4);
}

static void a_signal_that_ends_the_program_leaves_nothing_half_written(void **state)
{
	(void)state;
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	const char *directory = scratch_path("ended"), *path = scratch_path("ended/out");
	int status;

	assert_int_equal(mkdir(directory, 0777), 0);
	for (size_t i = 0; i < 2 * sizeof numbers / sizeof numbers[0]; i++) {
		int number = numbers[i / 2];
		pid_t pid = fork();

		if (pid == 0) {
			signal(number, SIG_DFL);
			(i % 2 ? end_while_it_is_made : write_and_end)(path, number);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), number);
		assert_int_equal(entries(directory), 2);
		assert_holds(path, "old");
	}
}

static void a_written_file_is_as_public_as_the_umask_says(void **state)
{
	(void)state;
	static const mode_t masks[] = { 0, 022, 077 };
	const char *path = scratch_path("public");
	struct error e = { 0 };
	struct stat st;
	mode_t old = umask(0);

	for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
		unlink(path);
		umask(masks[i]);
		int rc = file_write(path, "x", 1, &e) || stat(path, &st);

		umask(old);
		assert_int_equal(rc, 0);
		assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i]);
	}
}

/* Root writes here over a user's file, in that user's directory and in another. */
static void a_file_that_is_replaced_keeps_its_owner_and_its_rights(void **state)
{
	(void)state;
	const char *own = scratch_path("own"), *paths[] = { scratch_path("own/closed"), scratch_path("closed") };
	const uid_t owner = geteuid() ? geteuid() : 65534;
	const gid_t group = geteuid() ? getegid() : 65534;
	static const mode_t modes[] = { 0600, 0640, 0666, 0400 };
	struct error e = { 0 };
	struct stat st;

	assert_int_equal(mkdir(own, 0755), 0);
	assert_int_equal(chown(own, owner, group), 0);
	for (int i = 0; i < 8; i++) {
		const char *path = paths[i / 4];
		unlink(path);
		assert_int_equal(file_write(path, "x", 1, &e), 0);
		assert_int_equal(chown(path, owner, group), 0);
		assert_int_equal(chmod(path, modes[i % 4]), 0);
		assert_int_equal(file_write(path, "y", 1, &e), 0);
		assert_int_equal(made_with, 0600); /* also before it has them, to whoever opens it then */
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, modes[i % 4]);
		assert_int_equal(st.st_uid, owner);
		assert_int_equal(st.st_gid, group);
	}
}

/* As where its directory was exchanged for another one meanwhile: the file of that name there is somebody else's, or there is none. */
static void a_file_elsewhere_is_not_given_to_whom_the_old_one_belonged(void **state)
{
	(void)state;
	const char *paths[] = { scratch_path("roots"), scratch_path("none"), scratch_path("users") }, *new = scratch_path("new");
	struct error e = { 0 };
	struct stat old, st;

	if (geteuid() != 0)
		skip_because("only root can give files away");
	assert_int_equal(file_write(paths[0], "x", 1, &e) || file_write(paths[2], "x", 1, &e) || chown(paths[2], 65534, 65534) || stat(paths[2], &old), 0);
	for (int i = 0; i < 3; i++) {
		int fd = open(new, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		file_keep_rights(fd, paths[i], &old, 1);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_uid, i < 2 ? 0 : 65534);
		close(fd);
	}
}

/* As in a container, where the group of a shared directory has no number that can be given. Another group, the writer's own, may read what all may. */
static void a_group_that_cannot_be_given_loses_nothing_where_it_is_the_same_and_another_gets_no_more_than_all(void **state)
{
	(void)state;
	const char *path = scratch_path("group");
	static const struct row { int other; mode_t old, new; } rows[] = { { 0, 0664, 0664 }, { 0, 0640, 0640 }, { 1, 0664, 0644 }, { 1, 0640, 0600 } };
	struct error e = { 0 };
	struct stat st;

	for (const struct row *r = rows; r < rows + sizeof rows / sizeof rows[0]; r++) {
		unlink(path);
		assert_int_equal(file_write(path, "x", 1, &e), 0);
		if (r->other && chown(path, (uid_t)-1, getegid() + 1))
			continue; /* root's alone to give */
		assert_int_equal(chmod(path, r->old), 0);
		fchown_fails_with = EINVAL;
		int rc = file_write(path, "y", 1, &e);
		fchown_fails_with = 0;
		assert_int_equal(rc, 0);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, r->new);
	}
}

/* Its group's bits are then those of the list's mask: as a mode they would let the group read what one user of another was let read. The directory's
 * own list is for files that are new there. */
static void a_list_of_users_of_a_file_that_is_replaced_is_kept_and_none_comes_of_its_directory(void **state)
{
	(void)state;
	static const char of_file[] = "system.posix_acl_access", of_directory[] = "system.posix_acl_default";
	enum { NOBODY = -1, USER = 4242 };
	const struct { uint32_t version; struct { uint16_t tag, perm; int32_t id; } entry[5]; } list =
		{ 2, { { 1, 6, NOBODY }, { 2, 4, USER }, { 4, 0, NOBODY }, { 16, 4, NOBODY }, { 32, 0, NOBODY } } };
	const char *directory = scratch_path("listed"), *path = scratch_path("listed/file");
	char kept[sizeof list + 1];
	struct error e = { 0 };

	assert_int_equal(mkdir(directory, 0777), 0);
	assert_int_equal(file_write(path, "x", 1, &e), 0);
	if (setxattr(path, of_file, &list, sizeof list, 0))
		skip_because("the file system of %s keeps no access lists", directory);
	assert_int_equal(file_write(path, "y", 1, &e), 0);
	assert_int_equal(getxattr(path, of_file, kept, sizeof kept), sizeof list);
	assert_memory_equal(kept, &list, sizeof list);
	assert_int_equal(removexattr(path, of_file), 0);
	assert_int_equal(setxattr(directory, of_directory, &list, sizeof list, 0), 0);
	assert_int_equal(file_write(path, "z", 1, &e), 0);
	assert_int_equal(getxattr(path, of_file, kept, sizeof kept), -1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(file_write(path, "z", 1, &e), 0);
	assert_int_equal(getxattr(path, of_file, kept, sizeof kept), sizeof list);
}

/* A rename would leave a file where a device or a pipe was: for root, /dev/null. */
static void what_is_no_file_is_written_to_directly(void **state)
{
	(void)state;
	const char *pipe = scratch_path("pipe");
	char got[8] = "";
	struct error e = { 0 };
	struct stat st;

	assert_int_equal(mkfifo(pipe, 0600), 0);
	int reader = open(pipe, O_RDONLY | O_NONBLOCK);
	assert_int_equal(output_check(pipe, &e), 0);
	assert_int_equal(file_write(pipe, "words", 5, &e), 0);
	assert_int_equal(read(reader, got, sizeof got), 5);
	assert_string_equal(got, "words");
	close(reader);
	assert_int_equal(stat(pipe, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
}

static void what_was_printed_and_what_is_written_share_standard_output(void **state)
{
	(void)state;
	const char *told = scratch_path("printed");
	struct error e = { 0 };
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (!freopen(told, "w", stdout))
			_exit(1);
		printf("before ");
		if (output_check("/dev/stdout", &e) || file_write("/dev/stdout", "file ", 5, &e))
			_exit(2);
		printf("after");
		fflush(stdout);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_holds(told, "before file after");
}

static void the_longest_name_of_an_output_is_known(void **state)
{
	char name[OUTPUT_NAME + 2] = { 0 };

	(void)state;
	for (int more = 0; more < 2; more++) {
		struct error e = { 0 };

		memset(name, 'x', (size_t)(OUTPUT_NAME + more));
		const char *path = scratch_path("%s", name);

		assert_int_equal(file_write(path, "x", 1, &e), more ? -EXIT_INTERNAL : 0);
		assert_int_equal(access(path, F_OK), more ? -1 : 0);
	}
}

static void a_directory_is_refused_before_work_is_done(void **state)
{
	(void)state;
	struct output_file out;
	struct error e = { 0 }, again = { 0 }, nowhere = { 0 };

	assert_int_equal(output_check(scratch, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "Is a directory"));
	assert_int_equal(output_open(&out, scratch, &again), -EXIT_USAGE);
	assert_int_equal(output_check(scratch_path("nowhere/file"), &nowhere), -EXIT_USAGE);
	assert_non_null(strstr(nowhere.text, "nowhere/file: cannot be written: No such file"));
	e = again = (struct error){ 0 };
	assert_int_equal(output_replaces(scratch, "#", "table", &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "is a directory"));
	assert_int_equal(output_replaces(scratch_path("nowhere/file"), "#", "table", &again), -EXIT_USAGE);
	assert_non_null(strstr(again.text, "nowhere/file: cannot be made: there is no directory "));
	const char *unreadable = "/sys/class/net/lo/speed"; /* can be opened, and of this device not be read */
	if (access(unreadable, R_OK) == 0) {
		e = (struct error){ 0 };
		assert_int_equal(output_replaces(unreadable, "#", "table", &e), -EXIT_INTERNAL);
		assert_non_null(strstr(e.text, "speed: is there and cannot be read, so nothing tells that it is a table, and it is left as it is: Invalid argument"));
	}
}

/* Whichever comes first; the files are not there yet. */
static void two_spellings_of_one_file_are_one_file(void **state)
{
	(void)state;
	static const struct {
		const char *path, *other;
		int one;
	} pairs[] = {
		{ "o.csv", "o.csv", 1 },	{ "o.csv", "./o.csv", 1 },	     { "o.csv", "spelt/../o.csv", 1 }, { "o.csv", "spelt//../o.csv", 1 },
		{ "spelt/o", "linked/o", 1 },	{ "spelt/o", "to-come", 1 },	     { "to-come", "comes-too", 1 },    { "o.csv", "p.csv", 0 },
		{ "o.csv", "spelt/o.csv", 0 },	{ "spelt/o", "other/o", 0 },	     { "to-come", "o", 0 },	       { "nowhere/o", "nowhere/p", 0 },
		{ "nowhere/o", "nowhere/o", 1 }, { "nowhere/o", "spelt/o", 0 }, { "here", "here-too", 1 }, /* as by another mount, or another case of its letters */
	};
	char path[FILE_PATH], other[FILE_PATH];

	assert_int_equal(mkdir(scratch_path("spelt"), 0777) | mkdir(scratch_path("other"), 0777), 0);
	assert_int_equal(symlink("spelt", scratch_path("linked")), 0);
	assert_int_equal(symlink("spelt/o", scratch_path("to-come")), 0);
	assert_int_equal(symlink("linked/o", scratch_path("comes-too")), 0);
	snprintf(path, sizeof path, "%s", scratch_path("here"));
	scratch_write(path, "x", 1);
	assert_int_equal(link(path, scratch_path("here-too")), 0);
	for (size_t i = 0; i < 2 * sizeof pairs / sizeof pairs[0]; i++) {
		const char *a = pairs[i / 2].path, *b = pairs[i / 2].other;
		struct error e = { 0 };

		snprintf(path, sizeof path, "%s", scratch_path("%s", i % 2 ? b : a));
		snprintf(other, sizeof other, "%s", scratch_path("%s", i % 2 ? a : b));
		if (output_spares(path, other, &e) != (pairs[i / 2].one ? -EXIT_USAGE : 0))
			fail_msg("%s and %s: \"%s\"", path, other, e.text);
		assert_true(!e.code || strstr(e.text, ": would be written over "));
	}
}

static void where_no_directory_can_be_made_another_place_is_to_be_named(void **state)
{
	(void)state;
	char name[300];
	static char deep[1500];
	struct error none = { 0 }, length = { 0 }, checked = { 0 }, e = { 0 };

	assert_int_equal(directory_ensure("", &none), -EXIT_USAGE); /* as root's /proc/x */
	assert_string_equal(none.text, ": cannot be made: No such file or directory");
	memset(name, 'x', sizeof name);
	name[sizeof name - 1] = '\0';
	assert_int_equal(directory_ensure(name, &length), -EXIT_USAGE);
	assert_int_equal(directory_check(name, &checked), -EXIT_USAGE);
	for (size_t n = 0; n + 8 < sizeof deep; n++)
		deep[n] = n % 100 ? 'y' : '/';
	assert_int_equal(directory_ensure(deep, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "y: cannot be made: there is no directory /y"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_keeps_its_place_and_its_file_is_replaced),
		cmocka_unit_test(a_link_to_what_is_not_there_yet_keeps_its_place_too),
		cmocka_unit_test(a_link_that_the_kernel_refuses_is_not_followed),
		cmocka_unit_test(an_open_file_without_a_name_is_written_to),
		cmocka_unit_test(what_has_a_name_like_a_half_written_file_is_left_alone),
		cmocka_unit_test(two_runs_that_write_the_same_file_leave_one_of_the_two_whole),
		cmocka_unit_test(a_signal_that_ends_the_program_leaves_nothing_half_written),
		cmocka_unit_test(a_written_file_is_as_public_as_the_umask_says),
		cmocka_unit_test(a_file_that_is_replaced_keeps_its_owner_and_its_rights),
		cmocka_unit_test(a_file_elsewhere_is_not_given_to_whom_the_old_one_belonged),
		cmocka_unit_test(a_group_that_cannot_be_given_loses_nothing_where_it_is_the_same_and_another_gets_no_more_than_all),
		cmocka_unit_test(a_list_of_users_of_a_file_that_is_replaced_is_kept_and_none_comes_of_its_directory),
		cmocka_unit_test(what_is_no_file_is_written_to_directly),
		cmocka_unit_test(what_was_printed_and_what_is_written_share_standard_output),
		cmocka_unit_test(the_longest_name_of_an_output_is_known),
		cmocka_unit_test(a_directory_is_refused_before_work_is_done),
		cmocka_unit_test(two_spellings_of_one_file_are_one_file),
		cmocka_unit_test(where_no_directory_can_be_made_another_place_is_to_be_named),
	};

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
