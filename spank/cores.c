/* SPDX-License-Identifier: Apache-2.0 */
#include "cores.h"

struct cpuset cores_of(const struct node *node, const struct cpuset *cpus)
{
	struct cpuset cores = { 0 };
	for (int i = 0; i < node->pus; i++)
		if (cpuset_has(cpus, node->pu[i].cpu))
			cpuset_add(&cores, node->pu[i].core);
	return cores;
}

struct cpuset memory_of(const struct node *node, const struct cpuset *cpus)
{
	struct cpuset memory = { 0 };
	for (int n = 0; n < node->numas; n++)
		if (cpuset_intersects(&node->numa[n].cpus, cpus))
			cpuset_add(&memory, node->numa[n].id);
	return memory;
}

struct cpuset first_threads(const struct node *node, const struct cpuset *cpus)
{
	struct cpuset seen = { 0 }, out = { 0 };
	for (int i = 0; i < node->pus; i++)
		if (cpuset_has(cpus, node->pu[i].cpu) && !cpuset_has(&seen, node->pu[i].core)) {
			cpuset_add(&seen, node->pu[i].core);
			cpuset_add(&out, node->pu[i].cpu);
		}
	return out;
}

struct cpuset piece_of(const struct node *node, const struct cpuset *cpus, int k, int n)
{
	struct cpuset cores = cores_of(node, cpus), piece = { 0 };
	int units = cpuset_count(&cores), unit = -1, previous = -1;
	bool whole_cores = units >= n;

	if (!whole_cores)
		units = cpuset_count(cpus);
	int first = units >= n ? (int)((long)k * units / n) : k % units;
	int last = units >= n ? (int)((long)(k + 1) * units / n) : first + 1;
	for (int i = 0; i < node->pus; i++) {
		if (!cpuset_has(cpus, node->pu[i].cpu))
			continue;
		if (!whole_cores || node->pu[i].core != previous)
			unit++;
		previous = node->pu[i].core;
		if (unit >= first && unit < last)
			cpuset_add(&piece, node->pu[i].cpu);
	}
	return piece;
}

/* CPUs of the GPU's NUMA node; of its package only, where one NUMA node holds several packages. */
static struct cpuset nearest_cpus(const struct node *node, const struct locality *at)
{
	struct cpuset near = at->numa < 0 ? at->cpus : node->numa[at->numa].cpus;
	struct cpuset in_package = at->package < 0 ? near : cpuset_and(&near, &node->package[at->package].cpus);
	return cpuset_empty(&in_package) ? near : in_package;
}

int gpu_distance(const struct node *node, const struct cpuset *cpus, int gpu)
{
	const struct locality *at = &node->gpu[gpu].at;
	struct cpuset near = nearest_cpus(node, at);

	if (cpuset_intersects(cpus, &near))
		return 0;
	if (at->package >= 0 && cpuset_intersects(cpus, &node->package[at->package].cpus))
		return 1;
	return 2;
}

int package_of(const struct node *node, const struct cpuset *cpus)
{
	int found = -1;
	for (int p = 0; p < node->packages; p++)
		if (cpuset_intersects(cpus, &node->package[p].cpus)) {
			if (found >= 0)
				return -1;
			found = p;
		}
	return found;
}

int numa_of(const struct node *node, const struct cpuset *cpus)
{
	int found = -1;
	for (int n = 0; n < node->numas; n++)
		if (cpuset_intersects(cpus, &node->numa[n].cpus)) {
			if (found >= 0)
				return -1;
			found = n;
		}
	return found;
}
