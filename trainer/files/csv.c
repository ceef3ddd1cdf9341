/* SPDX-License-Identifier: Apache-2.0 */
#include "files/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/file.h"

int csv_open(struct csv *c, const char *path, struct error *e)
{
	memset(c, 0, sizeof *c);
	c->next_line = 1;
	if (path_join(c->path, e, "%s", path) || file_read(&c->text, &c->size, path, e))
		return -e->code;
	if (c->size >= 2 && (memcmp(c->text, "\xff\xfe", 2) == 0 || memcmp(c->text, "\xfe\xff", 2) == 0)) {
		csv_close(c);
		return fail(e, EXIT_DATA, "%s: text in UTF-16, as a spreadsheet's \"Unicode text\" is: save it as CSV in UTF-8", path);
	}
	if (memchr(c->text, '\0', c->size)) {
		csv_close(c);
		return fail(e, EXIT_DATA, "%s: holds binary data, not text", path);
	}
	if (c->size >= 3 && memcmp(c->text, "\xef\xbb\xbf", 3) == 0)
		c->at = 3;
	return 0;
}

void csv_close(struct csv *c)
{
	free(c->text);
	c->text = NULL;
}

static void skip_empty_lines(struct csv *c)
{
	while (c->at < c->size && (c->text[c->at] == '\n' || c->text[c->at] == '\r'))
		c->next_line += c->text[c->at++] == '\n';
}

/* Unquotes in place. Returns the byte behind the closing quote, NULL when there is none. */
static char *quoted_field(struct csv *c, char *p, char **field)
{
	char *out = p + 1;

	*field = out;
	for (p++; *p; p++) {
		if (*p == '"' && p[1] == '"')
			p++;
		else if (*p == '"')
			break;
		c->next_line += *p == '\n';
		*out++ = *p;
	}
	if (!*p)
		return NULL;
	*out = '\0';
	return p + 1;
}

int csv_next(struct csv *c, struct error *e)
{
	skip_empty_lines(c);
	c->n = 0;
	c->line = c->next_line;
	if (c->at >= c->size)
		return 0;
	for (char *p = c->text + c->at;;) {
		if (c->n == CSV_FIELDS)
			return fail(e, EXIT_DATA, "%s:%zu: more than %d fields", c->path, c->line, CSV_FIELDS);
		char **field = &c->field[c->n++];
		if (*p == '"') {
			p = quoted_field(c, p, field);
			if (!p)
				return fail(e, EXIT_DATA, "%s:%zu: a quote that is never closed", c->path, c->line);
		} else {
			*field = p;
			p += strcspn(p, ",\r\n");
		}
		char end = *p;
		if (end != '\0' && end != ',' && end != '\n' && end != '\r') /* of \r\n the second half is an empty line */
			return fail(e, EXIT_DATA, "%s:%zu: text behind a closing quote", c->path, c->line);
		int more = end == ',';
		c->next_line += *p == '\n';
		*p = '\0';
		c->at = (size_t)(p - c->text) + 1;
		if (!more)
			return 1;
		p++;
	}
}

int csv_quote(char *field, const char *text)
{
	int n = 0, quoted = strpbrk(text, ",\"#") != NULL; /* whoever passes over our comments takes what is behind a bare # for one */

	if (quoted)
		field[n++] = '"';
	for (; *text; text++) {
		field[n++] = *text;
		if (*text == '"')
			field[n++] = '"';
	}
	if (quoted)
		field[n++] = '"';
	field[n] = '\0';
	return n;
}

int csv_names_columns(const struct csv *c)
{
	return c->line == 1 && (strcasecmp(c->field[0], "image") == 0 || strcmp(c->field[0], "Image Index") == 0);
}
