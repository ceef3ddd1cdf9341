/* SPDX-License-Identifier: Apache-2.0
 * Mapped files that somebody cuts while they are read. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "data/file.h"
#include "scratch.h"

enum { PAGES = 4 };

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

static void map_two_and_cut(const char *path)
{
	struct mapped_file first, file;
	struct error e = { 0 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (file_map(&first, "Makefile", &e) || file_map(&file, path, &e) || truncate(path, (off_t)page))
		_exit(1);
	file_unmap(&first);
	volatile uint8_t byte = file.data[page - 1]; /* is still there */
	byte = file.data[2 * page + 5];
	(void)byte;
}

static void a_cut_file_is_named_with_the_byte_that_was_wanted(void **state)
{
	(void)state;
	static uint8_t zeros[PAGES * 4096];
	struct error e = { 0 };
	const char *path = scratch_path("shard");
	char words[512], wanted[64];
	int status;

	assert_int_equal(file_write(path, zeros, sizeof zeros, &e), 0);
	run_child(map_two_and_cut, path, words, &status);
	print_message("%s", words);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_DATA);
	assert_non_null(strstr(words, path));
	snprintf(wanted, sizeof wanted, "byte %ld ", 2 * sysconf(_SC_PAGESIZE) + 5);
	assert_non_null(strstr(words, wanted));
	assert_int_equal(words[strlen(words) - 1], '\n');
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
	static uint8_t zeros[PAGES * 4096];
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_file_is_named_with_the_byte_that_was_wanted),
		cmocka_unit_test(other_bus_errors_stay_what_they_are),
	};

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
