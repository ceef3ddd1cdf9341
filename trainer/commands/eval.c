/* SPDX-License-Identifier: Apache-2.0
 * chexnet eval: a model judged on a split, over all ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "commands/knobs.h"
#include "commands/network_options.h"
#include "data/label_mask.h"
#include "files/file.h"
#include "json.h"
#include "learn/calibration_table.h"
#include "learn/evaluate.h"
#include "utf8.h"

struct eval_conf {
	const char *weights, *data, *mask, *predictions;
	int split, batch, decode_threads, resamples, json, crops, image_size, weights_typed;
	uint64_t seed;
	struct engine_options engine;
};

static const char *const split_words[] = { "test", "val", "train", NULL };

static const struct option options[] = {
	OPTION(STRING, struct eval_conf, weights, "weights", "FILE", NULL, "safetensors file: a checkpoint, a model, or torchvision's names",
	       .typed = offsetof(struct eval_conf, weights_typed)),
	OPTION(STRING, struct eval_conf, weights, "checkpoint", "FILE", NULL, "the same as --weights", .typed = offsetof(struct eval_conf, weights_typed)),
	OPTION(STRING, struct eval_conf, data, "data", "DIR", NULL, "prepared data set; without it the built-in synthetic X-rays"),
	OPTION(CHOICE, struct eval_conf, split, "split", "NAME", "test", "what is scored", .choices = split_words),
	OPTION(STRING, struct eval_conf, mask, "mask", "FINDINGS|file:PATH", NULL,
	       "labels that are not judged: findings with commas between them, or rows of image,Mass|Hernia (All: all of an image's)"),
	OPTION(INT, struct eval_conf, image_size, "image-size", "PIXELS", "0",
	       "for weights that another program saved: side of the square in the middle of the images that the network sees; 0: what the weights say, else 224",
	       .min = 0, .max = 1024),
	OPTION(CHOICE, struct eval_conf, crops, "crops", "NAME", "none", "ten: mean probability over corners and middle, each also mirrored", .choices = crops_choices),
	OPTION(INT, struct eval_conf, batch, "batch", "N", "16", "images at a time and rank", .min = 1, .max = 4096),
	OPTION(INT, struct eval_conf, decode_threads, "decode-threads", "N", "0", "threads that decode images; 0: as in training", .min = 0, .max = 256),
	OPTION(INT, struct eval_conf, resamples, "resamples", "N", RESAMPLES_DEFAULT, "bootstrap resamples of patients behind each interval, 100 or more; 0: none",
	       .min = 100, .max = 100000, .or_0 = 1),
	OPTION(U64, struct eval_conf, seed, "seed", "N", "1", "of the resamples"),
	OPTION(FLAG, struct eval_conf, json, "json", NULL, NULL, "print one JSON object instead of the table"),
	OPTION(STRING, struct eval_conf, predictions, "predictions", "FILE", NULL, "write every image's labels and logits as CSV"),
	ENGINE_OPTIONS(struct eval_conf, engine),
	OPTIONS_END
};

struct eval {
	const struct eval_conf *conf;
	struct world world;
	struct dataset *data, *train; /* train: NULL where the data set has none */
	struct network network;
	struct checkpoint_notes notes;
	struct model model;
	struct model_values values;
	long leaked; /* patients of the split that the weights were trained on; -1: not known */
};

/* The weights tell the hash of the data they were trained on: if that is this data set, patients can be compared. */
static long count_leaked(const struct eval *v)
{
	uint32_t example;

	if (!v->train || dataset_hash(v->train) != v->notes.data_hash)
		return -1;
	return checkpoint_leaked(&v->notes, dataset_leak(v->data, v->train, &example));
}

static int mask_labels(struct eval *v, uint64_t *hash, struct error *e)
{
	struct label_mask mask;

	if (!v->conf->mask)
		return 0;
	if (label_mask_read(&mask, v->conf->mask, e))
		return -e->code;
	if (label_mask_apply(&mask, v->data) == 0)
		fail(e, EXIT_DATA, "--mask=%s: none of its labels is in the %s split", v->conf->mask, dataset_split(v->data));
	*hash = mask.hash;
	label_mask_free(&mask);
	return -e->code;
}

