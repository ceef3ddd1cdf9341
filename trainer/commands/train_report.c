/* SPDX-License-Identifier: Apache-2.0
 * What a training run says about itself. */
#include "commands/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "clock.h"
#include "learn/cam.h"

enum { REPORT_SECONDS = 2 };

static const char *const scaling_words[] = { "", " scaled by its square root", " scaled linearly" };

static int shares_patients(const struct train *t, const struct dataset *d)
{
	const struct dataset *const sets[] = { t->train, t->val, t->test };

	for (size_t i = 0; t->leak && i < sizeof sets / sizeof sets[0]; i++)
		if (sets[i] && sets[i] != d && dataset_leak(sets[i], d, NULL))
			return 1;
	return 0;
}

static void print_split(struct train *t, const struct dataset *d)
{
	if (d)
		log_say(&t->log, "  %-5s %7zu image%s, split policy %s%s", dataset_split(d), dataset_count(d), dataset_count(d) == 1 ? "" : "s", dataset_split_policy(d),
			shares_patients(t, d) ? ", LEAK: shares patients with another split" : "");
}

static void add_split(cJSON *splits, const struct dataset *d)
{
	if (!d)
		return;
	cJSON *split = cJSON_AddObjectToObject(splits, dataset_split(d));

	json_number(split, "images", (double)dataset_count(d));
	json_number(split, "patients", (double)dataset_patients(d));
}

static void start_event(struct train *t)
{
	cJSON *event = log_event(&t->log, "start");

	if (!event)
		return;
	cJSON_AddStringToObject(event, "version", HVD_VERSION);
	cJSON_AddStringToObject(event, "command", t->conf->command);
	cJSON_AddStringToObject(event, "model", t->model.plan.model);
	cJSON_AddStringToObject(event, "engine", engine_describe(t->model.engine));
	cJSON_AddStringToObject(event, "precision", t->at.precision);
	cJSON_AddStringToObject(event, "backend", t->world->at->backend);
	cJSON_AddStringToObject(event, "split_policy", t->at.split_policy);
	json_leak(event, "leak", t->at.leaky, !t->at.unchecked);
	cJSON_AddBoolToObject(event, "leak_checked", !t->at.unchecked);
	if (t->conf->mask)
		cJSON_AddStringToObject(event, "mask", t->conf->mask);
	cJSON *splits = cJSON_AddObjectToObject(event, "splits");

	add_split(splits, t->train);
	add_split(splits, t->val);
	add_split(splits, t->test);
	json_number(event, "parameters", (double)t->model.plan.n_weights);
	json_number(event, "image_size", t->network.image_size);
	json_number(event, "ranks", t->world->at->size);
	json_number(event, "nodes", t->world->at->nodes);
	json_number(event, "global_batch", t->at.global_batch);
	json_number(event, "batch", t->at.batch);
	json_number(event, "accumulate", t->conf->accumulate);
	json_whole(event, "seed", t->at.seed);
	json_number(event, "shuffle_window", t->at.window);
	json_number(event, "step", (double)t->at.step);
	json_number(event, "position", (double)t->at.position);
	json_number(event, "steps", (double)t->schedule.steps);
	cJSON *places = cJSON_AddArrayToObject(event, "places");

	for (int r = 0; r < t->world->at->size; r++) {
		const struct place *p = &t->world->places[r];
		cJSON *row = cJSON_CreateObject();
		char cpus[256];

		cpu_list(p->cpus, cpus, sizeof cpus);
		json_number(row, "rank", r);
		cJSON_AddStringToObject(row, "host", p->host);
		cJSON_AddStringToObject(row, "gpu", p->gpu);
		cJSON_AddStringToObject(row, "cpus", cpus);
		json_number(row, "threads", t->conf->engine.threads ? t->conf->engine.threads : p->threads);
		cJSON_AddItemToArray(places, row);
	}
	log_write(&t->log, event);
}

