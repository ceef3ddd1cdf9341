/* SPDX-License-Identifier: Apache-2.0
 * What slurmstepd knows about the one step it runs: filled by stepd.c before the tasks are forked, used by task.c in
 * each of them. */
#ifndef SPANK_STEP_H
#define SPANK_STEP_H

#include <sys/types.h>

#include <slurm/spank.h>

#include "devices.h"
#include "options.h"
#include "tasks.h"

enum { EXIT_INTERNAL = 70, LONG_VALUE = 16384 /* bytes; room for a variable that lists GPUs, masks or options */ };

/* What the tasks of a node tell each other, and slurmstepd. */
struct shared {
	bool refused;       /* a task, or all of them, ended with step.failure */
	int told;           /* tasks that have marked what they see */
	struct cpuset seen; /* GPUs of the step, as step.devices counts them, that tasks see which were bound by others than us */
};

struct step {
	const struct site *site;
	bool active;                  /* tasks are to be bound */
	bool broken;                  /* something that is needed failed: nothing is bound */
	int failure;                  /* 0, or the status that every task ends with */
	struct shared *shared;        /* NULL: no memory for it */
	struct cpuset *masks;         /* [plan.tasks] where Slurm has bound each, shared with the tasks; empty: not known; NULL: of none */
	bool ended;                   /* a task was refused, and the whole step has been told to end */
	int proc;                     /* the node's own /proc; -1: it cannot be looked at */
	ino_t users;                  /* the user namespace of slurmstepd */
	char host[256];
	struct options options;
	char visible[LONG_VALUE];     /* CUDA_VISIBLE_DEVICES as Slurm set it for the step; empty: it did not */
	bool chosen_gpus;             /* which task has which GPU is what the user said in Slurm's words */
	bool widened;                 /* the plan counts on cores of the job that are not the step's own: tasks see whether a cpuset denies them */
	bool per_task;                /* the user chose CPUs or GPUs, or where the GPUs are, or which, is seen in the task only */
	struct step_devices devices;
	char doubt[512];              /* what is told where devices stay in doubt: the tasks may see which they are */
	struct node *node;
	char device_file[NODE_MAX_GPUS][24]; /* of node->gpu[]; empty: not known */
	struct request *request;
	struct plan plan;
};

extern struct step step;

/* The variable of the job's environment, with ? for what is not printable ASCII, or NULL if it is absent or empty. One that cannot be read fails the step. */
const char *job_variable(spank_t spank, const char *name, char *buf, int size);

/* Puts step.devices into step.request. */
void step_name_devices(void);

/* One warning a node where tasks are far from their GPUs: the first of them stands for the others, and says it itself if it is
 * `speaker`, a local task; -1: whoever calls says it. For plans of the whole node. */
void step_warn_distance(spank_t spank, int speaker);

/* One line about GPUs of the step that no task of the node uses, and what uses them. */
void step_warn_idle(spank_t spank);

/* A number that Slurm knows of the step; 1 where it does not say. */
int step_number(spank_t spank, spank_item_t item);
/* CPUs that so many tasks need. */
int64_t step_cpus_of(spank_t spank, int tasks);
/* Slurm's rank of a local task. */
uint32_t global_rank(spank_t spank, int local);

/* "rank 3" of a local task. Slurm counts within a component, while SLURM_PROCID goes on through all that a step joins: "rank 3 of its component". */
enum { RANK_NAME = 40 };
const char *rank_name(spank_t spank, int local, char text[RANK_NAME]);

/* " and no --ntasks-per-socket": what the user has said that is in the way of other numbers of tasks. */
const char *step_limits(char buf[WITHOUT_LIMITS]);

enum { PER_NODE = 40 /* bytes */ };
const char *step_per_node(spank_t spank, int tasks, char buf[PER_NODE]);

/* One line to the user's terminal, or NULL where another task says it; from here on the tasks end with this status instead of running unbound. Where only
 * the site wanted a binding they run as if the plugin were not there, without a word. */
void step_fail(int status, const char *line);

#endif
