/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *clock_text(double seconds, char text[32])
{
	long s = seconds > 0 && seconds < 1e8 ? lround(seconds) : 0;

	if (s >= 3600)
		snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
	return text;
}
