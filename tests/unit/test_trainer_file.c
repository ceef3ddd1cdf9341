/* SPDX-License-Identifier: Apache-2.0
 * Files that are read, mapped and locked, and directories that are brought to disk. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "files/file.h"
#include "scratch.h"

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);

static int fstat_fails_with; /* errno; 0: it does not */

int __wrap_fstat(int fd, struct stat *st)
{
	errno = fstat_fails_with;
	return fstat_fails_with ? -1 : __real_fstat(fd, st);
}

int __wrap_fsync(int fd);

static int fsync_fails_with; /* errno; 0: it does not */

int __wrap_fsync(int fd)
{
	(void)fd;
	errno = fsync_fails_with;
	return fsync_fails_with ? -1 : 0;
}

int __real_close(int fd);
int __wrap_close(int fd);

static int close_fails_with; /* errno; 0: it does not */

int __wrap_close(int fd)
{
	__real_close(fd);
	errno = close_fails_with;
	return close_fails_with ? -1 : 0;
}

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

static const char *removed_before; /* a lock whose holder removes it just before it is taken, or NULL */

int __wrap_flock(int fd, int operation)
{
	if (removed_before) {
		unlink(removed_before);
		removed_before = NULL;
	}
	return __real_flock(fd, operation);
}

/* Runs `child` with its standard error in a file; what it wrote, and how it ended. */
static void run_child(void (*child)(const char *path), const char *path, char words[512], int *status)
{
	const char *told = scratch_path("told");
	pid_t pid = fork();

	if (pid == 0) {
		if (!freopen(told, "w", stderr))
			_exit(1);
		child(path);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, status, 0), pid);
	struct error e = { 0 };
	char *text;
	size_t size;
	assert_int_equal(file_read(&text, &size, told, &e), 0);
	snprintf(words, 512, "%s", text);
	free(text);
}

static void a_file_that_may_be_whole_is_not_called_bad(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct rlimit old, none;
	const char *path = scratch_path("whole");
	size_t size;

	assert_int_equal(file_write(path, "12", 2, &e), 0);
	assert_int_equal(file_open_regular(scratch_path("nowhere"), &size, &e), -EXIT_DATA);
	e = (struct error){ 0 };
	assert_int_equal(file_open_regular(scratch_path("whole/nowhere"), &size, &e), -EXIT_DATA);
	getrlimit(RLIMIT_NOFILE, &old);
	none = (struct rlimit){ 0, old.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	e = (struct error){ 0 };
	int rc = file_open_regular(path, &size, &e);

	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(rc, -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "cannot be read: Too many open files"));
	fstat_fails_with = ESTALE;
	e = (struct error){ 0 };
	rc = file_open_regular(path, &size, &e);
	fstat_fails_with = 0;
	assert_int_equal(rc, -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "cannot be read: Stale file handle"));
	e = (struct error){ 0 };
	assert_int_equal(file_open_regular(scratch, &size, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, ": a directory, not a file"));
	assert_int_equal(mkdir(scratch_path("run"), 0700), 0);
	for (int i = 0; i < 2; i++) {
		const char *mark = scratch_path(i ? "run/model.safetensors" : "run/log.jsonl");

		assert_int_equal(close(creat(mark, 0600)), 0);
		e = (struct error){ 0 };
		assert_int_equal(file_open_regular(scratch_path("run"), &size, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, i ? "/run: a directory, not a file: name model.safetensors or log.jsonl in it" : "/run: a directory, not a file: name log.jsonl in it"));
	}
	assert_int_equal(mkfifo(scratch_path("unwritten"), 0600), 0);
	e = (struct error){ 0 };
	alarm(60); /* for a writer it would wait for ever */
	assert_int_equal(file_open_regular(scratch_path("unwritten"), &size, &e), -EXIT_DATA);
	alarm(0);
	assert_non_null(strstr(e.text, "not a regular file"));
}

static void map_two_and_cut(const char *path)
{
	struct mapped_file first, file;
	static struct output_file half; /* written meanwhile: the partial file goes with the program */
	struct error e = { 0 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (output_open(&half, scratch_path("half"), &e) || file_map(&first, "Makefile", &e) || file_map(&file, path, &e) || truncate(path, (off_t)page))
		_exit(1);
	file_unmap(&first);
	volatile uint8_t byte = file.data[page - 1]; /* is still there */
	byte = file.data[2 * page + 5];
	(void)byte;
}

static void a_cut_file_is_named_with_the_byte_that_was_wanted(void **state)
{
	(void)state;
	const size_t size = 4 * (size_t)sysconf(_SC_PAGESIZE); /* of 64 KiB on some ARM kernels */
	uint8_t *zeros = calloc(1, size);
	struct error e = { 0 };
	const char *path = scratch_path("shard");
	char words[512], wanted[64];
	int status;

	assert_non_null(zeros);
	assert_int_equal(file_write(path, zeros, size, &e), 0);
	free(zeros);
	run_child(map_two_and_cut, path, words, &status);
	print_message("%s", words);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_DATA);
	assert_non_null(strstr(words, path));
	snprintf(wanted, sizeof wanted, "byte %ld ", 2 * sysconf(_SC_PAGESIZE) + 5);
	assert_non_null(strstr(words, wanted));
	assert_int_equal(words[strlen(words) - 1], '\n');
	glob_t left;
	assert_int_equal(path_glob(&left, scratch, "half*", &e), 0);
	assert_int_equal(left.gl_pathc, 0);
}

