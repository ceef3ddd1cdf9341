/* SPDX-License-Identifier: Apache-2.0
 * Items made ahead of need by a thread of their own. */
#ifndef FILES_AHEAD_H
#define FILES_AHEAD_H

#include "error.h"

/* Stands for an item that could not be made: its maker has kept the reason. */
extern char ahead_broken;

struct ahead;

/* Calls make(from) in a new thread, up to `room` items ahead of who takes them, until it returns &ahead_broken. An item is one
 * block of malloc(), given away with it, or NULL, which is an item like others. Returns NULL where no thread can be started. */
struct ahead *ahead_start(void *(*make)(void *from), void *from, int room, struct error *e);

/* The next item, waited for; &ahead_broken, and that for ever, behind the last one that was made and after ahead_stop(). One taker. */
void *ahead_take(struct ahead *a);

/* Lets maker and taker go; where one's maker is another's taker, all are stopped before any is freed. NULL is allowed in both. */
void ahead_stop(struct ahead *a);
void ahead_free(struct ahead *a);

#endif
