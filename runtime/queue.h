/* SPDX-License-Identifier: Apache-2.0
 * Collectives run in the order of the calls: those that are posted on the communication thread, others on the caller's own, once nothing
 * is in flight. */
#ifndef HVD_RUNTIME_QUEUE_H
#define HVD_RUNTIME_QUEUE_H

#include "backend.h"

/* Hands the collective to the communication thread and returns its number (>= 0), or a failure. Does not wait for other ranks. */
long queue_post(struct hvd *h, const struct op *op);
/* Waits for what is in flight, then runs it. */
int queue_run(struct hvd *h, const struct op *op);
/* Until nothing is in flight. */
int queue_drain(struct hvd *h);
/* Until nothing on device memory is. */
int queue_drain_device(struct hvd *h);
/* After a failure, once nothing is in flight: collectives may run again. */
void queue_reset(struct hvd *h);
void queue_close(struct hvd *h);

#endif