static void map_and_signal(const char *path)
{
	struct mapped_file file;
	struct error e = { 0 };

	signal(SIGBUS, SIG_DFL); /* whatever a sanitizer has put there */
	if (file_map(&file, path, &e))
		_exit(1);
	raise(SIGBUS);
}

static void unmap_and_touch(const char *path)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct mapped_file file;
	struct error e = { 0 };
	int fd = file_open_regular(path, &page, &e);
	uint8_t *elsewhere = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);

	signal(SIGBUS, SIG_DFL);
	if (fd < 0 || file_map(&file, path, &e) || truncate(path, 0))
		_exit(1);
	volatile uint8_t byte = elsewhere[0]; /* not a file that was mapped by file_map() */
	(void)byte;
}

static void other_bus_errors_stay_what_they_are(void **state)
{
	(void)state;
	static const uint8_t zeros[100];
	struct error e = { 0 };
	const char *path = scratch_path("shard");
	void (*const child[])(const char *) = { map_and_signal, unmap_and_touch };
	char words[512];
	int status;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(file_write(path, zeros, sizeof zeros, &e), 0);
		run_child(child[i], path, words, &status);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGBUS);
		assert_string_equal(words, "");
	}
}

static void a_lock_that_was_removed_is_not_taken_for_the_one_that_came_after_it(void **state)
{
	(void)state;
	const char *path = scratch_path("lock");
	int first = -1, second = -1, third = -1;
	struct error e = { 0 };

	assert_int_equal(file_lock(&first, path, &e), 0);
	assert_false(file_lock_taken(first, path));
	assert_int_equal(unlink(path), 0);
	assert_false(file_lock_taken(first, path));
	assert_int_equal(file_lock(&second, path, &e), 0);
	assert_true(file_lock_taken(first, path));
	assert_false(file_lock_taken(second, path));
	int stale = dup(first);
	fstat_fails_with = ESTALE; /* what a file server says of a file that another node removed */
	assert_true(file_lock_taken(first, path));
	file_unlock(&stale, path);
	fstat_fails_with = 0;
	assert_int_equal(access(path, F_OK), 0);
	file_unlock(&first, path);
	assert_int_equal(file_lock(&third, path, &e), EWOULDBLOCK);
	file_unlock(&third, path);
	assert_int_equal(access(path, F_OK), 0);
	file_unlock(&second, path);
	assert_int_not_equal(access(path, F_OK), 0);
}

/* The next one would find no lock there, and take one of its own. */
static void a_lock_that_is_removed_while_it_is_taken_is_taken_anew(void **state)
{
	(void)state;
	const char *path = scratch_path("ending");
	int fd = -1, other = -1;
	struct error e = { 0 };

	scratch_write(path, "", 0);
	removed_before = path;
	assert_int_equal(file_lock(&fd, path, &e), 0);
	assert_int_equal(file_lock(&other, path, &e), EWOULDBLOCK);
	file_unlock(&other, path);
	file_unlock(&fd, path);
}

static void a_file_system_that_cannot_bring_a_directory_to_disk_is_not_refused(void **state)
{
	(void)state;
	struct error none = { 0 }, e = { 0 };

	fsync_fails_with = EINVAL;
	assert_int_equal(parent_sync(scratch_path("file"), &none), 0);
	fsync_fails_with = EIO;
	assert_int_equal(parent_sync(scratch_path("file"), &e), -EXIT_INTERNAL);
	fsync_fails_with = 0;
	assert_non_null(strstr(e.text, ": cannot be brought to disk: Input/output error"));
}

/* A file server may say at the end alone that there was no room. */
static void what_does_not_reach_the_disk_takes_no_name(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		const char *path = scratch_path("model");
		struct error e = { 0 };
		char *text;
		size_t size;
		glob_t left;

		scratch_write(path, "old", 3);
		fsync_fails_with = i == 0 ? EIO : 0;
		close_fails_with = i == 1 ? EDQUOT : 0;
		assert_int_equal(file_write(path, "new", 3, &e), i < 2 ? -EXIT_INTERNAL : 0);
		fsync_fails_with = close_fails_with = 0;
		assert_true(i == 2 || strstr(e.text, i ? ": closing failed: Disk quota exceeded" : ": cannot be brought to disk: Input/output error"));
		e = (struct error){ 0 };
		assert_int_equal(file_read(&text, &size, path, &e), 0);
		assert_string_equal(text, i < 2 ? "old" : "new");
		free(text);
		assert_int_equal(path_glob(&left, scratch, "model*", &e), 0);
		assert_int_equal(left.gl_pathc, 1);
		globfree(&left);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_may_be_whole_is_not_called_bad),
		cmocka_unit_test(a_cut_file_is_named_with_the_byte_that_was_wanted),
		cmocka_unit_test(other_bus_errors_stay_what_they_are),
		cmocka_unit_test(a_lock_that_was_removed_is_not_taken_for_the_one_that_came_after_it),
		cmocka_unit_test(a_lock_that_is_removed_while_it_is_taken_is_taken_anew),
		cmocka_unit_test(a_file_system_that_cannot_bring_a_directory_to_disk_is_not_refused),
		cmocka_unit_test(what_does_not_reach_the_disk_takes_no_name),
	};

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
