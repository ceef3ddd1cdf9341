/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/cam.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

#include "data/findings.h"
#include "files/file.h"

/* From the pool back to the image: output i of a layer has its middle at input i * stride + (k - 1) / 2 - pad, counted from pixel centres. All
 * ways through a block agree on that. */
struct cam_grid cam_grid_of(const struct net_plan *plan)
{
	int at = plan->layers[plan->n_layers - 1].in;
	struct cam_grid grid = { .side = plan->layers[at - 1].h_in, .pitch = 1 };
	double middle = 0;

	for (at = plan->layers[at - 1].in; at > 0; at = plan->layers[at - 1].in) {
		const struct net_layer *l = &plan->layers[at - 1];

		middle = middle * l->stride + (l->k - 1) / 2.0 - l->pad;
		grid.pitch *= l->stride;
	}
	grid.first = middle + 0.5;
	return grid;
}

static double end_of(const struct cam_grid *grid)
{
	return grid->first + (grid->side - 0.5) * grid->pitch;
}

int cam_uncovered(const struct cam_grid *grid, int window)
{
	int n = window - (int)(end_of(grid) + 0.5); /* a pixel belongs where its centre is */

	return n > 0 ? n : 0;
}

struct cam cam_make(const float *features, int channels, const struct cam_grid *grid, const float *weight, float *cells)
{
	struct cam cam = { .grid = *grid, .cells = cells };
	int side = grid->side, strongest = 0;

	for (int i = 0; i < side * side; i++) {
		double sum = 0;

		for (int c = 0; c < channels; c++)
			sum += (double)weight[c] * features[c * side * side + i];
		cells[i] = (float)sum;
		if (cells[i] > cells[strongest])
			strongest = i;
		if (cells[i] > 0)
			cam.raised += cells[i] / (double)(side * side);
	}
	cam.peak = cells[strongest] / (double)(side * side);
	cam.peak_x = grid->first + grid->pitch * (strongest % side);
	cam.peak_y = grid->first + grid->pitch * (strongest / side);
	return cam;
}

static double cell(const struct cam *cam, int x, int y)
{
	int last = cam->grid.side - 1;

	x = x < 0 ? 0 : x > last ? last : x;
	y = y < 0 ? 0 : y > last ? last : y;
	return cam->cells[y * cam->grid.side + x];
}

/* Bilinear between cell centres, 0 where no cell is; x and y in pixels of the window. */
static double sample(const struct cam *cam, double x, double y)
{
	x = (x - cam->grid.first) / cam->grid.pitch;
	y = (y - cam->grid.first) / cam->grid.pitch;
	int x0 = (int)(x + 1) - 1, y0 = (int)(y + 1) - 1; /* floor for x > -1 */
	double fx = x - x0, fy = y - y0;

	return (1 - fy) * ((1 - fx) * cell(cam, x0, y0) + fx * cell(cam, x0 + 1, y0)) +
	       fy * ((1 - fx) * cell(cam, x0, y0 + 1) + fx * cell(cam, x0 + 1, y0 + 1));
}

/* Nothing, then yellow, then red: t from 0 to 1. */
static void colour(double t, uint8_t gray, uint8_t *rgb)
{
	double cover = 0.6 * t;

	rgb[0] = (uint8_t)((1 - cover) * gray + cover * 255 + 0.5);
	rgb[1] = (uint8_t)((1 - cover) * gray + cover * 220 * (1 - t) + 0.5);
	rgb[2] = (uint8_t)((1 - cover) * gray + 0.5);
}

/* Whether a cell is there, so that there may be a colour. */
static int covered(const struct cam_grid *grid, int window, double x, double y)
{
	double first = grid->first - grid->pitch / 2, end = end_of(grid);

	return x > 0 && y > 0 && x < window && y < window && x >= first && y >= first && x <= end && y <= end;
}

/* In the rim, so that it hides nothing that the network saw; a 256th of the side, since one of a thousand pixels would not be seen. rim: of the
 * right and lower edge, a pixel wider than the others where the difference is odd. */
static int framed(int x, int y, int window, int rim, int size)
{
	int thick = size < 384 ? 1 : (size + 128) / 256, out;

	thick = thick < rim ? thick : rim;
	out = x < 0 || y < 0 || x >= window || y >= window;
	return out && x >= -thick && y >= -thick && x < window + thick && y < window + thick;
}

void cam_overlay(const struct cam *cam, const uint8_t *gray, int size, int window, uint8_t *rgb)
{
	int margin = (size - window) / 2;
	double strongest = cam->peak * cam->grid.side * cam->grid.side, strength = cam->raised < CAM_FULL ? cam->raised / CAM_FULL : 1;

	for (int y = 0; y < size; y++)
		for (int x = 0; x < size; x++) {
			int wx = x - margin, wy = y - margin, in = covered(&cam->grid, window, wx + 0.5, wy + 0.5);
			uint8_t shade = gray[y * size + x];
			double t = in && strongest > 0 ? strength * sample(cam, wx + 0.5, wy + 0.5) / strongest : 0;

			if (framed(wx, wy, window, size - window - margin, size))
				shade = 255;
			else if (!in)
				shade /= 2;
			colour(t > 0 ? t : 0, shade, rgb + 3 * (y * size + x));
		}
}

