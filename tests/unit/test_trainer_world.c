/* SPDX-License-Identifier: Apache-2.0
 * Where a rank runs, on a node with more CPUs than a cpu_set_t has; and NCCL where libhvd finds it. */
#include "scratch.h"

#include <dlfcn.h>
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

/* A driver that shows a GPU, and no libraries but those of Python's wheels. */
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *library, const char *name);
static char opened[FILE_PATH];

void *__wrap_dlopen(const char *name, int flags)
{
	(void)flags;
	if (strstr(name, "/site-packages/"))
		snprintf(opened, sizeof opened, "%s", name);
	return !strcmp(name, "libcuda.so.1") || strstr(name, "/site-packages/") ? opened : NULL;
}

static int init(unsigned flags)
{
	return (int)flags;
}

static int count(int *devices)
{
	*devices = 1;
	return 0;
}

void *__wrap_dlsym(void *library, const char *name)
{
	(void)library;
	return !strcmp(name, "cuInit") ? (void *)(uintptr_t)init : (void *)(uintptr_t)count;
}

static void nccl_of_a_wheel_is_loaded_before_libhvd_looks_for_it(void **state)
{
	(void)state;
	static const char *const folders[] = { "lib", "lib/python3.99", "lib/python3.99/site-packages", "lib/python3.99/site-packages/nvidia",
					       "lib/python3.99/site-packages/nvidia/nccl", "lib/python3.99/site-packages/nvidia/nccl/lib" };
	struct error e = { 0 };
	struct world w;

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		assert_int_equal(mkdir(scratch_path("%s", folders[i]), 0777), 0);
	scratch_write(scratch_path("%s/libnccl.so.2", folders[5]), "", 0);
	setenv("VIRTUAL_ENV", scratch_path("."), 1);
	setenv("HVD_BACKEND", "cpu", 1);
	assert_int_equal(world_open(&w, "test", &e), 0);
	world_close(&w);
	assert_string_equal(opened, "");
	unsetenv("HVD_BACKEND");
	assert_int_equal(world_open(&w, "test", &e), 0);
	world_close(&w);
	assert_non_null(strstr(opened, "/nvidia/nccl/lib/libnccl.so.2"));
}

int main(void)
{
	unsetenv("HVD_THREADS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_has_the_threads_of_its_cpus),
		cmocka_unit_test(what_the_step_gave_holds),
		cmocka_unit_test_setup_teardown(nccl_of_a_wheel_is_loaded_before_libhvd_looks_for_it, scratch_make, scratch_remove),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
