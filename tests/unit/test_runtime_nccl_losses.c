/* SPDX-License-Identifier: Apache-2.0
 * The NCCL back end without a GPU, where ranks are late, close or die: who is named, what libhvd asks of NCCL and the driver then (stop word, revoke, a smaller
 * communicator), and that nobody waits for a graph for ever. */
#ifdef HAVE_NCCL

#include "tests/unit/nccl_world.h"

static void stay_away(void *arg)
{
	struct hvd_conf conf = quick_conf();
	conf.deadline = 1;
	conf.on_death = *(const bool *)arg;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 400);
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	stuck = true; /* as the first collective of its kind is, until all have connected */
	if (meeting_rank == 1)
		while (!stop_word(h))
			usleep(1000);
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	must(strstr(hvd_error(h), meeting_rank ? "was given up by the others" : "lost rank 1 on node-b: alive, but it did not come along within the deadline"));
	must(hvd_lost(h) == 1);
	while (!conf.on_death) /* ends the process */
		pause();
	must(hvd_recover(h) == (meeting_rank ? HVD_EBOOT : 0));
	must(meeting_rank || (hvd_world(h)->size == 1 && hvd_lost(h) == -1));
	hvd_close(h);
}

static void a_rank_that_stays_away_from_a_collective_is_named_at_the_deadline(void **state)
{
	(void)state;
	bool goes_on = true;
	int status[RANKS_MAX];
	run_ranks("ab", stay_away, &goes_on);
	goes_on = false;
	spawn_ranks("ab", stay_away, &goes_on, status);
	meeting_over();
	assert_int_equal(WEXITSTATUS(status[0]), 70);
	assert_int_equal(WEXITSTATUS(status[1]), 70);
}

/* A world whose deadline is a second and whose ranks go on after a death. */
static struct hvd *open_to_continue(void)
{
	struct hvd_conf conf = quick_conf();
	conf.deadline = 1;
	conf.on_death = 1;
	return open_world(conf);
}

/* All ranks are in one collective, or in none, and one of them waits in vain for its device: none is behind. */
static void wait_in_vain(void *arg)
{
	const bool copies = *(const bool *)arg;
	struct hvd *h = open_to_continue();
	float *p = hvd_alloc(h, 400), one = 1;
	together = true;
	stuck = !copies;
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == (copies ? 0 : HVD_EBACKEND));
	stuck |= meeting_rank == 2;
	if (copies)
		must(hvd_copy(h, p, &one, sizeof one) == (stuck ? HVD_EBACKEND : 0));
	must(!stuck || strstr(hvd_error(h), copies ? ": NCCL: a copy is not through within 1 s, and no rank" : ": NCCL: an all-reduce is not through within 1 s, and no rank"));
	wait_at(0, 3);
	must(!h->mesh->failed && !stop_word(h));
	stuck = false;
	works(h, hvd_close(h));
}

static void where_no_rank_is_behind_none_is_lost(void **state)
{
	(void)state;
	bool copies = false;
	run_ranks("aab", wait_in_vain, &copies);
	copies = true;
	run_ranks("aab", wait_in_vain, &copies);
}

/* Rank 1 is behind; rank 0 says so, and rank 2 hears of it when its own wait is over. */
static void be_behind(void *arg)
{
	(void)arg;
	struct hvd *h = open_to_continue();
	float *p = hvd_alloc(h, 400), one = 1;
	idle = true;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	if (meeting_rank != 1) {
		works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
		wait_at(0, 2);
		stuck = true;
		looks_late = meeting_rank == 2 ? 1.1 : 0;
		must(hvd_copy(h, p, &one, sizeof one) == HVD_EPEER);
		must(strstr(hvd_error(h), "lost rank 1 on node-a"));
		looks_late = 0;
	}
	while (!stop_word(h))
		usleep(1000);
	wait_at(1, 3);
	hvd_close(h);
}

static void all_who_wait_for_their_device_name_the_rank_that_is_behind(void **state)
{
	(void)state;
	run_ranks("aab", be_behind, NULL);
}

