/* SPDX-License-Identifier: Apache-2.0
 * Sub-worlds: who is in them, sums in them, and a death in one. */
#include "tests/unit/runtime_world.h"

#include <sys/socket.h>

static struct hvd *open_world(int on_death)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.on_death = on_death;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	return h;
}

/* Sum of 1 << rank over those that meeting_hosts puts beside this rank: by letter, or by number within the letter. */
static int64_t expected(bool across)
{
	int64_t sum = 0;
	int local[RANKS_MAX] = { 0 }, n = (int)strlen(meeting_hosts);
	for (int r = 0; r < n; r++)
		for (int q = 0; q < r; q++)
			local[r] += meeting_hosts[q] == meeting_hosts[r];
	for (int r = 0; r < n; r++)
		if (across ? local[r] == local[meeting_rank] : meeting_hosts[r] == meeting_hosts[meeting_rank])
			sum += 1 << r;
	return sum;
}

static void split_all_ways(void *arg)
{
	struct hvd *h = open_world(0), *node, *across, *odd, *within, *rest, *none;
	int n = hvd_world(h)->size;
	(void)arg;
	works(h, hvd_split(h, HVD_SPLIT_NODE, &node));
	works(h, hvd_split(h, HVD_SPLIT_ACROSS, &across));
	works(h, hvd_split(h, meeting_rank == 0 ? HVD_SPLIT_NONE : meeting_rank % 2, &odd));
	must(hvd_world(node)->size == hvd_world(h)->local_size && hvd_world(node)->rank == hvd_world(h)->local_rank);
	must(hvd_world(node)->nodes == 1 && !strcmp(hvd_host(node, 0), hvd_host(h, meeting_rank)));
	must(!odd == !meeting_rank);
	works(h, hvd_split(h, meeting_rank == n - 1 ? HVD_SPLIT_NONE : 5, &rest));
	must(!rest == (meeting_rank == n - 1) && atomic_load(&h->mesh->what) == DOING_COMPUTE);
	if (rest)
		check_sum(rest, (1 << (n - 1)) - 1);
	works(rest, hvd_close(rest));
	for (int round = 0; round < 20; round++) { /* one after the other, in all of them */
		check_sum(node, expected(false));
		check_sum(h, (1 << n) - 1);
		check_sum(across, expected(true));
		int64_t odds = 0;
		for (int r = 1; r < n; r++)
			odds += r % 2 == meeting_rank % 2 ? 1 << r : 0;
		if (odd)
			check_sum(odd, odds);
	}
	float *shared = hvd_alloc(node, 100000 * sizeof *shared);
	must(shared);
	for (int i = 0; i < 100000; i++)
		shared[i] = (float)meeting_rank;
	works(node, hvd_allreduce(node, shared, shared, 100000, HVD_F32, HVD_MAX));
	must(shared[99999] >= (float)meeting_rank);
	works(across, hvd_split(across, 0, &within)); /* of a sub-world */
	check_sum(within, expected(true));
	must(hvd_split(h, -7, &none) == HVD_EINVAL && !none && hvd_recover(node) == HVD_EINVAL);
	must(hvd_close(h) == HVD_EINVAL); /* sub-worlds first */
	works(within, hvd_close(within));
	works(across, hvd_close(across));
	works(node, hvd_close(node));
	works(odd, hvd_close(odd));
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void ranks_form_worlds_by_node_across_nodes_and_by_color(void **state)
{
	(void)state;
	run_ranks("aabbb", split_all_ways, NULL);
	run_ranks("abab", split_all_ways, NULL);
	run_ranks("aaa", split_all_ways, NULL);
}

/* Rank 2 (of node b, where it is number 0) dies while the others wait for it in the sub-world of its node. */
static void die_in_a_sub_world(void *arg)
{
	struct hvd *h = open_world(1), *node;
	(void)arg;
	works(h, hvd_split(h, HVD_SPLIT_NODE, &node));
	all_arrive();
	if (meeting_rank == 2)
		raise(SIGKILL);
	int64_t sum = 1;
	int status = 0;
	while (!status)
		status = hvd_allreduce(meeting_rank > 2 ? node : h, &sum, &sum, 1, HVD_I64, HVD_MAX);
	must(status == HVD_EPEER);
	while (!(status = hvd_barrier(h))) /* the world above hears of it, by its own number */
		;
	must(status == HVD_EPEER && strstr(hvd_error(h), "rank 2 on node-b"));
	hvd_close(node);
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 4);
	works(h, hvd_split(h, HVD_SPLIT_NODE, &node));
	sum = 1;
	works(node, hvd_allreduce(node, &sum, &sum, 1, HVD_I64, HVD_SUM));
	must(sum == 2);
	works(node, hvd_close(node));
	works(h, hvd_close(h));
}

