/* SPDX-License-Identifier: Apache-2.0
 * chexnet report: predictions and a training log as one HTML file, or as event files for TensorBoard. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "commands/commands.h"
#include "files/file.h"
#include "learn/calibration_finding.h"
#include "learn/events.h"
#include "report/report.h"
#include "threads.h"
#include "utf8.h"

enum { MAX_PICTURES = 32, MAX_PICTURE_BYTES = 3 << 20, COMMAND_ROOM = 4096 };

struct report_conf {
	const char *predictions, *thresholds, *compare, *table, *log, *out, *json, *tensorboard, *pictures, *pointing;
	int resamples;
	uint64_t seed;
};

static const struct option options[] = {
	OPTION_GROUP("What to show"),
	OPTION(STRING, struct report_conf, predictions, "predictions", "FILE", NULL, "what chexnet eval --predictions wrote, or a training: OUTPUT/test.csv"),
	OPTION(STRING, struct report_conf, thresholds, "thresholds", "FILE", NULL, "the same model's predictions for other patients, as of eval --split val: operating points are chosen on these, and judged on --predictions"),
	OPTION(STRING, struct report_conf, log, "log", "FILE", NULL, "what a training wrote: OUTPUT/log.jsonl, or its --log-json"),
	OPTION(STRING, struct report_conf, compare, "compare", "FILE", NULL, "a second model's predictions for the same images"),
	OPTION(STRING, struct report_conf, table, "table", "FILE", NULL, "NIH's label table (Data_Entry_2017*.csv): how many patients and images of each sex, age and view, with the findings and AUROC in each"),
	OPTION(STRING, struct report_conf, pictures, "pictures", "DIR", NULL, "show the PNG files of DIR, in the order of their names (32 and 3 MiB at most); each with its labels; maps by other weights than those of --predictions, and of other images, are marked"),
	OPTION(STRING, struct report_conf, pointing, "pointing", "FILE", NULL, "what chexnet predict --boxes=… --json printed: how often the maps' strongest points lie in radiologists' boxes"),
	OPTION(INT, struct report_conf, resamples, "resamples", "N", RESAMPLES_DEFAULT, "bootstrap resamples of patients behind each interval", .min = 100, .max = 100000),
	OPTION(U64, struct report_conf, seed, "seed", "N", "1", "of the resamples"),
	OPTION_GROUP("Where"),
	OPTION(STRING, struct report_conf, out, "out", "FILE", NULL, "HTML file to write"),
	OPTION(STRING, struct report_conf, json, "json", "FILE", NULL, "write AUROC, average precision, operating points, calibration, groups of patients, the pointing game and the comparison, as chexnet compare --json has it, as a JSON object"),
	OPTION(STRING, struct report_conf, tensorboard, "tensorboard", "DIR", NULL, "write the log's course, the precision-recall curves and the pictures as TensorBoard events"),
	OPTIONS_END
};

struct pictures {
	size_t n, more, bytes; /* more: not shown */
	struct report_picture picture[MAX_PICTURES];
	char *name[MAX_PICTURES], *data[MAX_PICTURES];
};

struct sources {
	struct predictions predictions, thresholds, other;
	struct nih table;
	struct train_log log;
	struct pointing_file pointing;
	struct pictures pictures;
	char command[COMMAND_ROOM], date[64];
};

/* ---- reading ---------------------------------------------------------------------------------------- */

static int is_png_name(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 4 && d->d_name[0] != '.' && strcasecmp(d->d_name + n - 4, ".png") == 0;
}

static int read_picture(struct pictures *p, const char *directory, const char *name, struct error *e)
{
	static const char magic[] = "\x89PNG\r\n\x1a\n";
	char path[FILE_PATH];
	size_t i = p->n, size;

	if (path_join(path, e, "%s/%s", directory, name) || file_read(&p->data[i], &size, path, e))
		return -e->code;
	p->n++;
	p->bytes += size;
	if (size < sizeof magic - 1 || memcmp(p->data[i], magic, sizeof magic - 1))
		return fail(e, EXIT_DATA, "%s: not a PNG file", path);
	if (p->bytes > MAX_PICTURE_BYTES)
		return fail(e, EXIT_USAGE, "--pictures=%s: more than 3 MiB in all with %s; a report is to be sent by mail", directory, name);
	p->name[i] = strndup(name, strlen(name) - 4);
	if (!p->name[i])
		return fail(e, EXIT_INTERNAL, "no memory for pictures");
	p->picture[i] = (struct report_picture){ p->name[i], p->data[i], size };
	return 0;
}

