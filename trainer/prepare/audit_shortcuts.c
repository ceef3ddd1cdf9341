/* SPDX-License-Identifier: Apache-2.0
 * What a model may read instead of a finding, in the words of the audit. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prepare/audit.h"

/* "00000001_000.png": NIH's table may tell more of these. */
static int nih_names(const struct origin *o)
{
	static const char digits[] = "0123456789";
	const char *id = o->count ? o->samples[0].id : "";

	return strspn(id, digits) == 8 && id[8] == '_' && strspn(id + 9, digits) == 3 && strcmp(id + 12, ".png") == 0;
}

static const char *const column_words[SHORTCUTS] = { "the view (AP or PA)", "age", "sex", "follow-up number" };

static void name_shortcut(struct audit *a, enum shortcut column, int f)
{
	const struct told_by *t = &a->shortcuts.of[column][f];
	const char *name = finding_names[f];

	if (column == SHORTCUT_VIEW || column == SHORTCUT_SEX)
		audit_say(a, AUDIT_SHORTCUTS, 0, t->images, "%s: %.0f %% of the images with it are %s, of the others %.0f %%: a model may tell it by the %s", name, 100 * t->with,
		    column == SHORTCUT_VIEW ? "AP views" : "of men", 100 * t->without, shortcut_names[column]);
	else if (column == SHORTCUT_AGE)
		audit_say(a, AUDIT_SHORTCUTS, 0, t->images, "%s: the median age is %.0f years in the images with it and %.0f in the others: a model may tell it by the age (AUROC of age alone: %.2f)",
		    name, t->with, t->without, t->auroc);
	else
		audit_say(a, AUDIT_SHORTCUTS, 0, t->images, "%s: the median follow-up number is %.0f in the images with it and %.0f in the others: a model may tell it by what treatment has "
		    "left in later images (AUROC of the number alone: %.2f)", name, t->with, t->without, t->auroc);
}

/* The finding that a column tells best, or -1: it was compared with none. */
static int best_told(const struct told_by of[FINDINGS])
{
	int best = -1;

	for (int f = 0; f < FINDINGS; f++)
		if (!isnan(of[f].auroc) && (best < 0 || fabs(of[f].auroc - 0.5) > fabs(of[best].auroc - 0.5)))
			best = f;
	return best;
}

__attribute__((format(printf, 3, 4))) static void add_text(char *text, size_t size, const char *format, ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + used, size - used, format, args);
	va_end(args);
}

/* table: whether one was given besides the origin's own. */
static void say_shortcuts(struct audit *a, const struct origin *o, int table)
{
	char looked[300] = "", few[120] = "", none[120] = "";

	for (int column = 0; column < SHORTCUTS; column++) {
		const struct told_by *of = a->shortcuts.of[column];
		int best = best_told(of);
		for (int f = 0; f < FINDINGS; f++)
			if (of[f].notable)
				name_shortcut(a, (enum shortcut)column, f);
		if (best >= 0)
			add_text(looked, sizeof looked, "%s %.2f (%s, %s)", *looked ? "," : "", fmax(of[best].auroc, 1 - of[best].auroc), column_words[column], finding_names[best]);
		else
			add_text(a->shortcuts.told[column] ? few : none, sizeof few, "%s, ", column_words[column]);
	}
	if (*looked)
		audit_say(a, AUDIT_SHORTCUTS, 0, 0, "a column of the table alone tells a finding with an AUROC of at most%s", looked);
	audit_say(a, AUDIT_SHORTCUTS, 0, 0, "not looked at: %s%s%s%stubes, drains and markers in the images and the machine they come from, which a model may read instead of a finding too", none,
	    *none && !table && nih_names(o) ? "which NIH's table tells (--table), " : "", few, *few ? "since no finding has 30 images with it and 30 without that tell theirs, " : "");
}

/* What a table tells, and what it does not as own does: somebody's own labels come without the other columns. */
static struct nih_facts add_facts(const struct nih_facts *table, const struct nih_facts *own)
{
	return (struct nih_facts){ .view = table->view ? table->view : own->view, .sex = table->sex ? table->sex : own->sex,
				   .age = table->age >= 0 ? table->age : own->age, .follow_up = table->follow_up >= 0 ? table->follow_up : own->follow_up };
}

int audit_shortcuts(struct audit *a, const struct origin *o, const struct nih *n, struct error *e)
{
	static const struct nih_facts untold = { .age = -1, .follow_up = -1 };
	struct nih_facts *facts = malloc((o->count + 1) * sizeof *facts);
	int rc = facts ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);

	for (size_t i = 0; !rc && i < o->count; i++) {
		const struct nih_image *row = n ? nih_find(n, o->samples[i].id) : NULL;
		const struct nih_facts *own = o->facts ? &o->facts[i] : &untold;
		facts[i] = row ? add_facts(&row->facts, own) : *own;
	}
	if (!rc)
		rc = shortcuts_measure(&a->shortcuts, o->samples, facts, o->count, e);
	if (!rc)
		say_shortcuts(a, o, n != NULL);
	free(facts);
	return rc;
}
