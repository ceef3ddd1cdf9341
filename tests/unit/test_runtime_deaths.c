/* SPDX-License-Identifier: Apache-2.0
 * No death goes unnoticed, and nothing hangs. */
#include "tests/unit/runtime_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* All-reduces for ever; in memory of the program and in shared memory by turns. */
static void toil(struct hvd *h)
{
	size_t n = 30000;
	float *shared = hvd_alloc(h, n * 4), *own = calloc(n, 4);
	must(own);
	if (!shared) { /* the victim was quicker */
		must(hvd_lost(h) >= 0);
		_exit(70);
	}
	for (int round = 0;; round++) {
		float *p = round % 2 ? shared : own;
		meeting->note[meeting_rank] = round;
		if (hvd_allreduce(h, p, p, n, HVD_F32, HVD_SUM)) {
			snprintf(meeting->text[meeting_rank], sizeof meeting->text[0], "%s", hvd_error(h));
			_exit(70);
		}
	}
}

struct scene {
	int victim, signal;
	useconds_t after;
	double deadline;
};

static void toil_until_killed(void *arg)
{
	const struct scene *s = arg;
	struct hvd *h = join_within(s->deadline);
	const pid_t self = getpid(); /* a rank that has failed meanwhile has left its children to a stranger */
	if (meeting_rank == s->victim && !fork()) {
		usleep(s->after);
		kill(self, s->signal);
		_exit(0);
	}
	toil(h);
}

static double play(const char *hosts, struct scene *s)
{
	int status[RANKS_MAX];
	double begin = now();
	spawn_ranks(hosts, toil_until_killed, s, status);
	double took = now() - begin;
	for (size_t r = 0; r < strlen(hosts); r++) {
		if ((int)r == s->victim)
			assert_true(WIFSIGNALED(status[r]) || WEXITSTATUS(status[r]) == 70);
		else
			assert_true(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 70);
	}
	meeting_over();
	return took;
}

static void a_rank_killed_at_any_instant_ends_all_others(void **state)
{
	(void)state;
	static const char *const layouts[] = { "aaaa", "aabb", "abab", "abc" };
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 40; i++) {
		const char *hosts = layouts[i % 4];
		struct scene s = { rand_r(&random) % (int)strlen(hosts), SIGKILL, (useconds_t)(rand_r(&random) % 50000), 20 };
		assert_true(play(hosts, &s) < 5);
	}
}

static void toil_in_a_sub_world(void *arg)
{
	const struct scene *s = arg;
	struct hvd *h = join_within(s->deadline), *all;
	must(!hvd_split(h, 0, &all));
	const pid_t self = getpid();
	if (meeting_rank == s->victim && !fork()) {
		usleep(s->after);
		kill(self, s->signal);
		_exit(0);
	}
	float value = 1;
	while (!hvd_allreduce(all, &value, &value, 1, HVD_F32, HVD_SUM))
		;
	_exit(99); /* a status of the program's own: nobody would know what ended it */
}

/* Where the sub-world hears of the death first, its caller waits for the world's word and status all the same. */
static void a_death_in_a_sub_world_ends_the_others_with_the_world_s_line(void **state)
{
	(void)state;
	for (int i = 0; i < 30; i++) {
		struct scene s = { i % 4, SIGKILL, (useconds_t)(i % 7 * 1000), 20 };
		int status[RANKS_MAX];
		spawn_ranks(i % 2 ? "aabb" : "aaaa", toil_in_a_sub_world, &s, status);
		for (int r = 0; r < 4; r++)
			assert_true(r == s.victim || (WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 70));
		meeting_over();
	}
}

/* Nobody continues or kills the stopped rank but the others, so without them this would last for ever. */
static void a_stopped_rank_is_noticed_and_ended_by_one_of_its_node(void **state)
{
	(void)state;
	struct scene s = { 1, SIGSTOP, 100000, 1 };
	assert_true(play("aaa", &s) < 15);
	s.victim = 2;
	assert_true(play("aabb", &s) < 15);
}

