/* SPDX-License-Identifier: Apache-2.0
 * Memory of hvd_alloc(): all ranks get it or none does, and who has no room for it says so. */
#include "tests/unit/runtime_world.h"

#include <errno.h>
#include <sys/resource.h>

static void allocate_other_sizes(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(20);
	must(!hvd_alloc(h, (size_t)sysconf(_SC_PAGESIZE) * (size_t)(1 + meeting_rank)));
	must(strstr(hvd_error(h), " shared bytes where rank "));
	hvd_close(h);
}

/* Ranks that are alone on their nodes could have memory for themselves: they get none. */
static void allocate_after_a_death(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(20);
	if (meeting_rank == 2)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	must(!hvd_alloc(h, 100) && strstr(hvd_error(h), "lost rank 2 on node-c"));
	works(h, hvd_recover(h));
	must(hvd_alloc(h, 100));
	works(h, hvd_close(h));
}

static void memory_is_given_to_all_ranks_or_to_none(void **state)
{
	int status[RANKS_MAX];
	(void)state;
	run_ranks("aa", allocate_other_sizes, NULL);
	spawn_ranks("abc", allocate_after_a_death, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
}

/* Rank 1 has one descriptor left, which its own part takes. */
static void allocate_without_descriptors(void *arg)
{
	struct hvd *h = join_to_survive(20); /* nobody ends the process */
	struct rlimit files;
	(void)arg;
	int next = dup(0);
	must(!close(next) && !getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = (rlim_t)next + 1;
	must(meeting_rank == 0 || !setrlimit(RLIMIT_NOFILE, &files));
	for (bool came = meeting_rank; !came; usleep(100)) {
		pthread_mutex_lock(&h->mesh->lock);
		came = h->mesh->peer[1].inbox;
		pthread_mutex_unlock(&h->mesh->lock);
	}
	must(!hvd_alloc(h, 4096) || !meeting_rank); /* rank 0 has all it needs */
	while (!h->mesh->failed)
		usleep(1000);
	must(hvd_barrier(h) == HVD_ESYS && strstr(hvd_error(h), "rank 1 on node-a has no descriptor left for the shared memory of rank 0"));
	hvd_close(h);
}

static void memory_for_which_descriptors_lack_says_so(void **state)
{
	(void)state;
	run_ranks("aa", allocate_without_descriptors, NULL);
}

/* Rank 0 has more to say before it than the link takes at once, while rank 1 reads. */
static void share_behind_much(void *arg)
{
	static uint8_t much[WIRE_PAYLOAD_MAX / 4];
	struct hvd *h = join_within(20);
	(void)arg;
	for (int i = 0; i < 300; i++) {
		uint64_t tag = mesh_tag(h->mesh);
		if (!meeting_rank)
			works(h, mesh_send(h->mesh, 1, tag, much, sizeof much, -1));
		void *p = hvd_alloc(h, 4096);
		must(p);
		hvd_free(h, p);
		if (meeting_rank)
			works(h, mesh_receive(h->mesh, 0, tag, much, sizeof much, NULL, lived() + 20));
	}
	works(h, hvd_close(h));
}

static void a_descriptor_comes_between_messages(void **state)
{
	(void)state;
	run_ranks("aa", share_behind_much, NULL);
}

/* Rank 1 may write no files as large as that (ulimit -f), which counts for shared memory, too. */
static void allocate_beyond_a_limit(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct rlimit size;
	(void)arg;
	must(!getrlimit(RLIMIT_FSIZE, &size));
	size.rlim_cur = 4096;
	must(meeting_rank == 0 || !setrlimit(RLIMIT_FSIZE, &size));
	hvd_alloc(h, 1 << 20);
	while (!h->mesh->failed)
		usleep(1000);
	must(hvd_barrier(h) == HVD_ESYS && strstr(hvd_error(h), "rank 1 on node-a has no memory for a shared part of"));
	must(strstr(hvd_error(h), "File too large"));
	hvd_close(h);
}

static void memory_beyond_the_limit_on_files_ends_with_a_line_and_no_signal(void **state)
{
	(void)state;
	run_ranks("aa", allocate_beyond_a_limit, NULL);
}

static bool none_for_messages;
static _Atomic int calls_left = -1; /* for memory, until one fails, in whatever thread; -1: none does */
static _Atomic bool lacked;

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t bytes);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t bytes);

