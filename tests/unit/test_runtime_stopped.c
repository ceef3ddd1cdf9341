/* SPDX-License-Identifier: Apache-2.0
 * Ranks that stand still and come back (SIGSTOP, scontrol suspend): no healthy rank is lost by it, and there are never two worlds. */
#include "tests/unit/runtime_world.h"

#include <sys/socket.h>

/* Beside the ranks, and without links to them: in rank 0, before it has any. */
static void beside_the_ranks(void (*body)(void))
{
	if (meeting_rank || fork())
		return;
	body();
	_exit(0);
}

/* The last rank stands still: nobody waits for it for ever. */
static void continue_the_last_at_the_end(void)
{
	int last = (int)strlen(meeting_hosts) - 1;
	for (int r = 0; r < last; r++)
		while (!meeting->pid[r] || !kill(meeting->pid[r], 0))
			usleep(1000);
	kill(meeting->pid[last], SIGCONT);
}

/* All threads of another rank stand still. */
static bool stopped(int rank)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)meeting->pid[rank]);
	FILE *f = fopen(path, "r");
	must(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
	fclose(f);
	return state == 'T';
}

/* Links hold little from now on. */
static void stand_still(struct mesh *m)
{
	for (int i = 0; i < m->size; i++)
		setsockopt(peer_now(m, i).fd, SOL_SOCKET, SO_RCVBUF, &(int){ 1 }, sizeof(int));
	raise(SIGSTOP);
}

/* More than the link to a rank that stands still can hold, as after hours of beats. */
static void fill_link(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	struct activity mine = own_activity(m);
	while (!stopped(rank))
		usleep(1000);
	pthread_mutex_lock(&m->lock);
	setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));
	while (p->out.end - p->out.begin < 1u << 20)
		peer_post(p, &(struct wire_header){ .kind = WIRE_BEAT, .bytes = sizeof mine }, &mine);
	pthread_mutex_unlock(&m->lock);
}

/* ---- all of them ---------------------------------------------------------------------------------- */

enum { SUSPENDED_DEADLINE = 3, IN_RECOVERY = 0, RESUMED, RANKS_LEFT = 3 };

static void suspend_the_step(void)
{
	while (meeting->place[IN_RECOVERY] < 1)
		usleep(1000);
	for (int r = 0; r < RANKS_LEFT; r++)
		kill(meeting->pid[r], SIGSTOP);
	usleep((SUSPENDED_DEADLINE * 1000 + 500) * 1000);
	for (int r = 0; r < RANKS_LEFT; r++)
		kill(meeting->pid[r], SIGCONT);
	meeting->place[RESUMED]++;
}

/* Rank 3 dies; ranks 0 and 1 have begun to recover, and rank 2 has not, when the whole step is suspended. */
static void recover_while_suspended(void *arg)
{
	(void)arg;
	beside_the_ranks(suspend_the_step);
	struct hvd *h = join_to_survive(SUSPENDED_DEADLINE);
	if (meeting_rank == 3)
		_exit(0);
	while (!stop_word(h))
		usleep(1000);
	if (meeting_rank == 2) {
		while (peer_now(h->mesh, 0).doing.what != DOING_RECOVER || peer_now(h->mesh, 1).doing.what != DOING_RECOVER)
			usleep(1000);
		meeting->place[IN_RECOVERY]++;
		while (!meeting->place[RESUMED])
			usleep(1000);
	}
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == RANKS_LEFT);
	works(h, hvd_close(h));
}

static void a_recovery_that_is_suspended_for_longer_than_the_deadline_loses_no_rank(void **state)
{
	(void)state;
	run_ranks("abcd", recover_while_suspended, NULL);
}

/* ---- one of them ---------------------------------------------------------------------------------- */

static _Atomic double hurried; /* since when a second counts for twenty; 0: it does not */
static __thread double slow;   /* seconds that this thread's questions have taken; 0: they take none */

double __wrap_lived(void);
double __real_lived(void);

double __wrap_lived(void)
{
	double t = __real_lived() + slow, since = hurried;
	slow += slow > 0;
	return since > 0 ? since + 20 * (t - since) : t;
}

static void share_with_a_stopped_rank(void *arg)
{
	(void)arg;
	beside_the_ranks(continue_the_last_at_the_end);
	struct hvd *h = join_to_survive(20);
	if (meeting_rank)
		stand_still(h->mesh);
	fill_link(h->mesh, 1);
	hurried = __real_lived();
	void *memory = hvd_alloc(h, 4096);
	kill(meeting->pid[1], SIGKILL);
	must(!memory && hvd_lost(h) == 1);
	must(strstr(hvd_error(h), "no sign of life")); /* for the deadline */
	hvd_close(h);
}

static void memory_is_shared_within_the_deadline_and_no_sooner(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aa", share_with_a_stopped_rank, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
}

/* More than a hundred waits for the link, none of them long. */
static void reduce_for_long(void *arg)
{
	enum { MANY = 8 << 20 };
	(void)arg;
	struct hvd *h = join_within(100);
	float *p = hvd_alloc(h, MANY * sizeof *p);
	must(p);
	slow = 1;
	works(h, hvd_allreduce(h, p, p, MANY, HVD_F32, HVD_SUM));
	must(slow > 100);
	slow = 0;
	works(h, hvd_close(h));
}

