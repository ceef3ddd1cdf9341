/* SPDX-License-Identifier: Apache-2.0
 * A process that is not in a job step is a world of one, in which every call works. */
#include "tests/unit/test.h"

#include "runtime/hvd.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

static void every_call_works_without_a_step(void **state)
{
	(void)state;
	struct hvd *h;
	unsetenv("SLURM_STEP_NUM_TASKS");
	unsetenv("PMIX_NAMESPACE");
	assert_int_equal(hvd_init(&h, NULL), 0);
	const struct hvd_world *w = hvd_world(h);
	assert_int_equal(w->rank, 0);
	assert_int_equal(w->size, 1);
	assert_int_equal(w->local_size, 1);
	assert_int_equal(w->nodes, 1);
	assert_string_equal(w->backend, "single");
	assert_true(strlen(hvd_host(h, 0)) > 0);
	assert_int_equal(hvd_lost(h), -1);

	double in[3] = { 1, 2, 3 }, out[3] = { 0 };
	assert_int_equal(hvd_allreduce(h, in, out, 3, HVD_F64, HVD_AVG), 0);
	assert_memory_equal(in, out, sizeof in);
	assert_int_equal(hvd_broadcast(h, out, 3, HVD_F64, 0), 0);
	out[0] = 7;
	assert_int_equal(hvd_allgather(h, in, out, 3, HVD_F64), 0);
	assert_memory_equal(in, out, sizeof in);
	assert_int_equal(hvd_barrier(h), 0);
	assert_int_equal(hvd_close(h), 0);
}

static void wrong_arguments_are_refused_with_a_reason(void **state)
{
	(void)state;
	struct hvd *h;
	assert_int_equal(hvd_init(&h, NULL), 0);
	int32_t x = 1;
	assert_int_equal(hvd_allreduce(h, &x, &x, 1, HVD_I32, HVD_AVG), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), "floating-point"));
	assert_int_equal(hvd_allreduce(h, &x, &x, 1, (enum hvd_type)(HVD_U64 + 1), HVD_SUM), HVD_EINVAL);
	assert_string_equal(hvd_error(h), "no such type or operation (8, 0)");
	assert_int_equal(hvd_allreduce(h, &x, &x, 1, HVD_I32, (enum hvd_op)(HVD_MAX + 1)), HVD_EINVAL);
	assert_int_equal(hvd_broadcast(h, &x, 1, HVD_I32, 1), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), "rank 1 of 1"));
	assert_int_equal(hvd_allgatherv(h, &x, &x, NULL, HVD_I32), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), "no sizes"));
	assert_null(hvd_host(h, 1));
	assert_null(hvd_host(h, -1));
	hvd_close(h);

	struct hvd_conf conf;
	char why[256];
	setenv("HVD_DEADLINE", "soon", 1);
	assert_int_equal(hvd_conf_default(&conf, why), HVD_EINVAL);
	assert_non_null(strstr(why, "HVD_DEADLINE=soon"));
	assert_int_equal(hvd_init(&h, NULL), HVD_EINVAL);
	assert_int_equal(hvd_allreduce(h, &x, &x, 1, HVD_I32, HVD_SUM), HVD_EINVAL); /* by a program that did not look */
	assert_int_equal(hvd_start_broadcast(h, &x, 1, HVD_I32, 0), HVD_EINVAL);
	struct hvd *part;
	struct hvd_plan *plan;
	assert_int_equal(hvd_split(h, HVD_SPLIT_NODE, &part), HVD_EINVAL);
	assert_int_equal(hvd_plan_open(h, &plan, &(struct hvd_tensor){ .name = "w", .count = 1 }, 1, 0), HVD_EINVAL);
	assert_null(part);
	assert_null(plan);
	assert_non_null(strstr(hvd_error(h), "HVD_DEADLINE=soon"));
	hvd_close(h);
	unsetenv("HVD_DEADLINE");
}

static void settings_are_refused(struct hvd_conf conf, const char *word)
{
	struct hvd *h;
	assert_int_equal(hvd_init(&h, &conf), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), word));
	hvd_close(h);
}

