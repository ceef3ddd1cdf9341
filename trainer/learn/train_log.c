/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/train_log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/file.h"
#include "json.h"

double json_get_number(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : NAN; /* 1e999 is read as infinite */
}

const char *json_get_text(const cJSON *object, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static int keep_step(struct train_log *log, const cJSON *o)
{
	struct log_step s = {
		.time = json_get_number(o, "time"),
		.step = json_get_number(o, "step"),
		.loss = json_get_number(o, "loss"),
		.rate = json_get_number(o, "lr"),
		.images_per_s = json_get_number(o, "images_per_s"),
		.input = json_get_number(o, "input_share"),
		.communication = json_get_number(o, "communication_share"),
	};

	if (isnan(s.step))
		return 0;
	while (log->n_steps && log->steps[log->n_steps - 1].step >= s.step)
		log->n_steps--;
	if ((log->n_steps & (log->n_steps - 1)) == 0) {
		struct log_step *grown = realloc(log->steps, (log->n_steps ? 2 * log->n_steps : 1) * sizeof *grown);

		if (!grown)
			return -1;
		log->steps = grown;
	}
	log->steps[log->n_steps++] = s;
	return 0;
}

static void keep_oracle(struct train_log *log, const cJSON *o)
{
	const cJSON *findings = cJSON_GetObjectItemCaseSensitive(o, "findings");

	for (int f = 0; f < FINDINGS; f++) {
		log->oracle[f] = json_get_number(cJSON_GetObjectItemCaseSensitive(findings, finding_names[f]), "oracle");
		log->has_oracle |= !isnan(log->oracle[f]);
	}
}

static int keep_eval(struct train_log *log, const cJSON *o)
{
	const char *split = json_get_text(o, "split");
	const cJSON *mean = cJSON_GetObjectItemCaseSensitive(o, "mean");
	struct log_eval v = {
		.time = json_get_number(o, "time"),
		.step = json_get_number(o, "step"),
		.loss = json_get_number(o, "loss"),
		.weighted = json_get_number(o, "weighted_loss"),
		.mean = { .value = json_get_number(mean, "auroc"), .low = json_get_number(mean, "low"), .high = json_get_number(mean, "high"), .se = json_get_number(mean, "se") },
	};

	keep_oracle(log, o);
	if ((split && strcmp(split, "val")) || isnan(v.step))
		return 0;
	while (log->n_evals && log->evals[log->n_evals - 1].step >= v.step)
		log->n_evals--;
	struct log_eval *grown = realloc(log->evals, (log->n_evals + 1) * sizeof *grown);

	if (!grown)
		return -1;
	log->evals = grown;
	log->evals[log->n_evals++] = v;
	return 0;
}

/* What came after `step` was of a course that was left, or is made once more. */
static void go_back(struct train_log *log, double step)
{
	while (log->n_steps && log->steps[log->n_steps - 1].step >= step)
		log->n_steps--;
	while (log->n_evals && log->evals[log->n_evals - 1].step > step)
		log->n_evals--;
}

static void keep_last(cJSON **slot, cJSON **object)
{
	cJSON_Delete(*slot);
	*slot = *object;
	*object = NULL;
}

/* A later start may have other ranks, and be killed before it has a summary of its own. */
static int keep_summary(struct train_log *log, cJSON **o)
{
	cJSON *start = log->start ? cJSON_Duplicate(log->start, 1) : NULL;

	if (log->start && !start)
		return -1;
	keep_last(&log->summary, o);
	keep_last(&log->timed, &start);
	log->timed_start = log->starts;
	log->timed_losses = log->lost_since;
	return 0;
}

static int other_precision(const cJSON *a, const cJSON *b)
{
	const char *before = json_get_text(a, "precision"), *now = json_get_text(b, "precision");

	return before && now && strcmp(before, now) != 0;
}

/* cJSON would round it to a double. */
static void keep_seed(struct train_log *log, const char *line)
{
	const char *seed = strstr(line, "\"seed\":");
	size_t digits;

	seed = seed ? seed + strlen("\"seed\":") : "";
	digits = strspn(seed, "0123456789");
	snprintf(log->seed, sizeof log->seed, "%.*s", seed[digits] == ',' || seed[digits] == '}' ? (int)digits : 0, seed);
}

static int keep(struct train_log *log, const char *line)
{
	cJSON *o = json_parse(line, strlen(line), 0, NULL);
	const char *event = json_get_text(o, "event");
	int rc = 0;

	if (!o && errno == ENOMEM) {
		rc = -1;
	} else if (!cJSON_IsObject(o) || !event) {
		log->skipped++;
	} else if (strcmp(event, "step") == 0) {
		rc = keep_step(log, o);
	} else if (strcmp(event, "eval") == 0) {
		rc = keep_eval(log, o);
	} else if (strcmp(event, "start") == 0) {
		log->starts++;
		log->lost_since = 0;
		go_back(log, json_get_number(o, "step"));
		cJSON_Delete(log->end); /* of the run before */
		log->end = NULL;
		log->mixed |= fabs(json_get_number(log->start, "global_batch") - json_get_number(o, "global_batch")) > 0;
		log->mixed_precision |= other_precision(log->start, o);
		keep_last(&log->start, &o);
		keep_seed(log, line);
	} else if (strcmp(event, "recovered") == 0) {
		log->losses++;
		log->lost_since++;
		go_back(log, json_get_number(o, "step"));
		cJSON_Delete(log->end); /* of a rank 0 that left alone */
		log->end = NULL;
		keep_last(&log->recovered, &o);
	} else if (strcmp(event, "summary") == 0) {
		rc = keep_summary(log, &o);
	} else if (strcmp(event, "end") == 0) {
		keep_last(&log->end, &o);
	}
	cJSON_Delete(o);
	return rc;
}

int train_log_read(struct train_log *log, const char *path, struct error *e)
{
	char *text;
	size_t size;

	*log = (struct train_log){ 0 };
	for (int f = 0; f < FINDINGS; f++)
		log->oracle[f] = NAN;
	if (file_read(&text, &size, path, e))
		return -e->code;
	for (char *line = text, *past = text + size, *end; line < past && !e->code; line = end + 1) {
		end = memchr(line, '\n', (size_t)(past - line));
		end = end ? end : past;
		*end = '\0';
		if (strlen(line) < (size_t)(end - line)) /* a file system that was cut off leaves zeros */
			log->skipped++;
		else if (line[strspn(line, " \t\r")] && keep(log, line))
			fail(e, EXIT_INTERNAL, "%s: no memory", path);
	}
	free(text);
	if (!e->code && !log->start && !log->n_steps && !log->n_evals)
		fail(e, EXIT_DATA, "%s: no event of a training run; is it what chexnet train wrote, OUTPUT/log.jsonl or its --log-json?", path);
	return e->code ? -e->code : 0;
}

void train_log_free(struct train_log *log)
{
	free(log->steps);
	free(log->evals);
	cJSON_Delete(log->start);
	cJSON_Delete(log->summary);
	cJSON_Delete(log->timed);
	cJSON_Delete(log->end);
	cJSON_Delete(log->recovered);
	*log = (struct train_log){ 0 };
}
