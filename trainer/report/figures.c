/* SPDX-License-Identifier: Apache-2.0
 * Small multiples: ROC, precision-recall and calibration of every finding. */
#include <math.h>
#include <stdio.h>

#include "report/parts.h"
#include "report/svg.h"

static struct plot small_plot(struct page *page)
{
	return (struct plot){ .page = page, .width = 210, .height = 202, .left = 28, .right = 13, .top = 18, .bottom = 30, .x1 = 1, .y1 = 1,
			      .x_ticks = 6, .y_ticks = 6 };
}

/* What a screen reader says of a curve. */
static void told(const struct report *r, char title[160], const char *what, const char *finding, const char *measure, double a, double b)
{
	int n = snprintf(title, 160, "%s of %s, %s %.3f", what, finding, measure, a);

	if (r->in->other && !isnan(b))
		snprintf(title + n, 160 - (size_t)n, ", of B %.3f", b);
}

static void put_caption(struct page *page, const char *name, const char *measure, double a, double b, int digits)
{
	page_put(page, "<figure><figcaption><b>");
	page_text(page, name);
	page_put(page, "</b><span>%s <span class=\"ka\">%.*f</span>", measure, digits, a);
	if (!isnan(b))
		page_put(page, " <span class=\"kb\">%.*f</span>", digits, b);
	page_put(page, "</span></figcaption>");
}

/* Findings of fewer than `least` patients have no panel, and are named in one line below the others. How many show those without labels nobody knows:
 * the head of the page names them. */
static void put_missing(const struct report *r, struct page *page, int least)
{
	char name[32];
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (auroc_patients(&r->a.table, f) < (size_t)least && r->a.table.positives[f] + r->a.table.negatives[f] > 0)
			page_put(page, "%s%s", n++ ? ", " : "<p class=\"lead\">Not for findings that too few patients show, or do not: ", finding_title(f, name));
	if (n)
		page_put(page, " (fewer than %d).</p>\n", least);
}

/* Whether there is a panel; otherwise the section is only opened and closed, with what is missing, if that can be said. */
static int any_panel(const struct report *r, struct page *page, const char *heading, int least)
{
	int n = 0, labelled = 0;

	for (int f = 0; f < FINDINGS; f++) {
		n += auroc_patients(&r->a.table, f) >= (size_t)least;
		labelled += r->a.table.positives[f] + r->a.table.negatives[f] > 0;
	}
	if (!labelled)
		return 0;
	page_put(page, "<section><h2>%s</h2>", heading);
	if (n == 0) {
		put_missing(r, page, least);
		page_put(page, "</section>\n");
	}
	return n;
}

static void put_key(const struct report *r, struct page *page)
{
	if (r->in->other)
		page_put(page, "<p class=\"lead\"><span class=\"ka\">A, solid</span>: this model. <span class=\"kb\">B, dashed</span>: the one it is compared with.</p>\n");
}

static void put_band(const struct plot *p, const struct curve *c)
{
	double x[CURVE_GRID];

	for (int i = 0; i < CURVE_GRID; i++)
		x[i] = (double)i / (CURVE_GRID - 1);
	plot_band(p, "a", x, c->low, c->high, CURVE_GRID);
}

void report_roc(const struct report *r, struct page *page)
{
	char name[32], title[160];

	if (!any_panel(r, page, "ROC curves", LEAST_POSITIVES))
		return;
	page_put(page, "<p class=\"lead\">Every threshold of the model is a point: to the right more false alarms, upwards more findings "
		       "found. The dashed diagonal is guessing; the shaded band is a 95&nbsp;%% confidence interval at each rate of false alarms by itself; "
		       "a whole curve leaves it more often.</p>\n");
	put_key(r, page);
	page_put(page, "<div class=\"multiples\">\n");
	for (int f = 0; f < FINDINGS; f++) {
		struct plot p = small_plot(page);

		if (auroc_patients(&r->a.table, f) < LEAST_POSITIVES)
			continue;
		p.x_label = "1 − specificity";
		p.y_label = "sensitivity";
		put_caption(page, finding_title(f, name), "AUROC", r->a.table.class[f].value, r->in->other ? r->b.table.class[f].value : NAN, 3);
		told(r, title, "ROC curve", name, "AUROC", r->a.table.class[f].value, r->b.table.class[f].value);
		plot_begin(&p, title);
		plot_segment(&p, "rule", 0, 0, 1, 1);
		put_band(&p, &r->a.curves[f].roc);
		if (r->in->other)
			plot_line(&p, "b", r->b.curves[f].roc.points, r->b.curves[f].roc.n);
		plot_line(&p, "a", r->a.curves[f].roc.points, r->a.curves[f].roc.n);
		plot_end(&p);
		page_put(page, "</figure>\n");
	}
	page_put(page, "</div>\n");
	put_missing(r, page, LEAST_POSITIVES);
	page_put(page, "</section>\n");
}

