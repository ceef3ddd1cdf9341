/* SPDX-License-Identifier: Apache-2.0
 * Ranks that share memory: entering and leaving a collective together. */
#ifndef HVD_RUNTIME_TEAM_H
#define HVD_RUNTIME_TEAM_H

#include "chain.h"
#include "region.h"

/* What the ranks of a team must agree on before they touch each other's memory. */
struct notice {
	struct stamp stamp;
	uint64_t place, bucket; /* of the data in shared memory */
};

/* The first bytes of every rank's first region. */
struct page {
	_Atomic uint32_t arrived, generation, sleepers; /* the barrier: on the first rank's page */
	uint32_t pad;
	_Atomic uint64_t sequence; /* collectives that this rank has entered */
	struct notice notice;
};

struct doorway {
	struct mesh *mesh;
	const struct team *team;
	struct region *pages;
};

/* All ranks of the team are here, and call the same collective. */
int team_enter(struct doorway *d, const struct notice *notice);
/* All ranks of the team have come this far. */
int team_barrier(struct doorway *d);

#endif