static bool lacks(void)
{
	if (calls_left < 0 || calls_left--)
		return false;
	errno = ENOMEM;
	return lacked = true;
}

void *__wrap_malloc(size_t bytes)
{
	return lacks() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return lacks() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return none_for_messages || lacks() ? NULL : __real_realloc(p, bytes);
}

/* Rank 1 has no memory for a message, or it is one that the other would not take. */
static void send_too_much(void *arg)
{
	static const uint8_t much[WIRE_PAYLOAD_MAX + 1];
	struct hvd *h = join_to_survive(20);
	none_for_messages = !arg;
	double begin = lived();
	if (meeting_rank)
		must(mesh_send(h->mesh, 0, mesh_tag(h->mesh), much, arg ? sizeof much : sizeof much - 1, -1) == HVD_ESYS);
	must(hvd_barrier(h) == HVD_ESYS && strstr(hvd_error(h), "rank 1 on node-a has no room for a message to another rank"));
	must(lived() - begin < 10);
	hvd_close(h);
}

static void no_message_is_lost_in_silence(void **state)
{
	(void)state;
	run_ranks("aa", send_too_much, NULL);
	run_ranks("aa", send_too_much, "of more than a message may have");
}

static void exchange_without_memory(void *arg)
{
	struct hvd *h = join_to_survive(20);
	char blocks[300] = { 0 };
	(void)arg;
	works(h, hvd_barrier(h));
	calls_left = meeting_rank == 1 ? 0 : -1;
	double begin = lived();
	must(hvd_alltoall(h, blocks, blocks, 100, HVD_U8) == HVD_ESYS && lived() - begin < 5);
	must(strstr(hvd_error(h), "rank 1 on node-a has no memory for an all-to-all of 300 bytes in place"));
	hvd_close(h);
}

static void who_has_no_memory_for_a_collective_tells_the_others_at_once(void **state)
{
	(void)state;
	run_ranks("aab", exchange_without_memory, NULL);
}

struct lack {
	int rank, at;
	enum { IN_INIT, IN_SPLIT, IN_PLAN, IN_STEPS } where;
};

/* With the first, a thread is started; with the seventh, buckets are cut anew. */
static int do_steps(struct hvd *h, struct hvd_plan *p)
{
	int status = 0;
	for (int i = 0; !status && i < 7; i++) {
		status = hvd_plan_ready(p, 0);
		if (!status)
			status = hvd_plan_ready(p, 1);
		if (!status)
			status = hvd_plan_finish(p);
	}
	long request = status ? status : hvd_start_broadcast(h, hvd_plan_slab(p), 1, HVD_F32, 0);
	return request < 0 ? (int)request : hvd_wait(h, request);
}

/* One call of a rank for memory fails while the world is formed, or later while it is split or a plan is opened or used: no other rank is blamed, and nobody waits
 * long. */
static void form_without_memory(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	const struct lack *l = arg;
	const bool poor = meeting_rank == l->rank;
	struct hvd *h, *s = NULL;
	struct hvd_plan *p = NULL;
	struct hvd_conf conf = quick_conf();
	char name[32], lost[64];
	conf.on_death = 1;
	conf.deadline = l->where != IN_INIT ? 40 : 1;
	snprintf(name, sizeof name, "rank %d ", l->rank);
	snprintf(lost, sizeof lost, " lost %s", name);
	double begin = lived();
	calls_left = poor && l->where == IN_INIT ? l->at : -1;
	int status = hvd_init_from(&h, &conf, meet);
	if (l->where != IN_INIT) {
		works(h, status);
		if (l->where == IN_STEPS)
			works(h, hvd_plan_open(h, &p, t, 2, 0));
		works(h, hvd_barrier(h));
		wait_at(1, 3); /* what fails from here on reaches nobody in the barrier */
		begin = lived();
		calls_left = poor ? l->at : -1;
		status = l->where == IN_SPLIT ? hvd_split(h, 0, &s) : l->where == IN_PLAN ? hvd_plan_open(h, &p, t, 2, 0) : do_steps(h, p);
	}
	if (!status)
		status = hvd_barrier(s ? s : h);
	calls_left = -1;
	const char *line = h ? hvd_error(s && status ? s : h) : "";
	if (status && !poor && !strstr(line, strstr(line, " lost rank ") ? lost : name)) {
		fprintf(stderr, "rank %d of %s, call %d of rank %d: %s\n", meeting_rank, meeting_hosts, l->at, l->rank, line);
		_exit(1);
	}
	must(lived() - begin < (l->where == IN_SPLIT ? PATIENCE : 1 + 2 * PATIENCE));
	meeting->place[0] += lacked;
	hvd_close(s);
	hvd_plan_close(p);
	if (l->where != IN_INIT) /* nobody is lost */
		must((status = hvd_barrier(h)) == 0 || status == HVD_ESYS);
	hvd_close(h);
}

