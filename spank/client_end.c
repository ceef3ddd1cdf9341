/* SPDX-License-Identifier: Apache-2.0
 * In srun, sbatch and salloc: how a client ends that cannot do what was asked of it. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>

void client_refuse(const char *line)
{
	fprintf(stderr, "hvd: %s\n", line);
	exit(EXIT_USAGE);
}

void client_set(const char *name, const char *value, bool replace)
{
	if (setenv(name, value, replace))
		client_refuse("out of memory");
}
