/* SPDX-License-Identifier: Apache-2.0
 * Ranks that share memory: entering and leaving a collective together. */
#ifndef HVD_RUNTIME_TEAM_H
#define HVD_RUNTIME_TEAM_H

#include "chain.h"
#include "region.h"

/* What the ranks of a team must agree on before they touch each other's memory. */
struct notice {
	struct stamp stamp;
	uint64_t region, place, bucket; /* of the data in shared memory */
};

/* What the ranks of a team see of each other. */
struct page {
	_Atomic uint32_t arrived, generation, sleepers; /* the barrier: on the first rank's page */
	uint32_t pad;
	_Atomic uint64_t sequence; /* collectives that this rank has entered */
	struct notice notice;
};

/* All ranks of the team are here, and call the same collective. pages: a region of the team, in which each part begins with a page. */
int team_enter(struct mesh *m, const struct team *t, const struct region *pages, const struct notice *notice);
/* All ranks of the team have come this far. */
int team_barrier(struct mesh *m, const struct team *t, const struct region *pages);

#endif