/* Rank 3, where there is one, has closed well before. */
static void toil_until_stopped_alone(void *arg)
{
	const char *folder = arg;
	char path[4096];
	struct hvd *h = join_within(1);
	works(h, hvd_barrier(h));
	if (meeting_rank == 3) {
		works(h, hvd_close(h));
		meeting->place[0]++;
		return;
	}
	while (meeting_hosts[3] && !meeting->place[0])
		usleep(1000);
	if (meeting_rank == 1) {
		snprintf(path, sizeof path, "%s/pid", folder);
		FILE *f = fopen(path, "w");
		must(f);
		fprintf(f, "%d\n", (int)getpid());
		fclose(f);
		raise(SIGSTOP);
	}
	while (meeting_hosts[3])
		pause();
	toil(h);
}

/* Beside a scancel that writes down what it was asked, and ends rank 1 as Slurm would. */
static void run_beside_scancel(const char *hosts, void (*body)(void *), int *status, char said[64])
{
	char folder[1024], command[8192], path[8192], *own = strdup(getenv("PATH"));
	assert_true(own && mkdtemp(temporary_name(folder, sizeof folder)));
	snprintf(command, sizeof command, "printf '#!/bin/sh\necho \"$*\" >>%s/said\nkill -KILL \"$(cat %s/pid)\"\n' >%s/scancel && chmod +x %s/scancel", folder,
		 folder, folder, folder);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof path, "%s:%s", folder, own);
	setenv("PATH", path, 1);
	setenv("SLURM_JOB_ID", "17", 1);
	setenv("SLURM_STEP_ID", "3", 1);
	spawn_ranks(hosts, body, folder, status);
	meeting_over();
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_STEP_ID");
	setenv("PATH", own, 1);
	free(own);
	snprintf(path, sizeof path, "%s/said", folder);
	FILE *f = fopen(path, "r");
	said[f ? fread(said, 1, 63, f) : 0] = 0;
	if (f)
		fclose(f);
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void a_stopped_rank_that_is_alone_on_its_node_is_left_to_scancel(void **state)
{
	(void)state;
	char said[64];
	int status[RANKS_MAX];
	setenv("SLURM_JOB_ID_HET_GROUP_1", "18", 1);
	for (int neighbour = 0; neighbour < 2; neighbour++) {
		setenv("SLURM_JOB_ID_HET_GROUP_0", neighbour ? "17" : "16", 1); /* 16: of the job that this one was submitted in */
		run_beside_scancel(neighbour ? "abab" : "aba", toil_until_stopped_alone, status, said);
		assert_string_equal(said, neighbour ? "--signal=KILL 17.3 18.3\n" : "--signal=KILL 17.3\n"); /* by one of those that are left */
		assert_true(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
		assert_int_equal(WEXITSTATUS(status[0]), 70);
		assert_int_equal(WEXITSTATUS(status[2]), 70);
		assert_true(!neighbour || !status[3]);
	}
	unsetenv("SLURM_JOB_ID_HET_GROUP_0");
	unsetenv("SLURM_JOB_ID_HET_GROUP_1");
}

static void toil_until_stopped_and_then_killed(void *arg)
{
	if (!meeting_rank && !fork()) {
		sleep(4);
		_exit(kill(meeting->pid[1], SIGKILL));
	}
	toil_until_stopped_alone(arg);
}

/* Which would end the step that the mpirun is in, as salloc's shell. */
static void a_stopped_rank_of_an_mpirun_is_not_left_to_scancel(void **state)
{
	(void)state;
	char said[64];
	int status[RANKS_MAX];
	setenv("PMIX_NAMESPACE", "1085734913", 1);
	run_beside_scancel("aba", toil_until_stopped_and_then_killed, status, said);
	unsetenv("PMIX_NAMESPACE");
	assert_string_equal(said, "");
	assert_true(WEXITSTATUS(status[0]) == 70 && WEXITSTATUS(status[2]) == 70);
}

static void go_on_without_one_that_is_stopped(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(1);
	if (meeting_rank == 1)
		raise(SIGSTOP);
	must(hvd_barrier(h) == HVD_EPEER);
	works(h, hvd_recover(h));
	works(h, hvd_barrier(h));
	double begin = lived();
	works(h, hvd_close(h)); /* which waits for no rank that is lost */
	must(lived() - begin < PATIENCE - 1);
	if (meeting_rank == 0)
		kill(meeting->pid[1], SIGKILL);
}

static void a_step_that_goes_on_without_a_stopped_rank_is_not_ended(void **state)
{
	(void)state;
	char said[64];
	int status[RANKS_MAX];
	run_beside_scancel("aba", go_on_without_one_that_is_stopped, status, said);
	assert_string_equal(said, "");
	assert_true(status[0] == 0 && status[2] == 0);
}

/* Rank 1 dies, and a process that it has forked lives on. */
static void die_beside_a_child(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(20), *all;
	works(h, hvd_split(h, 0, &all));
	if (meeting_rank == 1 && !fork()) {
		alarm(60);
		while (meeting->place[0] < 2)
			usleep(1000);
		_exit(0);
	}
	works(all, hvd_barrier(all)); /* whose links stay as they are */
	usleep(300000);
	works(h, hvd_barrier(h));
	wait_at(1, 3); /* its death would reach who is in the barrier still */
	if (meeting_rank == 1)
		raise(SIGKILL);
	double begin = lived();
	must(hvd_barrier(h) == HVD_EPEER && strstr(hvd_error(h), "lost rank 1 on node-") && strstr(hvd_error(h), ": it died"));
	must(lived() - begin < 5);
	hvd_close(all);
	works(h, hvd_recover(h));
	works(h, hvd_barrier(h));
	meeting->place[0]++;
	works(h, hvd_close(h));
}

static void a_forked_process_hides_no_death(void **state)
{
	(void)state;
	run_ranks_but(1, "aab", die_beside_a_child, NULL);
	run_ranks_but(1, "abc", die_beside_a_child, NULL);
}

static _Atomic bool world_stands;

static void *fork_all_the_time(void *arg)
{
	while (!world_stands) {
		if (!fork()) {
			alarm(60);
			while (meeting->place[0] < 2)
				usleep(1000);
			_exit(0);
		}
		usleep(300);
	}
	return arg;
}

/* Rank 1 dies, and processes live on that another of its threads forked while the world, and a sub-world, were being formed. */
static void die_beside_children_of_the_start(void *arg)
{
	pthread_t forks;
	struct hvd *part;
	(void)arg;
	if (meeting_rank == 1)
		must(!pthread_create(&forks, NULL, fork_all_the_time, NULL));
	struct hvd *h = join_to_survive(20);
	works(h, hvd_split(h, 0, &part));
	works(h, hvd_barrier(h));
	world_stands = true;
	wait_at(1, 3);
	if (meeting_rank == 1) {
		must(!pthread_join(forks, NULL));
		raise(SIGKILL);
	}
	double begin = lived();
	must(hvd_barrier(part) == HVD_EPEER && strstr(hvd_error(part), ": it died"));
	must(hvd_barrier(h) == HVD_EPEER && strstr(hvd_error(h), "lost rank 1 on node-") && strstr(hvd_error(h), ": it died"));
	must(lived() - begin < 5);
	hvd_close(part);
	works(h, hvd_recover(h));
	works(h, hvd_barrier(h));
	meeting->place[0]++;
	works(h, hvd_close(h));
}

static void a_process_that_is_forked_during_the_start_hides_no_death(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		run_ranks_but(1, "aab", die_beside_children_of_the_start, NULL);
		run_ranks_but(1, "abc", die_beside_children_of_the_start, NULL);
	}
}

