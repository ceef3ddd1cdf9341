/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/maps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- names ------------------------------------------------------------------------------------------- */

static const char *file_name(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* An image's name without .png or .jpg; dots within, as in a DICOM UID, stay. */
struct stem {
	const char *path, *name;
	int length;
};

static struct stem stem_of(const char *path)
{
	const char *name = file_name(path), *dot = strrchr(name, '.');
	int image = dot && dot > name && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);

	return (struct stem){ .path = path, .name = name, .length = image ? (int)(dot - name) : (int)strlen(name) };
}

static int compare_stems(const void *a, const void *b)
{
	const struct stem *x = a, *y = b;
	int shared = x->length < y->length ? x->length : y->length, order = strncmp(x->name, y->name, (size_t)shared);

	return order ? order : x->length != y->length ? x->length - y->length : strcmp(x->path, y->path);
}

/* Bytes that a map's name has behind its image's; without --finding as many as it may come to. */
static int ending_length(const char *finding)
{
	const int shown = finding ? finding_index(finding, (int)strlen(finding)) : -1;
	size_t longest = 0;

	for (int f = 0; f < FINDINGS; f++)
		if ((shown < 0 || f == shown) && strlen(finding_names[f]) > longest)
			longest = strlen(finding_names[f]);
	return (int)(longest + strlen("..png"));
}

/* Maps are named for their images, so another image of the same name would take the first one's place. */
int maps_check_names(const char *directory, const char *finding, int n, char **paths, struct error *e)
{
	const int room = OUTPUT_NAME - ending_length(finding);
	struct stem *stems = malloc((size_t)n * sizeof *stems);

	if (!stems)
		return fail(e, EXIT_INTERNAL, "no memory for the names of %d images", n);
	if (strlen(directory) + FILE_NAME >= FILE_PATH)
		fail(e, EXIT_USAGE, "--maps=%s: too long a path for names in it", directory);
	for (int i = 0; i < n; i++) {
		stems[i] = stem_of(paths[i]);
		if (stems[i].length > room)
			fail(e, EXIT_USAGE, "%s: with --maps=DIR the name of an image may have %d bytes before its ending, and this has %d: give it a shorter one",
			     stems[i].path, room, stems[i].length);
	}
	qsort(stems, (size_t)n, sizeof *stems, compare_stems);
	for (int i = 1; i < n; i++)
		if (stems[i].length == stems[i - 1].length && strncmp(stems[i].name, stems[i - 1].name, (size_t)stems[i].length) == 0 &&
		    strcmp(stems[i].path, stems[i - 1].path) != 0)
			fail(e, EXIT_USAGE, "%s and %s would both have the map %s/%.*s.FINDING.png: give them other names, or a --maps=DIR and a call each", stems[i - 1].path,
			     stems[i].path, directory, stems[i].length, stems[i].name);
	free(stems);
	return -e->code;
}

static int by_file_name(const void *a, const void *b)
{
	return strcmp(file_name(*(char *const *)a), file_name(*(char *const *)b));
}

