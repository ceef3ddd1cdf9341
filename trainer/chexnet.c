/* SPDX-License-Identifier: Apache-2.0
 * chexnet: the table of subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/commands.h"
#include "files/partials.h"
#include "json.h"

const struct command *const commands[] = {
	&command_train, &command_eval, &command_predict, &command_prepare, &command_data, &command_audit, &command_synth, &command_bench,
	&command_compare, &command_lr_test, &command_ensemble, &command_report, &command_doctor, NULL,
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] - 1 };

static void usage(FILE *out)
{
	fputs("usage: chexnet [COMMAND] [--OPTION…] [OPERAND…]\n\n"
	      "Train and use CheXNet, a DenseNet-121 for 14 findings on chest X-rays.\n"
	      "In a Slurm job: srun --gpu-bind=socket --hvd chexnet [--OPTION…]\n\ncommands (train is the default):\n", out);
	for (int i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	fputs("\nchexnet COMMAND --help lists a command's options; --version, --man-page and --completion print what they say.\n", out);
}

static int unknown_command(const char *word)
{
	const char *names[N_COMMANDS];

	for (int i = 0; i < N_COMMANDS; i++)
		names[i] = commands[i]->name;
	const char *near = nearest_name(word, strlen(word), names, N_COMMANDS);
	if (near)
		fprintf(stderr, "chexnet: unknown command %s; did you mean %s?\n", word, near);
	else
		fprintf(stderr, "chexnet: unknown command %s; chexnet --help lists them\n", word);
	return EXIT_USAGE;
}

static const struct command *find(const char *name)
{
	for (int i = 0; i < N_COMMANDS; i++)
		if (strcmp(name, commands[i]->name) == 0)
			return commands[i];
	return NULL;
}

static int help_of(const char *name)
{
	const struct command *c = find(name);

	if (!c)
		return unknown_command(name);
	options_help(c, stdout);
	return EXIT_DONE;
}

/* A caller may have closed standard input, output or error: the next file opened would take its number, and get what is printed. Nothing can be
 * written to what takes it here, so that end() tells of a result that went nowhere. */
static void fill_standard_files(void)
{
	int fd = open("/dev/null", O_RDONLY);

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = dup(fd);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* What was printed is the result of most commands: on a full disk it is not there, and that is no success. */
static int end(int rc)
{
	int bad = ferror(stdout);

	errno = 0;
	if ((fclose(stdout) == 0 && !bad) || (rc != EXIT_DONE && rc != EXIT_DATA)) /* 65 may be of one image, and of the others all is thought to be there */
		return rc;
	const int why = errno ? errno : json_unprinted();

	fprintf(stderr, "chexnet: what was printed is not complete: %s\n", why ? strerror(why) : "standard output cannot be written");
	return EXIT_INTERNAL;
}

/* libgomp ends a program for which it can start no thread, which the check of each command cannot foresee: those that it counted may be in use later. The
 * code of a library is none of ours. */
static void on_end(int status, void *unused)
{
	(void)unused;
	if (status != EXIT_FAILURE)
		return;
	fflush(stdout);
	fputs("chexnet: a library has ended this: if it is OpenMP, for want of threads, see the limits on processes and memory (ulimit -u, -v)\n", stderr);
	partials_remove();
	_exit(EXIT_INTERNAL);
}

static int run_command(int argc, char **argv)
{
	const char *first = argc > 1 ? argv[1] : "";

	if (strcmp(first, "help") == 0 && argc > 2 && strcmp(argv[2], "help") != 0 && argv[2][0] != '-')
		return help_of(argv[2]);
	if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (strcmp(first, "--version") == 0) {
		puts("chexnet " HVD_VERSION);
		return EXIT_DONE;
	}
	if (strcmp(first, "--man-page") == 0) {
		options_man_page(commands, stdout);
		return EXIT_DONE;
	}
	if (strcmp(first, "--completion") == 0) {
		options_completion(commands, stdout);
		return EXIT_DONE;
	}
	if (first[0] == '\0' || first[0] == '-')
		return command_train.run(argc, argv);
	const struct command *c = find(first);

	return c ? c->run(argc - 1, argv + 1) : unknown_command(first);
}

int main(int argc, char **argv)
{
	fill_standard_files();
	signal(SIGXFSZ, SIG_IGN); /* a file-size limit is then an error like any other: a line says so, and what was half written goes */
	partials_go_with_signals();
	on_exit(on_end, NULL);
	return end(run_command(argc, argv));
}
