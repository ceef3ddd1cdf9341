/* SPDX-License-Identifier: Apache-2.0
 * Ten-crop evaluation (Krizhevsky et al. 2012): the four corner windows and the middle one, each also mirrored. */
#ifndef LEARN_CROPS_H
#define LEARN_CROPS_H

#include "engine/engine.h"

enum crops { CROPS_NONE, CROPS_TEN };

extern const char *const crops_choices[]; /* "none", "ten", NULL */

/* Scores a batch and waits for it. With CROPS_TEN logits are those of the mean probability over ten windows; features are always
 * those of the middle one (of CROPS_NONE). As engine_forward() otherwise; -exit code with the engine's reason. */
int crops_forward(struct engine *engine, const struct engine_batch *batch, enum crops crops, int source_size, int image_size, int classes,
		  float *logits, float *features);

#endif