static void *fork_once_linked(void *world)
{
	struct hvd *h = world;
	for (bool linked = false; !linked; usleep(1000)) {
		pthread_mutex_lock(&h->mesh->lock);
		for (int i = 0; i < h->mesh->links.links; i++)
			linked |= h->mesh->links.link[i].rank == 0 && h->mesh->links.link[i].fd >= 0;
		pthread_mutex_unlock(&h->mesh->lock);
	}
	if (fork())
		raise(SIGKILL);
	alarm(60);
	while (!meeting->place[0])
		usleep(1000);
	_exit(0);
}

/* Rank 1 has a link with rank 0, and waits for that with rank 2, which does not come, when it is forked and dies: rank 0 sees its end of that link, too. */
static void die_between_two_links(void *arg)
{
	(void)arg;
	struct hvd *h = join_to_survive(20);
	struct link link[2] = { { !meeting_rank, -1 }, { 2, -1 } };
	char byte;
	if (meeting_rank == 1) {
		pthread_t forks;
		must(!pthread_create(&forks, NULL, fork_once_linked, h));
	}
	if (meeting_rank < 2)
		must(!mesh_link(h->mesh, link, 1 + meeting_rank, h->error) && !meeting_rank);
	if (meeting_rank == 0) {
		must(!fcntl(link[0].fd, F_SETFL, 0) && recv(link[0].fd, &byte, 1, 0) <= 0);
		meeting->place[0]++;
	}
	while (!meeting->place[0])
		usleep(1000);
	_exit(0);
}

