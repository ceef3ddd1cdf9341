/* SPDX-License-Identifier: Apache-2.0
 * The report: one HTML file that holds everything it shows (pictures, style; no script, no outside reference), for a radiologist who
 * wants to know what the numbers mean and an admin who wants to know what the run cost. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "data/nih.h"
#include "learn/pointing_read.h"
#include "learn/predictions.h"
#include "learn/train_log.h"
#include "report/page.h"

struct report_picture {
	const char *name; /* shown below it */
	const void *png;
	size_t size;
};

struct report_input {
	const struct predictions *predictions;
	const struct predictions *other; /* a second model on the same images; NULL: none */
	const struct predictions *thresholds; /* the first model's for other patients, who choose the operating points; NULL: those who are judged do */
	const struct nih *table;         /* sex, age and view of the images, by their names; NULL: not known */
	const struct train_log *log;     /* of the training; NULL: none */
	const struct pointing_file *pointing; /* of maps against boxes; NULL: none */
	const char *path, *other_path, *thresholds_path, *log_path, *pointing_path; /* for provenance and error lines; NULL: none */
	const char *command;             /* that makes this report */
	const char *date;                /* "2026-11-21 12:00 UTC" */
	int resamples;                   /* of patients, behind every interval and band */
	uint64_t seed;
	const struct report_picture *pictures; /* [n_pictures] activation maps and the like */
	size_t n_pictures, more_pictures; /* more: there were, and they are not shown */
};

/* Pictures that other weights made than these predictions, and than the second model's, as the files say. */
size_t report_foreign_pictures(const struct report_input *in);

/* Whether the log ends with other weights than those of these predictions and of the second model's, as all of them say. */
int report_foreign_log(const struct report_input *in);
/* What to keep in mind of whose log it is, in HTML; NULL where it is that of these predictions, or has no end and does not say. */
const char *report_whose_log(const struct report_input *in);

/* Appends the whole HTML file to *page. json: the same numbers as a JSON object, to be given to cJSON_free(); NULL: not wanted.
 * EXIT_DATA when `other` cannot be compared, `table` has none of the images, or `thresholds` are of the same patients or another model; EXIT_INTERNAL without memory. */
int report_make(struct page *page, char **json, const struct report_input *in, struct error *e);

#endif
