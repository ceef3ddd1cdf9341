/* SPDX-License-Identifier: Apache-2.0
 * When buckets are reduced on a device, for the trace. In a captured graph no call of libhvd comes by, so the device itself calls back, from the
 * stream of the all-reduces, before and after each bucket; without a trace nothing is put into the stream. */
#ifndef HVD_RUNTIME_STAMPS_H
#define HVD_RUNTIME_STAMPS_H

#include "nccl_api.h"

struct stamp; /* of a bucket; graphs hold its address */

/* Enqueues the moment at which the bucket of `op` is ready (end: at which its mean is there). A CUresult. */
CUresult stamp_bucket(struct hvd *h, const struct driver *cu, struct stamp **stamps, const struct op *op, CUstream stream, bool end);
/* After a recovery steps go on after the last that any rank has seen, and stamps begin anew; graphs of before may still hold the old ones. */
void stamps_retire(struct hvd *h, struct stamp *stamps);
void stamps_free(struct stamp **stamps);

#endif
