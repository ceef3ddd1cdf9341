/* SPDX-License-Identifier: Apache-2.0
 * A plan as the lines a person reads, and as JSON. */
#ifndef SPANK_EXPLAIN_H
#define SPANK_EXPLAIN_H

#include <stddef.h>
#include <stdio.h>

#include "placement.h"

enum { EXPLAIN_LINE = 5120 };

/* "GPU 0000:15:00.0 (GPU-8a1b…), CPUs 0-19, NUMA 0, NIC mlx5_0, 9 threads: all CPUs of the GPU's socket". Returns buf. */
char *explain_task(const struct node *node, const struct request *request, const struct plan *plan, int task, char *buf, size_t size);

/* One line about GPUs that no task uses; "" if there are none. Returns buf. */
char *explain_idle(const struct node *node, const struct request *request, const struct plan *plan, char *buf, size_t size);

/* Why a task is farther from its GPU than it could be, and what to ask Slurm for; "" if it is not. Returns buf. */
char *explain_distance(const struct node *node, const struct request *request, const struct plan *plan, int task, char *buf, size_t size);

/* Tasks whose GPUs have fewer cores near them than they are, though the step has one for each task, and what to ask Slurm for; "" where there are
 * none. For plans of the whole node. Returns buf. */
char *explain_crowd(const struct node *node, const struct request *request, const struct plan *plan, char *buf, size_t size);

/* Which of the GPUs that tasks use is the slower, where they are of different models; "" where they are not. Returns buf. */
char *explain_mixture(const struct node *node, const struct request *request, const struct plan *plan, char *buf, size_t size);

/* An array: [{"task":0,"gpus":[…],"cpus":"0-19","numa":[0],"package":[0],"nic":"mlx5_0"}, …] */
void explain_json(FILE *out, const struct node *node, const struct request *request, const struct plan *plan);

/* The PCI address of a device of the step; its own name where it is an instance and not known of which GPU. */
const char *device_pci(const struct node *node, const struct request *request, int device);
/* The same, and an instance by its own name. */
const char *device_name(const struct node *node, const struct request *request, int device);

#endif
