/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/synth_tree.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/ranking.h"
#include "files/staging.h"
#include "image/image.h"
#include "json.h"
#include "progress.h"

/* One image in a hundred is RGBA, as in ChestX-ray14, so that readers meet that too. */
enum { RGBA_EVERY = 100 };

struct tree {
	const struct synth_conf *conf;
	struct synth_report *report;
	struct synth_case *cases;   /* [images] */
	float *ratio;               /* [images][FINDINGS] */
	struct synth_box *boxes;    /* [images][FINDINGS] */
	int *n_boxes;               /* [images] */
	struct staging staging;
};

static int in_test(const struct tree *t, size_t i)
{
	return synth_split(t->conf, &t->cases[i]) == SPLIT_TEST;
}

static int write_image(const struct tree *t, size_t i, float *work, uint8_t *pixels, struct error *e)
{
	char path[FILE_PATH];
	size_t size;
	int side = t->conf->size;

	synth_draw(t->conf, &t->cases[i], work, pixels, &t->boxes[i * FINDINGS], &t->n_boxes[i]);
	synth_oracle(t->conf, &t->cases[i], work, &t->ratio[i * FINDINGS]);
	uint8_t *png = encode_png(pixels, side, side, i % RGBA_EVERY == RGBA_EVERY / 2 ? 4 : 1, &size);
	int rc = png ? path_join(path, e, "%s/images/%s", t->staging.partial, t->cases[i].sample.id) : fail(e, EXIT_INTERNAL, "no memory to encode");
	if (!rc)
		rc = file_put(path, png, size, e);
	free(png);
	return rc;
}

static int write_images(const struct tree *t, int threads, const volatile sig_atomic_t *stop, const char *tell, struct error *e)
{
	size_t floats = (size_t)t->conf->size * (size_t)t->conf->size;
	atomic_int failed = 0;
	_Atomic size_t done = 0;
	struct progress progress;

	progress_begin(&progress, tell, t->conf->images);
#pragma omp parallel num_threads(threads)
	{
		float *work = malloc(SYNTH_WORK * floats * sizeof *work);
		uint8_t *pixels = malloc(floats);
#pragma omp for schedule(dynamic, 8)
		for (size_t i = 0; i < t->conf->images; i++) {
			struct error mine = { 0 };
			if (failed)
				continue;
			if (stop && *stop)
				fail(&mine, EXIT_INTERNAL, "interrupted; nothing is left behind");
			else if (!work || !pixels)
				fail(&mine, EXIT_INTERNAL, "no memory to draw images");
			else
				write_image(t, i, work, pixels, &mine);
			if (mine.code) {
				failed = 1;
#pragma omp critical
				fail(e, mine.code, "%s", mine.text);
			}
			size_t so_far = ++done;
			if (omp_get_thread_num() == 0)
				progress_tell(&progress, so_far);
		}
		free(work);
		free(pixels);
	}
	progress_end(&progress);
	return -e->code;
}

/* A text file in the making. */
struct text {
	struct output_file out;
	struct error *e;
};

static int text_open(struct text *t, const struct tree *tree, const char *name, struct error *e)
{
	char path[FILE_PATH];

	t->e = e;
	if (path_join(path, e, "%s/%s", tree->staging.partial, name))
		return -e->code;
	return output_open(&t->out, path, e);
}

__attribute__((format(printf, 2, 3))) static void text_put(struct text *t, const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (!t->e->code)
		output_write(&t->out, line, (size_t)n, t->e);
}

static int text_close(struct text *t)
{
	if (t->e->code) {
		output_discard(&t->out);
		return -t->e->code;
	}
	return output_commit(&t->out, t->e);
}

static int write_table(const struct tree *t, struct error *e)
{
	struct text f;

	if (text_open(&f, t, "Data_Entry_2017_v2020.csv", e))
		return -e->code;
	text_put(&f, "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
		     "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n");
	for (size_t i = 0; i < t->conf->images; i++) {
		const struct synth_case *c = &t->cases[i];
		text_put(&f, "%s,", c->sample.id);
		for (int k = 0, n = 0; k < FINDINGS; k++)
			if (c->sample.labels >> k & 1)
				text_put(&f, "%s%s", n++ ? "|" : "", finding_names[k]);
		text_put(&f, "%s,%d,%u,%u,%c,PA,%d,%d,0.171,0.171\n", c->sample.labels ? "" : "No Finding", c->follow_up, c->sample.patient,
			 20 + c->sample.patient % 60, c->sample.patient & 1 ? 'F' : 'M', t->conf->size, t->conf->size);
	}
	return text_close(&f);
}

