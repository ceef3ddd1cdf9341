/* SPDX-License-Identifier: Apache-2.0
 * From options to the first step. */
#include "commands/train.h"
#include "commands/train_resident.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/label_mask.h"
#include "data/window.h"
#include "memory_available.h"
#include "utf8.h"

/* ---- data -------------------------------------------------------------------------------------------- */

static int open_datasets(struct train *t, struct error *e)
{
	const char *directory = t->conf->data;

	if (dataset_open(&t->train, directory, "train", e) < 0)
		return -e->code;
	if (dataset_has(directory, "val", e) > 0)
		dataset_open(&t->val, directory, "val", e);
	if (dataset_has(directory, "test", e) > 0)
		dataset_open(&t->test, directory, "test", e);
	if (e->code)
		return -e->code;
	if (dataset_count(t->train) == 0)
		return fail(e, EXIT_DATA, "%s: its train split is empty", directory ? directory : "the built-in data");
	return 0;
}

static int check_leak(struct train *t, const struct dataset *a, const struct dataset *b, struct error *e)
{
	uint32_t example;
	size_t shared = a && b ? dataset_leak(a, b, &example) : 0;

	if (!shared)
		return 0;
	t->leak = 1;
	if (t->conf->allow_leak)
		return 0;
	return fail(e, EXIT_DATA, "%zu patient%s both in %s and in %s (the first: %u), so results would flatter the network: divide the data by "
		    "patient, or --allow-leak to train all the same and stamp every result", shared, shared == 1 ? " is" : "s are", dataset_split(a), dataset_split(b), example);
}

/* Findings of which no image's label is known. */
static uint32_t without_labels(const struct dataset *d)
{
	return ALL_FINDINGS & ~dataset_labelled(d, 1) & ~dataset_labelled(d, 0);
}

/* Validations decide more than when to save: what was asked of them is not left undone without a word. */
static int check_validation(struct train *t, struct error *e)
{
	const char *data = t->conf->data ? t->conf->data : "the built-in data";
	const int unknown = t->val && dataset_count(t->val);
	const char *lacks = !unknown ? "has no val images" : train_untaught(t) ? "no val label of what is learnt is known" : "no val label is known";
	const char *cure = unknown && t->conf->mask ? "leave --mask out" : "prepare it with some";

	if (t->validates)
		return 0;
	if (t->conf->patience)
		return fail(e, EXIT_USAGE, "--patience=%d counts validations, and %s%s %s: %s, or --patience=0", t->conf->patience, unknown ? "of " : "", data, lacks, cure);
	if (t->conf->decay == DECAY_PLATEAU)
		return fail(e, EXIT_USAGE, "--decay=plateau goes by the validation loss, and %s%s %s: %s, or take another --decay", unknown ? "of " : "", data, lacks, cure);
	return 0;
}

/* Makes labels unknown before anybody counts them. */
static int mask_labels(struct train *t, struct error *e)
{
	struct dataset *const sets[] = { t->train, t->val, t->test };
	struct label_mask mask;
	size_t labels = 0, unused;
	char what[170]; /* all findings fit; of a longer path the end is cut off, and seen to be */
	int used;

	snprintf(t->mask, sizeof t->mask, "none");
	if (!t->conf->mask)
		return 0;
	if (label_mask_read(&mask, t->conf->mask, e))
		return -e->code;
	utf8_append(what, sizeof what, 0, t->conf->mask);
	used = snprintf(t->masked, sizeof t->masked, "labels that are left out (--mask=%s):", what);
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
		size_t n = sets[i] ? label_mask_apply(&mask, sets[i]) : 0;

		labels += n;
		if (sets[i])
			used += snprintf(t->masked + used, sizeof t->masked - (size_t)used, "%s %s %zu", i ? "," : "", dataset_split(sets[i]), n);
	}
	unused = label_mask_unused(&mask);
	if (unused)
		snprintf(t->masked + used, sizeof t->masked - (size_t)used, "; %zu row%s image%s of no split", unused, unused == 1 ? " names an" : "s name",
			 unused == 1 ? "" : "s");
	t->mask_hash = mask.hash;
	snprintf(t->mask, sizeof t->mask, "%016llx", (unsigned long long)mask.hash);
	label_mask_free(&mask);
	return labels ? 0 : fail(e, EXIT_DATA, "--mask=%s: none of its labels is in the data", t->conf->mask);
}

