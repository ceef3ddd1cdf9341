/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=hvd_allgather: task 2 dies as it would give the hashes of its tenth step, which has changed the weights already.
 * They are those of three micro-batches, a number that nothing else of a training gathers. */
#include "learn/world.h"

#include <signal.h>
#include <stdlib.h>

int __real_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);

int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	static int steps;
	const char *task = getenv("SLURM_PROCID");

	if (n == 3 && type == HVD_U64 && ++steps == 10 && task && atoi(task) == 2)
		raise(SIGKILL);
	return __real_hvd_allgather(h, in, out, n, type);
}
