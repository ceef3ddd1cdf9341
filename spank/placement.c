/* SPDX-License-Identifier: Apache-2.0
 * Three steps: sort the step's GPUs into groups (one group serves one task), deal the groups to the tasks, then give
 * every task the CPUs, memory and NIC that belong to its group. */
#include "placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assign.h"
#include "cores.h"
#include "groups.h"

/* ---- dealing ------------------------------------------------------------------------------------- */

/* Groups in the order in which tasks take them. spread and interleave visit the packages, and in them the NUMA nodes,
 * in turn; pack goes through one after the other. */
static void deal_order(const struct groups *all, enum order order, const int *load, bool near_first, int *sequence)
{
	int in_package[NODE_MAX_PACKAGES + 1] = { 0 }, in_numa[NODE_MAX_NUMA + 1] = { 0 }, first[NODE_MAX_PACKAGES + 1];
	bool taken[STEP_MAX_DEVICES] = { false };

	for (int p = 0; p <= NODE_MAX_PACKAGES; p++)
		first[p] = -1;
	for (int i = 0; i < all->count; i++)
		if (first[all->group[i].package + 1] < 0)
			first[all->group[i].package + 1] = i;
	for (int n = 0; n < all->count; n++) {
		int best = -1, best_key[3] = { 0 };
		for (int i = 0; i < all->count; i++) {
			const struct group *g = &all->group[i];
			if (taken[i] || (load && !load[i]))
				continue;
			int key[3] = {
				near_first ? g->distance : 0,
				order == ORDER_PACK ? first[g->package + 1] : in_package[g->package + 1],
				order == ORDER_PACK ? 0 : in_numa[g->numa + 1],
			};
			if (best < 0 || key[0] < best_key[0] || (key[0] == best_key[0] && (key[1] < best_key[1] || (key[1] == best_key[1] && key[2] < best_key[2])))) {
				best = i;
				memcpy(best_key, key, sizeof key);
			}
		}
		if (best < 0) {
			sequence[n] = -1;
			continue;
		}
		taken[best] = true;
		in_package[all->group[best].package + 1]++;
		in_numa[all->group[best].numa + 1]++;
		sequence[n] = best;
	}
}

/* Tasks are free to move: they all have the same distances, so only the number of tasks per group has to be chosen. */
static void deal_free(const struct request *r, const struct groups *all, int *group_of)
{
	int sequence[STEP_MAX_DEVICES], load[STEP_MAX_DEVICES], task = 0;

	deal_order(all, r->order, NULL, true, sequence);
	for (int i = 0; i < all->count; i++)
		load[i] = r->tasks / all->count;
	for (int i = 0; i < r->tasks % all->count; i++)
		load[sequence[i]]++;

	if (r->order == ORDER_SPREAD)
		for (int i = 0; i < all->count; i++)
			sequence[i] = i;
	else
		deal_order(all, r->order, load, false, sequence);

	for (int round = 0; task < r->tasks; round++)
		for (int i = 0; i < all->count && sequence[i] >= 0; i++) {
			int g = sequence[i];
			int times = r->order == ORDER_PACK ? (round ? 0 : load[g]) : load[g] > round;
			while (times-- > 0)
				group_of[task++] = g;
		}
}

/* The masks that GPUs are dealt by; NULL where no task of several is nearer to one than the others. */
static const struct cpuset *masks_of(const struct request *r)
{
	bool differ = r->tasks == 1;

	if (r->fixed || r->policy != POLICY_NONE)
		return r->fixed;
	for (int t = 1; r->found && t < r->tasks; t++)
		differ |= !cpuset_equal(&r->found[t], &r->found[0]);
	return differ ? r->found : NULL;
}

