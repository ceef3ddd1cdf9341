/* SPDX-License-Identifier: Apache-2.0
 * Ranks that live and are given up by others: as few as may be are lost, and there are never two worlds. */
#include "tests/unit/runtime_world.h"

#include <sys/socket.h>

/* What a rank of a quarrel ended with: as many as may be are left, and they are one world. */
static void end_quarrel(struct hvd *h)
{
	int status = hvd_recover(h), left = (int)strlen(meeting_hosts) - 1;
	must(status == HVD_EBOOT || (!status && hvd_world(h)->size == left));
	meeting->note[meeting_rank] = 1 + !status;
	hvd_close(h);
}

static void quarrel(const char *hosts, void (*body)(void *), void *arg)
{
	int status[RANKS_MAX], left = 0, n = (int)strlen(hosts);
	spawn_ranks(hosts, body, arg, status);
	for (int r = 0; r < n; r++) {
		assert_int_equal(status[r], 0);
		left += meeting->note[r] == 2;
	}
	meeting_over();
	assert_int_equal(left, n - 1);
}

/* Ranks 0 and 1 each lose the other, and hear of it after that. */
static void accuse_each_other(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (meeting_rank < 2) {
		pthread_mutex_lock(&h->mesh->lock);
		wait_at(0, 2);
		fault_locked(h->mesh, HVD_EPEER, !meeting_rank, CAUSE_LATE, -1, NULL);
		wait_at(1, 2);
		pthread_mutex_unlock(&h->mesh->lock);
	}
	while (!stop_word(h))
		usleep(1000);
	end_quarrel(h);
}

static void accuse_the_first(void *arg)
{
	struct hvd *h = join_to_survive(20);
	if (meeting_rank == 1)
		mesh_lose(h->mesh, 0, CAUSE_LATE);
	while (!stop_word(h))
		usleep(1000);
	must(meeting_rank || arg || strstr(h->mesh->fault, "was given up by the others (says rank 1)"));
	end_quarrel(h);
}

/* Rank 1 asks before rank 0 has gone on. */
static void accuse_the_last(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (meeting_rank == 0)
		mesh_lose(h->mesh, 1, CAUSE_LATE);
	while (!stop_word(h))
		usleep(1000);
	if (!meeting_rank)
		wait_at(0, 2);
	must(hvd_recover(h) == (meeting_rank ? HVD_EBOOT : 0));
	must(!meeting_rank || !strcmp(hvd_error(h), "rank 1 on node-b stops: the others gave it up and go on without it"));
	if (meeting_rank)
		wait_at(0, 2);
	hvd_close(h);
}

/* Rank 1 says that rank 2 is late; rank 0 has heard nothing of that one for so long that it would call it silent, and end it. */
static void call_the_last_late(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (!meeting_rank) {
		pthread_mutex_lock(&m->lock);
		m->peer[2].heard -= 0.6 * m->deadline;
		wait_at(0, 2);
		wait_at(1, 2);
		pthread_mutex_unlock(&m->lock);
	} else if (meeting_rank == 1) {
		wait_at(0, 2);
		mesh_lose(m, 2, CAUSE_LATE);
		wait_at(1, 2);
	}
	while (!stop_word(h))
		usleep(1000);
	must(meeting_rank || strstr(m->fault, "lost rank 2 on node-a (says rank 1): alive, but it did not come along within the deadline"));
	end_quarrel(h);
}

/* Where rank 1 is while rank 0 waits for it in its second call. */
struct whereabouts {
	unsigned calls, what; /* its last */
	bool through;         /* with that */
	int status;
	const char *line;
};

static void wait_for_one_elsewhere(void *arg)
{
	const struct whereabouts *w = arg;
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	const uint64_t want = atomic_load(&m->sequence) + w->calls;
	const unsigned what = w->through ? DOING_COMPUTE : w->what;
	for (unsigned i = 0; i < (meeting_rank ? w->calls : 2); i++)
		mesh_doing(m, meeting_rank ? w->what : DOING_OP + OP_BARRIER, 0);
	if (meeting_rank && w->through)
		mesh_doing(m, DOING_COMPUTE, 0);
	while (!meeting_rank && (peer_now(m, 1).doing.sequence != want || peer_now(m, 1).doing.what != what))
		usleep(1000);
	must(meeting_rank || (mesh_late(m, 1) == w->status && strstr(m->fault, w->line)));
	wait_at(0, 2);
	_exit(0);
}