static void a_death_in_a_sub_world_is_one_of_the_world(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aabbb", die_in_a_sub_world, NULL, status);
	meeting_over();
	for (int r = 0; r < 5; r++)
		assert_int_equal(status[r], r == 2 ? SIGKILL : 0);
}

/* The rest of a test in which rank `victim` of four died in a split: the others split again. */
static void recover_and_split(struct hvd *h, int color)
{
	struct hvd *part;
	int64_t sum = 1;
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 3);
	works(h, hvd_split(h, color, &part));
	works(part, hvd_allreduce(part, &sum, &sum, 1, HVD_I64, HVD_SUM));
	must(sum == hvd_world(part)->size);
	works(part, hvd_close(part));
	works(h, hvd_close(h));
}

/* The others know that rank *arg will be in their sub-world, and have no link to it there. */
static void die_in_a_split(void *arg)
{
	const int *victim = arg;
	struct hvd *h = open_world(1), *part;
	int32_t color = 0, colors[4];
	all_arrive();
	if (meeting_rank == *victim) {
		mesh_doing(h->mesh, DOING_SPLIT, 0);
		works(h, mesh_gather(h->mesh, &color, sizeof color, colors));
		kill(getpid(), SIGKILL);
	}
	double begin = now();
	must(hvd_split(h, color, &part) == HVD_EPEER && !part && hvd_lost(h) == *victim);
	must(now() - begin < h->conf.deadline / 2);
	char was[64];
	snprintf(was, sizeof was, "rank %d was in hvd_split for ", meeting_rank);
	must(strstr(hvd_error(h), was));
	recover_and_split(h, color);
}

static void a_death_in_a_split_is_one_of_the_world(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		int status[RANKS_MAX], victim = i / 2;
		spawn_ranks(i % 2 ? "aaaa" : "aabb", die_in_a_split, &victim, status);
		meeting_over();
		for (int r = 0; r < 4; r++)
			assert_int_equal(status[r], r == victim ? SIGKILL : 0);
	}
}

/* Splits one after the other, of all ranks or across the nodes, until rank arg[0] is killed after arg[1] microseconds. */
static void split_until_a_kill(void *arg)
{
	const int *victim = arg;
	struct hvd *h = open_world(1), *part;
	int status = 0, color;
	const pid_t self = getpid(); /* a rank that has failed meanwhile has left its children to a stranger */
	all_arrive();
	if (meeting_rank == victim[0] && !fork()) {
		usleep((useconds_t)victim[1]);
		kill(self, SIGKILL);
		_exit(0);
	}
	for (int i = 0; !status; i++) {
		color = i % 2 ? 0 : HVD_SPLIT_ACROSS;
		status = hvd_split(h, color, &part);
		if (!status)
			status = hvd_barrier(part);
		must(!status || status == HVD_EPEER);
		hvd_close(part);
		if (!status)
			status = hvd_barrier(h);
	}
	for (double until = now() + 10; hvd_barrier(h) != HVD_EPEER;) /* it may have been a barrier of the sub-world */
		must(now() < until);
	must(hvd_lost(h) == victim[0]);
	recover_and_split(h, 0);
}

static void a_kill_at_any_instant_of_a_split_is_survived(void **state)
{
	(void)state;
	static const char *const layouts[] = { "aaaa", "aabb", "abab", "abcd" };
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 40; i++) {
		int status[RANKS_MAX], victim[] = { rand_r(&random) % 4, rand_r(&random) % 40000 };
		spawn_ranks(layouts[i % 4], split_until_a_kill, victim, status);
		meeting_over();
		for (int r = 0; r < 4; r++)
			assert_int_equal(status[r], r == victim[0] ? SIGKILL : 0);
	}
}

