/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=checkpoint_write: the file system takes two seconds for a checkpoint. */
#include "learn/checkpoint.h"

#include <unistd.h>

int __real_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e);
int __wrap_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e);

int __wrap_checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e)
{
	sleep(2);
	return __real_checkpoint_write(path, plan, values, notes, e);
}
