/* SPDX-License-Identifier: Apache-2.0
 * The variables that a task finds in its environment.
 *
 * spank_setenv() clears a buffer of 256 KiB at each call (10 µs in Slurm 22.05), more than all else that is done for a
 * task. So the variables are set once, in slurmstepd before the fork, each with its longest text of all tasks; a task
 * writes its own text over that, and calls spank_setenv() only where there is no room. */
#ifndef SPANK_VARIABLES_H
#define SPANK_VARIABLES_H

#include <slurm/spank.h>

#include "placement.h"

/* In slurmstepd, after the plan: step.plan's variables and --hvd's keys into the job's environment. One that cannot be set
 * fails the step. */
void variables_prepare(spank_t spank);

/* In a task: its own texts. local: its rank on the node if its plan is the one that was prepared, else -1. cpus: those it
 * may run on. Returns 0; or -1 where a variable cannot be set. */
int variables_give(spank_t spank, int local, const struct task_plan *task, const struct cpuset *cpus);

/* In a task that is not bound after all: none of them is left. */
void variables_take_back(spank_t spank);

void variables_free(void);

#endif