/* The device of a rank hangs after another one, which took part in everything, has closed. */
static void wait_after_a_goodbye(void *arg)
{
	(void)arg;
	struct hvd *h = open_to_continue();
	float *p = hvd_alloc(h, 400), one = 1;
	all_arrive();
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	if (!meeting_rank) {
		stuck = true;
		must(hvd_copy(h, p, &one, sizeof one) == HVD_EBACKEND && strstr(hvd_error(h), "a copy is not through within 1 s, and no rank is behind"));
		asked = 0;
		hvd_free(h, p); /* does not wait once more */
		must(device[0] && asked < 3 && strstr(hvd_error(h), "a copy is not through within 1 s, and no rank is behind"));
		stuck = false;
	}
	works(h, hvd_close(h));
	must(!device[0]);
}

static void a_rank_that_took_part_in_everything_and_closed_is_not_lost(void **state)
{
	(void)state;
	run_ranks("ab", wait_after_a_goodbye, NULL);
}

static void leave_early(void *arg)
{
	(void)arg;
	struct hvd *h = open_to_continue();
	float *p = hvd_alloc(h, 400);
	all_arrive();
	stuck = !meeting_rank;
	must(meeting_rank || hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	must(meeting_rank || strstr(hvd_error(h), "lost rank 1 on node-b: it called hvd_close() while others wait for it"));
	hvd_close(h);
}

static void a_rank_that_closes_too_early_is_named(void **state)
{
	(void)state;
	run_ranks("ab", leave_early, NULL);
}

static void break_a_connection(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = 1;
	struct hvd *h = open_world(conf);
	double one = 1, begin = now();
	noticed = meeting_rank == 1;
	while (!stop_word(h) && now() < begin + 10) /* in no call, as a program whose graph hangs */
		usleep(1000);
	must(hvd_allreduce(h, &one, &one, 1, HVD_F64, HVD_SUM) == HVD_EBACKEND);
	must(strstr(hvd_error(h), "rank 1 on node-b ") && strstr(hvd_error(h), "hears from NCCL: a text"));
	hvd_close(h);
}

static void an_error_of_nccl_reaches_ranks_that_make_no_calls(void **state)
{
	(void)state;
	run_ranks("ab", break_a_connection, NULL);
}

/* Rank 1 dies while the others' collective hangs on the device. */
enum { REVOKED, ABORTED, NOTICED, CAPTURED }; /* NCCL revokes; cannot yet; could, but one rank's has noticed the death, too; or a graph holds collectives, of which it would end one */
static void die(void *arg)
{
	struct hvd_conf conf = quick_conf();
	const int way = *(const int *)arg;
	old_nccl = way == ABORTED;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 400);
	must(p);
	capturing = way == CAPTURED;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	capturing = false;
	noticed = way == NOTICED && !meeting_rank;
	stuck = true; /* before anybody dies: the watching thread may be at it at once, and ends it */
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	must(strstr(hvd_error(h), "lost rank 1 on node-a"));
	for (double end = now() + 20; !stop_word(h) && now() < end;) /* the watching thread is at it */
		usleep(1000);
	must(stop_word(h) == 1);
	ids_made = registered = 0;
	queued = 20;
	none_registered = way == ABORTED;
	works(h, hvd_recover(h));
	must(!queued);
	must(stop_at_revoke == 1); /* the stop word comes first */
	must(hvd_world(h)->size == 2 && stop_word(h) == 0 && registered == 1);
	must(way == REVOKED ? shrunk == 1 && !ids_made : !shrunk && ids_made == !meeting_rank);
	p[0] = 1;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	must(p[0] == 2);
	hvd_free(h, p);
	/* the next death: what graphs held was of the communicator before */
	stuck = true;
	wait_at(0, 2);
	if (meeting_rank == 2)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(made == 2 && communicators[1].revoked == (way != ABORTED));
	works(h, hvd_close(h));
}

static void survivors_stop_the_device_and_shrink(void **state)
{
	(void)state;
	for (int way = REVOKED; way <= CAPTURED; way++) {
		int status[RANKS_MAX];
		spawn_ranks("aab", die, &way, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[1], SIGKILL);
		assert_int_equal(status[2], SIGKILL);
	}
}