/* Predictions of other weights stay: --predictions is what report reads and eval writes. */
static int check_output(const struct eval_conf *conf, struct error *e)
{
	struct predictions old = { 0 };
	struct error none = { 0 }, same = { 0 };
	struct stat st;

	if (output_spares(conf->predictions, conf->weights, e) || output_replaces(conf->predictions, "# rows=", "file of predictions", e))
		return -e->code;
	if (stat(conf->predictions, &st) == 0 && S_ISREG(st.st_mode) && predictions_read(&old, conf->predictions, &none) == 0 &&
	    *old.about.checkpoint && output_spares(old.about.checkpoint, conf->weights, &same) == 0)
		fail(e, EXIT_USAGE, "%s: holds predictions noted as of %s, and --weights is %s: remove it or choose another name", conf->predictions,
		     old.about.checkpoint, conf->weights);
	predictions_free(&old);
	return e->code ? -e->code : output_check(conf->predictions, e);
}

static int open_data(struct eval *v, struct error *e)
{
	const char *directory = v->conf->data;
	uint64_t mask_hash = 0;

	if (v->conf->predictions && world_speaks(&v->world))
		check_output(v->conf, e);
	if (!e->code && dataset_open(&v->data, directory, split_words[v->conf->split], e) == 0 && dataset_has(directory, "train", e) > 0)
		dataset_open(&v->train, directory, "train", e);
	if (!e->code && dataset_count(v->data) == 0)
		fail(e, EXIT_DATA, "%s: no image is in its %s split", directory ? directory : "the built-in X-rays", split_words[v->conf->split]);
	if (!e->code)
		mask_labels(v, &mask_hash, e);
	if (world_agree(&v->world, e) < 0)
		return -e->code;
	return world_same(&v->world, dataset_pixel_hash(v->data) ^ 7 * mask_hash, "the data set", "give every node the same --data, prepared with the same --format, and the same --mask", e);
}

/* The part of an image that the network sees: as the weights say, or --image-size where they do not; else 224 pixels a side, which is said. */
static int settle_window(struct eval *v, struct error *e)
{
	int source = dataset_image_size(v->data), size = size_of_weights(v->conf->weights, "image-size", v->notes.image_size, v->conf->image_size, e);

	if (size < 0)
		return size;
	v->network.image_size = size ? size : v->network.image_size;
	if (v->network.image_size > source && v->notes.image_size)
		return fail(e, EXIT_DATA, "the network takes %d pixels a side, the prepared images have %d", size, source);
	if (v->network.image_size > source && size)
		return fail(e, EXIT_USAGE, "--image-size=%d: the prepared images have %d pixels a side", size, source);
	if (v->network.image_size > source)
		return fail(e, EXIT_USAGE, "%s does not say how many pixels its network takes, and %d a side are more than the %d of the prepared images: --image-size=PIXELS",
			    v->conf->weights, v->network.image_size, source);
	if (!size && world_speaks(&v->world))
		fprintf(stderr, "chexnet eval: %s does not say how large its images were: the network sees the middle %d of %d pixels a side (--image-size=PIXELS)\n",
			v->conf->weights, v->network.image_size, source);
	return 0;
}

/* Of images of another size the network would see another part. */
static int check_source_size(const struct eval *v, struct error *e)
{
	int then = v->notes.source_size, here = dataset_image_size(v->data);

	if (!then || then == here)
		return 0;
	if (!v->conf->data)
		return fail(e, EXIT_USAGE, "%s was trained on images of %d pixels a side, and the built-in ones, which are taken without --data=DIR, have %d", v->conf->weights,
			    then, here);
	return fail(e, EXIT_DATA, "%s was trained on images of %d pixels a side and these have %d, so it would see another part of them: chexnet prepare --size=%d",
		    v->conf->weights, then, here, then);
}

/* Rank 0 reads the file; *c stays open for the tensors. */
static int find_network(struct eval *v, struct checkpoint **c, struct error *e)
{
	struct net_conf net;

	if (world_speaks(&v->world) && checkpoint_open(c, v->conf->weights, &net, &v->notes, e) == 0)
		v->network = network_of(&net);
	if (world_agree(&v->world, e) < 0)
		return -e->code;
	if (hvd_broadcast(v->world.hvd, &v->network, sizeof v->network, HVD_U8, 0) < 0 ||
	    hvd_broadcast(v->world.hvd, &v->notes, sizeof v->notes, HVD_U8, 0) < 0)
		return world_fail(&v->world, e);
	if (v->network.classes != FINDINGS)
		fail(e, EXIT_DATA, "%s has %d outputs, not the %d findings", v->conf->weights, v->network.classes, FINDINGS);
	else if (check_source_size(v, e) == 0)
		settle_window(v, e);
	return world_agree(&v->world, e);
}