static int read_pictures(struct pictures *p, const char *directory, struct error *e)
{
	struct dirent **list;
	int n = scandir(directory, &list, is_png_name, alphasort);

	if (n < 0)
		return fail(e, EXIT_DATA, "--pictures=%s: cannot be read: %s", directory, strerror(errno));
	if (n == 0)
		fail(e, EXIT_DATA, "--pictures=%s: no .png file is in it; chexnet predict --maps=DIR writes some", directory);
	p->more = n > MAX_PICTURES ? (size_t)n - MAX_PICTURES : 0;
	if (p->more)
		fprintf(stderr, "chexnet report: %s holds %d pictures: only the first %d are shown\n", directory, n, MAX_PICTURES);
	for (int i = 0; i < n; i++) {
		if (!e->code && i < MAX_PICTURES)
			read_picture(p, directory, list[i]->d_name, e);
		free(list[i]);
	}
	free(list);
	return e->code ? -e->code : 0;
}

static int check_outputs(const struct report_conf *conf, struct error *e)
{
	const char *const read[] = { conf->predictions, conf->thresholds, conf->compare, conf->table, conf->log, conf->pointing };

	output_spares(conf->json, conf->out, e);
	for (size_t i = 0; i < sizeof read / sizeof read[0]; i++) {
		output_spares(conf->out, read[i], e);
		output_spares(conf->json, read[i], e);
	}
	output_replaces(conf->out, "<!DOCTYPE html>", "HTML page", e);
	output_replaces(conf->json, "{\n\t\"predictions\"", "report's JSON object", e);
	if (!e->code && conf->out)
		output_check(conf->out, e);
	return e->code || !conf->json ? -e->code : output_check(conf->json, e);
}

static int looks_like_probabilities(const struct predictions *p)
{
	return logits_like_probabilities(p->logits, p->n * FINDINGS);
}

static int read_sources(struct sources *s, const struct report_conf *conf, struct error *e)
{
	if (conf->predictions && predictions_read(&s->predictions, conf->predictions, e))
		return -e->code;
	if (conf->thresholds && predictions_read(&s->thresholds, conf->thresholds, e))
		return -e->code;
	if (conf->thresholds && looks_like_probabilities(&s->predictions) != looks_like_probabilities(&s->thresholds))
		return fail(e, EXIT_DATA, "--thresholds=%s: every logit of %s is between 0 and 1, as probabilities p are, and the other file's are not: write log(p / (1 - p)) in their place",
			    conf->thresholds, looks_like_probabilities(&s->thresholds) ? "it" : conf->predictions);
	if (conf->compare && predictions_read(&s->other, conf->compare, e))
		return -e->code;
	if (conf->table && nih_open_tables(&s->table, conf->table, NULL, NULL, e))
		return -e->code;
	if (conf->log && train_log_read(&s->log, conf->log, e))
		return -e->code;
	if (conf->pointing && pointing_read(&s->pointing, conf->pointing, e))
		return -e->code;
	if (conf->pictures && read_pictures(&s->pictures, conf->pictures, e))
		return -e->code;
	if (s->log.skipped)
		fprintf(stderr, "chexnet report: %s: %zu line%s no event%s and %s left out\n", conf->log, s->log.skipped, s->log.skipped == 1 ? " is" : "s are",
			s->log.skipped == 1 ? "" : "s", s->log.skipped == 1 ? "is" : "are");
	return 0;
}

static void free_sources(struct sources *s)
{
	predictions_free(&s->predictions);
	predictions_free(&s->thresholds);
	predictions_free(&s->other);
	nih_close(&s->table);
	train_log_free(&s->log);
	pointing_file_free(&s->pointing);
	for (size_t i = 0; i < s->pictures.n; i++) {
		free(s->pictures.name[i]);
		free(s->pictures.data[i]);
	}
}

