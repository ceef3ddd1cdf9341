/* SPDX-License-Identifier: Apache-2.0
 * Where a rank runs, on a node with more CPUs than a cpu_set_t has. */
#include "test.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "learn/world.h"

enum { NODE_CPUS = 2048 };

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);

/* As the kernel answers there; the task may use the upper half. */
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	(void)pid;
	if (8 * size < NODE_CPUS) {
		errno = EINVAL;
		return -1;
	}
	CPU_ZERO_S(size, set);
	for (int c = NODE_CPUS / 2; c < NODE_CPUS; c++)
		CPU_SET_S(c, size, set);
	return 0;
}

static void a_rank_has_the_threads_of_its_cpus(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct world w;
	char text[64];

	assert_int_equal(world_alone(&w, "test", &e), 0);
	assert_int_equal(w.places->threads, NODE_CPUS / 2);
	cpu_list(w.places->cpus, text, sizeof text);
	assert_string_equal(text, "1024-2047");
	world_close(&w);
}

static void what_the_step_gave_holds(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct world w;

	setenv("HVD_THREADS", "2000", 1);
	assert_int_equal(world_alone(&w, "test", &e), 0);
	assert_int_equal(w.places->threads, 2000);
	world_close(&w);
}

int main(void)
{
	unsetenv("HVD_THREADS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_has_the_threads_of_its_cpus),
		cmocka_unit_test(what_the_step_gave_holds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
