/* SPDX-License-Identifier: Apache-2.0
 * The few questions about nodes that a client asks Slurm, each one answered by a number even where Slurm cannot. */
#ifndef SPANK_SLURM_NODES_H
#define SPANK_SLURM_NODES_H

#include <stddef.h>

/* Packages of every node in the list, or of every node of the cluster with NULL; 0 if they differ or cannot be had. */
int slurm_packages_per_node(const char *nodelist);

/* CPUs of the node divided by its GPUs, at least 1; `otherwise` where that cannot be had. */
int slurm_cpus_per_gpu(const char *node, int otherwise);

/* The name at a position of "n[1-2],m3"; the whole list where it cannot be taken apart. Returns buf. */
char *slurm_host(const char *nodelist, int position, char *buf, size_t size);

/* How many different names are in "n[1-2],m3"; 0 where it cannot be taken apart. */
int slurm_hosts(const char *nodelist);

#endif
