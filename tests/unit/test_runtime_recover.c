/* SPDX-License-Identifier: Apache-2.0
 * With on_death continue, survivors go on: no hang, equal parameters, no step lost, and never two worlds. */
#include "tests/unit/runtime_world.h"

enum { PARAMETERS = 20000, STEPS = 150, VALUES = PARAMETERS + STEPS, GAVE_UP = 9 };

struct scene {
	int victims, victim[2], signal;
	useconds_t after[2];
	double deadline;
	int survivors; /* that are expected to reach the end */
};

struct training {
	struct hvd *h;
	struct hvd_plan *plan;
	float *gradient;
	float value[VALUES], taken[VALUES]; /* parameters, then how often each step has reached them */
	double recovered; /* longest time from a failed call to the next good step, in seconds */
	int32_t step;
	bool hands_over_in_vain; /* the first to hand over its state is killed half-way */
};

static void open_training(struct training *t, double deadline)
{
	static const struct hvd_tensor tensors[] = { { "a", PARAMETERS / 2 }, { "b", PARAMETERS / 2 } };
	struct hvd_conf conf = quick_conf();
	conf.on_death = 1;
	conf.deadline = deadline;
	int status = hvd_init_from(&t->h, &conf, meet);
	works(t->h, status);
	works(t->h, hvd_plan_open(t->h, &t->plan, tensors, 2, 0));
	t->gradient = hvd_plan_slab(t->plan);
}

static int reduce_gradients(struct training *t)
{
	for (int i = 0; i < PARAMETERS; i++)
		t->gradient[i] = (float)((i * 31 + t->step * 7 + meeting_rank) % 97);
	int status = hvd_plan_ready(t->plan, 0);
	if (!status)
		status = hvd_plan_ready(t->plan, 1);
	return status ? status : hvd_plan_finish(t->plan);
}

static void update(struct training *t)
{
	for (int i = 0; i < PARAMETERS; i++)
		t->value[i] -= 0.01f * t->gradient[i];
	if (t->step < STEPS)
		t->value[PARAMETERS + t->step]++;
	t->step++;
}

static int train_step(struct training *t)
{
	int status = reduce_gradients(t);
	if (!status)
		update(t);
	return status;
}

/* Between the two broadcasts of a state, when every rank has the first. */
static void die_handing_over(const struct training *t, int furthest)
{
	const struct hvd_world *w = hvd_world(t->h);
	if (!t->hands_over_in_vain || w->size < (int)strlen(meeting_hosts) - 1)
		return;
	wait_at(1, w->size);
	if (w->rank == furthest)
		kill(getpid(), SIGKILL);
}

/* Everybody takes the state of the rank that got furthest, all of it or nothing: that rank may be lost on the way. */
static int take_furthest(struct training *t)
{
	int32_t steps[RANKS_MAX], step = t->step;
	int furthest = 0, status = hvd_allgather(t->h, &t->step, steps, 1, HVD_I32);
	if (status)
		return status;
	for (int r = 1; r < hvd_world(t->h)->size; r++) {
		must(steps[r] - steps[0] <= 1 && steps[0] - steps[r] <= 1);
		furthest = steps[r] > steps[furthest] ? r : furthest;
	}
	status = hvd_broadcast(t->h, &step, 1, HVD_I32, furthest);
	if (status)
		return status;
	die_handing_over(t, furthest);
	memcpy(t->taken, t->value, sizeof t->taken);
	status = hvd_broadcast(t->h, t->taken, VALUES, HVD_F32, furthest);
	if (status)
		return status;
	memcpy(t->value, t->taken, sizeof t->taken);
	t->step = step;
	return 0;
}

static void recover(struct training *t, int status)
{
	double begin = now();
	while (status) {
		works(t->h, status == HVD_EPEER ? 0 : status);
		unsigned epoch = hvd_world(t->h)->epoch;
		status = hvd_recover(t->h);
		if (status) {
			snprintf(meeting->text[meeting_rank], sizeof meeting->text[0], "%s", hvd_error(t->h));
			_exit(GAVE_UP);
		}
		must(hvd_world(t->h)->epoch > epoch);
		status = take_furthest(t);
	}
	t->recovered = now() - begin > t->recovered ? now() - begin : t->recovered;
}

