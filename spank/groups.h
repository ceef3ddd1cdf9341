/* SPDX-License-Identifier: Apache-2.0
 * The GPUs of a step, put together so that one group serves one task. */
#ifndef SPANK_GROUPS_H
#define SPANK_GROUPS_H

#include "placement.h"

/* The GPUs of one task. */
struct group {
	int devices;
	int device[TASK_MAX_DEVICES]; /* in bus order */
	int package, numa;            /* of the first */
	int distance;                 /* of the step's CPUs from the farthest */
};

struct groups {
	int count;
	struct group *group; /* [count], in bus order of the first GPU */
};

/* Groups of request.gpus_per_task GPUs. all->group is the caller's to free. Returns 0, or -1 when memory is short. */
int make_groups(const struct node *node, const struct request *request, struct groups *all);

/* Distance of these CPUs from the group's farthest GPU. */
int group_distance(const struct node *node, const struct request *request, const struct group *group, const struct cpuset *cpus);

/* The GPU behind a device of the step; NULL where its place is not known. */
const struct gpu *gpu_of(const struct node *node, const struct request *request, int device);

#endif
