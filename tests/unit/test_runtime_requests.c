/* SPDX-License-Identifier: Apache-2.0
 * Collectives that are started without waiting: they run in their order, and whoever starts one waits for nobody. */
#include "tests/unit/runtime_world.h"

#include "runtime/backend.h"

enum { REQUESTS = 4500 };

static void start_many(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	static float value[REQUESTS];
	long request[REQUESTS];
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	for (int i = 0; i < REQUESTS; i++) {
		value[i] = (float)(rank * i);
		request[i] = i % 3 ? hvd_start_allreduce(h, &value[i], &value[i], 1, HVD_F32, HVD_SUM) : hvd_start_broadcast(h, &value[i], 1, HVD_F32, size - 1);
		must(request[i] >= 0);
	}
	for (int i = REQUESTS - 1; i >= 0; i -= 7) {
		works(h, hvd_wait(h, request[i]));
		must(hvd_test(h, request[i]) == 1);
	}
	for (int i = 0; i < REQUESTS; i++)
		must(value[i] == (float)(i % 3 ? size * (size - 1) / 2 * i : (size - 1) * i));
	works(h, hvd_barrier(h));
	if (rank) { /* rank 0 does not come: not through, and not waited for */
		request[0] = hvd_start_allreduce(h, value, value, 1, HVD_F32, HVD_SUM);
		usleep(20000);
		must(hvd_test(h, request[0]) == 0);
		atomic_fetch_add(&meeting->note[1], 1);
	} else {
		while (atomic_load(&meeting->note[1]) < size - 1)
			usleep(1000);
		request[0] = hvd_start_allreduce(h, value, value, 1, HVD_F32, HVD_SUM);
	}
	works(h, hvd_wait(h, request[0]));
	for (int i = 0; i < 100; i++)
		request[i] = hvd_start_allreduce(h, &value[i], &value[i], 1, HVD_F32, HVD_SUM);
	if (rank) /* rank 0 closes without waiting: what it has started is carried out all the same */
		works(h, hvd_wait(h, request[99]));
	works(h, hvd_close(h));
}

static void requests_run_in_order_and_can_be_waited_for(void **state)
{
	(void)state;
	run_ranks("aaa", start_many, NULL);
	run_ranks("aab", start_many, NULL);
}

/* Rank 1 takes part once rank 0 has started them all. */
static void start_without_waiting(void *arg)
{
	static float value[2 * REQUESTS];
	struct hvd_tensor t[2 * REQUESTS];
	struct hvd_conf conf = quick_conf();
	struct hvd *h, *part;
	struct hvd_plan *p;
	long last[2] = { 0 };
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	for (int i = 0; i < 2 * REQUESTS; i++)
		t[i] = (struct hvd_tensor){ "t", 1 };
	works(h, hvd_plan_open(h, &p, t, 2 * REQUESTS, 4));
	works(h, hvd_split(h, 0, &part));
	if (meeting_rank)
		while (!meeting->place[0])
			usleep(1000);
	for (int i = 0; i < 2 * REQUESTS; i++)
		must((last[0] = hvd_start_allreduce(h, &value[i], &value[i], 1, HVD_F32, HVD_SUM)) >= 0);
	for (int i = 0; i < 2 * REQUESTS; i++)
		works(h, hvd_plan_ready(p, i));
	meeting->place[0]++;
	works(h, hvd_plan_finish(p));
	works(h, hvd_wait(h, last[0]));
	/* of two worlds, each rank starts with another one */
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < REQUESTS; i++)
			must((last[k] = hvd_start_allreduce(k == meeting_rank ? h : part, &value[k * REQUESTS + i], &value[k * REQUESTS + i], 1, HVD_F32, HVD_SUM)) >= 0);
	for (int k = 0; k < 2; k++)
		works(h, hvd_wait(k == meeting_rank ? h : part, last[k]));
	hvd_plan_close(p);
	works(part, hvd_close(part));
	works(h, hvd_close(h));
}

static void who_starts_waits_for_nobody(void **state)
{
	(void)state;
	run_ranks("aa", start_without_waiting, NULL);
	run_ranks("ab", start_without_waiting, NULL);
}