/* What the network says of a finding that it was not trained on is no prediction, and is not judged as one. */
static void leave_out_untrained(struct eval *v)
{
	struct label_mask mask = { .findings = v->notes.untrained };
	char names[FINDING_HINT];

	if (mask.findings && label_mask_apply(&mask, v->data) && world_speaks(&v->world))
		fprintf(stderr, "chexnet eval: not judged: %s: the last training of these weights had no labels of %s, or none that differ\n",
			findings_write(names, sizeof names, mask.findings, ", "), mask.findings & (mask.findings - 1) ? "them" : "it");
}

static int open_model(struct eval *v, struct error *e)
{
	struct checkpoint *c = NULL;

	if (find_network(v, &c, e) == 0) {
		leave_out_untrained(v);
		if (v->notes.unnamed && world_speaks(&v->world))
			say_findings("eval", v->conf->weights);

		struct model_conf conf = {
			.network = v->network,
			.engine = (enum engine_choice)v->conf->engine.engine,
			.precision = (enum precision)v->conf->engine.precision,
			.batch = v->conf->batch,
			.source_size = dataset_image_size(v->data),
			.threads = threads_from_options(&v->conf->engine, &v->world),
		};

		model_open(&v->model, &v->world, &conf, e);
	}
	if (!e->code && model_values_alloc(&v->values, &v->model.plan, 0, e) == 0 && c)
		checkpoint_load(c, &v->model.plan, &v->values, NULL, e);
	checkpoint_close(c);
	if (v->world.told || world_agree(&v->world, e) < 0 || model_share(&v->model, 0, &v->values, e) < 0)
		return -e->code;
	model_put(&v->model, &v->values, e);
	return world_agree(&v->world, e);
}

static int write_predictions(const struct eval *v, const struct evaluation *ev, struct error *e)
{
	static const enum engine_choice chosen[] = { [ENGINE_REFERENCE] = CHOOSE_REFERENCE, [ENGINE_CPU] = CHOOSE_CPU, [ENGINE_CUDA] = CHOOSE_CUDA };
	struct provenance about = { .leaked = v->leaked, .leaky = v->notes.leaky };
	char size[32] = "";

	snprintf(about.model, sizeof about.model, "%s", v->network.model);
	snprintf(about.checkpoint, sizeof about.checkpoint, "%s", v->conf->weights);
	model_values_hash(about.weights_hash, &v->values, &v->model.plan);
	snprintf(about.trained_on, sizeof about.trained_on, "%s", v->notes.trained_on);
	snprintf(about.crops, sizeof about.crops, "%s", v->conf->crops == CROPS_TEN ? crops_choices[CROPS_TEN] : "");
	snprintf(about.pos_weight, sizeof about.pos_weight, "%s", checkpoint_balanced(&v->notes) ? v->notes.pos_weight : "");
	snprintf(about.order, sizeof about.order, "%s", v->notes.unnamed ? "assumed" : "");
	if (v->conf->image_size)
		snprintf(size, sizeof size, " --image-size=%d", v->conf->image_size);

	/* all that the numbers depend on, so that this gives them again: what "auto" chose on another machine does not */
	const char *const words[] = { "chexnet eval --weights=", v->conf->weights, v->conf->data ? " --data=" : "", v->conf->data ? v->conf->data : "", " --split=",
				      split_words[v->conf->split], " --crops=", crops_choices[v->conf->crops], " --engine=", engine_choices[chosen[v->model.kind]],
				      " --precision=", precision_choices[v->conf->engine.precision], v->conf->mask ? " --mask=" : "",
				      v->conf->mask ? v->conf->mask : "", size }; /* every second one a value */
	size_t used = 0;

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		used = (i % 2 && *words[i] ? utf8_append_word : utf8_append)(about.command, sizeof about.command, used, words[i]);
	return evaluation_write(ev, v->data, v->conf->predictions, about, e);
}

static void print_json(const struct eval *v, const struct evaluation *ev, const struct calibration_table *c, const struct evaluation_conf *conf, struct error *e)
{
	cJSON *object = cJSON_CreateObject();
	char hash[WEIGHTS_HASH];

	model_values_hash(hash, &v->values, &v->model.plan);
	cJSON_AddStringToObject(object, "version", HVD_VERSION);
	cJSON_AddStringToObject(object, "weights", v->conf->weights);
	cJSON_AddStringToObject(object, "weights_hash", hash);
	cJSON_AddStringToObject(object, "model", v->network.model);
	cJSON_AddStringToObject(object, "engine", engine_describe(v->model.engine));
	if (v->notes.unnamed)
		cJSON_AddStringToObject(object, "order", "assumed");
	json_number(object, "step", (double)v->notes.step);
	json_number(object, "leaked_patients", v->leaked < 0 ? NAN : (double)v->leaked);
	json_number(object, "resamples", conf->resamples);
	json_whole(object, "seed", conf->seed);
	evaluation_json(ev, conf, object);
	calibration_mean_json(c, object);
	for (int f = 0; f < FINDINGS; f++)
		calibration_json(&c->finding[f], cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(object, "findings"), finding_names[f]));
	json_print(object, 1, e);
}

