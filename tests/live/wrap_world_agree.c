/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=world_agree and --wrap=hvd_mark: task 2 dies in the first agreement after the mark TEST_MARK, that of a
 * save. Its word came to task 0, which knows that all is saved, and not to task 1; with TEST_UNHEARD to neither. */
#include "learn/world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum { BEFORE, NOW, AFTER } when;

double __real_hvd_mark(struct hvd *h, const char *name, double since);
double __wrap_hvd_mark(struct hvd *h, const char *name, double since);
int __real_world_agree(struct world *w, struct error *e);
int __wrap_world_agree(struct world *w, struct error *e);

double __wrap_hvd_mark(struct hvd *h, const char *name, double since)
{
	const char *mark = getenv("TEST_MARK");

	if (when == BEFORE && name && mark && strcmp(name, mark) == 0)
		when = NOW;
	return __real_hvd_mark(h, name, since);
}

int __wrap_world_agree(struct world *w, struct error *e)
{
	const char *task = getenv("SLURM_PROCID");

	if (when != NOW || !task)
		return __real_world_agree(w, e);
	when = AFTER;
	if (atoi(task) == 2)
		raise(SIGKILL);
	if (atoi(task) == 1 || getenv("TEST_UNHEARD"))
		return __real_world_agree(w, e);
	while (hvd_lost(w->hvd) < 0)
		usleep(1000);
	return 0;
}
