/* SPDX-License-Identifier: Apache-2.0
 * How good the network is: validations on the way, the test split at the end. */
#include "commands/train.h"

#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

static int best_was_before(const struct train *t)
{
	return t->at.best_step != 0 && t->at.best_step != t->at.step;
}

/* One evaluation, told on stdout (the test split as a table, others as a line) and in the log; collective. ev is to be freed
 * by the caller. */
static int judge(struct train *t, const struct dataset *d, struct evaluation *ev, struct error *e)
{
	struct evaluation_conf conf = {
		.dataset = d, .trains = 1, .resamples = t->conf->resamples, .seed = t->at.seed, .stop = &train_stop,
		.leaked = checkpoint_leaked(&t->at, dataset_leak(d, t->train, NULL)), .leaky = t->at.leaky, .trained_on = t->at.trained_on,
		.untrained = t->at.untrained,
		.pos_weight = t->conf->pos_weight ? t->pos_weight : NULL,
		.decode_threads = train_decode_threads(t),
		.tell = d == t->test ? "chexnet train: test split" : "chexnet train: validation",
	};
	const uint64_t step = d == t->test && best_was_before(t) ? t->at.best_step : t->at.step; /* of the weights: the test split is scored with the best */
	double begin = now();

	log_end_live(&t->log);
	if (evaluate(ev, &t->model, &conf, e) < 0)
		return -e->code;
	train_leave_out(t, begin);
	if (ev->stopped)
		return 0;
	tell_events_evaluation(t, ev, d, (int64_t)step);
	cJSON *event = log_event(&t->log, "eval");

	json_number(event, "step", (double)step);
	evaluation_json(ev, &conf, event);
	log_write(&t->log, event);
	if (t->log.speaks && d == t->test)
		evaluation_print(ev, &conf, stdout);
	else
		tell_validation(t, ev);
	return 0;
}

static int keep_best(struct train *t, const struct evaluation *ev, struct error *e)
{
	char path[4200];
	double begin = now();

	if (!(ev->table.mean.value > t->at.best_auroc)) /* the same on all ranks */
		return 0;

	t->at.best_auroc = ev->table.mean.value;
	t->at.best_step = t->at.step;
	if (world_speaks(t->world)) {
		struct model_values weights = t->values;

		weights.moment1 = weights.moment2 = NULL;
		snprintf(path, sizeof path, "%s/best.safetensors.new", t->output);
		if (train_keep_output(t, e) == 0 && model_get(&t->model, &weights, e) == 0 && checkpoint_write(path, &t->model.plan, &weights, &t->at, e) < 0)
			train_keep_output(t, e);
	}
	world_agree(t->world, e);
	train_leave_out(t, begin);
	return -e->code;
}

/* What early stopping and the plateau rule go by. */
static void judge_progress(struct train *t, double loss)
{
	if (t->at.best_loss == 0 || loss < t->at.best_loss) {
		t->at.best_loss = loss;
		t->at.stale = 0;
		return;
	}
	t->at.stale++;
	if (t->schedule.decay != DECAY_PLATEAU || schedule_warms_up(&t->schedule, t->at.step))
		return;
	t->at.rate_factor = (t->at.rate_factor > 0 ? t->at.rate_factor : 1) / 10;
	t->schedule.factor = t->at.rate_factor;
	log_say(&t->log, "no lower %svalidation loss: the learning rate falls to %g", t->conf->pos_weight ? "weighted " : "", schedule_peak(&t->schedule) * t->schedule.factor);
}

int train_validate(struct train *t, struct error *e)
{
	const struct checkpoint_notes before = t->at;
	struct evaluation ev;
	double begin = now();
	int rc = judge(t, t->val, &ev, e);

	if (rc == 0 && ev.stopped) {
		rc = EXIT_RESUMABLE;
	} else if (rc == 0) {
		t->at.validated = t->at.step;
		judge_progress(t, ev.objective);
		rc = keep_best(t, &ev, e);
		if (rc < 0) /* a rank is lost, perhaps the one that wrote: the others do it again */
			t->at = before;
		t->val_seconds = now() - begin;
	}
	evaluation_free(&ev);
	return rc;
}

