/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of chexnet. Each file defines one table entry and the function behind it:
 *
 *	static const struct option options[] = {
 *		OPTION(INT, struct conf, image_size, "image-size", "PIXELS", "256", "side of the stored squares", .min = 32, .max = 1024),
 *		OPTIONS_END
 *	};
 *	static int run(int argc, char **argv)
 *	{
 *		struct conf conf = { 0 };
 *		int n, rc = options_read(&command_prepare, argc, argv, &conf, &n);  operands are then argv[1 … n]
 *		if (rc >= 0)
 *			return rc;
 *		…
 *	}
 *	const struct command command_prepare = { .name = "prepare", …, .options = options, .run = run };
 */
#ifndef COMMANDS_COMMANDS_H
#define COMMANDS_COMMANDS_H

#include "options.h"

extern const struct command command_train;   /* the default */
extern const struct command command_eval;
extern const struct command command_predict;
extern const struct command command_prepare;
extern const struct command command_synth;
extern const struct command command_audit;
extern const struct command command_data;
extern const struct command command_bench;
extern const struct command command_compare;
extern const struct command command_lr_test;
extern const struct command command_ensemble;
extern const struct command command_report;
extern const struct command command_doctor;

/* chexnet bench data …: what chexnet data bench does with --old --new --ours, which may be given to choose among them. */
int bench_data(int argc, char **argv);

/* NULL-terminated, in the order of help; chexnet.c */
extern const struct command *const commands[];

#endif
