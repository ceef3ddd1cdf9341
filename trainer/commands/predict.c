/* SPDX-License-Identifier: Apache-2.0
 * chexnet predict: image files in, 14 probabilities each out. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "commands/network_options.h"
#include "data/file.h"
#include "data/findings.h"
#include "data/image.h"
#include "data/resize.h"
#include "learn/cam.h"
#include "learn/crops.h"
#include "learn/log.h"
#include "learn/pointing.h"
#include "utf8.h"

enum { MAX_IMAGES = 1 << 20, BATCH = 8 };

struct predict_conf {
	const char *weights, *maps, *finding, *boxes;
	int json, crops;
	struct engine_options engine;
};

static const struct option options[] = {
	OPTION(STRING, struct predict_conf, weights, "weights", "FILE", NULL, "safetensors file: a checkpoint, a model, or torchvision's names"),
	OPTION(STRING, struct predict_conf, maps, "maps", "DIR", NULL, "write for every image a PNG that shows where the evidence lies (class activation map)"),
	OPTION(STRING, struct predict_conf, finding, "finding", "NAME", NULL, "the finding that --maps shows; without it the most probable one of each image"),
	OPTION(CHOICE, struct predict_conf, crops, "crops", "NAME", "none", "ten: mean probability over corners and middle, each also mirrored", .choices = crops_choices),
	OPTION(STRING, struct predict_conf, boxes, "boxes", "FILE", NULL, "NIH's BBox_List_2017.csv: score the maps of these images in the pointing game"),
	OPTION(FLAG, struct predict_conf, json, "json", NULL, NULL, "print a JSON array, one object an image"),
	ENGINE_OPTIONS(struct predict_conf, engine),
	OPTIONS_END
};

struct predictor {
	struct world here;
	struct net_plan plan;
	struct engine_layout layout;
	struct engine *engine;
	struct error engine_error;
	struct decoder *decoder;
	int source_size;
	enum crops crops;
	uint8_t *pixels; /* [BATCH][source_size][source_size] */

	/* for --maps and --boxes */
	const char *maps; /* directory or NULL */
	struct boxes boxes; /* n 0: none */
	struct pointing pointing;
	int finding;      /* -1: the most probable one */
	int channels, side;
	float *features;  /* [BATCH][channels][side][side] */
	float *weight;    /* [FINDINGS][channels] the classifier's */
};

/* What --maps shows of an image. */
struct shown {
	int finding;
	char file[FILE_PATH];
	double x, y; /* of the strongest evidence, as a share of the image's sides */
};

/* ---- opening ----------------------------------------------------------------------------------------- */

/* Side that training images had before the window was cut: as noted, else in the proportion of 256 to 224. */
static int source_size_of(const struct checkpoint_notes *notes, int image_size)
{
	return notes->source_size >= image_size ? notes->source_size : image_size * 8 / 7;
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
	model_values_free(&v);
	return e->code ? -e->code : 0;
}

static int prepare_maps(struct predictor *p, const struct predict_conf *conf, struct error *e)
{
	const struct net_param *classifier = &p->plan.params[p->plan.layers[p->plan.n_layers - 1].weight];

	p->maps = conf->maps;
	p->finding = conf->finding ? finding_index(conf->finding, (int)strlen(conf->finding)) : -1;
	if (conf->finding && p->finding < 0) {
		char hint[FINDING_HINT];

		return fail(e, EXIT_USAGE, "--finding=%s: no finding is called that (%s)", conf->finding, finding_hint(conf->finding, (int)strlen(conf->finding), hint));
	}
	for (int i = 0; i < p->plan.n_layers; i++)
		if (p->plan.layers[i].op == OP_GLOBAL_AVGPOOL) {
			p->channels = p->plan.layers[i].c_in;
			p->side = p->plan.layers[i].h_in;
		}
	p->features = malloc((size_t)BATCH * (size_t)(p->channels * p->side * p->side) * sizeof *p->features);
	p->weight = malloc(classifier->count * sizeof *p->weight);
	if (!p->features || !p->weight)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (engine_get(p->engine, ENGINE_PARAMS, classifier->offset, p->weight, classifier->count) < 0)
		return fail(e, EXIT_INTERNAL, "%s", p->engine_error.text);
	if (p->maps && mkdir(p->maps, 0777) && errno != EEXIST)
		return fail(e, EXIT_INTERNAL, "%s: cannot be made: %s", p->maps, strerror(errno));
	return conf->boxes ? boxes_read(&p->boxes, conf->boxes, e) : 0;
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
	p->source_size = source_size_of(&notes, net.image_size);
	p->crops = (enum crops)conf->crops;
	p->decoder = decoder_new();
	p->pixels = malloc((size_t)BATCH * (size_t)p->source_size * (size_t)p->source_size);
	if (net.classes != FINDINGS)
		fail(e, EXIT_DATA, "%s has %d outputs, not the %d findings", conf->weights, net.classes, FINDINGS);
	else if (!p->decoder || !p->pixels)
		fail(e, EXIT_INTERNAL, "no memory");
	else if (net_plan_make(&p->plan, &net, e) == 0 && engine_layout_make(&p->layout, &p->plan, e) == 0 && load_engine(p, conf, c, e) == 0 &&
		 (conf->maps || conf->boxes))
		prepare_maps(p, conf, e);
	checkpoint_close(c);
	return e->code ? -e->code : 0;
}

