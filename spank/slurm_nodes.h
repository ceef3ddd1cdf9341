/* SPDX-License-Identifier: Apache-2.0
 * The few questions about nodes, and about the job of its step, that a client asks Slurm; all have an answer even where Slurm has none. */
#ifndef SPANK_SLURM_NODES_H
#define SPANK_SLURM_NODES_H

#include <stdbool.h>
#include <stddef.h>

/* Packages of every node in the list, or of every node of the cluster with NULL; 0 if they differ or cannot be had. *have_gpus: one of
 * them, or with `anywhere` one of the cluster, has GPUs. */
int slurm_packages_per_node(const char *nodelist, bool anywhere, bool *have_gpus);

/* The nodes "n[1-2],m3" of the partitions "a,b", or of the default one with NULL, for free(); NULL where they cannot be had. */
char *slurm_nodes_of_partitions(const char *names);

/* CPUs of the node divided by its GPUs, at least 1; `otherwise` where that cannot be had. */
int slurm_cpus_per_gpu(const char *node, int otherwise);

/* The name at a position of "n[1-2],m3"; the whole list where it cannot be taken apart. Returns buf. */
char *slurm_host(const char *nodelist, int position, char *buf, size_t size);

/* How many different names are in "n[1-2],m3"; 0 where it cannot be taken apart. */
int slurm_hosts(const char *nodelist);

/* The same of a file that --nodefile or --nodelist takes, as srun reads it. */
int slurm_hosts_in_file(const char *path);

/* What the job that this client is in, or one group of it if it is heterogeneous, else -1, asked for on each node: "gres:gpu:2".
 * NULL: nothing, or, with *known false, Slurm does not say. Slurm does not pass on --gres, so the controller is asked, once. */
const char *slurm_job_gres(int group, bool *known);

/* The GPUs that it asked for on all its nodes together; 0: none in that way, or Slurm does not say. */
int slurm_job_gpus(int group);

/* Whether the job of this id (NULL: none), any group of it, asked for this kind of gres on its nodes; true also where Slurm does not say. */
bool slurm_job_asks_for(const char *id, const char *kind);

#endif
