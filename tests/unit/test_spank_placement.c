/* SPDX-License-Identifier: Apache-2.0
 * The placement core: what must hold on every machine. */
#include "spank_machine.h"

#include <glob.h>

#include "../../spank/assign.h"
#include "../../spank/cores.h"

/* ---- properties ---------------------------------------------------------------------------------- */

static void check_loads(const struct plan *plan)
{
	int load[STEP_MAX_DEVICES] = { 0 }, least = plan->tasks, most = 0;
	for (int t = 0; t < plan->tasks; t++) {
		assert_int_equal(plan->task[t].devices, 1);
		load[plan->task[t].device[0]]++;
	}
	for (int d = 0; d < request->devices; d++) {
		least = load[d] < least ? load[d] : least;
		most = load[d] > most ? load[d] : most;
		assert_int_equal(!load[d], cpuset_has(&plan->idle, d));
	}
	assert_true(most - least <= 1);
	if (plan->tasks >= request->devices)
		assert_true(least >= 1);
}

/* Non-empty, allowed, and near the GPU wherever the step has a core that is. */
static void check_masks(const struct plan *plan)
{
	for (int t = 0; t < plan->tasks; t++) {
		const struct task_plan *p = &plan->task[t];
		assert_true(p->threads >= 1);
		if (request->policy == POLICY_NONE) {
			assert_true(cpuset_empty(&p->cpus));
			continue;
		}
		assert_false(cpuset_empty(&p->cpus));
		assert_true(cpuset_within(&p->cpus, &request->allowed));
		struct cpuset memory = memory_of(node, &p->cpus);
		assert_true(cpuset_equal(&p->numa, &memory) && (node->numas == 0 || !cpuset_empty(&p->numa)));
		if (p->devices) {
			int possible = gpu_distance(node, &request->allowed, request->device[p->device[0]]);
			/* disjoint pieces of too few cores may miss the near one; whole domains never do */
			if (request->policy != POLICY_GPU)
				assert_int_equal(gpu_distance(node, &p->cpus, request->device[p->device[0]]), possible);
		}
	}
}

static void check_properties(void)
{
	struct plan plan;
	int rc = place_tasks(node, request, &plan);

	if (request->devices && request->tasks > request->devices && !request->share) {
		char both[64];
		assert_int_equal(rc, -1);
		snprintf(both, sizeof both, "%d tasks but %d GPU", request->tasks, request->devices);
		assert_non_null(strstr(plan.refusal, both));
		return;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(plan.tasks, request->tasks);
	if (request->devices)
		check_loads(&plan);
	check_masks(&plan);
	plan_free(&plan);
}

static void check_all_requests(void)
{
	int counts[] = { 1, 2, 3, 4, 6, 8, 16, node->gpus, 2 * node->gpus, node->cores };
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int policy = POLICY_SOCKET; policy <= POLICY_NONE; policy++)
			for (int order = ORDER_SPREAD; order <= ORDER_INTERLEAVE; order++)
				for (int share = 0; share < 2; share++) {
					if (counts[i] < 1)
						continue;
					ask_for(counts[i], (enum policy)policy, (enum order)order);
					request->share = share;
					request->no_smt = pick(2);
					check_properties();
					confine();
					check_properties();
				}
}

static void properties_hold_on_made_up_machines(void **state)
{
	(void)state;
	for (int i = 0; i < 150; i++) {
		random_machine();
		check_all_requests();
	}
}

static const char *const own_machines[] = { "c4140", "dgx-1v", "dgx-2", "dgx-a100", "dgx-h100", "gb200-tray" };

/* Loads machine n: our own descriptions, then the published ones as far as they are here. False behind the last. */
static bool next_machine(int n)
{
	const int own = (int)(sizeof own_machines / sizeof *own_machines);
	char pattern[4096];
	glob_t found;
	bool loaded;

	if (n < own)
		return load_named(own_machines[n]);
	snprintf(pattern, sizeof pattern, "%s/topologies/*.xml", shared_dir() ? shared_dir() : "/dev/null");
	loaded = !glob(pattern, 0, NULL, &found) && (size_t)(n - own) < found.gl_pathc;
	if (loaded)
		load_machine(found.gl_pathv[n - own]);
	globfree(&found);
	return loaded;
}

static void properties_hold_on_every_machine(void **state)
{
	int machines = 0;
	(void)state;

	for (; next_machine(machines); machines++) {
		assert_true(node->pus > 0 && node->cores > 0 && node->packages > 0);
		check_all_requests();
	}
	assert_true(machines >= (shared_dir() ? 6 + 14 : 6));
	if (!shared_dir())
		skip_because("the published machines: no ../shared/topologies");
}

