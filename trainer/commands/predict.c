/* SPDX-License-Identifier: Apache-2.0
 * chexnet predict: image files in, 14 probabilities each out. */
#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/knobs.h"
#include "commands/maps.h"
#include "commands/network_options.h"
#include "data/dataset.h"
#include "data/findings.h"
#include "data/hash.h"
#include "files/file.h"
#include "image/image.h"
#include "image/resize.h"
#include "image/tone.h"
#include "json.h"
#include "learn/crops.h"
#include "learn/log.h"
#include "progress.h"

enum { MAX_IMAGES = 1 << 20, BATCH = 8 };

struct predict_conf {
	const char *weights, *maps, *finding, *boxes;
	int json, crops, image_size, resize, weights_typed;
	struct engine_options engine;
};

static const struct option options[] = {
	OPTION(STRING, struct predict_conf, weights, "weights", "FILE", NULL, "safetensors file: a checkpoint, a model, or torchvision's names",
	       .typed = offsetof(struct predict_conf, weights_typed)),
	OPTION(STRING, struct predict_conf, weights, "checkpoint", "FILE", NULL, "the same as --weights", .typed = offsetof(struct predict_conf, weights_typed)),
	OPTION(STRING, struct predict_conf, maps, "maps", "DIR", NULL, "write for every image a PNG that shows where the evidence lies (class activation map); one of another image of the same name stays, which is an error"),
	OPTION(STRING, struct predict_conf, finding, "finding", "NAME", NULL, "the finding that --maps shows; without it the most probable one of each image"),
	OPTION(INT, struct predict_conf, resize, "resize", "PIXELS", "0",
	       "for weights that another program saved: side of the square that images are made; 0: what the weights say, else 8/7 of --image-size", .min = 0, .max = 4096),
	OPTION(INT, struct predict_conf, image_size, "image-size", "PIXELS", "0",
	       "for such weights: side of the square in its middle that the network sees; 0: what the weights say, else 224", .min = 0, .max = 1024),
	OPTION(CHOICE, struct predict_conf, crops, "crops", "NAME", "none", "ten: mean probability over corners and middle, each also mirrored", .choices = crops_choices),
	OPTION(STRING, struct predict_conf, boxes, "boxes", "FILE", NULL, "NIH's BBox_List_2017.csv: score the maps of these images in the pointing game"),
	OPTION(FLAG, struct predict_conf, json, "json", NULL, NULL, "print a JSON array, one object an image, each as soon as it is scored"),
	ENGINE_OPTIONS(struct predict_conf, engine),
	OPTIONS_END
};

struct predictor {
	struct world here;
	struct net_plan plan;
	struct engine_layout layout;
	struct engine *engine;
	struct error engine_error;
	struct decoder *decoder[BATCH]; /* one for each of `readers` threads */
	int readers;
	int source_size;
	enum crops crops;
	char trained_on[sizeof ((struct checkpoint_notes *)0)->trained_on]; /* "": not known */
	int balanced; /* trained with --pos-weight=balanced: the probabilities are none */
	int unnamed; /* the order of the findings is assumed: of checkpoint_notes */
	uint32_t untrained; /* findings that these weights have not learnt: of checkpoint_notes */
	char weights_hash[WEIGHTS_HASH];
	uint8_t *pixels; /* [BATCH][source_size][source_size] */
	struct maps maps; /* zeroes where nothing is to be shown */
	int printed; /* rows of --json so far: none, or some */
	struct progress progress;
};

/* ---- opening ----------------------------------------------------------------------------------------- */

/* How large images are made, and the window that is cut of them: as the weights say, or the options where they do not; else in the proportion of
 * 256 to 224, which is said. */
static int settle_sizes(struct predictor *p, const struct predict_conf *conf, const struct checkpoint_notes *notes, struct net_conf *net, struct error *e)
{
	int image = size_of_weights(conf->weights, "image-size", notes->image_size, conf->image_size, e);
	int source = size_of_weights(conf->weights, "resize", notes->source_size, conf->resize, e);

	if (e->code)
		return -e->code;
	net->image_size = image ? image : net->image_size;
	p->source_size = source >= net->image_size || conf->resize ? source : net->image_size * 8 / 7;
	if (p->source_size < net->image_size)
		return fail(e, EXIT_USAGE, "--resize=%d: the network sees %d pixels a side: more, or a smaller --image-size", conf->resize, net->image_size);
	if (!image || !source)
		fprintf(stderr, "chexnet predict: %s does not say how large its images were: they are made %d pixels a side here, of which the network sees the middle %d "
				"(--resize=PIXELS, --image-size=PIXELS)\n", conf->weights, p->source_size, net->image_size);
	return 0;
}

