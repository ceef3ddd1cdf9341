/* SPDX-License-Identifier: Apache-2.0
 * Data between nodes. The ranks, in order, fall into segments: runs of consecutive ranks on one node. Segments form a
 * chain of TCP links. A sum flows up the chain, each segment adding its ranks in order, and the result flows down:
 * every link carries each byte once either way, as in a ring, and the sum is the one a serial loop over the ranks gives. */
#ifndef HVD_RUNTIME_CHAIN_H
#define HVD_RUNTIME_CHAIN_H

#include "backend.h"

#define CHAIN_PIECE (128u << 10) /* bytes of running sums that are handled at a time */
#define LANES_MAX 4              /* chains side by side, each with its share */

struct chain {
	struct mesh *mesh;
	struct link prev, next; /* fd -1: first, last segment */
	int links;              /* of the whole chain */
	uint8_t *ring;          /* running sums in transit */
};

/* What the ranks of a team, and both ends of a link between teams, must agree on: the call, as the program made it, and how much of it moves now. */
struct stamp {
	uint64_t n, piece; /* n: elements of the call; piece: of what moves, which may be bytes */
	uint64_t region, place, bucket; /* of the data in shared memory */
	uint64_t root; /* or, of an all-gather, a hash of its blocks' sizes */
	uint32_t kind, type, op, narrow;
};

/* A fault: this rank and `rank`, of the mesh, do not call the same collective. */
int calls_differ(struct mesh *m, const struct stamp *mine, const struct stamp *theirs, int rank);

/* Takes the links; segments: of the whole chain. */
int chain_open(struct chain *c, struct mesh *m, const struct link *link, int links, int segments);
void chain_close(struct chain *c);

/* part[parts]: of each rank of this segment, in rank order; n elements that lie `place` bytes into it, where all receive the result. The sum is that of
 * op's type and operation. */
int chain_reduce(struct chain *c, const struct stamp *stamp, const struct op *op, uint8_t *const *part, int parts, int mine, size_t place, size_t n, int divisor);

#endif