/* ---- the order in which devices are found -------------------------------------------------------- */

static void shuffle_machine(struct node *from, struct node *to, int *new_index)
{
	*to = *from;
	for (int g = 0; g < from->gpus; g++)
		new_index[g] = g;
	for (int g = from->gpus - 1; g > 0; g--) {
		int k = pick(g + 1), other = new_index[g];
		new_index[g] = new_index[k];
		new_index[k] = other;
	}
	for (int g = 0; g < from->gpus; g++)
		to->gpu[new_index[g]] = from->gpu[g];
	for (int n = from->nics - 1; n > 0; n--) {
		int k = pick(n + 1);
		struct nic other = to->nic[n];
		to->nic[n] = to->nic[k];
		to->nic[k] = other;
	}
}

/* The same devices found in another order, and named in another order by Slurm: the same answer. */
static void check_other_enumeration(struct node *other, struct request *asked)
{
	int new_index[NODE_MAX_GPUS];
	struct plan a, b;

	shuffle_machine(node, other, new_index);
	*asked = *request;
	for (int d = 0; d < request->devices; d++)
		asked->device[request->devices - 1 - d] = new_index[request->device[d]];
	assert_int_equal(place_tasks(node, request, &a), place_tasks(other, asked, &b));
	for (int t = 0; t < a.tasks; t++) {
		assert_int_equal(a.task[t].devices, b.task[t].devices);
		for (int d = 0; d < a.task[t].devices; d++)
			assert_string_equal(node->gpu[request->device[a.task[t].device[d]]].at.pci, other->gpu[asked->device[b.task[t].device[d]]].at.pci);
		assert_true(cpuset_equal(&a.task[t].cpus, &b.task[t].cpus));
		assert_int_equal(a.task[t].threads, b.task[t].threads);
		if (a.task[t].nic >= 0)
			assert_string_equal(node->nic[a.task[t].nic].name, other->nic[b.task[t].nic].name);
	}
	plan_free(&a);
	plan_free(&b);
}

static void on_made_up_machines(struct node *other, struct request *asked)
{
	for (int i = 0; i < 400; i++) {
		random_machine();
		ask_for(1 + pick(10), (enum policy)pick(4), (enum order)pick(3));
		request->share = true;
		request->gpus_per_task = node->gpus ? 1 + pick(node->gpus) : 1;
		confine();
		check_other_enumeration(other, asked);
	}
}

static void the_answer_does_not_depend_on_enumeration(void **state)
{
	struct node *other = malloc(sizeof *other);
	struct request *asked = malloc(sizeof *asked);
	(void)state;

	assert_true(other && asked);
	on_made_up_machines(other, asked);
	for (int m = 0; next_machine(m); m++)
		for (int policy = POLICY_SOCKET; policy <= POLICY_NONE; policy++)
			for (int order = ORDER_SPREAD; order <= ORDER_INTERLEAVE; order++)
				for (int tasks = 1; tasks <= 2 * node->gpus; tasks += 1 + tasks / 4) {
					ask_for(tasks, (enum policy)policy, (enum order)order);
					request->share = true;
					check_other_enumeration(other, asked);
				}
	free(other);
	free(asked);
}

/* ---- optimality ---------------------------------------------------------------------------------- */

/* The best of all assignments, by trying every one: smallest total, then the first in lexicographic order. */
struct search {
	int tasks, places, best_cost, at[8], best[8], load[8];
	const unsigned char *cost;
};

static void try_all(struct search *s, int task, int cost)
{
	if (cost >= s->best_cost)
		return;
	if (task == s->tasks) {
		for (int p = 0; p < s->places; p++)
			if (s->load[p] < s->tasks / s->places)
				return;
		s->best_cost = cost;
		memcpy(s->best, s->at, sizeof s->best);
		return;
	}
	int most = s->tasks / s->places + (s->tasks % s->places > 0);
	for (int p = 0; p < s->places; p++) {
		if (s->load[p] == most)
			continue;
		s->load[p]++;
		s->at[task] = p;
		try_all(s, task + 1, cost + s->cost[task * s->places + p]);
		s->load[p]--;
	}
}

static void assignment_is_the_best_of_all(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct search s = { .tasks = 1 + pick(7), .places = 1 + pick(5), .best_cost = 1000 };
		unsigned char cost[8 * 8];
		int place_of[8], total = 0;
		for (int c = 0; c < s.tasks * s.places; c++)
			cost[c] = (unsigned char)pick(i % 2 ? 3 : 9);
		s.cost = cost;
		try_all(&s, 0, 0);
		assert_int_equal(assign_tasks(s.tasks, s.places, cost, place_of), 0);
		for (int t = 0; t < s.tasks; t++)
			total += cost[t * s.places + place_of[t]];
		assert_int_equal(total, s.best_cost);
		for (int t = 0; t < s.tasks; t++)
			assert_int_equal(place_of[t], s.best[t]);
	}
}

