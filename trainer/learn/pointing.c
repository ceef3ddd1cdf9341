/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/pointing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/csv.h"
#include "learn/compare.h"

static int sign(double x)
{
	return (x > 0) - (x < 0);
}

/* By image; 0 only of the same box. */
static int in_order(const void *a, const void *b)
{
	const struct box *x = a, *y = b;
	const int by[] = { strcmp(x->image, y->image), x->finding - y->finding, sign(x->x - y->x), sign(x->y - y->y), sign(x->w - y->w), sign(x->h - y->h) };
	size_t i = 0;

	while (i < sizeof by / sizeof by[0] - 1 && by[i] == 0)
		i++;
	return by[i];
}

/* A box that is listed twice, as in two lists put together, would count twice towards chance. */
static void sort_boxes(struct boxes *b)
{
	size_t kept = 0;

	qsort(b->box, b->n, sizeof *b->box, in_order);
	for (size_t i = 0; i < b->n; i++)
		if (i == 0 || in_order(&b->box[i], &b->box[kept - 1]) != 0)
			b->box[kept++] = b->box[i];
	b->n = kept;
}

static int read_number(double *value, const struct csv *c, int field, struct error *e)
{
	char *end;

	*value = strtod(c->field[field], &end);
	if (*c->field[field] && !*end && isfinite(*value))
		return 0;
	return fail(e, EXIT_DATA, "%s:%zu: field %d is \"%s\", not a number of pixels", c->path, c->line, field + 1, c->field[field]);
}

/* Image Index,Finding Label,x,y,w,h; what follows is empty */
static int read_box(struct box *b, const struct csv *c, struct error *e)
{
	if (c->n < 6)
		return fail(e, EXIT_DATA, "%s:%zu: %d field%s, not image, finding, x, y, w, h", c->path, c->line, c->n, c->n == 1 ? "" : "s");
	b->finding = finding_index(c->field[1], (int)strlen(c->field[1]));
	if (b->finding < 0) {
		char hint[FINDING_HINT];

		return fail(e, EXIT_DATA, "%s:%zu: unknown finding \"%s\" (%s)", c->path, c->line, c->field[1], finding_hint(c->field[1], (int)strlen(c->field[1]), hint));
	}
	if (strlen(c->field[0]) >= sizeof b->image)
		return fail(e, EXIT_DATA, "%s:%zu: the image's name is too long", c->path, c->line);
	strcpy(b->image, c->field[0]);
	double *side[] = { &b->x, &b->y, &b->w, &b->h };

	for (int i = 0; i < 4; i++)
		if (read_number(side[i], c, 2 + i, e) < 0)
			return -e->code;
	return b->w > 0 && b->h > 0 ? 0 : fail(e, EXIT_DATA, "%s:%zu: a box of %g x %g pixels", c->path, c->line, b->w, b->h);
}

static int append(struct boxes *b, const struct csv *c, struct error *e)
{
	if ((b->n & (b->n - 1)) == 0) { /* room for the next power of two */
		struct box *more = realloc(b->box, (b->n ? 2 * b->n : 1) * sizeof *more);

		if (!more)
			return fail(e, EXIT_INTERNAL, "no memory for %zu boxes", b->n);
		b->box = more;
	}
	return read_box(&b->box[b->n], c, e) < 0 ? -e->code : (int)(b->n++, 0);
}

int boxes_read(struct boxes *b, const char *path, struct error *e)
{
	struct csv c;
	int rc = csv_open(&c, path, e);

	*b = (struct boxes){ 0 };
	if (rc < 0)
		return rc;
	rc = csv_next(&c, e); /* the header splits at the commas inside its brackets: by position */
	if (rc == 0)
		rc = fail(e, EXIT_DATA, "%s: no box list: an empty file", path);
	if (rc > 0 && strcmp(c.field[0], "Image Index") != 0)
		rc = fail(e, EXIT_DATA, "%s:%zu: no box list: the first column is \"%s\", not \"Image Index\"", path, c.line, c.field[0]);
	while (rc > 0 && (rc = csv_next(&c, e)) > 0)
		if (append(b, &c, e) < 0)
			rc = -e->code;
	csv_close(&c);
	if (b->n)
		sort_boxes(b);
	return rc;
}

void boxes_free(struct boxes *b)
{
	free(b->box);
	*b = (struct boxes){ 0 };
}