/* What is not learnt looks like a result that somebody forgot, if nothing says why. Findings without any label are --mask's or the data's own choice. */
static void say_untaught(struct train *t)
{
	const uint32_t shown = dataset_labelled(t->train, 1), absent = dataset_labelled(t->train, 0), one_sided[] = { absent & ~shown, shown & ~absent };
	char names[FINDING_HINT];

	for (int always = 0; always < 2; always++)
		if (one_sided[always])
			log_say(&t->log, "warning: %s training image shows %s: not learnt, so n/a in every table, and no part of a mean", always ? "every" : "no",
				findings_write(names, sizeof names, one_sided[always], ", "));
}

/* The order of training images, and what an exact resumption rests on. */
static void say_order(struct train *t)
{
	const uint64_t *first;
	size_t files = dataset_shards(t->train, &first), window = (size_t)t->at.window < files ? (size_t)t->at.window : files;

	if (!t->at.window)
		log_say(&t->log, "order: keyed permutation of all %zu training image%s", dataset_count(t->train), dataset_count(t->train) == 1 ? "" : "s");
	else
		log_say(&t->log, "order: shuffle windows of %zu of %zu files, about %zu images and %.1f MB each; files are read front to back, one window ahead",
			window, files, dataset_count(t->train) * window / files, (double)dataset_stored(t->train) / 1e6 * (double)window / (double)files);
}

/* What maps will not show is better known before the training. A resumed one cannot help it, nor a ResNet, whose cells end before multiples too. */
static void say_uncovered(struct train *t)
{
	struct cam_grid grid = cam_grid_of(&t->model.plan);
	int size = t->network.image_size, pitch = (int)grid.pitch, below = size / pitch * pitch, n = cam_uncovered(&grid, size);
	char above[32] = " is";

	if (t->at.step || t->model.plan.family != NET_DENSENET || n < CAM_UNCOVERED)
		return;
	if (below + pitch <= t->at.source_size)
		snprintf(above, sizeof above, " and %d are", below + pitch);
	log_say(&t->log, "activation maps will not reach the last %d of %d columns and rows: %d is no multiple of their cells' %d pixels, --image-size=%d%s", n, size, size,
		pitch, below, above);
}

/* A batch script without srun starts one process, whatever the job has, and salloc's shell is on no node of it. In a step SLURM_NNODES is the step's. */
static void say_lonely(struct train *t)
{
	const char *nodes = getenv("SLURM_NNODES"), *gpus = t->world->places[0].gpu;

	if (t->world->at->size > 1 || !getenv("SLURM_JOB_ID"))
		return;
	if (!getenv("SLURMD_NODENAME"))
		log_say(&t->log, "warning: one rank, and not on a node of this job: srun --gpu-bind=socket --hvd starts one there for each GPU");
	else if (nodes && atoi(nodes) > 1)
		log_say(&t->log, "warning: one rank in a job of %s nodes: srun --gpu-bind=socket --hvd starts one for each GPU", nodes);
	else if (strchr(gpus, ','))
		log_say(&t->log, "warning: one rank, which computes on one of GPUs %s at most: srun --gpu-bind=socket --hvd starts one for each", gpus);
}

/* Weights and two moments of each checkpoint that stays and of the next one; the best and the last weights. What a resumed training has there already is the disk's. */
static void say_room(struct train *t)
{
	const double checkpoints = t->at.step ? 1 : t->conf->keep + 1, wanted = (3 * checkpoints + 2) * sizeof(float) * (double)t->model.plan.n_weights;
	struct statvfs room;

	if (statvfs(t->output, &room) == 0 && (double)room.f_bavail * (double)room.f_frsize < wanted)
		log_say(&t->log, "warning: %s has room for %.1f MB, and checkpoints and models take %.1f MB: the training ends with the first that cannot be written", t->output,
			1e-6 * (double)room.f_bavail * (double)room.f_frsize, 1e-6 * wanted);
}

