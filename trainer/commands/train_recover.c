/* SPDX-License-Identifier: Apache-2.0
 * Going on without a rank that died. */
#include "commands/train.h"

#include <inttypes.h>
#include <stdlib.h>

/* Survivors may be one step apart: the first of those that got furthest has the state that all take. They may also differ in whether the last
 * save was everybody's: where one knows that it was, it was. */
static int find_furthest(struct train *t, int *root, uint64_t *stage, struct error *e)
{
	struct {
		uint64_t step, stage;
	} own = { t->at.step, t->stage }, *all = calloc((size_t)t->world->at->size, sizeof *all);

	*root = 0;
	*stage = t->stage;
	if (!all)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (hvd_allgather(t->world->hvd, &own, all, 2, HVD_U64) < 0)
		world_fail(t->world, e);
	for (int r = 0; r < t->world->at->size; r++) {
		if (all[r].step > all[*root].step)
			*root = r;
		if (all[r].stage > *stage)
			*stage = all[r].stage;
	}
	free(all);
	return e->code ? -e->code : 0;
}

/* Another rank may be lost on the way: this one is where it was until it holds all of the new state, so that the next round finds
 * steps that go with their parameters. */
static int share_state(struct train *t, struct error *e)
{
	struct checkpoint_notes at = t->at;
	uint64_t stage;
	int root;

	if (find_furthest(t, &root, &stage, e) < 0 || model_get_steps(&t->model, &at, e) < 0)
		return -e->code;
	if (hvd_broadcast(t->world->hvd, &at, sizeof at, HVD_U8, root) < 0)
		return world_fail(t->world, e);
	if (model_get(&t->model, &t->values, e) < 0 || model_share(&t->model, root, &t->values, e) < 0 || model_put(&t->model, &t->values, e) < 0)
		return -e->code;
	t->at = at;
	t->stage = stage;
	return model_put_steps(&t->model, &t->at, e);
}

/* Rank 0 may be another process now. A log that only the lost one could write, as into a pipe of its node, is not worth the training. */
static void move_logs(struct train *t)
{
	if (!world_speaks(t->world) || t->log.speaks)
		return;
	struct error claim = { 0 }, logs = { 0 };

	log_open(&t->log, 1);
	if (train_claim_output(t, &claim) < 0) /* the lost rank may only be stopped, or a file server keep its lock for a while */
		log_say(&t->log, "%s", claim.text);
	if (train_open_logs(t, &logs) < 0)
		log_say(&t->log, "%s: the training goes on without it", logs.text);
}

static void tell(struct train *t, const char *lost)
{
	cJSON *event = log_event(&t->log, "recovered");
	int size = t->world->at->size;

	log_say(&t->log, "%s", lost);
	log_say(&t->log, "%d rank%s go%s on at step %" PRIu64 ", position %" PRIu64 ", global batch %d, learning rate up to %g", size, size == 1 ? "" : "s",
		size == 1 ? "es" : "", t->at.step, t->at.position, t->at.global_batch, schedule_peak(&t->schedule));
	json_number(event, "ranks", size);
	json_number(event, "step", (double)t->at.step);
	json_number(event, "position", (double)t->at.position);
	json_number(event, "global_batch", t->at.global_batch);
	if (event)
		cJSON_AddStringToObject(event, "reason", lost);
	log_write(&t->log, event);
}

/* Survivors keep their micro-batch, so the global batch shrinks; the stream goes on from the shared position. */
static int go_on(struct train *t, struct error *e)
{
	loader_close(t->loader);
	t->loader = NULL;
	if (share_state(t, e) < 0)
		return -e->code;
	t->at.global_batch = t->conf->batch * t->conf->accumulate * t->world->at->size;
	train_set_schedule(t);
	for (int s = 0; s < SIGNALS; s++)
		t->model.own[s] = t->model.heard[s] = 0;
	move_logs(t);
	return train_open_loader(t, e);
}

/* A GPU may be a step behind what it was given when the loss stopped it, or have made one that this rank counts as failed: steps and
 * position become those of its weights. Its graphs go while the communicator that they name is still there. */
static int settle(struct train *t)
{
	uint64_t step = t->at.step;
	struct error e = { 0 };

	if (!t->world->continues || hvd_lost(t->world->hvd) < 0)
		return 0;
	if (model_settle(&t->model, &step, &e) < 0) {
		log_say(&t->log, "%s", e.text);
		return -1;
	}
	t->at.position += (step - t->at.step) * (uint64_t)t->at.global_batch;
	t->at.step = step;
	return 0;
}

int train_recover(struct train *t, struct error *e)
{
	char lost[512];

	if (settle(t) < 0)
		return -e->code;
	while (world_recover(t->world, lost, e)) {
		if (go_on(t, e) == 0) {
			tell(t, lost);
			return 0;
		}
	}
	return -e->code;
}