/* The first of an image's boxes; *end: behind its last. */
static const struct box *boxes_of(const struct boxes *b, const char *image, const struct box **end)
{
	size_t low = 0, high = b->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (strcmp(b->box[middle].image, image) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (high = low; high < b->n && strcmp(b->box[high].image, image) == 0; high++)
		;
	*end = b->box + high;
	return b->box + low;
}

uint32_t boxes_findings(const struct boxes *b, const char *image)
{
	const struct box *end;
	uint32_t findings = 0;

	for (const struct box *x = boxes_of(b, image, &end); x < end; x++)
		findings |= 1u << x->finding;
	return findings;
}

int boxes_fit(const struct boxes *b, const char *image, int width, int height, struct error *e)
{
	const double loose = 1.05; /* a hand that slipped over the edge */
	const struct box *end;

	for (const struct box *i = boxes_of(b, image, &end); i < end; i++) {
		const int before = i->x < (1 - loose) * width || i->y < (1 - loose) * height;

		if (before || i->x + i->w > loose * width || i->y + i->h > loose * height)
			return fail(e, EXIT_DATA, "%s has %d x %d pixels and a box of %s that %s %.0f, %.0f: boxes are for the original image", image, width, height,
				    finding_names[i->finding], before ? "begins at" : "reaches to", before ? i->x : i->x + i->w, before ? i->y : i->y + i->h);
	}
	return 0;
}

/* How much of `length` pixels, from `begin` on, the window has, as a share of its own. */
static double share_of_window(double begin, double length, const double window[2], int side)
{
	const double first = fmax(begin, window[0] * side), last = fmin(begin + length, window[1] * side);

	return fmax(last - first, 0) / ((window[1] - window[0]) * side);
}

/* Boxes of one finding hardly overlap, so their areas are added; that flatters chance, not the map. */
void pointing_add(struct pointing *p, const struct boxes *b, const char *image, int finding, double peak_x, double peak_y, const double window[2], int width,
		  int height)
{
	const struct box *end;
	double x = peak_x * width, y = peak_y * height, share = 0;
	int hit = 0;

	for (const struct box *i = boxes_of(b, image, &end); i < end; i++) {
		if (i->finding != finding)
			continue;
		hit |= x >= i->x && x <= i->x + i->w && y >= i->y && y <= i->y + i->h;
		share += share_of_window(i->x, i->w, window, width) * share_of_window(i->y, i->h, window, height);
	}
	share = fmin(share, 1);
	p->maps[finding]++;
	p->hits[finding] += hit;
	p->chance[finding] += share;
}

/* Poisson's share from `hits` on away from the mean, and twice that. */
static double tails(int hits, double mean)
{
	const int step = hits > mean ? 1 : -1;
	double sum = 0;

	if (fabs(hits - mean) < 1) /* where the bound does not hold */
		return 1;
	for (int k = hits; k >= 0 && k <= hits + 1000; k += step) /* behind that nothing is left */
		sum += exp(k * log(mean) - mean - lgamma(k + 1));
	return fmin(2 * sum, 1);
}

struct pointing_sum pointing_total(const struct pointing *p)
{
	struct pointing_sum s = { 0 };

	for (int f = 0; f < FINDINGS; f++) {
		s.maps += p->maps[f];
		s.hits += p->hits[f];
		s.chance += p->chance[f];
	}
	s.p = s.chance > 0 ? tails(s.hits, s.chance) : NAN;
	return s;
}

void pointing_print(const struct pointing *p, FILE *out)
{
	struct pointing_sum s = pointing_total(p);
	char text[16];

	if (!s.maps) {
		fprintf(out, "pointing game: none of these images has a box\n");
		return;
	}
	fprintf(out, "%-20s %6s %6s %10s\n", "pointing game", "maps", "hits", "by chance");
	for (int f = 0; f < FINDINGS; f++)
		if (p->maps[f])
			fprintf(out, "%-20s %6d %6d %10.1f\n", finding_names[f], p->maps[f], p->hits[f], p->chance[f]);
	fprintf(out, "pointing game: %d of %d maps peak in a box of their finding, %.1f by chance", s.hits, s.maps, s.chance);
	if (!isnan(s.p))
		fprintf(out, ": %.1f times as many (p %s)", s.hits / s.chance, p_text(s.p, 1, text));
	fputc('\n', out);
}
