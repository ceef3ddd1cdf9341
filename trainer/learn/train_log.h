/* SPDX-License-Identifier: Apache-2.0
 * Reads what a training run wrote with --log-json: one JSON object a line, of which "event" is start, step, eval, checkpoint,
 * summary or end. */
#ifndef LEARN_TRAIN_LOG_H
#define LEARN_TRAIN_LOG_H

#include <cjson/cJSON.h>

#include "data/findings.h"
#include "error.h"
#include "learn/resample.h"

struct log_step {
	double time; /* seconds since 1970 */
	double step, loss, rate, images_per_s; /* NAN where the log has no number */
	double input, communication;           /* share of the interval that the step waited for either */
};

struct log_eval {
	double time, step, loss;
	double weighted;      /* loss, as --pos-weight=balanced says; NAN: positives weigh 1 */
	struct interval mean; /* AUROC over findings */
};

struct train_log {
	size_t n_steps, n_evals;
	struct log_step *steps; /* [n_steps] ascending; what a resumed run did again counts once, as it was done last */
	struct log_eval *evals; /* [n_evals] of the validation split */
	cJSON *start, *summary, *end; /* the last of each, end since start or recovered; NULL: none */
	cJSON *recovered;       /* the same: survivors of a loss that went on */
	cJSON *timed;           /* the start that summary is of */
	int timed_start, timed_losses; /* which one of all, from 1 on, and how often survivors went on in it */
	char seed[24];          /* of the last start, with all its digits; "": it says none */
	int starts;             /* 1, and one more for every time it was resumed */
	int mixed;              /* the global batch was not always the same when it started */
	int mixed_precision;    /* nor was that */
	int losses, lost_since; /* how often survivors went on: in all, and since the last start */
	int has_oracle;
	double oracle[FINDINGS]; /* best possible AUROC where the data set knows it, else NAN */
	size_t skipped;          /* lines that are no JSON object: a run that was killed leaves half a line */
};

/* EXIT_DATA when the file cannot be read or holds no event; to be freed, on errors too. */
int train_log_read(struct train_log *log, const char *path, struct error *e);
void train_log_free(struct train_log *log);

/* object[key] as a finite number or a text; NAN and NULL where there is none. object may be NULL. */
double json_get_number(const cJSON *object, const char *key);
const char *json_get_text(const cJSON *object, const char *key);

#endif
