/* SPDX-License-Identifier: Apache-2.0
 * The NCCL back end without a GPU. What is checked is what libhvd asks of NCCL and the driver: a GPU a rank, buckets on their own stream, memory registered. */
#ifdef HAVE_NCCL

#include "tests/unit/nccl_world.h"

/* Those that the device tells, when it is through; a question may spoil a graph that is being captured. */
static void ask_for_seconds(struct hvd_plan *p)
{
	must(hvd_plan_exposed(p) == 0);
	between_events = 250;
	must(hvd_plan_exposed(p) == 0.25);
	between_events = 500;
	capturing = true;
	must(hvd_plan_exposed(p) == 0.25);
	capturing = false;
	between_events = -1;
	must(hvd_plan_exposed(p) == 0.25);
}

static void sums_and_buckets(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 }, { "c", 10 } };
	struct hvd *h = open_world(quick_conf());
	struct hvd_plan *p;
	double host = 1;
	(void)arg;
	works(h, hvd_plan_open(h, &p, t, 3, 4000));
	float *slab = hvd_plan_slab(p);
	must(registered == 1 && ids_made == !meeting_rank);
	for (int step = 0; step < 3; step++) {
		for (int i = 0; i < 2010; i++)
			slab[i] = (float)(meeting_rank + i);
		for (int i = 0; i < 3; i++)
			works(h, hvd_plan_ready(p, i));
		works(h, hvd_plan_finish(p));
		must(slab[0] == 1 && slab[2009] == 2010); /* means of 0, 1 and 2 */
	}
	ask_for_seconds(p);
	must(collectives == 9 && on[0] == (CUstream)(uintptr_t)&own_stream);
	works(h, hvd_allreduce(h, slab, slab, 10, HVD_F32, HVD_SUM));
	must(slab[0] == 3 && on[9] == (CUstream)(uintptr_t)&program_stream);
	works(h, hvd_allreduce(h, &host, &host, 1, HVD_F64, HVD_SUM)); /* host memory does not go to NCCL */
	must(host == 3 && collectives == 10 && !stop_word(h));
	float mine = (float)meeting_rank;
	works(h, hvd_copy(h, slab, &mine, sizeof mine));
	long request = hvd_start_allreduce(h, slab, slab, 1, HVD_F32, HVD_SUM); /* by a thread of libhvd's */
	must(request >= 0);
	works(h, hvd_wait(h, request));
	works(h, hvd_copy(h, &mine, slab, sizeof mine));
	must(mine == 3 && collectives == 11);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void device_memory_goes_to_nccl_and_buckets_to_a_stream_of_their_own(void **state)
{
	(void)state;
	run_ranks("aab", sums_and_buckets, NULL);
	no_stream = true; /* libhvd makes one */
	run_ranks("aab", sums_and_buckets, NULL);
	no_stream = false;
}

/* Of what hvd-bench measures: the device is looked at again while a small message is on its way, and not a sleep later. */
static void short_collectives(void *arg)
{
	struct hvd_conf conf = quick_conf();
	int most = 0;
	(void)arg;
	conf.sync = 1;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, sizeof *p);
	must(p);
	idle = true;
	takes = 30e-6;
	for (int i = 0; i < 200; i++) {
		int before = asked;
		works(h, hvd_allreduce(h, p, p, 1, HVD_F32, HVD_SUM));
		most = asked - before > most ? asked - before : most;
	}
	must(most > 3);
	hvd_free(h, p);
	works(h, hvd_close(h));
}

static void the_end_of_a_short_collective_is_not_slept_over(void **state)
{
	(void)state;
	run_ranks("ab", short_collectives, NULL);
}

