/* SPDX-License-Identifier: Apache-2.0
 * What a threshold would do: sensitivity at a specificity, and the other way round. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"

/* ---- thresholds that other patients chose ------------------------------------------------------------ */

static int both_name_patients(const struct report_input *in)
{
	return in->predictions->has_patients && in->thresholds->has_patients;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int check_patients(const struct report_input *in, struct error *e)
{
	const struct predictions *p = in->predictions, *t = in->thresholds;
	uint32_t *theirs = malloc((t->n + 1) * sizeof *theirs);

	if (!theirs)
		return fail(e, EXIT_INTERNAL, "no memory for %zu patients", t->n);
	for (size_t i = 0; i < t->n; i++)
		theirs[i] = t->samples[i].patient;
	qsort(theirs, t->n, sizeof *theirs, by_number);
	for (size_t i = 0; i < p->n && !e->code; i++)
		if (bsearch(&p->samples[i].patient, theirs, t->n, sizeof *theirs, by_number))
			fail(e, EXIT_DATA, "patient %u is in %s and in %s: thresholds are judged on other patients than those that chose them (where the numbers in %s are "
			     "other people's, empty its column \"patient\")", p->samples[i].patient, in->path, in->thresholds_path, in->thresholds_path);
	free(theirs);
	return e->code ? -e->code : 0;
}

static int check_images(const struct report_input *in, struct error *e)
{
	size_t *row = malloc((in->predictions->n + 1) * sizeof *row);
	long shared = row ? predictions_match(in->predictions, in->thresholds, in->path, in->thresholds_path, row, e) : fail(e, EXIT_INTERNAL, "no memory for %zu images", in->predictions->n);

	if (shared > 0)
		fail(e, EXIT_DATA, "%s and %s have %ld image%s in common: thresholds are judged on other images than those that chose them", in->path, in->thresholds_path, shared,
		     shared == 1 ? "" : "s");
	free(row);
	return e->code ? -e->code : 0;
}

int report_check_thresholds(const struct report_input *in, struct error *e)
{
	const struct provenance *ours = &in->predictions->about, *theirs = &in->thresholds->about;
	const int members = strncmp(ours->crops, "some", 4) == 0 || strncmp(theirs->crops, "some", 4) == 0; /* of an ensemble */

	if (*ours->weights_hash && *theirs->weights_hash && strcmp(ours->weights_hash, theirs->weights_hash) != 0)
		return fail(e, EXIT_DATA, "%s and %s come from different weights: thresholds are of one model", in->path, in->thresholds_path);
	if (strcmp(ours->crops, theirs->crops) != 0) /* a mean over crops is less extreme than the middle alone */
		return fail(e, EXIT_DATA, "%s and %s were not scored with the same --crops, and a threshold is of one way to score: chexnet eval --crops=%s for %s",
			    in->path, in->thresholds_path, *ours->crops ? "ten" : "none", members ? "all members of both" : "both");
	return both_name_patients(in) ? check_patients(in, e) : check_images(in, e);
}

/* ---- the table -------------------------------------------------------------------------------------- */

static void put_none(struct page *page)
{
	page_put(page, "<td class=\"n soft\">n/a</td>");
}

/* So many of so many images. */
static void put_share(struct page *page, const struct interval *share, uint64_t part, uint64_t rest)
{
	if (isnan(share->value)) {
		put_none(page);
		return;
	}
	page_put(page, "<td class=\"n\">%.3f<br><small>", share->value);
	if (!isnan(share->low))
		page_put(page, "%.3f&#8211;%.3f<br>", share->low, share->high);
	page_count(page, part);
	page_put(page, "/");
	page_count(page, part + rest);
	page_put(page, "</small></td>");
}

/* Below the value, as there are many columns. */
static void put_interval(struct page *page, const struct interval *share)
{
	if (isnan(share->value)) {
		put_none(page);
		return;
	}
	page_put(page, "<td class=\"n\">%.3f", share->value);
	if (!isnan(share->low))
		page_put(page, "<br><small>%.3f&#8211;%.3f</small>", share->low, share->high);
	page_put(page, "</td>");
}

/* What was aimed at says something only of other images than those that chose the threshold. */
static void put_point(struct page *page, const struct operating_point *at, enum aim aim, int chosen_elsewhere)
{
	int digits;
	double threshold = operating_probability(at, &digits);

	if (isnan(threshold))
		put_none(page);
	else
		page_put(page, "<td class=\"n\">%#.*g</td>", digits, threshold);
	if (chosen_elsewhere || aim == AIM_SPECIFICITY)
		put_interval(page, &at->sensitivity);
	if (chosen_elsewhere || aim == AIM_SENSITIVITY)
		put_interval(page, &at->specificity);
	put_share(page, &at->ppv, at->flagged[1], at->flagged[0]);
	put_share(page, &at->npv, at->passed[0], at->passed[1]);
}

/* Lists them behind `why`: those whose labels the choosing file has, or those that it has none of. */
static int put_pointless(const struct report *r, struct page *page, int labelled, const char *why)
{
	const struct auroc_table *chosen = r->in->thresholds ? &r->chosen.table : &r->a.table;
	char name[32];
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (isnan(r->a.curves[f].at[0].threshold) && r->a.table.positives[f] + r->a.table.negatives[f] > 0 &&
		    (chosen->positives[f] + chosen->negatives[f] > 0) == labelled)
			page_put(page, "%s%s", n++ ? ", " : why, finding_title(f, name));
	return n;
}

/* Findings without the points, and why. */
static void put_left_out(const struct report *r, struct page *page)
{
	if (put_pointless(r, page, 1, "<p class=\"lead\">Not for findings that too few patients show, or do not: "))
		page_put(page, " (fewer than %d%s).</p>\n", AIM_LEAST, r->in->thresholds ? " where thresholds were chosen" : "");
	if (put_pointless(r, page, 0, "<p class=\"lead\">Not for findings of which no label is known where thresholds were chosen: "))
		page_put(page, ".</p>\n");
}

static void put_rows(const struct report *r, struct page *page)
{
	static const char *const aimed_at[AIMS] = { "pecificity", "ensitivity" };
	const int elsewhere = r->in->thresholds != NULL;
	char name[32];

	report_table(page, "Thresholds of every finding and what they do", "");
	page_put(page, "<tr><td></td>");
	for (int aim = 0; aim < AIMS; aim++)
		page_put(page, "<th scope=\"colgroup\" class=\"n\" colspan=\"%d\">%s%s of %d&nbsp;%%</th>", elsewhere ? 5 : 4, elsewhere ? "Chosen for a s" : "S", aimed_at[aim], AIM_PERCENT);
	page_put(page, "</tr>\n<tr><th scope=\"col\">Finding</th>");
	for (int aim = 0; aim < AIMS; aim++)
		page_put(page, "<th scope=\"col\" class=\"n\">Threshold</th>%s%s<th scope=\"col\" class=\"n\">PPV</th><th scope=\"col\" class=\"n\">NPV</th>",
			 elsewhere || aim == AIM_SPECIFICITY ? "<th scope=\"col\" class=\"n\">Sensitivity</th>" : "",
			 elsewhere || aim == AIM_SENSITIVITY ? "<th scope=\"col\" class=\"n\">Specificity</th>" : "");
	page_put(page, "</tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++) {
		const struct operating_point *at = r->a.curves[f].at;

		if (isnan(at[0].threshold))
			continue;
		page_put(page, "<tr><th scope=\"row\">%s</th>", finding_title(f, name));
		for (int aim = 0; aim < AIMS; aim++)
			put_point(page, &at[aim], (enum aim)aim, elsewhere);
		page_put(page, "</tr>\n");
	}
	page_put(page, "%s", report_table_end);
}

/* On whom the thresholds were chosen, and what that means for the numbers. */
static void put_choice(const struct report *r, struct page *page)
{
	const struct predictions *chosen = r->in->thresholds;

	if (!chosen) {
		page_put(page, "<b>These thresholds were chosen on the images that they are judged on, which flatters them.</b> %s</p>\n",
			 strcmp(r->in->predictions->about.split, "val") == 0 ? "What they do for new patients, the test split shows: give this file to its report as --thresholds." :
			 "For use, choose thresholds on the validation split and judge them on the test split: chexnet eval --split val --predictions FILE, and --thresholds FILE in this command.");
		return;
	}
	page_put(page, "<b>These thresholds were chosen on ");
	page_count(page, chosen->n);
	page_put(page, " other images");
	if (chosen->has_patients) {
		page_put(page, " of ");
		page_count(page, r->chosen.table.patients);
		page_put(page, " patient%s", r->chosen.table.patients == 1 ? "" : "s");
	}
	page_put(page, "%s", *chosen->about.split ? " (split " : "");
	page_text(page, chosen->about.split);
	page_put(page, "%s%s.</b> Intervals are of these thresholds as they are: other patients would have chosen others.</p>\n", *chosen->about.split ? ")" : "", both_name_patients(r->in) ? ", and none of their patients is judged here" : "; whether of other patients, the files do not say");
}

void report_operating(const struct report *r, struct page *page)
{
	int n = 0, labelled = 0;

	for (int f = 0; f < FINDINGS; f++) {
		n += !isnan(r->a.curves[f].at[0].threshold);
		labelled += r->a.table.positives[f] + r->a.table.negatives[f] > 0;
	}
	if (!labelled)
		return;
	page_put(page, "<section><h2>Operating points%s</h2>", r->in->other ? " of A" : "");
	if (n) {
		page_put(page, "<p class=\"lead\">An image is flagged where the probability is the threshold, as it is printed, or more. Of the images that show the finding the sensitivity is flagged, of the others "
			       "the specificity is not. PPV: the share of the flagged images that show it; NPV: the share of the others that do not; with the images counted below. Both hold "
			       "where the finding is as common as here%s. Sensitivity and specificity with 95&nbsp;%% confidence intervals. A threshold is n/a where too many images have the same probability for any to part them so.</p>\n<p class=\"lead\">",
			 r->in->thresholds ? ", and have 95&nbsp;% confidence intervals" : "; they have no interval, as the same images chose the threshold");
		put_choice(r, page);
		put_rows(r, page);
	}
	put_left_out(r, page);
	page_put(page, "</section>\n");
}