void report_pr(const struct report *r, struct page *page)
{
	char name[32], title[160];

	if (!any_panel(r, page, "Precision and recall", LEAST_POSITIVES))
		return;
	page_put(page, "<p class=\"lead\">Of the images that the model flags, how many show the finding (upwards: precision, the PPV), when so many of "
		       "all that show it are found (to the right: recall, the sensitivity). The dashed line is what guessing gives: the share of images with the finding. Rare findings stay low even "
		       "with a good AUROC. The shaded band is a 95&nbsp;%% confidence interval at each recall by itself.</p>\n");
	put_key(r, page);
	page_put(page, "<div class=\"multiples\">\n");
	for (int f = 0; f < FINDINGS; f++) {
		const struct curves *c = &r->a.curves[f];
		struct plot p = small_plot(page);
		double share = (double)c->positives / (double)(c->positives + c->negatives);

		if (auroc_patients(&r->a.table, f) < LEAST_POSITIVES)
			continue;
		p.x_label = "recall";
		p.y_label = "precision";
		put_caption(page, finding_title(f, name), "AP", c->average_precision.value, r->in->other ? r->b.curves[f].average_precision.value : NAN, 3);
		told(r, title, "Precision-recall curve", name, "average precision", c->average_precision.value, r->b.curves[f].average_precision.value);
		plot_begin(&p, title);
		plot_segment(&p, "rule", 0, share, 1, share);
		put_band(&p, &c->pr);
		if (r->in->other)
			plot_line(&p, "b", r->b.curves[f].pr.points, r->b.curves[f].pr.n);
		plot_line(&p, "a", c->pr.points, c->pr.n);
		plot_end(&p);
		page_put(page, "</figure>\n");
	}
	page_put(page, "</div>\n");
	put_missing(r, page, LEAST_POSITIVES);
	page_put(page, "</section>\n");
}

static void put_bins(const struct plot *p, const struct calibration *c)
{
	struct point points[CALIBRATION_BINS];

	for (int k = 0; k < c->bins; k++) {
		const struct calibration_bin *b = &c->bin[k];

		points[k] = (struct point){ b->predicted, b->observed };
		plot_segment(p, "bar a", b->predicted, b->low, b->predicted, b->high);
	}
	plot_line(p, "a", points, (size_t)c->bins);
	for (int k = 0; k < c->bins; k++)
		plot_dot(p, "a", points[k].x, points[k].y, 2.6);
}

static void put_calibration_caption(struct page *page, const char *name, const struct calibration *c)
{
	page_put(page, "<figure><figcaption><b>%s</b><span>", name);
	if (!isnan(c->skill.value))
		page_put(page, "skill <span class=\"ka\">%+.3f</span>, ", c->skill.value);
	page_put(page, "ECE <span class=\"ka\">%.3f</span> (%.3f by chance)</span><span>slope ", c->ece, c->ece_by_chance);
	if (isnan(c->slope.value))
		page_put(page, "n/a");
	else
		page_put(page, "<span class=\"ka\">%.2f</span> (%.2f to %.2f)", c->slope.value, c->slope.low, c->slope.high);
	page_put(page, "</span></figcaption>");
}

void report_calibration(const struct report *r, struct page *page)
{
	char name[32], title[160];

	if (!any_panel(r, page, r->in->other ? "Calibration of A" : "Calibration", FEW_POSITIVES))
		return;
	page_put(page, "<p class=\"lead\">%sImages in up to %d groups with equal numbers of those that show the finding, from the lowest to the highest "
		       "probability: on the dashed diagonal the model's probability (to the right) is the share that shows the finding (upwards); below it the model says too much, above "
		       "it too little. Bars are 95&nbsp;%% confidence intervals, wider where a patient has several images that are alike. The axes end where the data end.</p>\n",
		 r->in->other ? "Of this model, A, alone. " : "", CALIBRATION_BINS);
	page_put(page, "<p class=\"lead\">Skill: by what share the squared error is below that of saying the finding's share of every image (Brier skill); 0 is no better than that, "
		       "below 0 worse. ECE: the distance between mean probability and share in %d bins of equal width, averaged over images; by chance: about what it would be "
		       "on so many images of so many patients if every probability were right. Of a rare finding nearly all are in one bin, so any model that says its share has a small one. Slope, with a 95&nbsp;%% confidence interval that takes a patient's images for one: below 1 probabilities are too extreme, above "
		       "1 too timid, below 0 they rank the wrong way round.</p>\n<div class=\"multiples\">\n",
		 ECE_BINS);
	for (int f = 0; f < FINDINGS; f++) {
		const struct calibration *c = &r->a.calibration.finding[f];
		struct plot p = small_plot(page);
		double top = 0;

		if (c->bins == 0)
			continue;
		for (int k = 0; k < c->bins; k++)
			top = fmax(top, fmax(c->bin[k].predicted, c->bin[k].high));
		p.x1 = p.y1 = fmin(1.04 * top, 1);
		p.left = p.y1 < 0.02 ? 40 : p.y1 < 0.4 ? 34 : 28;
		p.x_label = "probability";
		p.y_label = "share that shows it";
		put_calibration_caption(page, finding_title(f, name), c);
		snprintf(title, sizeof title, "Reliability diagram of %s, expected calibration error %.3f", name, c->ece);
		plot_begin(&p, title);
		plot_segment(&p, "rule", 0, 0, p.x1, p.y1);
		put_bins(&p, c);
		plot_end(&p);
		page_put(page, "</figure>\n");
	}
	page_put(page, "</div>\n");
	report_calibration_table(r, page);
	put_missing(r, page, FEW_POSITIVES);
	page_put(page, "</section>\n");
}