/* Splits one after the other, and a recovery after each loss, while two ranks are killed, each after a time of its own. */
static void split_through_two_kills(void *arg)
{
	const int *victim = arg, *after = victim + 2;
	struct hvd *h = open_world(1), *part;
	int64_t more = 1;
	const pid_t self = getpid();
	all_arrive();
	for (int v = 0; v < 2; v++)
		if (meeting_rank == victim[v] && !fork()) {
			usleep((useconds_t)after[v]);
			kill(self, SIGKILL);
			_exit(0);
		}
	double end = now() + 0.15;
	for (int i = 0; more; i++) {
		int status = hvd_split(h, i % 2 ? 0 : HVD_SPLIT_ACROSS, &part);
		if (!status)
			status = hvd_barrier(part);
		must(!status || status == HVD_EPEER);
		hvd_close(part);
		more = now() < end;
		if (!status)
			status = hvd_allreduce(h, &more, &more, 1, HVD_I64, HVD_MAX);
		for (double until = now() + 10; status && !stop_word(h);)
			must(now() < until); /* what broke the sub-world is soon known above */
		more |= status;
		if (status) {
			works(h, hvd_recover(h));
			i = -1; /* survivors may be one apart, and all split alike */
		}
	}
	works(h, hvd_close(h));
}

static void two_kills_at_any_instants_of_splits_and_recoveries_are_survived(void **state)
{
	(void)state;
	static const char *const layouts[] = { "aaaa", "aabb", "abab", "abcde" };
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 30; i++) {
		int n = (int)strlen(layouts[i % 4]), first = rand_r(&random) % n, at = rand_r(&random) % 60000;
		int status[RANKS_MAX], victim[] = { first, (first + 1 + rand_r(&random) % (n - 1)) % n, at, at + rand_r(&random) % 30000 };
		spawn_ranks(layouts[i % 4], split_through_two_kills, victim, status);
		meeting_over();
		for (int r = 0; r < n; r++)
			assert_int_equal(status[r], r == victim[0] || r == victim[1] ? SIGKILL : 0);
	}
}

/* Rank 1's word that rank 0 has closed the sub-world comes to rank 2 before rank 0's own goodbye. */
static void hear_that_one_left(void *arg)
{
	struct hvd *h = open_world(1), *part;
	(void)arg;
	works(h, hvd_split(h, 0, &part));
	works(h, hvd_barrier(h));
	if (meeting_rank == 2) {
		pthread_mutex_lock(&part->mesh->lock);
		fault_locked(part->mesh, HVD_EPEER, 0, CAUSE_LEFT, 1, NULL);
		pthread_mutex_unlock(&part->mesh->lock);
		watch_told(part->mesh);
	}
	must(hvd_barrier(part) == HVD_EPEER);
	works(h, hvd_barrier(h));
	hvd_close(part);
	works(h, hvd_close(h));
}

static void close_while_another_waits(void *arg)
{
	struct hvd *h = open_world(1), *part;
	(void)arg;
	works(h, hvd_split(h, 0, &part));
	works(h, hvd_barrier(h));
	double begin = lived();
	if (meeting_rank)
		hvd_close(part);
	else
		must(hvd_barrier(part) == HVD_EPEER && lived() - begin < PATIENCE);
	works(h, hvd_barrier(h));
	if (!meeting_rank)
		hvd_close(part);
	works(h, hvd_close(h));
}

/* The world above hears nothing of this rank's for a moment. */
static void *hold(void *world)
{
	struct hvd *h = world;
	usleep(2900000); /* of a deadline of three seconds */
	pthread_mutex_lock(&h->mesh->lock);
	for (int i = 0; i < 500 && !meeting->place[0]; i++)
		usleep(1000);
	pthread_mutex_unlock(&h->mesh->lock);
	return NULL;
}

/* Rank 1 computes for longer than the deadline while the others wait for it in a sub-world: it is late, and neither silent nor killed. It is told so in
 * the sub-world, before the world above knows, and passes that on. */
static void come_late_to_a_sub_world(void *arg)
{
	struct hvd *h = join_to_survive(3), *all;
	pthread_t holder;
	(void)arg;
	works(h, hvd_split(h, 0, &all));
	works(all, hvd_barrier(all));
	if (meeting_rank == 1) {
		while (!h->mesh->failed)
			usleep(1000);
		meeting->place[0] = 1;
		must(hvd_recover(h));
		_exit(0);
	}
	must(!pthread_create(&holder, NULL, hold, h));
	must(hvd_barrier(all) == HVD_EPEER && hvd_barrier(h) == HVD_EPEER);
	must(strstr(hvd_error(h), ": alive, but it did not come along within the deadline"));
	must(!pthread_join(holder, NULL));
	hvd_close(all);
	works(h, hvd_recover(h));
	hvd_close(h);
}

