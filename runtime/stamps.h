/* SPDX-License-Identifier: Apache-2.0
 * When buckets are reduced on a device, and how long the program's stream waits for them, for the trace. In a captured graph no call of libhvd
 * comes by, so the device itself calls back from both streams; without a trace nothing is put into them. */
#ifndef HVD_RUNTIME_STAMPS_H
#define HVD_RUNTIME_STAMPS_H

#include "nccl_api.h"

struct stamp; /* of a bucket, or of the end of a step; graphs hold its address */

/* Enqueues the moment at which the all-reduce of `op` begins (end: at which the mean is there), or, with no bucket, the wait for all of a step. */
CUresult stamp(struct hvd *h, const struct driver *cu, struct stamp **stamps, const struct op *op, CUstream stream, bool end);
/* After a recovery steps go on after the last that any rank has seen, and stamps begin anew; graphs of before may still hold the old ones, as one
 * that was not destroyed does after the end of h. */
void stamps_retire(struct hvd *h, struct stamp *stamps);
void stamps_free(struct stamp **stamps);

#endif
