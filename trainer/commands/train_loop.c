/* SPDX-License-Identifier: Apache-2.0
 * Steps, and what happens between them. Every rank makes the same collective calls in the same order; what one rank alone
 * knows (a bad image, a signal, the clock) travels with the gradients and is acted on by all after the same step. */
#include "commands/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "utf8.h"

/* ---- one step ---------------------------------------------------------------------------------------- */

enum { IN_FLIGHT = TRAIN_SLOTS - 1, FETCH_STEPS = 30 };

/* Micro-batches that the engine may still be reading, oldest first. */
struct flight {
	int n, slot[IN_FLIGHT];
	uint64_t token[IN_FLIGHT];
};

static int land(struct train *t, struct flight *f, int keep, struct error *e)
{
	while (f->n > 0) {
		int done = engine_done(t->model.engine, f->token[0], f->n > keep);

		if (done < 0)
			return model_fail(&t->model, e);
		if (!done)
			break;
		loader_release(t->loader, f->slot[0]);
		f->n--;
		memmove(f->slot, f->slot + 1, (size_t)f->n * sizeof f->slot[0]);
		memmove(f->token, f->token + 1, (size_t)f->n * sizeof f->token[0]);
	}
	return 0;
}

static void __attribute__((noreturn)) abandon(struct train *t, const struct error *e)
{
	fprintf(stderr, "chexnet train: rank %d on %s: %s\n", t->world->at->rank, hvd_host(t->world->hvd, t->world->at->rank), e->text);
	tell_end(t, e->code, e->text);
	_exit(e->code);
}

/* Other ranks are in the middle of a step with this one: unless the step failed because one of them is gone, it can only leave,
 * and they will say whom they lost. */
static void leave_unless_lost(struct train *t, const struct error *e)
{
	if (hvd_lost(t->world->hvd) < 0)
		abandon(t, e);
}

/* Takes part in the rest of a step whose images cannot be read, so that all ranks hear of the error at its end. */
static void feed_blanks(struct train *t, int micro, double lr, const struct error *cause)
{
	int size = dataset_image_size(t->train), batch = t->conf->batch;
	uint8_t *pixels = calloc((size_t)batch * (size_t)size * (size_t)size, 1);
	uint32_t *labels = calloc((size_t)batch, sizeof *labels);
	struct engine_batch blank = { .count = batch, .pixels = pixels, .labels = labels };
	struct error e = { 0 };
	uint64_t token;

	if (!pixels || !labels)
		abandon(t, cause);
	t->model.own[SIGNAL_ERROR] = 1;
	for (; micro < t->conf->accumulate; micro++)
		if (model_train(&t->model, &blank, micro, t->conf->accumulate, lr, &token, &e) < 0 || engine_done(t->model.engine, token, 1) < 0)
			abandon(t, cause);
	free(pixels);
	free(labels);
}

static int due(uint64_t step, int every, uint64_t epoch_steps)
{
	return step % (every ? (uint64_t)every : epoch_steps) == 0;
}

/* Whether weights may be saved after the step that has just been made. */
static int save_follows(const struct train *t)
{
	uint64_t step = t->at.step + 1, epoch = train_epoch_steps(t);

	return step == t->schedule.steps || t->model.heard[SIGNAL_STOP] > 0 || due(step, t->conf->checkpoint_every, epoch) ||
	       (t->val && due(step, t->conf->eval_every, epoch));
}

/* Reading the loss makes a GPU wait for its step, so that is done now and then, and before weights are saved, which have to be sound; all
 * ranks do it in the same steps. */
static int fetch_loss(struct train *t, struct error *e)
{
	int every = t->conf->fetch_every ? t->conf->fetch_every : t->model.kind == ENGINE_CUDA ? FETCH_STEPS : 1;

	t->loss_fetched = (t->at.step + 1) % (uint64_t)every == 0 || t->at.step == t->first_step || save_follows(t);
	if (t->loss_fetched && (engine_loss(t->model.engine, &t->loss) < 0 || model_get_steps(&t->model, &t->at, e) < 0)) {
		model_fail(&t->model, e);
		abandon(t, e);
	}
	if (t->loss_fetched) /* the engine divides by all labels; the validation loss, beside which this one is told, by those that are judged */
		t->loss /= t->known;
	return 0;
}

