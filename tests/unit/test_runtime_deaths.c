/* SPDX-License-Identifier: Apache-2.0
 * No death goes unnoticed, and nothing hangs. */
#include "tests/unit/runtime_world.h"

#include "runtime/links.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

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
	for (int neighbour = 0; neighbour < 2; neighbour++) {
		run_beside_scancel(neighbour ? "abab" : "aba", toil_until_stopped_alone, status, said);
		assert_string_equal(said, "--signal=KILL 17.3\n"); /* by one of those that are left */
		assert_true(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
		assert_int_equal(WEXITSTATUS(status[0]), 70);
		assert_int_equal(WEXITSTATUS(status[2]), 70);
		assert_true(!neighbour || !status[3]);
	}
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

/* ---- who is named, and how ------------------------------------------------------------------------ */

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
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.on_lost = note_line_late;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
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
		must((*needed_for == 's' ? hvd_split(h, 0, &part) : hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM)) == HVD_EPEER);
		must(strstr(hvd_error(h), "rank 1 on node-a") && hvd_lost(h) == 1);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_killed_at_any_instant_ends_all_others),
		cmocka_unit_test(a_death_in_a_sub_world_ends_the_others_with_the_world_s_line),
		cmocka_unit_test(a_stopped_rank_is_noticed_and_ended_by_one_of_its_node),
		cmocka_unit_test(a_stopped_rank_that_is_alone_on_its_node_is_left_to_scancel),
		cmocka_unit_test(a_step_that_goes_on_without_a_stopped_rank_is_not_ended),
		cmocka_unit_test(a_forked_process_hides_no_death),
		cmocka_unit_test(a_process_that_is_forked_during_the_start_hides_no_death),
		cmocka_unit_test(a_process_that_has_the_number_of_a_dead_rank_lives),
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
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