/* Without a newline at the end, as NIH's lists are. */
static int write_list(const struct tree *t, const char *name, int test, struct error *e)
{
	struct text f;
	size_t n = 0;

	if (text_open(&f, t, name, e))
		return -e->code;
	for (size_t i = 0; i < t->conf->images; i++)
		if (in_test(t, i) == test)
			text_put(&f, "%s%s", n++ ? "\n" : "", t->cases[i].sample.id);
	return text_close(&f);
}

static int write_boxes(const struct tree *t, struct error *e)
{
	struct text f;

	if (text_open(&f, t, "BBox_List_2017.csv", e))
		return -e->code;
	text_put(&f, "Image Index,Finding Label,Bbox [x,y,w,h],,,\n");
	for (size_t i = 0; i < t->conf->images; i++)
		for (int b = 0; b < t->n_boxes[i]; b++) {
			const struct synth_box *box = &t->boxes[i * FINDINGS + (size_t)b];
			text_put(&f, "%s,%s,%.3f,%.3f,%.3f,%.3f\n", t->cases[i].sample.id,
				 box->finding == 3 ? "Infiltrate" : finding_names[box->finding], box->x, box->y, box->width, box->height);
		}
	return text_close(&f);
}

static int write_ratios(const struct tree *t, struct error *e)
{
	struct text f;

	if (text_open(&f, t, "oracle.csv", e))
		return -e->code;
	text_put(&f, "Image Index");
	for (int k = 0; k < FINDINGS; k++)
		text_put(&f, ",%s", finding_names[k]);
	for (size_t i = 0; i < t->conf->images; i++) {
		text_put(&f, "\n%s", t->cases[i].sample.id);
		for (int k = 0; k < FINDINGS; k++)
			text_put(&f, ",%.9g", (double)t->ratio[i * FINDINGS + (size_t)k]);
	}
	text_put(&f, "\n");
	return text_close(&f);
}

/* Hanley and McNeil, "The meaning and use of the area under a ROC curve", Radiology 143 (1982). Where a few images happen to be told apart
 * perfectly it would be 0, as if the next ones could not but be. */
static double standard_error(double a, size_t positives, size_t negatives)
{
	if (!(a > 0 && a < 1) || positives < LEAST_POSITIVES || negatives < LEAST_POSITIVES)
		return NAN;
	double q1 = a / (2 - a), q2 = 2 * a * a / (1 + a), np = (double)positives, nn = (double)negatives;
	return sqrt((a * (1 - a) + (np - 1) * (q1 - a * a) + (nn - 1) * (q2 - a * a)) / (np * nn));
}

static int measure(const struct tree *t, struct error *e)
{
	struct synth_report *r = t->report;
	float *score = malloc((t->conf->images + 1) * sizeof *score);
	uint8_t *positive = malloc(t->conf->images + 1);
	int counted = 0, rc = score && positive ? 0 : fail(e, EXIT_INTERNAL, "no memory for the oracle's scores");

	for (int f = 0; !rc && f < FINDINGS; f++) {
		size_t n = 0, *positives = &r->test_positives[f];
		for (size_t i = 0; i < t->conf->images; i++) {
			int label = t->cases[i].sample.labels >> f & 1;
			r->positives[f] += (size_t)label;
			if (!in_test(t, i))
				continue;
			positive[n] = (uint8_t)label;
			*positives += (size_t)label;
			score[n++] = t->ratio[i * FINDINGS + (size_t)f];
		}
		r->oracle[f] = auroc(score, positive, n);
		if (r->oracle[f] < 0)
			rc = fail(e, EXIT_INTERNAL, "no memory for the oracle's scores");
		r->se[f] = standard_error(r->oracle[f], *positives, n - *positives);
		if (!isnan(r->oracle[f])) {
			r->oracle_mean += r->oracle[f];
			counted++;
		}
	}
	r->oracle_mean = counted ? r->oracle_mean / counted : NAN;
	free(score);
	free(positive);
	return rc;
}

static void count_patients(const struct tree *t)
{
	struct synth_report *r = t->report;
	int seen[2] = { 0 };

	for (size_t i = 0; i < t->conf->images; i++) {
		int test = in_test(t, i);
		if (i && t->cases[i].sample.patient != t->cases[i - 1].sample.patient)
			seen[0] = seen[1] = 0;
		r->images[test]++;
		r->leaked += !seen[test] && seen[!test];
		r->patients[test] += !seen[test];
		seen[test] = 1;
	}
}