/* Only who is as far and in another call was called by another program; who is behind, or through, is late. */
static void a_rank_that_is_behind_or_through_is_late_and_in_no_other_call(void **state)
{
	(void)state;
	static const struct whereabouts of_rank_1[] = {
		{ 2, DOING_BUCKET, false, HVD_EMISMATCH, "is in a barrier where rank 1 is all-reducing bucket 0" },
		{ 1, DOING_BUCKET, false, HVD_EPEER, "alive, but it did not come along" },
		{ 2, DOING_OP + OP_BARRIER, true, HVD_EPEER, "alive, but it did not come along" },
	};
	for (int i = 0; i < 3; i++)
		run_ranks("ab", wait_for_one_elsewhere, (void *)(uintptr_t)&of_rank_1[i]);
}

static void a_rank_that_another_calls_late_is_not_ended_as_a_silent_one(void **state)
{
	(void)state;
	quarrel("aaa", call_the_last_late, NULL);
}

/* Wrongly: rank 1 would go on without it whatever it does. */
static void call_the_first_dead(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (meeting_rank == 1)
		mesh_lose(h->mesh, 0, CAUSE_CLOSED);
	while (!stop_word(h) || (meeting_rank && !meeting->note[0]))
		usleep(1000);
	must(!meeting_rank || meeting->note[0] == 1);
	end_quarrel(h);
}

/* Of two ranks that are well, the control link of a sub-world ends. */
static void lose_a_link_of_a_sub_world(void *arg)
{
	struct hvd *h = join_to_survive(20), *child;
	(void)arg;
	works(h, hvd_split(h, 0, &child));
	wait_at(0, 2);
	if (meeting_rank)
		shutdown(peer_now(child->mesh, 0).fd, SHUT_RDWR);
	while (!stop_word(child) || !stop_word(h))
		usleep(1000);
	must(strstr(h->mesh->fault, "alive, but a link with it broke"));
	must(hvd_recover(child) == HVD_EINVAL && strstr(hvd_error(child), "a sub-world ends with its rank: close it, recover the world"));
	hvd_close(child);
	end_quarrel(h);
}

static void a_rank_that_another_takes_for_dead_does_not_go_on_too(void **state)
{
	(void)state;
	quarrel("ab", call_the_first_dead, NULL);
	quarrel("ab", lose_a_link_of_a_sub_world, NULL);
}

/* The control link between two ranks that are well ends for both, as by a firewall. */
static void end_control_link(struct mesh *m, int rank)
{
	pthread_mutex_lock(&m->lock);
	must(!connect(m->peer[rank].fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr)) || !shutdown(m->peer[rank].fd, SHUT_RDWR));
	pthread_mutex_unlock(&m->lock);
}

static void lose_a_control_link(void *arg)
{
	const int *pair = arg;
	struct hvd *h = join_to_survive(20);
	if (meeting_rank == pair[0])
		end_control_link(h->mesh, pair[1]);
	while (!stop_word(h))
		usleep(1000);
	must(hvd_lost(h) == pair[1] || (meeting_rank == pair[1] && hvd_lost(h) == pair[0]));
	must(strstr(h->mesh->fault, "alive, but a link with it broke"));
	end_quarrel(h);
	must(meeting->note[meeting_rank] == 1 + (meeting_rank != pair[1]));
}

static void two_ranks_that_lose_their_control_link_cost_the_higher_one(void **state)
{
	(void)state;
	static const struct {
		const char *hosts;
		int pair[2];
	} worlds[] = { { "ab", { 0, 1 } }, { "aa", { 0, 1 } }, { "abc", { 0, 1 } }, { "aab", { 1, 2 } }, { "abcd", { 1, 3 } }, { "aabb", { 0, 1 } }, { "aabb", { 0, 2 } } };
	for (int i = 0; i < 7; i++) {
		int pair[2] = { worlds[i].pair[0], worlds[i].pair[1] };
		quarrel(worlds[i].hosts, lose_a_control_link, pair);
	}
}

/* Rank 0 gives rank 1 up when their link ends, goes on, and is through at once, while rank 1 still asks whether it is there. */
static void be_through_soon_after(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (!meeting_rank) {
		pthread_mutex_lock(&m->lock);
		must(!setsockopt(m->peer[1].fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger)));
		close(m->peer[1].fd); /* a reset for rank 1 */
		m->peer[1].fd = -1;
		fault_locked(m, HVD_EPEER, 1, CAUSE_SILENT, -1, NULL);
		pthread_mutex_unlock(&m->lock);
	}
	while (!stop_word(h))
		usleep(1000);
	end_quarrel(h);
}

