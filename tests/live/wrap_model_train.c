/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=model_train: task 2 dies when it has made 25 micro-batches, however fast they are. */
#include "learn/model.h"

#include <signal.h>
#include <stdlib.h>

int __real_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e);
int __wrap_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e);

int __wrap_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e)
{
	static int made;
	const char *task = getenv("SLURM_PROCID");

	if (made++ == 25 && task && atoi(task) == 2)
		raise(SIGKILL);
	return __real_model_train(m, batch, micro, micros, lr, token, e);
}
