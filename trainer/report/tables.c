/* SPDX-License-Identifier: Apache-2.0
 * The tables of findings, with intervals drawn beside the numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/parts.h"
#include "report/svg.h"

/* Who hears the page is told the table's name, who uses the keyboard can scroll it. */
void report_table(struct page *page, const char *caption, const char *class)
{
	page_put(page, "<p class=\"hint\">Where the table is wider than the window, it scrolls sideways.</p>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
		       "<table%s%s%s><caption>%s</caption><thead>", caption, *class ? " class=\"" : "", class, *class ? "\"" : "", caption);
}

const char report_table_end[] = "</tbody></table></div>\n";

/* A row's interval on a common scale. */
struct scale {
	double low, high;
	int ticks;
};

static struct plot forest(struct page *page, const struct scale *s, double height)
{
	return (struct plot){ .page = page, .width = 300, .height = height, .left = 19, .right = 19, .x0 = s->low, .x1 = s->high, .y1 = 1 };
}

static void put_scale(struct page *page, const struct scale *s, double reference)
{
	struct plot p = forest(page, s, 16);
	double ticks[TICKS_MAX];
	int n = nice_ticks(s->low, s->high, s->ticks, ticks);
	int digits = tick_digits(n > 1 ? ticks[1] - ticks[0] : 0.1);
	char text[32];

	plot_begin(&p, "scale");
	for (int i = 0; i < n; i++) {
		snprintf(text, sizeof text, fabs(ticks[i]) < 1e-9 || reference != 0 ? "%.*f" : "%+.*f", digits, fabs(ticks[i]) < 1e-9 ? 0 : ticks[i]);
		plot_text(&p, "tick", "middle", ticks[i], 0, 0, -3, text);
	}
	plot_end(&p);
}

static void put_grid(const struct plot *p, const struct scale *s, double reference)
{
	double ticks[TICKS_MAX];
	int n = nice_ticks(s->low, s->high, s->ticks, ticks);

	for (int i = 0; i < n; i++)
		plot_segment(p, fabs(ticks[i] - reference) < 1e-9 ? "axisline" : "grid", ticks[i], 0, ticks[i], 1);
}

static void put_interval(const struct plot *p, const char *class, const struct interval *v, double y)
{
	char bar[16];

	snprintf(bar, sizeof bar, "bar %s", class);
	if (!isnan(v->low))
		plot_segment(p, bar, v->low, y, v->high, y);
	if (!isnan(v->value))
		plot_dot(p, class, v->value, y, 3.2);
}

/* "0.812, interval 0.790 to 0.834" */
static const char *told(const struct interval *v, int sign, char text[64])
{
	const char *with = sign ? "%+.4f, interval %+.4f to %+.4f" : "%.3f, interval %.3f to %.3f", *without = sign ? "%+.4f, no interval" : "%.3f, no interval";

	if (isnan(v->value))
		snprintf(text, 64, "n/a");
	else if (isnan(v->low))
		snprintf(text, 64, without, v->value);
	else
		snprintf(text, 64, with, v->value, v->low, v->high);
	return text;
}

static void put_forest(const struct report *r, struct page *page, const struct scale *s, const struct interval *a, const struct interval *b, double oracle)
{
	struct plot p = forest(page, s, 18);
	char title[160], one[64], two[64];

	page_put(page, "<td class=\"forest\">");
	if (!isnan(a->value) || (r->in->other && !isnan(b->value))) { /* a model that --mask kept a finding from has nothing of it */
		if (r->in->other)
			snprintf(title, sizeof title, "AUROC of A %s; of B %s", told(a, 0, one), told(b, 0, two));
		else
			snprintf(title, sizeof title, "AUROC %s", told(a, 0, one));
		plot_begin(&p, title);
		put_grid(&p, s, 0.5);
		if (!isnan(oracle))
			plot_segment(&p, "oracle", oracle, 0.1, oracle, 0.9);
		put_interval(&p, "a", a, r->in->other ? 0.7 : 0.5);
		if (r->in->other)
			put_interval(&p, "b", b, 0.3);
		plot_end(&p);
	}
	page_put(page, "</td>");
}

