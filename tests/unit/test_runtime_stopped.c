/* SPDX-License-Identifier: Apache-2.0
 * Ranks that stand still and come back (SIGSTOP, scontrol suspend): no healthy rank is lost by it, and there are never two worlds. */
#include "tests/unit/runtime_world.h"

static struct hvd *open_world(double deadline)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.on_death = 1;
	conf.deadline = deadline;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	return h;
}

/* Beside the ranks, and without links to them: in rank 0, before it has any. */
static void beside_the_ranks(void (*body)(void))
{
	if (meeting_rank || fork())
		return;
	body();
	_exit(0);
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

/* More than the link to a rank that stands still can hold, as after an hour of beats. */
static void fill_link(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	struct activity mine = own_activity(m);
	while (!stopped(rank))
		usleep(1000);
	pthread_mutex_lock(&m->lock);
	while (p->out.begin == p->out.end)
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
	struct hvd *h = open_world(SUSPENDED_DEADLINE);
	const struct peer *peer = h->mesh->peer;
	if (meeting_rank == 3)
		_exit(0);
	while (!*hvd_stop_word(h))
		usleep(1000);
	if (meeting_rank == 2) {
		while (peer[0].doing.what != DOING_RECOVER || peer[1].doing.what != DOING_RECOVER)
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

double __wrap_lived(void);
double __real_lived(void);

double __wrap_lived(void)
{
	double t = __real_lived(), since = hurried;
	return since > 0 ? since + 20 * (t - since) : t;
}

static void share_with_a_stopped_rank(void *arg)
{
	(void)arg;
	struct hvd *h = open_world(20);
	if (meeting_rank)
		raise(SIGSTOP);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recovery_that_is_suspended_for_longer_than_the_deadline_loses_no_rank),
		cmocka_unit_test(memory_is_shared_within_the_deadline_and_no_sooner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
