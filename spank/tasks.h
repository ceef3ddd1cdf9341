/* SPDX-License-Identifier: Apache-2.0
 * How many tasks a step gets: one for each GPU, from the same words that Slurm reads. */
#ifndef SPANK_TASKS_H
#define SPANK_TASKS_H

#include <stdbool.h>
#include <stddef.h>

enum { WITHOUT_LIMITS = 80 /* bytes */ };

/* Values as the user or Slurm spelt them; NULL: not said. */
struct step_words {
	/* from the command line if it names GPUs in any way, else from the environment */
	const char *gpus, *gpus_per_node, *gpus_per_task, *gpus_per_socket, *gres, *tres_per_task;
	const char *nodes; /* command line, else the job's number of nodes, else NULL: one */
	const char *ntasks, *ntasks_per_node, *ntasks_per_gpu, *ntasks_per_socket, *ntasks_per_core;
	bool in_job;           /* whose GPUs are on its nodes as they are */
	bool hidden_gpus;      /* the job has GPUs but nothing says how many each step gets */
	int group;             /* GPUs of each task, ≥ 1 */
	bool share;            /* more tasks than GPUs are welcome */
	int packages_per_node; /* for steps without GPUs; 0: not known */
};

struct step_size {
	int gpus;  /* of the whole step; -1 not known */
	int nodes; /* 0 not known */
	int tasks; /* to ask for; 0: leave it to Slurm, a count was given or none is needed */
	int per_node; /* tasks of every node; 0: leave it to Slurm, the nodes may differ or the user said it */
	char refusal[512];
};

/* Number of GPUs in "4", "a100:4", "a100", "a100:2,v100:2"; -1 if it is none of these. */
int count_gpus(const char *text);

/* The same in "gpu:2", "gpu", "gpu:a100:2(S:0-1),craynetwork:1", "gres/gpu:2"; 0 where no GPU is named. */
int count_gres_gpus(const char *text);

/* Writes "cpu=8,gres/gpu=2" without what it says of GPUs. Returns buf, or NULL if that has no room. */
char *without_gpus(const char *tres, char *buf, size_t size);

/* "2", "2-2": a fixed number of nodes; 0 for anything else. */
int count_nodes(const char *text);

/* GPUs of each task where they were asked for by task; 0 where they were not, or the text is not understood. */
int gpus_of_each_task(const struct step_words *words);

/* Returns 0; or -1 with the refusal, both numbers in it and the -n to type. */
int step_size(const struct step_words *words, struct step_size *out);

/* " and no --ntasks-per-socket": what is in the way of the number of tasks, or of tasks of each node, that stands before it. */
const char *without_limits(bool per_socket, bool per_core, bool per_gpu, char buf[WITHOUT_LIMITS]);

/* The sum of the `nodes` largest numbers in "1(x2),4"; -1 if the text is none such. */
int sum_of_largest(const char *text, int nodes);

/* The smallest number in "1(x2),4" and at which position it stands; -1 if the text is none such. */
int smallest_count(const char *text, int *position);

#endif
