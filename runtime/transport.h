/* SPDX-License-Identifier: Apache-2.0
 * Which pairs of GPUs talk over what, from NCCL's own log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,P2P,SHM,NET or ALL). */
#ifndef HVD_RUNTIME_TRANSPORT_H
#define HVD_RUNTIME_TRANSPORT_H

#include <stdbool.h>
#include <stdio.h>

struct pair {
	int from, to; /* ranks */
	bool receives; /* `to` says it: of a network NCCL says the same channel at both ends */
	char how[24]; /* "P2P/IPC", "SHM", "NET/IB/0/GDRDMA", … as NCCL says it, cut */
};

/* The pair that a line of the log tells of, if it does. */
bool transport_line(const char *line, struct pair *p);

/* The table of n pairs, each once with the number of its channels, and a warning for each that should have a faster way.
 * node[ranks]: number of each rank's node; infiniband: nodes have such adapters. The pairs are sorted. Returns the number of warnings. */
int transport_table(FILE *out, struct pair *pairs, size_t n, const int *node, int ranks, bool infiniband);

#endif