static int load_engine(struct predictor *p, const struct predict_conf *conf, const struct checkpoint *c, struct error *e)
{
	struct engine_conf ec = {
		.plan = &p->plan, .layout = &p->layout, .precision = (enum precision)conf->engine.precision, .batch = BATCH, .channels = 1,
		.source_size = p->source_size, .threads = threads_from_options(&conf->engine, &p->here), .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8,
	};
	const enum engine_choice choice = (enum engine_choice)conf->engine.engine;
	const char *fallback = model_fallback(&p->here, choice);
	enum engine_kind kind;
	struct model_values v;

	if (model_choose_engine(&p->here, choice, &kind, e) < 0)
		return -e->code;
	if (engine_open(&p->engine, kind, &ec, &p->engine_error) < 0)
		return fail(e, (enum exit_code)p->engine_error.code, "%s", p->engine_error.text);
	if (fallback)
		fprintf(stderr, "chexnet predict: %s\n", fallback);
	if (model_values_alloc(&v, &p->plan, 0, e) < 0)
		return -e->code;
	if (checkpoint_load(c, &p->plan, &v, NULL, e) == 0 &&
	    (engine_put(p->engine, ENGINE_PARAMS, 0, v.params, p->plan.n_weights) < 0 ||
	     engine_put(p->engine, ENGINE_RUNNING_MEAN, 0, v.mean, p->plan.n_bn_channels) < 0 ||
	     engine_put(p->engine, ENGINE_RUNNING_VAR, 0, v.variance, p->plan.n_bn_channels) < 0))
		fail(e, EXIT_INTERNAL, "%s", p->engine_error.text);
	model_values_hash(p->weights_hash, &v, &p->plan);
	model_values_free(&v);
	return e->code ? -e->code : 0;
}

/* A number for what was never learnt looks like any other. */
static int leave_out_untrained(struct predictor *p, const struct predict_conf *conf, uint32_t untrained, struct error *e)
{
	int shown = conf->finding ? finding_index(conf->finding, (int)strlen(conf->finding)) : -1;
	char names[FINDING_HINT];

	p->untrained = untrained;
	findings_write(names, sizeof names, untrained, ", ");
	if (shown >= 0 && untrained >> shown & 1)
		return fail(e, EXIT_USAGE, "--finding=%s: the last training of %s had no labels of it, or none that differ (%s)", conf->finding, conf->weights, names);
	if (untrained)
		fprintf(stderr, "chexnet predict: n/a: %s: the last training of these weights had no labels of %s, or none that differ\n", names, untrained & (untrained - 1) ? "them" : "it");
	return 0;
}

/* Whoever sees percentages beside findings may take them for a diagnosis. */
static void say_what_it_is(const struct predictor *p, const struct checkpoint_notes *notes)
{
	fprintf(stderr, "chexnet predict: for research, not a medical device: %s the training set's prevalence and labels (%s%s)",
		checkpoint_balanced(notes) ? "the numbers go by" : "these are probabilities under", *notes->trained_on ? notes->trained_on : "the weights do not say of which images",
		source_is_synthetic(notes->trained_on) ? ": drawn by a program, so they say nothing about radiographs" : "");
	if (p->crops == CROPS_NONE && p->plan.image_size < p->source_size)
		fprintf(stderr, "; the network sees the middle %.3g %% of each side of an image", 100.0 * p->plan.image_size / p->source_size);
	fprintf(stderr, "\n");
}

/* An even picture would hide it. */
static void say_uncovered(const struct predictor *p)
{
	int window = p->plan.image_size, pitch = (int)p->maps.grid.pitch, n = cam_uncovered(&p->maps.grid, window);
	char why[64] = "";

	if (n < CAM_UNCOVERED)
		return;
	if (p->plan.family == NET_DENSENET) /* a ResNet's end before multiples too */
		snprintf(why, sizeof why, ", as %d is no multiple of their %d pixels", window, pitch);
	fprintf(stderr, "chexnet predict: the maps' cells do not reach the last %d of the %d columns and rows that the network sees%s: %sevidence in them moves to the cells "
			"before\n", n, window, why, p->maps.directory ? "these are darkened, and " : "");
}