/* ---- as a file --------------------------------------------------------------------------------------- */

static const char keyword[] = "chexnet-map";

enum { ABOUT_ROOM = 256 };

static int describe(spng_ctx *png, const struct cam_about *about, char text[ABOUT_ROOM])
{
	struct spng_text chunk = { .type = SPNG_TEXT, .text = text };
	const struct cam_window *w = &about->window;
	int n = snprintf(text, ABOUT_ROOM, "finding=%s p=%.6g raised=%.6g cells=%d", finding_names[about->finding], about->probability, about->raised, about->side);

	if (about->ten_crops)
		n += snprintf(text + n, ABOUT_ROOM - (size_t)n, " crops=ten");
	if (w->image_width)
		n += snprintf(text + n, ABOUT_ROOM - (size_t)n, " image=%dx%d window=%.7g,%.7g,%.7g,%.7g", w->image_width, w->image_height, w->x, w->y, w->width, w->height);
	if (*about->weights_hash)
		n += snprintf(text + n, ABOUT_ROOM - (size_t)n, " weights_hash=%s", about->weights_hash);
	if (*about->image_hash)
		n += snprintf(text + n, ABOUT_ROOM - (size_t)n, " image_hash=%s", about->image_hash);
	memcpy(chunk.keyword, keyword, sizeof keyword);
	chunk.length = (size_t)n;
	return spng_set_text(png, &chunk, 1);
}

int cam_write_png(const char *path, const uint8_t *rgb, int size, const struct cam_about *about, struct error *e)
{
	struct spng_ihdr header = { .width = (uint32_t)size, .height = (uint32_t)size, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR };
	spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
	char text[ABOUT_ROOM];
	size_t bytes;
	int rc;

	if (!png)
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
	rc = spng_set_ihdr(png, &header);
	if (!rc && about)
		rc = describe(png, about, text);
	if (!rc)
		rc = spng_encode_image(png, rgb, (size_t)size * (size_t)size * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
	void *file = rc ? NULL : spng_get_png_buffer(png, &bytes, &rc);

	spng_ctx_free(png);
	if (!file)
		return fail(e, EXIT_INTERNAL, "%s: cannot be encoded: %s", path, spng_strerror(rc));
	rc = file_write(path, file, bytes, e);
	free(file);
	return rc;
}

/* What earlier versions did not write. */
static struct cam_window understand_window(const char *text)
{
	struct cam_window w;
	const char *at = strstr(text, " image=");
	double loose = 1e-3; /* of a pixel: digits that were not written */

	if (!at || sscanf(at, " image=%dx%d window=%lf,%lf,%lf,%lf", &w.image_width, &w.image_height, &w.x, &w.y, &w.width, &w.height) != 6)
		return (struct cam_window){ 0 };
	int holds = w.image_width > 0 && w.image_height > 0 && w.x >= 0 && w.y >= 0 && w.width > 0 && w.height > 0 && w.x + w.width <= w.image_width + loose &&
		    w.y + w.height <= w.image_height + loose;

	return holds ? w : (struct cam_window){ 0 };
}

/* key: with a space before it and an equals sign behind it. */
static void understand_hash(const char *text, const char *key, char *hash, size_t size)
{
	const char *at = strstr(text, key);
	size_t n = at ? strspn(at + strlen(key), "0123456789abcdef") : 0;

	snprintf(hash, size, "%s", n == size - 1 ? at + strlen(key) : "");
}

/* Whoever wrote the file may have written anything. */
static int understand(const char *text, struct cam_about *about)
{
	char name[32];

	if (sscanf(text, "finding=%31s p=%lf raised=%lf cells=%d", name, &about->probability, &about->raised, &about->side) != 4)
		return 0;
	about->finding = finding_index(name, (int)strlen(name));
	about->ten_crops = strstr(text, " crops=ten") != NULL;
	about->window = understand_window(text);
	understand_hash(text, " weights_hash=", about->weights_hash, sizeof about->weights_hash);
	understand_hash(text, " image_hash=", about->image_hash, sizeof about->image_hash);
	return about->finding >= 0 && about->probability >= 0 && about->probability <= 1 && about->raised >= 0 && isfinite(about->raised) && about->side > 0 &&
	       about->side < 1000;
}

int cam_read_about(const void *file, size_t size, struct cam_about *about)
{
	enum { MOST_CHUNKS = 16 };
	struct spng_text chunk[MOST_CHUNKS];
	spng_ctx *png = spng_ctx_new(0);
	uint32_t n = 0;
	int found = 0, rc;

	if (!png)
		return -1;
	spng_set_chunk_limits(png, 1 << 16, 1 << 20);
	if ((rc = spng_set_png_buffer(png, file, size)) == 0 && (rc = spng_get_text(png, NULL, &n)) == 0 && n <= MOST_CHUNKS && (rc = spng_get_text(png, chunk, &n)) == 0)
		for (uint32_t i = 0; i < n && !found; i++)
			found = chunk[i].type == SPNG_TEXT && strcmp(chunk[i].keyword, keyword) == 0 && understand(chunk[i].text, about);
	spng_ctx_free(png);
	return rc == SPNG_EMEM ? -1 : found;
}