/* To the last step, and at least until `end`. */
static void train_on(struct training *t, double end)
{
	static float all[RANKS_MAX * VALUES];
	bool gathered = false;
	while (!gathered) {
		int32_t more = t->step < STEPS || now() < end;
		int status = train_step(t);
		if (!status) /* all stop after the same step … */
			status = hvd_allreduce(t->h, &more, &more, 1, HVD_I32, HVD_MAX);
		if (!status && !more)
			status = hvd_allgather(t->h, t->value, all, VALUES, HVD_F32);
		gathered = !status && !more;
		if (status) /* … but where a rank died in the word about it, some may not have heard: nobody stops then */
			recover(t, status);
	}
	/* the survivors' parameters are the same, bit for bit, and every step is in them once */
	for (int r = 0; r < hvd_world(t->h)->size; r++)
		must(!memcmp(all + (size_t)r * VALUES, t->value, sizeof t->value));
	for (int i = PARAMETERS; i < VALUES; i++)
		must(t->value[i] > 0.5f && t->value[i] < 1.5f);
	hvd_plan_close(t->plan);
	hvd_close(t->h);
}

static void be_killed_later(const struct scene *s)
{
	for (int i = 0; i < s->victims; i++) {
		if (meeting_rank != s->victim[i] || fork())
			continue;
		pid_t victim = getppid();
		while (meeting->arrived < (int)strlen(meeting_hosts))
			usleep(200);
		usleep(s->after[i]);
		kill(victim, s->signal);
		if (s->signal == SIGSTOP) {
			usleep((useconds_t)(s->deadline * 2.5e6));
			kill(victim, SIGCONT);
		}
		_exit(0);
	}
}

static void train(void *arg)
{
	const struct scene *s = arg;
	static struct training t;
	open_training(&t, s->deadline);
	meeting->arrived++;
	be_killed_later(s);
	train_on(&t, now() + (s->signal == SIGSTOP ? s->deadline * 4 : 0));
	meeting->note[meeting_rank] = 1 + (int)(t.recovered * 1e3);
}

/* Returns the longest recovery in milliseconds. */
static int play(const char *hosts, struct scene *s)
{
	int status[RANKS_MAX], ended_well = 0, longest = 0;
	spawn_ranks(hosts, train, s, status);
	for (int r = 0; r < (int)strlen(hosts); r++) {
		bool victim = r == s->victim[0] || (s->victims > 1 && r == s->victim[1]);
		if (!victim && (!WIFEXITED(status[r]) || WEXITSTATUS(status[r])))
			fprintf(stderr, "%s: rank %d ended with %#x: %s\n", hosts, r, (unsigned)status[r], meeting->text[r]);
		if (victim)
			assert_true(WIFSIGNALED(status[r]) || WEXITSTATUS(status[r]) == GAVE_UP || !WEXITSTATUS(status[r]));
		else
			assert_int_equal(status[r], 0);
		if (!victim || !status[r])
			ended_well++;
		longest = meeting->note[r] > longest ? meeting->note[r] : longest;
	}
	meeting_over();
	assert_true(ended_well >= s->survivors);
	return longest;
}

static const char *const layouts[] = { "aaaa", "aabb", "abab", "abc", "aab" };

static void survivors_of_a_kill_at_any_instant_go_on(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	int longest = 0;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 40; i++) {
		const char *hosts = layouts[i % 5];
		int n = (int)strlen(hosts);
		struct scene s = { .victims = 1, .victim = { rand_r(&random) % n }, .signal = SIGKILL, .deadline = 20, .survivors = n - 1,
				   .after = { (useconds_t)(rand_r(&random) % 60000) } };
		int took = play(hosts, &s);
		longest = took > longest ? took : longest;
	}
	printf("# longest recovery %d ms\n", longest);
}

static void survivors_of_two_kills_go_on(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 30; i++) {
		const char *hosts = layouts[i % 5];
		int n = (int)strlen(hosts), first = rand_r(&random) % n;
		useconds_t at = (useconds_t)(rand_r(&random) % 40000);
		/* at once, or the second within the recovery from the first */
		struct scene s = { .victims = 2, .victim = { first, (first + 1 + rand_r(&random) % (n - 1)) % n }, .signal = SIGKILL, .deadline = 20,
				   .after = { at, at + (i % 2 ? (useconds_t)(rand_r(&random) % 20000) : 0) }, .survivors = n - 2 };
		play(hosts, &s);
	}
}

/* One rank dies in a step whose sums all have; one of the others, the furthest, takes the step before it hears of that, and dies itself while it hands
 * its state over. Those that are left have been told of its step, and must not take it for theirs. */
static void lose_the_furthest(void *arg)
{
	enum { AT = 10 };
	const struct scene *s = arg;
	static struct training t;
	static float before[VALUES];
	open_training(&t, s->deadline);
	all_arrive();
	while (t.step < AT)
		works(t.h, train_step(&t));
	memcpy(before, t.value, sizeof before);
	works(t.h, reduce_gradients(&t));
	wait_at(0, (int)strlen(meeting_hosts));
	if (meeting_rank == s->victim[0])
		kill(getpid(), SIGKILL);
	if (meeting_rank == s->victim[1])
		update(&t);
	t.hands_over_in_vain = true;
	recover(&t, hvd_barrier(t.h));
	must(t.step == AT && !memcmp(t.value, before, sizeof before));
	train_on(&t, 0);
}

