/* SPDX-License-Identifier: Apache-2.0
 * Too few files: a split that a rank cannot do its part in fails on all, is told on all, and leaves nothing; who needs no more goes on. */
#include "tests/unit/runtime_world.h"

#include <fcntl.h>
#include <sys/resource.h>

/* The limit with which so many files can yet be opened. */
static rlim_t files_more(int n)
{
	int fd = n > 0 ? open("/dev/null", O_RDONLY) : -1;
	must(n < 1 || fd >= 0);
	rlim_t limit = n > 1 ? files_more(n - 1) : (rlim_t)fd + 1;
	close(fd);
	return limit;
}

static void may_open(rlim_t files)
{
	struct rlimit limit;
	must(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = files;
	must(!setrlimit(RLIMIT_NOFILE, &limit));
}

struct few_files {
	double deadline;
	int more, rank;
};

/* Rank 0, which the others would find there, may not open what the sub-world needs, nor allow itself more. */
static void split_with_few_files(void *arg)
{
	const struct few_files *f = arg;
	struct hvd *h = join_within(f->deadline), *s;
	const rlim_t few = files_more(f->more);
	if (meeting_rank == 0)
		must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ few, few }));
	double begin = lived();
	int status = hvd_split(h, 0, &s);
	must(!s && status == (meeting_rank ? HVD_EBOOT : HVD_ESYS) && lived() - begin < f->deadline / 2 + 1);
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void a_split_that_fails_on_its_first_rank_fails_on_all_and_loses_none(void **state)
{
	(void)state;
	run_ranks("aaa", split_with_few_files, &(struct few_files){ 20, 4, 0 });
	run_ranks("aaa", split_with_few_files, &(struct few_files){ 1, 4, 0 });
	for (int more = 1; more < 4; more++) /* before the others could connect to it */
		run_ranks("aaa", split_with_few_files, &(struct few_files){ 20, more, 0 });
}

/* Another rank than the first may open only so few files that it cannot do its part, if they are so few. */
static void split_where_another_has_few_files(void *arg)
{
	const struct few_files *f = arg;
	struct hvd *h = join_within(f->deadline), *s;
	const rlim_t few = files_more(f->more);
	char name[32];
	if (meeting_rank == f->rank)
		must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ few, few }));
	double begin = lived();
	int status = hvd_split(h, 0, &s);
	double took = lived() - begin;
	if (took > f->deadline / 4)
		fprintf(stderr, "rank %d of %s, %d files more for rank %d: after %.1f s %d: %s\n", meeting_rank, meeting_hosts, f->more, f->rank, took, status, hvd_error(h));
	must(took < f->deadline / 4 && !status == !!s);
	snprintf(name, sizeof name, "rank %d on node-%c ", f->rank, meeting_hosts[f->rank]);
	must(!status || status == HVD_ESYS || (status == HVD_EBOOT && meeting_rank != f->rank));
	must(!status || meeting_rank == f->rank || (!strncmp(hvd_error(h), "hvd_split: ", 11) && !strncmp(hvd_error(h) + 11, name, strlen(name))));
	must(!status || strstr(hvd_error(h), "files") || strstr(hvd_error(h), "descriptor"));
	must(!strstr(hvd_error(h), "cannot reach") || strstr(hvd_error(h), "ulimit -n"));
	meeting->place[0] += !status;
	hvd_close(s);
	works(h, hvd_barrier(h));
	must(meeting->place[0] == (status ? 0 : 3)); /* all or none */
	works(h, hvd_close(h));
}

static void a_split_that_fails_on_another_rank_fails_on_all_at_once_and_says_where_and_why(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		for (int more = 1; more < 8 + i % 2 * 2; more++)
			run_ranks(i % 2 ? "abc" : "aaa", split_where_another_has_few_files, &(struct few_files){ 20, more, 1 + i / 2 });
}

static useconds_t hesitates; /* between a connection and the first word on it, which has random numbers */

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
	if (hesitates)
		usleep(hesitates);
	return __real_getrandom(bytes, size, flags);
}

