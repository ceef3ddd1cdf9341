/* SPDX-License-Identifier: Apache-2.0
 * What a run tells: lines for people, events for programs. Only rank 0 has one that speaks. */
#ifndef LEARN_LOG_H
#define LEARN_LOG_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "learn/resample.h"

struct run_log {
	int speaks;  /* rank 0 */
	int live;    /* stdout is a terminal: progress rewrites one line */
	int shown;   /* a live line is on the screen */
	int json;    /* file descriptor or -1 */
	int given_up; /* it cannot be written any more, which was told; it stays open, as the thread that reports lost ranks may be about to write */
	int removed; /* its file has no name any more, which was told */
};

void log_open(struct run_log *l, int speaks);
/* Events are appended to PATH from now on, one object a line. */
int log_events_to(struct run_log *l, const char *path, struct error *e);
/* Says once that the file of events was removed, which no write() does. */
void log_check(struct run_log *l);
void log_close(struct run_log *l);

/* A line that stays. */
void log_say(struct run_log *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The progress line. */
void log_progress(struct run_log *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends a live line, so that something else may print. */
void log_end_live(struct run_log *l);

/* An object {"event": name, "time": seconds since 1970} to add to; NULL where nobody reads it: cJSON takes that well. */
cJSON *log_event(const struct run_log *l, const char *name);
/* Writes and frees it. A pipe's reader is waited for, for LOG_PATIENCE seconds a line. What cannot be written is told, and the log is given up. */
enum { LOG_PATIENCE = 10 };
void log_write(struct run_log *l, cJSON *event);

/* Adds a number, null where it is not finite; a text, null where it is "". */
void json_number(cJSON *object, const char *key, double value);
void json_text(cJSON *object, const char *key, const char *text);

/* Adds whether patients were trained on: true where some are known to be, false where all were looked for, null where nobody knows. */
void json_leak(cJSON *object, const char *key, int known, int all_looked_for);

/* Adds low and high of an interval, its method and se. */
void json_bounds(cJSON *object, const struct interval *r);

/* Adds the value under its name, and the ends of its interval under NAME_low and NAME_high. */
void json_measure(cJSON *object, const char *name, const struct interval *r);

/* Adds a whole number with all its digits; cJSON's own are those of a double. */
void json_whole(cJSON *object, const char *key, uint64_t value);

/* A text as it stands between the quotes of a JSON string, cut off where it does not fit; calls nothing and takes no memory, for a thread
 * that cannot wait. Returns `to`. */
char *json_escape(char *to, size_t size, const char *text);

#endif
