/* SPDX-License-Identifier: Apache-2.0
 * Processes that run the runtime's mesh on simulated links, in simulated time: one thread of this process carries them out in turns, which a seed draws. They
 * may stop wherever they take or give a lock, send, or wait. Seconds of deadlines take milliseconds, and a history can be seen again by its seed.
 * The linker puts these functions in the place of the system's (Makefile). */
#ifndef TEST_SIMULATION_H
#define TEST_SIMULATION_H

#include "tests/unit/simulation_links.h"

/* ---- the rest of the runtime ---------------------------------------------------------------------------- */

int refuse(char why[WHY_BYTES], int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, WHY_BYTES, format, args);
	va_end(args);
	return status;
}

int queue_drain(struct hvd *h)
{
	(void)h;
	return 0;
}

void queue_reset(struct hvd *h)
{
	(void)h;
}

/* ---- what happens to processes ---------------------------------------------------------------------------- */

static void end_process_of(int rank)
{
	struct process *p = &processes[rank];
	bool listener_first = below(8);
	if (p->dead)
		return;
	p->dead = true;
	p->frozen = false;
	p->closings = 0;
	if (listener_first)
		p->closing[p->closings++] = -1;
	for (int i = 0; i < FDS; i++)
		if (descriptors[i].kind != UNUSED && descriptors[i].owner == rank)
			p->closing[p->closings++] = i;
	if (!listener_first)
		p->closing[p->closings++] = -1;
	p->next_close = simulated + share() * 0.002 + (below(16) ? 0 : share() * 0.5);
}

int __wrap_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal)
{
	(void)signal;
	end_process_of(pid - 1000);
	return 0;
}

/* The system closes what dead processes had open. */
static void close_for_the_dead(void)
{
	for (int r = 0; r < ranks; r++) {
		struct process *p = &processes[r];
		while (p->dead && p->closings && simulated >= p->next_close) {
			int i = p->closing[0];
			memmove(p->closing, p->closing + 1, sizeof p->closing[0] * (size_t)--p->closings);
			if (i < 0)
				stop_listening(r);
			else if (descriptors[i].kind != UNUSED && descriptors[i].owner == r)
				end_descriptor(&descriptors[i]);
			if (!below(3))
				p->next_close = simulated + share() * 0.001 + (below(40) ? 0 : share() * 0.3);
		}
	}
}

static bool can_run(const struct task *k)
{
	const struct process *p = &processes[k->rank];
	if (p->dead || p->frozen)
		return false;
	switch (k->waits) {
	case READY:
		return true;
	case FOR_LOCK:
		return !p->locked;
	case FOR_CHANGE:
		return p->changes != k->changes || simulated >= k->until;
	case FOR_TIME:
		return simulated >= k->until;
	case FOR_WATCHER:
		return tasks[p->watcher].waits == OVER;
	case FOR_DESCRIPTORS:
		for (nfds_t i = 0; i < k->polls; i++)
			if (events(k->polled[i].fd, k->polled[i].events))
				return true;
		return simulated >= k->until;
	case OVER:
		break;
	}
	return false;
}

/* To the next moment at which something happens. False: nothing ever will. */
static bool let_time_pass(void)
{
	double next = 1e9;
	for (int i = 0; i < tasks_there; i++) {
		const struct task *k = &tasks[i];
		bool timed = k->waits == FOR_CHANGE || k->waits == FOR_TIME || k->waits == FOR_DESCRIPTORS;
		if (timed && !processes[k->rank].dead && !processes[k->rank].frozen && k->until < next)
			next = k->until;
	}
	for (int r = 0; r < ranks; r++) {
		const struct process *p = &processes[r];
		if (p->dead && p->closings && p->next_close < next)
			next = p->next_close;
		if (p->frozen && p->thaws < next)
			next = p->thaws;
	}
	if (next >= 1e9)
		return false;
	simulated = next > simulated ? next : simulated;
	for (int r = 0; r < ranks; r++)
		processes[r].frozen &= simulated < processes[r].thaws;
	return true;
}

/* One task goes on until it waits, or time passes. False: all is over. */
static bool one_step(void)
{
	int ready[TASKS_MAX], n = 0;
	close_for_the_dead();
	for (int i = 0; i < tasks_there; i++)
		if (can_run(&tasks[i]))
			ready[n++] = i;
	if (!n)
		return let_time_pass();
	running = ready[below(n)];
	current = tasks[running].rank;
	switch_to(&scheduler, &tasks[running].context, tasks[running].stack, STACK_BYTES);
	running = -1;
	return true;
}

/* Processes that have done nothing yet. */
static void begin_simulation(int count, uint64_t seed)
{
	ranks = count;
	dice = (seed + 1) * 0x9E3779B97F4A7C15;
	dice ^= dice >> 29;
	for (int i = 0; i < 10; i++)
		draw();
	simulated = 0;
	tasks_there = streams_there = 0;
	memset(descriptors, 0, sizeof descriptors);
	memset(processes, 0, sizeof processes);
}

#endif
