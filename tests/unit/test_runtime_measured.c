/* SPDX-License-Identifier: Apache-2.0
 * What a plan measures of a training, by a clock that goes only when the test says so, and what its trace tells. */
#include "tests/unit/runtime_world.h"

#include "runtime/planner.h"

#include <math.h>

enum { TENSORS = 3, WARM_UP = 3, MEASURED = 4 };

static _Atomic time_t ahead;          /* seconds of this process's clock */
static __thread struct timespec held; /* what this thread's clock says; 0: it goes on */
static __thread time_t leap;          /* to be made after its next word */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int status = __real_clock_gettime(clock, t);
	t->tv_sec += ahead;
	if (held.tv_sec)
		*t = held;
	ahead += leap;
	leap = 0;
	return status;
}

static __thread long yielded; /* ns for which others run when this thread gives way; 0: as long as they like */
int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
	held.tv_nsec += yielded;
	return yielded ? 0 : __real_sched_yield();
}

/* A gradient that is ready so many seconds after the one before. */
static int ready_after(struct hvd_plan *p, int i, time_t seconds)
{
	ahead += seconds;
	if (!held.tv_sec)
		clock_gettime(CLOCK_MONOTONIC, &held);
	else
		held.tv_sec += seconds;
	return hvd_plan_ready(p, i);
}

/* Seconds: until b and c are ready, that the last all-reduce is waited for, and from then on to the next step. */
static int step(struct hvd_plan *p, time_t b, time_t c, time_t waits, time_t rest)
{
	int status = ready_after(p, 0, 0);
	if (!status)
		status = ready_after(p, 1, b);
	if (!status)
		status = ready_after(p, 2, c);
	held.tv_sec = 0;
	leap = waits;
	if (!status)
		status = hvd_plan_finish(p);
	leap = 0;
	ahead += rest;
	return status;
}

