/* SPDX-License-Identifier: Apache-2.0
 * What a recovery makes anew, memory, links and messages, and how it ends where it cannot. */
#include "tests/unit/runtime_world.h"

#include <errno.h>
#include <poll.h>

/* With a plan of its own, which a recovery has to make anew as well. */
static struct hvd *open_planned(double deadline, struct hvd_plan **plan)
{
	static const struct hvd_tensor tensors[] = { { "a", 10000 }, { "b", 10000 } };
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.on_death = 1;
	conf.deadline = deadline;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_plan_open(h, plan, tensors, 2, 0));
	return h;
}

/* Rank 1 is dead and the watcher has not said so yet: it is held up until the others are at the call. */
static void share_with_the_dead(void *arg)
{
	struct hvd_plan *plan;
	(void)arg;
	struct hvd *h = open_planned(20, &plan);
	struct mesh *m = h->mesh;
	struct pollfd link = { .fd = peer_now(m, 1).fd };
	pthread_mutex_lock(&m->lock);
	all_arrive();
	if (meeting_rank == 1)
		kill(getpid(), SIGKILL);
	while (!(link.revents & POLLHUP))
		poll(&link, 1, 10);
	pthread_mutex_unlock(&m->lock);
	must(!hvd_alloc(h, 4096));
	must(m->failed == HVD_EPEER && hvd_lost(h) == 1);
	works(h, hvd_recover(h));
	must(hvd_alloc(h, 4096));
	hvd_plan_close(plan);
	hvd_close(h);
}

static void memory_cannot_be_shared_with_a_dead_rank_and_that_is_its_death(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		const char *hosts = "aaa";
		int status[RANKS_MAX];
		spawn_ranks(hosts, share_with_the_dead, NULL, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[2], 0);
	}
}

/* p[i] becomes the sum over all ranks, in place; n floats. */
static void sum_in_place(struct hvd *h, float *p, int n)
{
	const int size = hvd_world(h)->size;
	for (int i = 0; i < n; i++)
		p[i] = (float)(i % 1000 + hvd_world(h)->rank);
	works(h, hvd_allreduce(h, p, p, (size_t)n, HVD_F32, HVD_SUM));
	for (int i = 0; i < n; i++)
		must(p[i] == (float)(size * (i % 1000) + size * (size - 1) / 2));
}

/* The last rank dies while rank 0 has already freed what the others still have, and they are in a split that rank 0 has not come to: what all
 * have is shared again, and the next split meets. */
static void lose_in_different_calls(void *arg)
{
	enum { FLOATS = 300000 }; /* more than one piece */
	struct hvd_plan *plan;
	struct hvd *part;
	(void)arg;
	struct hvd *h = open_planned(3, &plan);
	float *kept = hvd_alloc(h, FLOATS * sizeof *kept), *freed = hvd_alloc(h, FLOATS * sizeof *freed);
	must(kept && freed);
	all_arrive();
	if (meeting_rank == (int)strlen(meeting_hosts) - 1)
		kill(getpid(), SIGKILL);
	if (meeting_rank == 0) {
		hvd_free(h, freed);
		freed = malloc(FLOATS * sizeof *freed);
		must(freed);
	}
	must((meeting_rank ? hvd_split(h, 0, &part) : hvd_barrier(h)) == HVD_EPEER);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == (int)strlen(meeting_hosts) - 1);
	const uint64_t staged = h->staged;
	sum_in_place(h, kept, FLOATS);
	must(h->staged == staged); /* it is reduced where it is */
	sum_in_place(h, freed, FLOATS); /* is memory like any other now, on every node */
	if (meeting_rank)
		hvd_free(h, freed);
	else
		free(freed);
	works(h, hvd_split(h, 0, &part));
	works(part, hvd_close(part));
	hvd_plan_close(plan);
	works(h, hvd_close(h));
}

static void survivors_that_were_in_different_calls_meet_again(void **state)
{
	(void)state;
	static const char *const hosts[] = { "aaa", "abc", "aabbb" };
	for (int i = 0; i < 3; i++) {
		int status[RANKS_MAX];
		spawn_ranks(hosts[i], lose_in_different_calls, NULL, status);
		meeting_over();
		for (size_t r = 0; r + 1 < strlen(hosts[i]); r++)
			assert_int_equal(status[r], 0);
	}
}

/* Rank 1 dies in an exchange, for which rank 0 has rank 2's message already, after more exchanges than tags had numbers for once. None of those
 * after the recovery may take that message for theirs. */
