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

static int in_box(const struct box *b, double x, double y)
{
	return x >= b->x && x <= b->x + b->w && y >= b->y && y <= b->y + b->h;
}

static int in_any(const struct boxes *b, const char *image, int finding, double x, double y)
{
	const struct box *end;
	int in = 0;

	for (const struct box *i = boxes_of(b, image, &end); i < end; i++)
		in |= i->finding == finding && in_box(i, x, y);
	return in;
}

struct pointed pointing_at(const struct boxes *b, const char *image, int finding, double peak_x, double peak_y, const struct pointing_grid *grid, int width, int height)
{
	struct pointed at = { .finding = finding, .hit = in_any(b, image, finding, peak_x * width, peak_y * height) };

	for (int row = 0; row < grid->side; row++)
		for (int column = 0; column < grid->side; column++)
			at.chance += in_any(b, image, finding, (grid->first + column * grid->pitch) * width, (grid->first + row * grid->pitch) * height);
	at.chance /= grid->side * grid->side;
	return at;
}

/* ---- all maps --------------------------------------------------------------------------------------- */

uint32_t pointing_patient(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const size_t digits = strspn(name, "0123456789");

	return digits >= 1 && digits <= 9 && name[digits] == '_' ? (uint32_t)strtoul(name, NULL, 10) : 0;
}

int pointing_add(struct pointing *p, uint32_t patient, const struct pointed *maps, int n)
{
	if (n == 0)
		return 0;
	struct pointed *map = realloc(p->map, (p->n + (size_t)n) * sizeof *map);

	p->map = map ? map : p->map;
	uint32_t *of = map ? realloc(p->patient, (p->n + (size_t)n) * sizeof *of) : NULL;

	if (!of)
		return -1;
	p->patient = of;
	if (!patient)
		patient = UINT32_MAX - (uint32_t)p->unnamed++; /* no name has so many digits */
	for (int i = 0; i < n; i++) {
		p->map[p->n] = maps[i];
		p->patient[p->n++] = patient;
	}
	return 0;
}