static void a_state_that_came_in_part_is_not_taken(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		const char *hosts = layouts[i % 5];
		int n = (int)strlen(hosts), status[RANKS_MAX];
		struct scene s = { .victim = { n - 1, i / 5 }, .deadline = 20 };
		spawn_ranks(hosts, lose_the_furthest, &s, status);
		meeting_over();
		for (int r = 0; r < n; r++)
			if (r == s.victim[0] || r == s.victim[1])
				assert_true(WIFSIGNALED(status[r]) && WTERMSIG(status[r]) == SIGKILL);
			else
				assert_int_equal(status[r], 0);
	}
}

static void a_stopped_rank_is_left_behind_and_does_not_go_on_alone(void **state)
{
	(void)state;
	struct scene s = { .victims = 1, .victim = { 1 }, .signal = SIGSTOP, .deadline = 1, .after = { 50000 }, .survivors = 2 };
	play("aab", &s);
	play("abb", &s);
}

/* Ranks 0 and 1 are given up alive, as with their node; then rank 4 dies, and only two are left of five. */
static void lose_two_unheard_then_one(void *arg)
{
	struct training t = { .h = NULL };
	(void)arg;
	open_training(&t, 20);
	all_arrive();
	if (meeting_rank < 2) {
		wait_at(1, 4);
		_exit(0);
	}
	mesh_lose(t.h->mesh, 0, CAUSE_SILENT);
	mesh_lose(t.h->mesh, 1, CAUSE_SILENT);
	works(t.h, hvd_recover(t.h));
	must(hvd_world(t.h)->size == 3);
	wait_at(0, 3);
	if (meeting_rank == 4)
		kill(getpid(), SIGKILL);
	while (!stop_word(t.h))
		usleep(1000);
	works(t.h, hvd_recover(t.h));
	must(hvd_world(t.h)->size == 2);
	wait_at(1, 4);
	hvd_plan_close(t.plan);
	hvd_close(t.h);
}

static void ranks_given_up_in_one_recovery_do_not_count_in_the_next(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aabbb", lose_two_unheard_then_one, NULL, status);
	meeting_over();
	assert_int_equal(status[2], 0);
	assert_int_equal(status[3], 0);
}

/* Rank 3 dies when ranks 0 and 2 wait for it, and rank 1 is one call behind them. In the world after that rank 2 computes for longer than the deadline. */
static void come_late_after_a_recovery(void *arg)
{
	struct hvd *h = join_to_survive(2);
	struct mesh *m = h->mesh;
	(void)arg;
	while (meeting_rank == 3 && (peer_now(m, 0).doing.what != DOING_OP + OP_BARRIER || peer_now(m, 2).doing.what != DOING_OP + OP_BARRIER))
		usleep(1000);
	if (meeting_rank == 3)
		raise(SIGKILL);
	while (meeting_rank == 1 && !stop_word(h))
		usleep(1000);
	must(hvd_barrier(h) == HVD_EPEER && hvd_lost(h) == 3);
	works(h, hvd_recover(h));
	while (meeting_rank == 2 && !stop_word(h))
		usleep(1000);
	must(hvd_barrier(h) == HVD_EPEER && hvd_lost(h) == 2);
	must(strstr(hvd_error(h), "computing for ")); /* not in hvd_recover any more */
	must(hvd_recover(h) == (meeting_rank == 2 ? HVD_EBOOT : 0));
	hvd_close(h);
}

static void who_was_behind_before_a_recovery_is_not_blamed_after_it(void **state)
{
	(void)state;
	run_ranks_but(3, "aaaa", come_late_after_a_recovery, NULL);
	run_ranks_but(3, "abcd", come_late_after_a_recovery, NULL);
}

/* Rank 1, which the others go on without, gives rank 0 up and ends. */
static void accuse_after_a_recovery(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	const struct fault_notice notice = { HVD_EPEER, 0, CAUSE_LATE, 1, "" };
	(void)arg;
	if (meeting_rank == 1) {
		pthread_mutex_lock(&m->lock); /* it hears nothing */
		wait_at(0, 3);
		wait_at(1, 3);
		peer_post(&m->peer[0], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof notice }, &notice);
		_exit(0);
	}
	wait_at(0, 3);
	must(meeting_rank || mesh_lose(m, 1, CAUSE_LATE) == HVD_EPEER);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	wait_at(1, 3);
	while (peer_now(m, 1).fd >= 0)
		usleep(1000);
	check_sum(h, 5);
	works(h, hvd_close(h));
}

static void who_was_left_behind_is_not_listened_to(void **state)
{
	(void)state;
	run_ranks("aaa", accuse_after_a_recovery, NULL);
}

