/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"

enum { LIVE_SECONDS = 1, LOG_SECONDS = 60 };

void progress_begin(struct progress *p, const char *what, size_t total)
{
	*p = (struct progress){ .what = what, .total = total, .begin = now(), .live = isatty(STDERR_FILENO) };
	p->next = p->live ? 0 : p->begin + LOG_SECONDS;
}

void progress_tell(struct progress *p, size_t done)
{
	char left[32];
	double time = now();

	if (!p->what || done == 0 || time < p->next)
		return;
	clock_text((time - p->begin) * (double)(p->total - done) / (double)done, left);
	fprintf(stderr, "%s%s: %zu of %zu images, %s left%s", p->live ? "\r\033[K" : "", p->what, done, p->total, left, p->live ? "" : "\n");
	fflush(stderr);
	p->shown = p->live;
	p->next = time + (p->live ? LIVE_SECONDS : LOG_SECONDS);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = 0;
}