static int check_labels(const struct train *t, struct error *e)
{
	if (without_labels(t->train) != ALL_FINDINGS)
		return 0;
	return fail(e, EXIT_DATA, "%s: no label of its train split is known%s: there is nothing to learn: %s", t->conf->data ? t->conf->data : "the built-in data",
		    t->conf->mask ? " but what --mask leaves out" : "", t->conf->mask ? "leave --mask out, or let it keep some" : "prepare it with some");
}

/* What the weights learned from: these images, and before them those of the training that they come from. */
static void note_source(struct train *t, const struct train_start *s)
{
	const char *before = s->from_file ? s->notes.trained_on : "", *now = dataset_source(t->train);
	size_t n = strlen(before), tail = strlen(now);
	const int room = (int)(sizeof t->at.trained_on - tail - sizeof ", then ");

	if (n >= tail && strcmp(before + n - tail, now) == 0)
		snprintf(t->at.trained_on, sizeof t->at.trained_on, "%s", before);
	else
		snprintf(t->at.trained_on, sizeof t->at.trained_on, "%.*s%s%s", room, before, n ? ", then " : "", now);
}

/* What the network is not taught is not judged either, as eval does not. */
static void leave_out_untrained(struct train *t)
{
	struct label_mask mask = { .findings = train_untaught(t) };

	if (mask.findings && t->val)
		label_mask_apply(&mask, t->val);
	if (mask.findings && t->test)
		label_mask_apply(&mask, t->test);
}

/* Decides which splits are decoded once and kept, and puts it into words. */
static void keep_in_memory(struct train *t)
{
	struct dataset *const sets[] = { t->train, t->val, t->test };
	size_t limit = (size_t)t->conf->data_memory << 20, left;
	int used;

	if (t->conf->data_memory < 0)
		limit = memory_available(0, t->world->at->local_size) / 4;
	left = limit;
	used = snprintf(t->memory, sizeof t->memory, "decoded images: at most %.0f MiB a rank (--data-memory)", (double)limit / 1048576);
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
		size_t bytes = sets[i] ? dataset_keep_bytes(sets[i]) : 0;
		if (!sets[i] || !dataset_count(sets[i]))
			continue;
		used += snprintf(t->memory + used, sizeof t->memory - (size_t)used, "; %s ", dataset_split(sets[i]));
		if (!bytes)
			used += snprintf(t->memory + used, sizeof t->memory - (size_t)used, "is read as it is");
		else if (dataset_keep(sets[i], left))
			used += snprintf(t->memory + used, sizeof t->memory - (size_t)used, "decoded once, %.0f MiB", (double)bytes / 1048576);
		else
			used += snprintf(t->memory + used, sizeof t->memory - (size_t)used, "decoded in every pass (%.0f MiB)", (double)bytes / 1048576);
		left -= bytes && bytes <= left ? bytes : 0;
	}
}

static int setup_data(struct train *t, struct error *e)
{
	if (open_datasets(t, e) == 0 && check_leak(t, t->train, t->val, e) == 0 && check_leak(t, t->train, t->test, e) == 0)
		check_leak(t, t->val, t->test, e);
	if (!e->code && mask_labels(t, e) == 0 && check_labels(t, e) == 0) {
		leave_out_untrained(t);
		t->validates = t->val && without_labels(t->val) != ALL_FINDINGS;
		check_validation(t, e);
	}
	if (world_agree(t->world, e) < 0)
		return -e->code;
	keep_in_memory(t);
	uint64_t hash = dataset_pixel_hash(t->train) ^ (t->val ? 3 * dataset_pixel_hash(t->val) : 0) ^ (t->test ? 5 * dataset_pixel_hash(t->test) : 0);

	return world_same(t->world, hash ^ 7 * t->mask_hash, "the data set", "give every node the same --data, prepared with the same --format, and the same --mask", e);
}

