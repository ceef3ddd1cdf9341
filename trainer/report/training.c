/* SPDX-License-Identifier: Apache-2.0
 * How the training went and what it cost, from its log. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"
#include "report/svg.h"

/* All but the largest 2 % of the steps' values fit below it: a spike at the start must not flatten the rest. */
static double usual_top(struct page *page, const struct point *points, size_t n)
{
	double *v = malloc((n + 1) * sizeof *v), top = 0;
	size_t k = 0;

	page->failed |= !v;
	for (size_t i = 0; v && i < n; i++)
		if (isfinite(points[i].y))
			v[k++] = points[i].y;
	if (k) {
		sort_ascending(v, k);
		top = quantile(v, k, 0.98);
	}
	free(v);
	return top;
}

/* The exponential average over about a fiftieth of all steps. */
static void smooth(struct point *out, const struct point *points, size_t n)
{
	double keep = 1 - 1 / fmax(1, (double)n / 50), mean = NAN;

	for (size_t i = 0; i < n; i++) {
		if (isfinite(points[i].y))
			mean = isnan(mean) ? points[i].y : keep * mean + (1 - keep) * points[i].y;
		out[i] = (struct point){ points[i].x, mean };
	}
}

enum series { LOSS, RATE, SPEED };

static void steps_of(const struct train_log *log, enum series which, struct point *points)
{
	for (size_t i = 0; i < log->n_steps; i++) {
		const struct log_step *s = &log->steps[i];

		points[i] = (struct point){ s->step, which == LOSS ? s->loss : which == RATE ? s->rate : s->images_per_s };
	}
}

static struct plot chart(const struct train_log *log, struct page *page)
{
	double last = log->n_steps ? log->steps[log->n_steps - 1].step : 0;

	if (log->n_evals && log->evals[log->n_evals - 1].step > last)
		last = log->evals[log->n_evals - 1].step;
	return (struct plot){ .page = page, .width = 460, .height = 230, .left = 46, .right = 16, .top = 10, .bottom = 32, .x1 = fmax(last, 1), .y1 = 1,
			      .x_ticks = 7, .y_ticks = 6, .x_label = "optimiser step" };
}

/* Of both splits as it was minimised: with weighted positives the validation loss without them is another measure. */
static void put_loss(const struct train_log *log, struct page *page, struct point *points, struct point *smoothed)
{
	struct plot p = chart(log, page);
	struct point *evals = malloc((log->n_evals + 1) * sizeof *evals);
	double top;
	int weighted = 0;

	page->failed |= !evals;
	steps_of(log, LOSS, points);
	smooth(smoothed, points, log->n_steps);
	top = usual_top(page, points, log->n_steps);
	for (size_t i = 0; evals && i < log->n_evals; i++) {
		const struct log_eval *v = &log->evals[i];

		weighted |= !isnan(v->weighted);
		evals[i] = (struct point){ v->step, isnan(v->weighted) ? v->loss : v->weighted };
		top = fmax(top, isfinite(evals[i].y) ? evals[i].y : 0);
	}
	p.y1 = top > 0 ? 1.1 * top : 1;
	page_put(page, "<figure><figcaption><b>%s</b><span><span class=\"ka\">training</span>%s</span></figcaption>", weighted ? "Loss, weighted as --pos-weight says" : "Loss",
		 log->n_evals ? " <span class=\"kb\">validation</span>" : "");
	plot_begin(&p, "Training and validation loss by step");
	plot_line(&p, "a thin", points, log->n_steps);
	plot_line(&p, "a", smoothed, log->n_steps);
	if (evals) {
		plot_line(&p, "b solid", evals, log->n_evals);
		for (size_t i = 0; i < log->n_evals; i++)
			if (isfinite(evals[i].y))
				plot_dot(&p, "b", evals[i].x, evals[i].y, 3);
	}
	plot_end(&p);
	page_put(page, "</figure>\n");
	free(evals);
}

