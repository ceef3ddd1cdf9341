/* SPDX-License-Identifier: Apache-2.0
 * A world without Slurm: ranks are forked, and find rank 0's card in memory that they share. */
#ifndef TESTS_RUNTIME_WORLD_H
#define TESTS_RUNTIME_WORLD_H

#include "tests/unit/test.h"

#include "runtime/world.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MAX 16

/* Shared by all ranks of a test. */
struct meeting {
	_Atomic size_t published; /* bytes of rank 0's card, 0: none yet */
	_Atomic unsigned version; /* of the card; odd while it is being written */
	uint8_t card[1024];
	pid_t pid[RANKS_MAX];
	_Atomic int note[RANKS_MAX];
	_Atomic int arrived; /* ranks whose set-up is through */
	_Atomic int place[4]; /* ranks that have come to a place of the test's own */
	char text[RANKS_MAX][700]; /* hvd_error() of ranks, where a test looks at it */
};

static struct meeting *meeting;
static const char *meeting_hosts; /* a letter for each rank's node: "aabb" */
static int meeting_rank;

static inline int meeting_publish(struct boot *b, const void *card, size_t bytes, char *why)
{
	(void)b, (void)why;
	meeting->version++;
	memcpy(meeting->card, card, bytes);
	meeting->published = bytes;
	meeting->version++;
	return 0;
}

static inline int meeting_lookup(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	(void)b;
	while (!meeting->published) {
		if (lived() > until) {
			snprintf(why, WHY_BYTES, "rank 0 did not join");
			return HVD_EBOOT;
		}
		usleep(1000);
	}
	for (unsigned version = 1; version % 2 || version != meeting->version;) {
		version = meeting->version;
		memcpy(card, meeting->card, bytes);
	}
	return 0;
}

static inline void meeting_host_of(struct boot *b, int rank, char host[HOST_BYTES])
{
	(void)b;
	snprintf(host, HOST_BYTES, "node-%c", meeting_hosts[rank]);
}

static inline void meeting_finish(struct boot *b)
{
	(void)b;
}

static inline int meet(struct boot *b, char *why)
{
	(void)why;
	*b = (struct boot){ .rank = meeting_rank, .size = (int)strlen(meeting_hosts), .nodes = strspn(meeting_hosts, "a") < strlen(meeting_hosts) ? 2 : 1,
			    .publish = meeting_publish, .lookup = meeting_lookup, .host_of = meeting_host_of, .finish = meeting_finish };
	meeting_host_of(b, b->rank, b->host);
	return 0;
}

/* In a rank: the condition must hold, or the rank ends with status 1 and says so. */
#define must(condition)                                                                                        \
	do {                                                                                                   \
		if (!(condition)) {                                                                            \
			fprintf(stderr, "rank %d: %s:%d: not so: %s\n", meeting_rank, __FILE__, __LINE__, #condition); \
			_exit(1);                                                                              \
		}                                                                                              \
	} while (0)

/* In a rank: the call must succeed. */
#define works(h, call)                                                                                                                  \
	do {                                                                                                                            \
		int works_status = (call);                                                                                              \
		if (works_status) {                                                                                                     \
			fprintf(stderr, "rank %d: %s:%d: %s: %d, %s\n", meeting_rank, __FILE__, __LINE__, #call, works_status, hvd_error(h)); \
			_exit(1);                                                                                                       \
		}                                                                                                                       \
	} while (0)

/* In a rank. */
static inline int open_files(void)
{
	int n = 0;
	DIR *folder = opendir("/proc/self/fd");
	must(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static inline struct hvd_conf quick_conf(void)
{
	return (struct hvd_conf){ .size = sizeof(struct hvd_conf), .backend = "cpu", .interface = "lo", .deadline = 20 };
}

/* In a rank: waits until all ranks of this world have come this far; harm that one does earlier would reach others in their set-up. */
static inline void all_arrive(void)
{
	meeting->arrived++;
	while (meeting->arrived < (int)strlen(meeting_hosts))
		usleep(100);
}

/* In a rank: waits until `ranks` of them have come to this place. */
static inline void wait_at(int place, int ranks)
{
	meeting->place[place]++;
	while (meeting->place[place] < ranks)
		usleep(100);
}

/* Forks a rank for each letter of `hosts` and runs body(arg) in each; status[rank] receives wait statuses. */
static inline void spawn_ranks(const char *hosts, void (*body)(void *), void *arg, int *status)
{
	int n = (int)strlen(hosts);
	meeting_hosts = hosts;
	meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(meeting, MAP_FAILED);
	fflush(NULL);
	for (int r = 0; r < n; r++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			meeting_rank = r;
			alarm(60);
			body(arg);
			exit(0);
		}
		meeting->pid[r] = pid;
	}
	for (int r = 0; r < n; r++)
		assert_int_equal(waitpid(meeting->pid[r], &status[r], 0), meeting->pid[r]);
}

static inline void meeting_over(void)
{
	munmap(meeting, sizeof *meeting);
}

/* All ranks must end well but `dead` (-1: none), which must be killed. */
static inline void run_ranks_but(int dead, const char *hosts, void (*body)(void *), void *arg)
{
	int status[RANKS_MAX], bad = 0;
	spawn_ranks(hosts, body, arg, status);
	meeting_over();
	for (int r = 0; r < (int)strlen(hosts); r++)
		bad += status[r] != (r == dead ? SIGKILL : 0);
	if (bad)
		fprintf(stderr, "%d of the ranks of %s did not end well\n", bad, hosts);
	assert_int_equal(bad, 0);
}

static inline void run_ranks(const char *hosts, void (*body)(void *), void *arg)
{
	run_ranks_but(-1, hosts, body, arg);
}

/* body(path) in each, of a new folder, which goes when all have ended. */
static inline void run_ranks_in_folder(const char *hosts, void (*body)(void *))
{
	char folder[1024], command[1100];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	run_ranks(hosts, body, folder);
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static inline struct hvd *join_world(int on_death, double deadline)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.on_death = on_death;
	conf.deadline = deadline;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	return h;
}

/* Of a rank, where all ranks have come; with so many seconds as the deadline. */
static inline struct hvd *join_within(double deadline)
{
	return join_world(0, deadline);
}

/* The same, of a world that goes on without lost ranks. */
static inline struct hvd *join_to_survive(double deadline)
{
	return join_world(1, deadline);
}

/* The watching thread writes both. */
static inline struct peer peer_now(struct mesh *m, int rank)
{
	pthread_mutex_lock(&m->lock);
	struct peer p = m->peer[rank];
	pthread_mutex_unlock(&m->lock);
	return p;
}

/* Every rank gives 1 << rank of the first world. */
static inline void check_sum(struct hvd *h, int64_t want)
{
	int64_t sum = 1 << meeting_rank;
	works(h, hvd_allreduce(h, &sum, &sum, 1, HVD_I64, HVD_SUM));
	must(sum == want);
}

static inline uint32_t stop_word(const struct hvd *h)
{
	return __atomic_load_n(hvd_stop_word(h), __ATOMIC_SEQ_CST);
}

/* Where all ranks have come rank 1 dies, and the others go on. */
static inline void go_on_without_rank_1(struct hvd *h)
{
	works(h, hvd_barrier(h));
	wait_at(3, (int)strlen(meeting_hosts)); /* its death would reach who is in the barrier still */
	if (meeting_rank == 1)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
}

#endif