static void form_until_memory_suffices(struct lack l, int least)
{
	for (int failed = 1; failed; l.at++) {
		int status[RANKS_MAX];
		spawn_ranks(l.at % 2 ? "aab" : "aaa", form_without_memory, &l, status);
		failed = meeting->place[0];
		meeting_over();
		for (int r = 0; r < 3; r++)
			assert_int_equal(status[r], 0);
	}
	assert_true(l.at > least);
}

static void where_memory_ends_while_a_world_is_formed_that_rank_is_named(void **state)
{
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		form_until_memory_suffices((struct lack){ rank, 0, IN_INIT }, 20);
}

static void where_memory_ends_in_a_split_that_rank_is_named_at_once(void **state)
{
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		form_until_memory_suffices((struct lack){ rank, 0, IN_SPLIT }, 20);
}

static void where_memory_ends_in_a_plan_that_rank_is_named_at_once(void **state)
{
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		form_until_memory_suffices((struct lack){ rank, 0, IN_PLAN }, 8);
}

static void where_memory_ends_in_a_step_that_rank_is_named_at_once(void **state)
{
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		form_until_memory_suffices((struct lack){ rank, 0, IN_STEPS }, 6);
}

/* A world of one has nobody to tell. */
static void gather_alone(void *arg)
{
	struct hvd *h = join_within(20), *s;
	(void)arg;
	double begin = lived();
	calls_left = 0;
	must(hvd_split(h, 0, &s) == HVD_ESYS && strstr(hvd_error(h), "has no memory for 1 ranks"));
	hvd_close(h);
	must(lived() - begin < 5);
}

static void who_is_alone_waits_for_nobody(void **state)
{
	(void)state;
	run_ranks("a", gather_alone, NULL);
}

static void who_has_no_memory_for_pmix_says_so(void **state)
{
	static const char *const worlds[][2] = { { "2", "slurm.pmix.1.0" }, { "1", "1085734913" } }; /* the other is of an mpirun in a step of one task */
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct boot boot = { .deadline = 60 };
		char why[WHY_BYTES] = "";
		setenv("SLURM_STEP_NUM_TASKS", worlds[i][0], 1);
		setenv("PMIX_NAMESPACE", worlds[i][1], 1);
		calls_left = 0;
		int status = boot_from_step(&boot, why);
		calls_left = -1;
		assert_int_equal(status, HVD_ESYS);
		assert_string_equal(why, "no memory for PMIx");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_given_to_all_ranks_or_to_none),
		cmocka_unit_test(memory_for_which_descriptors_lack_says_so),
		cmocka_unit_test(a_descriptor_comes_between_messages),
		cmocka_unit_test(memory_beyond_the_limit_on_files_ends_with_a_line_and_no_signal),
		cmocka_unit_test(no_message_is_lost_in_silence),
		cmocka_unit_test(who_has_no_memory_for_a_collective_tells_the_others_at_once),
		cmocka_unit_test(where_memory_ends_while_a_world_is_formed_that_rank_is_named),
		cmocka_unit_test(where_memory_ends_in_a_split_that_rank_is_named_at_once),
		cmocka_unit_test(where_memory_ends_in_a_plan_that_rank_is_named_at_once),
		cmocka_unit_test(where_memory_ends_in_a_step_that_rank_is_named_at_once),
		cmocka_unit_test(who_is_alone_waits_for_nobody),
		cmocka_unit_test(who_has_no_memory_for_pmix_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