static void settings_of_the_program_are_looked_at_too(void **state)
{
	(void)state;
	struct hvd_conf good, conf;
	char why[256];
	assert_int_equal(hvd_conf_default(&good, why), 0);
	conf = good, conf.backend = "gloo"; /* was taken for auto */
	settings_are_refused(conf, "backend");
	for (int i = 0; i < 4; i++) { /* not a number: ranks waited for ever */
		conf = good, conf.deadline = (const double[]){ 0, -1, 1e9, NAN }[i];
		settings_are_refused(conf, "deadline");
	}
	conf = good, conf.on_death = 2;
	settings_are_refused(conf, "on_death");
	conf = good, conf.deadline = 86401;
	settings_are_refused(conf, "deadline");
	conf = good, conf.deadline = 86400, conf.on_death = -1;
	settings_are_refused(conf, "on_death");
	conf = good, conf.wire = HVD_I32;
	settings_are_refused(conf, "wire");
	settings_are_refused((struct hvd_conf){ .size = sizeof conf }, "hvd_conf_default");
	settings_are_refused((struct hvd_conf){ .size = 0 }, "hvd_conf_default");
}

/* NULL: nothing is set; otherwise NAME=VALUE. Returns the settings, or why there are none ([256]; gcc 11 would take that for the setting's size). */
static struct hvd_conf conf_with(const char *setting, char *why)
{
	struct hvd_conf conf;
	char name[32] = "";
	if (setting) {
		memcpy(name, setting, strcspn(setting, "="));
		setenv(name, strchr(setting, '=') + 1, 1);
	}
	memset(why, 0, 256);
	int status = hvd_conf_default(&conf, why);
	unsetenv(name);
	assert_int_equal(status, *why ? HVD_EINVAL : 0);
	return conf;
}

static void settings_of_the_environment_are_read_or_refused(void **state)
{
	(void)state;
	char why[256];
	static const char *const none[] = { NULL, "HVD_BACKEND=", "HVD_ON_DEATH=", "HVD_WIRE=", "HVD_SYNC=", "HVD_DEADLINE=", "HVD_PLAN=", "HVD_TRACE=", "HVD_IFACE=",
					    "HVD_BACKEND=auto", "HVD_ON_DEATH=abort", "HVD_WIRE=f32", "HVD_SYNC=0", "HVD_DEADLINE=60" };
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		struct hvd_conf conf = conf_with(none[i], why);
		assert_string_equal(conf.backend, "auto");
		assert_true(conf.deadline == 60 && conf.on_death == 0 && conf.wire == HVD_F32 && conf.sync == 0);
		assert_true(!conf.plan && !conf.trace && !conf.interface && conf.size == sizeof conf);
	}
	assert_string_equal(conf_with("HVD_BACKEND=cpu", why).backend, "cpu");
	assert_string_equal(conf_with("HVD_BACKEND=nccl", why).backend, "nccl");
	assert_int_equal(conf_with("HVD_ON_DEATH=continue", why).on_death, 1);
	assert_int_equal(conf_with("HVD_WIRE=bf16", why).wire, HVD_BF16);
	assert_int_equal(conf_with("HVD_SYNC=1", why).sync, 1);
	assert_true(conf_with("HVD_DEADLINE=1", why).deadline == 1 && !*why);
	assert_true(conf_with("HVD_DEADLINE=86400", why).deadline == 86400 && !*why);
	assert_true(conf_with("HVD_DEADLINE=86400.00", why).deadline == 86400 && !*why);
	assert_true(conf_with("HVD_DEADLINE=02.30", why).deadline == 2.3 && !*why); /* as a program's own 2.3: all ranks must have the same */

	static const char *const wrong[][2] = {
		{ "HVD_BACKEND=gloo", "HVD_BACKEND=gloo: must be one of auto cpu nccl" },
		{ "HVD_ON_DEATH=pray", "HVD_ON_DEATH=pray: must be one of abort continue" },
		{ "HVD_WIRE=f16", "HVD_WIRE=f16: must be one of f32 bf16" },
		{ "HVD_SYNC=yes", "HVD_SYNC=yes: must be one of 0 1" },
		{ "HVD_DEADLINE=0.9", "HVD_DEADLINE=0.9: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=86400.5", "HVD_DEADLINE=86400.5: must be seconds, from 1 to 86400" },
		/* what srun --hvd=deadline refuses, too */
		{ "HVD_DEADLINE=1e1", "HVD_DEADLINE=1e1: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=0x10", "HVD_DEADLINE=0x10: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE= 5", "HVD_DEADLINE= 5: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=+5", "HVD_DEADLINE=+5: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=5.", "HVD_DEADLINE=5.: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=5.1.2", "HVD_DEADLINE=5.1.2: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=60s", "HVD_DEADLINE=60s: must be seconds, from 1 to 86400" },
		{ "HVD_DEADLINE=nan", "HVD_DEADLINE=nan: must be seconds, from 1 to 86400" },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		conf_with(wrong[i][0], why);
		assert_string_equal(why, wrong[i][1]);
	}
}

