/* SPDX-License-Identifier: Apache-2.0
 * The plugin's rooms and the doors between them. client.c, client_end.c, client_inherit.c and client_tasks.c run in srun, sbatch and salloc
 * as the user; stepd.c runs in slurmstepd on the nodes, in parts as root; task.c in each task as the user. */
#ifndef SPANK_PLUGIN_H
#define SPANK_PLUGIN_H

#include <slurm/spank.h>

#include "argv.h"
#include "options.h"

/* What srun decided, as text of the option grammar. SLURM_ variables reach the node even with --export=NONE. */
#define STEP_VARIABLE "SLURM_HVD_STEP"

/* Which keys of --hvd a task has from its step: "HVD_ON_DEATH=continue,HVD_DEADLINE=7". */
#define KEYS_VARIABLE "HVD_KEYS"

enum { EXIT_USAGE = 64 };

/* ---- client.c ---- */

/* Reads the command line before Slurm does and prepares the step. Returns 0; wrong usage ends the client. */
int client_init(const struct site *site);
/* Slurm has read a --hvd-bind of the command line or of a script's lines. */
void client_note_binding(void);
/* In sbatch and salloc, once Slurm has read everything, also a script's lines: leaves our word of them for the job's sruns, in the place of
 * an inherited --hvd-bind but not of one that was said here. */
int client_leave_for_job(void);
/* Ends a client whose command line client_init() could not read, where our words are on it. */
void client_refuse_too_long(void);
/* An option's text as Slurm hands it over: NULL and "(null)" are the empty text. */
const char *client_text(const char *text);

/* ---- client_end.c ---- */

/* Prints the line and ends the client with status 64, before anything has been asked of Slurm. */
void client_refuse(const char *line) __attribute__((noreturn));
/* setenv(), or the end of the client. */
void client_set(const char *name, const char *value, bool replace);

/* ---- client_inherit.c ---- */

/* Where this client is called from a task: drops that one's placement, and its step's keys unless the task has changed them, so that the step
 * (`steps`) or job that is started here has its own. True where CUDA_VISIBLE_DEVICES is Slurm's, of the node that this runs on. */
bool client_drop_inherited(bool steps);
/* Slurm starts salloc's own shell (use_interactive_step) without MPI. The word for that stays there, and in the jobs that are
 * submitted from it: nobody chose it. In other steps Slurm leaves no "none" behind. */
void client_drop_mpi_of_shell(void);
/* Whether this client runs in a task, and not in a batch script or in salloc's own shell. */
bool client_is_in_step(void);

/* ---- client_tasks.c ---- */

/* Calls `use` for each component, once for each of the groups of a heterogeneous job that it runs in, else with group -1. */
void client_each_component(const struct argv_scan *command_line, void (*use)(int component, int group));
/* Whether the component is known to have GPUs. Within client_each_component(). */
bool client_has_gpus(int component, int group);
/* The same where GPUs of its job that nothing here counts may be its own. */
bool client_may_have_gpus(int component, int group);
/* The same where they were asked for with --gres. */
bool client_has_gpus_by_gres(int component, int group);
/* What the user said of GPUs in Slurm's words and the nodes cannot see: GPUs of each task (--gpus-per-task; 0 not said; one
 * number holds for all components, unless it is `fixed` in our words), and whether tasks share them (--ntasks-per-gpu). */
void client_read_groups(const struct argv_scan *command_line, bool fixed, int *gpus_per_task, bool *share);
/* Sets the number of tasks of every component whose user did not, through the variables that srun reads next, and drops those
 * of the job that would change the GPUs of a component which names its own. What does not fit, or cannot be known, is refused. True:
 * SLURM_GRES is among those variables. */
bool client_count_tasks(const struct argv_scan *command_line, const struct options *asked);

/* ---- stepd.c and task.c ---- */

/* Before the tasks are forked; effective user the job's, real user root. Captures and plans. Always returns 0: what
 * goes wrong is remembered and told by the tasks. */
int stepd_user_init(spank_t spank, const struct site *site);
/* In slurmstepd, once for each task that was forked. After the last one nothing of one task's is left for TaskEpilog, which runs for all. */
void stepd_task_forked(spank_t spank);
/* In each task, as the user, after Slurm's own binding. Applies the plan; ends the task where that cannot be. */
int stepd_task_init(spank_t spank);
/* After each task of the node. Where one refused to run, ends the step: the others would wait for it. */
void stepd_task_exit(spank_t spank);
/* After this node's tasks. Where all of them refused to run, ends those of the other nodes. */
void stepd_exit(spank_t spank);

#endif
