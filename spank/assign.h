/* SPDX-License-Identifier: Apache-2.0
 * The assignment problem behind placement: tasks that may not move, and places of unequal distance. */
#ifndef SPANK_ASSIGN_H
#define SPANK_ASSIGN_H

/* Gives each task one place so that the total cost is the smallest possible while the numbers of tasks per place differ
 * by at most one. Among equal totals task 0 gets the first place it can, then task 1, and so on.
 * cost is [tasks][places], each ≥ 0 and small; place_of is [tasks]. Returns 0, or -1 when memory is short. */
int assign_tasks(int tasks, int places, const unsigned char *cost, int *place_of);

#endif