static void predictor_close(struct predictor *p)
{
	engine_close(p->engine);
	engine_layout_free(&p->layout);
	net_plan_free(&p->plan);
	decoder_free(p->decoder);
	free(p->pixels);
	free(p->features);
	free(p->weight);
	boxes_free(&p->boxes);
	world_close(&p->here);
}

/* ---- names ------------------------------------------------------------------------------------------- */

static const char *file_name(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* An image's name without .png or .jpg; dots within, as in a DICOM UID, stay. */
struct stem {
	const char *path, *name;
	int length;
};

static struct stem stem_of(const char *path)
{
	const char *name = file_name(path), *dot = strrchr(name, '.');
	int image = dot && dot > name && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);

	return (struct stem){ .path = path, .name = name, .length = image ? (int)(dot - name) : (int)strlen(name) };
}

static int compare_stems(const void *a, const void *b)
{
	const struct stem *x = a, *y = b;
	int shared = x->length < y->length ? x->length : y->length, order = strncmp(x->name, y->name, (size_t)shared);

	return order ? order : x->length != y->length ? x->length - y->length : strcmp(x->path, y->path);
}

/* Maps are named for their images, so another image of the same name would take the first one's place. */
static int check_names(const struct predict_conf *conf, int n, char **paths, struct error *e)
{
	struct stem *stems = malloc((size_t)n * sizeof *stems);

	if (!stems)
		return fail(e, EXIT_INTERNAL, "no memory for the names of %d images", n);
	for (int i = 0; i < n; i++)
		stems[i] = stem_of(paths[i]);
	qsort(stems, (size_t)n, sizeof *stems, compare_stems);
	for (int i = 1; i < n; i++)
		if (stems[i].length == stems[i - 1].length && strncmp(stems[i].name, stems[i - 1].name, (size_t)stems[i].length) == 0 &&
		    strcmp(stems[i].path, stems[i - 1].path) != 0)
			fail(e, EXIT_USAGE, "%s and %s would both have the map %s/%.*s.FINDING.png: give them other names, or a --maps=DIR and a call each", stems[i - 1].path,
			     stems[i].path, conf->maps, stems[i].length, stems[i].name);
	free(stems);
	return -e->code;
}

/* ---- images ------------------------------------------------------------------------------------------ */

static int read_image(struct predictor *p, const char *path, uint8_t *pixels, int original[2], struct error *e)
{
	struct mapped_file file;
	struct image image = { 0 };
	struct error why = { 0 };

	if (file_map(&file, path, e) < 0)
		return -(e->code = EXIT_DATA); /* whatever keeps it back, it was named to be read */
	if (decode_image(p->decoder, file.data, file.size, &image, &why) < 0)
		fail(e, (enum exit_code)why.code, "%s: %s", path, why.text);
	else if (resize_area(image.pixels, image.width, image.height, pixels, p->source_size, &why) < 0)
		fail(e, (enum exit_code)why.code, "%s: %s", path, why.text);
	original[0] = image.width;
	original[1] = image.height;
	file_unmap(&file);
	return e->code ? -e->code : 0;
}

