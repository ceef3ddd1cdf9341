/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/csv.h"
#include "prepare/origin.h"

void origin_close(struct origin *o)
{
	if (o->close)
		o->close(o->state);
	free(o->samples);
	free(o->split);
	free(o->facts);
	free(o->oracle);
	memset(o, 0, sizeof *o);
}

static void close_nih(void *state)
{
	nih_close(state);
	free(state);
}

static int decode_nih(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	const struct nih *n = o->state;
	struct error why = { 0 };
	char path[FILE_PATH], *file;
	size_t size;

	if (nih_path(n, nih_find(n, o->samples[i].id), path, e) || image_read(&file, &size, path, e))
		return -e->code;
	int rc = decode_image(d, (const uint8_t *)file, size, image, &why);
	free(file);
	return rc ? fail(e, why.code, "%s: %s", path, why.text) : 0;
}

static int take_samples(struct origin *o, const struct nih *n, struct error *e)
{
	o->samples = malloc(n->count * sizeof *o->samples);
	o->split = malloc(n->count);
	o->facts = malloc(n->count * sizeof *o->facts);
	if (!o->samples || !o->split || !o->facts)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", n->count);
	for (size_t i = 0; i < n->count; i++) {
		o->samples[i] = n->images[i].sample;
		o->facts[i] = n->images[i].facts;
	}
	return 0;
}

/* Scores of a synthetic tree's oracle, where the directory has them. */
static int read_oracle(struct origin *o, const struct nih *n, struct error *e)
{
	char path[FILE_PATH], *end;
	struct csv c;
	int column[FINDINGS], rc;
	size_t rows = 0;

	if (path_join(path, e, "%s/oracle.csv", n->directory) || path_there(path, e) <= 0)
		return -e->code;
	if (csv_open(&c, path, e))
		return -e->code;
	o->oracle = malloc(n->count * FINDINGS * sizeof *o->oracle);
	rc = o->oracle ? csv_next(&c, e) : fail(e, EXIT_INTERNAL, "no memory for the oracle's scores");
	for (size_t i = 0; o->oracle && i < n->count * FINDINGS; i++)
		o->oracle[i] = NAN;
	for (int f = 0; rc > 0 && f < FINDINGS; f++) {
		column[f] = 1;
		while (column[f] < c.n && strcmp(c.field[column[f]], finding_names[f]) != 0)
			column[f]++;
		if (column[f] >= c.n)
			rc = fail(e, EXIT_DATA, "%s: no column \"%s\"", path, finding_names[f]);
	}
	while (rc > 0 && (rc = csv_next(&c, e)) > 0) {
		const struct nih_image *image = nih_find(n, c.field[0]);
		float *score = image ? o->oracle + (size_t)(image - n->images) * FINDINGS : NULL;

		if (score && !isnan(score[0]))
			rc = fail(e, EXIT_DATA, "%s:%zu: image %s a second time", path, c.line, image->sample.id);
		for (int f = 0; score && rc > 0 && f < FINDINGS; f++) {
			const char *text = column[f] < c.n ? c.field[column[f]] : "";
			score[f] = strtof(text, &end);
			if (end == text || *end || !isfinite(score[f]))
				rc = fail(e, EXIT_DATA, "%s:%zu: \"%.40s\" is no number", path, c.line, text);
		}
		rows += image != NULL;
	}
	if (rc == 0 && rows != n->count)
		rc = fail(e, EXIT_DATA, "%s: scores for %zu of %zu images", path, rows, n->count);
	csv_close(&c);
	return rc;
}

/* After they were divided, so that each of the others is in the split that it has in the whole set. */
static int leave_out_missing(struct origin *o, const struct nih *n, struct error *e)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->count; i++) {
		if (n->images[i].folder < 0) {
			sample_names_add(&o->missing, n->images[i].sample.id);
			continue;
		}
		o->samples[kept] = o->samples[i];
		o->split[kept] = o->split[i];
		o->facts[kept] = o->facts[i];
		if (o->oracle)
			memmove(o->oracle + kept * FINDINGS, o->oracle + i * FINDINGS, FINDINGS * sizeof *o->oracle);
		kept++;
	}
	o->count = kept;
	return kept ? 0 : nih_check_files(n, e);
}

static int open_nih(struct origin *o, const char *directory, enum split_policy policy, uint64_t seed, const char *split_file, int partial, struct error *e)
{
	struct nih *n = calloc(1, sizeof *n);

	*o = (struct origin){ .state = n, .decode = decode_nih };
	if (!n)
		return fail(e, EXIT_INTERNAL, "no memory");
	if (nih_open(n, directory, e)) {
		free(n);
		return -e->code;
	}
	o->close = close_nih;
	o->count = n->count;
	o->hash = n->hash;
	o->extra = n->extra;
	int rc = partial ? 0 : nih_check_files(n, e);
	if (!rc)
		rc = take_samples(o, n, e);
	if (!rc)
		rc = split_file ? nih_divide_file(n, split_file, o->split, e) : nih_divide(n, policy, seed, o->split, e);
	if (!rc)
		rc = read_oracle(o, n, e);
	if (!rc && partial)
		rc = leave_out_missing(o, n, e);
	for (size_t i = 0; !rc && i < o->count; i++)
		o->unlisted += o->split[i] == SPLIT_NONE;
	snprintf(o->policy, sizeof o->policy, "%s", split_policy_names[policy]);
	snprintf(o->name, sizeof o->name, o->oracle ? "synthetic" : "ChestX-ray14, labels of %s", n->generation);
	if (rc)
		origin_close(o);
	return rc;
}

int origin_nih(struct origin *o, const char *directory, enum split_policy policy, uint64_t seed, struct error *e)
{
	return open_nih(o, directory, policy, seed, NULL, 0, e);
}

int origin_nih_partial(struct origin *o, const char *directory, enum split_policy policy, uint64_t seed, struct error *e)
{
	return open_nih(o, directory, policy, seed, NULL, 1, e);
}

int origin_nih_file(struct origin *o, const char *directory, const char *split_file, struct error *e)
{
	return open_nih(o, directory, SPLIT_FILE, 0, split_file, 0, e);
}

int origin_table(struct origin *o, const char *table, const char *reference, const char *train_val_list, const char *test_list, struct error *e)
{
	static const enum split of_list[] = { [NIH_UNLISTED] = SPLIT_NONE, [NIH_TRAIN_VAL] = SPLIT_TRAIN, [NIH_TEST] = SPLIT_TEST };
	struct nih n, divided;

	*o = (struct origin){ 0 };
	if (nih_open_tables(&n, table, NULL, NULL, e))
		return -e->code;
	if (nih_open_tables(&divided, reference ? reference : table, train_val_list, test_list, e)) {
		nih_close(&n);
		return -e->code;
	}
	o->count = n.count;
	o->hash = n.hash;
	int rc = take_samples(o, &n, e);
	for (size_t i = 0; !rc && i < n.count; i++) {
		const struct nih_image *image = nih_find(&divided, n.images[i].sample.id);
		o->split[i] = divided.has_lists ? (uint8_t)(image ? of_list[image->list] : SPLIT_NONE) : SPLIT_TRAIN;
		o->unlisted += o->split[i] == SPLIT_NONE;
	}
	snprintf(o->policy, sizeof o->policy, "%s", divided.has_lists ? "as listed" : "none");
	snprintf(o->name, sizeof o->name, "label table of %s without images", n.generation);
	nih_close(&n);
	nih_close(&divided);
	if (rc)
		origin_close(o);
	return rc;
}