static void a_process_that_is_forked_between_two_links_keeps_none(void **state)
{
	(void)state;
	run_ranks_but(1, "aaa", die_between_two_links, NULL);
	run_ranks_but(1, "abc", die_between_two_links, NULL);
}

/* Without what fork() does for libhvd. */
static pid_t clone_all(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Rank 1 dies while a process that it has cloned keeps its links open, so they tell nothing, and its number goes to a process that has nothing to do with it. */
static void die_and_have_the_number_given_away(void *arg)
{
	(void)arg;
	int last = meeting_rank ? open("/proc/sys/kernel/ns_last_pid", O_WRONLY) : -1, status;
	pid_t rank = meeting_rank ? fork() : 0, other = 0;
	if (!rank) {
		struct hvd *h = join_to_survive(2);
		if (meeting_rank && clone_all())
			_exit(0);
		while (meeting_rank && !meeting->place[0])
			usleep(1000);
		if (meeting_rank)
			_exit(0);
		must(hvd_barrier(h) == HVD_EPEER && strstr(hvd_error(h), "no sign of life"));
		works(h, hvd_recover(h));
		wait_at(0, 1);
		hvd_close(h);
		return;
	}
	must(waitpid(rank, &status, 0) == rank && !status);
	for (int i = 0; i < 100 && other != rank; i++) {
		if (other)
			kill(other, SIGKILL);
		must(dprintf(last, "%d", (int)rank - 1) > 0 && lseek(last, 0, SEEK_SET) == 0);
		other = fork();
		if (!other)
			for (;;)
				pause();
	}
	must(other == rank);
	while (!meeting->place[0])
		usleep(1000);
	must(waitpid(other, &status, WNOHANG) == 0); /* it lives */
	kill(other, SIGKILL);
	_exit(0);
}

static void a_process_that_has_the_number_of_a_dead_rank_lives(void **state)
{
	(void)state;
	if (access("/proc/sys/kernel/ns_last_pid", W_OK))
		skip_because("process numbers cannot be chosen here");
	run_ranks("aa", die_and_have_the_number_given_away, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_killed_at_any_instant_ends_all_others),
		cmocka_unit_test(a_death_in_a_sub_world_ends_the_others_with_the_world_s_line),
		cmocka_unit_test(a_stopped_rank_is_noticed_and_ended_by_one_of_its_node),
		cmocka_unit_test(a_stopped_rank_that_is_alone_on_its_node_is_left_to_scancel),
		cmocka_unit_test(a_stopped_rank_of_an_mpirun_is_not_left_to_scancel),
		cmocka_unit_test(a_step_that_goes_on_without_a_stopped_rank_is_not_ended),
		cmocka_unit_test(a_forked_process_hides_no_death),
		cmocka_unit_test(a_process_that_is_forked_during_the_start_hides_no_death),
		cmocka_unit_test(a_process_that_is_forked_between_two_links_keeps_none),
		cmocka_unit_test(a_process_that_has_the_number_of_a_dead_rank_lives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