/* What a network says about a picture of nothing looks like any other answer. */
static void warn_if_blank(const char *path, const uint8_t *pixels, size_t n)
{
	if (memcmp(pixels, pixels + 1, n - 1) == 0)
		fprintf(stderr, "chexnet predict: warning: %s: every pixel is of the same gray, %d of 255: nothing is to be seen, and its probabilities mean nothing\n",
			path, pixels[0]);
}

static double probability(float logit)
{
	return 1 / (1 + exp(-(double)logit));
}

/* The map of a finding for the image in row `row` of the batch. map: [side][side], filled. */
static struct cam make_map(const struct predictor *p, int row, int finding, float *map)
{
	size_t image = (size_t)p->channels * (size_t)p->side * (size_t)p->side;

	return cam_make(p->features + (size_t)row * image, p->channels, p->side, p->weight + (size_t)finding * (size_t)p->channels, map);
}

/* Where a map's peak is as a share of the image's sides: the network saw the window in its middle. */
static double of_image(const struct predictor *p, double peak)
{
	double window = (double)p->plan.image_size / p->source_size;

	return (1 - window) / 2 + window * peak;
}

static int play_pointing(struct predictor *p, int row, const char *path, const int original[2], struct error *e)
{
	uint32_t findings = boxes_findings(&p->boxes, file_name(path));
	float *map = findings ? malloc((size_t)p->side * (size_t)p->side * sizeof *map) : NULL;

	if (findings && !map)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (boxes_fit(&p->boxes, file_name(path), original[0], original[1], e) < 0)
		findings = 0;
	for (int f = 0; f < FINDINGS; f++)
		if (findings >> f & 1) {
			struct cam cam = make_map(p, row, f, map);

			pointing_add(&p->pointing, &p->boxes, file_name(path), f, of_image(p, cam.peak_x), of_image(p, cam.peak_y), original[0], original[1]);
		}
	free(map);
	return e->code ? -e->code : 0;
}

/* DIR/IMAGE.FINDING.png for the image in row `row` of the batch. */
static int write_map(struct predictor *p, int row, const char *path, const float *logits, struct shown *s, struct error *e)
{
	size_t pixels = (size_t)p->source_size * (size_t)p->source_size;
	struct stem stem = stem_of(path);
	float *map = malloc((size_t)p->side * (size_t)p->side * sizeof *map);
	uint8_t *rgb = malloc(3 * pixels);

	s->finding = p->finding < 0 ? 0 : p->finding;
	for (int f = 1; f < FINDINGS && p->finding < 0; f++)
		if (logits[f] > logits[s->finding])
			s->finding = f;
	if (!map || !rgb) {
		fail(e, EXIT_INTERNAL, "no memory");
	} else if (path_join(s->file, e, "%s/%.*s.%s.png", p->maps, stem.length, stem.name, finding_names[s->finding]) == 0) {
		struct cam cam = make_map(p, row, s->finding, map);

		s->x = of_image(p, cam.peak_x);
		s->y = of_image(p, cam.peak_y);
		cam_overlay(&cam, p->pixels + (size_t)row * pixels, p->source_size, p->plan.image_size, rgb);
		rgb_write_png(s->file, rgb, p->source_size, e);
	}
	free(map);
	free(rgb);
	return e->code ? -e->code : 0;
}

static void add_json(cJSON *list, const char *path, const float *logits, const struct shown *s, const struct error *e)
{
	cJSON *row = cJSON_CreateObject(), *probabilities, *raw;

	cJSON_AddItemToArray(list, row);
	cJSON_AddStringToObject(row, "image", path);
	if (e->code) {
		cJSON_AddStringToObject(row, "error", e->text);
		return;
	}
	probabilities = cJSON_AddObjectToObject(row, "probabilities");
	raw = cJSON_AddObjectToObject(row, "logits");
	for (int f = 0; f < FINDINGS; f++) {
		json_number(probabilities, finding_names[f], probability(logits[f]));
		json_number(raw, finding_names[f], logits[f]);
	}
	if (*s->file) {
		cJSON *map = cJSON_AddObjectToObject(row, "map");

		cJSON_AddStringToObject(map, "finding", finding_names[s->finding]);
		cJSON_AddStringToObject(map, "file", s->file);
		json_number(map, "x", s->x);
		json_number(map, "y", s->y);
	}
}

