/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=checkpoint_prune: task 0 dies when it has written the checkpoint of step 10. */
#include "learn/checkpoint.h"

#include <signal.h>
#include <stdlib.h>

void __real_checkpoint_prune(const char *directory, int keep, uint64_t step);
void __wrap_checkpoint_prune(const char *directory, int keep, uint64_t step);

void __wrap_checkpoint_prune(const char *directory, int keep, uint64_t step)
{
	const char *task = getenv("SLURM_PROCID");

	if (step == 10 && task && atoi(task) == 0)
		raise(SIGKILL);
	__real_checkpoint_prune(directory, keep, step);
}