static void lose_in_a_late_exchange(void *arg)
{
	enum { BEFORE = 4096 + 20, AFTER = 40 };
	const bool memory = arg;
	struct hvd_plan *plan;
	struct hvd *h = open_planned(20, &plan);
	struct mesh *m = h->mesh;
	for (int i = 0; i < BEFORE && memory; i++) {
		void *p = hvd_alloc(h, 4096);
		must(p);
		hvd_free(h, p);
	}
	for (int i = 0; i < BEFORE && !memory; i++)
		works(h, hvd_plan_accumulate(plan, 1));
	for (bool came = meeting_rank; !came; usleep(100)) {
		pthread_mutex_lock(&m->lock);
		came = m->peer[2].inbox;
		pthread_mutex_unlock(&m->lock);
	}
	if (meeting_rank < 2)
		wait_at(0, 2);
	if (meeting_rank == 1)
		kill(getpid(), SIGKILL);
	if (memory)
		must(!hvd_alloc(h, 4096));
	else
		must(hvd_plan_accumulate(plan, 3) == HVD_EPEER && !hvd_plan_ready(plan, 0)); /* begins a step, which ends with the recovery */
	must(meeting_rank == 0 || strstr(hvd_error(h), memory ? "rank 2 was in hvd_alloc for" : "rank 2 was in hvd_plan_accumulate for"));
	works(h, hvd_recover(h));
	pthread_mutex_lock(&m->lock);
	for (const struct message *message = m->peer[meeting_rank ? 0 : 2].inbox; message; message = message->next)
		must(message->header.tag >> 32 == m->rounds); /* the other may be ahead */
	pthread_mutex_unlock(&m->lock);
	for (int i = 0; i < AFTER && !memory; i++)
		works(h, hvd_plan_accumulate(plan, 2));
	for (int i = 0; i < AFTER && memory; i++) {
		float *p = hvd_alloc(h, 4096);
		must(p);
		sum_in_place(h, p, 1024);
		hvd_free(h, p);
	}
	hvd_plan_close(plan);
	works(h, hvd_close(h));
}

static void messages_of_before_a_death_are_not_taken_for_later_ones(void **state)
{
	(void)state;
	for (int memory = 0; memory < 2; memory++) {
		int status[RANKS_MAX];
		spawn_ranks("aaa", lose_in_a_late_exchange, memory ? state : NULL, status);
		meeting_over();
		assert_int_equal(status[0], 0);
		assert_int_equal(status[2], 0);
	}
}

static _Thread_local int callocs_left = -1; /* until one fails; -1: none does */

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (callocs_left < 0 || callocs_left--)
		return __real_calloc(n, size);
	errno = ENOMEM;
	return NULL;
}

