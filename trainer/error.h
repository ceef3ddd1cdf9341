/* SPDX-License-Identifier: Apache-2.0
 * One line that a user can act on, and the exit code that goes with it. */
#ifndef TRAINER_ERROR_H
#define TRAINER_ERROR_H

enum exit_code {
	EXIT_DONE = 0,
	EXIT_USAGE = 64,    /* unknown option, impossible combination */
	EXIT_DATA = 65,     /* the input is bad; the line names file, record, byte */
	EXIT_INTERNAL = 70, /* a lost peer, no memory, no space, a bug */
	EXIT_RESUMABLE = 75 /* stopped early with everything saved */
};

struct error {
	int code;       /* enum exit_code; 0: no error yet */
	char text[1024]; /* what, where, what to do; no newline; of what is longer the middle is left out */
};

/* Records the first error only and returns -code, so that `return fail(e, …)` is one statement. Thread-safe only per struct. */
int fail(struct error *e, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Every byte of a control character (C0, C1, delete) becomes a question mark: what a line quotes breaks it not, and tells the terminal nothing.
 * Returns the text, which may be NULL. */
char *controls_mend(char *text);

#endif
