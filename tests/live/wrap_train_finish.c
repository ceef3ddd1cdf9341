/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=train_finish and --wrap=model_train: every task says which weights and running statistics its steps have left
 * it with. TEST_SPOIL=TASK: that one's first weight is moved by a thousandth on the way. TEST_STOP: then it is told to stop. */
#include "commands/train.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/hash.h"

int __real_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e);
int __wrap_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e);
int __real_train_finish(struct train *t, struct error *e);
int __wrap_train_finish(struct train *t, struct error *e);

int __wrap_model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e)
{
	static int made;
	const char *task = getenv("TEST_SPOIL");
	float weight;

	if (made++ == 5 && task && atoi(task) == m->world->at->rank && engine_get(m->engine, ENGINE_PARAMS, 0, &weight, 1) == 0) {
		weight *= 1.001f;
		engine_put(m->engine, ENGINE_PARAMS, 0, &weight, 1);
	}
	return __real_model_train(m, batch, micro, micros, lr, token, e);
}

static uint64_t add(uint64_t hash, struct model *m, enum engine_what array, size_t n)
{
	float *values = malloc(n * sizeof *values);

	if (!values || engine_get(m->engine, array, 0, values, n) < 0)
		abort();
	hash = hash_bytes(hash, values, n * sizeof *values);
	free(values);
	return hash;
}

int __wrap_train_finish(struct train *t, struct error *e)
{
	struct model *m = &t->model;
	uint64_t hash = add(0, m, ENGINE_PARAMS, m->plan.n_weights);

	hash = add(hash, m, ENGINE_RUNNING_MEAN, m->plan.n_bn_channels);
	hash = add(hash, m, ENGINE_RUNNING_VAR, m->plan.n_bn_channels);
	fprintf(stderr, "weights of rank %d: %016llx\n", m->world->at->rank, (unsigned long long)hash);
	if (getenv("TEST_STOP"))
		raise(SIGTERM);
	return __real_train_finish(t, e);
}