/* AUROC goes by the order of the images alone: what the probabilities themselves are worth stands below it. */
static int calibrate(const struct eval *v, const struct evaluation *ev, struct calibration_table *c, struct error *e)
{
	const struct scores s = { .n = ev->n, .classes = FINDINGS, .logits = ev->logits, .labels = ev->labels, .known = ev->known, .patient = ev->patient };

	if (calibration_table_of(&s, &ev->table, c))
		return fail(e, EXIT_INTERNAL, "no memory for the calibration of %zu images", ev->n);
	if (!v->conf->resamples)
		calibration_table_bare(c);
	return 0;
}

static int judge(struct eval *v, struct error *e)
{
	struct evaluation ev;
	struct calibration_table c;
	struct evaluation_conf conf = {
		.dataset = v->data, .decode_threads = v->conf->decode_threads ? v->conf->decode_threads : model_decode_threads(&v->model), .resamples = v->conf->resamples, .seed = v->conf->seed,
		.leaked = v->leaked, .leaky = v->notes.leaky, .trained_on = v->notes.trained_on, .untrained = v->notes.untrained, .crops = (enum crops)v->conf->crops,
		.tell = "chexnet eval",
	};

	if (evaluate(&ev, &v->model, &conf, e) == 0 && world_speaks(&v->world) && calibrate(v, &ev, &c, e) == 0) {
		if (v->conf->json) {
			print_json(v, &ev, &c, &conf, e);
		} else {
			evaluation_print(&ev, &conf, stdout);
			calibration_table_print(&c, stdout);
			fflush(stdout);
		}
		if (v->conf->predictions)
			write_predictions(v, &ev, e);
	}
	evaluation_free(&ev);
	return v->world.told ? -e->code : world_agree(&v->world, e);
}

static void say_fallback(const struct eval *v)
{
	const char *fallback = model_fallback(&v->world, (enum engine_choice)v->conf->engine.engine);

	if (fallback && world_speaks(&v->world))
		fprintf(stderr, "chexnet eval: %s\n", fallback);
}

static int eval(const struct eval_conf *conf, struct error *e)
{
	struct eval v = { .conf = conf };

	if (world_open(&v.world, "eval", model_on_cpu(conf->engine.engine), e) == 0 && open_data(&v, e) == 0 && open_model(&v, e) == 0) {
		say_fallback(&v);
		v.leaked = count_leaked(&v);
		judge(&v, e);
	}
	int rc = e->code ? world_end(&v.world, e) : EXIT_DONE;

	model_values_free(&v.values);
	model_close(&v.model);
	dataset_close(v.data);
	dataset_close(v.train);
	world_close(&v.world);
	return rc;
}

static int run(int argc, char **argv)
{
	struct eval_conf conf = { 0 };
	struct error e = { 0 };
	int rc = options_parse(&command_eval, argc, argv, &conf, NULL, &e);

	if (rc == 0)
		rc = check_weights(conf.weights, conf.weights_typed, &e);
	if (rc != 0)
		return rc < 0 ? world_refuse("eval", model_on_cpu(conf.engine.engine), &e) : EXIT_DONE;
	return eval(&conf, &e);
}

const struct command command_eval = {
	.name = "eval",
	.summary = "score a split: exact AUROC of every finding with 95 % intervals",
	.description = "Scores every image of a split exactly once over all tasks of the job step and prints the AUROC of each finding with an interval from "
		       "resampled patients. A finding without positives is n/a and not part of the mean, nor is one that the weights have not learnt: their training had no labels of it, or the same on every image. Resamples that lack another finding altogether are "
		       "left out of the mean's interval, which is not given where a tenth or less is left, or fewer than 40. A finding that fewer than 5 patients show, or fewer than 5 do not, has no interval. "
		       "Where the effective patients with it, or without it (the square of the sum of their images over the sum of the squares), times the AUROC's distance from 0 or 1 make less than 5, "
		       "or all resamples agree, resamples promise too much: the interval is Newcombe's (2006, method 5), no narrower than the resamples' standard deviation says on the logit scale, and the mean's is widened by it. "
		       "AUROC goes by the order of the images alone; below it stands what the probabilities are worth, of each finding that 10 patients or more show and 10 do not: Brier score and skill, observed over expected, and the calibration slope, "
		       "with intervals that take a patient's images for one.",
	.options = options,
	.advice = knob_advice,
	.run = run,
};
