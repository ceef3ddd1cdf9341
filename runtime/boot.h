/* SPDX-License-Identifier: Apache-2.0
 * How ranks find each other before there is a mesh: rank 0 publishes one card, the others look it up.
 * Everything else travels over the mesh, so this is all that PMIx (or a parent world, or a test) has to do. */
#ifndef HVD_RUNTIME_BOOT_H
#define HVD_RUNTIME_BOOT_H

#include "base.h"

#define HOST_BYTES 64

struct boot {
	double deadline; /* seconds that ranks have to find each other: of whoever asks */
	int rank, size, nodes;
	char host[HOST_BYTES]; /* of this rank's node */
	void *state;
	int (*over)(struct boot *b, char *why); /* not 0: nobody waits for links any more; NULL: they do. Asked until the world stands */
	/* 0 or HVD_EBOOT with the reason in why[WHY_BYTES] */
	int (*publish)(struct boot *b, const void *card, size_t bytes, char *why);
	/* Rank 0's card; waits until `until` (of lived()). */
	int (*lookup)(struct boot *b, void *card, size_t bytes, double until, char *why);
	void (*host_of)(struct boot *b, int rank, char host[HOST_BYTES]);
	void (*finish)(struct boot *b); /* may be NULL */
};

/* From the job step: a world of one where there is none, else PMIx. */
int boot_from_step(struct boot *b, char *why);

#endif