/* --epochs are rounded up to whole steps, of which such a batch leaves few. */
static void say_large_batch(struct train *t)
{
	const size_t n = dataset_count(t->train), batch = (size_t)t->at.global_batch;
	const uint64_t steps = t->schedule.steps;

	if (batch > n && t->at.step < steps)
		log_say(&t->log, "warning: a step takes %zu images, and the training split has %zu: some are in it more than once, and after %" PRIu64 " step%s %.3g epochs are over: "
			"with a smaller --batch%s%s they take more steps", batch, n, steps, steps == 1 ? "" : "s", (double)(t->at.position + (steps - t->at.step) * batch) / (double)n,
			t->conf->accumulate > 1 ? " or --accumulate" : "", t->world->at->size > 1 ? ", or fewer ranks," : "");
}

void tell_start(struct train *t)
{
	const struct hvd_world *w = t->world->at;
	const struct train_conf *conf = t->conf;

	start_event(t);
	if (!t->log.speaks)
		return;
	world_print_places(t->world, conf->engine.threads, stdout);
	if (model_fallback(t->world, (enum engine_choice)conf->engine.engine))
		log_say(&t->log, "%s", model_fallback(t->world, (enum engine_choice)conf->engine.engine));
	log_say(&t->log, "%d rank%s on %d node%s, collectives: %s", w->size, w->size == 1 ? "" : "s", w->nodes, w->nodes == 1 ? "" : "s", w->backend);
	say_lonely(t);
	log_say(&t->log, "%s, %zu parameters, %d pixels of %d; %s; %s; %d gradient buckets; %.0f MiB", t->model.plan.model, t->model.plan.n_weights,
		t->network.image_size, t->at.source_size, engine_describe(t->model.engine), t->at.precision, hvd_plan_buckets(t->model.buckets),
		(double)(engine_memory(t->model.engine) + loader_memory(t->loader)) / 1048576);
	if (precision_advice(&conf->engine, t->model.kind))
		log_say(&t->log, "%s", precision_advice(&conf->engine, t->model.kind));
	say_uncovered(t);
	print_split(t, t->train);
	print_split(t, t->val);
	print_split(t, t->test);
	say_untaught(t);
	if (!t->validates)
		log_say(&t->log, "%s: the last step's weights are taken", !t->val || !dataset_count(t->val) ? "no validation split" :
			t->at.untrained ? "no label of what is learnt is known in the validation split" : "no label of the validation split is known");
	if (!t->test || !dataset_count(t->test))
		log_say(&t->log, "no test split: nothing judges the model in the end");
	say_order(t);
	log_say(&t->log, "%s", t->memory);
	say_room(t);
	if (*t->masked)
		log_say(&t->log, "%s", t->masked);
	log_say(&t->log, "global batch %d = %d rank%s x %d micro-batch%s of %d; learning rate %g%s; %" PRIu64 " step%s, seed %" PRIu64 "; output %s",
		t->at.global_batch, w->size, w->size == 1 ? "" : "s", conf->accumulate, conf->accumulate == 1 ? "" : "es", conf->batch,
		schedule_peak(&t->schedule), schedule_peak(&t->schedule) > conf->rate ? scaling_words[conf->scaling] : "", t->schedule.steps,
		t->schedule.steps == 1 ? "" : "s", t->at.seed,
		t->output);
	say_large_batch(t);
	if (t->at.step >= t->schedule.steps)
		log_say(&t->log, "all its steps are done already: nothing is trained, the model is %s once more", t->test && dataset_count(t->test) ? "judged" : "written");
}

void tell_left(struct train *t, const struct checkpoint_left *left)
{
	const int n = left->checkpoints;

	if (n > 0)
		log_say(&t->log, "%d checkpoint%s after step %" PRIu64 ", where this training went on,%s %s called .safetensors.abandoned (.abandoned-2, …) from now on", n,
			n == 1 ? "" : "s", left->after, left->best ? " and best.safetensors" : "", n == 1 && !left->best ? "is" : "are");
	else if (left->best)
		log_say(&t->log, "%s/best.safetensors, not this training's best so far, is called .safetensors.abandoned (.abandoned-2, …) from now on", t->output);
	if (left->why.code)
		log_say(&t->log, "%s: --resume=auto may take it, which is not of this course: rename or remove it", left->why.text);
}

