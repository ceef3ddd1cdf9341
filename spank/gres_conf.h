/* SPDX-License-Identifier: Apache-2.0
 * The GPU lines of Slurm's gres.conf. */
#ifndef SPANK_GRES_CONF_H
#define SPANK_GRES_CONF_H

#include <stdbool.h>

#include "cpulist.h"

enum { GRES_MAX_GPUS = 64 };

struct gres_gpu {
	int minor;           /* N of /dev/nvidiaN */
	int line;            /* of the file, from 1 */
	char type[128];      /* Type=, or ""; AutoDetect's names of GPUs and of their MIG profiles pass 50 characters */
	bool has_cores;
	struct cpuset cores; /* Cores=, in Slurm's numbers */
};

struct gres_conf {
	bool autodetect; /* the driver is asked, so lines are not needed */
	bool by_file;    /* AutoDetect=nvidia: Slurm then counts GPUs by the names of their files, else in bus order */
	const char *node; /* name of the node that was asked for: the caller's text */
	bool for_others; /* lines for other nodes were passed over */
	int unread;      /* the first line that this reader leaves to Slurm (include, MultipleFiles=), from 1; 0: none */
	int gpus;
	struct gres_gpu gpu[GRES_MAX_GPUS];
};

/* Reads the text for the node of this name; lines for other nodes are passed over. Returns 0; or -1 with one line that
 * names the place. */
int gres_conf_parse(const char *text, const char *node_name, struct gres_conf *out, char *error, size_t size);

/* True if "gpu[01-16],login,x[1-2]y" names this host. */
bool hostlist_has(const char *list, const char *host);

#endif
