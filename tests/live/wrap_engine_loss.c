/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=engine_loss: the engine fails where its loss is read for the third time; in a step of several tasks, task 1's. */
#include "engine/engine.h"

#include <stdlib.h>

int __real_engine_loss(struct engine *engine, double *loss);
int __wrap_engine_loss(struct engine *engine, double *loss);

int __wrap_engine_loss(struct engine *engine, double *loss)
{
	static int read;
	const char *task = getenv("SLURM_PROCID");

	return ++read == 3 && (!task || atoi(task) == 1) ? -1 : __real_engine_loss(engine, loss);
}
