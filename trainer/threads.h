/* SPDX-License-Identifier: Apache-2.0
 * Whether OpenMP will find its threads. */
#ifndef TRAINER_THREADS_H
#define TRAINER_THREADS_H

#include "error.h"

/* Before a program's first parallel region of so many threads, 0: as many as OpenMP takes by itself: EXIT_INTERNAL where they cannot be
 * started. There libgomp would end the program, with exit code 1. */
int threads_check(int threads, struct error *e);

#endif