static int predictor_open(struct predictor *p, const struct predict_conf *conf, struct error *e)
{
	struct checkpoint *c;
	struct checkpoint_notes notes;
	struct net_conf net;

	if (world_alone(&p->here, "predict", e) < 0 || checkpoint_open(&c, conf->weights, &net, &notes, e) < 0)
		return -e->code;
	if (checkpoint_balanced(&notes))
		fprintf(stderr, "chexnet predict: warning: these weights were trained with --pos-weight=balanced: their probabilities rank images, and are far above "
				"the share that shows a finding\n");
	p->balanced = checkpoint_balanced(&notes);
	p->unnamed = notes.unnamed;
	snprintf(p->trained_on, sizeof p->trained_on, "%s", notes.trained_on);
	p->crops = (enum crops)conf->crops;
	const int said = threads_from_options(&conf->engine, &p->here), threads = said ? said : omp_get_num_procs();
	for (int i = 0; i < BATCH && i < threads && (p->decoder[i] = decoder_new()); i++)
		p->readers++;
	if (settle_sizes(p, conf, &notes, &net, e) == 0)
		p->pixels = malloc((size_t)BATCH * (size_t)p->source_size * (size_t)p->source_size);
	if (net.classes != FINDINGS)
		fail(e, EXIT_DATA, "%s has %d outputs, not the %d findings", conf->weights, net.classes, FINDINGS);
	else if (!p->readers || !p->pixels)
		fail(e, EXIT_INTERNAL, "no memory");
	else if (net_plan_make(&p->plan, &net, e) == 0 && engine_layout_make(&p->layout, &p->plan, e) == 0 && load_engine(p, conf, c, e) == 0 &&
		 leave_out_untrained(p, conf, notes.untrained, e) == 0 && (conf->maps || conf->boxes))
		maps_open(&p->maps, conf->maps, conf->finding, conf->boxes, &p->plan, p->engine, &p->engine_error, p->source_size, BATCH, e);
	p->maps.untrained = p->untrained;
	p->maps.ten_crops = p->crops == CROPS_TEN;
	p->maps.weights_hash = p->weights_hash;
	if (!e->code && notes.unnamed)
		say_findings("predict", conf->weights);
	if (!e->code)
		say_what_it_is(p, &notes);
	if (!e->code && p->maps.features)
		say_uncovered(p);
	checkpoint_close(c);
	return e->code ? -e->code : 0;
}

static void predictor_close(struct predictor *p)
{
	engine_close(p->engine);
	engine_layout_free(&p->layout);
	net_plan_free(&p->plan);
	for (int i = 0; i < p->readers; i++)
		decoder_free(p->decoder[i]);
	free(p->pixels);
	maps_close(&p->maps);
	world_close(&p->here);
}

/* ---- images ------------------------------------------------------------------------------------------ */

static int read_image(const struct predictor *p, struct decoder *decoder, const char *path, uint8_t *pixels, struct original *original, struct error *e)
{
	char *file = NULL;
	size_t size = 0;
	struct image image = { 0 };
	struct error why = { 0 };

	if (image_read(&file, &size, path, e) < 0)
		return -(e->code = EXIT_DATA); /* whatever keeps it back, it was named to be read */
	if (decode_image(decoder, (const uint8_t *)file, size, &image, &why) < 0)
		fail(e, (enum exit_code)why.code, "%s: %s", path, why.text);
	else if (resize_area(image.pixels, image.width, image.height, pixels, p->source_size, &why) < 0)
		fail(e, (enum exit_code)why.code, "%s: %s", path, why.text);
	*original = (struct original){ .width = image.width, .height = image.height, .hash = p->maps.directory ? hash_bytes(0, file, size) : 0 };
	free(file);
	return e->code ? -e->code : 0;
}