/* The others' shrinking waits for rank 2, which dies in it; when that is over, rank 3 dies, too. */
static void die_while_shrinking(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 400);
	stuck = shrinks_for_ever = true;
	shrinking = 3;
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	must(hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2 && !stop_word(h) && shrunk == 1);
	p[0] = 1;
	works(h, hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM));
	must(p[0] == 2);
	stuck = true;
	wait_at(1, 2);
	if (meeting_rank == 3)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 1 && !stop_word(h) && !stuck);
	works(h, hvd_close(h));
}

static void deaths_follow_each_other(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aaab", die_while_shrinking, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
	for (int r = 1; r < 4; r++)
		assert_int_equal(status[r], SIGKILL);
}

static void go_on_alone(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	float *p = hvd_alloc(h, 4000);
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 1 && communicators[0].gone);
	const size_t n = 4;
	for (int i = 0; i < 5; i++)
		p[i] = (float)i + 1;
	works(h, hvd_allgatherv(h, p, p + 100, &n, HVD_F32));
	must(p[100] == 1 && p[103] == 4 && p[104] == 0);
	works(h, hvd_close(h));
}

static void the_last_rank_goes_on_and_closes(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("ab", go_on_alone, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
}

/* A graph that holds collectives is not destroyed. */
static void forget_a_graph(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = 1;
	struct hvd *h = open_world(conf);
	must(hvd_alloc(h, 400));
	all_arrive();
	graph_left = true;
	double begin = now();
	works(h, hvd_close(h));
	must(now() - begin < 10 && device[0]); /* what a device may still use is not freed */
	_exit(0);
}

static void closing_with_a_graph_ends_at_the_deadline(void **state)
{
	(void)state;
	run_ranks("ab", forget_a_graph, NULL);
}

/* NCCL's abort waits for it, from the loss on or after a shrink; neither recovering nor closing does. */
enum { RECOVER_OLD, RECOVER, CLOSE };
static void recover_with_a_graph(void *arg)
{
	struct hvd_conf conf = quick_conf();
	const int way = *(const int *)arg;
	old_nccl = way == RECOVER_OLD;
	conf.deadline = 2;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	must(hvd_alloc(h, 400));
	graph_left = true;
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	must(way == CLOSE || hvd_recover(h) == HVD_EBACKEND);
	must(way == CLOSE || strstr(hvd_error(h), "ending the collectives on the device does not come back within 2 s"));
	must(way == CLOSE || (hvd_recover(h) == HVD_EBOOT && strstr(hvd_error(h), " stops: the others gave it up and go on without it")));
	must(hvd_close(h) == HVD_EPEER && device[0]);
	_exit(0);
}

static void recovering_with_a_graph_ends_at_the_deadline(void **state)
{
	(void)state;
	for (int way = RECOVER_OLD; way <= CLOSE; way++) {
		int status[RANKS_MAX];
		spawn_ranks("abc", recover_with_a_graph, &way, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[2], 0);
	}
}

/* Rank 1 dies. Rank 0's graphs keep its communicator from ending, for longer than the deadline: it gives signs of life, and the others wait, if it destroys
 * them before it recovers; else they hear that they go on without it. */
static void recover_beside_a_graph(void *arg)
{
	struct hvd_conf conf = quick_conf();
	const bool destroyed = *(const bool *)arg;
	old_nccl = true;
	conf.deadline = 2;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	must(hvd_alloc(h, 400));
	graph_left = !meeting_rank;
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	if (destroyed)
		usleep(3000000);
	wait_at(0, 2);
	graph_left &= !destroyed;
	must(peer_now(h->mesh, meeting_rank ? 0 : 2).fate == ALIVE);
	must(hvd_recover(h) == (graph_left ? HVD_EBACKEND : 0));
	must(graph_left || hvd_world(h)->size == (destroyed ? 2 : 1));
	must(!graph_left || hvd_recover(h) == HVD_EBOOT);
	hvd_close(h);
	_exit(0);
}

static void a_graph_of_one_rank_keeps_no_other(void **state)
{
	(void)state;
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		int status[RANKS_MAX];
		spawn_ranks("abc", recover_beside_a_graph, &(bool){ destroyed }, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[2], 0);
	}
}