void tell_step(struct train *t, const uint64_t *hashes, int n_hashes)
{
	cJSON *event = log_event(&t->log, "step");

	if (!event)
		return;
	json_number(event, "step", (double)t->at.step);
	json_number(event, "position", (double)t->at.position);
	if (t->loss_fetched)
		json_number(event, "loss", t->loss);
	json_number(event, "lr", t->rate);
	if (t->loss_fetched && t->conf->dynamic_loss_scale) {
		json_number(event, "loss_scale", t->at.loss_scale);
		json_number(event, "skipped", (double)t->at.skipped);
	}
	json_number(event, "input_share", t->step_input / t->step_seconds);
	json_number(event, "communication_share", t->model.exposed / t->step_seconds);
	json_number(event, "images_per_s", t->images_per_s);
	if (t->conf->log_hash) {
		cJSON *list = cJSON_AddArrayToObject(event, "micro");
		uint64_t whole = 0;
		char text[17];

		for (int i = 0; i < n_hashes; i++) {
			whole = world_hash(whole, &hashes[i], sizeof hashes[i]);
			snprintf(text, sizeof text, "%016" PRIx64, hashes[i]);
			cJSON_AddItemToArray(list, cJSON_CreateString(text));
		}
		snprintf(text, sizeof text, "%016" PRIx64, whole);
		cJSON_AddStringToObject(event, "hash", text);
	}
	log_write(&t->log, event);
}

/* ", GPU 97 %, 23.1 of 139 GiB, 612 W", or nothing where no GPU tells. */
static const char *gpu_text(struct train *t, char text[80])
{
	struct gpu_reading r;

	*text = '\0';
	if (t->log.speaks && t->gpu && gpu_meter_read(t->gpu, &r) == 0)
		snprintf(text, 80, ", GPU %.0f %%, %.1f of %.0f GiB, %.0f W", 100 * r.busy, r.memory_used / 0x1p30, r.memory_total / 0x1p30, r.watts);
	return text;
}

/* ", loss scale 32768 (3 steps skipped)", or nothing where it is fixed. */
static const char *scale_text(const struct train *t, char text[80])
{
	*text = '\0';
	if (t->conf->dynamic_loss_scale)
		snprintf(text, 80, ", loss scale %g (%" PRIu64 " step%s skipped)", t->at.loss_scale, t->at.skipped, t->at.skipped == 1 ? "" : "s");
	return text;
}

uint64_t train_validations_left(const struct train *t)
{
	const uint64_t every = t->conf->eval_every ? (uint64_t)t->conf->eval_every : train_epoch_steps(t), last = t->schedule.steps;

	return t->validates ? last / every + (last % every != 0) - (t->at.step - 1) / every : 0;
}

/* What the validations and the test split will take is known from the first validation on. */
static double judging_left(const struct train *t, uint64_t validations)
{
	return t->val_seconds > 0 ? t->val_seconds * ((double)validations + (t->test ? (double)dataset_count(t->test) / (double)dataset_count(t->val) : 0)) : 0;
}

void tell_progress(struct train *t)
{
	double seconds = now() - t->recent.begin;
	char left[32], validations[48] = "", gpu[80], scale[80];

	if (seconds < REPORT_SECONDS && t->at.step < t->schedule.steps)
		return;
	double rate = (double)t->recent.images / seconds;
	double rest = (double)(t->schedule.steps - t->at.step) * t->at.global_batch / rate;
	uint64_t more = train_validations_left(t);
	double input = 100 * t->recent.input / seconds, exposed = 100 * t->recent.exposed / seconds;

	if (more && !(t->val_seconds > 0))
		snprintf(validations, sizeof validations, " and %" PRIu64 " validation%s", more, more == 1 ? "" : "s");
	log_progress(&t->log, "epoch %.2f  step %" PRIu64 "/%" PRIu64 "  loss %.4f  %.1f images/s  left %s%s  compute %.0f %%, input %.0f %%, communication %.0f %%%s%s",
		     (double)t->at.position / (double)dataset_count(t->train), t->at.step, t->schedule.steps, t->loss, rate, clock_text(rest + judging_left(t, more), left),
		     validations, 100 - input - exposed, input, exposed, scale_text(t, scale), gpu_text(t, gpu));
	t->recent = (struct tally){ .begin = now() };
}

