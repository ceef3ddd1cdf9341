/* SPDX-License-Identifier: Apache-2.0
 * How far something is that says nothing until its end, which for a whole data set is minutes or hours away. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stddef.h>

struct progress {
	const char *what;   /* begins the line; NULL: nothing is told */
	size_t total;
	double begin, next; /* seconds, monotonic */
	int live, shown;    /* standard error is a terminal, where one line is written over; it is on the screen */
};

/* On standard error: on a terminal from the first progress_tell() on, each second; elsewhere each minute, from the first one on. `what` stays the caller's. */
void progress_begin(struct progress *p, const char *what, size_t total);
/* So many of the total are done. From one thread. */
void progress_tell(struct progress *p, size_t done);
/* Takes the line off the terminal. */
void progress_end(struct progress *p);

#endif