static void who_is_late_in_a_sub_world_is_called_late_and_lives(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) /* which of two watchers is the first is chance */
		run_ranks("aaa", come_late_to_a_sub_world, NULL);
}

/* Of a link that ends between two that live the world above learns only after three seconds; the sub-world is closed at once. */
static void close_after_a_broken_link(void *arg)
{
	struct hvd *h = join_to_survive(2), *part;
	(void)arg;
	works(h, hvd_split(h, 0, &part));
	works(h, hvd_barrier(h));
	if (meeting_rank == 1)
		shutdown(peer_now(part->mesh, 0).fd, SHUT_RDWR);
	while (!part->mesh->failed)
		usleep(1000);
	must(hvd_close(part) == HVD_EPEER && h->mesh->failed == HVD_EPEER);
	hvd_close(h);
}

static void a_sub_world_is_closed_once_the_world_above_knows_what_broke_it(void **state)
{
	(void)state;
	run_ranks("ab", close_after_a_broken_link, NULL);
}

/* Rank 0 gives the sub-world up, waits in the world, and has no word there for rank 1, which waits for one. */
static void wait_for_a_word_in_vain(void *arg)
{
	struct hvd *h = join_to_survive(*(const double *)arg), *part;
	const char no_invitation[sizeof(struct card) + 16] = { 0 };
	int32_t color = 0, colors[2];
	double begin = lived();
	if (meeting_rank) {
		must(hvd_split(h, 0, &part) == HVD_EBOOT && strstr(hvd_error(h), "rank 0 cannot set up its part"));
		must(lived() - begin < 1.8 * PATIENCE);
	} else {
		mesh_doing(h->mesh, DOING_SPLIT, 0);
		works(h, mesh_gather(h->mesh, &color, sizeof color, colors));
		mesh_send(h->mesh, 1, mesh_tag(h->mesh), no_invitation, sizeof no_invitation, -1);
	}
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void who_waits_for_what_broke_a_split_is_not_lost_by_that(void **state)
{
	(void)state;
	run_ranks("aa", wait_for_a_word_in_vain, &(double){ 2 });
	run_ranks("aa", wait_for_a_word_in_vain, &(double){ 20 });
}

static int hear_invitation(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	(void)why;
	return mesh_receive(b->state, 0, mesh_tag(b->state), card, bytes, NULL, until);
}

static int go_on(struct boot *b, char *why)
{
	(void)b, (void)why;
	return 0;
}

/* Rank 1 has its links in the sub-world, and shares no memory there. */
static void link_in_a_split(struct hvd *h, struct mesh *m)
{
	struct boot boot = { .rank = 1, .size = 2, .nodes = 1, .host = "node-a", .state = h->mesh, .lookup = hear_invitation, .host_of = meeting_host_of, .over = go_on };
	int32_t color = 0, colors[2];
	mesh_doing(h->mesh, DOING_SPLIT, 0);
	works(h, mesh_gather(h->mesh, &color, sizeof color, colors));
	works(h, mesh_open(m, &boot, &h->conf, h->error));
}

static void hang_in_a_split(void *arg)
{
	struct hvd *h = join_to_survive(2), *part;
	(void)arg;
	if (meeting_rank) {
		struct mesh m;
		link_in_a_split(h, &m);
		while (!stop_word(h))
			usleep(1000);
		must(hvd_recover(h) == HVD_EBOOT);
		_exit(0);
	}
	must(hvd_split(h, 0, &part) == HVD_EPEER && hvd_lost(h) == 1 && strstr(hvd_error(h), "alive, but it did not come along within the deadline"));
	works(h, hvd_recover(h));
	works(h, hvd_close(h));
}

/* As one does that cannot go on there. */
static void end_a_link_in_a_split(void *arg)
{
	struct hvd *h = join_to_survive(20), *part;
	struct mesh m;
	(void)arg;
	if (meeting_rank) {
		link_in_a_split(h, &m);
		shutdown(peer_now(&m, 0).fd, SHUT_RDWR);
	} else {
		must(hvd_split(h, 0, &part) == HVD_EBOOT && !part);
	}
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
	_exit(0);
}

static void who_ends_its_links_in_a_split_is_not_lost_to_the_world(void **state)
{
	(void)state;
	run_ranks("aa", end_a_link_in_a_split, NULL);
}

static void who_is_late_in_a_split_is_lost_to_the_world(void **state)
{
	(void)state;
	run_ranks("aa", hang_in_a_split, NULL);
}

/* Rank 2 dies. Rank 1 closes the sub-world that it has with rank 0, which hears of that before it hears of the death. */
static void hear_of_a_death_last(void *arg)
{
	struct hvd *h = open_world(1), *part;
	(void)arg;
	works(h, hvd_split(h, meeting_rank / 2, &part));
	if (!meeting_rank)
		pthread_mutex_lock(&h->mesh->lock);
	all_arrive();
	if (meeting_rank == 2)
		raise(SIGKILL);
	if (meeting_rank) {
		while (!stop_word(h))
			usleep(1000);
		hvd_close(part);
	} else {
		must(hvd_barrier(part) == HVD_EPEER && !h->mesh->failed);
		hvd_close(part);
		pthread_mutex_unlock(&h->mesh->lock);
	}
	works(h, hvd_recover(h));
	must(hvd_world(h)->size == 2);
	works(h, hvd_close(h));
}

static void a_recovery_waits_for_what_broke_the_sub_world(void **state)
{
	(void)state;
	run_ranks_but(2, "aaa", hear_of_a_death_last, NULL);
	run_ranks_but(2, "abc", hear_of_a_death_last, NULL);
}

/* A node's ranks numbered 0 and the first of all nodes had the same number, too. */
static void split_in_two_ways(void *arg)
{
	struct hvd *h = join_to_survive(20), *part = h;
	(void)arg;
	must(hvd_split(h, meeting_rank == 0 ? HVD_SPLIT_NONE : meeting_rank == 1 ? HVD_SPLIT_NODE : HVD_SPLIT_ACROSS, &part) == HVD_EMISMATCH && !part);
	must(!strcmp(hvd_error(h), "hvd_split: rank 2 on node-b splits across nodes, rank 1 by node"));
	must(hvd_split(h, meeting_rank == 3 ? HVD_SPLIT_NODE : 0, &part) == HVD_EMISMATCH && strstr(hvd_error(h), "rank 3 on node-b splits by node, rank 0 by color"));
	works(h, hvd_split(h, meeting_rank ? HVD_SPLIT_NODE : HVD_SPLIT_NONE, &part));
	must(meeting_rank ? hvd_world(part)->size == (meeting_rank < 2 ? 1 : 2) : !part);
	works(h, hvd_close(part));
	works(h, hvd_close(h));
}

static void ranks_that_split_in_different_ways_are_told(void **state)
{
	(void)state;
	run_ranks("aabb", split_in_two_ways, NULL);
}

static void who_closes_a_sub_world_is_not_lost_to_the_world(void **state)
{
	(void)state;
	run_ranks("aaa", hear_that_one_left, NULL);
	run_ranks("ab", close_while_another_waits, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_form_worlds_by_node_across_nodes_and_by_color),
		cmocka_unit_test(a_death_in_a_sub_world_is_one_of_the_world),
		cmocka_unit_test(a_death_in_a_split_is_one_of_the_world),
		cmocka_unit_test(a_kill_at_any_instant_of_a_split_is_survived),
		cmocka_unit_test(two_kills_at_any_instants_of_splits_and_recoveries_are_survived),
		cmocka_unit_test(ranks_that_split_in_different_ways_are_told),
		cmocka_unit_test(who_closes_a_sub_world_is_not_lost_to_the_world),
		cmocka_unit_test(a_recovery_waits_for_what_broke_the_sub_world),
		cmocka_unit_test(who_is_late_in_a_split_is_lost_to_the_world),
		cmocka_unit_test(who_ends_its_links_in_a_split_is_not_lost_to_the_world),
		cmocka_unit_test(who_waits_for_what_broke_a_split_is_not_lost_by_that),
		cmocka_unit_test(who_is_late_in_a_sub_world_is_called_late_and_lives),
		cmocka_unit_test(a_sub_world_is_closed_once_the_world_above_knows_what_broke_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
