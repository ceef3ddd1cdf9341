/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=engine_forward and --wrap=engine_done: in the end it says how many batches the engine had at once, and how many
 * nobody has waited for. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

int __real_engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);
int __wrap_engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);
int __real_engine_done(struct engine *engine, uint64_t token, int wait);
int __wrap_engine_done(struct engine *engine, uint64_t token, int wait);

static int begun, most;

static void tell(void)
{
	fprintf(stderr, "at most %d batches at once, %d left\n", most, begun);
}

int __wrap_engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token)
{
	if (!most)
		atexit(tell);
	begun++;
	most = begun > most ? begun : most;
	return __real_engine_forward(engine, batch, logits, features, token);
}

int __wrap_engine_done(struct engine *engine, uint64_t token, int wait)
{
	begun -= wait;
	return __real_engine_done(engine, token, wait);
}
