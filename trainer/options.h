/* SPDX-License-Identifier: Apache-2.0
 * One option table per subcommand. The parser, the help text, the man page and the shell completion are all made from it. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "error.h"

enum option_type {
	OPTION_HEADING, /* no option: `help` heads the group that follows */
	OPTION_FLAG,    /* int: --name sets 1, --no-name sets 0 */
	OPTION_INT,     /* int */
	OPTION_U64,     /* uint64_t */
	OPTION_REAL,    /* double */
	OPTION_STRING,  /* const char *, into argv; NULL where not given and without a default */
	OPTION_CHOICE,  /* int: index into choices */
	OPTION_INTS     /* struct option_ints: "6,12,24,16" */
};

enum { OPTION_INTS_MAX = 8 };
struct option_ints {
	int n, value[OPTION_INTS_MAX];
};

struct option {
	const char *name;           /* "batch": --batch=N or --batch N */
	const char *argument;       /* "N", as help shows it; NULL for flags */
	enum option_type type;
	size_t target;              /* offsetof() in the command's configuration */
	const char *standard;       /* default, as a user would type it; NULL: zeroed. Flags: "yes" or NULL */
	const char *help;           /* one sentence, lower case, no full stop */
	const char *const *choices; /* NULL-terminated, in the order of the enum they stand for */
	const char *const *others;  /* CHOICE: another program's word, the choice to suggest for it, …, NULL; or NULL */
	double min, max;            /* INT, U64, REAL, INTS: limits, both included; equal: none, of a U64 alone */
	const char *zero;           /* INT: a word that stands for 0, "auto"; NULL: none */
	int or_0;                   /* INT: 0 is taken although it is below min */
	size_t typed;               /* offsetof() of an int that counts how often the option was typed; 0: none */
};

/* Rows of an option table: OPTION(INT, struct conf, batch, "batch", "N", "16", "images in a micro-batch", .min = 1, .max = 4096). */
#define OPTION(kind, config, field, option_name, placeholder, default_text, sentence, ...) \
	{ .name = option_name, .argument = placeholder, .type = OPTION_##kind, .target = offsetof(config, field), \
	  .standard = default_text, .help = sentence, __VA_ARGS__ }
#define OPTION_DROPPED(option_name) { .name = option_name, .help = NULL } /* only in command.instead */
#define OPTION_GROUP(heading) { .type = OPTION_HEADING, .help = heading }
#define OPTIONS_END { .name = NULL, .help = NULL }

struct command {
	const char *name;             /* "prepare" */
	const char *operands;         /* "nih DIR OUT", as help shows it; NULL: none are taken */
	int min_operands, max_operands;
	const char *summary;          /* one line, lower case, no full stop */
	const char *description;      /* paragraphs for --help and the man page; NULL: the summary says it */
	const struct option *options; /* up to OPTIONS_END */
	const struct option *instead; /* of a command that shares another's options: rows for those of the same names, up to OPTIONS_END; or NULL */
	/* What to say about an option that another program has, written to text, or NULL; may be NULL itself. */
	const char *(*advice)(const struct command *command, const char *name, size_t length, char *text, size_t size);
	int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit code */
};

/* Sets every target in *conf (zeroed by the caller) to its default, then reads argv[1…]. Words that are no options are
 * moved to argv[1 … *n_operands]; "--" ends the options. A value that is the name of an option is given as --name=value. Returns 0; 1 when --help was asked for and printed;
 * -EXIT_USAGE with the nearest known name in *e. */
int options_parse(const struct command *command, int argc, char **argv, void *conf, int *n_operands, struct error *e);

/* The same, for a command's first lines: prints the error too. Returns -1 to go on, else the exit code to return. */
int options_read(const struct command *command, int argc, char **argv, void *conf, int *n_operands);

/* A row of command->options as this command has it; NULL: it does not. */
const struct option *option_of(const struct command *command, const struct option *row);

/* The option of that name, which need not end there; NULL: the command has none. */
const struct option *option_named(const struct command *command, const char *name, size_t length);

void options_help(const struct command *command, FILE *out);

/* Prints "chexnet COMMAND: TEXT" and returns the exit code. */
int report_error(const struct command *command, const struct error *e);

/* The candidate with the smallest edit distance to `word`, or NULL when none is near enough to be meant. */
const char *nearest_name(const char *word, size_t length, const char *const *candidates, int n);

/* troff and bash from all the tables; commands: NULL-terminated. */
void options_man_page(const struct command *const *commands, FILE *out);
void options_completion(const struct command *const *commands, FILE *out);

#endif