/* What a network says about a picture of nothing, or about a negative, looks like any other answer. */
static void warn_of_tone(struct predictor *p, const char *path, const uint8_t *pixels)
{
	struct tone tone = tone_measure(pixels, p->source_size, p->source_size);
	enum tone_kind kind = tone_kind(&tone);

	if (kind != TONE_FINE)
		progress_end(&p->progress);
	if (kind == TONE_CONSTANT)
		fprintf(stderr, "chexnet predict: warning: %s: every pixel is of the same gray, %d of 255: nothing is to be seen, and its probabilities mean nothing\n",
			path, pixels[0]);
	else if (kind == TONE_INVERTED)
		fprintf(stderr, "chexnet predict: warning: %s: looks inverted (a border brighter than its body): bones are to be light, and its probabilities are those of a negative\n",
			path);
	else if (kind == TONE_EMPTY)
		fprintf(stderr, "chexnet predict: warning: %s: nearly %s (%.0f of 255 on average): hardly anything is to be seen, and its probabilities mean little\n", path,
			tone.mean < 128 ? "black" : "white", (double)tone.mean);
}

/* The square that the network sees is made of any image; of these it shows something else than a radiograph does. */
static void warn_of_shape(struct predictor *p, const char *path, const struct original *original)
{
	int width = original->width, height = original->height, input = p->plan.image_size;
	enum image_shape shape = image_shape(width, height, input);

	if (shape != SHAPE_FINE)
		progress_end(&p->progress);
	if (shape == SHAPE_STRETCHED)
		fprintf(stderr, "chexnet predict: warning: %s: %d x %d pixels are stretched into a square: its probabilities are those of a distorted image\n", path, width, height);
	else if (shape == SHAPE_ENLARGED)
		fprintf(stderr, "chexnet predict: warning: %s: %d x %d pixels, and the network sees %d a side: what was finer is lost, and its probabilities may be off\n", path, width,
			height, input);
}

static double probability(float logit)
{
	return 1 / (1 + exp(-(double)logit));
}

static void add_map(cJSON *map, const struct shown *s)
{
	cJSON_AddStringToObject(map, "finding", finding_names[s->finding]);
	cJSON_AddStringToObject(map, "file", s->file);
	json_number(map, "x", s->x);
	json_number(map, "y", s->y);
	json_number(map, "peak", s->peak);
	json_number(map, "raised", s->raised);
	json_number(map, "cells", s->cells);
	cJSON *window = cJSON_AddObjectToObject(map, "window");

	json_number(window, "x", s->window.x);
	json_number(window, "y", s->window.y);
	json_number(window, "width", s->window.width);
	json_number(window, "height", s->window.height);
}

static void add_pointed(cJSON *row, const char *path, const struct pointed *maps, int n)
{
	const uint32_t patient = pointing_patient(path);
	cJSON *pointing = cJSON_AddObjectToObject(row, "pointing"), *findings;

	json_number(pointing, "patient", patient ? (double)patient : NAN);
	findings = cJSON_AddObjectToObject(pointing, "findings");
	for (int i = 0; i < n; i++) {
		cJSON *map = cJSON_AddObjectToObject(findings, finding_names[maps[i].finding]);

		cJSON_AddBoolToObject(map, "hit", maps[i].hit);
		json_number(map, "chance", maps[i].chance);
	}
}

static cJSON *row_json(const char *path, const float *logits, const struct predictor *p, const struct shown *s, const struct pointed *maps, int n_maps, const struct error *e)
{
	cJSON *row = cJSON_CreateObject(), *probabilities, *raw, *untrained;

	cJSON_AddStringToObject(row, "image", path);
	if (e->code) {
		cJSON_AddStringToObject(row, "error", e->text);
		return row;
	}
	probabilities = cJSON_AddObjectToObject(row, "probabilities");
	raw = cJSON_AddObjectToObject(row, "logits");
	for (int f = 0; f < FINDINGS; f++) {
		json_number(probabilities, finding_names[f], p->untrained >> f & 1 ? NAN : probability(logits[f]));
		json_number(raw, finding_names[f], logits[f]);
	}
	untrained = p->untrained ? cJSON_AddArrayToObject(row, "untrained") : NULL;
	for (int f = 0; f < FINDINGS; f++)
		if (p->untrained >> f & 1)
			cJSON_AddItemToArray(untrained, cJSON_CreateString(finding_names[f]));
	if (p->balanced) /* who keeps this has not kept standard error, where a line says it */
		cJSON_AddStringToObject(row, "pos_weight", "balanced");
	if (p->unnamed)
		cJSON_AddStringToObject(row, "order", "assumed");
	json_text(row, "trained_on", p->trained_on);
	cJSON_AddStringToObject(row, "weights_hash", p->weights_hash);
	cJSON_AddStringToObject(row, "version", HVD_VERSION);
	cJSON_AddStringToObject(row, "notice", "for research, not a medical device");
	if (*s->file)
		add_map(cJSON_AddObjectToObject(row, "map"), s);
	if (n_maps)
		add_pointed(row, path, maps, n_maps);
	return row;
}