/* The control link is reset, and then all that a rank asks with. */
static void lose_a_knock(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (!meeting_rank) {
		end_control_link(h->mesh, 1);
		for (int fd, listener = h->mesh->links.listener[1] >= 0 ? 1 : 2; !stop_word(h); usleep(1000)) {
			fd = accept(h->mesh->links.listener[listener], NULL, NULL);
			must(fd < 0 || !setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger)));
			close_fd(&fd);
		}
	}
	while (!stop_word(h))
		usleep(1000);
	end_quarrel(h);
}

/* The control link ends, and with it the way to rank 1. */
static void lose_the_network(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	h->mesh->cards[1].v4.sin_addr.s_addr = INADDR_BROADCAST; /* to which nothing is connected */
	if (!meeting_rank)
		end_control_link(h->mesh, 1);
	while (!stop_word(h))
		usleep(1000);
	must(meeting_rank || strstr(h->mesh->fault, "lost rank 1 on node-b: no sign of life"));
	end_quarrel(h);
}

static void what_ends_a_link_twice_makes_no_second_world(void **state)
{
	(void)state;
	quarrel("ab", be_through_soon_after, NULL);
	quarrel("ab", lose_a_knock, NULL);
	quarrel("ab", lose_the_network, NULL);
}

/* Rank 2 may have agreed with both, and forms the new world. */
static void lose_a_control_link_after_a_death(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (meeting_rank == 3)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	wait_at(0, 3);
	double since = lived();
	if (meeting_rank == 0)
		end_control_link(h->mesh, 1);
	must(hvd_recover(h) == (meeting_rank == 1 ? HVD_EBOOT : 0));
	must(meeting_rank == 1 || hvd_world(h)->size == 2);
	must(lived() - since < 10);
	hvd_close(h);
}

static void a_link_that_ends_during_a_recovery_does_not_cost_a_deadline(void **state)
{
	(void)state;
	run_ranks_but(3, "abcd", lose_a_control_link_after_a_death, NULL);
	run_ranks_but(3, "aabb", lose_a_control_link_after_a_death, NULL);
}

static void two_ranks_that_give_each_other_up_cost_one(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		quarrel("ab", accuse_each_other, NULL);
		quarrel("aaa", accuse_each_other, NULL);
	}
	quarrel("ab", accuse_the_first, NULL);
	quarrel("abc", accuse_the_first, state);
	run_ranks("ab", accuse_the_last, NULL);
}

/* Rank 1 gives rank 0 up, and rank 2, which may have agreed to that, dies. arg: the link between ranks 0 and 1 has ended, too, before rank 1 asks who is
 * left; that says nothing of what rank 0 did. */
static void accuse_and_die(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	if (meeting_rank == 2)
		pthread_mutex_lock(&m->lock); /* it tells nobody what it hears */
	wait_at(0, 3);
	if (meeting_rank == 1)
		mesh_lose(m, 0, CAUSE_LATE);
	while (!meeting_rank && !m->failed)
		usleep(1000);
	wait_at(1, 3);
	if (meeting_rank == 2)
		kill(getpid(), SIGKILL);
	while (peer_now(m, 2).fate == ALIVE || (arg && meeting_rank && peer_now(m, 0).fd >= 0))
		usleep(1000);
	must(hvd_recover(h) == HVD_EBOOT);
	hvd_close(h);
}

static void a_rank_that_another_gave_up_needs_the_majority_of_all(void **state)
{
	(void)state;
	for (int ended = 0; ended < 2; ended++) {
		int status[RANKS_MAX];
		spawn_ranks("abc", accuse_and_die, ended ? status : NULL, status);
		meeting_over();
		assert_true(status[0] == 0 && status[1] == 0);
	}
}

/* Ranks 0 and 1 end. Rank 2 knows it, while rank 3 has only heard nothing of them: alone, it could not tell whether they go on without the two. */
static void know_or_miss_the_dead(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (meeting_rank >= 2)
		pthread_mutex_lock(&m->lock);
	wait_at(0, 4);
	if (meeting_rank < 2)
		raise(SIGKILL);
	for (int r = 0; r < 2; r++)
		fault_locked(m, HVD_EPEER, r, meeting_rank == 2 ? CAUSE_CLOSED : CAUSE_VANISHED, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2);
	hvd_close(h);
}