/* Rank 0 has much to say to one that reads nothing, so that the loss comes between its goodbye and the end of its watching thread. */
static void lose_a_rank_while_closing(void *arg)
{
	static uint8_t much[WIRE_PAYLOAD_MAX];
	struct hvd_conf conf = quick_conf();
	(void)arg;
	old_nccl = true;
	conf.deadline = 1;
	conf.on_death = 1;
	struct hvd *h = open_world(conf);
	must(hvd_alloc(h, 400));
	graph_left = true;
	if (meeting_rank)
		pthread_mutex_lock(&h->mesh->lock);
	all_arrive();
	for (int i = 0; !meeting_rank && i < 4; i++)
		mesh_send(h->mesh, 1, 1, much, sizeof much, -1);
	if (!meeting_rank)
		hvd_close(h);
	must(device[0]);
	wait_at(0, 2);
	_exit(0);
}

static void a_loss_while_closing_with_a_graph_does_not_keep_it_from_ending(void **state)
{
	(void)state;
	run_ranks("ab", lose_a_rank_while_closing, NULL);
}

/* A rank that is late in a sub-world is lost in the world, although what ends the sub-world's collectives does not come back. */
static void be_late_with_a_graph(void *arg)
{
	struct hvd_conf conf = quick_conf();
	struct hvd *h, *part;
	(void)arg;
	old_nccl = true;
	conf.deadline = 1;
	conf.on_death = 1;
	h = open_world(conf);
	works(h, hvd_split(h, 0, &part));
	float *p = hvd_alloc(part, 400);
	must(p);
	all_arrive();
	graph_left = stuck = true;
	must(meeting_rank || hvd_allreduce(part, p, p, 100, HVD_F32, HVD_SUM) == HVD_EPEER);
	while (!stop_word(h))
		usleep(1000);
	must(hvd_lost(h) == 1);
	_exit(0);
}

static void a_rank_late_in_a_sub_world_is_lost_in_the_world_whatever_its_graphs(void **state)
{
	(void)state;
	run_ranks("ab", be_late_with_a_graph, NULL);
}

static void die_with_a_graph(void *arg)
{
	(void)arg;
	old_nccl = true;
	open_world(quick_conf());
	graph_left = true;
	all_arrive();
	alarm(10);
	if (meeting_rank == 1)
		raise(SIGKILL);
	for (;;)
		pause(); /* the stream hangs */
}

static void an_abort_that_waits_for_graphs_does_not_keep_a_process_from_ending(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("ab", die_with_a_graph, NULL, status);
	meeting_over();
	assert_true(WIFEXITED(status[0]));
	assert_int_equal(WEXITSTATUS(status[0]), 70);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_stays_away_from_a_collective_is_named_at_the_deadline),
		cmocka_unit_test(where_no_rank_is_behind_none_is_lost),
		cmocka_unit_test(all_who_wait_for_their_device_name_the_rank_that_is_behind),
		cmocka_unit_test(a_rank_that_took_part_in_everything_and_closed_is_not_lost),
		cmocka_unit_test(a_rank_that_closes_too_early_is_named),
		cmocka_unit_test(an_error_of_nccl_reaches_ranks_that_make_no_calls),
		cmocka_unit_test(survivors_stop_the_device_and_shrink),
		cmocka_unit_test(deaths_follow_each_other),
		cmocka_unit_test(the_last_rank_goes_on_and_closes),
		cmocka_unit_test(closing_with_a_graph_ends_at_the_deadline),
		cmocka_unit_test(recovering_with_a_graph_ends_at_the_deadline),
		cmocka_unit_test(a_graph_of_one_rank_keeps_no_other),
		cmocka_unit_test(a_loss_while_closing_with_a_graph_does_not_keep_it_from_ending),
		cmocka_unit_test(a_rank_late_in_a_sub_world_is_lost_in_the_world_whatever_its_graphs),
		cmocka_unit_test(an_abort_that_waits_for_graphs_does_not_keep_a_process_from_ending),
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