/* hashes: [accumulate] of this rank's micro-batches. An error here is this rank's own. */
static int feed_step(struct train *t, struct flight *f, uint64_t *hashes, struct error *e)
{
	const int micros = t->conf->accumulate;
	double lr = schedule_rate(&t->schedule, t->at.step);

	t->rate = lr;
	for (int micro = 0; micro < micros; micro++) {
		struct loader_batch b;
		double waited;

		if (land(t, f, IN_FLIGHT - 1, e) < 0)
			abandon(t, e);
		double mark = hvd_mark(t->world->hvd, NULL, 0);
		int more = loader_next(t->loader, &b, &waited, e);

		mark = hvd_mark(t->world->hvd, "input", mark);
		if (more != 1) {
			if (more == 0)
				fail(e, EXIT_INTERNAL, "the stream of images ended");
			feed_blanks(t, micro, lr, e);
			return -e->code;
		}
		t->step_input += waited;
		b.batch.kept = t->conf->resident ? b.sample : NULL;
		hashes[micro] = b.hash;
		if (model_train(&t->model, &b.batch, micro, micros, lr, &f->token[f->n], e) < 0) {
			leave_unless_lost(t, e);
			return -e->code;
		}
		hvd_mark(t->world->hvd, "micro-batch", mark);
		f->slot[f->n++] = b.slot;
	}
	return fetch_loss(t, e);
}

static int check_loss(struct train *t, struct error *e)
{
	uint64_t batch = (uint64_t)t->at.global_batch, next = t->at.position + batch;

	if (!t->loss_fetched)
		return 0;
	if (isfinite(t->loss)) {
		t->sound = next;
		return 0;
	}
	if (t->at.step != t->first_step && t->sound < t->at.position)
		return fail(e, EXIT_INTERNAL, "step %llu: the loss is not a number, which it was %llu steps before (images at positions %llu to %llu since then): lower "
			    "the learning rate, or --fetch-every=1 names the step", (unsigned long long)t->at.step, (unsigned long long)((next - t->sound) / batch),
			    (unsigned long long)t->sound, (unsigned long long)next - 1);
	uint64_t first = loader_sample(t->loader, t->at.position);

	return fail(e, EXIT_INTERNAL, "step %llu: the loss is not a number (images at positions %llu to %llu, the first is %s): lower the learning rate, "
		    "or look at these images", (unsigned long long)t->at.step, (unsigned long long)t->at.position,
		    (unsigned long long)next - 1, dataset_samples(t->train)[first].id);
}

/* With --log-hash rank 0 gets the hashes of all micro-batches, in the order of their positions. */
static int gather_hashes(struct train *t, const uint64_t *own, uint64_t *all, struct error *e)
{
	if (!t->conf->log_hash)
		return 0;
	if (hvd_allgather(t->world->hvd, own, all, (size_t)t->conf->accumulate, HVD_U64) < 0)
		return world_fail(t->world, e);
	return 0;
}

static void count_step(struct train *t)
{
	t->at.position += (uint64_t)t->at.global_batch;
	__atomic_store_n(&t->at.step, t->at.step + 1, __ATOMIC_RELAXED); /* the watching thread may tell it */
}

/* A step in which the job was suspended takes as long as the one before: the rest is nobody's waiting, and no cure shortens it. */
static void leave_out_suspension(struct train *t, double last)
{
	double rest = t->step_seconds - last;

	if (!train_was_suspended() || last <= 0 || rest <= 0)
		return;
	t->step_seconds = last;
	t->step_input = fmax(0, t->step_input - rest);
	t->model.exposed = fmax(0, t->model.exposed - rest);
	t->recent.begin += rest;
	t->total.begin += rest;
}

