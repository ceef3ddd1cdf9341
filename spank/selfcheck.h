/* SPDX-License-Identifier: Apache-2.0
 * What gres.conf says about GPUs and cores, against what the machine says. */
#ifndef SPANK_SELFCHECK_H
#define SPANK_SELFCHECK_H

#include <stdio.h>

#include "devices.h"
#include "gres_conf.h"
#include "placement.h"

/* Prints a line for each GPU. numbers: what plugstack.conf says of them. Returns the number of lines that an admin has to change; 1 where
 * nothing can be checked, as no driver is loaded. */
int selfcheck(const struct node *node, const struct gres_conf *conf, enum numbers numbers, FILE *out);

#endif
