/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=checkpoint_write: the file system takes two seconds for a checkpoint. With TEST_DIE task 0 dies there, with TEST_FULL it finds no space. */
#include "learn/checkpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int __real_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e);
int __wrap_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e);

int __wrap_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e)
{
	const char *task = getenv("SLURM_PROCID");

	if (getenv("TEST_FULL"))
		return fail(e, EXIT_INTERNAL, "%s: no space", path);
	if (!getenv("TEST_DIE"))
		sleep(2);
	else if (task && atoi(task) == 0)
		raise(SIGKILL);
	return __real_checkpoint_write(path, plan, values, notes, e);
}
