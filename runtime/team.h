/* SPDX-License-Identifier: Apache-2.0
 * Ranks that share memory: consecutive ranks on one node, each with a part of every region that the others can read and write, and
 * how they enter and leave a collective together.
 * A part is a memfd that travels over the mesh's Unix sockets: it needs no room in /dev/shm and leaves no name behind. */
#ifndef HVD_RUNTIME_TEAM_H
#define HVD_RUNTIME_TEAM_H

#include "chain.h"

struct team {
	int first, count; /* world ranks first … first + count - 1 */
	int me;           /* this rank's place */
};

struct region {
	struct region *next;
	uint64_t tag;  /* of its creation: the same on all ranks */
	bool shared;   /* all ranks of the world have it */
	size_t bytes;  /* of a part */
	int fd;        /* of this rank's part */
	struct team team;
	uint8_t *part[]; /* [team.count], with room for all ranks: where nodes take turns, a death can make a team larger */
};

/* Collective within the team. */
int region_open(struct region **out, struct mesh *m, const struct team *t, size_t bytes);
/* The same memory in another team: this rank's part stays where it is, with its contents. After a failure it can be tried again. */
int region_share(struct region *r, struct mesh *m, const struct team *t);
/* This rank's part is in new memory, at the same place: who was given up and lives may write yet to what it shared. After a failure it can be tried again. */
int region_renew(struct region *r, struct mesh *m);
/* Lets go of the other parts: it is memory of this rank alone. */
void region_keep(struct region *r);
void region_close(struct region *r);

/* What the ranks of a team see of each other. */
struct page {
	_Atomic uint32_t arrived, generation, sleepers; /* the barrier: on the first rank's page */
	_Atomic uint64_t sequence; /* collectives that this rank has entered */
	struct stamp stamp[2];     /* of that one and the one before, by turns: they must agree before they use each other's memory */
};

/* All ranks of the team are here, and call the same collective: what they called before is over on all of them. pages: a region of the team, in which each part
 * begins with a page. */
int team_enter(struct mesh *m, const struct region *pages, const struct stamp *stamp);
/* All ranks of the team have come this far. */
int team_barrier(struct mesh *m, const struct region *pages);

#endif