/* ---- model ------------------------------------------------------------------------------------------- */

/* A finding without positives (or with a handful) must not outweigh all others. */
enum { MOST_WEIGHT = 100 };

static void weigh_positives(struct train *t)
{
	double prevalence[FINDINGS];

	dataset_prevalence(t->train, prevalence);
	for (int f = 0; f < FINDINGS; f++) {
		double weight = prevalence[f] > 0 ? (1 - prevalence[f]) / prevalence[f] : MOST_WEIGHT;

		t->pos_weight[f] = (float)(weight < MOST_WEIGHT ? weight : MOST_WEIGHT);
	}
}

static int settle_sizes(struct train *t, const struct train_start *s, struct error *e)
{
	int source = dataset_image_size(t->train);
	enum engine_kind kind;

	if (!t->network.image_size && model_choose_engine(t->world, (enum engine_choice)t->conf->engine.engine, &kind, e) == 0)
		t->network.image_size = default_image_size(&t->network, source, kind == ENGINE_CUDA);
	if (t->network.image_size > source)
		fail(e, EXIT_USAGE, "--image-size=%d: the prepared images have %d pixels a side; prepare larger ones", t->network.image_size, source);
	if (world_agree(t->world, e) < 0)
		return -e->code;
	return train_settle_batch(t, s->resume ? s->notes.batch : 0, e);
}

/* Steps without an overflow until a dynamic loss scale is doubled: PyTorch's number. */
enum { SCALE_PATIENCE = 2000 };

static int open_model(struct train *t, struct error *e)
{
	const struct train_conf *conf = t->conf;

	struct model_conf mc = {
		.network = t->network,
		.engine = (enum engine_choice)conf->engine.engine,
		.precision = (enum precision)conf->engine.precision,
		.optimizer = (enum optimizer)conf->optimizer,
		.beta1 = conf->momentum,
		.weight_decay = conf->weight_decay,
		.pos_weight = conf->pos_weight ? t->pos_weight : NULL,
		.loss_scale = conf->loss_scale,
		.scale_patience = conf->dynamic_loss_scale ? SCALE_PATIENCE : 0,
		.batch = conf->batch,
		.source_size = dataset_image_size(t->train),
		.threads = threads_from_options(&conf->engine, t->world),
		.bucket_bytes = (size_t)t->at.bucket_bytes,
		.train = 1,
	};
	return model_open(&t->model, t->world, &mc, e);
}

/* Of what can be learnt: a finding that no image shows, or every one, adds next to nothing to the loss. */
static double known_share(const struct train *t)
{
	const struct sample *samples = dataset_samples(t->train);
	const size_t n = dataset_count(t->train);
	const uint32_t taught = ALL_FINDINGS & ~train_untaught(t);
	size_t known = 0;

	for (size_t i = 0; i < n; i++)
		known += (size_t)__builtin_popcount(samples[i].known & taught);
	return known ? (double)known / ((double)n * FINDINGS) : 1;
}

/* The head starts at what it would say without looking: the prevalence, as the weights of positives have it. */
static void initial_values(struct train *t)
{
	double prevalence[FINDINGS];

	dataset_prevalence(t->train, prevalence);
	for (int f = 0; f < FINDINGS && t->conf->pos_weight; f++) {
		const double positive = t->pos_weight[f] * prevalence[f], all = positive + 1 - prevalence[f];

		if (all > 0)
			prevalence[f] = positive / all;
	}
	net_init(&t->model.plan, t->at.seed, prevalence, t->values.params);
	for (size_t i = 0; i < t->model.plan.n_bn_channels; i++)
		t->values.variance[i] = 1;
}

