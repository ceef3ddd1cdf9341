/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's threads: every task of every loop runs exactly once, also when loops follow each other at once. */
#include <stdatomic.h>
#include <time.h>

#include "engine/cpu/team.h"
#include "error.h"
#include "test.h"

enum { THREADS = 5, MOST = 40, LOOPS = 20000 };

struct loop {
	int number;
	atomic_int times[MOST];
	atomic_int busy[THREADS];
	atomic_int wrong;
};

static void once(void *context, int task, int worker)
{
	struct loop *l = context;
	if (worker < 0 || worker >= THREADS || atomic_fetch_add(&l->busy[worker], 1))
		atomic_fetch_add(&l->wrong, 1);
	atomic_fetch_add(&l->times[task], 1);
	for (volatile int i = 0; i < (l->number * 7 + task) % 50; i++)
		;
	atomic_fetch_sub(&l->busy[worker], 1);
}

static void every_task_runs_once(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct cpu_team *team;
	assert_int_equal(cpu_team_open(&team, THREADS, &e), 0);
	static struct loop l;
	for (l.number = 0; l.number < LOOPS; l.number++) {
		int count = l.number % (MOST + 1);
		for (int i = 0; i < MOST; i++)
			atomic_store(&l.times[i], 0);
		cpu_team_run(team, count, once, &l);
		for (int i = 0; i < MOST; i++)
			assert_int_equal(atomic_load(&l.times[i]), i < count);
	}
	assert_int_equal(atomic_load(&l.wrong), 0);
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