static void who_has_come_on_the_last_file_is_not_sent_away_before_it_speaks(void **state)
{
	(void)state;
	hesitates = 20000;
	for (int more = 1; more < 10; more++)
		run_ranks("abc", split_where_another_has_few_files, &(struct few_files){ 20, more, 1 });
	hesitates = 0;
}

/* Rank 1 cannot do its part in the sub-world of ranks 0 and 1, while rank 3 takes its time in the other. */
static void split_beside_one_that_fails(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(20), *s;
	const rlim_t few = files_more(1);
	if (meeting_rank == 1)
		must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ few, few }));
	hesitates = meeting_rank == 3 ? 200000 : 0;
	int status = hvd_split(h, meeting_rank / 2, &s);
	must(!status == (meeting_rank >= 2) && !status == !!s);
	hvd_close(s);
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void a_split_that_fails_on_some_ranks_is_none_of_the_others(void **state)
{
	(void)state;
	run_ranks("aaaa", split_beside_one_that_fails, NULL);
}

static int messages(struct mesh *m)
{
	int n = 0;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		for (const struct message *k = m->peer[i].inbox; k; k = k->next)
			n++;
	pthread_mutex_unlock(&m->lock);
	return n;
}

static void split_in_vain(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(20), *s;
	const rlim_t few = files_more(1);
	if (meeting_rank == 1)
		must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ few, few }));
	for (int i = 0; i < 10; i++) {
		must(hvd_split(h, 0, &s) == (meeting_rank == 1 ? HVD_ESYS : HVD_EBOOT));
		must(messages(h->mesh) < 4); /* of this one, and of the one before */
	}
	works(h, hvd_close(h));
}

static void splits_that_fail_leave_no_messages(void **state)
{
	(void)state;
	run_ranks("aab", split_in_vain, NULL);
}

/* A program that takes files away from itself, as one in a sandbox does: those that are open go on. */
static void compute_with_few_files(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(2);
	struct rlimit before;
	must(!getrlimit(RLIMIT_NOFILE, &before));
	if (meeting_rank == 1)
		may_open(2);
	usleep(3000000);
	for (int k = 0; k < 3; k++)
		check_sum(h, 15);
	works(h, hvd_close(h));
	may_open(before.rlim_cur); /* a sanitizer opens some at the end */
}

static void a_program_that_may_open_no_more_files_stays_in_its_world(void **state)
{
	(void)state;
	run_ranks("aabb", compute_with_few_files, NULL);
}

/* The step after which the cut by measurement is made. */
static void measure_with_few_files(void *arg)
{
	(void)arg;
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	struct hvd *h = join_within(20);
	struct hvd_plan *p;
	struct rlimit before;
	works(h, hvd_plan_open(h, &p, t, 2, 0));
	must(!getrlimit(RLIMIT_NOFILE, &before));
	if (meeting_rank == 1)
		may_open(2);
	for (int step = 0; step < 9; step++) {
		works(h, hvd_plan_ready(p, 0));
		works(h, hvd_plan_ready(p, 1));
		works(h, hvd_plan_finish(p));
	}
	hvd_plan_close(p);
	works(h, hvd_close(h));
	may_open(before.rlim_cur);
}

static void a_cut_by_measurement_opens_no_file(void **state)
{
	(void)state;
	run_ranks("aab", measure_with_few_files, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_that_fails_on_its_first_rank_fails_on_all_and_loses_none),
		cmocka_unit_test(a_split_that_fails_on_another_rank_fails_on_all_at_once_and_says_where_and_why),
		cmocka_unit_test(who_has_come_on_the_last_file_is_not_sent_away_before_it_speaks),
		cmocka_unit_test(a_split_that_fails_on_some_ranks_is_none_of_the_others),
		cmocka_unit_test(splits_that_fail_leave_no_messages),
		cmocka_unit_test(a_program_that_may_open_no_more_files_stays_in_its_world),
		cmocka_unit_test(a_cut_by_measurement_opens_no_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