/* Why a value has no interval. */
const char report_too_few[] = "(too few)";
static const char all_agree[] = "(all resamples agree)", few_left[] = "(too few resamples left)",
		  other_findings[] = "of those that both have";

void report_value(struct page *page, const struct interval *v, const char *why_none)
{
	if (isnan(v->value))
		page_put(page, "<td class=\"n soft\">n/a</td>");
	else if (isnan(v->low))
		page_put(page, "<td class=\"n%s\">%.3f <small>%s</small></td>", why_none == report_too_few ? " soft" : "", v->value, why_none);
	else
		page_put(page, "<td class=\"n\">%.3f <small>%.3f&#8211;%.3f</small></td>", v->value, v->low, v->high);
}

static void put_bare(struct page *page, double value)
{
	page_put(page, isnan(value) ? "<td class=\"n soft\">n/a</td>" : "<td class=\"n\">%.3f</td>", value);
}

void report_of_patients(const struct report *r, struct page *page, const struct auroc_table *t, int f)
{
	if (!r->in->predictions->has_patients || t->positive_patients[f] >= t->positives[f])
		return;
	page_put(page, "<br><small>of ");
	page_count(page, t->positive_patients[f]);
	page_put(page, " patient%s</small>", t->positive_patients[f] == 1 ? "" : "s");
}

static void put_finding(const struct report *r, struct page *page, int f, const struct scale *s)
{
	const struct curves *c = &r->a.curves[f];
	const double *oracle = report_oracle(r);
	char name[32];
	size_t known = c->positives + c->negatives;

	page_put(page, "<tr><th scope=\"row\">%s</th><td class=\"n%s\">", finding_title(f, name), known ? "" : " soft");
	if (known)
		page_count(page, c->positives);
	else
		page_put(page, "n/a");
	page_put(page, known && auroc_patients(&r->a.table, f) < FEW_POSITIVES ? " <span class=\"warn\">!</span>" : "");
	report_of_patients(r, page, &r->a.table, f);
	page_put(page, "</td>");
	if (known) {
		page_put(page, "<td class=\"n soft\">%.*f&nbsp;%%", (double)c->positives / (double)known < 0.01 ? 2 : 1, 100 * (double)c->positives / (double)known);
		if (known < r->in->predictions->n) {
			page_put(page, "<br><small>of ");
			page_count(page, known);
			page_put(page, "</small>");
		}
		page_put(page, "</td>");
	} else
		page_put(page, "<td class=\"n soft\">n/a</td>");
	report_value(page, &r->a.table.class[f], report_too_few);
	put_forest(r, page, s, &r->a.table.class[f], &r->b.table.class[f], oracle ? oracle[f] : NAN);
	if (r->in->other)
		report_value(page, &r->b.table.class[f], report_too_few);
	report_value(page, &c->average_precision, isnan(r->a.table.class[f].low) ? report_too_few : all_agree);
	if (r->in->other)
		put_bare(page, r->b.curves[f].average_precision.value);
	page_put(page, "</tr>\n");
}

static void widen(struct scale *s, const struct auroc_table *t)
{
	for (int f = 0; f < t->classes; f++) {
		double low = isnan(t->class[f].low) ? t->class[f].value : t->class[f].low;

		if (low < s->low)
			s->low = fmax(floor(low * 10) / 10, 0);
	}
}

/* name in the heads of its columns, one for A and one for B where there are two. */
static void put_heads(const struct report *r, struct page *page, const char *name, int other)
{
	page_put(page, "<th scope=\"col\" class=\"n\">%s%s</th>", name, !r->in->other ? "" : other ? " <span class=\"kb\">B</span>" : " <span class=\"ka\">A</span>");
}

static int has_few(const struct auroc_table *t)
{
	int few = 0;

	for (int f = 0; f < FINDINGS; f++)
		few += t->positives[f] + t->negatives[f] > 0 && auroc_patients(t, f) < FEW_POSITIVES;
	return few;
}