static struct hvd_plan *open_plan(struct hvd **h, const char *file, int on_death)
{
	static const struct hvd_tensor t[TENSORS] = { { "a", 1000 }, { "b", 1000 }, { "c", 1000 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	conf.on_death = on_death;
	conf.plan = file;
	int status = hvd_init_from(h, &conf, meet);
	works(*h, status);
	works(*h, hvd_plan_open(*h, &p, t, TENSORS, 0));
	return p;
}

/* Rank 1 is twice as slow as rank 0; the first steps are ten times as slow as the later ones. */
static void measure(void *file)
{
	struct hvd *h;
	struct hvd_plan *p = open_plan(&h, file, 0);
	for (int k = 0; k < WARM_UP + MEASURED; k++) {
		time_t slow = (meeting_rank + 1) * (k < WARM_UP ? 10 : 1);
		works(h, step(p, 20 * slow, 40 * slow, 70, 100 * slow));
	}
	must(hvd_plan_buckets(p) == 2); /* what is ready last goes alone, and the rest together */
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void the_file_holds_what_the_measured_steps_took_without_waiting(void **state)
{
	(void)state;
	static const double ready[TENSORS] = { 0, 30, 90 }; /* the mean over both ranks */
	char path[1024], why[WHY_BYTES];
	struct profile m;
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	run_ranks("ab", measure, path);
	assert_int_equal(profile_read(path, &m, why), 0);
	assert_true(m.n == TENSORS && m.ranks == 2);
	for (int i = 0; i < TENSORS; i++)
		assert_true(m.bytes[i] == 4000 && fabs(m.ready[i] - ready[i]) < 1e-6);
	printf("# a step of %.3f s\n", m.step);
	assert_true(fabs(m.step - 240) < 20); /* and what the calls themselves take */
	free(m.bytes);
	free(m.ready);
	unlink(path);
}

/* Rank 1 dies when half of the steps are measured, in which c was late. From then on all gradients are ready at once. */
static void measure_anew(void *arg)
{
	struct hvd *h;
	struct hvd_plan *p = open_plan(&h, NULL, 1);
	(void)arg;
	for (int k = 0; k < WARM_UP + MEASURED / 2; k++)
		works(h, step(p, 0, 100, 0, 0));
	go_on_without_rank_1(h);
	for (int k = 0; k < WARM_UP + MEASURED; k++)
		works(h, step(p, 0, 0, 0, 0));
	must(hvd_plan_buckets(p) == 1);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void after_a_death_nothing_counts_that_was_measured_before(void **state)
{
	(void)state;
	run_ranks_but(1, "aab", measure_anew, NULL);
}

/* Records of a kind and an index, from number `from` on. */
static int records(const struct trace_file *t, uint64_t from, enum trace_kind kind, uint32_t index)
{
	int n = 0;
	for (uint64_t i = from; i < t->written; i++)
		n += t->record[i].kind == kind && t->record[i].index == index;
	return n;
}

static void record(void *folder)
{
	static const struct hvd_tensor t[TENSORS] = { { "a", 1000 }, { "b", 1000 }, { "c", 1000 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	struct hvd *h;
	float x = 1, all[3];
	conf.trace = folder;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_plan_open(h, &p, t, TENSORS, 1));
	const uint64_t from = h->trace->written;
	works(h, hvd_broadcast(h, &x, 1, HVD_F32, 0));
	works(h, hvd_wait(h, hvd_start_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM)));
	works(h, step(p, 0, 0, 0, 0));
	for (uint32_t bucket = 0; bucket < TENSORS; bucket++)
		must(records(h->trace, from, TRACE_READY, bucket) == 1 && records(h->trace, from, TRACE_BUCKET, bucket) == 1);
	for (uint64_t i = from; i < h->trace->written; i++) /* of its own tensor, not of those before, too */
		must((h->trace->record[i].kind != TRACE_READY && h->trace->record[i].kind != TRACE_BUCKET) || h->trace->record[i].bytes == t[0].count * sizeof x);
	must(records(h->trace, from, TRACE_COLLECTIVE, OP_BROADCAST) == 1 && records(h->trace, from, TRACE_COLLECTIVE, OP_ALLREDUCE + OP_KINDS) == 1);
	must(records(h->trace, from, TRACE_WAIT, 0) == 1 && h->trace->written == from + 2 * TENSORS + 3);
	works(h, hvd_allgatherv(h, all, all, (size_t[]){ 1, 2 }, HVD_F32));
	must(h->trace->record[h->trace->written - 1].bytes == (uint32_t)(meeting_rank + 1) * sizeof x);
	for (uint32_t i = 0; i < 140; i++) { /* 70 names, each twice: 63 are told apart, by 31 bytes */
		char name[64];
		snprintf(name, sizeof name, "%02u, which is more than there is room for", i % 70);
		hvd_mark(h, name, 0);
		must(h->trace->record[h->trace->written - 1].index == (i % 70 < 63 ? i % 70 : 63));
	}
	must(!strcmp(h->trace->name[62], "62, which is more than there is") && !strcmp(h->trace->name[63], "other"));
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void a_trace_tells_buckets_from_other_collectives(void **state)
{
	(void)state;
	run_ranks_in_folder("ab", record);
}

static int looks(long ns)
{
	int n = 0;
	double until = 0;
	held = (struct timespec){ .tv_sec = 1000 };
	yielded = ns;
	while (look_again(&until))
		n++;
	assert_false(look_again(&until));
	held.tv_sec = yielded = 0;
	return n;
}

static void nobody_looks_for_long_before_sleeping_or_where_another_wants_the_core(void **state)
{
	(void)state;
	const int alone = looks(1000);
	assert_in_range(alone, 99, 101); /* 100 µs */
	assert_int_equal(looks(20000), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_looks_for_long_before_sleeping_or_where_another_wants_the_core),
		cmocka_unit_test(the_file_holds_what_the_measured_steps_took_without_waiting),
		cmocka_unit_test(after_a_death_nothing_counts_that_was_measured_before),
		cmocka_unit_test(a_trace_tells_buckets_from_other_collectives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
