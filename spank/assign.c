/* SPDX-License-Identifier: Apache-2.0
 * Minimum-cost flow by shortest augmenting paths. A path goes from place to place: a task that enters place a pushes
 * another one from a to b, and so on, until a place has room. */
#include "assign.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

enum { FAR = INT_MAX / 4, SLOT = -1, NOBODY = -2 };

struct problem {
	int tasks, places, base; /* every place carries base or base + 1 tasks in the end */
	const unsigned char *cost;
	int *place_of;           /* [tasks], -1 not yet placed */
	int *load;               /* [places] */
	int *step;               /* [places][places] cheapest way to push one task from a to b */
	int *mover;              /* [places][places] the task that goes; SLOT: none, the place itself gives up its extra room */
	int *length;             /* [places] */
	int *next;               /* [places] */
};

static int cost_of(const struct problem *p, int task, int place)
{
	return p->cost[task * p->places + place];
}

/* Prices of all pushes that move only tasks after `fixed`. */
static void price_steps(struct problem *p, int fixed)
{
	for (int i = 0; i < p->places * p->places; i++) {
		p->step[i] = FAR;
		p->mover[i] = NOBODY;
	}
	for (int t = fixed + 1; t < p->tasks; t++) {
		int a = p->place_of[t];
		if (a < 0)
			continue;
		for (int b = 0; b < p->places; b++) {
			int price = cost_of(p, t, b) - cost_of(p, t, a);
			if (b != a && price < p->step[a * p->places + b]) {
				p->step[a * p->places + b] = price;
				p->mover[a * p->places + b] = t;
			}
		}
	}
}

/* Where a has no extra task and b has one, a may keep one more and b one less. */
static void price_slots(struct problem *p)
{
	for (int a = 0; a < p->places; a++)
		for (int b = 0; b < p->places; b++)
			if (p->load[a] == p->base && p->load[b] == p->base + 1 && p->step[a * p->places + b] > 0) {
				p->step[a * p->places + b] = 0;
				p->mover[a * p->places + b] = SLOT;
			}
}

/* Bellman-Ford towards the ends: length[a] becomes the cheapest way from a to an end, next[a] its first step. */
static void shortest_ways(struct problem *p)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (int a = 0; a < p->places; a++)
			for (int b = 0; b < p->places; b++) {
				int way = p->step[a * p->places + b];
				if (way < FAR && p->length[b] < FAR && way + p->length[b] < p->length[a]) {
					p->length[a] = way + p->length[b];
					p->next[a] = b;
					changed = true;
				}
			}
	}
}

static void walk(struct problem *p, int a)
{
	for (int b; (b = p->next[a]) >= 0; a = b) {
		int who = p->mover[a * p->places + b];
		if (who == SLOT) {
			p->load[a]++;
			p->load[b]--;
		} else {
			p->place_of[who] = b;
		}
	}
}

static void add_task(struct problem *p, int task)
{
	int best = 0, end;

	price_steps(p, -1);
	for (int a = 0; a < p->places; a++) {
		/* a place below its base load must be filled before anyone gets an extra task */
		p->length[a] = p->load[a] < p->base ? -1000 * p->places : p->load[a] == p->base ? 0 : FAR;
		p->next[a] = -1;
	}
	shortest_ways(p);
	for (int a = 1; a < p->places; a++)
		if (cost_of(p, task, a) + p->length[a] < cost_of(p, task, best) + p->length[best])
			best = a;
	for (end = best; p->next[end] >= 0; end = p->next[end])
		;
	walk(p, best);
	p->place_of[task] = best;
	p->load[end]++;
}

/* Moves the task to the first place that it can have at no extra cost, leaving the tasks before it alone. */
static void prefer_first(struct problem *p, int task)
{
	int home = p->place_of[task];

	price_steps(p, task);
	price_slots(p);
	for (int a = 0; a < p->places; a++) {
		p->length[a] = FAR;
		p->next[a] = -1;
	}
	p->length[home] = 0;
	shortest_ways(p);
	for (int a = 0; a < home; a++)
		if (p->length[a] < FAR && cost_of(p, task, a) - cost_of(p, task, home) + p->length[a] == 0) {
			walk(p, a);
			p->place_of[task] = a;
			return;
		}
}

int assign_tasks(int tasks, int places, const unsigned char *cost, int *place_of)
{
	size_t n = (size_t)places;
	int *room = calloc(2 * n * n + 3 * n, sizeof *room);

	if (!room)
		return -1;
	struct problem p = {
		.tasks = tasks, .places = places, .base = tasks / places, .cost = cost, .place_of = place_of,
		.step = room, .mover = room + n * n, .load = room + 2 * n * n, .length = room + 2 * n * n + n, .next = room + 2 * n * n + 2 * n,
	};
	for (int t = 0; t < tasks; t++)
		place_of[t] = -1;
	for (int t = 0; t < tasks; t++)
		add_task(&p, t);
	for (int t = 0; t < tasks; t++)
		prefer_first(&p, t);
	free(room);
	return 0;
}
