/* SPDX-License-Identifier: Apache-2.0
 * A training's JSON log into a pipe: a slow reader gets every line, one that stopped or left keeps nobody waiting. */
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "learn/log.h"

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);

static int waits, longest, patience_ends; /* of poll(): how often, for how long, and that it waited in vain */

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (!(fds && n == 1 && fds->events == POLLOUT))
		return __real_poll(fds, n, timeout);
	waits++;
	longest = timeout > longest ? timeout : longest;
	return patience_ends ? 0 : __real_poll(fds, n, timeout);
}

int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	(void)room;
	return __wrap_poll(fds, n, timeout);
}

/* A log into a new pipe, and the pipe's other end. */
static struct run_log open_pipe(int *reader)
{
	static int pipes;
	struct error e = { 0 };
	struct run_log log;
	const char *path = scratch_path("pipe-%d", pipes++);

	assert_int_equal(mkfifo(path, 0666), 0);
	*reader = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(*reader >= 0);
	log_open(&log, 1);
	log_events_to(&log, path, &e);
	assert_string_equal(e.text, "");
	waits = longest = patience_ends = 0;
	return log;
}

/* Of `size` bytes and a little more. */
static void write_event(struct run_log *log, size_t size)
{
	cJSON *event = log_event(log, "step");
	char *text = malloc(size + 1);

	memset(text, 'x', size);
	text[size] = '\0';
	if (event)
		cJSON_AddStringToObject(event, "text", text);
	log_write(log, event);
	free(text);
}

/* What is opened next may be a checkpoint, and the thread that reports a lost rank still knows the log by its number. */
static void a_log_that_nobody_reads_any_more_is_given_up_and_its_descriptor_is_nobody_elses(void **state)
{
	int reader;
	struct run_log log = open_pipe(&reader);
	const int descriptor = log.json;

	(void)state;
	close(reader);
	write_event(&log, 10);
	assert_null(log_event(&log, "step"));
	int next = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);

	assert_true(next != descriptor && other != descriptor);
	assert_int_equal(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
	close(next);
	close(other);
	log_close(&log);
	assert_int_equal(fcntl(descriptor, F_GETFD), -1);
}

static void a_reader_that_stopped_keeps_the_training_waiting_for_so_long_and_no_longer(void **state)
{
	int reader;
	struct run_log log = open_pipe(&reader);

	(void)state;
	patience_ends = 1;
	for (int i = 0; i < 1000 && !log.given_up; i++)
		write_event(&log, 1000); /* a pipe holds 64 KiB, or less */
	assert_true(log.given_up);
	assert_int_equal(waits, 1);
	assert_true(longest > 1000 * LOG_PATIENCE - 1000 && longest <= 1000 * LOG_PATIENCE + 1);
	write_event(&log, 1000); /* nothing happens */
	assert_int_equal(waits, 1);
	log_close(&log);
	close(reader);
}

enum { LINES = 3, LONG = 300000 }; /* longer than what a pipe holds */

static void *read_slowly(void *reader)
{
	size_t lines = 0, bytes = 0;
	char some[1000];
	ssize_t n;

	fcntl(*(int *)reader, F_SETFL, 0);
	while (lines < LINES && (n = read(*(int *)reader, some, sizeof some)) > 0) {
		usleep(50);
		bytes += (size_t)n;
		for (ssize_t i = 0; i < n; i++)
			lines += some[i] == '\n';
	}
	return (void *)bytes;
}

static void a_slow_reader_gets_whole_lines(void **state)
{
	int reader;
	struct run_log log = open_pipe(&reader);
	pthread_t thread;
	void *bytes;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
	for (int i = 0; i < LINES; i++)
		write_event(&log, LONG);
	assert_false(log.given_up);
	pthread_join(thread, &bytes);
	assert_true((size_t)bytes > LINES * LONG && (size_t)bytes < LINES * (LONG + 100));
	log_close(&log);
	close(reader);
}

/* As of `chexnet train --log-json /dev/stdout >FILE`, and of a job whose output goes into a file. */
/* What stands in a log before and after the next training has opened it. */
static void expect_begin(const char *before, const char *after)
{
	const char *path = scratch_path("cut");
	struct run_log log;
	struct error e = { 0 };
	char text[200];

	scratch_write(path, before, strlen(before));
	log_open(&log, 0);
	assert_int_equal(log_events_to(&log, path, &e), 0);
	log_close(&log);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(text, after);
}

static void a_last_line_that_was_cut_goes_and_a_whole_one_is_ended(void **state)
{
	(void)state;
	expect_begin("{\"a\":1}\n{\"b\":{\"c\":2}", "{\"a\":1}\n");
	expect_begin("{\"a\"", "");
	expect_begin("{\"a\":1}\n{\"b\":2}", "{\"a\":1}\n{\"b\":2}\n");
	expect_begin("{\"a\":1}\n", "{\"a\":1}\n");
	expect_begin("what chexnet printed", "what chexnet printed\n"); /* where standard output went into the same file */
}

static void a_log_into_the_file_of_standard_output_loses_no_line(void **state)
{
	const char *path = scratch_path("both");
	struct error e = { 0 };
	struct run_log log;
	char *text;
	size_t size, lines = 0;

	(void)state;
	fflush(stdout);
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), standard = dup(STDOUT_FILENO);
	dup2(file, STDOUT_FILENO);
	close(file);
	log_open(&log, 1);
	log_events_to(&log, "/dev/stdout", &e);
	for (int i = 0; i < 5; i++) {
		log_say(&log, "a line that is printed");
		write_event(&log, 10);
	}
	log_close(&log);
	dup2(standard, STDOUT_FILENO);
	close(standard);
	assert_int_equal(e.code, 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	for (const char *c = text; (c = strstr(c, "a line that is printed\n{\"event\":\"step\",")); c++)
		lines++;
	free(text);
	assert_int_equal(lines, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_that_nobody_reads_any_more_is_given_up_and_its_descriptor_is_nobody_elses),
		cmocka_unit_test(a_reader_that_stopped_keeps_the_training_waiting_for_so_long_and_no_longer),
		cmocka_unit_test(a_slow_reader_gets_whole_lines),
		cmocka_unit_test(a_last_line_that_was_cut_goes_and_a_whole_one_is_ended),
		cmocka_unit_test(a_log_into_the_file_of_standard_output_loses_no_line),
	};

	signal(SIGPIPE, SIG_IGN); /* as train does */
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