static int deal_near(const struct node *node, const struct request *r, const struct cpuset *masks, const struct groups *all, int *group_of)
{
	unsigned char *cost = calloc((size_t)r->tasks * (size_t)all->count, 1);
	if (!cost)
		return -1;
	for (int t = 0; t < r->tasks; t++)
		for (int g = 0; g < all->count; g++)
			cost[t * all->count + g] = (unsigned char)group_distance(node, r, &all->group[g], &masks[t]);
	int rc = assign_tasks(r->tasks, all->count, cost, group_of);
	free(cost);
	return rc;
}

/* ---- CPUs ---------------------------------------------------------------------------------------- */

/* The CPUs of the policy's level around a GPU, and one level more with each `wider`, up to its package. */
static const struct cpuset *level_cpus(const struct node *node, const struct locality *at, enum policy policy, int wider)
{
	int level = (policy == POLICY_GPU ? 0 : policy == POLICY_NUMA ? 1 : 2) + wider;
	if (level == 0)
		return &at->cpus;
	if (level == 1)
		return at->numa < 0 ? &at->cpus : &node->numa[at->numa].cpus;
	return at->package < 0 ? &at->cpus : &node->package[at->package].cpus;
}

static struct cpuset cpus_near(const struct node *node, const struct request *r, const struct group *g)
{
	for (int wider = 0; wider <= 2; wider++) {
		struct cpuset found = { 0 };
		for (int i = 0; i < g->devices; i++) {
			const struct gpu *gpu = gpu_of(node, r, g->device[i]);
			if (!gpu)
				return r->allowed;
			struct cpuset part = cpuset_and(level_cpus(node, &gpu->at, r->policy, wider), &r->allowed);
			found = cpuset_or(&found, &part);
		}
		if (!cpuset_empty(&found))
			return found;
	}
	return r->allowed;
}

/* Without GPUs the step's cores are cut into one piece per task; the task gets the packages (or NUMA nodes) of which its
 * piece has at least half, so that none is left to nobody, or else the one that most of its piece lies in. */
static struct cpuset cpus_without_gpu(const struct node *node, const struct request *r, int task)
{
	bool socket = r->policy == POLICY_SOCKET;
	int domains = socket ? node->packages : node->numas, best = -1, best_part = 0;
	struct cpuset piece = piece_of(node, &r->allowed, task, r->tasks), mine = { 0 };

	if (r->policy == POLICY_GPU || !domains)
		return r->allowed;
	for (int d = 0; d < domains; d++) {
		struct cpuset domain = cpuset_and(socket ? &node->package[d].cpus : &node->numa[d].cpus, &r->allowed);
		struct cpuset common = cpuset_and(&domain, &piece);
		int part = cpuset_count(&common);
		if (r->order == ORDER_INTERLEAVE ? d == task % domains : 2 * part >= cpuset_count(&domain))
			mine = cpuset_or(&mine, &domain);
		if (part > best_part) {
			best = d;
			best_part = part;
		}
	}
	if (cpuset_empty(&mine) && best >= 0)
		mine = cpuset_and(socket ? &node->package[best].cpus : &node->numa[best].cpus, &r->allowed);
	return cpuset_empty(&mine) ? r->allowed : mine;
}

/* Policy gpu: tasks next to the same CPUs get disjoint pieces of them. A piece that comes by again stays as it is. */
static void cut_pieces(const struct node *node, struct plan *plan)
{
	for (int t = 0; t < plan->tasks; t++) {
		int n = 0, k = 0;
		const struct cpuset whole = plan->task[t].cpus;
		for (int u = t; u < plan->tasks; u++)
			n += cpuset_equal(&plan->task[u].cpus, &whole);
		for (int u = t; u < plan->tasks; u++)
			if (cpuset_equal(&plan->task[u].cpus, &whole))
				plan->task[u].cpus = piece_of(node, &whole, k++, n);
	}
}

static struct cpuset cores_of_task(const struct node *node, const struct request *r, const struct plan *plan, int task)
{
	const struct cpuset *cpus = &plan->task[task].cpus;