static int any_unknown(const struct report *r)
{
	int any = 0;

	for (int f = 0; f < FINDINGS; f++) {
		const size_t known = r->a.table.positives[f] + r->a.table.negatives[f];

		any |= known > 0 && known < r->in->predictions->n;
	}
	return any;
}

static int same_findings(const struct report *r)
{
	for (int f = 0; f < FINDINGS; f++)
		if (isnan(r->a.table.class[f].value) != isnan(r->b.table.class[f].value))
			return 0;
	return 1;
}

/* Resamples that lack a finding are no part of the mean's interval. */
const char *report_no_mean(const struct auroc_table *t)
{
	return t->left_out && !t->mostly_few ? few_left : report_too_few;
}

void report_findings(const struct report *r, struct page *page)
{
	struct scale s = { 0.5, 1, 6 };

	widen(&s, &r->a.table);
	if (r->in->other)
		widen(&s, &r->b.table);
	s.ticks = (int)lround(10 * (s.high - s.low)) + 1;
	page_put(page, "<section><h2>Findings</h2><p class=\"lead\">AUROC and average precision (AP) with 95&nbsp;%% confidence intervals.%s%s%s", any_unknown(r) ?
		       " Share: of the images whose label is known, which all the finding's numbers are of." : "", r->in->other ? " A is this model, B the one it is compared with." : "", report_oracle(r) ?
		       " The upright stroke is the best AUROC that these synthetic images allow on average: on so many a model may be above it by chance." : "");
	if (has_few(&r->a.table))
		page_put(page, " <span class=\"warn\">!</span> Fewer than %d patients show it, or do not.", FEW_POSITIVES);
	page_put(page, "</p>\n");
	report_table(page, "AUROC and average precision of every finding", "");
	page_put(page, "<tr><th scope=\"col\">Finding</th><th scope=\"col\" class=\"n\">Images<br>with it</th><th scope=\"col\" class=\"n\">Share</th>");
	put_heads(r, page, "AUROC", 0);
	page_put(page, "<th scope=\"col\" class=\"forest\">");
	put_scale(page, &s, 0.5);
	page_put(page, "</th>");
	if (r->in->other)
		put_heads(r, page, "AUROC", 1);
	put_heads(r, page, "AP", 0);
	if (r->in->other)
		put_heads(r, page, "AP", 1);
	page_put(page, "</tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++)
		put_finding(r, page, f, &s);
	struct interval a = r->a.table.mean, b = r->b.table.mean;
	int of = r->a.table.counted;
	const char *why_a = report_no_mean(&r->a.table), *why_b = report_no_mean(&r->b.table);

	if (r->in->other && !same_findings(r)) { /* means over different findings are not to be compared */
		a = value_only(r->comparison.mean.a);
		b = value_only(r->comparison.mean.b);
		of = r->comparison.counted;
		why_a = why_b = other_findings;
	}
	page_put(page, "<tr class=\"mean\"><th scope=\"row\">Mean of %d</th><td></td><td></td>", of);
	report_value(page, &a, why_a);
	put_forest(r, page, &s, &a, &b, NAN);
	if (r->in->other)
		report_value(page, &b, why_b);
	page_put(page, "%s<td></td></tr>\n%s</section>\n", r->in->other ? "<td></td>" : "", report_table_end);
}

/* ---- comparison ------------------------------------------------------------------------------------- */

/* As p_text() says it. */
static void put_p(struct page *page, double p, int bound)
{
	char text[16];
	const char *digits = p_text(p, bound, text);

	digits += strspn(digits, "<=");
	page_put(page, "<td class=\"n\">%s%s</td>", digits == text ? "" : text[1] == '=' ? "&#8804;&#8239;" : "&lt;&#8239;", digits);
}

static void put_difference(struct page *page, const char *name, const struct paired *p, const struct scale *s, int is_mean)
{
	struct plot plot = forest(page, s, 18);
	const struct interval *d = &p->difference;
	const char *class = !isnan(d->low) && d->high < 0 ? "a" : "b";
	char title[96], text[64];

	page_put(page, is_mean ? "<tr class=\"mean\"><th scope=\"row\">%s</th>" : "<tr><th scope=\"row\">%s</th>", name);
	if (isnan(d->value)) {
		page_put(page, "<td class=\"n soft\">n/a</td><td class=\"forest\"></td><td></td><td></td><td></td></tr>\n");
		return;
	}
	page_put(page, "<td class=\"n%s\">%+.4f", isnan(d->low) ? " soft" : "", d->value);
	if (isnan(d->low))
		page_put(page, " <small>(too few)</small>");
	else
		page_put(page, " <small>%+.4f to %+.4f</small>", d->low, d->high);
	page_put(page, "</td><td class=\"forest\">");
	snprintf(title, sizeof title, "B minus A %s", told(d, 1, text));
	plot_begin(&plot, title);
	put_grid(&plot, s, 0);
	put_interval(&plot, class, d, 0.5);
	plot_end(&plot);
	page_put(page, "</td>");
	put_p(page, p->p, p->p_bound);
	put_p(page, is_mean ? NAN : p->p_holm, p->p_holm_bound);
	put_p(page, p->p_delong, 0);
	page_put(page, "</tr>\n");
}

void report_comparison(const struct report *r, struct page *page)
{
	const struct comparison *c = &r->comparison;
	const struct interval *d = &c->mean.difference;
	struct scale s = { 0, 0, 7 };
	char name[32];

	if (!r->in->other)
		return;
	for (int f = 0; f < FINDINGS; f++)
		if (!isnan(c->finding[f].difference.low))
			s.high = fmax(s.high, fmax(-c->finding[f].difference.low, c->finding[f].difference.high));
		else if (!isnan(c->finding[f].difference.value))
			s.high = fmax(s.high, fabs(c->finding[f].difference.value));
	s.high = fmin(nice_top(s.high > 0 ? s.high : 0.01), 1);
	s.low = -s.high;
	page_put(page, "<section><h2>Is B better than A?</h2><p>");
	if (isnan(d->low))
		page_put(page, "Nothing can be told from these images.");
	else if (d->low > 0 || d->high < 0)
		page_put(page, "<b>%s has the higher mean AUROC</b>, by %.4f (95&nbsp;%% confidence interval %.4f to %.4f).", d->value > 0 ? "B" : "A", fabs(d->value),
			 fmin(fabs(d->low), fabs(d->high)), fmax(fabs(d->low), fabs(d->high)));
	else
		page_put(page, "<b>No difference can be shown:</b> the mean AUROC differs by %+.4f, with a 95&nbsp;%% confidence interval of %+.4f to %+.4f that contains 0.", d->value,
			 d->low, d->high);
	page_put(page, " Both were judged on the same ");
	page_count(page, c->n);
	page_put(page, " images");
	if (c->named) {
		page_put(page, " of ");
		page_count(page, c->patients);
		page_put(page, " patient%s", c->patients == 1 ? "" : "s");
	}
	page_put(page, ".</p>\n");
	report_table(page, "Differences in AUROC between B and A", "");
	page_put(page, "<tr><th scope=\"col\">Finding</th><th scope=\"col\" class=\"n\">AUROC of B minus A</th><th scope=\"col\" class=\"forest\">");
	put_scale(page, &s, 0);
	page_put(page, "</th><th scope=\"col\" class=\"n\">p</th><th scope=\"col\" class=\"n\">p, Holm</th><th scope=\"col\" class=\"n\">p, DeLong</th></tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++)
		put_difference(page, finding_title(f, name), &c->finding[f], &s, 0);
	put_difference(page, "Mean", &c->mean, &s, 1);
	page_put(page, "%s<p class=\"lead\">p: two-sided, from resampled patients. Holm: corrected for the %d finding%s tested. DeLong: the usual paired test, which "
		       "takes all images for independent, and is not corrected.", report_table_end, c->tested, c->tested == 1 ? "" : "s");
	if (!comparison_can_show(c))
		page_put(page, " With so few resamples no finding can be shown to differ: --resamples=%d or more.", 40 * c->tested - 1);
	page_put(page, "</p></section>\n");
}
