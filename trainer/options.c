/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 128 };

/* ---- nearest name ---------------------------------------------------------------------------------- */

static int edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
	enum { LONGEST = 63 };
	int row[LONGEST + 1];

	if (nb > LONGEST || na > 2 * LONGEST) /* so much longer a word, as a whole file may be, is near to none */
		return INT_MAX;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (int)j;
	for (size_t i = 1; i <= na; i++) {
		int diagonal = row[0];

		row[0] = (int)i;
		for (size_t j = 1; j <= nb; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[nb];
}

const char *nearest_name(const char *word, size_t length, const char *const *candidates, int n)
{
	const char *nearest = NULL;
	int smallest = INT_MAX;

	for (int i = 0; i < n; i++) {
		size_t size = strlen(candidates[i]);
		int distance = edit_distance(word, length, candidates[i], size);

		/* a word that is only begun counts as one edit away */
		if (length >= 2 && length < size && strncmp(word, candidates[i], length) == 0)
			distance = 1;
		/* and one that says more ("evaluate", "batch-size") as two */
		else if (size >= 3 && size < length && distance > 2 && strncmp(word, candidates[i], size) == 0)
			distance = 2;
		if (distance < smallest) {
			smallest = distance;
			nearest = candidates[i];
		}
	}
	return smallest <= 2 || smallest <= (int)length / 3 ? nearest : NULL;
}

/* ---- values ---------------------------------------------------------------------------------------- */

static int in_range(const struct option *o, double value)
{
	return o->min == o->max || (value >= o->min && value <= o->max) || (o->or_0 && value == 0);
}

static int out_of_range(const struct option *o, const char *text, struct error *e)
{
	return fail(e, EXIT_USAGE, "--%s=%s: must be %sbetween %.15g and %.15g%s%s", o->name, text, o->or_0 ? "0, or " : "", o->min, o->max,
		    o->zero ? ", or " : "", o->zero ? o->zero : "");
}

static int set_choice(const struct option *o, const char *text, int *target, struct error *e)
{
	char known[512] = "";
	int n = 0;

	for (; o->choices[n]; n++) {
		if (strcmp(o->choices[n], text) == 0) {
			*target = n;
			return 0;
		}
		size_t used = strlen(known);
		snprintf(known + used, sizeof known - used, "%s%s", n ? ", " : "", o->choices[n]);
	}
	const char *near = NULL;

	for (const char *const *other = o->others; other && *other && !near; other += 2)
		near = strcmp(other[0], text) == 0 ? other[1] : NULL;
	if (!near)
		near = nearest_name(text, strlen(text), o->choices, n);
	if (near)
		return fail(e, EXIT_USAGE, "--%s=%s: did you mean %s? (known: %s)", o->name, text, near, known);
	return fail(e, EXIT_USAGE, "--%s=%s: must be one of %s", o->name, text, known);
}

static int set_ints(const struct option *o, const char *text, struct option_ints *target, struct error *e)
{
	const char *p = text;
	struct option_ints list = { 0 };

	for (;;) {
		char *end;
		long v = strtol(p, &end, 10);

		if (end == p || (*end && *end != ',') || list.n == OPTION_INTS_MAX)
			return fail(e, EXIT_USAGE, "--%s=%s: must be 1 to %d whole numbers with commas between them", o->name, text, OPTION_INTS_MAX);
		if (!in_range(o, (double)v))
			return out_of_range(o, text, e);
		list.value[list.n++] = (int)v;
		if (!*end)
			break;
		p = end + 1;
	}
	*target = list;
	return 0;
}

static int set_value(const struct option *o, const char *text, void *conf, struct error *e)
{
	void *target = (char *)conf + o->target;
	char *end;

	switch (o->type) {
	case OPTION_HEADING:
		return 0;
	case OPTION_FLAG:
		*(int *)target = strcmp(text, "yes") == 0;
		return 0;
	case OPTION_INT: {
		if (o->zero && strcmp(text, o->zero) == 0) {
			*(int *)target = 0;
			return 0;
		}
		long v = strtol(text, &end, 10); /* the last one there is where the number is larger */

		if (end == text || *end)
			return fail(e, EXIT_USAGE, "--%s=%s: must be a whole number%s%s", o->name, text, o->zero ? ", or " : "", o->zero ? o->zero : "");
		if (!in_range(o, (double)v))
			return out_of_range(o, text, e);
		*(int *)target = (int)v;
		return 0;
	}
	case OPTION_U64: {
		errno = 0;
		unsigned long long v = strtoull(text, &end, 10);

		if (end == text || *end || strchr(text, '-'))
			return fail(e, EXIT_USAGE, "--%s=%s: must be a whole number that is not negative", o->name, text);
		if (errno)
			return fail(e, EXIT_USAGE, "--%s=%s: must be at most %llu", o->name, text, ULLONG_MAX);
		if (!in_range(o, (double)v))
			return out_of_range(o, text, e);
		*(uint64_t *)target = v;
		return 0;
	}
	case OPTION_REAL: {
		double v = strtod(text, &end);

		if (end == text || *end || isnan(v))
			return fail(e, EXIT_USAGE, "--%s=%s: must be a number", o->name, text);
		if (!in_range(o, v))
			return out_of_range(o, text, e);
		*(double *)target = v;
		return 0;
	}
	case OPTION_STRING:
		if (!*text)
			return fail(e, EXIT_USAGE, "--%s: must not be empty", o->name);
		*(const char **)target = text;
		return 0;
	case OPTION_CHOICE:
		return set_choice(o, text, target, e);
	case OPTION_INTS:
		return set_ints(o, text, target, e);
	}
	return 0;
}

/* ---- parser ---------------------------------------------------------------------------------------- */

static const struct option *find(const struct option *options, const char *name, size_t length)
{
	for (const struct option *o = options; o->name || o->help; o++)
		if (o->type != OPTION_HEADING && strlen(o->name) == length && strncmp(o->name, name, length) == 0)
			return o;
	return NULL;
}

const struct option *option_of(const struct command *command, const struct option *row)
{
	for (const struct option *i = command->instead; i && i->name && row && row->name; i++)
		if (strcmp(i->name, row->name) == 0)
			return i->help ? i : NULL;
	return row;
}

const struct option *option_named(const struct command *command, const char *name, size_t length)
{
	return option_of(command, find(command->options, name, length));
}

static int unknown_option(const struct command *command, const char *name, size_t length, struct error *e)
{
	const char *candidates[MAX_CANDIDATES];
	int n = 0;

	for (const struct option *o = command->options; (o->name || o->help) && n < MAX_CANDIDATES; o++)
		if (o->type != OPTION_HEADING && option_of(command, o))
			candidates[n++] = o->name;

	char text[256];
	const char *advice = command->advice ? command->advice(command, name, length, text, sizeof text) : NULL;

	if (advice)
		return fail(e, EXIT_USAGE, "unknown option --%.*s: %s", (int)length, name, advice);
	const char *near = nearest_name(name, length, candidates, n);
	if (near)
		return fail(e, EXIT_USAGE, "unknown option --%.*s; did you mean --%s?", (int)length, name, near);
	return fail(e, EXIT_USAGE, "unknown option --%.*s; chexnet %s --help lists them", (int)length, name, command->name);
}

static int set_typed(const struct option *o, const char *text, void *conf, struct error *e)
{
	if (o->typed)
		(*(int *)((char *)conf + o->typed))++;
	return set_value(o, text, conf, e);
}

/* Whether a word is an option of this command, with or without a value. */
static int is_option(const struct command *command, const char *word)
{
	if (strncmp(word, "--", 2) != 0)
		return 0;
	const char *name = word + 2;
	size_t length = strcspn(name, "=");

	if (option_named(command, name, length) || strcmp(name, "help") == 0)
		return 1;
	const struct option *o = length > 3 && strncmp(name, "no-", 3) == 0 ? option_named(command, name + 3, length - 3) : NULL;

	return o && o->type == OPTION_FLAG;
}

/* Reads the option at argv[i]; returns how many words it took, or negative. */
static int read_option(const struct command *command, int argc, char **argv, int i, void *conf, struct error *e)
{
	const char *name = argv[i] + 2;
	size_t length = strcspn(name, "=");
	const char *value = name[length] ? name + length + 1 : NULL;
	const struct option *o = option_named(command, name, length);

	if (!o && length > 3 && strncmp(name, "no-", 3) == 0) {
		o = option_named(command, name + 3, length - 3);
		if (o && o->type == OPTION_FLAG && value)
			return fail(e, EXIT_USAGE, "--no-%s takes no value; --%s switches it on", o->name, o->name);
		if (o && o->type == OPTION_FLAG) {
			set_typed(o, "no", conf, e);
			return 1;
		}
		o = NULL;
	}
	if (!o)
		return unknown_option(command, name, length, e);
	if (o->type == OPTION_FLAG) {
		if (value)
			return fail(e, EXIT_USAGE, "--%s takes no value; --no-%s switches it off", o->name, o->name);
		set_typed(o, "yes", conf, e);
		return 1;
	}
	if (value)
		return set_typed(o, value, conf, e) < 0 ? -EXIT_USAGE : 1;
	if (i + 1 >= argc)
		return fail(e, EXIT_USAGE, "--%s needs a value: --%s=%s", o->name, o->name, o->argument);
	if (is_option(command, argv[i + 1])) /* as where a variable is not set: the option would be lost too */
		return fail(e, EXIT_USAGE, "--%s needs a value, and %s is an option; --%s=%s if that is meant", o->name, argv[i + 1], o->name, argv[i + 1]);
	return set_typed(o, argv[i + 1], conf, e) < 0 ? -EXIT_USAGE : 2;
}

static int check_operands(const struct command *command, int n, char **argv, struct error *e)
{
	const char *space = command->operands ? " " : "", *operands = command->operands ? command->operands : "";

	for (int i = 1; i <= n; i++)
		if (!*argv[i])
			return fail(e, EXIT_USAGE, "an empty word, as from a variable that is not set; usage: chexnet %s [--OPTION…]%s%s", command->name, space, operands);
	if (n > command->max_operands)
		return fail(e, EXIT_USAGE, "%s: not expected here; usage: chexnet %s [--OPTION…]%s%s", argv[command->max_operands + 1], command->name, space, operands);
	if (n < command->min_operands) {
		const char *missing = operands;

		for (int i = 0; i < n; i++)
			missing += strcspn(missing, " ") + 1;
		return fail(e, EXIT_USAGE, "%.*s is missing; usage: chexnet %s [--OPTION…] %s", (int)strcspn(missing, " "), missing, command->name, operands);
	}
	return 0;
}

int options_parse(const struct command *command, int argc, char **argv, void *conf, int *n_operands, struct error *e)
{
	int n = 0, only_operands = 0;

	for (const struct option *row = command->options; row->name || row->help; row++) {
		const struct option *o = option_of(command, row);

		if (o && o->standard && set_value(o, o->standard, conf, e) < 0)
			return -EXIT_USAGE;
	}

	for (int i = 1; i < argc;) {
		if (!only_operands && strcmp(argv[i], "--") == 0) {
			only_operands = 1;
			i++;
		} else if (!only_operands && !e->code && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
			options_help(command, stdout);
			return 1;
		} else if (!only_operands && strncmp(argv[i], "--", 2) == 0) {
			struct error later = { 0 };
			int taken = read_option(command, argc, argv, i, conf, e->code ? &later : e);

			i += taken < 0 ? 1 : taken; /* what stands behind a wrong one says how the ranks that have none meet: world_refuse() */
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
			fail(e, EXIT_USAGE, "unknown option %s; options have long names: chexnet %s --help", argv[i++], command->name);
		} else {
			argv[1 + n++] = argv[i++];
		}
	}
	if (e->code)
		return -e->code;
	if (n_operands)
		*n_operands = n;
	return check_operands(command, n, argv, e);
}

int report_error(const struct command *command, const struct error *e)
{
	fprintf(stderr, "chexnet %s: %s\n", command->name, e->text);
	return e->code;
}

int options_read(const struct command *command, int argc, char **argv, void *conf, int *n_operands)
{
	struct error e = { 0 };
	int rc = options_parse(command, argc, argv, conf, n_operands, &e);

	if (rc < 0)
		return report_error(command, &e);
	return rc == 1 ? EXIT_DONE : -1;
}