static void whom_one_rank_knows_to_be_dead_is_dead_for_all(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("abcd", know_or_miss_the_dead, NULL, status);
	meeting_over();
	assert_true(status[2] == 0 && status[3] == 0);
}

/* Ranks 1 and 2 give each other up, and rank 0 hears rank 2 first. Those two go on, then rank 0 dies: nobody can have agreed to go on without rank 2 any more. */
static void be_accused_and_kept(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (meeting_rank == 1)
		pthread_mutex_lock(&m->lock);
	wait_at(0, 3);
	if (meeting_rank == 2)
		mesh_lose(m, 1, CAUSE_LATE);
	while (!meeting_rank && !m->failed)
		usleep(1000);
	wait_at(1, 3);
	if (meeting_rank == 1) {
		fault_locked(m, HVD_EPEER, 2, CAUSE_LATE, -1, NULL);
		pthread_mutex_unlock(&m->lock);
	}
	while (!stop_word(h) || (meeting_rank == 2 && !m->accused))
		usleep(1000);
	must(hvd_recover(h) == (meeting_rank == 1 ? HVD_EBOOT : 0));
	if (meeting_rank != 1)
		wait_at(2, 2);
	if (meeting_rank == 0)
		raise(SIGKILL);
	if (meeting_rank == 2) {
		must(hvd_barrier(h) == HVD_EPEER);
		works(h, hvd_recover(h));
	}
	hvd_close(h);
}

static void an_accusation_ends_with_the_recovery_in_which_it_was_not_believed(void **state)
{
	(void)state;
	run_ranks_but(0, "aaa", be_accused_and_kept, NULL);
}

/* Rank 0 hears that rank 1 gives it up: it asks that one, which says nothing more, for nothing. */
static void be_accused_by_one_that_falls_silent(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (meeting_rank) {
		mesh_lose(h->mesh, 0, CAUSE_LATE);
		wait_at(0, 2);
		_exit(0);
	}
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(h->mesh->rounds == 1);
	wait_at(0, 2);
	hvd_close(h);
}

/* Rank 0 goes on without rank 2, which asks nobody any more, and not rank 1, which computes. */
static void be_dismissed(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (!meeting_rank) {
		pthread_mutex_lock(&m->lock);
		dismiss_locked(m, 2);
		pthread_mutex_unlock(&m->lock);
	} else if (meeting_rank == 2) {
		while (!stop_word(h))
			usleep(1000);
		must(hvd_recover(h) == HVD_EBOOT && !m->rounds);
	}
	wait_at(0, 3);
	_exit(0);
}

static void who_was_given_up_waits_for_none_of_those_that_say_so(void **state)
{
	(void)state;
	run_ranks("ab", be_accused_by_one_that_falls_silent, NULL);
	run_ranks("abc", be_dismissed, NULL);
}

/* Rank 1, which the others gave up, passes on that rank 2 has given rank 0 up: that is what rank 1 believes, and nobody goes on with it. */
static void hear_of_an_accusation_from_one_given_up(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	const struct fault_notice notice = { HVD_EPEER, 0, CAUSE_LATE, 2, "" };
	(void)arg;
	if (meeting_rank == 1)
		pthread_mutex_lock(&m->lock); /* it tells nobody what it hears */
	wait_at(0, 3);
	if (!meeting_rank)
		mesh_lose(m, 1, CAUSE_LATE);
	while (meeting_rank != 1 && !stop_word(h))
		usleep(1000);
	wait_at(1, 3);
	if (meeting_rank == 1) {
		peer_post(&m->peer[0], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof notice }, &notice);
		pthread_mutex_unlock(&m->lock);
	}
	while (!meeting_rank && !m->accused && !m->given_up)
		usleep(1000);
	must(hvd_recover(h) == (meeting_rank == 1 ? HVD_EBOOT : 0));
	hvd_close(h);
}

/* Ranks 0 and 1 die. Rank 3, whose link for data with rank 2 ended with them, asks that one to give it up, which knows the reason. */
static void be_asked_by_one_that_has_not_heard_of_the_dead(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	const struct fault_notice question = { 0, 2, CAUSE_CUT, 3, "" };
	(void)arg;
	if (meeting_rank >= 2)
		pthread_mutex_lock(&m->lock);
	wait_at(0, 4);
	if (meeting_rank < 2)
		raise(SIGKILL);
	if (meeting_rank == 3)
		peer_post(&m->peer[2], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof question }, &question);
	for (int r = 0; r < 2; r++)
		fault_locked(m, HVD_EPEER, r, CAUSE_CLOSED, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2);
	hvd_close(h);
}