void tell_validation(struct train *t, const struct evaluation *ev)
{
	const struct interval *mean = &ev->table.mean;
	char interval[64] = "", value[16] = "n/a", weighted[40] = "", few[64] = "";
	int n_few = 0;

	for (int f = 0; f < FINDINGS; f++)
		n_few += !isnan(ev->table.class[f].value) && auroc_patients(&ev->table, f) < FEW_POSITIVES;
	if (n_few)
		snprintf(few, sizeof few, ", %d of them in fewer than %d patients", n_few, FEW_POSITIVES);

	if (t->conf->pos_weight)
		snprintf(weighted, sizeof weighted, ", weighted %.4f", ev->objective);
	if (mean->low < mean->high)
		snprintf(interval, sizeof interval, "95 %% interval %.3f to %.3f, ", mean->low, mean->high);
	if (ev->table.counted)
		snprintf(value, sizeof value, "%.4f", mean->value);
	log_say(&t->log, "validation after step %" PRIu64 ": mean AUROC %s (%s%d of %d findings%s), loss %.4f%s%s", t->at.step, value, interval,
		ev->table.counted, FINDINGS, few, ev->loss, weighted, t->at.leaky ? ", LEAK" : "");
}

/* How busy the GPUs were: means over the ranks whose GPU told, as shares. Below GPU_WARN the reason follows. */
static void tell_gpus(struct train *t, double told, double busy, double dips, cJSON *event)
{
	if (told <= 0)
		return;
	busy /= told;
	dips /= told;
	log_say(&t->log, "GPUs busy %.1f %% of the time (mean over ranks), below %.0f %% in %.1f %% of the samples", 100 * busy, 100 * GPU_DIP, 100 * dips);
	if (busy < GPU_WARN)
		log_say(&t->log, "warning: the GPUs were idle for more than %.0f %% of the time: chexnet bench shows what they can do", 100 * (1 - GPU_WARN));
	json_number(event, "gpu_busy", busy);
	json_number(event, "gpu_dips", dips);
}

enum { SECONDS_TO_JUDGE = 10 }; /* before, most of it is the start */

/* What kept the engines from computing, said once where it was more than a tenth. */
static void warn_of_waiting(struct train *t, double seconds, double input, double communication)
{
	if (input + communication <= 1 - GPU_WARN || seconds < SECONDS_TO_JUDGE || (input >= communication && !t->conf->data))
		return;
	if (input >= communication)
		log_say(&t->log, "warning: the ranks waited %.0f %% of the time for images: more --decode-threads, or chexnet prepare --format packed", 100 * input);
	else
		log_say(&t->log, "warning: the ranks waited %.0f %% of the time for each other: a larger --batch or --accumulate sends less", 100 * communication);
}

int tell_summary(struct train *t, struct error *e)
{
	double seconds = now() - t->total.begin;
	struct gpu_summary gpu = t->gpu ? gpu_meter_summary(t->gpu) : (struct gpu_summary){ 0 };
	double shares[5] = { t->total.input / seconds, t->total.exposed / seconds, gpu.samples > 0, gpu.busy, gpu.dips };
	uint64_t steps = t->at.step - t->first_step;

	if (hvd_allreduce(t->world->hvd, shares, shares, 5, HVD_F64, HVD_AVG) < 0)
		return world_fail(t->world, e);
	if (steps == 0 || t->summed)
		return 0;
	t->summed = 1;
	double rate = (double)t->total.images / seconds;
	cJSON *event = log_event(&t->log, "summary");

	log_say(&t->log, "%" PRIu64 " step%s, %" PRIu64 " image%s in %.1f s: %.1f images/s; waiting for input %.1f %%, for communication %.1f %% (mean over ranks)",
		steps, steps == 1 ? "" : "s", t->total.images, t->total.images == 1 ? "" : "s", seconds, rate, 100 * shares[0], 100 * shares[1]);
	json_number(event, "steps", (double)steps);
	json_number(event, "images", (double)t->total.images);
	json_number(event, "seconds", seconds);
	json_number(event, "images_per_s", rate);
	json_number(event, "input_share", shares[0]);
	json_number(event, "communication_share", shares[1]);
	tell_gpus(t, shares[2], shares[3], shares[4], event);
	log_write(&t->log, event);
	warn_of_waiting(t, seconds, shares[0], shares[1]);
	return 0;
}

