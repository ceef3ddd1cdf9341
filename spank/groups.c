/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include <stdlib.h>

#include "cores.h"

const struct gpu *gpu_of(const struct node *node, const struct request *r, int device)
{
	return r->device[device] < 0 ? NULL : &node->gpu[r->device[device]];
}

int group_distance(const struct node *node, const struct request *r, const struct group *g, const struct cpuset *cpus)
{
	int farthest = 0;
	for (int i = 0; i < g->devices; i++) {
		int gpu = r->device[g->device[i]];
		int d = gpu < 0 ? 0 : gpu_distance(node, cpus, gpu);
		if (d > farthest)
			farthest = d;
	}
	return farthest;
}

/* Devices in bus order; GPUs of unknown place and instances of one GPU stay in the order in which Slurm names them. */
static void sort_devices(const struct node *node, const struct request *r, int *sorted)
{
	for (int i = 0; i < r->devices; i++) {
		const struct gpu *g = gpu_of(node, r, i);
		uint64_t key = g ? g->at.order : UINT64_MAX;
		int at = i;
		for (; at > 0; at--) {
			const struct gpu *before = gpu_of(node, r, sorted[at - 1]);
			if ((before ? before->at.order : UINT64_MAX) <= key)
				break;
			sorted[at] = sorted[at - 1];
		}
		sorted[at] = i;
	}
}

/* Level 0: same NUMA node, 1: same package, 2: same machine. */
static bool near_each_other(const struct node *node, const struct request *r, int a, int b, int level)
{
	const struct gpu *ga = gpu_of(node, r, a), *gb = gpu_of(node, r, b);
	if (level == 2)
		return true;
	if (!ga || !gb || ga->at.package != gb->at.package)
		return false;
	return level == 1 || ga->at.numa == gb->at.numa;
}

/* Takes up to `size` free devices near device sorted[from]; returns how many there are. */
static int gather(const struct node *node, const struct request *r, const int *sorted, const bool *used, int from, int level, struct group *g, int size)
{
	g->devices = 0;
	for (int i = from; i < r->devices && g->devices < size; i++)
		if (!used[i] && near_each_other(node, r, sorted[from], sorted[i], level))
			g->device[g->devices++] = i;
	return g->devices;
}

static void append_group(const struct node *node, const struct request *r, struct groups *all, struct group *g)
{
	const struct gpu *first = gpu_of(node, r, g->device[0]);
	int at = all->count++;

	g->package = first ? first->at.package : -1;
	g->numa = first ? first->at.numa : -1;
	g->distance = group_distance(node, r, g, &r->allowed);
	all->group[at] = *g;
}

/* As many groups as possible inside one NUMA node, then inside one package, then across: this order gives the most
 * groups at every level, so any number of tasks gets the closest groups there are. */
int make_groups(const struct node *node, const struct request *r, struct groups *all)
{
	int size = r->gpus_per_task, *sorted = calloc((size_t)r->devices + 1, sizeof *sorted);
	bool *used = calloc((size_t)r->devices + 1, sizeof *used);
	struct group *by_first = calloc((size_t)r->devices + 1, sizeof *by_first);

	all->count = 0;
	all->group = calloc((size_t)r->devices + 1, sizeof *all->group);
	if (!sorted || !used || !by_first || !all->group)
		goto out;
	sort_devices(node, r, sorted);
	for (int level = 0; level <= 2; level++)
		for (int i = 0; i < r->devices; i++) {
			struct group g;
			if (used[i] || gather(node, r, sorted, used, i, level, &g, size) < size)
				continue;
			for (int k = 0; k < size; k++)
				used[g.device[k]] = true;
			by_first[i] = g;
		}
	for (int i = 0; i < r->devices; i++) {
		struct group *g = &by_first[i];
		if (!g->devices)
			continue;
		for (int k = 0; k < size; k++)
			g->device[k] = sorted[g->device[k]];
		append_group(node, r, all, g);
	}
out:
	free(sorted);
	free(used);
	free(by_first);
	return all->group && (all->count || r->devices < size) ? 0 : -1;
}