static void put_auroc(const struct train_log *log, struct page *page)
{
	struct plot p = chart(log, page);
	size_t n = log->n_evals, best = 0;
	double *x = malloc((n + 1) * sizeof *x), *low = malloc((n + 1) * sizeof *low), *high = malloc((n + 1) * sizeof *high), bottom = 0.5;
	struct point *points = malloc((n + 1) * sizeof *points);
	int memory = x && low && high && points, shaded = 0; /* none with --resamples=0 */
	char text[64];

	page->failed |= !memory;
	for (size_t i = 0; memory && i < n; i++) {
		const struct interval *m = &log->evals[i].mean;

		points[i] = (struct point){ x[i] = log->evals[i].step, m->value };
		low[i] = m->low;
		high[i] = m->high;
		shaded |= isfinite(m->low) && isfinite(m->high);
		bottom = fmin(bottom, isnan(m->low) ? m->value : m->low);
		if (isnan(log->evals[best].mean.value) || m->value > log->evals[best].mean.value)
			best = i;
	}
	if (n && memory) {
		p.y0 = fmax(floor(bottom * 10) / 10, 0);
		page_put(page, "<figure><figcaption><b>Mean AUROC on the validation split</b>%s</figcaption>",
			 shaded ? "<span>95&nbsp;% confidence interval shaded</span>" : "");
		plot_begin(&p, "Mean AUROC on the validation split by step");
		plot_band(&p, "b", x, low, high, n);
		plot_line(&p, "b solid", points, n);
		for (size_t i = 0; i < n; i++)
			if (isfinite(points[i].y))
				plot_dot(&p, "b", points[i].x, points[i].y, 3);
		if (!isnan(points[best].y)) {
			snprintf(text, sizeof text, "best %.3f", points[best].y);
			plot_text(&p, "lb", points[best].x > 0.6 * p.x1 ? "end" : "middle", points[best].x, points[best].y, 0, points[best].y > 0.93 ? 22 : -9, text);
		}
		plot_end(&p);
		page_put(page, "</figure>\n");
	}
	free(x);
	free(low);
	free(high);
	free(points);
}

static void put_series(const struct train_log *log, struct page *page, enum series which, const char *name, struct point *points)
{
	struct plot p = chart(log, page);

	steps_of(log, which, points);
	p.y1 = 1.1 * usual_top(page, points, log->n_steps);
	if (!(p.y1 > 0))
		p.y1 = 1;
	p.left = p.y1 < 0.01 ? 58 : 46;
	page_put(page, "<figure><figcaption><b>%s</b></figcaption>", name);
	plot_begin(&p, name);
	plot_line(&p, "a", points, log->n_steps);
	plot_end(&p);
	page_put(page, "</figure>\n");
}

/* Ranks that died, and what the others made of it. */
static void put_losses(const struct train_log *log, struct page *page)
{
	double step = json_get_number(log->recovered, "step"), ranks = json_get_number(log->recovered, "ranks");
	double batch = json_get_number(log->recovered, "global_batch");

	if (log->losses == 0 || isnan(step) || isnan(ranks) || isnan(batch))
		return;
	page_put(page, "<p class=\"lead\">Ranks were lost on the way%s, and the others went on: ", log->losses > 1 ? ", more than once" : "");
	page_put(page, "from step %.0f on with %.0f rank%s and a global batch of %.0f.</p>", step, ranks, ranks == 1 ? "" : "s", batch);
}

void report_training(const struct report *r, struct page *page)
{
	const struct train_log *log = r->in->log;
	struct point *points, *smoothed;

	if (!log || (log->n_steps < 2 && log->n_evals == 0))
		return;
	points = malloc((2 * log->n_steps + 2) * sizeof *points);
	if (!points) {
		page->failed = 1;
		return;
	}
	smoothed = points + log->n_steps;
	page_put(page, "<section><h2>Training</h2>");
	if (log->starts > 1)
		page_put(page, "<p class=\"lead\">The run was started %d times%s; steps that were done again are shown as they were done last.</p>", log->starts,
			 log->mixed && log->mixed_precision ? ", not always with the same global batch and precision" : log->mixed ? ", not always with the same global batch" :
			 log->mixed_precision ? ", not always with the same precision" : "");
	put_losses(log, page);
	page_put(page, "<div class=\"charts\">\n");
	put_loss(log, page, points, smoothed);
	put_auroc(log, page);
	if (log->n_steps > 1) {
		put_series(log, page, SPEED, "Images per second, all ranks", points);
		put_series(log, page, RATE, "Learning rate", points);
	}
	page_put(page, "</div></section>\n");
	free(points);
}

/* ---- speed ------------------------------------------------------------------------------------------ */

/* What bounds the step, in percent of the time: from the summary, else from the steps. -1: the log does not say. */
static double share(const struct train_log *log, const char *key, size_t offset)
{
	double v = json_get_number(log->summary, key), sum = 0;
	size_t n = 0;

	if (!isnan(v))
		return 100 * v;
	for (size_t i = 0; i < log->n_steps; i++) {
		v = *(const double *)((const char *)&log->steps[i] + offset);
		if (!isnan(v)) {
			sum += v;
			n++;
		}
	}
	return n ? 100 * sum / (double)n : -1;
}

