/* SPDX-License-Identifier: Apache-2.0
 * Threads that share the tasks of one loop after another. OpenMP's threads wait by spinning for milliseconds, and a loop ends
 * only when each of them has been there: where ranks or jobs share cores, a step took three times its CPU time. Here a task
 * belongs to whoever takes it, a loop ends with its last task, and a thread that waits sleeps after a few microseconds. */
#ifndef CPU_TEAM_H
#define CPU_TEAM_H

struct error;
struct cpu_team;

/* worker: 0..threads - 1; no two tasks have the same worker at the same time. */
typedef void (*cpu_task)(void *context, int task, int worker);

/* A team of the caller and threads - 1 more. */
int cpu_team_open(struct cpu_team **team, int threads, struct error *e);
/* Runs tasks 0..count - 1 and returns when all are done. One caller at a time. */
void cpu_team_run(struct cpu_team *team, int count, cpu_task task, void *context);
void cpu_team_close(struct cpu_team *team);

#endif
