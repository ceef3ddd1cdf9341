/* SPDX-License-Identifier: Apache-2.0 */
#include "data/manifest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "image/resize.h"
#include "json.h"

enum { VERSION = 1, MAX_SHARDS = 99999 };
const char manifest_format[] = "chexnet-prepared";
static const double MAX_IMAGES = 1e10;

const char *const encoding_names[] = { "png", "jpeg", "packed", NULL };

int shard_path(char path[FILE_PATH], const char *directory, enum split split, int shard, int shards, struct error *e)
{
	return path_join(path, e, "%s/%s-%05d-of-%05d", directory, split_names[split], shard, shards);
}

int packed_path(char path[FILE_PATH], const char *directory, enum split split, struct error *e)
{
	return path_join(path, e, "%s/%s.cxp", directory, split_names[split]);
}

static void add_hex(cJSON *object, const char *name, uint64_t value)
{
	char text[20];
	snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
	cJSON_AddStringToObject(object, name, text);
}

static cJSON *split_json(const struct manifest_split *s)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "images", (double)s->images);
	cJSON_AddNumberToObject(o, "patients", (double)s->patients);
	cJSON_AddNumberToObject(o, "shards", s->shards);
	if (s->has_oracle) {
		cJSON *list = cJSON_AddArrayToObject(o, "oracle_auroc");
		for (int f = 0; f < FINDINGS; f++)
			cJSON_AddItemToArray(list, isnan(s->oracle[f]) ? cJSON_CreateNull() : cJSON_CreateNumber(s->oracle[f]));
	}
	return o;
}

int manifest_write(const struct manifest *m, const char *directory, struct error *e)
{
	char path[FILE_PATH];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "format", manifest_format);
	cJSON_AddNumberToObject(o, "version", VERSION);
	cJSON_AddStringToObject(o, "made_by", "chexnet " HVD_VERSION);
	cJSON_AddNumberToObject(o, "image_size", m->size);
	cJSON_AddStringToObject(o, "encoding", encoding_names[m->encoding]);
	cJSON_AddStringToObject(o, "resize", RESIZE_NAME);
	cJSON *names = cJSON_AddArrayToObject(o, "findings");
	for (int f = 0; f < FINDINGS; f++)
		cJSON_AddItemToArray(names, cJSON_CreateString(finding_names[f]));
	cJSON_AddStringToObject(o, "source", m->source);
	add_hex(o, "source_hash", m->source_hash);
	cJSON_AddStringToObject(o, "split_policy", m->policy);
	add_hex(o, "seed", m->seed);
	cJSON *splits = cJSON_AddObjectToObject(o, "splits");
	for (int s = 0; s < SPLITS; s++)
		cJSON_AddItemToObject(splits, split_names[s], split_json(&m->split[s]));
	char *text = json_finish(o, 1);
	int rc = text ? path_join(path, e, "%s/manifest.json", directory) : fail(e, EXIT_INTERNAL, "no memory for a manifest");
	if (!rc)
		rc = file_write(path, text, strlen(text), e);
	cJSON_free(text);
	return rc;
}

/* Readers of one value each; `path` is for the message. */
struct reader {
	const char *path;
	struct error *e;
};

static int read_number(const struct reader *r, const cJSON *o, const char *name, double low, double high, double *value)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

	if (!cJSON_IsNumber(item) || !(item->valuedouble >= low && item->valuedouble <= high) || item->valuedouble != floor(item->valuedouble))
		return fail(r->e, EXIT_DATA, "%s: \"%s\" is not a whole number from %.0f to %.0f", r->path, name, low, high);
	*value = item->valuedouble;
	return 0;
}

static int read_string(const struct reader *r, const cJSON *o, const char *name, char *value, size_t room)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

	if (!cJSON_IsString(item) || strlen(item->valuestring) >= room)
		return fail(r->e, EXIT_DATA, "%s: \"%s\" is not a text of less than %zu bytes", r->path, name, room);
	memcpy(value, item->valuestring, strlen(item->valuestring) + 1);
	controls_mend(value); /* it may be printed */
	return 0;
}

static int read_hex(const struct reader *r, const cJSON *o, const char *name, uint64_t *value)
{
	char text[20];

	if (read_string(r, o, name, text, sizeof text))
		return -EXIT_DATA;
	size_t digits = strspn(text, "0123456789abcdefABCDEF");
	*value = strtoull(text, NULL, 16);
	if (digits == 0 || digits > 16 || text[digits])
		return fail(r->e, EXIT_DATA, "%s: \"%s\" is not a hexadecimal number of 1 to 16 digits", r->path, name);
	return 0;
}