static void what_is_no_accusation_by_one_that_is_left_costs_nobody(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	run_ranks("aaa", hear_of_an_accusation_from_one_given_up, NULL);
	spawn_ranks("abcd", be_asked_by_one_that_has_not_heard_of_the_dead, NULL, status);
	meeting_over();
	assert_true(status[2] == 0 && status[3] == 0);
}

/* The link for data between two ranks that are well ends. arg: rank 0 computes, and does not see it. */
static void lose_a_data_link(void *arg)
{
	struct hvd *h = join_to_survive(20);
	float x = 1;
	for (int fd = 3; fd < 64 && meeting_rank; fd++)
		if (fd != peer_now(h->mesh, 0).fd)
			shutdown(fd, SHUT_RDWR); /* of all others, only sockets */
	double since = lived();
	while (arg && !meeting_rank && !stop_word(h))
		usleep(1000);
	must(hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM) == HVD_EPEER && strstr(hvd_error(h), "alive, but a link with it broke"));
	must(lived() - since < 1.8 * PATIENCE);
	must(strstr(hvd_error(h), meeting_rank ? "was given up by the others (says rank 0)" : "lost rank 1")); /* the two do not accuse each other */
	end_quarrel(h);
}

/* Its links for data end after its goodbye: nobody waits for what it could still say. */
static void wait_for_one_that_left(void *arg)
{
	struct hvd *h = join_to_survive(20);
	float x = 1;
	(void)arg;
	if (!meeting_rank) {
		works(h, hvd_close(h));
		return;
	}
	double since = lived();
	must(hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM) == HVD_EPEER && strstr(hvd_error(h), "it called hvd_close() while others wait for it"));
	must(lived() - since < 1.8 * PATIENCE);
	hvd_close(h);
}

static void a_data_link_that_breaks_is_no_death(void **state)
{
	(void)state;
	quarrel("ab", lose_a_data_link, NULL);
	quarrel("ab", lose_a_data_link, state);
	run_ranks("ab", wait_for_one_that_left, NULL);
}

/* Rank 3 dies, and rank 1 recovers; rank 0, which has not noticed that yet, gives rank 1 up, and rank 2 computes. */
static void be_given_up_while_recovering(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	(void)arg;
	if (meeting_rank == 0) {
		pthread_mutex_lock(&m->lock);
		wait_at(0, 4);
		while (!meeting->place[1])
			usleep(1000);
		usleep(100000); /* it has sent what it misses, and waits for the others */
		fault_locked(m, HVD_EPEER, 1, CAUSE_LATE, -1, NULL);
		pthread_mutex_unlock(&m->lock);
	} else {
		wait_at(0, 4);
	}
	if (meeting_rank == 3)
		_exit(0);
	while (!stop_word(h))
		usleep(1000);
	if (meeting_rank == 1) {
		meeting->place[1]++;
		must(hvd_recover(h) == HVD_EBOOT);
		must(m->rounds <= 2);
		meeting->place[2]++;
	} else {
		for (double end = now() + 2; meeting_rank == 2 && !meeting->place[2] && now() < end;)
			usleep(1000);
		works(h, hvd_recover(h));
		must(hvd_world(h)->size == 2);
	}
	hvd_close(h);
}

static void a_rank_that_is_given_up_while_it_recovers_asks_nobody_any_more(void **state)
{
	(void)state;
	run_ranks("aaaa", be_given_up_while_recovering, NULL);
}

/* Rank 0 waits for rank 1 in a sum in shared memory, gives it up, and goes on; only then rank 1 comes to that sum, and hears last that it was given up. */
static void come_to_a_sum_too_late(void *arg)
{
	enum { N = 1 << 20 };
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	float *p = hvd_alloc(h, N * sizeof *p);
	(void)arg;
	must(p);
	uint64_t begun = m->sequence;
	for (int i = 0; i < N; i++)
		p[i] = 1;
	if (meeting_rank)
		pthread_mutex_lock(&m->lock);
	wait_at(0, 2);
	if (meeting_rank)
		wait_at(1, 2);
	long sum = hvd_start_allreduce(h, p, p, N, HVD_F32, HVD_SUM);
	while (m->sequence == begun)
		usleep(1000);
	usleep(50000); /* it is where they meet */
	if (meeting_rank) {
		wait_at(2, 2);
		pthread_mutex_unlock(&m->lock);
		must(hvd_wait(h, sum) == HVD_EPEER && hvd_recover(h) == HVD_EBOOT);
	} else {
		mesh_lose(m, 1, CAUSE_LATE);
		must(hvd_wait(h, sum) == HVD_EPEER);
		works(h, hvd_recover(h));
		for (int i = 0; i < N; i++)
			p[i] = 5;
		wait_at(1, 2);
		wait_at(2, 2);
		for (int i = 0; i < N; i++)
			must(p[i] > 4 && p[i] < 6);
	}
	hvd_close(h);
}