static int one_step(struct train *t, struct flight *f, uint64_t *own, uint64_t *all, struct error *e)
{
	int micros = t->conf->accumulate;
	double begin = now(), last = t->step_seconds;

	t->step_input = 0;
	feed_step(t, f, own, e);
	t->step_seconds = now() - begin;
	leave_out_suspension(t, last);
	t->total.input += t->step_input;
	t->recent.input += t->step_input;
	t->total.exposed += t->model.exposed;
	t->recent.exposed += t->model.exposed;
	if (t->model.heard[SIGNAL_ERROR] > 0 || e->code)
		return world_agree(t->world, e);
	if (check_loss(t, e) < 0) /* the mean over all ranks: all come here together */
		return world_agree(t->world, e);
	if (gather_hashes(t, own, all, e) < 0) {
		count_step(t); /* the weights have it already: survivors are not to make it again */
		return -e->code;
	}
	t->total.images += (uint64_t)t->at.global_batch;
	t->recent.images += (uint64_t)t->at.global_batch;
	t->images_per_s = (double)t->recent.images / (now() - t->recent.begin);
	tell_step(t, all, micros * t->world->at->size);
	tell_events_step(t);
	count_step(t);
	return 0;
}

/* ---- between steps ----------------------------------------------------------------------------------- */

/* A training that went back to an earlier checkpoint is not to be resumed from what it left, once it has one of its own. */
static int write_checkpoint(struct train *t, const char *path, struct error *e)
{
	char new[FILE_PATH];
	struct checkpoint_left left;

	if (train_keep_output(t, e) < 0 || model_get(&t->model, &t->values, e) < 0 || model_get_steps(&t->model, &t->at, e) < 0)
		return -e->code;
	if (!train_leaves_later(t))
		return checkpoint_write(path, &t->model.plan, &t->values, &t->at, e) < 0 ? -e->code : checkpoint_take_best(t->output, &t->at, e);
	if (checkpoint_new_path(new, t->output, t->at.step, t->first_step, e) < 0 || checkpoint_write(new, &t->model.plan, &t->values, &t->at, e) < 0 ||
	    checkpoint_take_over(t->output, &left, e) < 0)
		return -e->code;
	tell_left(t, &left);
	return 0;
}

/* Collective: rank 0 writes the state to OUTPUT/checkpoint-STEP.safetensors. */
static int save(struct train *t, struct error *e)
{
	char path[4200];
	double mark = hvd_mark(t->world->hvd, NULL, 0), begin = now();

	if (world_speaks(t->world)) {
		checkpoint_path(path, sizeof path, t->output, t->at.step);
		if (write_checkpoint(t, path, e) == 0) {
			cJSON *event = log_event(&t->log, "checkpoint");

			t->saved = t->at.step; /* also where another rank is lost before it hears of it, and all save once more */
			checkpoint_prune(t->output, t->conf->keep, t->at.step);
			json_number(event, "step", (double)t->at.step);
			json_number(event, "position", (double)t->at.position);
			json_number(event, "seconds", now() - begin);
			if (event)
				cJSON_AddStringToObject(event, "path", path);
			log_write(&t->log, event);
			log_check(&t->log);
		} else {
			train_keep_output(t, e);
		}
	}
	if (world_agree(t->world, e) < 0) /* here the others wait for the one that writes */
		return -e->code;
	hvd_mark(t->world->hvd, "checkpoint", mark);
	train_leave_out(t, begin);
	t->saved = t->at.step;
	return 0;
}

static int validation_due(const struct train *t)
{
	int last = t->at.step == t->schedule.steps;

	return t->validates && t->at.step > 0 && t->at.validated != t->at.step &&
	       (last || due(t->at.step, t->conf->eval_every, train_epoch_steps(t)));
}

