/* SPDX-License-Identifier: Apache-2.0
 * The learning rate as a function of the optimiser step: nothing to save, nothing to restore. */
#ifndef LEARN_SCHEDULE_H
#define LEARN_SCHEDULE_H

#include <stdint.h>

#include "error.h"

enum scaling { SCALING_NONE, SCALING_SQRT, SCALING_LINEAR };
enum decay { DECAY_CONSTANT, DECAY_COSINE, DECAY_PLATEAU /* constant times `factor` */ };

struct schedule {
	double rate;           /* for `base_batch` images a step */
	enum scaling scaling;  /* how the rate grows with the global batch above base_batch */
	int base_batch, global_batch;
	uint64_t warmup;       /* steps in which the rate rises linearly to its full height */
	enum decay decay;
	uint64_t steps;        /* of the whole run; cosine reaches final_share * rate behind the last, as PyTorch's with T_max = steps - warmup */
	int64_t moved;         /* step k has the rate of step k - moved of a run that had this global batch all along */
	double final_share;
	double factor;         /* 1, and a tenth of it each time validation finds no progress (plateau); 0 counts as 1 */
};

/* Images of an optimiser step; EXIT_USAGE where they are more than an int counts. */
int schedule_global_batch(int batch, int accumulate, int ranks, struct error *e);

/* Rate after scaling, without warm-up and decay: times sqrt(k) or k for a global batch of k * base_batch, k > 1
 * (Krizhevsky 2014; Goyal et al. 2017). A smaller batch leaves the rate alone. */
double schedule_peak(const struct schedule *s);

/* Does the rate of this optimiser step still rise? */
int schedule_warms_up(const struct schedule *s, uint64_t step);

/* Rate of optimiser step 0, 1, … */
double schedule_rate(const struct schedule *s, uint64_t step);

#endif
