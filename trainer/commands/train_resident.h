/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMMANDS_TRAIN_RESIDENT_H
#define COMMANDS_TRAIN_RESIDENT_H

#include "commands/train.h"

/* Decodes all of t->train with `threads` threads and gives it to the engine: image i of the data set is number i there. An image that cannot be read
 * is an error, as it is in a step; EXIT_USAGE where the engine has no memory of its own. */
int train_keep_images(struct train *t, int threads, struct error *e);

#endif
