/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=engine_loss: the engine fails where its loss is read for the third time. */
#include "engine/engine.h"

int __real_engine_loss(struct engine *engine, double *loss);
int __wrap_engine_loss(struct engine *engine, double *loss);

int __wrap_engine_loss(struct engine *engine, double *loss)
{
	static int read;

	return ++read == 3 ? -1 : __real_engine_loss(engine, loss);
}