	return cores_of(node, !cpuset_empty(cpus) ? cpus : r->found ? &r->found[task] : &r->allowed);
}

/* One core is left to communication. 0, or -1 when memory is short. */
static int count_threads(const struct node *node, const struct request *r, struct plan *plan)
{
	int *users = calloc((size_t)node->cores + 1, sizeof *users);

	if (!users)
		return -1;
	for (int t = 0; t < plan->tasks; t++) {
		struct cpuset cores = cores_of_task(node, r, plan, t);
		for (int c = cpuset_next(&cores, 0); c >= 0; c = cpuset_next(&cores, c + 1))
			users[c]++;
	}
	for (int t = 0; t < plan->tasks; t++) {
		struct cpuset cores = cores_of_task(node, r, plan, t);
		for (int c = cpuset_next(&cores, 0); c >= 0; c = cpuset_next(&cores, c + 1))
			plan->task[t].cores += 1.0 / users[c];
		int whole = (int)(plan->task[t].cores + 1e-6);
		plan->task[t].threads = whole > 1 ? whole - 1 : 1;
	}
	free(users);
	return 0;
}

/* ---- NICs ---------------------------------------------------------------------------------------- */

/* Smaller is nearer: 0 behind the same PCI switch, 1 same NUMA node, 2 same package, 3 elsewhere. */
static int nic_distance(const struct locality *task, const struct locality *nic)
{
	int common = 0;
	while (common < task->bridges && common < nic->bridges && task->bridge[common] == nic->bridge[common])
		common++;
	if (common > 1)
		return 0;
	if (task->package != nic->package)
		return 3;
	return task->numa == nic->numa && cpuset_intersects(&task->cpus, &nic->cpus) ? 1 : 2;
}

/* Where a task is, for its NIC: at its first GPU; without one, or with one of unknown place, at its CPUs. */
static struct locality place_of_task(const struct node *node, const struct request *r, const struct task_plan *task)
{
	const struct gpu *gpu = task->devices ? gpu_of(node, r, task->device[0]) : NULL;
	struct locality at = { .cpus = cpuset_empty(&task->cpus) ? r->allowed : task->cpus };

	if (gpu)
		return gpu->at;
	at.package = package_of(node, &at.cpus);
	at.numa = numa_of(node, &at.cpus);
	return at;
}

/* The nearest NIC with a link, none where all are down; among equally near ones the least used, then bus order. */
static void choose_nics(const struct node *node, const struct request *r, struct plan *plan)
{
	int used[NODE_MAX_NICS] = { 0 };

	for (int t = 0; t < plan->tasks; t++) {
		struct locality at = place_of_task(node, r, &plan->task[t]);
		int best = -1, best_distance = 0;
		for (int n = 0; n < node->nics; n++) {
			const struct nic *nic = &node->nic[n];
			int d = nic_distance(&at, &nic->at);
			if (!nic->port)
				continue;
			if (best < 0 || d < best_distance || (d == best_distance && (used[n] < used[best] ||
			    (used[n] == used[best] && nic->at.order < node->nic[best].at.order)))) {
				best = n;
				best_distance = d;
			}
		}
		if (best >= 0)
			used[best]++;
		plan->task[t].nic = best;
	}
}

/* ---- the plan ------------------------------------------------------------------------------------ */

