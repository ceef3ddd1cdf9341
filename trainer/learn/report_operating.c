/* SPDX-License-Identifier: Apache-2.0
 * What a threshold would do: sensitivity at a specificity, and the other way round. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "learn/report_parts.h"

static void put_share(struct page *page, double share)
{
	if (isnan(share))
		page_put(page, "<td class=\"n soft\">n/a</td>");
	else
		page_put(page, "<td class=\"n\">%.3f</td>", share);
}

static void put_point(struct page *page, const struct operating_point *at, enum aim aim)
{
	const struct interval *left = aim == AIM_SPECIFICITY ? &at->sensitivity : &at->specificity;
	int digits;
	double threshold = operating_probability(at, &digits);

	if (isnan(threshold))
		page_put(page, "<td class=\"n soft\">n/a</td>");
	else
		page_put(page, "<td class=\"n\">%#.*g</td>", digits, threshold);
	page_put(page, "<td class=\"n\">%.3f", left->value);
	if (!isnan(left->low))
		page_put(page, " <small>%.3f&#8211;%.3f</small>", left->low, left->high);
	page_put(page, "</td>");
	put_share(page, at->ppv);
	put_share(page, at->npv);
}

/* Findings without the points, and why. */
static void put_left_out(const struct report *r, struct page *page)
{
	char name[32];
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (isnan(r->a.curves[f].at[0].threshold) && r->a.table.positives[f] + r->a.table.negatives[f] > 0)
			page_put(page, "%s%s", n++ ? ", " : "<p class=\"lead\">Not for findings that too few patients show, or do not: ", finding_title(f, name));
	if (n)
		page_put(page, " (fewer than %d).</p>\n", AIM_LEAST);
}

static void put_rows(const struct report *r, struct page *page)
{
	char name[32];

	report_table(page, "Thresholds of every finding and what they do", "");
	page_put(page, "<tr><td></td><th scope=\"colgroup\" class=\"n\" colspan=\"4\">Specificity of %d&nbsp;%%</th><th scope=\"colgroup\" class=\"n\" colspan=\"4\">Sensitivity of "
		       "%d&nbsp;%%</th></tr>\n<tr><th scope=\"col\">Finding</th>", AIM_PERCENT, AIM_PERCENT);
	for (int aim = 0; aim < AIMS; aim++)
		page_put(page, "<th scope=\"col\" class=\"n\">Threshold</th><th scope=\"col\" class=\"n\">%s</th><th scope=\"col\" class=\"n\">PPV</th><th scope=\"col\" class=\"n\">NPV</th>", aim == AIM_SPECIFICITY ? "Sensitivity" : "Specificity");
	page_put(page, "</tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++) {
		const struct operating_point *at = r->a.curves[f].at;

		if (isnan(at[0].threshold))
			continue;
		page_put(page, "<tr><th scope=\"row\">%s</th>", finding_title(f, name));
		for (int aim = 0; aim < AIMS; aim++)
			put_point(page, &at[aim], (enum aim)aim);
		page_put(page, "</tr>\n");
	}
	page_put(page, "%s", report_table_end);
}

void report_operating(const struct report *r, struct page *page)
{
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		n += !isnan(r->a.curves[f].at[0].threshold);
	page_put(page, "<section><h2>Operating points%s</h2>", r->in->other ? " of A" : "");
	if (n) {
		page_put(page, "<p class=\"lead\">An image is flagged where the probability is the threshold, as it is printed, or more. Of the images that show the finding the sensitivity is flagged, of the others "
			       "the specificity is not. PPV: the share of the flagged images that show it; NPV: the share of the others that do not; both hold where the finding is as common as "
			       "here. Sensitivity and specificity with 95&nbsp;%% intervals. A threshold is n/a where too many images have the same probability for any to part them so.</p>\n<p class=\"lead\"><b>These thresholds were chosen on the images that they are judged on, which "
			       "flatters them.</b> ");
		page_put(page, strcmp(r->in->predictions->about.split, "val") == 0 ? "What they do for new patients, the test split shows.</p>\n" :
			       "For use, choose thresholds on the validation split (chexnet eval --split val, and a report on that), and judge them on the test split.</p>\n");
		put_rows(r, page);
	}
	put_left_out(r, page);
	page_put(page, "</section>\n");
}