static void an_all_reduce_that_goes_on_may_take_longer_than_the_deadline(void **state)
{
	(void)state;
	run_ranks("ab", reduce_for_long, NULL);
}

/* Rank 0 dies; ranks 1 and 2 have begun to recover when rank 3 stands still. */
static void stand_still_in_a_recovery(void *arg)
{
	(void)arg;
	beside_the_ranks(continue_the_last_at_the_end);
	struct hvd *h = join_to_survive(2);
	if (meeting_rank == 0)
		_exit(0);
	if (meeting_rank == 3) {
		while (peer_now(h->mesh, 1).doing.what != DOING_RECOVER || peer_now(h->mesh, 2).doing.what != DOING_RECOVER)
			usleep(1000);
		raise(SIGSTOP);
		_exit(0);
	}
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2);
	works(h, hvd_close(h));
}

static void a_rank_that_stands_still_in_a_recovery_is_ended_by_one_of_its_node(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aaaa", stand_still_in_a_recovery, NULL, status);
	meeting_over();
	assert_int_equal(status[1], 0);
	assert_int_equal(status[2], 0);
	assert_true(WIFSIGNALED(status[3]) && WTERMSIG(status[3]) == SIGKILL);
}

/* Rank 2 stands still, and the others go on without it, at the deadline or at once. What they tell it lies behind more beats than its links can hold. */
static struct hvd *leave_rank_2_behind(bool at_once)
{
	beside_the_ranks(continue_the_last_at_the_end);
	struct hvd *h = join_to_survive(2);
	if (meeting_rank == 2) {
		stand_still(h->mesh);
		while (!stop_word(h))
			usleep(1000);
		must(hvd_recover(h) == HVD_EBOOT);
		return h;
	}
	fill_link(h->mesh, 2);
	must((at_once ? mesh_lose(h->mesh, 2, CAUSE_LATE) : hvd_barrier(h)) == HVD_EPEER);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2);
	return h;
}

static void awake_beside_the_others(void *arg)
{
	(void)arg;
	struct hvd *h = leave_rank_2_behind(true);
	if (meeting_rank == 2)
		must(strstr(hvd_error(h), "the others gave it up"));
	else
		works(h, hvd_barrier(h));
	if (meeting_rank == 0)
		kill(meeting->pid[2], SIGCONT);
	wait_at(0, 3);
	hvd_close(h);
}

static void a_rank_that_was_given_up_hears_of_it_behind_a_full_link(void **state)
{
	(void)state;
	run_ranks("aaa", awake_beside_the_others, NULL);
}

static void awake_after_the_others(void *arg)
{
	(void)arg;
	struct hvd *h = leave_rank_2_behind(false);
	if (meeting_rank == 2)
		must(strstr(hvd_error(h), "more ranks are out of reach than are left"));
	hvd_close(h);
}

static void a_rank_that_awakes_when_all_others_have_ended_does_not_go_on_alone(void **state)
{
	(void)state;
	run_ranks("aab", awake_after_the_others, NULL);
}

/* Ranks 0 and 1 die meanwhile, and their links end without an error: whatever they had to say has come. */
static void awake_after_deaths(void *arg)
{
	(void)arg;
	beside_the_ranks(continue_the_last_at_the_end);
	struct hvd *h = join_to_survive(20);
	if (meeting_rank < 2) {
		while (!stopped(2))
			usleep(1000);
		usleep(1500000); /* long enough to be noticed */
		_exit(0);
	}
	raise(SIGSTOP);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 1);
	works(h, hvd_close(h));
}

static void a_rank_that_awakes_when_the_others_have_died_and_said_nothing_goes_on(void **state)
{
	(void)state;
	run_ranks("aab", awake_after_deaths, NULL);
}

/* Its clock says that it stood still for a second, which is over when a rank dies much later. */
static void stand_still_before(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	double awoke;
	(void)arg;
	pthread_mutex_lock(&m->lock);
	awoke = m->awoke;
	m->still -= 1;
	pthread_mutex_unlock(&m->lock);
	for (bool noted = false; !noted; usleep(1000)) {
		pthread_mutex_lock(&m->lock);
		noted = m->awoke > awoke;
		pthread_mutex_unlock(&m->lock);
	}
	works(h, hvd_close(h));
}

static void when_a_rank_stood_still_is_noted_before_it_is_asked_for(void **state)
{
	(void)state;
	run_ranks("aa", stand_still_before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recovery_that_is_suspended_for_longer_than_the_deadline_loses_no_rank),
		cmocka_unit_test(memory_is_shared_within_the_deadline_and_no_sooner),
		cmocka_unit_test(an_all_reduce_that_goes_on_may_take_longer_than_the_deadline),
		cmocka_unit_test(a_rank_that_stands_still_in_a_recovery_is_ended_by_one_of_its_node),
		cmocka_unit_test(a_rank_that_was_given_up_hears_of_it_behind_a_full_link),
		cmocka_unit_test(a_rank_that_awakes_when_all_others_have_ended_does_not_go_on_alone),
		cmocka_unit_test(a_rank_that_awakes_when_the_others_have_died_and_said_nothing_goes_on),
		cmocka_unit_test(when_a_rank_stood_still_is_noted_before_it_is_asked_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