static int refuse(const struct request *r, const struct groups *all, struct plan *plan)
{
	if (cpuset_empty(&r->allowed))
		snprintf(plan->refusal, sizeof plan->refusal, "the step has no CPU of this node");
	else if (r->tasks < 1)
		snprintf(plan->refusal, sizeof plan->refusal, "no task to place");
	else if (r->devices && r->gpus_per_task > TASK_MAX_DEVICES)
		snprintf(plan->refusal, sizeof plan->refusal, "%d GPUs for one task: at most %d are possible", r->gpus_per_task, TASK_MAX_DEVICES);
	else if (r->devices && !all->count)
		snprintf(plan->refusal, sizeof plan->refusal, "gpus-per-task=%d but %d GPU%s", r->gpus_per_task, r->devices, r->devices == 1 ? "" : "s");
	else if (r->devices && r->tasks > all->count && !r->share && r->gpus_per_task == 1)
		snprintf(plan->refusal, sizeof plan->refusal, "%d tasks but %d GPU%s", r->tasks, r->devices, r->devices == 1 ? "" : "s");
	else if (r->devices && r->tasks > all->count && !r->share)
		snprintf(plan->refusal, sizeof plan->refusal, "%d tasks with %d GPUs each but %d GPUs", r->tasks, r->gpus_per_task, r->devices);
	return plan->refusal[0] ? -1 : 0;
}

static int choose_cpus(const struct node *node, const struct request *r, const struct groups *all, const int *group_of, struct plan *plan)
{
	for (int t = 0; t < r->tasks; t++) {
		struct task_plan *task = &plan->task[t];
		if (r->fixed)
			task->cpus = r->fixed[t];
		else if (r->policy != POLICY_NONE)
			task->cpus = all->count ? cpus_near(node, r, &all->group[group_of[t]]) : cpus_without_gpu(node, r, t);
		if (r->no_smt && !r->fixed)
			task->cpus = first_threads(node, &task->cpus);
	}
	if (r->policy == POLICY_GPU && !r->fixed)
		cut_pieces(node, plan);
	for (int t = 0; t < r->tasks; t++) {
		struct task_plan *task = &plan->task[t];
		task->numa = memory_of(node, &task->cpus);
		task->distance = !all->count ? -1 :
			group_distance(node, r, &all->group[group_of[t]], cpuset_empty(&task->cpus) ? &r->allowed : &task->cpus);
	}
	return count_threads(node, r, plan);
}

static void give_devices(const struct request *r, const struct groups *all, const int *group_of, struct plan *plan)
{
	for (int d = 0; d < r->devices; d++)
		cpuset_add(&plan->idle, d);
	for (int t = 0; all->count && t < r->tasks; t++) {
		const struct group *g = &all->group[group_of[t]];
		plan->task[t].devices = g->devices;
		for (int i = 0; i < g->devices; i++) {
			plan->task[t].device[i] = g->device[i];
			plan->idle.word[g->device[i] / 64] &= ~(UINT64_C(1) << (g->device[i] % 64));
		}
	}
}

int place_tasks(const struct node *node, const struct request *request, struct plan *plan)
{
	struct groups all = { 0 };
	int *group_of = NULL, rc = -1;

	*plan = (struct plan){ 0 };
	if (request->gpus_per_task <= TASK_MAX_DEVICES && make_groups(node, request, &all))
		goto out_of_memory;
	if (refuse(request, &all, plan))
		goto out;
	group_of = calloc((size_t)request->tasks, sizeof *group_of);
	plan->task = calloc((size_t)request->tasks, sizeof *plan->task);
	if (!group_of || !plan->task)
		goto out_of_memory;
	plan->tasks = request->tasks;
	const struct cpuset *masks = masks_of(request);
	if (all.count && masks) {
		if (deal_near(node, request, masks, &all, group_of))
			goto out_of_memory;
	} else if (all.count) {
		deal_free(request, &all, group_of);
	}
	give_devices(request, &all, group_of, plan);
	if (choose_cpus(node, request, &all, group_of, plan))
		goto out_of_memory;
	choose_nics(node, request, plan);
	rc = 0;
	goto out;
out_of_memory:
	snprintf(plan->refusal, sizeof plan->refusal, "out of memory");
out:
	if (rc) {
		free(plan->task);
		plan->task = NULL;
		plan->tasks = 0;
	}
	free(group_of);
	free(all.group);
	return rc;
}

void plan_free(struct plan *plan)
{
	free(plan->task);
	plan->task = NULL;
	plan->tasks = 0;
}