int maps_check_once(int n, char **paths, struct error *e)
{
	char **sorted = malloc((size_t)n * sizeof *sorted);

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for the names of %d images", n);
	memcpy(sorted, paths, (size_t)n * sizeof *sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, by_file_name);
	for (int i = 1; i < n; i++)
		if (by_file_name(&sorted[i - 1], &sorted[i]) == 0)
			fail(e, EXIT_USAGE, "%s and %s: --boxes goes by the name of an image, which would count twice: give it once", sorted[i - 1], sorted[i]);
	free(sorted);
	return -e->code;
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static int choose_finding(struct maps *m, const char *finding, struct error *e)
{
	char hint[FINDING_HINT];

	m->finding = finding ? finding_index(finding, (int)strlen(finding)) : -1;
	if (finding && m->finding < 0)
		return fail(e, EXIT_USAGE, "--finding=%s: no finding is called that (%s)", finding, finding_hint(finding, (int)strlen(finding), hint));
	return 0;
}

int maps_open(struct maps *m, const char *directory, const char *finding, const char *boxes, const struct net_plan *plan, struct engine *engine,
	      const struct error *engine_error, int source_size, int batch, struct error *e)
{
	const struct net_layer *last = &plan->layers[plan->n_layers - 1];
	const struct net_param *classifier = &plan->params[last->weight];

	*m = (struct maps){ .directory = directory, .plan = plan, .source_size = source_size, .channels = last->c_in, .grid = cam_grid_of(plan) };
	if (choose_finding(m, finding, e) < 0)
		return -e->code;
	size_t cells = (size_t)m->grid.side * (size_t)m->grid.side;

	m->features = malloc((size_t)batch * (size_t)m->channels * cells * sizeof *m->features);
	m->weight = malloc(classifier->count * sizeof *m->weight);
	m->cells = malloc(cells * sizeof *m->cells);
	m->rgb = malloc(3 * (size_t)source_size * (size_t)source_size);
	if (!m->features || !m->weight || !m->cells || !m->rgb)
		return fail(e, EXIT_INTERNAL, "no memory for maps");
	if (engine_get(engine, ENGINE_PARAMS, classifier->offset, m->weight, classifier->count) < 0)
		return fail(e, EXIT_INTERNAL, "%s", engine_error->text);
	if (directory && (directory_ensure(directory, e) || directory_check(directory, e)))
		return -e->code;
	return boxes ? boxes_read(&m->boxes, boxes, e) : 0;
}

void maps_close(struct maps *m)
{
	free(m->features);
	free(m->weight);
	free(m->cells);
	free(m->rgb);
	boxes_free(&m->boxes);
	pointing_free(&m->pointing);
}

/* ---- images ------------------------------------------------------------------------------------------ */

static struct cam make_map(struct maps *m, int row, int finding)
{
	size_t image = (size_t)m->channels * (size_t)m->grid.side * (size_t)m->grid.side;

	return cam_make(m->features + (size_t)row * image, m->channels, &m->grid, m->weight + (size_t)finding * (size_t)m->channels, m->cells);
}

/* A place of the window as a share of the image's sides: the network saw the window in its middle. */
static double of_image(const struct maps *m, double pixels)
{
	int margin = (m->source_size - m->plan->image_size) / 2;

	return (margin + pixels) / m->source_size;
}

int maps_point(struct maps *m, int row, const char *path, const struct original *original, struct pointed *maps, struct error *e)
{
	const char *const name = file_name(path);
	const struct pointing_grid grid = { m->grid.side, of_image(m, m->grid.first), m->grid.pitch / m->source_size };
	const uint32_t findings = boxes_findings(&m->boxes, name) & ~m->untrained;
	int n = 0;

	if (boxes_fit(&m->boxes, name, original->width, original->height, e) < 0)
		return -e->code;
	for (int f = 0; f < FINDINGS; f++)
		if (findings >> f & 1) {
			struct cam cam = make_map(m, row, f);

			maps[n++] = pointing_at(&m->boxes, name, f, of_image(m, cam.peak_x), of_image(m, cam.peak_y), &grid, original->width, original->height);
		}
	if (pointing_add(&m->pointing, pointing_patient(path), maps, n))
		return fail(e, EXIT_INTERNAL, "no memory for the pointing game");
	return n;
}

static int most_probable(const float *logits, uint32_t untrained)
{
	int most = -1;

	for (int f = 0; f < FINDINGS; f++)
		if (!(untrained >> f & 1) && (most < 0 || logits[f] > logits[most]))
			most = f;
	return most < 0 ? 0 : most;
}

/* The square that the window was cut from was made of the whole image, whatever its sides. */
static struct cam_window window_in(const struct maps *m, const struct original *original)
{
	double begin = of_image(m, 0), share = of_image(m, m->plan->image_size) - begin;

	return (struct cam_window){ .image_width = original->width, .image_height = original->height, .x = begin * original->width, .y = begin * original->height,
				    .width = share * original->width, .height = share * original->height };
}

/* An earlier map of the same image may be replaced, by that of other weights too. Earlier versions did not tell of which image theirs was. */
static int check_place(const char *file, const char *path, const struct cam_about *about, struct error *e)
{
	struct mapped_file map;
	struct stat st;
	struct cam_about there = { 0 };

	if (stat(file, &st) || !S_ISREG(st.st_mode) || st.st_size == 0)
		return 0;
	if (file_map(&map, file, e) < 0)
		return -e->code;
	int told = cam_read_about(map.data, map.size, &there);

	if (told < 0)
		fail(e, EXIT_INTERNAL, "%s: no memory to see what it is", file);
	else if (!told)
		fail(e, EXIT_USAGE, "%s: is there and no map of this command, so it is left as it is: choose another --maps=DIR", file);
	else if (*there.image_hash && strcmp(there.image_hash, about->image_hash) != 0)
		fail(e, EXIT_USAGE, "%s: is the map of another image, not of %s, so it is left as it is: choose another --maps=DIR, or give the image another name", file, path);
	file_unmap(&map);
	return e->code ? -e->code : 0;
}

int maps_write(struct maps *m, int row, const char *path, const struct original *original, const uint8_t *gray, const float *logits, struct shown *s, struct error *e)
{
	struct stem stem = stem_of(path);

	s->finding = m->finding < 0 ? most_probable(logits, m->untrained) : m->finding;
	if (path_join(s->file, e, "%s/%.*s.%s.png", m->directory, stem.length, stem.name, finding_names[s->finding]) < 0)
		return -e->code;
	struct cam cam = make_map(m, row, s->finding);

	s->x = cam.peak > 0 ? of_image(m, cam.peak_x) : NAN;
	s->y = cam.peak > 0 ? of_image(m, cam.peak_y) : NAN;
	s->peak = cam.peak;
	s->raised = cam.raised;
	s->cells = cam.grid.side;
	s->window = window_in(m, original);
	cam_overlay(&cam, gray, m->source_size, m->plan->image_size, m->rgb);
	struct cam_about about = { .finding = s->finding, .probability = 1 / (1 + exp(-(double)logits[s->finding])), .raised = cam.raised,
				   .ten_crops = m->ten_crops, .side = cam.grid.side, .window = s->window };

	snprintf(about.weights_hash, sizeof about.weights_hash, "%s", m->weights_hash);
	snprintf(about.image_hash, sizeof about.image_hash, "%016" PRIx64, original->hash);
	return check_place(s->file, path, &about, e) < 0 ? -e->code : cam_write_png(s->file, m->rgb, m->source_size, &about, e);
}