/* Total distance of the plan for at most 8 tasks and GPUs against every way to give these tasks GPUs under equal load;
 * masks fixed (as with --cpu-bind) or free. */
static void check_optimal(bool fix_masks)
{
	struct cpuset fixed[8];
	unsigned char cost[8 * 8];
	struct search s = { .tasks = request->tasks, .places = request->devices, .best_cost = 1000, .cost = cost };
	struct plan plan;
	int total = 0;

	for (int t = 0; t < s.tasks; t++) {
		fixed[t] = (struct cpuset){ 0 };
		cpuset_add(&fixed[t], node->pu[pick(node->pus)].cpu);
		for (int g = 0; g < s.places; g++)
			cost[t * s.places + g] = (unsigned char)gpu_distance(node, fix_masks ? &fixed[t] : &request->allowed, request->device[g]);
	}
	request->fixed = fix_masks ? fixed : NULL;
	try_all(&s, 0, 0);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < plan.tasks; t++)
		total += cost[t * s.places + plan.task[t].device[0]];
	assert_int_equal(total, s.best_cost);
	plan_free(&plan);
	request->fixed = NULL;
}

static void plans_are_optimal(void **state)
{
	(void)state;
	for (int i = 0; i < 600; i++) {
		random_machine();
		if (!node->gpus)
			continue;
		ask_for(1 + pick(7), POLICY_SOCKET, (enum order)pick(3));
		request->share = true;
		confine();
		check_optimal(i % 2);
	}
}

/* Every machine, 1 to 8 tasks, any part of its GPUs and CPUs. */
static void plans_are_optimal_on_every_machine(void **state)
{
	int checked = 0;
	(void)state;
	for (int m = 0; next_machine(m); m++)
		for (int i = 0; node->gpus && i < 48; i++, checked++) {
			ask_for(1 + i % 8, (enum policy)pick(3), (enum order)pick(3));
			request->share = true;
			while (request->devices > (i < 24 ? 6 : 3)) {
				int gone = pick(request->devices);
				memmove(request->device + gone, request->device + gone + 1, (size_t)(--request->devices - gone) * sizeof *request->device);
			}
			confine();
			check_optimal(i % 2);
		}
	assert_true(checked >= 6 * 48);
}

/* ---- details ------------------------------------------------------------------------------------- */

static void threads_are_the_share_less_one(void **state)
{
	static const int two[] = { 0, 1 };
	static const int same[] = { 0, 0 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 20, 2, two, 2, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].threads, 19);
	plan_free(&plan);
	/* two tasks over one package share it */
	make_machine(2, 1, 20, 2, same, 2, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[1].threads, 9);
	plan_free(&plan);
	/* a single core is never given away */
	make_machine(2, 1, 1, 1, two, 2, false);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].threads, 1);
	plan_free(&plan);
}

static void few_tasks_go_where_the_cores_are(void **state)
{
	static const int where[] = { 0, 0, 1, 1 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 4, true);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->allowed = node->package[1].cpus;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].device[0], 2);
	assert_int_equal(plan.task[1].device[0], 3);
	plan_free(&plan);
	/* which GPUs are used goes by the cores, who has which by the order: here all three give the same */
	for (int order = ORDER_SPREAD; order <= ORDER_INTERLEAVE; order++) {
		ask_for(3, POLICY_SOCKET, (enum order)order);
		request->allowed = node->package[1].cpus;
		assert_int_equal(place_tasks(node, request, &plan), 0);
		for (int t = 0; t < 3; t++)
			assert_int_equal(plan.task[t].device[0], t ? t + 1 : 0);
		plan_free(&plan);
	}
}

static void pack_begins_with_the_package_of_the_first_gpu(void **state)
{
	static const int where[] = { 0, 1, 1, 0 }, packed[] = { 0, 3, 1, 2 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 4, false);
	ask_for(4, POLICY_SOCKET, ORDER_PACK);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 4; t++)
		assert_int_equal(plan.task[t].device[0], packed[t]);
	plan_free(&plan);
}

