/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=engine_forward, --wrap=engine_done and --wrap=loader_open: in the end it says how many batches the engine
 * had at once, how many nobody has waited for, and how many threads decoded where they were fewest. */
#include "data/loader.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

int __real_engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);
int __wrap_engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);
int __real_engine_done(struct engine *engine, uint64_t token, int wait);
int __wrap_engine_done(struct engine *engine, uint64_t token, int wait);

int __real_loader_open(struct loader **loader, const struct loader_conf *conf, struct error *e);
int __wrap_loader_open(struct loader **loader, const struct loader_conf *conf, struct error *e);

static int begun, most, threads = 999;

static void tell(void)
{
	fprintf(stderr, "at most %d batches at once, %d left, decoded by %d threads\n", most, begun, threads);
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

int __wrap_loader_open(struct loader **loader, const struct loader_conf *conf, struct error *e)
{
	threads = conf->threads < threads ? conf->threads : threads;
	return __real_loader_open(loader, conf, e);
}