/* Loads on rank 0; a plain model leaves the moments at zero. */
static int load_values(struct train *t, const struct checkpoint *c, struct train_start *s, struct error *e)
{
	struct model_values wanted = t->values;

	if (!s->resume)
		wanted.moment1 = wanted.moment2 = NULL;
	return checkpoint_load(c, &t->model.plan, &wanted, s->resume ? NULL : &s->fresh_head, e);
}

static int fill_model(struct train *t, const struct checkpoint *c, struct train_start *s, struct error *e)
{
	if (model_values_alloc(&t->values, &t->model.plan, 1, e) == 0) {
		initial_values(t);
		if (c)
			load_values(t, c, s, e);
	}
	if (world_agree(t->world, e) < 0 || model_share(&t->model, 0, &t->values, e) < 0)
		return -e->code;
	if (s->fresh_head)
		log_say(&t->log, "its classifier has another number of outputs: the head starts afresh");
	if (model_put(&t->model, &t->values, e) == 0)
		model_put_steps(&t->model, &t->at, e);
	return world_agree(t->world, e);
}

/* --epochs count images: where the global batch was another one before, other steps are left than its steps would leave. --steps count
 * steps, whatever their size. */
void train_set_schedule(struct train *t)
{
	const struct train_conf *conf = t->conf;
	double epoch = (double)dataset_count(t->train) / t->at.global_batch;
	uint64_t steps = conf->steps ? conf->steps : (uint64_t)(conf->epochs * epoch + 0.999999);
	double rest = conf->epochs * epoch - (double)t->at.position / t->at.global_batch;
	uint64_t left = rest > 0 ? (uint64_t)(rest + 0.999999) : 0;

	if (steps == 0) {
		steps = 1;
		left = t->at.step == 0;
	}
	if (conf->steps)
		left = steps > t->at.step ? steps - t->at.step : 0;
	t->schedule = (struct schedule){
		.rate = conf->rate,
		.scaling = (enum scaling)conf->scaling,
		.base_batch = conf->base_batch,
		.global_batch = t->at.global_batch,
		.warmup = (uint64_t)(conf->warmup_epochs * epoch + 0.5),
		.decay = (enum decay)conf->decay,
		.factor = t->at.rate_factor,
		.steps = t->at.step + left,
		.moved = (int64_t)(t->at.step + left - steps),
	};
	if (t->schedule.warmup > steps / 2)
		t->schedule.warmup = steps / 2;
}

static void restore_state(struct train *t, const struct checkpoint_notes *then)
{
	t->at.seed = then->seed;
	t->at.window = then->window;
	t->at.position = then->position;
	t->at.step = then->step;
	t->at.validated = then->validated;
	t->at.best_auroc = then->best_auroc;
	t->at.best_step = then->best_step;
	if (checkpoint_balanced(then) == checkpoint_balanced(&t->at)) { /* else it is of another objective */
		t->at.best_loss = then->best_loss;
		t->at.stale = then->stale;
	}
	t->at.rate_factor = then->rate_factor;
	t->at.skipped = then->skipped;
	if (t->conf->dynamic_loss_scale && strcmp(then->precision, "fp16") == 0) { /* a fixed one is what the options say; others had none, which is noted as 1 */
		t->at.loss_scale = then->loss_scale;
		t->at.scale_good = then->scale_good;
	}
}

