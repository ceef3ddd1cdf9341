/* SPDX-License-Identifier: Apache-2.0
 * What the files report*.c share: the measured numbers, and one function a section. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include "learn/calibration_table.h"
#include "learn/compare.h"
#include "learn/curves.h"
#include "json.h"
#include "report/report.h"

enum { FEW_PATIENTS = 200, REPORT_GROUPS = 8 };

struct report_model {
	struct score_arrays arrays;
	struct auroc_table table;
	struct curves curves[FINDINGS];
	struct calibration_table calibration;
};

/* Of the images of one sex, age or view. */
struct report_group {
	size_t images;
	struct auroc_table table;
};

struct report {
	const struct report_input *in;
	struct report_model a, b; /* b: of in->other */
	struct report_model chosen; /* of in->thresholds */
	struct comparison comparison;
	struct report_group group[REPORT_GROUPS]; /* where in->table tells */
	struct pointing_table pointing; /* of in->pointing */
	size_t pointing_others; /* its images that are none of in->predictions */
};

extern const char report_style[]; /* CSS */

/* "Pleural Thickening" */
const char *finding_title(int finding, char text[32]);

/* The best AUROC that synthetic images allow: NULL where the images are real, or nobody says. */
const double *report_oracle(const struct report *r);

/* Whether in->thresholds are of the same model and of other patients than in->predictions; else -EXIT_DATA. */
int report_check_thresholds(const struct report_input *in, struct error *e);

/* Fills r->group; -EXIT_DATA where in->table is of other images. */
int report_measure_groups(struct report *r, struct error *e);
void report_groups_json(const struct report *r, cJSON *o);

/* Fills r->pointing; -1: no memory. */
int report_measure_pointing(struct report *r);
void report_pointing_json(const struct report *r, cJSON *o);

void json_interval(cJSON *o, const char *name, const struct interval *v);

/* For cJSON_free(); NULL without memory. */
char *report_json(const struct report *r);

/* Opens a table up to its head, which scrolls sideways where it is wider than the window. class: of the table, "": none */
void report_table(struct page *page, const char *caption, const char *class);
extern const char report_table_end[];

/* A cell with a value and its interval, or why it has none: report_too_few of a finding. */
void report_value(struct page *page, const struct interval *v, const char *why_none);
const char *report_no_mean(const struct auroc_table *t);
extern const char report_too_few[];

/* Below the number of images with a finding, of how many patients they are, by whom intervals go: where that is another number. */
void report_of_patients(const struct report *r, struct page *page, const struct auroc_table *t, int f);

void report_headline(const struct report *r, struct page *page);
void report_findings(const struct report *r, struct page *page);
void report_groups(const struct report *r, struct page *page);
void report_comparison(const struct report *r, struct page *page);
void report_roc(const struct report *r, struct page *page);
void report_pr(const struct report *r, struct page *page);
void report_operating(const struct report *r, struct page *page);
void report_calibration(const struct report *r, struct page *page);
void report_calibration_table(const struct report *r, struct page *page); /* a part of it */
void report_pictures(const struct report *r, struct page *page);
void report_pointing(const struct report *r, struct page *page);
void report_training(const struct report *r, struct page *page);
void report_speed(const struct report *r, struct page *page);
void report_provenance(const struct report *r, struct page *page);

#endif
