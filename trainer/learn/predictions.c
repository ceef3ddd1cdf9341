/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/predictions.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/csv.h"
#include "files/file.h"
#include "utf8.h"

enum { MAX_COLUMNS = 256, LINE_ROOM = 1024 };

/* ---- provenance: the first line --------------------------------------------------------------------- */

static const struct {
	const char *key;
	size_t at, room;
} keys[] = {
#define KEY(name) { #name, offsetof(struct provenance, name), sizeof((struct provenance *)0)->name }
	KEY(model), KEY(checkpoint), KEY(weights_hash), KEY(data), KEY(policy), KEY(version), KEY(crops), KEY(pos_weight), KEY(order), KEY(trained_on), KEY(source), KEY(command),
#undef KEY
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static int write_text(struct output_file *out, const char *text, struct error *e)
{
	return output_write(out, text, strlen(text), e);
}

static int write_value(struct output_file *out, const char *value, struct error *e)
{
	for (size_t n; *value; value += n) {
		const unsigned char first = (unsigned char)*value;
		char escaped[4];
		int rc;

		n = utf8_character(value);
		if (n == 0 || first <= ' ' || first == '%' || first == 0x7f) { /* a path may be of any bytes, and the file is UTF-8 */
			n = 1;
			rc = output_write(out, escaped, (size_t)snprintf(escaped, sizeof escaped, "%%%02X", first), e);
		} else {
			rc = output_write(out, value, n, e);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int write_oracle(struct output_file *out, const struct provenance *about, struct error *e)
{
	int rc = 0;

	for (int f = 0; about->has_oracle && !rc && f < FINDINGS; f++) {
		char text[48];

		snprintf(text, sizeof text, isnan(about->oracle[f]) ? "%s" : "%s%.6f", f ? "," : " oracle=", about->oracle[f]);
		rc = write_text(out, text, e);
	}
	return rc;
}

static int write_provenance(struct output_file *out, const struct provenance *about, size_t rows, struct error *e)
{
	char begin[48], count[24] = "unchecked", leak[64];

	snprintf(begin, sizeof begin, "# rows=%zu", rows);
	int rc = write_text(out, begin, e);

	for (int k = 0; rc == 0 && k < N_KEYS; k++) {
		const char *value = (const char *)about + keys[k].at;

		if (!*value)
			continue;
		if (write_text(out, " ", e) || write_text(out, keys[k].key, e) || write_text(out, "=", e) || write_value(out, value, e))
			rc = -e->code;
	}
	if (!rc)
		rc = write_oracle(out, about, e);
	if (about->leaked >= 0)
		snprintf(count, sizeof count, "%ld", about->leaked);
	snprintf(leak, sizeof leak, " leak=%s%s\n", count, about->leaky ? " leaky=yes" : "");
	return rc ? rc : write_text(out, leak, e);
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Behind `length` bytes stands what is no hexadecimal digit. */
static void unescape(char *out, size_t room, const char *value, size_t length)
{
	size_t n = 0;

	for (size_t i = 0; i < length && n + 1 < room; i++) {
		if (value[i] == '%' && hex(value[i + 1]) >= 0 && hex(value[i + 2]) >= 0) {
			out[n++] = (char)(hex(value[i + 1]) << 4 | hex(value[i + 2]));
			i += 2;
		} else {
			out[n++] = value[i];
		}
	}
	out[n] = '\0';
}

static void read_oracle(struct provenance *about, const char *text)
{
	about->has_oracle = 1;
	for (int f = 0; f < FINDINGS; f++) {
		char *end;
		double value = strtod(text, &end);

		about->oracle[f] = end > text && value > 0 && value <= 1 ? value : NAN;
		text = end + strcspn(end, ", \t\r");
		text += *text == ',';
	}
}

/* *rows is left as it is where the line does not note their number. */
static void read_provenance(struct provenance *about, long *rows, const char *line)
{
	for (const char *p = line + 1; *(p += strspn(p, " \t\r"));) {
		size_t key = strcspn(p, "= \t\r"), value = p[key] == '=' ? strcspn(p + key + 1, " \t\r") : 0;
		const char *text = p + key + 1;

		for (int k = 0; p[key] == '=' && k < N_KEYS; k++)
			if (strlen(keys[k].key) == key && memcmp(keys[k].key, p, key) == 0) {
				char *noted = (char *)about + keys[k].at;

				unescape(noted, keys[k].room, text, value);
				if (noted != about->checkpoint && noted != about->command) /* those name files, whatever they are called */
					controls_mend(noted);
			}
		if (key == 4 && memcmp(p, "leak=", 5) == 0 && isdigit((unsigned char)*text))
			about->leaked = strtol(text, NULL, 10);
		if (key == 5 && value >= 3 && memcmp(p, "leaky=yes", 9) == 0 && 3 + strspn(p + 9, ",") == value) /* a spreadsheet fills its lines up with commas */
			about->leaky = 1;
		if (key == 4 && memcmp(p, "rows=", 5) == 0 && isdigit((unsigned char)*text))
			*rows = strtol(text, NULL, 10);
		if (key == 6 && memcmp(p, "oracle=", 7) == 0)
			read_oracle(about, text);
		p += key + (p[key] == '=') + value;
	}
	if (!*about->crops && strncmp(about->command, "chexnet eval ", 13) == 0 && strstr(about->command, " --crops=ten")) /* all that older versions say of it */
		snprintf(about->crops, sizeof about->crops, "ten");
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static int write_header(struct output_file *out, struct error *e)
{
	int rc = write_text(out, "id,patient,split", e);

	for (int i = 0; rc == 0 && i < 2 * FINDINGS; i++) {
		char column[64];

		snprintf(column, sizeof column, ",%s_%s", finding_names[i % FINDINGS], i < FINDINGS ? "label" : "logit");
		rc = write_text(out, column, e);
	}
	return rc ? rc : write_text(out, "\n", e);
}

static int write_row(struct output_file *out, const struct predictions *p, size_t i, struct error *e)
{
	const struct sample *s = &p->samples[i];
	char line[LINE_ROOM];
	int n;

	if (strpbrk(s->id, "\r\n"))
		return fail(e, EXIT_DATA, "image %s: a name with a line end cannot be written to %s", s->id, out->path);
	if (!utf8_valid(s->id)) /* from a file of another program's */
		return fail(e, EXIT_DATA, "image %s: a name that is not UTF-8 cannot be written to %s: write the file that it is from in UTF-8", s->id, out->path);
	n = csv_quote(line, s->id);
	line[n++] = ',';
	if (p->has_patients)
		n += snprintf(line + n, sizeof line - (size_t)n, "%u", s->patient);
	n += snprintf(line + n, sizeof line - (size_t)n, ",%s", p->about.split);
	for (int f = 0; f < FINDINGS; f++)
		n += snprintf(line + n, sizeof line - (size_t)n, s->known >> f & 1 ? ",%d" : ",", (int)(s->labels >> f & 1));
	for (int f = 0; f < FINDINGS; f++) {
		float logit = p->logits[i * FINDINGS + (size_t)f];

		if (!isfinite(logit))
			return fail(e, EXIT_DATA, "image %s: the logit of %s is %f; nothing written to %s", s->id, finding_names[f], logit,
				    out->path);
		n += snprintf(line + n, sizeof line - (size_t)n, ",%.9g", logit);
	}
	line[n++] = '\n';
	return output_write(out, line, (size_t)n, e);
}

int predictions_write(const char *path, const struct predictions *p, struct error *e)
{
	struct output_file out;

	if (output_open(&out, path, e))
		return -e->code;
	int rc = write_provenance(&out, &p->about, p->n, e);
	if (!rc)
		rc = write_header(&out, e);
	for (size_t i = 0; !rc && i < p->n; i++)
		rc = write_row(&out, p, i, e);
	if (rc) {
		output_discard(&out);
		return rc;
	}
	return output_commit(&out, e);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

struct columns {
	int n, id, patient, split;
	int label[FINDINGS], logit[FINDINGS];
};

struct reader {
	const char *path;
	size_t line; /* from 1 */
	long rows;   /* as the file notes it; -1: it does not */
	int open;    /* the line read last has no end */
	char *next;
	char *field[MAX_COLUMNS];
	struct columns columns;
};

static int bad(const struct reader *r, struct error *e, const char *what, const char *column, const char *text)
{
	return fail(e, EXIT_DATA, "%s: line %zu, column %s: %s: \"%.80s\"", r->path, r->line, column, what, text);
}

/* The next line without its end, or NULL. */
static char *next_line(struct reader *r)
{
	char *line = r->next;

	if (!*line)
		return NULL;
	size_t length = strcspn(line, "\n");
	r->open = line[length] == '\0';
	r->next = line + length + !r->open;
	if (length && line[length - 1] == '\r')
		length--;
	line[length] = '\0';
	r->line++;
	return line;
}

/* Splits at commas outside quotation marks (RFC 4180, one line a record). Returns the number of fields. */
static int split(struct reader *r, char *line, struct error *e)
{
	int n = 0;

	for (char *p = line;; p++) {
		if (n == MAX_COLUMNS)
			return fail(e, EXIT_DATA, "%s: line %zu: more than %d columns", r->path, r->line, MAX_COLUMNS);
		r->field[n++] = p;
		if (*p == '"') {
			char *to = p;

			for (p++; *p && (*p != '"' || p[1] == '"'); p++) {
				p += *p == '"';
				*to++ = *p;
			}
			if (!*p)
				return fail(e, EXIT_DATA, "%s: line %zu: a quotation mark is not closed", r->path, r->line);
			p++;
			*to = '\0';
			if (*p && *p != ',')
				return fail(e, EXIT_DATA, "%s: line %zu: text behind a closing quotation mark", r->path, r->line);
		}
		p += strcspn(p, ",");
		if (!*p)
			return n;
		*p = '\0';
	}
}

static int find_column(const struct reader *r, const char *name, struct error *e)
{
	int found = -1;

	for (int i = 0; i < r->columns.n; i++) {
		if (strcmp(r->field[i], name))
			continue;
		if (found >= 0)
			fail(e, EXIT_DATA, "%s: line %zu: two columns \"%s\": leave the one that is meant", r->path, r->line, name);
		found = i;
	}
	return found;
}

static int need_column(const struct reader *r, int finding, const char *what, struct error *e)
{
	char name[64];

	snprintf(name, sizeof name, "%s_%s", finding_names[finding], what);
	int found = find_column(r, name, e);
	if (found < 0)
		fail(e, EXIT_DATA, "%s: line %zu: no column \"%s\"", r->path, r->line, name);
	return found;
}

static int read_header(struct reader *r, char *line, struct error *e)
{
	struct columns *c = &r->columns;

	c->n = split(r, line, e);
	if (c->n < 0)
		return c->n;
	c->id = find_column(r, "id", e);
	c->patient = find_column(r, "patient", e);
	c->split = find_column(r, "split", e);
	if (c->id < 0)
		return fail(e, EXIT_DATA, "%s: line %zu: no column \"id\"%s", r->path, r->line, c->n == 1 && strpbrk(line, ";\t") ?
			    ": what sets columns apart is to be a comma" : "; is it a file that chexnet eval --predictions wrote?");
	for (int f = 0; f < FINDINGS; f++) {
		c->label[f] = need_column(r, f, "label", e);
		c->logit[f] = need_column(r, f, "logit", e);
	}
	return e->code ? -e->code : 0;
}

static int read_patient(struct reader *r, struct predictions *p, struct sample *s, int first, struct error *e)
{
	const char *text = r->columns.patient < 0 ? "" : r->field[r->columns.patient];
	char *end;

	if (first)
		p->has_patients = *text != '\0';
	if (!p->has_patients && !*text)
		return 0;
	errno = 0;
	unsigned long patient = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || patient > UINT32_MAX)
		return bad(r, e, "not a patient number", "patient", text);
	if (!p->has_patients)
		return bad(r, e, "a patient here, but none on the lines before", "patient", text);
	s->patient = (uint32_t)patient;
	return 0;
}

static int read_row(struct reader *r, struct predictions *p, size_t i, struct error *e)
{
	const struct columns *c = &r->columns;
	struct sample *s = &p->samples[i];
	const char *part = c->split < 0 ? "" : controls_mend(r->field[c->split]);

	if (snprintf(s->id, sizeof s->id, "%s", r->field[c->id]) >= (int)sizeof s->id || !s->id[0])
		return bad(r, e, *s->id ? "longer than an image's name" : "must not be empty", "id", r->field[c->id]);
	if (i == 0)
		snprintf(p->about.split, sizeof p->about.split, "%s", part);
	else if (strcmp(part, p->about.split))
		return bad(r, e, "another split than on the lines before; one file holds one split", "split", part);
	if (read_patient(r, p, s, i == 0, e))
		return -e->code;
	for (int f = 0; f < FINDINGS; f++) {
		const char *label = r->field[c->label[f]], *logit = r->field[c->logit[f]];
		char *end;

		if (label[0] && ((label[1] && strcmp(label + 1, ".0")) || (label[0] != '0' && label[0] != '1'))) /* 1.0: pandas, where another row's is empty */
			return bad(r, e, "a label is 0, 1 or empty", finding_names[f], label);
		s->known |= (uint32_t)(label[0] != '\0') << f;
		s->labels |= (uint32_t)(label[0] == '1') << f;
		float value = strtof(logit, &end);
		if (end == logit || *end || !isfinite(value))
			return bad(r, e, "a logit must be a finite number", finding_names[f], logit);
		p->logits[i * FINDINGS + (size_t)f] = value;
	}
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int refuse_duplicates(const struct reader *r, const struct predictions *p, struct error *e)
{
	const char **id = malloc((p->n + 1) * sizeof *id);
	int rc = 0;

	if (!id)
		return fail(e, EXIT_INTERNAL, "%s: no memory for %zu names", r->path, p->n);
	for (size_t i = 0; i < p->n; i++)
		id[i] = p->samples[i].id;
	qsort(id, p->n, sizeof *id, by_id);
	for (size_t i = 1; i < p->n && !rc; i++)
		if (strcmp(id[i - 1], id[i]) == 0)
			rc = fail(e, EXIT_DATA, "%s: image %s comes twice", r->path, id[i]);
	free(id);
	return rc;
}

/* A copy that stopped half-way looks like a shorter file, or one whose last number has fewer digits. Our own files tell; of others
 * it cannot be known, and RFC 4180 leaves them the choice of a last line end. */
static int check_complete(const struct reader *r, const struct predictions *p, struct error *e)
{
	if (r->rows < 0)
		return 0;
	if ((size_t)r->rows != p->n)
		return fail(e, EXIT_DATA, "%s: its first line notes rows=%ld and there are %zu: not all of it was copied, or rows were taken out (then take out rows=%ld too)",
			    r->path, r->rows, p->n, r->rows);
	if (r->open)
		return fail(e, EXIT_DATA, "%s: line %zu, its last, has no end: not all of it was copied", r->path, r->line);
	return 0;
}

static int read_rows(struct reader *r, struct predictions *p, struct error *e)
{
	size_t lines = 0;
	char *line;

	for (const char *c = r->next; *c; c++)
		lines += *c == '\n';
	p->samples = calloc(lines + 1, sizeof *p->samples);
	p->logits = malloc((lines + 1) * FINDINGS * sizeof *p->logits);
	if (!p->samples || !p->logits)
		return fail(e, EXIT_INTERNAL, "%s: no memory for %zu rows", r->path, lines);
	while ((line = next_line(r))) {
		if (!*line)
			continue;
		int n = split(r, line, e);

		if (n < 0)
			return n;
		if (n != r->columns.n)
			return fail(e, EXIT_DATA, "%s: line %zu: %d column%s where the header has %d", r->path, r->line, n, n == 1 ? "" : "s", r->columns.n);
		if (read_row(r, p, p->n, e))
			return -e->code;
		p->n++;
	}
	if (p->n == 0)
		return fail(e, EXIT_DATA, "%s: no predictions behind the header", r->path);
	return check_complete(r, p, e) < 0 ? -e->code : refuse_duplicates(r, p, e);
}

int predictions_read(struct predictions *p, const char *path, struct error *e)
{
	struct reader r = { .path = path, .rows = -1 };
	char *text, *line;
	size_t size;

	*p = (struct predictions){ .about.leaked = -1 };
	if (file_read(&text, &size, path, e))
		return -e->code;
	int rc = strlen(text) < size ? fail(e, EXIT_DATA, "%s: byte %zu is NUL: not a text file", path, strlen(text)) : 0;

	r.next = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text;
	while (!rc && (line = next_line(&r)) && *line == '#')
		read_provenance(&p->about, &r.rows, line);
	if (!rc && line && strncmp(line, "{\"event\":", 9) == 0)
		rc = fail(e, EXIT_DATA, "%s: a training's log, not predictions, which it wrote to OUTPUT/test.csv", path);
	if (!rc)
		rc = line ? read_header(&r, line, e) : fail(e, EXIT_DATA, "%s: empty", path);
	if (!rc)
		rc = read_rows(&r, p, e);
	free(text);
	return rc;
}

void predictions_free(struct predictions *p)
{
	free(p->samples);
	free(p->logits);
	*p = (struct predictions){ 0 };
}

/* ---- as arrays -------------------------------------------------------------------------------------- */

int predictions_scores(const struct predictions *p, struct score_arrays *a)
{
	*a = (struct score_arrays){
		.labels = malloc((p->n + 1) * sizeof *a->labels),
		.known = malloc((p->n + 1) * sizeof *a->known),
		.patient = malloc((p->n + 1) * sizeof *a->patient),
	};
	if (!a->labels || !a->known || !a->patient) {
		score_arrays_free(a);
		return -1;
	}
	for (size_t i = 0; i < p->n; i++) {
		a->labels[i] = p->samples[i].labels;
		a->known[i] = p->samples[i].known;
		a->patient[i] = p->samples[i].patient;
	}
	a->scores = (struct scores){ .n = p->n, .classes = FINDINGS, .logits = p->logits, .labels = a->labels, .known = a->known,
				     .patient = p->has_patients ? a->patient : NULL };
	return 0;
}

void score_arrays_free(struct score_arrays *a)
{
	free(a->labels);
	free(a->known);
	free(a->patient);
	*a = (struct score_arrays){ 0 };
}

size_t predictions_of(const struct predictions *p, int finding, float *score, uint8_t *positive)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		if (p->samples[i].known >> finding & 1) {
			score[n] = p->logits[i * FINDINGS + (size_t)finding];
			positive[n++] = p->samples[i].labels >> finding & 1;
		}
	return n;
}
