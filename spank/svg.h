/* SPDX-License-Identifier: Apache-2.0
 * A plan as a picture: sockets with their NUMA nodes, GPUs and network cards, and the tasks on them. */
#ifndef SPANK_SVG_H
#define SPANK_SVG_H

#include <stdio.h>

#include "placement.h"

void draw_svg(FILE *out, const struct node *node, const struct request *request, const struct plan *plan);

#endif
