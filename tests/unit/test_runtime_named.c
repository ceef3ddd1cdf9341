/* SPDX-License-Identifier: Apache-2.0
 * Who is named after a loss, and how; what is no loss is not told as one. */
#include "tests/unit/runtime_world.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

/* Joins; whoever is lost from then on is told to on_lost. */
static struct hvd *join_to_be_told(void (*on_lost)(void *, const char *))
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.on_lost = on_lost;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	return h;
}

static void note_line(void *arg, const char *line)
{
	(void)arg;
	snprintf(meeting->text[meeting_rank], sizeof meeting->text[0], "%s", line);
	_exit(3);
}

static void note_line_for_ever(void *arg, const char *line)
{
	(void)arg, (void)line;
	meeting->place[1]++;
	for (;;)
		pause();
}

static void close_while_the_line_is_noted(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = 1;
	conf.on_lost = note_line_for_ever;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	if (meeting_rank == 1)
		_exit(0);
	while (!meeting->place[1])
		usleep(1000);
	must(hvd_close(h) == HVD_EPEER);
	_exit(0);
}

static void a_program_that_does_not_come_back_from_on_lost_can_close(void **state)
{
	(void)state;
	run_ranks("aa", close_while_the_line_is_noted, NULL);
}

static void note_line_late(void *arg, const char *line)
{
	usleep(300000);
	note_line(arg, line);
}

/* Its call fails before the line is out. */
static void end_by_itself(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_be_told(note_line_late);
	if (meeting_rank == 0)
		hvd_barrier(h);
	_exit(0);
}

static void a_program_that_ends_when_a_call_fails_leaves_the_end_to_on_lost(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aa", end_by_itself, NULL, status);
	meeting_over();
	assert_int_equal(WEXITSTATUS(status[0]), 3);
}

static void compute_while_rank_2_exits(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.on_lost = note_line;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_barrier(h)); /* which is over: nobody is in it any more */
	all_arrive();
	if (meeting_rank == 2)
		_exit(0); /* a plain exit is a death too */
	for (;;)
		pause(); /* in no call of ours */
}

static void a_plain_exit_is_named_to_ranks_that_compute(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aabb", compute_while_rank_2_exits, NULL, status);
	for (int r = 0; r < 4; r++) {
		char want[64];
		if (r == 2)
			continue;
		snprintf(want, sizeof want, "hvd: rank %d on node-%c lost rank 2 on node-b", r, "aabb"[r]);
		assert_int_equal(WEXITSTATUS(status[r]), 3);
		assert_non_null(strstr(meeting->text[r], want));
		assert_non_null(strstr(meeting->text[r], "it died, or ended without hvd_close()"));
		assert_non_null(strstr(meeting->text[r], "was computing"));
	}
	meeting_over();
}

/* Rank 1 sends rank 0 what is no message, and is well otherwise. */
static void send_garbage(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	char want[100];
	conf.on_death = 1;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	if (meeting_rank == 1) {
		pthread_mutex_lock(&h->mesh->lock);
		must(send(h->mesh->peer[0].fd, arg, 2 * sizeof(struct wire_header), MSG_NOSIGNAL) == 2 * sizeof(struct wire_header));
		pthread_mutex_unlock(&h->mesh->lock);
	}
	while (!stop_word(h))
		usleep(1000);
	snprintf(want, sizeof want, meeting_rank == 1 ? "rank 1 on node-%c was given up by the others%s: what it sent is no message" :
					"lost rank 1 on node-%c%s: what it sent is no message", meeting_hosts[1], meeting_rank ? " (says rank 0)" : "");
	must(hvd_barrier(h) == HVD_EPEER && strstr(hvd_error(h), want));
	must(hvd_recover(h) == (meeting_rank == 1 ? HVD_EBOOT : 0)); /* never two worlds */
	must(meeting_rank == 1 ? strstr(hvd_error(h), "the others gave it up") != NULL : hvd_world(h)->size == 2);
	hvd_close(h);
}

static void a_message_that_is_none_is_not_taken_for_a_death(void **state)
{
	(void)state;
	const struct wire_header huge[2] = { { .kind = WIRE_DATA, .bytes = WIRE_PAYLOAD_MAX + 1 } };
	const struct wire_header short_beat[2] = { { .kind = WIRE_BEAT, .bytes = sizeof(struct wire_header) } };
	const struct wire_header empty_fault[2] = { { .kind = WIRE_FAULT }, { .kind = WIRE_BYE } }; /* nor is the goodbye behind it believed */
	run_ranks("aaa", send_garbage, (void *)(uintptr_t) "GET / HTTP/1.0\r\n\r\n and more of it");
	run_ranks("aaa", send_garbage, (void *)(uintptr_t)huge);
	run_ranks("abc", send_garbage, (void *)(uintptr_t)short_beat);
	run_ranks("abc", send_garbage, (void *)(uintptr_t)empty_fault);
}

