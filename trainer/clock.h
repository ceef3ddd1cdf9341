/* SPDX-License-Identifier: Apache-2.0
 * Time that goes by, and how it is written. */
#ifndef CLOCK_H
#define CLOCK_H

double now(void); /* seconds, monotonic */

/* "1:02:03", "4:05" */
const char *clock_text(double seconds, char text[32]);

#endif