void tell_end(struct train *t, int code, const char *reason)
{
	cJSON *event = log_event(&t->log, "end");

	if (!event)
		return;
	json_number(event, "code", code);
	json_number(event, "step", (double)t->at.step);
	cJSON_AddStringToObject(event, "reason", reason);
	cJSON_AddStringToObject(event, "output", t->output);
	if (*t->weights_hash) /* by which a report knows whether predictions are this training's */
		cJSON_AddStringToObject(event, "weights_hash", t->weights_hash);
	log_write(&t->log, event);
}

/* ---- TensorBoard ------------------------------------------------------------------------------------- */

static void events_failed(struct train *t, const struct error *e)
{
	log_say(&t->log, "TensorBoard events end here: %s", e->text);
	events_close(t->events);
	t->events = NULL;
}

void tell_events_step(struct train *t)
{
	struct error e = { 0 };
	int64_t step = (int64_t)t->at.step;

	if (t->events && t->loss_fetched && (events_scalar(t->events, "loss/train", step, (float)t->loss, &e) < 0 ||
			  events_scalar(t->events, "learning_rate", step, (float)t->rate, &e) < 0 ||
			  events_scalar(t->events, "images_per_s", step, (float)t->images_per_s, &e) < 0))
		events_failed(t, &e);
}

static int add_pr_curves(struct train *t, const struct evaluation *ev, int64_t step, struct error *e)
{
	float *score = malloc((ev->n + 1) * sizeof *score);
	uint8_t *positive = malloc(ev->n + 1);

	for (int f = 0; f < FINDINGS && score && positive && !e->code; f++) {
		char tag[64];
		size_t n = 0;

		for (size_t i = 0; i < ev->n; i++) {
			if (!(ev->known[i] >> f & 1))
				continue;
			score[n] = ev->logits[i * FINDINGS + (size_t)f];
			positive[n++] = ev->labels[i] >> f & 1;
		}
		snprintf(tag, sizeof tag, "precision_recall/%s", finding_names[f]);
		if (ev->table.positives[f])
			events_pr_curve(t->events, tag, step, score, positive, n, e);
	}
	free(score);
	free(positive);
	return e->code ? -e->code : 0;
}

void tell_events_evaluation(struct train *t, const struct evaluation *ev, const struct dataset *d, int64_t step)
{
	struct error e = { 0 };
	char tag[64];

	if (!t->events)
		return;
	snprintf(tag, sizeof tag, "loss/%s", dataset_split(d));
	events_scalar(t->events, tag, step, (float)ev->loss, &e);
	snprintf(tag, sizeof tag, "loss/%s_weighted", dataset_split(d)); /* on the scale of loss/train */
	if (t->conf->pos_weight)
		events_scalar(t->events, tag, step, (float)ev->objective, &e);
	snprintf(tag, sizeof tag, "auroc_%s/mean", dataset_split(d));
	if (ev->table.counted)
		events_scalar(t->events, tag, step, (float)ev->table.mean.value, &e);
	for (int f = 0; f < FINDINGS; f++) {
		snprintf(tag, sizeof tag, "auroc_%s/%s", dataset_split(d), finding_names[f]);
		if (ev->table.positives[f] && ev->table.negatives[f])
			events_scalar(t->events, tag, step, (float)ev->table.class[f].value, &e);
	}
	if (!e.code && d == t->test)
		add_pr_curves(t, ev, step, &e);
	if (e.code)
		events_failed(t, &e);
}

void tell_events_end(struct train *t)
{
	struct error e = { 0 };

	if (t->events && events_sync(t->events, &e) < 0)
		events_failed(t, &e);
}