static void note_command(struct sources *s, int argc, char **argv)
{
	size_t used = utf8_append(s->command, sizeof s->command, 0, "chexnet report");
	time_t t = time(NULL);
	struct tm now;

	utf8_append_words(s->command, sizeof s->command, used, argc - 1, argv + 1);
	strftime(s->date, sizeof s->date, "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &now));
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static int write_page(const struct page *page, const char *path, struct error *e)
{
	if (file_write(path, page->text, page->size, e))
		return -e->code;
	printf(page->size < 1000000 ? "%s: %.0f kB\n" : "%s: %.1f MB\n", path, (double)page->size / (page->size < 1000000 ? 1e3 : 1e6));
	return 0;
}

static struct report_input input_of(const struct sources *s, const struct report_conf *conf)
{
	return (struct report_input){
		.predictions = &s->predictions, .other = conf->compare ? &s->other : NULL, .table = conf->table ? &s->table : NULL, .log = conf->log ? &s->log : NULL,
		.thresholds = conf->thresholds ? &s->thresholds : NULL,
		.path = conf->predictions, .other_path = conf->compare, .thresholds_path = conf->thresholds, .log_path = conf->log,
		.pointing = conf->pointing ? &s->pointing : NULL, .pointing_path = conf->pointing,
		.command = s->command, .date = s->date, .resamples = conf->resamples, .seed = conf->seed,
		.pictures = s->pictures.picture, .n_pictures = s->pictures.n, .more_pictures = s->pictures.more,
	};
}

static void warn_of_pictures(const struct sources *s, const struct report_conf *conf)
{
	struct report_input in = input_of(s, conf);
	size_t foreign = report_foreign_pictures(&in);

	if (foreign)
		fprintf(stderr, "chexnet report: warning: %zu of the %zu pictures in %s were made with other weights than %s\n", foreign, in.n_pictures, conf->pictures, conf->predictions);
}

static void warn_of_log(const struct sources *s, const struct report_conf *conf)
{
	struct report_input in = input_of(s, conf);

	if (report_foreign_log(&in))
		fprintf(stderr, "chexnet report: warning: the training of %s ends with other weights than those of %s\n", conf->log, conf->predictions);
}

static void warn_of_probabilities(const struct predictions *p, const char *path)
{
	if (looks_like_probabilities(p))
		fprintf(stderr, "chexnet report: warning: every logit of %s is between 0 and 1: if they are probabilities p, calibration and thresholds are wrong, and log(p / (1 - p)) belongs there\n", path);
}

static int write_report(const struct sources *s, const struct report_conf *conf, struct error *e)
{
	struct report_input in = input_of(s, conf);
	struct page page = { 0 };
	char *json = NULL;

	if (report_make(&page, conf->json ? &json : NULL, &in, e) == 0 && (!conf->out || write_page(&page, conf->out, e) == 0) && conf->json)
		file_write(conf->json, json, strlen(json), e);
	free(page.text);
	cJSON_free(json);
	return e->code ? -e->code : 0;
}

static int put_scalar(struct events *ev, const char *tag, double step, double value, struct error *e)
{
	return isnan(value) ? 0 : events_scalar(ev, tag, (int64_t)step, (float)value, e);
}

static int put_log(struct events *ev, const struct train_log *log, struct error *e)
{
	for (size_t i = 0; i < log->n_steps && !e->code; i++) {
		const struct log_step *s = &log->steps[i];

		events_at(ev, isnan(s->time) ? 0 : s->time);
		if (put_scalar(ev, "loss/train", s->step, s->loss, e) || put_scalar(ev, "learning_rate", s->step, s->rate, e) ||
		    put_scalar(ev, "images_per_s", s->step, s->images_per_s, e) || put_scalar(ev, "share/input", s->step, s->input, e))
			break;
		put_scalar(ev, "share/communication", s->step, s->communication, e);
	}
	for (size_t i = 0; i < log->n_evals && !e->code; i++) {
		const struct log_eval *v = &log->evals[i];

		events_at(ev, isnan(v->time) ? 0 : v->time);
		if (put_scalar(ev, "loss/val", v->step, v->loss, e) == 0 && put_scalar(ev, "loss/val_weighted", v->step, v->weighted, e) == 0)
			put_scalar(ev, "auroc/val", v->step, v->mean.value, e);
	}
	return e->code ? -e->code : 0;
}

static int64_t last_step(const struct sources *s)
{
	return s->log.n_steps ? (int64_t)s->log.steps[s->log.n_steps - 1].step : 0;
}

/* At the step of the log's end, so that curves of several runs line up with their course. */
static int put_curves(struct events *ev, const struct sources *s, struct error *e)
{
	const struct predictions *p = &s->predictions;
	float *score = malloc((p->n + 1) * sizeof *score);
	uint8_t *positive = malloc(p->n + 1);
	int64_t step = last_step(s);

	if (!score || !positive)
		fail(e, EXIT_INTERNAL, "no memory for %zu images", p->n);
	for (int f = 0; f < FINDINGS && !e->code; f++) {
		size_t n = predictions_of(p, f, score, positive);
		char tag[64];

		if (!memchr(positive, 1, n)) /* a curve of nothing would lie at 0, as if all were wrong */
			continue;
		snprintf(tag, sizeof tag, "%s/%s", *p->about.split ? p->about.split : "predictions", finding_names[f]);
		if (events_pr_curve(ev, tag, step, score, positive, n, e) == 0) {
			double value = auroc(score, positive, n);

			snprintf(tag, sizeof tag, "auroc/%s", finding_names[f]);
			if (value < 0)
				fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
			put_scalar(ev, tag, (double)step, value, e);
		}
	}
	free(score);
	free(positive);
	return e->code ? -e->code : 0;
}

static uint32_t big_endian(const void *data, size_t at)
{
	const uint8_t *p = (const uint8_t *)data + at;

	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Activation maps, RGB as chexnet predict --maps writes them; size and kind stand in the header of a PNG file. */
static int put_pictures(struct events *ev, const struct pictures *pictures, int64_t step, struct error *e)
{
	enum { WIDTH = 16, HEIGHT = 20, COLOUR_TYPE = 25, HEADER = 33, GRAY = 0 };

	for (size_t i = 0; i < pictures->n && !e->code; i++) {
		const struct report_picture *p = &pictures->picture[i];
		char tag[256];

		if (p->size < HEADER)
			continue;
		snprintf(tag, sizeof tag, "map/%s", p->name);
		events_image(ev, utf8_mend(tag), step, p->png, p->size, (int)big_endian(p->png, WIDTH), (int)big_endian(p->png, HEIGHT),
			     ((const uint8_t *)p->png)[COLOUR_TYPE] == GRAY ? 1 : 3, e);
	}
	return e->code ? -e->code : 0;
}

static int write_events(const struct sources *s, const struct report_conf *conf, struct error *e)
{
	struct events *ev;

	if (events_open(&ev, conf->tensorboard, e))
		return -e->code;
	if ((!conf->log || put_log(ev, &s->log, e) == 0) && (!conf->predictions || put_curves(ev, s, e) == 0) &&
	    put_pictures(ev, &s->pictures, last_step(s), e) == 0 && events_sync(ev, e) == 0)
		puts(events_path(ev));
	(e->code ? events_discard : events_close)(ev);
	return e->code ? -e->code : 0;
}

static int check(const struct report_conf *conf, struct error *e)
{
	if (!conf->out && !conf->json && !conf->tensorboard)
		return fail(e, EXIT_USAGE, "--out=FILE, --json=FILE or --tensorboard=DIR is needed");
	if ((conf->out || conf->json) && !conf->predictions)
		return fail(e, EXIT_USAGE, "--predictions=FILE is needed: chexnet eval --predictions writes it, and a training OUTPUT/test.csv");
	if (!conf->predictions && !conf->log)
		return fail(e, EXIT_USAGE, "--predictions=FILE or --log=FILE is needed");
	if (conf->compare && !conf->out && !conf->json)
		return fail(e, EXIT_USAGE, "--compare=%s is for --out and --json: TensorBoard gets one model's curves", conf->compare);
	if (conf->thresholds && !conf->out && !conf->json)
		return fail(e, EXIT_USAGE, "--thresholds=%s is for --out and --json: TensorBoard gets no operating points", conf->thresholds);
	if (conf->table && !conf->out && !conf->json)
		return fail(e, EXIT_USAGE, "--table=%s is for --out and --json: TensorBoard gets no groups of patients", conf->table);
	if (conf->pointing && !conf->out && !conf->json)
		return fail(e, EXIT_USAGE, "--pointing=%s is for --out and --json: TensorBoard gets no pointing game", conf->pointing);
	if (conf->pictures && !conf->out && !conf->tensorboard)
		return fail(e, EXIT_USAGE, "--pictures=%s is for --out and --tensorboard: JSON shows none", conf->pictures);
	return check_outputs(conf, e);
}

static int run(int argc, char **argv)
{
	struct report_conf conf = { 0 };
	struct error e = { 0 };
	int rc = options_read(&command_report, argc, argv, &conf, NULL);

	if (rc >= 0)
		return rc;
	struct sources *s = calloc(1, sizeof *s);

	if (!s)
		fail(&e, EXIT_INTERNAL, "no memory");
	else if (threads_check(0, &e) == 0 && check(&conf, &e) == 0 && read_sources(s, &conf, &e) == 0) {
		note_command(s, argc, argv);
		warn_of_pictures(s, &conf);
		warn_of_log(s, &conf);
		warn_of_probabilities(&s->predictions, conf.predictions);
		if (conf.out || conf.json)
			write_report(s, &conf, &e);
		if (!e.code && conf.tensorboard)
			write_events(s, &conf, &e);
	}
	if (s)
		free_sources(s);
	free(s);
	return e.code ? report_error(&command_report, &e) : EXIT_DONE;
}

const struct command command_report = {
	.name = "report",
	.summary = "show predictions and a training run as one HTML file, or in TensorBoard",
	.description = "The HTML file holds everything it shows, in a light and a dark version: headline with interval, table of findings, groups of patients (--table), ROC and precision-recall curves, "
		       "operating points, calibration, maps and how often they point into radiologists' boxes, a comparison with a second model, training curves, speed, provenance, and what to keep in mind when reading it.",
	.options = options,
	.run = run,
};
