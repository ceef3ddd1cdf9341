/* SPDX-License-Identifier: Apache-2.0 */
#include "data/findings.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

const char *const finding_names[FINDINGS] = {
	"Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia",
	"Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia",
};

static const struct {
	const char *name;
	int finding;
} aliases[] = {
	{ "Infiltrate", 3 },          /* NIH's BBox_List_2017.csv */
	{ "Pleural Thickening", 12 },
	{ "PT", 12 },
};

static int same(const char *a, const char *b, int length)
{
	return strlen(a) == (size_t)length && memcmp(a, b, (size_t)length) == 0;
}

int finding_index(const char *name, int length)
{
	for (int f = 0; f < FINDINGS; f++)
		if (same(finding_names[f], name, length))
			return f;
	for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
		if (same(aliases[i].name, name, length))
			return aliases[i].finding;
	return -1;
}

const char *finding_hint(const char *name, int length, char text[FINDING_HINT])
{
	const char *near = nearest_name(name, (size_t)length, finding_names, FINDINGS);
	int used = near ? snprintf(text, FINDING_HINT, "did you mean %s?", near) : snprintf(text, FINDING_HINT, "known:");

	for (int f = 0; f < FINDINGS && !near; f++)
		used += snprintf(text + used, FINDING_HINT - (size_t)used, "%s %s", f ? "," : "", finding_names[f]);
	return text;
}

int findings_read(const char *text, char between, const char *nothing, uint32_t *set, struct error *why)
{
	const char between_text[] = { between, '\0' };
	int none = 0;

	*set = 0;
	for (const char *p = text;; p++) {
		int length = (int)strcspn(p, between_text), f = finding_index(p, length);
		if (nothing && same(nothing, p, length)) {
			none = 1;
		} else if (f < 0) {
			char hint[FINDING_HINT];
			return fail(why, EXIT_DATA, "unknown finding \"%.*s\" (%s)", length < 60 ? length : 60, p, finding_hint(p, length, hint));
		} else if (*set & 1u << f) {
			return fail(why, EXIT_DATA, "%s comes twice", finding_names[f]);
		} else {
			*set |= 1u << f;
		}
		p += length;
		if (!*p)
			break;
	}
	return none && *set ? fail(why, EXIT_DATA, "\"%s\" together with a finding", nothing) : 0;
}

const char *findings_write(char *text, size_t size, uint32_t set, const char *between)
{
	size_t used = 0;

	*text = '\0';
	for (int f = 0; f < FINDINGS && used < size; f++)
		if (set >> f & 1)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? between : "", finding_names[f]);
	return text;
}