/* Slurm's own CPUs of four tasks: socket after socket in turn, or the same for all. */
static void the_policy_none_deals_gpus_by_the_cpus_that_tasks_have(void **state)
{
	static const int where[] = { 0, 0, 1, 1 }, near[] = { 0, 2, 1, 3 }, in_turn[] = { 0, 2, 1, 3 };
	struct cpuset found[4] = { 0 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 4, false);
	for (int same = 0; same < 2; same++)
		for (int order = ORDER_SPREAD; order <= ORDER_INTERLEAVE; order++) {
			ask_for(4, POLICY_NONE, (enum order)order);
			for (int t = 0; t < 4; t++) {
				found[t] = same ? node->allowed : (struct cpuset){ 0 };
				cpuset_add(&found[t], t % 2 * 4 + t / 2);
			}
			request->found = found;
			assert_int_equal(place_tasks(node, request, &plan), 0);
			for (int t = 0; t < 4; t++) {
				assert_int_equal(plan.task[t].device[0], !same ? near[t] : order == ORDER_INTERLEAVE ? in_turn[t] : t);
				assert_true(cpuset_empty(&plan.task[t].cpus) && cpuset_empty(&plan.task[t].numa));
			}
			plan_free(&plan);
		}
	/* with CPUs of the plan's own, what Slurm had bound is nothing to go by */
	ask_for(4, POLICY_SOCKET, ORDER_SPREAD);
	for (int t = 0; t < 4; t++)
		found[t] = node->package[t % 2].cpus;
	request->found = found;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 4; t++)
		assert_int_equal(plan.task[t].device[0], t);
	plan_free(&plan);
	/* threads are for the cores that a task is left with */
	ask_for(2, POLICY_NONE, ORDER_SPREAD);
	found[0] = node->package[0].cpus;
	found[1] = (struct cpuset){ 0 };
	cpuset_add(&found[1], cpuset_next(&node->package[1].cpus, 0));
	request->found = found;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	struct cpuset cores = cores_of(node, &found[0]);
	assert_int_equal(plan.task[0].threads, cpuset_count(&cores) - 1);
	assert_int_equal(plan.task[1].threads, 1);
	plan_free(&plan);
	/* a task alone */
	ask_for(1, POLICY_NONE, ORDER_SPREAD);
	found[0] = node->package[1].cpus;
	request->found = found;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].device[0], 2);
	plan_free(&plan);
}

static void nics_are_near_and_shared_out(void **state)
{
	static const int where[] = { 0, 0, 1, 1 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 4, false);
	node->nics = 4;
	for (int n = 0; n < 4; n++) {
		node->nic[n].at = (struct locality){ .order = (uint64_t)(64 + n), .numa = n / 2, .package = n / 2, .cpus = node->numa[n / 2].cpus };
		snprintf(node->nic[n].name, sizeof node->nic[n].name, "mlx5_%d", n);
	}
	ask_for(4, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 4; t++)
		assert_int_equal(plan.task[t].nic, t);
	plan_free(&plan);
	/* a card without a link is passed over */
	node->nic[0].port = 0;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].nic, 1);
	assert_int_equal(plan.task[1].nic, 1);
	plan_free(&plan);
	/* behind the same switch beats the same package */
	node->gpu[0].at.bridges = node->nic[3].at.bridges = 2;
	node->gpu[0].at.bridge[0] = node->nic[3].at.bridge[0] = 7;
	node->gpu[0].at.bridge[1] = node->nic[3].at.bridge[1] = 8;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].nic, 3);
	plan_free(&plan);
	/* and where none has a link, none is named */
	node->nic[1].port = node->nic[2].port = node->nic[3].port = 0;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 4; t++)
		assert_int_equal(plan.task[t].nic, -1);
	plan_free(&plan);
}

static void refusals_say_both_numbers(void **state)
{
	static const int where[] = { 0, 1 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 2, false);
	ask_for(3, POLICY_SOCKET, ORDER_SPREAD);
	assert_int_equal(place_tasks(node, request, &plan), -1);
	assert_string_equal(plan.refusal, "3 tasks but 2 GPUs");
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), -1);
	assert_string_equal(plan.refusal, "2 tasks with 2 GPUs each but 2 GPUs");
	request->gpus_per_task = 4;
	assert_int_equal(place_tasks(node, request, &plan), -1);
	assert_string_equal(plan.refusal, "gpus-per-task=4 but 2 GPUs");
	/* instances that a user's own --gpu-bind leaves to one task */
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = request->devices = TASK_MAX_DEVICES + 1;
	assert_int_equal(place_tasks(node, request, &plan), -1);
	assert_string_equal(plan.refusal, "65 GPUs for one task: at most 64 are possible");
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->allowed = (struct cpuset){ 0 };
	assert_int_equal(place_tasks(node, request, &plan), -1);
	assert_string_equal(plan.refusal, "the step has no CPU of this node");
}

