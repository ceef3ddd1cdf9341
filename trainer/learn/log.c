/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "json.h"
#include "utf8.h"

static int is_read_only(int fd)
{
	return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

/* A reader of standard output may leave (| head, or the tee that the same Ctrl-C ended), a terminal may close, and whoever started the program may
 * have closed it. A run of days does not end for that: what is printed from then on goes nowhere. Other failures, as of a full disk, are told at the
 * end of the program. */
static void flush(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO };

	if ((fflush(stdout) == 0 && !ferror(stdout)) || (!is_read_only(STDOUT_FILENO) && (poll(&out, 1, 0) != 1 || !(out.revents & (POLLERR | POLLHUP)))))
		return;
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (nowhere < 0)
		return;
	fprintf(stderr, "chexnet: nobody reads standard output any more: the run goes on, and its JSON log tells how\n");
	dup2(nowhere, STDOUT_FILENO);
	close(nowhere);
	clearerr(stdout);
	fflush(stdout);
}

void log_open(struct run_log *l, int speaks)
{
	*l = (struct run_log){ .speaks = speaks, .live = isatty(STDOUT_FILENO), .json = -1 };
}

/* A full disk or a node that went down cuts a line short. It goes, as every line is an object that any reader takes; what else lacks its end gets one,
 * and is not lost. */
static void end_last_line(int json, const char *path)
{
	struct stat st;
	char tail[1 << 16];

	if (fstat(json, &st) || !S_ISREG(st.st_mode) || st.st_size == 0)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	off_t from = st.st_size > (off_t)sizeof tail ? st.st_size - (off_t)sizeof tail : 0;
	ssize_t n = pread(fd, tail, sizeof tail, from), line = n;

	close(fd);
	while (line > 0 && tail[line - 1] != '\n')
		line--;
	if (n <= 0 || line == n)
		return;
	cJSON *whole = json_parse(tail + line, (size_t)(n - line), 0, NULL);
	int cut = !whole && errno == EBADMSG && tail[line] == '{' && (line || !from);

	cJSON_Delete(whole);
	if (cut ? ftruncate(json, from + line) : write(json, "\n", 1) < 0)
		fprintf(stderr, "chexnet: %s: %s\n", path, strerror(errno));
}

/* A pipe's reader may be started right after this. */
static int open_log(const char *path)
{
	int fd;
	struct stat st;

	for (int wait = 0; wait < 100; wait++) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
		if (fd >= 0 || errno != ENXIO || stat(path, &st) || !S_ISFIFO(st.st_mode))
			return fd;
		poll(NULL, 0, 50);
	}
	errno = EPIPE;
	return -1;
}

/* Where the log is to go into the file that standard output or standard error goes into: what is printed, at that one's place in the file, would be
 * written over it. They share their place instead. */
