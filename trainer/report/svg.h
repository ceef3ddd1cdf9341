/* SPDX-License-Identifier: Apache-2.0
 * Small charts as inline SVG. Colours and fonts are CSS classes of the page around them, so that one stylesheet serves light and dark. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

#include "learn/curves.h"
#include "report/page.h"

struct plot {
	struct page *page;
	double width, height;            /* of the whole picture, user units (about a pixel each) */
	double left, right, top, bottom; /* margins around the frame */
	double x0, x1, y0, y1;           /* data values at the frame's edges */
	int x_ticks, y_ticks;            /* at most so many labelled lines; 0: none */
	const char *x_label, *y_label;   /* below and beside the frame; NULL: none */
};

enum { TICKS_MAX = 16 };

/* Multiples of 1, 2 or 5 times a power of ten inside [low, high], at most `most` of them. Returns how many. */
int nice_ticks(double low, double high, int most, double ticks[TICKS_MAX]);

/* Digits behind the point that tell ticks of this distance apart. */
int tick_digits(double distance);

/* The shortest upper edge not below `high` that makes round ticks from 0. */
double nice_top(double high);

/* Opens the picture with grid and labels; title is what a screen reader says. */
void plot_begin(const struct plot *p, const char *title);
void plot_end(const struct plot *p);

/* x ascending; points that change no half unit of the picture are left out, points outside the frame are drawn at its edge. */
void plot_line(const struct plot *p, const char *class, const struct point *points, size_t n);
/* Between low and high at the same n abscissas, in pieces where either is NAN. */
void plot_band(const struct plot *p, const char *class, const double *x, const double *low, const double *high, size_t n);
void plot_segment(const struct plot *p, const char *class, double x0, double y0, double x1, double y1);
/* From zero, or the frame's edge, to y. */
void plot_bar(const struct plot *p, const char *class, double x0, double x1, double y);
void plot_dot(const struct plot *p, const char *class, double x, double y, double radius);
/* anchor: "start", "middle" or "end"; moved by (dx, dy) units. */
void plot_text(const struct plot *p, const char *class, const char *anchor, double x, double y, double dx, double dy, const char *text);

#endif
