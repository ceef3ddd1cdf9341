/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

#include "report/parts.h"
#include "utf8.h"

/* ---- the numbers ------------------------------------------------------------------------------------ */

/* bands: resamples behind those of the curves. */
static int measure(struct report_model *m, const struct predictions *p, int resamples, int bands, uint64_t seed)
{
	if (predictions_scores(p, &m->arrays) || auroc_bootstrap(&m->arrays.scores, resamples, seed, &m->table, NULL) ||
	    calibration_table_of(&m->arrays.scores, &m->table, &m->calibration))
		return -1;
	for (int f = 0; f < FINDINGS; f++) {
		if (curves_of(&m->arrays.scores, f, bands, seed, &m->curves[f]))
			return -1;
		curves_judge(&m->curves[f], &m->table, f);
	}
	return 0;
}

static void forget(struct report_model *m)
{
	score_arrays_free(&m->arrays);
	for (int f = 0; f < FINDINGS; f++)
		curves_free(&m->curves[f]);
}

/* Puts the operating points that other patients chose in place of those that the judged ones did. */
static int judge_thresholds(struct report *r)
{
	const struct report_input *in = r->in;

	if (measure(&r->chosen, in->thresholds, 0, 0, in->seed))
		return -1;
	for (int f = 0; f < FINDINGS; f++)
		for (int aim = 0; aim < AIMS; aim++) {
			r->a.curves[f].at[aim] = r->chosen.curves[f].at[aim];
			if (operating_judge(&r->a.curves[f].at[aim], &r->a.arrays.scores, f, in->resamples, in->seed))
				return -1;
		}
	return 0;
}

static int measure_all(struct report *r, struct error *e)
{
	const struct report_input *in = r->in;

	if (in->thresholds && report_check_thresholds(in, e))
		return -e->code;
	if (measure(&r->a, in->predictions, in->resamples, in->resamples, in->seed) || (in->thresholds && judge_thresholds(r)) ||
	    (in->other && measure(&r->b, in->other, in->resamples, 0, in->seed)))
		return fail(e, EXIT_INTERNAL, "no memory for the curves of %zu images", in->predictions->n);
	if (in->table && report_measure_groups(r, e))
		return -e->code;
	if (in->pointing && report_measure_pointing(r))
		return fail(e, EXIT_INTERNAL, "no memory for the pointing game of %zu images", in->pointing->images);
	if (in->other)
		return compare_predictions(&r->comparison, in->predictions, in->other, in->path, in->other_path, in->resamples, in->seed, e);
	return 0;
}

/* ---- the page --------------------------------------------------------------------------------------- */

static void put_page(const struct report *r, struct page *page)
{
	page_put(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
		       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
		       "<title>chexnet report");
	if (!isnan(r->a.table.mean.value))
		page_put(page, ": mean AUROC %.3f", r->a.table.mean.value);
	page_put(page, "</title>\n<style>\n%s</style></head>\n<body><main>\n", report_style);
	report_headline(r, page);
	report_findings(r, page);
	report_groups(r, page);
	report_comparison(r, page);
	report_roc(r, page);
	report_pr(r, page);
	report_operating(r, page);
	report_calibration(r, page);
	report_pictures(r, page);
	report_pointing(r, page);
	report_training(r, page);
	report_speed(r, page);
	report_provenance(r, page);
	page_put(page, "</main></body></html>\n");
}

int report_make(struct page *page, char **json, const struct report_input *in, struct error *e)
{
	struct report *r = calloc(1, sizeof *r);

	if (json)
		*json = NULL;
	if (!r)
		return fail(e, EXIT_INTERNAL, "no memory for a report");
	r->in = in;
	if (measure_all(r, e) == 0) {
		put_page(r, page);
		utf8_mend(page->text);
		if (json)
			*json = report_json(r);
		if (page->failed || (json && !*json))
			fail(e, EXIT_INTERNAL, "no memory for a report of %zu bytes", page->size);
	}
	forget(&r->a);
	forget(&r->b);
	forget(&r->chosen);
	free(r);
	return e->code ? -e->code : 0;
}