/* Four digits, and no exponent: a rare finding's threshold is a few thousandths. More where four would round to certainty. */
static int decimals(double p)
{
	double rest = fmax(1 - p, 1e-9);

	return p < 0.1 ? 3 - (int)floor(log10(fmax(p, 1e-9))) : rest < 1e-4 ? -(int)floor(log10(rest)) : 4;
}

static void print_rows(const char *path, const float *logits, uint32_t untrained)
{
	int order[FINDINGS], n = 0;

	for (int f = 0; f < FINDINGS; f++) {
		int at = n;

		if (untrained >> f & 1)
			continue;
		n++;
		for (; at > 0 && logits[order[at - 1]] < logits[f]; at--)
			order[at] = order[at - 1];
		order[at] = f;
	}
	printf("%s\n", path);
	for (int i = 0; i < n; i++) {
		double p = probability(logits[order[i]]);

		printf("  %-20s %.*f\n", finding_names[order[i]], decimals(p), p);
	}
	for (int f = 0; f < FINDINGS; f++)
		if (untrained >> f & 1)
			printf("  %-20s n/a\n", finding_names[f]);
}

static int all_finite(const float *logits)
{
	for (int f = 0; f < FINDINGS; f++)
		if (!isfinite(logits[f]))
			return 0;
	return 1;
}

/* Up to BATCH images; bad ones are told and leave a gap. Returns the worst exit code of an image, negative when the engine fails. */
static int predict_some(struct predictor *p, int json, int n, char **paths, struct error *e)
{
	size_t pixels = (size_t)p->source_size * (size_t)p->source_size;
	struct error bad[BATCH] = { 0 };
	float logits[BATCH][FINDINGS];
	struct original original[BATCH];
	int good = 0, at[BATCH], worst = 0;

#pragma omp parallel for schedule(dynamic, 1) num_threads(p->readers < n ? p->readers : n)
	for (int i = 0; i < n; i++)
		read_image(p, p->decoder[omp_get_thread_num()], paths[i], p->pixels + (size_t)i * pixels, &original[i], &bad[i]);
	for (int i = 0; i < n; i++) {
		at[i] = good;
		if (!bad[i].code && good++ < i)
			memcpy(p->pixels + (size_t)at[i] * pixels, p->pixels + (size_t)i * pixels, pixels);
	}
	struct engine_batch batch = { .count = good, .pixels = p->pixels };

	if (good && crops_forward(p->engine, &batch, p->crops, p->source_size, p->plan.image_size, FINDINGS, logits[0], p->maps.features) < 0)
		return fail(e, EXIT_INTERNAL, "%s", p->engine_error.text);
	for (int i = 0; i < n; i++) {
		struct shown shown = { 0 };
		struct pointed pointed[FINDINGS];
		int n_pointed = 0;
		char name[FILE_PATH];

		snprintf(name, sizeof name, "%s", paths[i]);
		controls_mend(name); /* it is printed, and a line end in it would pass for the next row's */
		if (!bad[i].code && !all_finite(logits[at[i]]))
			fail(&bad[i], EXIT_INTERNAL, "%s: the network's output is not a number", paths[i]);
		if (bad[i].code) {
			progress_end(&p->progress);
			fprintf(stderr, "chexnet predict: %s\n", bad[i].text);
		} else {
			warn_of_tone(p, name, p->pixels + (size_t)at[i] * pixels);
			warn_of_shape(p, name, &original[i]);
		}
		worst = bad[i].code > worst ? bad[i].code : worst;

		if (p->maps.boxes.n && !bad[i].code && (n_pointed = maps_point(&p->maps, at[i], paths[i], &original[i], pointed, e)) < 0)
			return -e->code;
		if (p->maps.directory && !bad[i].code && maps_write(&p->maps, at[i], paths[i], &original[i], p->pixels + (size_t)at[i] * pixels, logits[at[i]], &shown, e) < 0)
			return -e->code;
		if (json && json_print_next(row_json(paths[i], logits[at[i]], p, &shown, pointed, n_pointed, &bad[i]), &p->printed, e) < 0)
			return -e->code;
		if (!json && !bad[i].code)
			print_rows(name, logits[at[i]], p->untrained);
		if (!json && *shown.file)
			printf("  map %s\n", controls_mend(shown.file));
	}
	if (fflush(stdout) || ferror(stdout)) /* hours of scoring would be for nothing */
		return fail(e, EXIT_INTERNAL, "what was printed is not complete: %s", strerror(errno));
	return worst;
}