/* Rank 2 dies, and in the recovery rank 0's allocation number *arg fails, if there are so many. */
static void recover_without_memory(void *arg)
{
	struct hvd_plan *plan;
	struct hvd *h = open_planned(20, &plan);
	float *p = hvd_alloc(h, 4096);
	must(p);
	all_arrive();
	if (meeting_rank == 2)
		kill(getpid(), SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	callocs_left = meeting_rank ? -1 : *(const int *)arg;
	int status = hvd_recover(h);
	bool failed = !meeting_rank && callocs_left < 0;
	callocs_left = -1;
	if (failed) {
		must(status == HVD_ESYS && strstr(hvd_error(h), "no memory") && hvd_allreduce(h, p, p, 100, HVD_F32, HVD_SUM) && !hvd_alloc(h, 8));
		status = hvd_recover(h); /* there is memory again; where the others have heard that there was none, that stays so */
		must(!status || status == HVD_EBOOT || (status == HVD_ESYS && strstr(hvd_error(h), "no memory")));
	} else {
		works(h, status); /* nobody stops for what another lacks */
	}
	meeting->place[1] += failed;
	hvd_free(h, p);
	hvd_plan_close(plan);
	hvd_close(h);
}

static void a_recovery_without_memory_ends_and_leaves_nothing_that_crashes(void **state)
{
	(void)state;
	static const char *const hosts[] = { "aaa", "abc" };
	for (int i = 0; i < 2; i++)
		for (int k = 0, failed = 1; failed; k++) {
			int status[RANKS_MAX];
			spawn_ranks(hosts[i], recover_without_memory, &k, status);
			failed = meeting->place[1];
			meeting_over();
			assert_int_equal(status[0], 0);
			assert_int_equal(status[1], 0);
			assert_true(failed || k > 5);
		}
}

/* Rank 2 dies, and those that are left cannot form the link between their nodes. */
static void recover_without_a_link(void *arg)
{
	struct hvd_plan *plan;
	(void)arg;
	struct hvd *h = open_planned(1, &plan);
	all_arrive();
	if (meeting_rank == 2)
		kill(getpid(), SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	h->mesh->links.secret[0] ^= (uint8_t)meeting_rank;
	must(freopen("/dev/null", "w", stderr)); /* each is a stranger to the other */
	meeting->note[meeting_rank] = hvd_recover(h);
	snprintf(meeting->text[meeting_rank], sizeof meeting->text[0], "%s", hvd_error(h));
	hvd_plan_close(plan);
	hvd_close(h);
}

static void where_no_link_can_be_formed_a_recovery_ends(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("abc", recover_without_a_link, NULL, status);
	int first = meeting->note[0] ? 0 : 1; /* the other may go on, alone */
	assert_true(status[0] == 0 && status[1] == 0);
	assert_int_equal(meeting->note[first], HVD_EBOOT);
	assert_non_null(strstr(meeting->text[first], "did not answer within 1 s"));
	assert_true(!meeting->note[!first] || meeting->note[!first] == HVD_EBOOT);
	meeting_over();
}

static struct hvd *recovering; /* of a test in which rank 1 dies when all have recovered, before hvd_recover() returns */

void __wrap_queue_reset(struct hvd *h);
void __real_queue_reset(struct hvd *h);

void __wrap_queue_reset(struct hvd *h)
{
	__real_queue_reset(h);
	if (h != recovering || h->world.size == 1)
		return;
	wait_at(0, 2);
	if (meeting_rank == 1)
		kill(getpid(), SIGKILL);
	while (!h->mesh->told)
		usleep(1000);
}

static void lose_at_the_end_of_a_recovery(void *arg)
{
	struct hvd_plan *plan;
	(void)arg;
	struct hvd *h = open_planned(20, &plan);
	recovering = h;
	all_arrive();
	if (meeting_rank == 2)
		kill(getpid(), SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2 && stop_word(h) == 1 && hvd_barrier(h) == HVD_EPEER);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 1 && stop_word(h) == 0);
	hvd_plan_close(plan);
	works(h, hvd_close(h));
}

static void a_loss_at_the_end_of_a_recovery_is_in_the_stop_word(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aab", lose_at_the_end_of_a_recovery, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
}

/* Pieces of memory that ranks share. */
static int mapped(void)
{
	int n = 0;
	char line[4200];
	FILE *f = fopen("/proc/self/maps", "re");
	must(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "memfd:hvd") != NULL;
	fclose(f);
	return n;
}

/* Before rank 1's death each rank has links for data to another node, a window and memory of its own, and those of its neighbour. */
static void count_what_is_open(void *arg)
{
	(void)arg;
	const int before = open_files();
	struct hvd *h = join_to_survive(20), *part;
	works(h, hvd_split(h, HVD_SPLIT_NODE, &part));
	works(h, hvd_close(part));
	void *p = hvd_alloc(h, 4096);
	must(p && mapped() == 4);
	const int formed = open_files();
	go_on_without_rank_1(h);
	must(open_files() < formed && mapped() == (meeting_rank ? 4 : 2)); /* one control link less */
	hvd_free(h, p);
	works(h, hvd_close(h));
	must(open_files() == before && mapped() == 0);
}

static void files_and_memory_of_before_a_recovery_are_given_back(void **state)
{
	(void)state;
	run_ranks_but(1, "aabb", count_what_is_open, NULL);
}

/* What a world of the same ranks would not cure. */
static void fail_otherwise(void *arg)
{
	struct hvd *h = join_to_survive(20);
	(void)arg;
	if (!meeting_rank)
		mesh_fault(h->mesh, HVD_ESYS, "no memory");
	must(hvd_barrier(h) == HVD_ESYS && hvd_recover(h) == HVD_ESYS);
	must(!strncmp(hvd_error(h), "hvd_recover: no rank is lost: ", 30) && strstr(hvd_error(h), "no memory"));
	hvd_close(h);
}

static void without_continue_or_a_lost_rank_there_is_no_recovery(void **state)
{
	(void)state;
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	meeting_hosts = "a";
	assert_int_equal(hvd_init_from(&h, &conf, meet), 0);
	assert_int_equal(hvd_recover(h), HVD_EINVAL);
	assert_string_equal(hvd_error(h), "hvd_recover: on_death is abort (srun --hvd=on_death=continue)");
	hvd_close(h);
	conf.on_death = 1;
	assert_int_equal(hvd_init_from(&h, &conf, meet), 0);
	assert_int_equal(hvd_recover(h), HVD_EINVAL);
	assert_string_equal(hvd_error(h), "hvd_recover: no rank is lost");
	hvd_close(h);
	run_ranks("ab", fail_otherwise, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_cannot_be_shared_with_a_dead_rank_and_that_is_its_death),
		cmocka_unit_test(survivors_that_were_in_different_calls_meet_again),
		cmocka_unit_test(messages_of_before_a_death_are_not_taken_for_later_ones),
		cmocka_unit_test(a_recovery_without_memory_ends_and_leaves_nothing_that_crashes),
		cmocka_unit_test(where_no_link_can_be_formed_a_recovery_ends),
		cmocka_unit_test(a_loss_at_the_end_of_a_recovery_is_in_the_stop_word),
		cmocka_unit_test(files_and_memory_of_before_a_recovery_are_given_back),
		cmocka_unit_test(without_continue_or_a_lost_rank_there_is_no_recovery),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
