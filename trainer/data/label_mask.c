/* SPDX-License-Identifier: Apache-2.0 */
#include "data/label_mask.h"

#include <stdlib.h>
#include <string.h>

#include "data/hash.h"
#include "data/source.h"
#include "files/csv.h"

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct label_mask_row *)a)->id, ((const struct label_mask_row *)b)->id);
}

static int read_row(struct label_mask *m, const struct csv *c, struct error *e)
{
	struct error why = { 0 };
	struct label_mask_row row = { 0 };

	if (c->n != 2)
		return fail(e, EXIT_DATA, "%s:%zu: %d column%s, not two: image and findings", c->path, c->line, c->n, c->n == 1 ? "" : "s");
	if (strlen(c->field[0]) >= SAMPLE_ID || !c->field[0][0])
		return fail(e, EXIT_DATA, "%s:%zu: \"%.40s\" is no image name", c->path, c->line, c->field[0]);
	strcpy(row.id, c->field[0]);
	if (strcmp(c->field[1], "All") == 0)
		row.findings = ALL_FINDINGS;
	else if (findings_read(c->field[1], '|', NULL, &row.findings, &why))
		return fail(e, EXIT_DATA, "%s:%zu: %s", c->path, c->line, why.text);
	if ((m->n & (m->n - 1)) == 0) { /* full at every power of two */
		struct label_mask_row *rows = realloc(m->rows, (m->n ? 2 * m->n : 1) * sizeof *rows);
		if (!rows)
			return fail(e, EXIT_INTERNAL, "%s: no memory for %zu rows", c->path, m->n);
		m->rows = rows;
	}
	m->rows[m->n++] = row;
	return 0;
}

static int read_file(struct label_mask *m, const char *path, struct error *e)
{
	struct csv c;
	int rc = csv_open(&c, path, e);

	if (rc)
		return rc;
	while ((rc = csv_next(&c, e)) > 0)
		if (!csv_names_columns(&c) && (rc = read_row(m, &c, e)) < 0)
			break;
	csv_close(&c);
	if (m->n)
		qsort(m->rows, m->n, sizeof *m->rows, by_id);
	for (size_t i = 1; i < m->n && !rc; i++)
		if (strcmp(m->rows[i].id, m->rows[i - 1].id) == 0)
			rc = fail(e, EXIT_DATA, "%s: image %s comes twice", path, m->rows[i].id);
	for (size_t i = 0; i < m->n; i++)
		m->hash = hash_u64(hash_bytes(m->hash, m->rows[i].id, strlen(m->rows[i].id)), m->rows[i].findings);
	return rc;
}

static int read_list(struct label_mask *m, const char *text, struct error *e)
{
	struct error why = { 0 };

	if (findings_read(text, ',', NULL, &m->findings, &why))
		return fail(e, EXIT_USAGE, "--mask=%s: %s", text, why.text);
	if (m->findings == ALL_FINDINGS)
		return fail(e, EXIT_USAGE, "--mask=%s: no finding is left", text);
	m->hash = hash_u64(0, m->findings);
	return 0;
}

int label_mask_read(struct label_mask *m, const char *text, struct error *e)
{
	*m = (struct label_mask){ 0 };
	if (strcmp(text, "file:") == 0)
		return fail(e, EXIT_USAGE, "--mask=file: names no file");
	int rc = strncmp(text, "file:", 5) == 0 ? read_file(m, text + 5, e) : read_list(m, text, e);
	if (rc)
		label_mask_free(m);
	return rc;
}

void label_mask_free(struct label_mask *m)
{
	free(m->rows);
	*m = (struct label_mask){ 0 };
}

size_t label_mask_apply(struct label_mask *m, struct dataset *d)
{
	struct label_mask_row key = { 0 };
	size_t masked = 0;

	for (size_t i = 0; i < d->count; i++) {
		struct sample *s = &d->samples[i];
		memcpy(key.id, s->id, SAMPLE_ID);
		struct label_mask_row *row = m->n ? bsearch(&key, m->rows, m->n, sizeof *m->rows, by_id) : NULL;
		uint32_t bits = s->known & (m->findings | (row ? row->findings : 0));
		if (row)
			row->used = 1;
		masked += (size_t)__builtin_popcount(bits);
		d->masked |= bits & ~m->findings;
		s->known &= ~bits;
	}
	return masked;
}

size_t label_mask_unused(const struct label_mask *m)
{
	size_t unused = 0;

	for (size_t i = 0; i < m->n; i++)
		unused += !m->rows[i].used;
	return unused;
}
