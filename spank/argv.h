/* SPDX-License-Identifier: Apache-2.0
 * The command line of srun, sbatch or salloc as Slurm itself will read it: which words are options, which belong to
 * them, and where the user's program begins. Nothing at or behind that point is ever looked at or changed. */
#ifndef SPANK_ARGV_H
#define SPANK_ARGV_H

#include <getopt.h>
#include <stdbool.h>

enum { ARGV_MAX_OPTIONS = 512, ARGV_MAX_COMPONENTS = 128 };

struct argv_option {
	int component;     /* of a heterogeneous command line, from 0 */
	int slot;          /* argv index of the word that names it */
	const char *name;  /* long name of today, also for a short letter or an older name: "ntasks" for -n, "cpu-bind" for --cpu_bind */
	const char *value; /* NULL without one; points into argv */
};

struct argv_scan {
	int options, components;
	struct argv_option option[ARGV_MAX_OPTIONS];
	int command[ARGV_MAX_COMPONENTS]; /* argv index of each component's program; argc without one */
};

/* Reads argv by getopt_long with this table, leaving getopt's state and argv as they were. `steps` is true for srun,
 * whose components may be separated by ":" behind a program's arguments. Returns 0, or -1 if there are more options or
 * components than fit. */
int argv_scan(int argc, char *const argv[], const struct option *table, const char *letters, bool steps, struct argv_scan *out);

/* The last value of an option in a component; NULL if absent, "" for an option without a value. */
const char *argv_value(const struct argv_scan *scan, int component, const char *name);

enum program { PROGRAM_SRUN, PROGRAM_SBATCH, PROGRAM_SALLOC };
enum { ARGV_MAX_KNOWN = 256 };

/* The options of Slurm 22.05 to 26.05 and of this plugin, for a Slurm whose own table cannot be had. */
void argv_known(enum program program, struct option table[ARGV_MAX_KNOWN], char letters[3 * 64]);

#endif