static void a_tensor_has_a_name(void **state)
{
	(void)state;
	const struct hvd_tensor t[] = { { "a", 1 }, { NULL, 1 } };
	struct hvd_plan *p;
	struct hvd *h;
	assert_int_equal(hvd_init(&h, NULL), 0);
	assert_int_equal(hvd_plan_open(h, &p, t, 2, 0), HVD_EINVAL);
	assert_null(p);
	assert_string_equal(hvd_error(h), "hvd_plan_open: tensor 1 has no name");
	hvd_close(h);
}

/* As archives leave them: such a name was free to the one who asked, and taken for the one who opened. */
static void a_link_to_nothing_has_the_name_of_a_trace(void **state)
{
	(void)state;
	char folder[1024], path[1100];
	struct hvd_conf conf;
	struct hvd *h;
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	snprintf(path, sizeof path, "%s/local.0-rank00000.hvdtrace", folder);
	assert_int_equal(symlink("/nonexistent/trace", path), 0);
	assert_int_equal(hvd_conf_default(&conf, path), 0);
	conf.trace = folder;
	alarm(60);
	assert_int_equal(hvd_init(&h, &conf), 0);
	alarm(0);
	hvd_close(h);
	snprintf(path, sizeof path, "%s/local.0-rank00000.hvdtrace", folder);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof path, "%s/local.0.2-rank00000.hvdtrace", folder);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void a_node_that_did_not_place_its_tasks_is_named(void **state)
{
	(void)state;
	struct hvd *h;
	setenv("SLURMD_NODENAME", "n7", 1);
	setenv("SLURM_HVD_STEP", "socket,joined,hide-gpus", 1);
	assert_int_equal(hvd_init(&h, NULL), HVD_EBOOT);
	assert_non_null(strstr(hvd_error(h), "n7 does not load spank_hvd.so, which srun counted on, so its tasks are not placed: is it installed there for its Slurm, and in its plugstack.conf?"));
	hvd_close(h);
	/* Slurm's own binding is in force */
	setenv("SLURM_HVD_STEP", "socket,joined,keep-gpus", 1);
	assert_int_equal(hvd_init(&h, NULL), 0);
	hvd_close(h);
	unsetenv("SLURM_HVD_STEP");
	unsetenv("SLURMD_NODENAME");
}

static void only_a_request_that_was_started_can_be_waited_for(void **state)
{
	(void)state;
	struct hvd *h;
	float x = 1;
	assert_int_equal(hvd_init(&h, NULL), 0);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(hvd_wait(h, 77), HVD_EINVAL);
		assert_non_null(strstr(hvd_error(h), "no such request: 77"));
		assert_int_equal(hvd_test(h, 77), HVD_EINVAL);
		long failed = hvd_start_broadcast(h, &x, 1, HVD_F32, 9);
		assert_int_equal(failed, HVD_EINVAL);
		assert_int_equal(hvd_wait(h, failed), HVD_EINVAL);
		assert_int_equal(hvd_test(h, failed), HVD_EINVAL);
		long request = hvd_start_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM);
		assert_true(request >= 0);
		assert_int_equal(hvd_wait(h, request), 0);
		assert_int_equal(hvd_test(h, request), 1);
		assert_int_equal(hvd_wait(h, request + 1), HVD_EINVAL);
		assert_int_equal(hvd_wait(h, request + (1L << 32)), HVD_EINVAL);
	}
	hvd_close(h);
}

static void *nothing(void *arg)
{
	return arg;
}