void pointing_free(struct pointing *p)
{
	free(p->map);
	free(p->patient);
	*p = (struct pointing){ 0 };
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

/* Maps and hits of each patient, and what resamples say. */
struct tally {
	size_t patients;
	int resamples;
	uint32_t *number, *maps, *hits; /* [maps] of all, [patients], [patients] */
	uint16_t *weight;               /* [patients] */
	double *share;                  /* [resamples] */
};

static int tally_open(struct tally *t, const struct pointing *p, int resamples)
{
	t->resamples = resamples;
	t->number = malloc((p->n + 1) * sizeof *t->number);
	t->maps = malloc((p->n + 1) * sizeof *t->maps); /* no more patients than maps */
	t->hits = malloc((p->n + 1) * sizeof *t->hits);
	t->weight = malloc((p->n + 1) * sizeof *t->weight);
	t->share = malloc(((size_t)resamples + 1) * sizeof *t->share);
	if (!t->number || !t->maps || !t->hits || !t->weight || !t->share)
		return -1;
	long patients = patients_number(p->patient, p->n, t->number);

	t->patients = patients < 0 ? 0 : (size_t)patients;
	return patients < 0 ? -1 : 0;
}

static void tally_close(struct tally *t)
{
	free(t->number);
	free(t->maps);
	free(t->hits);
	free(t->weight);
	free(t->share);
}

static double share_of(const struct tally *t, const uint16_t *weight)
{
	uint64_t maps = 0, hits = 0;

	for (size_t i = 0; i < t->patients; i++) {
		maps += (uint64_t)t->maps[i] * (weight ? weight[i] : 1);
		hits += (uint64_t)t->hits[i] * (weight ? weight[i] : 1);
	}
	return maps ? (double)hits / (double)maps : NAN;
}

/* finding -1: of all */
static struct pointing_score score(struct tally *t, const struct pointing *p, int finding, uint64_t seed)
{
	struct pointing_score s = { 0 };

	memset(t->maps, 0, t->patients * sizeof *t->maps);
	memset(t->hits, 0, t->patients * sizeof *t->hits);
	for (size_t i = 0; i < p->n; i++) {
		const struct pointed *m = &p->map[i];

		if (finding >= 0 && m->finding != finding)
			continue;
		s.maps++;
		s.hits += m->hit;
		s.chance += m->chance;
		s.beyond += m->chance == 0; /* its box lies between the cells' middles */
		s.patients += t->maps[t->number[i]]++ == 0;
		t->hits[t->number[i]] += (uint32_t)m->hit;
	}
	s.share = value_only(share_of(t, NULL));
	for (int b = 0; s.maps && b < t->resamples; b++) {
		patients_draw(t->weight, t->patients, seed, b);
		t->share[b] = share_of(t, t->weight);
	}
	if (s.maps && t->resamples)
		interval_of_images(&s.share, t->maps, t->patients, t->share, (size_t)t->resamples);
	return s;
}

/* A patient's maps may all hit or all miss: so many independent ones say as much. Towards chance, where that is no whole number. */
static double p_of(const struct pointing_score *s, double effective)
{
	const double hits = s->hits * effective / s->maps, mean = s->chance * effective / s->maps;

	return s->chance > 0 ? tails((int)(hits > mean ? floor(hits + 1e-9) : ceil(hits - 1e-9)), mean) : NAN;
}

int pointing_judge(const struct pointing *p, int resamples, uint64_t seed, struct pointing_table *table)
{
	struct tally t = { 0 };
	int rc = tally_open(&t, p, resamples);

	*table = (struct pointing_table){ .unnamed = p->unnamed, .p = NAN };
	for (int f = 0; rc == 0 && f < FINDINGS; f++)
		table->finding[f] = score(&t, p, f, seed);
	if (rc == 0) {
		table->all = score(&t, p, -1, seed);
		table->p = table->all.maps ? p_of(&table->all, patients_effective(t.maps, t.patients)) : NAN;
	}
	tally_close(&t);
	return rc;
}

/* ---- telling ----------------------------------------------------------------------------------------- */

static void print_share(const struct pointing_score *s, FILE *out)
{
	fprintf(out, "%.1f %%", 100 * s->share.value);
	if (!isnan(s->share.low))
		fprintf(out, ", 95 %% interval %.1f to %.1f %%", 100 * s->share.low, 100 * s->share.high);
	fprintf(out, ", %zu patient%s%s", s->patients, s->patients == 1 ? "" : "s", isnan(s->share.low) ? ": too few for an interval" : "");
}

void pointing_print(const struct pointing_table *t, FILE *out)
{
	const struct pointing_score *all = &t->all;
	char text[16];

	if (!all->maps) {
		fprintf(out, "pointing game: none of these images has a box\n");
		return;
	}
	fprintf(out, "%-20s %6s %6s %10s\n", "pointing game", "maps", "hits", "by chance");
	for (int f = 0; f < FINDINGS; f++) {
		const struct pointing_score *s = &t->finding[f];

		if (!s->maps)
			continue;
		fprintf(out, "%-20s %6d %6d %10.1f  ", finding_names[f], s->maps, s->hits, s->chance);
		print_share(s, out);
		fputc('\n', out);
	}
	if (all->beyond)
		fprintf(out, "%d map%s could hit nothing: no cell's middle lies in a box\n", all->beyond, all->beyond == 1 ? "" : "s");
	if (t->unnamed)
		fprintf(out, "%zu image%s without a patient in the name (00000001_000.png has one): each counts as another patient's, so that intervals may be too narrow\n", t->unnamed,
			t->unnamed == 1 ? "" : "s");
	fprintf(out, "pointing game: %d of %d maps peak in a box of their finding (", all->hits, all->maps);
	print_share(all, out);
	fprintf(out, "), %.1f by chance", all->chance);
	if (!isnan(t->p))
		fprintf(out, ": %.1f times as many (p %s)", all->hits / all->chance, p_text(t->p, 1, text));
	fputc('\n', out);
}