/* What this rank says with the next step's gradients. The clock is rank 0's. */
static void raise_signals(struct train *t, double begin)
{
	int late = world_speaks(t->world) && t->conf->max_seconds > 0 && now() - begin > t->conf->max_seconds;

	t->model.own[SIGNAL_STOP] = train_stop || late;
}

static int stop_early(struct train *t, struct error *e)
{
	t->stage = TRAIN_STOPPING;
	if (save(t, e) < 0)
		return -e->code;
	t->stage = TRAIN_STOPPED;
	char output[sizeof t->output + 64];

	utf8_append_word(output, sizeof output, 0, t->output);
	log_say(&t->log, "stopped at step %llu of %llu, all saved: the same command%s%s%s goes on", (unsigned long long)t->at.step, (unsigned long long)t->schedule.steps,
		t->conf->goes_on ? "" : " with --output=", t->conf->goes_on ? "" : output, t->conf->goes_on ? "" : " --resume=auto");
	return EXIT_RESUMABLE;
}

/* Validation and checkpoints that fall due after a step. Return values as step_and_after(). */
static int after_step(struct train *t, struct error *e)
{
	double mark = hvd_mark(t->world->hvd, NULL, 0);
	int judged = validation_due(t), rc = judged ? train_validate(t, e) : 0;

	if (judged)
		hvd_mark(t->world->hvd, "validation", mark);
	if (rc > 0)
		return stop_early(t, e);
	if (rc == 0 && t->at.step > 0 && (train_is_over(t) || due(t->at.step, t->conf->checkpoint_every, train_epoch_steps(t))))
		rc = save(t, e);
	return rc;
}

/* What was not done by all when a rank was lost. Return values as step_and_after(). */
static int catch_up(struct train *t, struct error *e)
{
	switch ((enum train_stage)t->stage) {
	case TRAIN_STEPS:
		return after_step(t, e);
	case TRAIN_STOPPING:
		return stop_early(t, e);
	case TRAIN_STOPPED:
		return EXIT_RESUMABLE;
	case TRAIN_MADE:
		return 0;
	}
	return 0;
}

/* 0, EXIT_RESUMABLE, or negative. */
static int step_and_after(struct train *t, struct flight *f, uint64_t *own, uint64_t *all, struct error *e)
{
	if (one_step(t, f, own, all, e) < 0)
		return -e->code;
	int stop = t->model.heard[SIGNAL_STOP] > 0 && t->at.step < t->schedule.steps;

	tell_progress(t);
	return stop ? stop_early(t, e) : after_step(t, e);
}

static int all_steps(struct train *t, uint64_t *own, uint64_t *all, struct error *e)
{
	struct flight flight = { 0 };
	double begin = now();
	int rc = validation_due(t) ? after_step(t, e) : 0; /* of a resumed run that stopped before it, or in it */

	while (rc < 0 || (rc == 0 && !train_is_over(t))) {
		if (rc < 0) {
			flight.n = 0; /* its memory goes with the loader */
			if (train_recover(t, e) < 0)
				return -e->code;
			rc = catch_up(t, e);
		} else {
			raise_signals(t, begin);
			rc = step_and_after(t, &flight, own, all, e);
		}
	}
	if (rc > 0)
		return rc;
	t->stage = TRAIN_MADE;
	if (train_out_of_patience(t))
		log_say(&t->log, "%d validation%s without a lower %sloss: training ends here (--patience)", t->at.stale, t->at.stale == 1 ? "" : "s",
			t->conf->pos_weight ? "weighted " : "");
	return land(t, &flight, 0, e);
}

int train_steps(struct train *t, struct error *e)
{
	size_t micros = (size_t)t->conf->accumulate;
	uint64_t *own = calloc(micros, sizeof *own), *all = calloc(micros * (size_t)t->world->at->size, sizeof *all);
	int rc;

	t->total.begin = t->recent.begin = now();
	if (t->gpu)
		gpu_meter_start(t->gpu);
	rc = own && all ? all_steps(t, own, all, e) : fail(e, EXIT_INTERNAL, "no memory");
	free(own);
	free(all);
	return rc;
}