static void lose_a_rank_where_nobody_reads(void *arg)
{
	int ends[2];
	(void)arg;
	struct hvd *h = join_within(20);
	if (meeting_rank == 1) {
		wait_at(0, 2);
		_exit(0);
	}
	must(!pipe2(ends, O_NONBLOCK));
	while (write(ends[1], h->error, sizeof h->error) > 0)
		;
	must(!fcntl(ends[1], F_SETFL, 0) && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	wait_at(0, 2);
	for (;;)
		pause();
}

static void a_line_that_nobody_reads_keeps_no_rank(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aa", lose_a_rank_where_nobody_reads, NULL, status);
	meeting_over();
	assert_true(WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == 70);
}

/* Its link may still be on its way when another rank says that it is lost. */
static void hear_of_a_loss_early(void *arg)
{
	struct hvd *h = join_within(20);
	(void)arg;
	atomic_store(&h->mesh->armed, false);
	wait_at(0, 2);
	if (meeting_rank == 0) {
		pthread_mutex_lock(&h->mesh->lock);
		h->mesh->peer[1].heard = 0;
		fault_locked(h->mesh, HVD_EPEER, 1, CAUSE_CLOSED, -1, NULL);
		pthread_mutex_unlock(&h->mesh->lock);
		must(strstr(h->mesh->fault, "lost rank 1 on node-a: it died, or ended without hvd_close(); never heard of; rank 0 was computing"));
	}
	wait_at(1, 2);
	hvd_close(h);
}

static void a_loss_of_who_was_never_heard_is_told_so(void **state)
{
	(void)state;
	run_ranks("aa", hear_of_a_loss_early, NULL);
}

static void go_on(int signal)
{
	(void)signal;
}

/* The link for data between the two ranks ends, and a moment later rank 1 says why, while signals come to rank 0. */
static void end_a_data_link(void *arg)
{
	(void)arg;
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	struct itimerval often = { .it_interval = { .tv_usec = 20000 }, .it_value = { .tv_usec = 20000 } };
	float x = 1;
	conf.on_death = 1;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	if (meeting_rank == 0) {
		must(!sigaction(SIGALRM, &(struct sigaction){ .sa_handler = go_on }, NULL) && !setitimer(ITIMER_REAL, &often, NULL));
		must(hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM) == HVD_ESYS && strstr(hvd_error(h), "rank 1 on node-b has had enough"));
	} else {
		for (int fd = 3; fd < 64; fd++)
			if (fd != peer_now(h->mesh, 0).fd)
				shutdown(fd, SHUT_RDWR); /* of all others, only sockets */
		while (peer_now(h->mesh, 0).doing.what != DOING_OP + OP_ALLREDUCE)
			usleep(1000);
		mesh_fault(h->mesh, HVD_ESYS, "has had enough");
	}
	wait_at(0, 2);
	hvd_close(h);
}

static void a_data_link_that_ends_is_explained_by_the_control_link_whatever_signals_come(void **state)
{
	(void)state;
	run_ranks("ab", end_a_data_link, NULL);
}

static void leave_early(void *arg)
{
	struct hvd *h = join_within(200); /* nobody waits for so long for a rank that has said goodbye */
	const char *needed_for = arg;
	struct hvd *part;
	if (meeting_rank == 1) {
		works(h, hvd_close(h));
		_exit(0);
	}
	usleep(200000);
	if (needed_for) {
		atomic_store(&h->mesh->armed, false); /* the call itself must return the failure, on every rank */
		wait_at(0, 2);
		float x = 1;
		double begin = lived();
		must((!strcmp(needed_for, "split") ? hvd_split(h, 0, &part) : hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM)) == HVD_EPEER);
		must(lived() - begin < PATIENCE); /* nor for what a goodbye explains */
		must(strstr(hvd_error(h), "rank 1 on node-") && hvd_lost(h) == 1);
		must(strstr(hvd_error(h), "it called hvd_close()"));
		must(hvd_barrier(h) == HVD_EPEER); /* and every one after it */
		must(hvd_close(h) == HVD_EPEER);
	} else {
		works(h, hvd_close(h));
	}
}

