/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"

/* PAUSE is about 50 ns. A step is 600 loops; whoever sleeps at the end of one is 50 to 200 us late for the next, on a virtual machine
 * more than on a real one. So a thread spins for 100 us, which bridge the serial work between two loops, and then offers its core to
 * others for a millisecond or two, as long as a task may take, before it sleeps. */
enum { SPINS = 2000, YIELDS = 4000 };

struct member {
	struct cpu_team *team;
	pthread_t thread;
	int worker;
};

/* `next` holds the loop's number in its upper half and the next task in its lower. A task is taken by compare and swap on
 * the whole word, so a thread that comes late cannot take a task of another loop: while it holds none, the loop's fields
 * may change under it, but then its swap fails. A loop that has ended is CLOSED before the fields change. */
#define CLOSED(loop) ((uint64_t)(loop) << 32 | INT32_MAX)

struct cpu_team {
	_Atomic uint64_t next;
	_Atomic(cpu_task) task;
	_Atomic(void *) context;
	atomic_int count;
	_Atomic uint32_t done;   /* tasks of this loop */
	_Atomic uint32_t loops;  /* futex: grows with each loop */
	atomic_int sleepers, closing;
	int started, threads;
	struct member member[];
};

static void relax(void)
{
#if defined __x86_64__
	__builtin_ia32_pause();
#elif defined __aarch64__
	__asm__ volatile("isb"); /* "yield" does nothing on most of these processors */
#endif
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
	syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Waits until *word is not `old`. */
static void await_change(struct cpu_team *t, _Atomic uint32_t *word, uint32_t old)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		relax();
	}
	for (int i = 0; i < YIELDS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		sched_yield();
	}
	atomic_fetch_add(&t->sleepers, 1);
	while (atomic_load(word) == old)
		futex(word, FUTEX_WAIT, old);
	atomic_fetch_sub(&t->sleepers, 1);
}

static void change(struct cpu_team *t, _Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	if (atomic_load(&t->sleepers))
		futex(word, FUTEX_WAKE, INT32_MAX);
}

static void take_tasks(struct cpu_team *t, int worker)
{
	uint64_t next = atomic_load(&t->next);
	for (;;) {
		int count = atomic_load(&t->count);
		cpu_task task = atomic_load(&t->task);
		void *context = atomic_load(&t->context);
		int mine = (int)(uint32_t)next;
		if (mine >= count)
			return;
		if (!atomic_compare_exchange_weak(&t->next, &next, next + 1))
			continue;
		task(context, mine, worker);
		if (atomic_fetch_add(&t->done, 1) + 1 == (uint32_t)count && worker && atomic_load(&t->sleepers))
			futex(&t->done, FUTEX_WAKE, 1);
		next = atomic_load(&t->next);
	}
}

static void *work(void *argument)
{
	struct member *m = argument;
	struct cpu_team *t = m->team;
	for (uint32_t seen = 0; !atomic_load(&t->closing);) {
		await_change(t, &t->loops, seen);
		seen = atomic_load(&t->loops);
		take_tasks(t, m->worker);
	}
	return NULL;
}

void cpu_team_run(struct cpu_team *t, int count, cpu_task task, void *context)
{
	if (t->threads == 1 || count <= 1) {
		for (int i = 0; i < count; i++)
			task(context, i, 0);
		return;
	}
	uint32_t loop = atomic_load(&t->loops) + 1;
	atomic_store(&t->task, task);
	atomic_store(&t->context, context);
	atomic_store(&t->done, 0);
	atomic_store(&t->count, count);
	atomic_store(&t->next, (uint64_t)loop << 32);
	change(t, &t->loops, loop);
	take_tasks(t, 0);
	for (uint32_t done; (done = atomic_load(&t->done)) != (uint32_t)count;)
		await_change(t, &t->done, done);
	atomic_store(&t->next, CLOSED(loop));
}

/* Signals belong to the threads that the program started, but for those that an instruction causes: blocked, they kill unheard. */
static int start(struct member *m)
{
	static const int own[] = { SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP };
	sigset_t all, before;
	sigfillset(&all);
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&m->thread, NULL, work, m);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int cpu_team_open(struct cpu_team **team, int threads, struct error *e)
{
	struct cpu_team *t = calloc(1, sizeof *t + (size_t)threads * sizeof t->member[0]);
	if (!t)
		return fail(e, EXIT_INTERNAL, "no memory for %d threads", threads);
	t->threads = threads;
	atomic_store(&t->next, CLOSED(0));
	for (t->started = 1; t->started < threads; t->started++) {
		struct member *m = &t->member[t->started];
		*m = (struct member){ .team = t, .worker = t->started };
		if (start(m)) {
			cpu_team_close(t);
			return fail(e, EXIT_INTERNAL, "cannot start thread %d of %d: see the limits on processes and memory (ulimit -u, -v)", m->worker + 1, threads);
		}
	}
	*team = t;
	return 0;
}

void cpu_team_close(struct cpu_team *t)
{
	if (!t)
		return;
	atomic_store(&t->closing, 1);
	change(t, &t->loops, atomic_load(&t->loops) + 1);
	for (int i = 1; i < t->started; i++)
		pthread_join(t->member[i].thread, NULL);
	free(t);
}
