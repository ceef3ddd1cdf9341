/* SPDX-License-Identifier: Apache-2.0
 * What is in a node, as plain numbers: from the running machine or from a description in a file. */
#ifndef SPANK_INVENTORY_H
#define SPANK_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "placement.h"

struct inventory_source {
	const char *topology; /* hwloc XML file; NULL: the running machine */
	const char *proc;     /* directory like /proc/driver/nvidia; NULL: the driver's own for the running machine, none for a file */
	const char *sys;      /* directory like /sys; NULL: /sys. Read for the running machine only */
	bool trusted_only;    /* refuse a file that someone other than root or this process's real user could have written */
};

/* Fills *node (about 300 KB: keep it on the heap). libhwloc is opened for the duration of the call. Returns 0; or -1
 * with one line in error. With 0, `error` may hold a line about what could not be seen. */
int inventory_load(const struct inventory_source *source, struct node *node, char *error, size_t size);

#endif