static void a_rank_that_was_given_up_leaves_the_others_memory_alone(void **state)
{
	(void)state;
	run_ranks("aa", come_to_a_sum_too_late, NULL);
}

/* A rank whose memory is damaged says something whose numbers are none. */
static void say_nonsense(void *arg)
{
	const struct fault_notice *notice = arg;
	struct hvd *h = join_to_survive(20);
	char line[ERROR_BYTES], text[WHY_BYTES] = "";
	if (meeting_rank == 2) {
		pthread_mutex_lock(&h->mesh->lock);
		peer_post(&h->mesh->peer[0], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof *notice }, notice);
		pthread_mutex_unlock(&h->mesh->lock);
	}
	if (meeting_rank == 0) {
		memset(text, 'x', sizeof text - 1);
		snprintf(line, sizeof line, notice->rank == 1 ? "rank 0 on node-a lost rank 1 on node-a (says rank 0): %s; heard of " : "rank 0 on node-a %s",
			 notice->rank != 1 ? text : notice->cause == CAUSE_VANISHED ? "it died, or ended without hvd_close(), while others stood still" : "");
		must(hvd_barrier(h) == HVD_EPEER && hvd_lost(h) == (notice->rank == 1 ? 1 : -1));
		must(!strncmp(hvd_error(h), line, strlen(line) + (notice->rank != 1)));
	}
	wait_at(0, 3);
	hvd_close(h);
}

static void a_notice_with_numbers_that_are_none_is_heard_all_the_same(void **state)
{
	(void)state;
	struct fault_notice notice = { .status = 5, .rank = 1 << 24, .cause = CAUSE_NONE, .reporter = -(1 << 24) };
	memset(notice.text, 'x', sizeof notice.text);
	run_ranks("aab", say_nonsense, &notice);
	notice.rank = -2;
	run_ranks("aab", say_nonsense, &notice);
	notice = (struct fault_notice){ .status = HVD_EPEER, .rank = 1, .cause = 1 << 24, .reporter = 1 << 24 };
	run_ranks("aab", say_nonsense, &notice);
	notice.cause = CAUSE_VANISHED; /* the last that there is */
	run_ranks("aab", say_nonsense, &notice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ranks_that_give_each_other_up_cost_one),
		cmocka_unit_test(a_rank_that_is_behind_or_through_is_late_and_in_no_other_call),
		cmocka_unit_test(a_rank_that_another_calls_late_is_not_ended_as_a_silent_one),
		cmocka_unit_test(two_ranks_that_lose_their_control_link_cost_the_higher_one),
		cmocka_unit_test(what_ends_a_link_twice_makes_no_second_world),
		cmocka_unit_test(a_link_that_ends_during_a_recovery_does_not_cost_a_deadline),
		cmocka_unit_test(a_rank_that_another_gave_up_needs_the_majority_of_all),
		cmocka_unit_test(whom_one_rank_knows_to_be_dead_is_dead_for_all),
		cmocka_unit_test(an_accusation_ends_with_the_recovery_in_which_it_was_not_believed),
		cmocka_unit_test(who_was_given_up_waits_for_none_of_those_that_say_so),
		cmocka_unit_test(what_is_no_accusation_by_one_that_is_left_costs_nobody),
		cmocka_unit_test(a_rank_that_another_takes_for_dead_does_not_go_on_too),
		cmocka_unit_test(a_data_link_that_breaks_is_no_death),
		cmocka_unit_test(a_rank_that_is_given_up_while_it_recovers_asks_nobody_any_more),
		cmocka_unit_test(a_rank_that_was_given_up_leaves_the_others_memory_alone),
		cmocka_unit_test(a_notice_with_numbers_that_are_none_is_heard_all_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
