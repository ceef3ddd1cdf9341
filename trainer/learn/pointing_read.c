/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/pointing_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/file.h"
#include "json.h"
#include "learn/train_log.h"

static int read_maps(struct pointed maps[FINDINGS], const cJSON *findings)
{
	const cJSON *map;
	uint32_t told = 0;
	int n = 0;

	if (!cJSON_IsObject(findings)) /* what is in an array has no name */
		return -1;
	cJSON_ArrayForEach(map, findings) {
		const cJSON *hit = cJSON_GetObjectItemCaseSensitive(map, "hit");
		const int finding = finding_index(map->string, (int)strlen(map->string));
		const double chance = json_get_number(map, "chance");

		if (finding < 0 || told >> finding & 1 || !cJSON_IsBool(hit) || !(chance >= 0 && chance <= 1))
			return -1;
		told |= 1u << finding;
		maps[n++] = (struct pointed){ finding, cJSON_IsTrue(hit), chance };
	}
	return n ? n : -1;
}

static int same_weights(struct pointing_file *p, const char *hash)
{
	if (!*p->weights_hash)
		snprintf(p->weights_hash, sizeof p->weights_hash, "%s", hash);
	return strcmp(p->weights_hash, hash) == 0;
}

/* An image without a box, and one that could not be read, has no part in it. */
static int read_image(struct pointing_file *p, const cJSON *row, const char *path, struct error *e)
{
	const char *image = json_get_text(row, "image"), *hash = json_get_text(row, "weights_hash");
	const cJSON *pointing = cJSON_GetObjectItemCaseSensitive(row, "pointing");
	const double patient = json_get_number(pointing, "patient");
	struct pointed maps[FINDINGS];

	if (!image)
		return fail(e, EXIT_DATA, "%s: not what chexnet predict --boxes=FILE --json prints: an element without an image", path);
	if (!pointing)
		return 0;
	const int n = read_maps(maps, cJSON_GetObjectItemCaseSensitive(pointing, "findings"));

	if (n < 0 || !hash || (!isnan(patient) && !(patient >= 1 && patient < 1e9)))
		return fail(e, EXIT_DATA, "%s: image %s: \"pointing\" is not as chexnet predict --boxes=FILE --json prints it", path, image);
	if (!same_weights(p, hash))
		return fail(e, EXIT_DATA, "%s: image %s: its map is of the weights %s, and those before of %s: the pointing game is of one model", path, image, hash, p->weights_hash);
	char **name = realloc(p->name, (p->images + 1) * sizeof *name);
	const char *slash = strrchr(image, '/');

	p->name = name ? name : p->name;
	if (!name || !(name[p->images] = strdup(slash ? slash + 1 : image)))
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	p->images++;
	return pointing_add(&p->pointing, isnan(patient) ? 0 : (uint32_t)patient, maps, n) ? fail(e, EXIT_INTERNAL, "%s: no memory", path) : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Would count twice. */
static int check_once(struct pointing_file *p, const char *path, struct error *e)
{
	qsort(p->name, p->images, sizeof *p->name, by_name);
	for (size_t i = 1; i < p->images; i++)
		if (strcmp(p->name[i], p->name[i - 1]) == 0)
			return fail(e, EXIT_DATA, "%s: image %s is there twice", path, p->name[i]);
	return 0;
}

int pointing_read(struct pointing_file *p, const char *path, struct error *e)
{
	char *text;
	size_t size;

	*p = (struct pointing_file){ 0 };
	if (file_read(&text, &size, path, e))
		return -e->code;
	cJSON *rows = json_parse(text, size + 1, 1, NULL);
	const int no_memory = !rows && errno == ENOMEM;
	const cJSON *row;

	free(text);
	if (no_memory)
		fail(e, EXIT_INTERNAL, "%s: no memory", path);
	else if (!cJSON_IsArray(rows))
		fail(e, EXIT_DATA, "%s: no JSON array, or not all of one: chexnet predict --boxes=FILE --json prints one", path);
	cJSON_ArrayForEach(row, rows) {
		if (e->code || read_image(p, row, path, e))
			break;
	}
	cJSON_Delete(rows);
	if (!e->code && p->images == 0)
		fail(e, EXIT_DATA, "%s: no image in it has a box: it is to be printed by chexnet predict --boxes=FILE --json", path);
	return e->code || check_once(p, path, e) ? -e->code : 0;
}

void pointing_file_free(struct pointing_file *p)
{
	for (size_t i = 0; i < p->images; i++)
		free(p->name[i]);
	free(p->name);
	pointing_free(&p->pointing);
	*p = (struct pointing_file){ 0 };
}
