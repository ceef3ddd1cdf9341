/* SPDX-License-Identifier: Apache-2.0
 * A world without Slurm or PMIx: processes forked from one program find rank 0's card in memory that they share. */
#ifndef GPU_MEETING_H
#define GPU_MEETING_H

#include "hvd.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MEETING_RANKS = 8 };

/* Before ranks are forked: shared memory for a card a world, of which there may be several, one after the other. 0, or -1. */
int meeting_make(int ranks);

/* In a rank: joins world number `number` (0, 1, …). Like hvd_init(). */
int meeting_join(struct hvd **h, const struct hvd_conf *conf, int rank, int number);

/* Waits in a rank until `ranks` of them came to this place (0 … 15). */
void meeting_wait(int place, int ranks);

/* All-reduces of buckets in a rank's trace in this folder, and the steps whose end it has, one after the other; -1: there is none. Removes it. */
int meeting_traced(const char *folder, int rank, int *steps);

/* Sixteen numbers of each rank, for the process that forked them. */
double *meeting_notes(int rank);

#ifdef __cplusplus
}
#endif
#endif