/* The second differs between the ranks: it and the third fail, the first has not. */
static void fail_the_second(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	float value[3] = { 1, 1, 1 };
	long request[3];
	(void)arg;
	conf.on_death = 1; /* nobody ends the process */
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	request[0] = hvd_start_allreduce(h, &value[0], &value[0], 1, HVD_F32, HVD_SUM);
	works(h, hvd_barrier(h));
	request[1] = hvd_start_allreduce(h, &value[1], &value[1], 1, HVD_F32, hvd_world(h)->rank ? HVD_MAX : HVD_MIN);
	request[2] = hvd_start_allreduce(h, &value[2], &value[2], 1, HVD_F32, HVD_SUM);
	must(hvd_wait(h, request[2]) == HVD_EMISMATCH && hvd_wait(h, request[1]) == HVD_EMISMATCH && hvd_test(h, request[1]) == HVD_EMISMATCH);
	works(h, hvd_wait(h, request[0]));
	must(hvd_test(h, request[0]) == 1 && value[0] == (float)hvd_world(h)->size);
	must(hvd_barrier(h) == HVD_EMISMATCH);
	must(hvd_recover(h) == HVD_EMISMATCH && strstr(hvd_error(h), "hvd_recover: no rank is lost: rank "));
	hvd_close(h);
}

static void a_failure_is_none_of_the_requests_before_it(void **state)
{
	(void)state;
	run_ranks("aa", fail_the_second, NULL);
	run_ranks("ab", fail_the_second, NULL);
}

/* The world is its rank's alone, of which a child has no threads. */
static void close_in_a_child(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	float *value = hvd_alloc(h, sizeof *value);
	if (meeting_rank) /* until then rank 0 waits for the sum, and its child has nothing that would wait for it */
		wait_at(0, hvd_world(h)->size);
	long request = hvd_start_allreduce(h, value, value, 1, HVD_F32, HVD_SUM);
	pid_t child = fork();
	if (!child) {
		alarm(10);
		hvd_free(h, value);
		_exit(hvd_close(h) != HVD_EINVAL || strcmp(hvd_error(h), "hvd_close: this process was forked by a rank, which alone closes its world"));
	}
	must(waitpid(child, &status, 0) == child && !status);
	if (!meeting_rank)
		wait_at(0, hvd_world(h)->size);
	works(h, hvd_wait(h, request));
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void a_forked_process_closes_no_world(void **state)
{
	(void)state;
	run_ranks("a", close_in_a_child, NULL);
	run_ranks("aab", close_in_a_child, NULL);
}

static int fail_slowly(struct hvd *h, const struct op *op)
{
	int status = backend_cpu.run(h, op);
	usleep(status ? 200000 : 0);
	return status;
}

/* Rank 1 dies while the others have a sum in flight, whose failure comes late. */
static void recover_beside_a_request(void *arg)
{
	struct backend slow = backend_cpu;
	struct hvd *h = join_to_survive(20);
	double x = 1;
	(void)arg;
	slow.run = fail_slowly;
	h->backend = &slow;
	if (meeting_rank == 1) {
		while (peer_now(h->mesh, 0).doing.what != DOING_OP + OP_ALLREDUCE || peer_now(h->mesh, 2).doing.what != DOING_OP + OP_ALLREDUCE)
			usleep(1000);
		raise(SIGKILL);
	}
	long request = hvd_start_allreduce(h, &x, &x, 1, HVD_F64, HVD_SUM);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_wait(h, request) == HVD_EINVAL);
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void a_recovery_waits_for_what_is_in_flight(void **state)
{
	(void)state;
	run_ranks_but(1, "aaa", recover_beside_a_request, NULL);
}

static int run_for_a_moment(struct hvd *h, const struct op *op)
{
	int status = backend_cpu.run(h, op);
	usleep(20000);
	return status;
}

/* Rank 1 comes to the split well after what the others have in flight is through. */
static void split_beside_a_request(void *arg)
{
	struct backend slow = backend_cpu;
	struct hvd *h = join_to_survive(20), *part;
	double x = 1;
	(void)arg;
	slow.run = run_for_a_moment;
	h->backend = &slow;
	long request = hvd_start_allreduce(h, &x, &x, 1, HVD_F64, HVD_SUM);
	if (meeting_rank == 1)
		usleep(200000);
	works(h, hvd_split(h, 0, &part));
	works(h, hvd_wait(h, request));
	works(part, hvd_close(part));
	works(h, hvd_close(h));
}

static void a_split_waits_for_what_is_in_flight(void **state)
{
	(void)state;
	run_ranks("aaa", split_beside_a_request, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_run_in_order_and_can_be_waited_for),
		cmocka_unit_test(who_starts_waits_for_nobody),
		cmocka_unit_test(a_failure_is_none_of_the_requests_before_it),
		cmocka_unit_test(a_forked_process_closes_no_world),
		cmocka_unit_test(a_recovery_waits_for_what_is_in_flight),
		cmocka_unit_test(a_split_waits_for_what_is_in_flight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
