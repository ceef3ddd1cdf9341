/* SPDX-License-Identifier: Apache-2.0
 * Memory of which every rank of a team (consecutive ranks on one node) has a part that the others can read and write.
 * A part is a memfd that travels over the mesh's Unix sockets: it needs no room in /dev/shm and leaves no name behind. */
#ifndef HVD_RUNTIME_REGION_H
#define HVD_RUNTIME_REGION_H

#include "mesh.h"

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
	int count, me; /* of the team */
	uint8_t *part[]; /* [count], with room for all ranks: where nodes take turns, a death can make a team larger */
};

/* Collective within the team. tag: of mesh_tag(). */
int region_open(struct region **out, struct mesh *m, const struct team *t, uint64_t tag, size_t bytes);
/* The same memory in another team: this rank's part stays where it is, with its contents. After a failure it can be tried again. */
int region_share(struct region *r, struct mesh *m, const struct team *t, uint64_t tag);
/* Lets go of the other parts: it is memory of this rank alone. */
void region_keep(struct region *r);
void region_close(struct region *r);

#endif