static void *work(void *arg)
{
	static const struct hvd_tensor t = { "a", 100 };
	struct hvd *h = arg;
	struct hvd_plan *p;
	float mine = (float)meeting_rank;
	works(h, hvd_plan_open(h, &p, &t, 1, 0));
	must(hvd_plan_slab(p)[99] == 0);
	works(h, hvd_copy(h, hvd_plan_slab(p), &mine, sizeof mine));
	current = NULL; /* as in a third one */
	works(h, hvd_plan_ready(p, 0));
	current = NULL;
	works(h, hvd_plan_finish(p));
	must(hvd_plan_slab(p)[0] == 0.5f);
	hvd_plan_close(p);
	return NULL;
}

static void work_in_a_thread(void *arg)
{
	struct hvd *h = open_world(quick_conf());
	pthread_t thread;
	(void)arg;
	must(!pthread_create(&thread, NULL, work, h) && !pthread_join(thread, NULL));
	works(h, hvd_close(h));
}

static void every_thread_of_the_program_may_use_the_handle(void **state)
{
	(void)state;
	run_ranks("ab", work_in_a_thread, NULL);
}

/* Rank 0 is ready before the others have come to what it started on host memory. */
static void start_beside_buckets(void *arg)
{
	const struct hvd_tensor t = { "a", 100 };
	struct hvd *h = open_world(quick_conf());
	struct hvd_plan *p;
	double one = 1;
	(void)arg;
	works(h, hvd_plan_open(h, &p, &t, 1, 4000));
	idle = true;
	if (meeting_rank)
		wait_at(0, 2);
	long request = hvd_start_allreduce(h, &one, &one, 1, HVD_F64, HVD_SUM);
	must(request >= 0);
	works(h, hvd_plan_ready(p, 0));
	if (!meeting_rank)
		wait_at(0, 2);
	works(h, hvd_plan_finish(p));
	works(h, hvd_wait(h, request));
	must(one == 2 && collectives == 1);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

/* Rank 0 is ready before the others have come to the first of what it started, behind which the second is yet to begin on the device. */
static void start_on_both_before_a_bucket(void *arg)
{
	const struct hvd_tensor t = { "a", 100 };
	struct hvd *h = open_world(quick_conf());
	struct hvd_plan *p;
	double one = 1;
	(void)arg;
	works(h, hvd_plan_open(h, &p, &t, 1, 4000));
	idle = true;
	if (meeting_rank)
		usleep(100000);
	must(hvd_start_allreduce(h, &one, &one, 1, HVD_F64, HVD_SUM) >= 0);
	must(hvd_start_allreduce(h, hvd_plan_slab(p), hvd_plan_slab(p), 1, HVD_F32, HVD_SUM) >= 0);
	works(h, hvd_plan_ready(p, 0));
	must(collectives == 2 && on[0] == (CUstream)(uintptr_t)&program_stream && on[1] == (CUstream)(uintptr_t)&own_stream);
	works(h, hvd_plan_finish(p));
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void what_was_started_on_the_device_begins_there_before_a_bucket(void **state)
{
	(void)state;
	run_ranks("ab", start_on_both_before_a_bucket, NULL);
}

static void ready_waits_for_no_collective_on_host_memory(void **state)
{
	(void)state;
	run_ranks("ab", start_beside_buckets, NULL);
}

static void read_where_it_writes(void *arg)
{
	(void)arg;
	struct hvd *h = open_world(quick_conf());
	const size_t n[] = { 100, 0 };
	float *p = hvd_alloc(h, 1000 * sizeof *p), *own = p + 100 * meeting_rank, host[4] = { 0 };
	must(p);
	must(hvd_allgather(h, p, p, 100, HVD_F32) == HVD_EINVAL);
	must(!strcmp(hvd_error(h), "an all-gather in device memory: in and out overlap; only hvd_allreduce() and hvd_broadcast() work in place there"));
	must(hvd_allgather(h, own, p, 100, HVD_F32) == HVD_EINVAL); /* NCCL's own way, in which rank 0 has in == out */
	must(hvd_allgatherv(h, p, p, n, HVD_F32) == HVD_EINVAL);
	must(hvd_reduce_scatter(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EINVAL);
	must(hvd_alltoall(h, p + 199, p, 100, HVD_F32) == HVD_EINVAL);
	must(!strncmp(hvd_error(h), "an all-to-all in", 16));
	works(h, hvd_allgather(h, p + 200, p, 100, HVD_F32));
	works(h, hvd_reduce_scatter(h, p, p + 200, 100, HVD_F32, HVD_SUM));
	works(h, hvd_alltoall(h, p, p + 200, 100, HVD_F32));
	works(h, hvd_allgather(h, host, host, 2, HVD_F32));
	must(hvd_allreduce(h, host, p, 4, HVD_F32, HVD_SUM) == HVD_EINVAL);
	must(!strcmp(hvd_error(h), "an all-reduce: in is in host memory and out in device memory: both have to be in one"));
	must(hvd_allreduce(h, p, host, 4, HVD_F32, HVD_SUM) == HVD_EINVAL && strstr(hvd_error(h), "in is in device memory and out in host memory"));
	long request = hvd_start_allgather(h, p, p, 100, HVD_F32); /* the thread's line is not the program's before it asks */
	must(hvd_wait(h, request + 1) == HVD_EINVAL && strstr(hvd_error(h), "no such request"));
	must(hvd_wait(h, request) == HVD_EINVAL && strstr(hvd_error(h), "overlap"));
	must(hvd_wait(h, request + 1) == HVD_EINVAL && strstr(hvd_error(h), "no such request"));
	must(hvd_test(h, request) == HVD_EINVAL && strstr(hvd_error(h), "overlap"));
	works(h, hvd_close(h));
}

/* *arg: the wish; NULL: each as if on a node of its own. */
static void share_a_gpu(void *arg)
{
	struct boot boot;
	struct hvd_conf conf = quick_conf();
	char why[WHY_BYTES], id[16];
	one_gpu = true;
	conf.backend = arg;
	snprintf(id, sizeof id, "host%d", meeting_rank);
	if (!arg) {
		setenv("NCCL_HOSTID", id, 1);
		works(world, hvd_close(open_world(conf)));
		return;
	}
	int status = handle_new(&world, &conf);
	works(world, status);
	works(world, meet(&boot, why));
	must(handle_form(world, &boot) == HVD_EBACKEND);
	must(strstr(hvd_error(world), "ranks 0 and 2 on node-a both have GPU 0000:15:00.0, or MIG instances of it, which NCCL before 2.30 refuses: srun --gpu-bind=socket --hvd gives each its own GPU where there are as many; NCCL 2.30 takes an instance each; HVD_BACKEND=cpu"));
	hvd_close(world);
}

static void two_ranks_on_one_gpu_are_named(void **state)
{
	(void)state;
	run_ranks("aba", share_a_gpu, (void *)(uintptr_t) "nccl");
	run_ranks("aba", share_a_gpu, (void *)(uintptr_t) "auto");
	run_ranks("aba", share_a_gpu, NULL);
}

static const char *const refusals[] = { "rank 1 on node-b has NCCL 22703, rank 0 has 22809: install one version on all nodes",
					"rank 1 on node-b cannot use a GPU: no NCCL; rank 0 on node-a can. Set HVD_BACKEND=cpu to go on without",
					"HVD_WIRE=bf16 is for the CPU: with NCCL, declare what the device computes" };

/* Rank 1 has another NCCL, or none; or what the device computes is to be rounded on its way. */
static void form_no_world(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	const int which = *(const int *)arg;
	conf.backend = "auto";
	conf.wire = which == 2 ? HVD_BF16 : HVD_F32;
	if (meeting_rank == 1 && which < 2)
		nccl_version = which ? 0 : 22703;
	must(hvd_init_from(&h, &conf, meet) == (which == 2 ? HVD_EBACKEND : HVD_EMISMATCH));
	must(!strcmp(hvd_error(h), refusals[which]));
	hvd_close(h);
}

static void without_one_nccl_on_all_ranks_there_is_no_world_of_it(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		run_ranks("ab", form_no_world, &i);
}

static void form_where_one_fails(void *arg)
{
	struct boot boot;
	struct hvd_conf conf = quick_conf();
	char why[WHY_BYTES];
	(void)arg;
	conf.backend = "nccl";
	fails_on_rank_1 = true;
	int status = handle_new(&world, &conf);
	works(world, status);
	works(world, meet(&boot, why));
	double begin = lived();
	must(handle_form(world, &boot) == HVD_EBACKEND && lived() - begin < conf.deadline / 4);
	must(strstr(hvd_error(world), "rank 1 on node-b") && strstr(hvd_error(world), "forming the communicator: a text"));
	stuck = false;
	must(hvd_close(world) == HVD_EBACKEND);
}

static void a_rank_where_nccl_fails_tells_the_others_at_once(void **state)
{
	(void)state;
	run_ranks("abc", form_where_one_fails, NULL);
}

static void only_all_reduce_and_broadcast_work_in_place_on_a_device(void **state)
{
	(void)state;
	run_ranks("ab", read_where_it_writes, NULL);
}

/* A driver or a container that does not let memory be mapped. */
static void sum_in_plain_memory(void *arg)
{
	(void)arg;
	none_of_nccl = true;
	struct hvd *h = open_world(quick_conf());
	float *p = hvd_alloc(h, 400), *kept = hvd_alloc(h, 400); /* what is kept, closing frees */
	must(p && kept && plain == 2 && registered == 2 && p[0] == 0);
	p[0] = (float)meeting_rank + 1;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	must(p[0] == 3 && collectives == 1);
	hvd_free(h, p);
	must(plain == 1);
	none_at_all = true;
	must(!hvd_alloc(h, 400) && strstr(hvd_error(h), "400 bytes of device memory"));
	works(h, hvd_close(h));
	must(plain == 0);
}

static void without_memory_of_nccl_buffers_are_plain_memory(void **state)
{
	(void)state;
	run_ranks("ab", sum_in_plain_memory, NULL);
}

/* Rank 1's GPU has no room for a plan: rank 0 hears so at its next call. */
static void plan_without_memory(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 100 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	(void)arg;
	struct hvd *h = open_world(conf);
	none_of_nccl = none_at_all = meeting_rank;
	int status = hvd_plan_open(h, &p, t, 1, 0);
	must(status == HVD_ESYS || (meeting_rank == 0 && status == 0)); /* or rank 0 hears it already there */
	double begin = lived();
	while (!h->mesh->failed)
		must(lived() - begin < 5);
	must(hvd_barrier(h) == HVD_ESYS && strstr(hvd_error(h), "rank 1 on node-b cannot go on: ") && strstr(hvd_error(h), ": 400 bytes of device memory: "));
	none_of_nccl = none_at_all = false;
	hvd_plan_close(p);
	hvd_close(h);
}

static void a_rank_without_device_memory_for_a_plan_tells_the_others(void **state)
{
	(void)state;
	run_ranks("ab", plan_without_memory, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_memory_goes_to_nccl_and_buckets_to_a_stream_of_their_own),
		cmocka_unit_test(the_end_of_a_short_collective_is_not_slept_over),
		cmocka_unit_test(every_thread_of_the_program_may_use_the_handle),
		cmocka_unit_test(ready_waits_for_no_collective_on_host_memory),
		cmocka_unit_test(what_was_started_on_the_device_begins_there_before_a_bucket),
		cmocka_unit_test(two_ranks_on_one_gpu_are_named),
		cmocka_unit_test(without_one_nccl_on_all_ranks_there_is_no_world_of_it),
		cmocka_unit_test(a_rank_where_nccl_fails_tells_the_others_at_once),
		cmocka_unit_test(only_all_reduce_and_broadcast_work_in_place_on_a_device),
		cmocka_unit_test(without_memory_of_nccl_buffers_are_plain_memory),
		cmocka_unit_test(a_rank_without_device_memory_for_a_plan_tells_the_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include "tests/unit/test.h"

static void without_nccl(void **state)
{
	(void)state;
	skip_because("built without nccl.h");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(without_nccl) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