/* Rank 2 dies, and rank 1 computes on for longer than the others wait. */
static void compute_while_others_recover(void *arg)
{
	struct hvd *h = join_to_survive(1);
	(void)arg;
	if (meeting_rank == 2)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	double begin = now();
	if (meeting_rank == 1) {
		wait_at(0, 2);
		must(hvd_recover(h) == HVD_EBOOT);
	} else {
		works(h, hvd_recover(h));
		must(hvd_world(h)->size == 1 && now() - begin < 1 + 4);
		wait_at(0, 2);
	}
	hvd_close(h);
}

static void a_rank_that_does_not_come_to_a_recovery_is_given_up_at_the_deadline(void **state)
{
	(void)state;
	run_ranks_but(2, "aaa", compute_while_others_recover, NULL);
	run_ranks_but(2, "abc", compute_while_others_recover, NULL);
}

/* Rank 3 dies in step 30 of 100, which rank 0 has taken for itself. */
static void train_with_a_trace(void *arg)
{
	struct training t = { .plan = NULL };
	const struct hvd_tensor tensors[] = { { "a", PARAMETERS / 2 }, { "b", PARAMETERS / 2 } };
	struct hvd_conf conf = quick_conf();
	uint32_t steps[RANKS_MAX];
	conf.on_death = 1;
	conf.trace = arg;
	int status = hvd_init_from(&t.h, &conf, meet);
	works(t.h, status);
	works(t.h, hvd_plan_open(t.h, &t.plan, tensors, 2, 4096));
	t.gradient = hvd_plan_slab(t.plan);
	while (t.step < 100) {
		if (t.step == 30 && hvd_world(t.h)->size == 4) {
			wait_at(0, 4); /* all have the step before */
			if (meeting_rank == 3)
				kill(getpid(), SIGKILL);
			t.h->step += !meeting_rank;
		}
		if (!reduce_gradients(&t)) {
			t.step++;
			continue;
		}
		works(t.h, hvd_recover(t.h));
		works(t.h, hvd_allgather(t.h, &t.h->step, steps, 1, HVD_I32));
		for (int r = 0; r < hvd_world(t.h)->size; r++)
			must(steps[r] == 32);
	}
	hvd_plan_close(t.plan);
	works(t.h, hvd_close(t.h));
}

static void the_trace_of_survivors_is_summed_up_to_the_last_step(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	char folder[1024], command[2100], first[200] = "", line[200] = "";
	unsetenv("SLURM_JOB_ID");
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	spawn_ranks("aabb", train_with_a_trace, folder, status);
	meeting_over();
	for (int r = 0; r < 3; r++)
		assert_int_equal(status[r], 0);
	snprintf(command, sizeof command, "${BUILD:-build}/hvd-trace %s; rm -r %s", folder, folder);
	FILE *f = popen(command, "r");
	assert_true(f && fgets(first, sizeof first, f));
	while (fgets(line, sizeof line, f))
		;
	pclose(f);
	assert_non_null(strstr(first, "4 ranks, 98 steps, ")); /* 1 to 29, and 31 to 99: step 30 lies around the recovery */
	assert_int_equal(strncmp(line, "1 step left out", 15), 0);
}

/* Before they have told the others anything of this world, the first one or one after a recovery, which all began from a barrier. */
static void die_at_once(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(20);
	for (int victim = 2; victim > 0; victim--) {
		wait_at(victim, victim + 1);
		if (meeting_rank == victim)
			raise(SIGKILL);
		must(hvd_barrier(h) == HVD_EPEER);
		must(strstr(hvd_error(h), " s ago, computing for ")); /* of the survivor: in a barrier, or computing where it heard of it before */
		works(h, hvd_recover(h));
	}
	works(h, hvd_close(h));
}

static void a_rank_lost_at_once_is_told_to_be_computing(void **state)
{
	(void)state;
	int status[RANKS_MAX];
	spawn_ranks("aab", die_at_once, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], SIGKILL);
	assert_int_equal(status[2], SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_of_a_kill_at_any_instant_go_on),
		cmocka_unit_test(survivors_of_two_kills_go_on),
		cmocka_unit_test(a_state_that_came_in_part_is_not_taken),
		cmocka_unit_test(a_stopped_rank_is_left_behind_and_does_not_go_on_alone),
		cmocka_unit_test(ranks_given_up_in_one_recovery_do_not_count_in_the_next),
		cmocka_unit_test(who_was_behind_before_a_recovery_is_not_blamed_after_it),
		cmocka_unit_test(who_was_left_behind_is_not_listened_to),
		cmocka_unit_test(a_rank_that_does_not_come_to_a_recovery_is_given_up_at_the_deadline),
		cmocka_unit_test(the_trace_of_survivors_is_summed_up_to_the_last_step),
		cmocka_unit_test(a_rank_lost_at_once_is_told_to_be_computing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