/* ---- the end ----------------------------------------------------------------------------------------- */

/* The weights that did best on the validation split, where there were several candidates. */
static int take_best(struct train *t, struct error *e)
{
	char path[4200];
	struct checkpoint *c = NULL;

	if (t->at.best_step == 0 && t->validates)
		log_say(&t->log, "no validation says which weights were best: the results are those of step %llu, the last", (unsigned long long)t->at.step);
	if (!best_was_before(t))
		return 0;
	struct model_values weights = t->values;

	weights.moment1 = weights.moment2 = NULL;
	if (world_speaks(t->world)) {
		snprintf(path, sizeof path, "%s/best.safetensors.new", t->output);
		if (checkpoint_holds_best(path, &t->at, e) == 0) /* where it cannot be read just now, the other file has older ones */
			snprintf(path, sizeof path, "%s/best.safetensors", t->output);
		if (!e->code && checkpoint_open(&c, path, NULL, NULL, e) == 0)
			checkpoint_load(c, &t->model.plan, &weights, NULL, e);
		checkpoint_close(c);
	}
	if (world_agree(t->world, e) < 0 || model_share(&t->model, 0, &weights, e) < 0)
		return -e->code;
	log_say(&t->log, "takes the weights of step %llu, the best on the validation split (mean AUROC %.4f)", (unsigned long long)t->at.best_step,
		t->at.best_auroc);
	model_put(&t->model, &weights, e);
	return world_agree(t->world, e);
}

static int write_model(struct train *t, struct error *e)
{
	char path[4200];

	if (world_speaks(t->world)) {
		struct model_values weights = t->values;
		struct checkpoint_notes notes = t->at;

		weights.moment1 = weights.moment2 = NULL;
		if (best_was_before(t))
			notes.step = t->at.best_step;
		snprintf(path, sizeof path, "%s/model.safetensors", t->output);
		if (train_keep_output(t, e) == 0 && model_get(&t->model, &weights, e) == 0 && checkpoint_write(path, &t->model.plan, &weights, &notes, e) == 0) {
			model_values_hash(t->weights_hash, &weights, &t->model.plan);
			log_say(&t->log, "model %s", path);
		} else {
			train_keep_output(t, e);
		}
	}
	return world_agree(t->world, e);
}

static int write_predictions(struct train *t, const struct evaluation *ev, struct error *e)
{
	char path[4200];
	struct provenance about = { 0 };

	if (world_speaks(t->world)) {
		snprintf(about.model, sizeof about.model, "%s", t->model.plan.model);
		snprintf(about.checkpoint, sizeof about.checkpoint, "%.900s/model.safetensors", t->output);
		snprintf(about.weights_hash, sizeof about.weights_hash, "%s", t->weights_hash);
		snprintf(about.command, sizeof about.command, "%s", t->conf->command);
		snprintf(about.trained_on, sizeof about.trained_on, "%s", t->at.trained_on);
		snprintf(about.pos_weight, sizeof about.pos_weight, "%s", t->conf->pos_weight ? t->at.pos_weight : "");
		about.leaked = checkpoint_leaked(&t->at, dataset_leak(t->test, t->train, NULL));
		about.leaky = t->at.leaky;
		snprintf(path, sizeof path, "%s/test.csv", t->output);
		if (train_keep_output(t, e) == 0 && evaluation_write(ev, t->test, path, about, e) == 0)
			log_say(&t->log, "\npredictions of the test split: %s", path);
		else
			train_keep_output(t, e);
	}
	return world_agree(t->world, e);
}

int train_finish(struct train *t, struct error *e)
{
	struct evaluation ev = { 0 };
	int rc = 0;

	if (take_best(t, e) < 0 || write_model(t, e) < 0)
		return -e->code;
	if (t->test && dataset_count(t->test) > 0)
		rc = judge(t, t->test, &ev, e);
	if (rc == 0 && ev.stopped) {
		log_say(&t->log, "stopped before the test split was scored: %s does it", t->conf->goes_on ? "the same command" : "--resume=auto");
		rc = EXIT_RESUMABLE;
	} else if (rc == 0 && ev.n) {
		rc = write_predictions(t, &ev, e);
	}
	evaluation_free(&ev);
	return rc;
}