static void print_rows(const char *path, const float *logits)
{
	int order[FINDINGS];

	for (int f = 0; f < FINDINGS; f++) {
		int at = f;

		for (; at > 0 && logits[order[at - 1]] < logits[f]; at--)
			order[at] = order[at - 1];
		order[at] = f;
	}
	printf("%s\n", path);
	for (int i = 0; i < FINDINGS; i++)
		printf("  %-20s %.4f\n", finding_names[order[i]], probability(logits[order[i]]));
}

static int all_finite(const float *logits)
{
	for (int f = 0; f < FINDINGS; f++)
		if (!isfinite(logits[f]))
			return 0;
	return 1;
}

/* Up to BATCH images; bad ones are told and leave a gap. Returns the worst exit code of an image, negative when the engine fails. */
static int predict_some(struct predictor *p, int json, cJSON *list, int n, char **paths, struct error *e)
{
	size_t pixels = (size_t)p->source_size * (size_t)p->source_size;
	struct error bad[BATCH] = { 0 };
	float logits[BATCH][FINDINGS];
	int good = 0, at[BATCH], original[BATCH][2], worst = 0;

	for (int i = 0; i < n; i++) {
		at[i] = good;
		if (read_image(p, paths[i], p->pixels + (size_t)good * pixels, original[i], &bad[i]) == 0)
			good++;
	}
	struct engine_batch batch = { .count = good, .pixels = p->pixels };

	if (good && crops_forward(p->engine, &batch, p->crops, p->source_size, p->plan.image_size, FINDINGS, logits[0], p->features) < 0)
		return fail(e, EXIT_INTERNAL, "%s", p->engine_error.text);
	for (int i = 0; i < n; i++) {
		struct shown shown = { 0 };

		if (!bad[i].code && !all_finite(logits[at[i]]))
			fail(&bad[i], EXIT_INTERNAL, "%s: the network's output is not a number", paths[i]);
		if (bad[i].code)
			fprintf(stderr, "chexnet predict: %s\n", bad[i].text);
		else
			warn_if_blank(paths[i], p->pixels + (size_t)at[i] * pixels, pixels);
		worst = bad[i].code > worst ? bad[i].code : worst;

		if (p->boxes.n && !bad[i].code && play_pointing(p, at[i], paths[i], original[i], e) < 0)
			return -e->code;
		if (p->maps && !bad[i].code && write_map(p, at[i], paths[i], logits[at[i]], &shown, e) < 0)
			return -e->code;
		if (json)
			add_json(list, paths[i], logits[at[i] < BATCH ? at[i] : 0], &shown, &bad[i]);
		else if (!bad[i].code)
			print_rows(paths[i], logits[at[i]]);
		if (!json && *shown.file)
			printf("  map %s\n", shown.file);
	}
	return worst;
}

static int predict(const struct predict_conf *conf, int n, char **paths, struct error *e)
{
	struct predictor p = { 0 };
	cJSON *list = cJSON_CreateArray();
	int rc = predictor_open(&p, conf, e), worst = 0;

	for (int i = 0; rc >= 0 && i < n; i += BATCH) {
		rc = predict_some(&p, conf->json, list, n - i < BATCH ? n - i : BATCH, paths + i, e);
		worst = rc > worst ? rc : worst;
	}
	if (rc >= 0 && conf->json) {
		char *text = utf8_mend(cJSON_Print(list));

		puts(text ? text : "[]");
		cJSON_free(text);
	}
	if (rc >= 0 && conf->boxes)
		pointing_print(&p.pointing, conf->json ? stderr : stdout);
	cJSON_Delete(list);
	predictor_close(&p);
	return rc < 0 ? rc : worst;
}

static int run(int argc, char **argv)
{
	struct predict_conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_parse(&command_predict, argc, argv, &conf, &n, &e);

	if (rc == 0 && !conf.weights)
		rc = fail(&e, EXIT_USAGE, "--weights=FILE is needed");
	if (rc == 0 && conf.finding && !conf.maps)
		rc = fail(&e, EXIT_USAGE, "--finding=%s says what --maps=DIR shows, which is not given", conf.finding);
	if (rc == 0 && conf.maps)
		rc = check_names(&conf, n, argv + 1, &e);
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
	.description = "Prints the probability of each finding for every image. Images go through the same decoding and resizing as in preparation. An image that "
		       "cannot be read is named and the others are scored all the same; the exit code is then 65. Every task of a job step scores all the images. --maps writes overlays that chexnet report --pictures takes.",
	.options = options,
	.run = run,
};