static void groups_of_gpus_stay_together(void **state)
{
	/* GPU numbers alternate between packages: pairs by number would all be split */
	static const int where[] = { 0, 1, 0, 1, 0, 1 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 6, 1, where, 6, false);
	ask_for(3, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	int split = 0;
	for (int t = 0; t < 3; t++)
		split += plan.task[t].device[0] % 2 != plan.task[t].device[1] % 2;
	assert_int_equal(split, 1); /* three and three make one mixed pair, no more */
	plan_free(&plan);
	ask_for(2, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 3;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].device[2], 4);
	assert_int_equal(plan.task[1].device[0], 1);
	plan_free(&plan);
}

static void pairs_are_made_inside_a_numa_node_first(void **state)
{
	/* four NUMA nodes in two packages: pairs by number would each lie in two nodes of one package */
	static const int where[] = { 0, 1, 0, 1, 2, 3, 2, 3 };
	struct plan plan;
	(void)state;

	make_machine(2, 2, 2, 1, where, 8, false);
	ask_for(4, POLICY_NUMA, ORDER_SPREAD);
	request->gpus_per_task = 2;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 4; t++)
		assert_int_equal(where[plan.task[t].device[0]], where[plan.task[t].device[1]]);
	plan_free(&plan);
}

static void a_task_is_as_far_as_from_the_farthest_of_its_gpus(void **state)
{
	static const int where[] = { 0, 2, 1 };
	struct plan plan;
	(void)state;

	make_machine(2, 2, 2, 1, where, 3, false);
	ask_for(1, POLICY_SOCKET, ORDER_SPREAD);
	request->gpus_per_task = 3;
	request->allowed = node->numa[0].cpus;
	assert_int_equal(place_tasks(node, request, &plan), 0);
	assert_int_equal(plan.task[0].distance, 2);
	plan_free(&plan);
}

/* GPUs of unknown place, such as MIG instances without a driver to ask, come last, and are far from nothing; instances of one GPU keep Slurm's order. */
static void gpus_of_unknown_place_come_last(void **state)
{
	static const int where[] = { 0, 1 }, devices[] = { -1, 1, 0, -1, 0 }, expected[] = { 2, 4, 1, 0, 3 };
	struct plan plan;
	(void)state;

	make_machine(2, 1, 4, 1, where, 2, false);
	ask_for(5, POLICY_SOCKET, ORDER_SPREAD);
	request->devices = 5;
	memcpy(request->device, devices, sizeof devices);
	assert_int_equal(place_tasks(node, request, &plan), 0);
	for (int t = 0; t < 5; t++) {
		assert_int_equal(plan.task[t].device[0], expected[t]);
		assert_int_equal(plan.task[t].distance, 0);
	}
	plan_free(&plan);
}

static void one_numa_node_over_two_packages(void **state)
{
	/* with memory interleaved by the firmware the package is what tells near from far */
	static const int where[] = { 0, 0 };
	(void)state;

	make_machine(2, 1, 2, 1, where, 2, false);
	node->numas = 1;
	node->numa[0].cpus = node->allowed;
	node->gpu[0].at.package = 0;
	node->gpu[1].at.package = 1;
	node->gpu[1].at.cpus = node->package[1].cpus;
	assert_int_equal(gpu_distance(node, &node->package[0].cpus, 0), 0);
	assert_int_equal(gpu_distance(node, &node->package[0].cpus, 1), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(properties_hold_on_made_up_machines),
		cmocka_unit_test(properties_hold_on_every_machine),
		cmocka_unit_test(the_answer_does_not_depend_on_enumeration),
		cmocka_unit_test(assignment_is_the_best_of_all),
		cmocka_unit_test(plans_are_optimal),
		cmocka_unit_test(plans_are_optimal_on_every_machine),
		cmocka_unit_test(threads_are_the_share_less_one),
		cmocka_unit_test(few_tasks_go_where_the_cores_are),
		cmocka_unit_test(pack_begins_with_the_package_of_the_first_gpu),
		cmocka_unit_test(the_policy_none_deals_gpus_by_the_cpus_that_tasks_have),
		cmocka_unit_test(nics_are_near_and_shared_out),
		cmocka_unit_test(refusals_say_both_numbers),
		cmocka_unit_test(groups_of_gpus_stay_together),
		cmocka_unit_test(pairs_are_made_inside_a_numa_node_first),
		cmocka_unit_test(a_task_is_as_far_as_from_the_farthest_of_its_gpus),
		cmocka_unit_test(gpus_of_unknown_place_come_last),
		cmocka_unit_test(one_numa_node_over_two_packages),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
