/* SPDX-License-Identifier: Apache-2.0
 * Sets of CPUs of a node: which cores they are, what is near them, and how to cut them into pieces. */
#ifndef SPANK_CORES_H
#define SPANK_CORES_H

#include "placement.h"

/* The cores (node-wide indices) that have a CPU in the set. */
struct cpuset cores_of(const struct node *node, const struct cpuset *cpus);

/* The NUMA nodes (kernel's numbers) that are main memory to these CPUs. */
struct cpuset memory_of(const struct node *node, const struct cpuset *cpus);

/* One hardware thread of each core, the first that is in the set. */
struct cpuset first_threads(const struct node *node, const struct cpuset *cpus);

/* Cuts the set into n pieces of whole cores and returns piece k; of single CPUs where cores are too few; with fewer
 * CPUs than pieces, pieces share. */
struct cpuset piece_of(const struct node *node, const struct cpuset *cpus, int k, int n);

/* The one package (NUMA node) that these CPUs are of, as an index into node.package (node.numa); -1 if they are of
 * several or of none. */
int package_of(const struct node *node, const struct cpuset *cpus);
int numa_of(const struct node *node, const struct cpuset *cpus);

/* How far these CPUs are from a GPU (index into node.gpu): 0, 1 or 2 as placement.h says. */
int gpu_distance(const struct node *node, const struct cpuset *cpus, int gpu);

#endif