/* This program's findings in this program's order: anything else would train on other labels. */
static int check_findings(const struct reader *r, const cJSON *o)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "findings");

	if (cJSON_GetArraySize(list) != FINDINGS)
		return fail(r->e, EXIT_DATA, "%s: %d findings, not %d", r->path, cJSON_GetArraySize(list), FINDINGS);
	for (int f = 0; f < FINDINGS; f++) {
		const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, f));
		if (!name || strcmp(name, finding_names[f]) != 0)
			return fail(r->e, EXIT_DATA, "%s: finding %d is \"%s\", not \"%s\"", r->path, f, name ? name : "", finding_names[f]);
	}
	return 0;
}

static int read_split(const struct reader *r, const cJSON *o, struct manifest_split *s)
{
	double images = 0, patients = 0, shards = 0;

	if (read_number(r, o, "images", 0, MAX_IMAGES, &images) || read_number(r, o, "patients", 0, images, &patients) ||
	    read_number(r, o, "shards", images > 0, fmin(images, MAX_SHARDS), &shards)) /* none is empty, and each takes memory before it is looked for */
		return -EXIT_DATA;
	*s = (struct manifest_split){ .images = (size_t)images, .patients = (size_t)patients, .shards = (int)shards };
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "oracle_auroc");
	if (!list)
		return 0;
	if (cJSON_GetArraySize(list) != FINDINGS)
		return fail(r->e, EXIT_DATA, "%s: \"oracle_auroc\" has not %d values", r->path, FINDINGS);
	s->has_oracle = 1;
	for (int f = 0; f < FINDINGS; f++) {
		const cJSON *item = cJSON_GetArrayItem(list, f);
		s->oracle[f] = cJSON_IsNumber(item) ? item->valuedouble : NAN;
		if (!cJSON_IsNull(item) && !(s->oracle[f] >= 0 && s->oracle[f] <= 1))
			return fail(r->e, EXIT_DATA, "%s: \"oracle_auroc\" of %s is no AUROC, which lies from 0 to 1 (null: none)", r->path, finding_names[f]);
	}
	return 0;
}

static int read_all(const struct reader *r, const cJSON *o, struct manifest *m)
{
	char text[64];
	double version = 0, size = 0;

	if (read_string(r, o, "format", text, sizeof text) || strcmp(text, manifest_format) != 0)
		return fail(r->e, EXIT_DATA, "%s: not the manifest of a prepared data set", r->path);
	if (read_number(r, o, "version", 1, 1e9, &version))
		return -EXIT_DATA;
	if (version != VERSION)
		return fail(r->e, EXIT_DATA, "%s: format version %.0f; this program reads %d: prepare the data set anew", r->path, version, VERSION);
	if (read_number(r, o, "image_size", 1, IMAGE_MAX_SIDE, &size) || read_string(r, o, "encoding", text, sizeof text) ||
	    read_string(r, o, "split_policy", m->policy, sizeof m->policy) || read_string(r, o, "source", m->source, sizeof m->source) ||
	    read_hex(r, o, "source_hash", &m->source_hash) || read_hex(r, o, "seed", &m->seed) || check_findings(r, o))
		return -EXIT_DATA;
	m->size = (int)size;
	int encoding = 0;
	while (encoding_names[encoding] && strcmp(encoding_names[encoding], text) != 0)
		encoding++;
	if (!encoding_names[encoding])
		return fail(r->e, EXIT_DATA, "%s: no way of storing images is called \"%s\"", r->path, text);
	m->encoding = (enum encoding)encoding;
	const cJSON *splits = cJSON_GetObjectItemCaseSensitive(o, "splits");
	for (int s = 0; s < SPLITS; s++) {
		const cJSON *split = cJSON_GetObjectItemCaseSensitive(splits, split_names[s]);
		if (!split)
			return fail(r->e, EXIT_DATA, "%s: no split \"%s\"", r->path, split_names[s]);
		if (read_split(r, split, &m->split[s]))
			return -EXIT_DATA;
	}
	return 0;
}

int manifest_read(struct manifest *m, const char *directory, struct error *e)
{
	char path[FILE_PATH], *text;
	const char *end;
	size_t size;

	memset(m, 0, sizeof *m);
	if (path_join(path, e, "%s/manifest.json", directory))
		return -e->code;
	if (path_there(directory, e) == 0)
		return fail(e, EXIT_DATA, "%s: no such directory", directory);
	if (!e->code && path_there(path, e) == 0)
		return fail(e, EXIT_DATA, "%s: no manifest.json: not a prepared data set (chexnet prepare nih DIR OUT makes one)", directory);
	if (e->code || file_read(&text, &size, path, e))
		return -e->code;
	cJSON *o = json_parse(text, size + 1, 1, &end);
	struct reader r = { path, e };
	int rc = o		 ? read_all(&r, o, m) :
		 errno == ENOMEM ? fail(e, EXIT_INTERNAL, "%s: no memory to read it", path) :
				   fail(e, EXIT_DATA, "%s: not JSON at byte %zu", path, (size_t)(end - text));
	cJSON_Delete(o);
	free(text);
	return rc;
}