static void a_goodbye_is_no_death_unless_others_still_wait(void **state)
{
	(void)state;
	run_ranks("aab", leave_early, NULL);
	run_ranks("aaa", leave_early, (void *)(uintptr_t) "sum");
	run_ranks("aab", leave_early, (void *)(uintptr_t) "sum");
	run_ranks("aba", leave_early, (void *)(uintptr_t) "sum"); /* over links that end with it */
	run_ranks("aab", leave_early, (void *)(uintptr_t) "split");
}

/* Rank 1's watching thread is held up while rank 0 says goodbye. */
static void leave_unread(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(20);
	struct mesh *m = h->mesh;
	if (meeting_rank == 0) {
		wait_at(0, 2);
		works(h, hvd_close(h));
		meeting->place[1]++;
		return;
	}
	struct pollfd link = { .fd = peer_now(m, 0).fd, .events = POLLRDHUP };
	pthread_mutex_lock(&m->lock);
	wait_at(0, 2);
	must(poll(&link, 1, -1) == 1);
	usleep(100000); /* long enough to close the link */
	must(!meeting->place[1]);
	pthread_mutex_unlock(&m->lock);
	while (!meeting->place[1])
		usleep(1000);
	must(peer_now(m, 0).left);
	works(h, hvd_close(h));
}

static void a_goodbye_has_been_read_when_its_link_is_closed(void **state)
{
	(void)state;
	run_ranks("aa", leave_unread, NULL);
	run_ranks("ab", leave_unread, NULL);
}

static void call_something_else(void *arg)
{
	const char *how = arg;
	struct hvd *h = join_within(5);
	float x[8] = { 0 };
	int status;
	if (meeting_rank == 1)
		status = !strcmp(how, "size") ? hvd_allreduce(h, x, x, 8, HVD_F32, HVD_SUM) : hvd_broadcast(h, x, 4, HVD_F32, 0);
	else
		status = hvd_allreduce(h, x, x, 4, HVD_F32, HVD_SUM);
	must(status == HVD_EMISMATCH);
	must(strstr(hvd_error(h), "rank 1"));
	hvd_close(h);
}

static void ranks_that_call_different_collectives_are_told(void **state)
{
	(void)state;
	run_ranks("aaa", call_something_else, (void *)(uintptr_t) "size");
	run_ranks("aaa", call_something_else, (void *)(uintptr_t) "kind");
	run_ranks("abb", call_something_else, (void *)(uintptr_t) "size");
}

static char told[ERROR_BYTES];

static void keep_line(void *arg, const char *line)
{
	(void)arg;
	snprintf(told, sizeof told, "%s", line);
}

/* Its links end with an error, as it has not read all that came. Where nobody goes on, no other connection is tried before it is named. */
static void die_behind_its_messages(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_be_told(keep_line);
	if (meeting_rank == 1) {
		pthread_mutex_lock(&h->mesh->lock);
		usleep(600000); /* in which the others give signs of life */
		raise(SIGKILL);
	}
	must(hvd_barrier(h) == HVD_EPEER);
	must(strstr(told, "lost rank 1 on node-") && strstr(told, ": it died, or ended without hvd_close(); "));
	hvd_close(h);
}

static void a_rank_that_dies_behind_unread_messages_has_died(void **state)
{
	(void)state;
	run_ranks_but(1, "aa", die_behind_its_messages, NULL);
	run_ranks_but(1, "ab", die_behind_its_messages, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_exit_is_named_to_ranks_that_compute),
		cmocka_unit_test(a_message_that_is_none_is_not_taken_for_a_death),
		cmocka_unit_test(a_line_that_nobody_reads_keeps_no_rank),
		cmocka_unit_test(a_program_that_does_not_come_back_from_on_lost_can_close),
		cmocka_unit_test(a_program_that_ends_when_a_call_fails_leaves_the_end_to_on_lost),
		cmocka_unit_test(a_loss_of_who_was_never_heard_is_told_so),
		cmocka_unit_test(a_goodbye_is_no_death_unless_others_still_wait),
		cmocka_unit_test(a_goodbye_has_been_read_when_its_link_is_closed),
		cmocka_unit_test(a_data_link_that_ends_is_explained_by_the_control_link_whatever_signals_come),
		cmocka_unit_test(ranks_that_call_different_collectives_are_told),
		cmocka_unit_test(a_rank_that_dies_behind_unread_messages_has_died),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