static void say_resumed(struct train *t, const struct checkpoint_notes *then)
{
	const struct train_conf *conf = t->conf;

	log_say(&t->log, "resumes at step %llu, position %llu, seed %llu", (unsigned long long)t->at.step, (unsigned long long)t->at.position,
		(unsigned long long)t->at.seed);
	if (conf->weights)
		log_say(&t->log, "the weights are those of the checkpoint, not --weights=%s, which counts where there is none", conf->weights);
	if (t->at.seed != conf->seed && conf->seed_typed)
		log_say(&t->log, "the seed stays that of the checkpoint, not --seed=%llu", (unsigned long long)conf->seed);
	if (conf->network.image_size && conf->network.image_size != t->network.image_size)
		log_say(&t->log, "the network's images stay those of the checkpoint, %d pixels a side, not --image-size=%d", t->network.image_size, conf->network.image_size);
	if (t->at.window != conf->shuffle_window)
		log_say(&t->log, "the order of images stays that of the checkpoint, not --shuffle-window=%d", conf->shuffle_window);
	if (t->at.global_batch != then->global_batch)
		log_say(&t->log, "the global batch was %d and is %d now", then->global_batch, t->at.global_batch);
	if (t->at.batch != then->batch)
		log_say(&t->log, "the micro-batch was %d and is %d now: batch normalisation sees other groups", then->batch, t->at.batch);
	train_tell_changes(&t->log, then->options, t->at.options);
}

/* Where nothing is left to train, the results would name options that nothing was learnt with. */
static int check_rest(struct train *t, const struct checkpoint_notes *then, struct error *e)
{
	const int given = t->conf->resume && strcmp(t->conf->resume, "auto") != 0;
	char changes[640];
	size_t used;

	train_list_changes(then->options, t->at.options, changes, 600);
	used = strlen(changes);
	if (t->at.batch != then->batch)
		snprintf(changes + used, sizeof changes - used, "%s--batch=%d (%d then)", used ? ", " : "", t->at.batch, then->batch);
	if (!*changes || !train_is_over(t)) {
		say_resumed(t, then);
		return 0;
	}
	fail(e, EXIT_USAGE, "%.200s is at step %llu, and with %s nothing is left to train: give the options of then, %s, or --weights=FILE and "
	     "another --output to train anew", given ? t->conf->resume : t->output, (unsigned long long)t->at.step, changes,
	     t->at.step < t->schedule.steps ? "a larger --patience" : "more --steps or --epochs");
	return world_agree(t->world, e);
}

static int share_start(struct train *t, struct train_start *s, struct error *e)
{
	if (hvd_broadcast(t->world->hvd, s, sizeof *s, HVD_U8, 0) < 0)
		return world_fail(t->world, e);
	const struct train_conf *conf = t->conf;

	t->network = s->network;
	t->leaves = s->leaves;
	if (settle_sizes(t, s, e) < 0)
		return -e->code;
	const int global_batch = schedule_global_batch(conf->batch, conf->accumulate, t->world->at->size, e);
	if (global_batch < 0)
		return world_agree(t->world, e);
	weigh_positives(t);
	t->known = known_share(t);
	memcpy(t->output, s->output, sizeof t->output);
	t->at = (struct checkpoint_notes){
		.seed = conf->seed,
		.data_hash = dataset_hash(t->train),
		.val_hash = t->val ? dataset_hash(t->val) : 0,
		.global_batch = global_batch,
		.batch = conf->batch,
		.window = conf->shuffle_window,
		.window_layout = window_layout(t->train),
		.untrained = train_untaught(t),
		.bucket_bytes = conf->bucket_kib * 1024,
		.source_size = dataset_image_size(t->train),
		.leaky = t->leak || s->notes.leaky,
		.unchecked = s->notes.unchecked,
	};
	snprintf(t->at.split_policy, sizeof t->at.split_policy, "%s", dataset_split_policy(t->train));
	snprintf(t->at.resize, sizeof t->at.resize, "%s", dataset_resize(t->train));
	snprintf(t->at.mask, sizeof t->at.mask, "%s", t->mask);
	snprintf(t->at.precision, sizeof t->at.precision, "%s", precision_choices[conf->engine.precision]);
	snprintf(t->at.pos_weight, sizeof t->at.pos_weight, "%s", conf->pos_weight ? "balanced" : "none");
	snprintf(t->at.stored_as, sizeof t->at.stored_as, "%s", dataset_stored_as(t->train));
	train_note_options(conf, t->at.options, sizeof t->at.options);
	snprintf(t->at.optimizer, sizeof t->at.optimizer, "%s", optimizer_choices[conf->optimizer]);
	note_source(t, s);
	if (s->from_file && !s->resume && s->notes.leaky)
		log_say(&t->log, "LEAK: these weights were trained on splits that share patients: every result says so");
	if (s->from_file && !s->resume && s->notes.unchecked)
		log_say(&t->log, "leak not checked: patients are not compared with those that these weights were trained on; every result says so");
	if (s->resume)
		restore_state(t, &s->notes);
	train_set_schedule(t);
	return s->resume ? check_rest(t, &s->notes, e) : 0;
}

