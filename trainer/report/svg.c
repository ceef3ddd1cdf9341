/* SPDX-License-Identifier: Apache-2.0 */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>

static const double steps[] = { 1, 2, 5, 10 };

int nice_ticks(double low, double high, int most, double ticks[TICKS_MAX])
{
	double unit;
	int n = 0;

	if (most > TICKS_MAX)
		most = TICKS_MAX;
	if (!(high > low) || most < 1 || !isfinite(high - low))
		return 0;
	unit = pow(10, floor(log10((high - low) / most)));
	for (int s = 0; s < 4; s++) {
		double step = steps[s] * unit, first = ceil(low / step - 1e-9), last = floor(high / step + 1e-9);

		if (last - first + 1 > most)
			continue;
		for (double k = first; k <= last; k++)
			ticks[n++] = k * step;
		return n;
	}
	return 0;
}

double nice_top(double high)
{
	double unit;

	if (!(high > 0) || !isfinite(high))
		return 1;
	unit = pow(10, floor(log10(high)));
	for (int s = 0; s < 4; s++)
		if (steps[s] * unit >= high * (1 - 1e-9))
			return steps[s] * unit;
	return 10 * unit;
}

static double clamp(double v, double low, double high)
{
	return v < low ? low : v > high ? high : v;
}

static double at_x(const struct plot *p, double x)
{
	return p->left + (p->width - p->left - p->right) * clamp((x - p->x0) / (p->x1 - p->x0), 0, 1);
}

static double at_y(const struct plot *p, double y)
{
	return p->top + (p->height - p->top - p->bottom) * (1 - clamp((y - p->y0) / (p->y1 - p->y0), 0, 1));
}

int tick_digits(double distance)
{
	return (int)clamp(ceil(-log10(distance) - 1e-9), 0, 6);
}

/* As few digits as the ticks' distance needs; exponents for what is very small or large. */
static void tick_text(char text[32], double tick, double distance)
{
	if (tick == 0)
		snprintf(text, 32, "0");
	else if (fabs(tick) >= 1e6 || fabs(tick) < 1e-3)
		snprintf(text, 32, "%.3g", tick);
	else
		snprintf(text, 32, "%.*f", tick_digits(distance), tick);
}

static void put_axes(const struct plot *p)
{
	double ticks[TICKS_MAX];
	char text[32];
	int n = nice_ticks(p->x0, p->x1, p->x_ticks, ticks);

	for (int i = 0; i < n; i++) {
		plot_segment(p, "grid", ticks[i], p->y0, ticks[i], p->y1);
		tick_text(text, ticks[i], n > 1 ? ticks[1] - ticks[0] : fabs(ticks[0]));
		plot_text(p, "tick", "middle", ticks[i], p->y0, 0, 13, text);
	}
	n = nice_ticks(p->y0, p->y1, p->y_ticks, ticks);
	for (int i = 0; i < n; i++) {
		plot_segment(p, "grid", p->x0, ticks[i], p->x1, ticks[i]);
		tick_text(text, ticks[i], n > 1 ? ticks[1] - ticks[0] : fabs(ticks[0]));
		plot_text(p, "tick", "end", p->x0, ticks[i], -5, 3.5, text);
	}
	if (p->x_label)
		plot_text(p, "axis", "end", p->x1, p->y0, 0, 26, p->x_label);
	if (p->y_label)
		plot_text(p, "axis", "start", p->x0, p->y1, 0, -6, p->y_label);
}

void plot_begin(const struct plot *p, const char *title)
{
	page_put(p->page, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", p->width, p->height);
	page_text(p->page, title);
	page_put(p->page, "\">");
	put_axes(p);
}

void plot_end(const struct plot *p)
{
	page_put(p->page, "</svg>\n");
}

/* Within half a unit's width, points between the lowest and the highest so far are left out, but for the last one, from which the line goes on: 600,000
 * steps of a noisy loss would be 7 MB. */
void plot_line(const struct plot *p, const char *class, const struct point *points, size_t n)
{
	double column = -1e9, low = 0, high = 0, last_y = 0;
	struct point held = { 0 };
	int holds = 0, begun = 0;

	if (n == 0)
		return;
	page_put(p->page, "<polyline class=\"line %s\" points=\"", class);
	for (size_t i = 0; i < n; i++) {
		double x = at_x(p, points[i].x), y = at_y(p, points[i].y);

		if (!isfinite(points[i].y))
			continue;
		int same = fabs(x - column) < 0.5;

		if (same && y > low - 0.5 && y < high + 0.5) {
			held = (struct point){ x, y };
			holds = 1;
			continue;
		}
		if (!same && holds && fabs(held.y - last_y) >= 0.5)
			page_put(p->page, " %.1f,%.1f", held.x, held.y);
		page_put(p->page, "%s%.1f,%.1f", begun ? " " : "", x, y);
		low = same ? fmin(low, y) : y;
		high = same ? fmax(high, y) : y;
		column = same ? column : x;
		last_y = y;
		holds = 0;
		begun = 1;
	}
	if (holds)
		page_put(p->page, " %.1f,%.1f", held.x, held.y);
	page_put(p->page, "\"/>");
}

static void put_piece(const struct plot *p, const char *class, const double *x, const double *low, const double *high, size_t begin, size_t end)
{
	page_put(p->page, "<path class=\"band %s\" d=\"", class);
	for (size_t i = begin; i < end; i++)
		page_put(p->page, "%c%.1f %.1f", i == begin ? 'M' : 'L', at_x(p, x[i]), at_y(p, low[i]));
	for (size_t i = end; i-- > begin;)
		page_put(p->page, "L%.1f %.1f", at_x(p, x[i]), at_y(p, high[i]));
	page_put(p->page, "Z\"/>");
}

void plot_band(const struct plot *p, const char *class, const double *x, const double *low, const double *high, size_t n)
{
	for (size_t begin = 0, end; begin < n; begin = end) {
		for (; begin < n && (isnan(low[begin]) || isnan(high[begin])); begin++)
			;
		for (end = begin; end < n && !isnan(low[end]) && !isnan(high[end]); end++)
			;
		if (end > begin + 1)
			put_piece(p, class, x, low, high, begin, end);
	}
}

void plot_segment(const struct plot *p, const char *class, double x0, double y0, double x1, double y1)
{
	page_put(p->page, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", class, at_x(p, x0), at_y(p, y0), at_x(p, x1), at_y(p, y1));
}

void plot_bar(const struct plot *p, const char *class, double x0, double x1, double y)
{
	page_put(p->page, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", class, at_x(p, x0), at_y(p, y),
		 at_x(p, x1) - at_x(p, x0), at_y(p, 0) - at_y(p, y));
}

void plot_dot(const struct plot *p, const char *class, double x, double y, double radius)
{
	page_put(p->page, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"/>", class, at_x(p, x), at_y(p, y), radius);
}

void plot_text(const struct plot *p, const char *class, const char *anchor, double x, double y, double dx, double dy, const char *text)
{
	page_put(p->page, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, anchor, at_x(p, x) + dx, at_y(p, y) + dy);
	page_text(p->page, text);
	page_put(p->page, "</text>");
}