/* Thread-local memory of a library comes off every thread's stack. */
static void threads_of_the_program_may_have_small_stacks(void **state)
{
	(void)state;
	pthread_attr_t small;
	pthread_t thread;
	struct hvd *h;
	const long least = sysconf(_SC_THREAD_STACK_MIN); /* 128 KiB on ARM */
	assert_int_equal(hvd_init(&h, NULL), 0);
	assert_int_equal(pthread_attr_init(&small), 0);
	assert_int_equal(pthread_attr_setstacksize(&small, least > 64 << 10 ? (size_t)least : 64 << 10), 0);
	assert_int_equal(pthread_create(&thread, &small, nothing, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&small);
	hvd_close(h);
}

static void sizes_beyond_memory_are_refused(void **state)
{
	(void)state;
	const struct hvd_tensor tensors[] = { { "a", 1000 }, { "b", (size_t)-1 } }, sum[] = { { "a", SIZE_MAX / 8 }, { "b", SIZE_MAX / 8 + 2 } };
	struct hvd *h;
	struct hvd_plan *p;
	assert_int_equal(hvd_init(&h, NULL), 0);
	assert_int_equal(hvd_plan_open(h, &p, tensors, 2, 0), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), "hvd_plan_open: b has"));
	assert_null(p);
	assert_int_equal(hvd_plan_open(h, &p, sum, 2, 0), HVD_EINVAL);
#ifndef __SANITIZE_ADDRESS__ /* which reports that */
	assert_null(hvd_alloc(h, SIZE_MAX));
#endif
	float value = 0;
	const size_t vast = SIZE_MAX / 8;
	assert_int_equal(hvd_allreduce(h, &value, &value, vast, HVD_F64, HVD_SUM), HVD_EINVAL); /* whose bytes, counted in 64 bits, are none */
	assert_int_equal(hvd_allgatherv(h, &value, &value, &vast, HVD_F64), HVD_EINVAL);
	assert_non_null(strstr(hvd_error(h), "no memory holds"));
	void *less = hvd_alloc(h, 100); /* a program may ask for less */
	assert_non_null(less);
	hvd_free(h, less);
	assert_int_equal(hvd_barrier(h), 0);
	assert_int_equal(hvd_close(h), 0);
}

static void gradients_are_ready_in_the_declared_order(void **state)
{
	(void)state;
	static const struct hvd_tensor tensors[] = { { "a", 1000 }, { "b", 24 }, { "c", 3000 }, { "d", 10 }, { "statistics", 4 } };
	struct hvd *h;
	struct hvd_plan *p;
	assert_int_equal(hvd_init(&h, NULL), 0);
	assert_int_equal(hvd_plan_open(h, &p, tensors, 5, 4096), 0);
	assert_int_equal(hvd_plan_buckets(p), 4); /* a+b | c | d | statistics */
	float *slab = hvd_plan_slab(p);
	assert_int_equal((uintptr_t)slab % 64, 0);
	for (int i = 0; i < 4038; i++)
		assert_true(slab[i] == 0);
	for (int step = 0; step < 3; step++) {
		assert_int_equal(hvd_plan_ready(p, 0), 0);
		assert_int_equal(hvd_plan_ready(p, 2), HVD_EINVAL);
		assert_int_equal(hvd_plan_finish(p), HVD_EINVAL);
		for (int i = 1; i < 5; i++)
			assert_int_equal(hvd_plan_ready(p, i), 0);
		assert_int_equal(hvd_plan_finish(p), 0);
	}
	hvd_plan_close(p);
	hvd_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_works_without_a_step),
		cmocka_unit_test(wrong_arguments_are_refused_with_a_reason),
		cmocka_unit_test(settings_of_the_program_are_looked_at_too),
		cmocka_unit_test(settings_of_the_environment_are_read_or_refused),
		cmocka_unit_test(a_tensor_has_a_name),
		cmocka_unit_test(a_link_to_nothing_has_the_name_of_a_trace),
		cmocka_unit_test(a_node_that_did_not_place_its_tasks_is_named),
		cmocka_unit_test(only_a_request_that_was_started_can_be_waited_for),
		cmocka_unit_test(threads_of_the_program_may_have_small_stacks),
		cmocka_unit_test(sizes_beyond_memory_are_refused),
		cmocka_unit_test(gradients_are_ready_in_the_declared_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