static int share_standard(int fd)
{
	struct stat st, standard;

	for (int s = STDOUT_FILENO; s <= STDERR_FILENO; s++) {
		if (fstat(fd, &st) || !S_ISREG(st.st_mode) || fstat(s, &standard) || st.st_dev != standard.st_dev || st.st_ino != standard.st_ino)
			continue;
		int shared = fcntl(s, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

		if (shared >= 0)
			close(fd);
		return shared >= 0 ? shared : fd;
	}
	return fd;
}

int log_events_to(struct run_log *l, const char *path, struct error *e)
{
	struct stat st;

	l->json = open_log(path);
	if (l->json < 0)
		return fail(e, EXIT_INTERNAL, "%s: the log cannot be written: %s", path, errno == EPIPE ? "nobody reads that pipe: start its reader first" : strerror(errno));
	l->json = share_standard(l->json);
	if (fstat(l->json, &st) || !S_ISFIFO(st.st_mode)) /* of a pipe, log_write() waits for its reader, and not for ever */
		fcntl(l->json, F_SETFL, O_APPEND);
	end_last_line(l->json, path);
	return 0;
}

void log_check(struct run_log *l)
{
	struct stat st;

	if (l->json < 0 || l->given_up || l->removed || fstat(l->json, &st) || !S_ISREG(st.st_mode) || st.st_nlink)
		return;
	l->removed = 1;
	fprintf(stderr, "chexnet: somebody removed the JSON log while it is written: what it held is lost, and so is what it is told from now on\n");
}

void log_close(struct run_log *l)
{
	log_end_live(l);
	if (l->json >= 0 && close(l->json) && !l->given_up) /* where a network file system says that there is no room */
		fprintf(stderr, "chexnet: the JSON log is not complete: %s\n", strerror(errno));
	l->json = -1;
}

void log_end_live(struct run_log *l)
{
	if (l->shown)
		putchar('\n');
	l->shown = 0;
	flush();
}

void log_say(struct run_log *l, const char *format, ...)
{
	va_list args;

	if (!l->speaks)
		return;
	if (l->shown)
		fputs("\r\033[K", stdout);
	l->shown = 0;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	flush();
}

void log_progress(struct run_log *l, const char *format, ...)
{
	va_list args;

	if (!l->speaks)
		return;
	if (l->live)
		fputs("\r\033[K", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	if (!l->live)
		putchar('\n');
	l->shown = l->live;
	flush();
}

cJSON *log_event(const struct run_log *l, const char *name)
{
	struct timespec t;

	if (l->json < 0 || l->given_up)
		return NULL;
	clock_gettime(CLOCK_REALTIME, &t);
	cJSON *event = cJSON_CreateObject();
	cJSON_AddStringToObject(event, "event", name);
	cJSON_AddNumberToObject(event, "time", (double)t.tv_sec + 1e-3 * (double)(t.tv_nsec / 1000000));
	return event;
}

/* Whether a full pipe takes more before `end`. */
static int wait_for_reader(int fd, double end)
{
	struct pollfd out = { .fd = fd, .events = POLLOUT };
	const double left = end - now();

	if (left > 0 && poll(&out, 1, (int)(1000 * left) + 1) != 0)
		return 1;
	errno = ETIMEDOUT;
	return 0;
}

/* One write() where that does, as the thread that reports a lost rank appends to the same file. */
static int write_line(int fd, const char *line, size_t size)
{
	const double end = now() + LOG_PATIENCE;

	while (size) {
		ssize_t done = write(fd, line, size);

		if (done < 0 && errno != EINTR && !(errno == EAGAIN && wait_for_reader(fd, end)))
			return -1;
		line += done > 0 ? done : 0;
		size -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

void log_write(struct run_log *l, cJSON *event)
{
	char *text = json_finish(event, 0);

	if (!text && l->json >= 0 && !l->given_up)
		fprintf(stderr, "chexnet: no memory for a line of the JSON log, which goes on without it\n");
	if (!text)
		return;
	size_t n = strlen(text);
	text[n] = '\n';
	if (l->json >= 0 && !l->given_up && write_line(l->json, text, n + 1) < 0) {
		if (errno == ETIMEDOUT)
			fprintf(stderr, "chexnet: the JSON log goes into a pipe that is full, and nobody read it for %d s: the run goes on without it\n", LOG_PATIENCE);
		else
			fprintf(stderr, "chexnet: the JSON log cannot be written any more: %s\n", strerror(errno));
		l->given_up = 1;
	}
	cJSON_free(text);
}

void json_text(cJSON *object, const char *key, const char *text)
{
	if (*text)
		cJSON_AddStringToObject(object, key, text);
	else
		cJSON_AddNullToObject(object, key);
}

void json_number(cJSON *object, const char *key, double value)
{
	if (!object)
		return;
	if (isfinite(value))
		cJSON_AddNumberToObject(object, key, value);
	else
		cJSON_AddNullToObject(object, key);
}

void json_leak(cJSON *object, const char *key, int known, int all_looked_for)
{
	if (known || all_looked_for)
		cJSON_AddBoolToObject(object, key, known);
	else
		cJSON_AddNullToObject(object, key);
}

void json_bounds(cJSON *object, const struct interval *r)
{
	json_number(object, "low", r->low);
	json_number(object, "high", r->high);
	json_text(object, "method", interval_method(r));
	json_number(object, "se", r->se);
}

void json_measure(cJSON *object, const char *name, const struct interval *r)
{
	char key[64];

	json_number(object, name, r->value);
	snprintf(key, sizeof key, "%s_low", name);
	json_number(object, key, r->low);
	snprintf(key, sizeof key, "%s_high", name);
	json_number(object, key, r->high);
}

void json_whole(cJSON *object, const char *key, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof digits, "%" PRIu64, value);
	cJSON_AddRawToObject(object, key, digits);
}

char *json_escape(char *to, size_t size, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	size_t n = 0;

	for (; *text && n + sizeof "\\u0000" <= size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			to[n++] = '\\';
		if (c >= ' ') {
			to[n++] = *text;
		} else {
			memcpy(to + n, "\\u00", 4);
			to[n + 4] = hex[c >> 4];
			to[n + 5] = hex[c & 15];
			n += 6;
		}
	}
	to[n] = '\0';
	utf8_mend(to);
	return to;
}