static int setup_model(struct train *t, struct error *e)
{
	struct checkpoint *c = NULL;
	struct train_start s = { 0 };

	if (world_speaks(t->world))
		train_find_start(t, &s, &c, e);
	snprintf(s.output, sizeof s.output, "%s", t->output);
	if (world_agree(t->world, e) == 0 && share_start(t, &s, e) == 0 && open_model(t, e) == 0)
		fill_model(t, c, &s, e);
	checkpoint_close(c);
	return e->code ? -e->code : 0;
}

/* ---- stream ------------------------------------------------------------------------------------------ */

int train_decode_threads(const struct train *t)
{
	return t->conf->decode_threads ? t->conf->decode_threads : model_decode_threads(&t->model);
}

static int keep_images(struct train *t, struct error *e)
{
	if (t->conf->log_hash)
		fail(e, EXIT_USAGE, "--log-hash reads the pixels of every step, which --resident leaves on the GPU");
	else
		train_keep_images(t, t->world->places[t->world->at->rank].threads, e);
	return world_agree(t->world, e);
}

int train_open_loader(struct train *t, struct error *e)
{
	struct loader_conf conf = {
		.dataset = t->train,
		.seed = t->at.seed,
		.start = t->at.position,
		.batch = t->conf->batch,
		.micros = t->conf->accumulate,
		.rank = t->world->at->rank,
		.ranks = t->world->at->size,
		.image_size = t->conf->augment ? t->network.image_size : 0,
		.hash = t->conf->log_hash,
		.unread = t->conf->resident,
		.window = t->at.window,
		.threads = train_decode_threads(t),
		.depth = TRAIN_SLOTS,
	};

	loader_open(&t->loader, &conf, e);
	return world_agree(t->world, e);
}

int train_setup(struct train *t, struct world *world, const struct train_conf *conf, struct error *e)
{
	*t = (struct train){ .world = world, .settled = *conf, .loss = NAN, .lock = -1 };
	t->conf = &t->settled;
	log_open(&t->log, world_speaks(t->world));
	if (!conf->data)
		log_say(&t->log, "chexnet %s: no --data is given, so this trains on built-in synthetic X-rays", HVD_VERSION);
	if (train_same_options(world, conf, e) < 0 || setup_data(t, e) < 0 || setup_model(t, e) < 0)
		return -e->code;
	if (conf->resident && keep_images(t, e) < 0)
		return -e->code;
	if (train_open_loader(t, e) < 0)
		return -e->code;
	t->first_step = t->saved = t->at.step;
	if (world_speaks(world))
		train_begin_output(t, e);
	if (world_agree(world, e) < 0)
		return -e->code;
	if (t->model.kind == ENGINE_CUDA)
		t->gpu = gpu_meter_open(t->world->places[t->world->at->rank].gpu);
	tell_start(t);
	return 0;
}

void train_close(struct train *t)
{
	world_on_lost_log(-1, NULL, NULL);
	loader_close(t->loader);
	model_values_free(&t->values);
	model_close(&t->model);
	dataset_close(t->train);
	dataset_close(t->val);
	dataset_close(t->test);
	events_close(t->events);
	gpu_meter_close(t->gpu);
	log_close(&t->log);
	free(t->best);
	train_release_output(t);
}
