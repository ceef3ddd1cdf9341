/* SPDX-License-Identifier: Apache-2.0
 * Every word that --hvd, --hvd-bind and plugstack.conf understand: one table, one parser that has an answer for any text. */
#ifndef SPANK_OPTIONS_H
#define SPANK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "placement.h"

/* Which words a text may hold. */
enum scope {
	SCOPE_HVD = 1,  /* --hvd=… */
	SCOPE_BIND = 2, /* --hvd-bind=… */
	SCOPE_STEP = 4, /* what srun tells the nodes beside the two */
};

enum on_death { DEATH_ABORT, DEATH_CONTINUE };
enum ids { IDS_UUID, IDS_INDEX };
enum enable { ENABLE_OPTION, ENABLE_ALWAYS, ENABLE_NEVER };

enum { SECONDS_TEXT = 16 };

struct options {
	/* --hvd */
	int off;       /* 0 or 1: switches an inherited --hvd off */
	int on_death;  /* enum on_death */
	char deadline[SECONDS_TEXT]; /* "2.5" */
	int backend;   /* index into auto, nccl, cpu */
	char trace[1024];
	char iface[64];
	/* --hvd-bind */
	int policy;    /* enum policy */
	int order;     /* enum order */
	int no_smt;    /* 0 or 1 */
	int ids;       /* enum ids */
	int gpus_per_task;
	int share;     /* 0 or 1 */
	int nic_hint;  /* 0 or 1 */
	int verbose;   /* 0 or 1 */
	/* srun to node */
	int hvd;       /* 0 or 1: --hvd is in force */
	int by_site;   /* 0 or 1: nobody asked for a binding, enable=always did */
	int keep_cpus; /* 0 or 1: the user chose --cpu-bind */
	int keep_gpus; /* 0 or 1: the user chose --gpu-bind */
	int keep_memory; /* 0 or 1: the user chose --mem-bind */
	int whole_job; /* 0 or 1: srun made the job for this step, so the job's cores are the step's */
	int overlap;   /* 0 or 1: other steps of the job may use the same GPUs */
	int per_socket, per_core, per_gpu; /* 0 or 1: --ntasks-per-socket, -core or -gpu, with which a larger -n may not fit, is said */
	int by_gres;   /* 0 or 1: GPUs were asked for with --gres */
	int own_mps;   /* 0 or 1: the user runs MPS, Slurm does not */
	int own_gres;  /* 0 or 1: our srun put SLURM_GRES into the environment */
	int hide_gpus; /* 0 or 1: our srun put SLURM_GPU_BIND=none into the environment */

	uint64_t given; /* bit r: row r of the table was given; options_given() reads it */
};

/* What plugstack.conf says. */
struct site {
	int enable;         /* enum enable */
	int aliases;        /* 0 or 1: --gpu-bind=socket is understood */
	int verbose_max;    /* lines of the verbose table a node may print */
	int numbers;        /* enum numbers of devices.h */
	char topology[1024]; /* empty: look at the machine */
	char proc[1024];     /* empty: /proc/driver/nvidia */
	struct options defaults;
};

struct options options_default(void);

/* Adds the words of text to *o; a key given here replaces the same key from before. `name` is what errors call the
 * text ("--hvd"). Returns 0; or -1 with one line in error and *o unchanged. NULL is the empty text. */
int options_parse(struct options *o, int scopes, const char *name, const char *text, char *error, size_t size);

/* The text of a user's own variable can be one that no list of words has room or a form for, as a directory with a comma: then *o says nothing of
 * that key, in upper or lower case, any more, and true is returned. */
bool options_leave_text(struct options *o, const char *key, const char *value);

/* True if the key was given, here or before. */
bool options_given(const struct options *o, const char *key);

/* Writes the given words of these scopes so that options_parse() reads them back. Returns buf; an overlong text (which
 * the limits of the table exclude for size ≥ 4096) is empty. */
char *options_print(const struct options *o, int scopes, char *buf, size_t size);

/* Calls use("HVD_ON_DEATH", "continue", data) and so on for every given key of --hvd that a task must know. */
void options_export(const struct options *o, void (*use)(const char *name, const char *value, void *data), void *data);

/* Reads the arguments of plugstack.conf's line. Returns 0; or -1 with one line in error: the arguments that could be
 * read are in *site all the same, so that a misspelt word stops nobody's job. */
int site_parse(struct site *site, int argc, char *const argv[], char *error, size_t size);

/* Writes one "  KEY=VALUE   what it does" line per key. */
void options_describe(int scopes, void (*line)(const char *text, void *data), void *data);

/* Where text is "help", writes these lines of one scope under a heading and returns true. */
bool options_help(int scope, const char *text, FILE *out);

#endif
