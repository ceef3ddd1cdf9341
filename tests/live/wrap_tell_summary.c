/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=tell_summary: task 1 dies when all steps are made, or the training has been saved and stops. */
#include "commands/train.h"

#include <signal.h>
#include <stdlib.h>

int __real_tell_summary(struct train *t, struct error *e);
int __wrap_tell_summary(struct train *t, struct error *e);

int __wrap_tell_summary(struct train *t, struct error *e)
{
	const char *task = getenv("SLURM_PROCID");

	if (task && atoi(task) == 1)
		raise(SIGKILL);
	return __real_tell_summary(t, e);
}