static int print_pointing(const struct pointing *p, FILE *out, struct error *e)
{
	struct pointing_table t;

	if (pointing_judge(p, atoi(RESAMPLES_DEFAULT), 1, &t))
		return fail(e, EXIT_INTERNAL, "no memory for the pointing game");
	pointing_print(&t, out);
	return 0;
}

static int predict(const struct predict_conf *conf, int n, char **paths, struct error *e)
{
	struct predictor p = { 0 };
	int rc = predictor_open(&p, conf, e), worst = 0;

	/* text on a terminal tells by itself */
	progress_begin(&p.progress, conf->json || !isatty(STDOUT_FILENO) ? "chexnet predict" : NULL, (size_t)n);
	for (int i = 0; rc >= 0 && i < n; i += BATCH) {
		rc = predict_some(&p, conf->json, n - i < BATCH ? n - i : BATCH, paths + i, e);
		worst = rc > worst ? rc : worst;
		progress_tell(&p.progress, (size_t)(n - i < BATCH ? n : i + BATCH));
	}
	progress_end(&p.progress);
	if (rc >= 0 && conf->json)
		puts("]");
	if (rc >= 0 && conf->boxes && print_pointing(&p.maps.pointing, conf->json ? stderr : stdout, e) < 0)
		rc = -e->code;
	predictor_close(&p);
	return rc < 0 ? rc : worst;
}

static int run(int argc, char **argv)
{
	struct predict_conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_parse(&command_predict, argc, argv, &conf, &n, &e);

	if (rc == 0)
		rc = check_weights(conf.weights, conf.weights_typed, &e);
	if (rc == 0 && conf.finding && !conf.maps)
		rc = fail(&e, EXIT_USAGE, "--finding=%s says what --maps=DIR shows, which is not given", conf.finding);
	if (rc == 0 && conf.maps)
		rc = maps_check_names(conf.maps, conf.finding, n, argv + 1, &e);
	if (rc == 0 && conf.boxes)
		rc = maps_check_once(n, argv + 1, &e);
	if (rc == 0)
		rc = predict(&conf, n, argv + 1, &e);
	else if (rc == 1)
		return EXIT_DONE;
	return rc < 0 ? report_error(&command_predict, &e) : rc;
}

const struct command command_predict = {
	.name = "predict",
	.operands = "IMAGE…",
	.min_operands = 1,
	.max_operands = MAX_IMAGES,
	.summary = "probabilities of the 14 findings for PNG or JPEG files",
	.description = "Prints the probability of each finding for every image, with --json to its last digit: an array that ends with ] when all images have been tried, so that what was cut off is no JSON. For research; not a medical device: a probability holds under the prevalence and the labels of the "
		       "training set, which a line on standard error names. Bones are to be light: an inverted image is scored like any other, with a warning where its border is brighter than its body. Images go through the same decoding and resizing as in preparation, eight at a time, by up to as many threads as compute. An image that "
		       "cannot be read is named and the others are scored all the same; the exit code is then 65. Every task of a job step scores all the images. The network sees the middle of an image: a "
		       "window that is to the whole as training's --image-size is to the prepared images (by default about 7/8 of each side), so its rim has no part in the "
		       "probabilities (only with --crops=ten it has), and none in a map. --maps writes overlays that "
		       "chexnet report --pictures takes: a white frame holds that window, and where the image is darkened no colour can be; colours are full where all coloured cells together add 2 or more to the finding's logit, and fainter where they add less. In the \"map\" of --json, "
		       "x and y are the middle of the strongest cell as shares of the image's sides (null where no cell speaks for the finding), peak is what it adds to the logit, "
		       "raised what all that speak for the finding add, cells their number a side, window what the network sees, in pixels of the given image. --boxes counts the maps whose strongest point lies in a box of their finding, "
		       "beside how many cells of the maps at random would make: their share has a 95 % interval over patients, whom names like 00000001_000.png tell (--json prints this on standard error, "
		       "and \"pointing\" in each image's object). Images without a box, such as those that do not show the finding, have no part in it.",
	.options = options,
	.advice = knob_advice,
	.run = run,
};