static void add_value(cJSON *o, const char *name, double value)
{
	if (isnan(value))
		cJSON_AddNullToObject(o, name);
	else
		cJSON_AddNumberToObject(o, name, value);
}

static int write_oracle(const struct tree *t, struct error *e)
{
	const struct synth_conf *c = t->conf;
	const struct synth_report *r = t->report;
	char path[FILE_PATH], seed[24];
	double prevalence[FINDINGS];
	cJSON *o = cJSON_CreateObject();

	synth_prevalence(c, prevalence);
	snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);
	cJSON_AddStringToObject(o, "made_by", "chexnet " HVD_VERSION " synth");
	cJSON_AddStringToObject(o, "seed", seed);
	cJSON_AddNumberToObject(o, "images", (double)c->images);
	cJSON_AddNumberToObject(o, "size", c->size);
	cJSON_AddNumberToObject(o, "contrast", c->contrast);
	cJSON_AddNumberToObject(o, "label_noise", c->label_noise);
	cJSON_AddBoolToObject(o, "leaky", c->leaky);
	cJSON_AddStringToObject(o, "meaning", "AUROC on the test list of the likelihood ratio of each sign, computed with place, phase, amplitude and "
					      "noise known: no score made from the images can be expected to be higher");
	cJSON *findings = cJSON_AddObjectToObject(o, "findings");
	for (int f = 0; f < FINDINGS; f++) {
		cJSON *item = cJSON_AddObjectToObject(findings, finding_names[f]);
		cJSON_AddNumberToObject(item, "prevalence", prevalence[f]);
		cJSON_AddNumberToObject(item, "positives", (double)r->positives[f]);
		cJSON_AddNumberToObject(item, "test_positives", (double)r->test_positives[f]);
		add_value(item, "oracle_auroc", r->oracle[f]);
		add_value(item, "standard_error", r->se[f]);
		cJSON_AddNumberToObject(item, "ceiling_of_clear_signs", synth_ceiling(c, prevalence[f]));
	}
	add_value(o, "mean_oracle_auroc", r->oracle_mean);
	char *text = json_finish(o, 1);
	int rc = text ? path_join(path, e, "%s/oracle.json", t->staging.partial) : fail(e, EXIT_INTERNAL, "no memory for oracle.json");
	if (!rc)
		rc = file_write(path, text, strlen(text), e);
	cJSON_free(text);
	return rc;
}

static int write_tree(struct tree *t, int threads, const volatile sig_atomic_t *stop, const char *tell, struct error *e)
{
	char path[FILE_PATH];
	size_t n = t->conf->images;

	t->cases = synth_plan(t->conf);
	t->ratio = malloc((n + 1) * FINDINGS * sizeof *t->ratio);
	t->boxes = malloc((n + 1) * FINDINGS * sizeof *t->boxes);
	t->n_boxes = calloc(n + 1, sizeof *t->n_boxes);
	if (!t->cases || !t->ratio || !t->boxes || !t->n_boxes)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
	if (path_join(path, e, "%s/images", t->staging.partial) || directory_make(path, e) || write_images(t, threads, stop, tell, e) ||
	    filesystem_sync(path, e) || measure(t, e))
		return -e->code;
	count_patients(t);
	if (write_table(t, e) || write_list(t, "train_val_list.txt", 0, e) || write_list(t, "test_list.txt", 1, e) || write_boxes(t, e) ||
	    write_ratios(t, e) || write_oracle(t, e))
		return -e->code;
	return 0;
}

static const char *const own[] = { "oracle.json", "oracle.csv", "Data_Entry_2017_v2020.csv", "BBox_List_2017.csv", "train_val_list.txt",
				   "test_list.txt", "images/", "images/+([0-9])_+([0-9]).png", NULL };
static const struct staging_kind kind = { "oracle.json", "made_by", "chexnet ", own };

int synth_tree(const struct synth_conf *conf, const char *out, int overwrite, int threads, const volatile sig_atomic_t *stop, const char *tell,
	       struct synth_report *report, struct error *e)
{
	struct tree t = { .conf = conf, .report = report };

	memset(report, 0, sizeof *report);
	int rc = staging_open(&t.staging, out, overwrite, &kind, NULL, e);
	if (!rc)
		rc = write_tree(&t, threads ? threads : omp_get_max_threads(), stop, tell, e);
	if (!rc)
		rc = staging_commit(&t.staging, e);
	staging_discard(&t.staging);
	free(t.cases);
	free(t.ratio);
	free(t.boxes);
	free(t.n_boxes);
	return rc;
}
