/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's threads: every task of every loop runs exactly once, also when loops follow each other at once.
 *
 * What is tested is a copy of the source in which a thread may be held up before whatever others see of it: left alone, a thread that comes
 * late by a whole loop is a matter of days. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "error.h"
#include "test.h"

static void hold_up(void)
{
	static _Thread_local uint32_t random;
	random = random * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&random;
	if (random >> 24 < 8)
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	else if (random >> 24 < 32)
		sched_yield();
}

#undef atomic_load
#undef atomic_store
#undef atomic_fetch_add
#undef atomic_compare_exchange_weak
#define atomic_load(at) (hold_up(), atomic_load_explicit(at, memory_order_seq_cst))
#define atomic_store(at, value) (hold_up(), atomic_store_explicit(at, value, memory_order_seq_cst))
#define atomic_fetch_add(at, value) (hold_up(), atomic_fetch_add_explicit(at, value, memory_order_seq_cst))
#define atomic_compare_exchange_weak(at, old, value) \
	(hold_up(), atomic_compare_exchange_weak_explicit(at, old, value, memory_order_seq_cst, memory_order_seq_cst))
#define cpu_team_open held_up_team_open
#define cpu_team_run held_up_team_run
#define cpu_team_close held_up_team_close
#include "engine/cpu/team.c"

enum { THREADS = 5, MOST = 7, LOOPS = 2000 };

struct loop {
	int number;
	atomic_int times[MOST];
	atomic_int busy[THREADS];
	atomic_int wrong;
};

static void once(void *context, int task, int worker)
{
	struct loop *l = context;
	if (worker < 0 || worker >= THREADS || l->busy[worker]++)
		l->wrong++;
	l->times[task]++;
	for (volatile int i = 0; i < (l->number * 7 + task) % 50; i++)
		;
	l->busy[worker]--;
}

static void every_task_runs_once(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct cpu_team *team;
	assert_int_equal(cpu_team_open(&team, THREADS, &e), 0);
	static struct loop loops[2]; /* in turns: who comes late with the one before does what was done, and leaves out what is to be done */
	for (int number = 0, count = 0, before = 0; number < LOOPS; number++, before = count) {
		struct loop *l = &loops[number & 1];
		count = number % (MOST + 1);
		l->number = number;
		for (int i = 0; i < MOST; i++)
			atomic_init(&l->times[i], 0);
		cpu_team_run(team, count, once, l);
		for (int i = 0; i < MOST; i++) {
			assert_int_equal(l->times[i], i < count);
			assert_int_equal(loops[~number & 1].times[i], i < before);
		}
	}
	assert_int_equal(loops[0].wrong + loops[1].wrong, 0);
	cpu_team_close(team);
}

static void nap(void *context, int task, int worker)
{
	(void)task;
	(void)worker;
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	atomic_fetch_add((atomic_int *)context, 1);
}

/* Long tasks: the caller sleeps until the last one, and a team wakes up again after a pause. */
static void waits_for_sleeping_tasks(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct cpu_team *team;
	atomic_int done = 0;
	assert_int_equal(cpu_team_open(&team, THREADS, &e), 0);
	for (int i = 1; i <= 3; i++) {
		cpu_team_run(team, 2 * THREADS, nap, &done);
		assert_int_equal(atomic_load(&done), 2 * THREADS * i);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	cpu_team_close(team);
}

static void opens_and_closes_at_once(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		struct error e = { 0 };
		struct cpu_team *team;
		assert_int_equal(cpu_team_open(&team, 1 + i % THREADS, &e), 0);
		cpu_team_close(team);
	}
	cpu_team_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_task_runs_once),
		cmocka_unit_test(waits_for_sleeping_tasks),
		cmocka_unit_test(opens_and_closes_at_once),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