static void put_shares(const struct train_log *log, struct page *page)
{
	double input = share(log, "input_share", offsetof(struct log_step, input));
	double communication = share(log, "communication_share", offsetof(struct log_step, communication));

	if (input < 0 || communication < 0)
		return;
	page_put(page, "<div class=\"share\" role=\"img\" aria-label=\"compute %.1f percent, input %.1f, communication %.1f\">"
		       "<div class=\"compute\" style=\"width:%.2f%%\"></div><div class=\"input\" style=\"width:%.2f%%\"></div>"
		       "<div class=\"communication\" style=\"width:%.2f%%\"></div></div>\n"
		       "<p class=\"keys\"><span><i style=\"background:var(--a)\"></i>computing %.1f&nbsp;%%</span><span><i style=\"background:var(--b)\"></i>waiting for input "
		       "%.1f&nbsp;%%</span><span><i style=\"background:var(--soft)\"></i>waiting for communication %.1f&nbsp;%%</span></p>\n",
		 100 - input - communication, input, communication, 100 - input - communication, input, communication, 100 - input - communication, input,
		 communication);
}

static void put_places(const cJSON *start, struct page *page)
{
	const cJSON *places = cJSON_GetObjectItemCaseSensitive(start, "places"), *row;

	if (cJSON_GetArraySize(places) == 0)
		return;
	report_table(page, "Where every rank ran", "narrow");
	page_put(page, "<tr><th scope=\"col\" class=\"n\">Rank</th><th scope=\"col\">Host</th><th scope=\"col\">GPU</th><th scope=\"col\">CPUs</th><th scope=\"col\" class=\"n\">Threads</th>"
		       "</tr></thead><tbody>\n");
	cJSON_ArrayForEach(row, places) {
		const char *host = json_get_text(row, "host"), *gpu = json_get_text(row, "gpu"), *cpus = json_get_text(row, "cpus");

		double rank = json_get_number(row, "rank"), threads = json_get_number(row, "threads");

		if (isnan(rank) || isnan(threads))
			continue;
		page_put(page, "<tr><th scope=\"row\" class=\"n\">%.0f</th><td>", rank);
		page_text(page, host ? host : "");
		page_put(page, "</td><td>");
		page_text(page, gpu && *gpu ? gpu : "none");
		page_put(page, "</td><td>");
		page_text(page, cpus ? cpus : "");
		page_put(page, "</td><td class=\"n\">%.0f</td></tr>\n", threads);
	}
	page_put(page, "%s", report_table_end);
}

static void put_rate(struct page *page, double rate, double ranks)
{
	page_put(page, "<b>");
	page_rate(page, rate);
	page_put(page, " images per second</b>");
	if (ranks > 1) {
		page_put(page, " over all ranks, ");
		page_rate(page, rate / ranks);
		page_put(page, " a rank");
	}
}

void report_speed(const struct report *r, struct page *page)
{
	const struct train_log *log = r->in->log;

	if (!log)
		return;
	double rate = json_get_number(log->summary, "images_per_s"), images = json_get_number(log->summary, "images");
	const cJSON *start = log->timed ? log->timed : log->start;
	double seconds = json_get_number(log->summary, "seconds"), ranks = json_get_number(start, "ranks");
	const char *engine = json_get_text(start, "engine"), *backend = json_get_text(start, "backend");

	page_put(page, "<section><h2>Speed</h2><p>");
	if (isnan(rate))
		page_put(page, "The log has no summary: the run did not reach its end.");
	else
		put_rate(page, rate, log->timed_losses ? NAN : ranks);
	if (images >= 0 && images < 1e18 && !isnan(seconds)) {
		page_put(page, ": ");
		page_count(page, (size_t)images);
		if (seconds < 120)
			page_put(page, " images in %.*f s", seconds < 9.95, seconds);
		else
			page_put(page, seconds < 7200 ? " images in %.1f minutes" : " images in %.1f hours", seconds < 7200 ? seconds / 60 : seconds / 3600);
	}
	if (!isnan(rate) && log->starts > 1)
		page_put(page, ", in start %d of %d", log->timed_start, log->starts);
	page_put(page, isnan(rate) ? "</p>\n" : ".</p>\n");
	put_shares(log, page);
	if (engine) {
		page_put(page, "<p class=\"lead\">Engine: ");
		page_text(page, engine);
		page_put(page, "%s", backend ? "; collectives: " : "");
		page_text(page, backend ? backend : "");
		page_put(page, ".</p>\n");
	}
	put_places(start, page);
	page_put(page, "</section>\n");
}
