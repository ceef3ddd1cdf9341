/* SPDX-License-Identifier: Apache-2.0
 * What a simulation consists of (simulation.h), and its threads, locks and clock: tasks that one thread of this process carries out in turns. */
#ifndef TEST_SIMULATION_TASKS_H
#define TEST_SIMULATION_TASKS_H

#include "runtime/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { RANKS_MAX = 5, TASKS_MAX = 2 * RANKS_MAX, LINKS_MAX = 256, FDS = 256, FIRST_FD = 100000, LINK_BYTES = 6 << 10, STACK_BYTES = 128 << 10 };

/* A stream between two ranks; end 0 is the lower one's. */
static struct stream {
	int rank[2];
	unsigned number;    /* of the agreement after which it was formed, from 1 on; 0: it is their control link */
	bool wanted[2], closed[2], shut[2];
	int error[2];       /* what the next read says */
	size_t held[2];     /* bytes that this end has not read yet */
	uint8_t *bytes[2];  /* [LINK_BYTES] */
} streams[LINKS_MAX];

static struct descriptor {
	enum { UNUSED, EVENT, LINKED, KNOCKING } kind;
	int owner;
	bool count;            /* EVENT: there is something to read */
	struct stream *stream; /* LINKED */
	int end;
	int target, error;     /* KNOCKING: at whose listener, and what became of it; 0: nothing yet */
} descriptors[FDS];

static struct task {
	ucontext_t context;
	char *stack;
	int rank;
	enum { READY, FOR_LOCK, FOR_CHANGE, FOR_TIME, FOR_DESCRIPTORS, FOR_WATCHER, OVER } waits;
	double until;
	unsigned changes; /* FOR_CHANGE: the process's when it began */
	struct pollfd *polled;
	nfds_t polls;
	void *(*run)(void *);
	void *arg;
} tasks[TASKS_MAX];

static struct process {
	struct hvd h;
	struct mesh m;
	struct hvd_conf conf;
	bool locked, listens, killed, dead, frozen;
	unsigned changes;     /* broadcasts of its condition */
	double asked, still;  /* lived() */
	double thaws;
	int watcher;          /* number of its task */
	int closing[FDS + 1], closings; /* of a process that is dead: what the system has still to close, one after the other; -1: its listener */
	double next_close;
} processes[RANKS_MAX];

static int ranks, tasks_there, running = -1, current, streams_there;
static double simulated; /* seconds */
static ucontext_t scheduler;
static const void *scheduler_stack;
static size_t scheduler_bytes;
static uint64_t dice;

static uint32_t draw(void)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)(dice >> 16);
}

static int below(int n)
{
	return (int)(draw() % (uint32_t)n);
}

static double share(void)
{
	return draw() / 4294967296.0;
}

/* ---- tasks ---------------------------------------------------------------------------------------- */

/* AddressSanitizer is told which stack is the current one; its own swapcontext() would report that it does not know. */
static void switch_to(ucontext_t *from, ucontext_t *to, const void *stack, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	static int (*swap)(ucontext_t *, const ucontext_t *);
	void *kept;
	if (!swap)
		swap = dlsym(dlopen("libc.so.6", RTLD_NOW), "swapcontext");
	__sanitizer_start_switch_fiber(&kept, stack, bytes);
	swap(from, to);
	__sanitizer_finish_switch_fiber(kept, NULL, NULL);
#else
	(void)stack;
	(void)bytes;
	swapcontext(from, to);
#endif
}

static void wait_until(int why, double until)
{
	struct task *k = &tasks[running];
	k->waits = why;
	k->until = until;
	switch_to(&k->context, &scheduler, scheduler_stack, scheduler_bytes);
}

/* Another task may run here, for as long as a busy system lets this one wait. */
static void give_way(void)
{
	if (running < 0)
		return;
	uint32_t r = draw() % 64;
	if (r < 16)
		wait_until(READY, 0);
	else if (r == 17)
		wait_until(FOR_TIME, simulated + share() * 0.003);
	else if (r == 18 && !below(64))
		wait_until(FOR_TIME, simulated + share() * 0.3);
}

static void begin_task(void)
{
	struct task *k = &tasks[running];
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_bytes);
#endif
	k->run(k->arg);
	wait_until(OVER, 0);
}

static int task(int rank, void *(*run)(void *), void *arg)
{
	struct task *k = &tasks[tasks_there];
	char *stack = k->stack ? k->stack : malloc(STACK_BYTES);
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(stack, STACK_BYTES); /* of one that was killed there */
#endif
	*k = (struct task){ .rank = rank, .run = run, .arg = arg, .stack = stack };
	getcontext(&k->context);
	k->context.uc_stack.ss_sp = stack;
	k->context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&k->context, begin_task, 0);
	return tasks_there++;
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	*thread = 0;
	processes[current].watcher = task(current, run, arg);
	return 0;
}

int __wrap_pthread_join(pthread_t thread, void **value);
int __wrap_pthread_join(pthread_t thread, void **value)
{
	(void)thread;
	(void)value;
	while (tasks[processes[current].watcher].waits != OVER)
		wait_until(FOR_WATCHER, 0);
	return 0;
}

/* ---- locks and time --------------------------------------------------------------------------------- */

static void take_lock(void)
{
	while (processes[current].locked)
		wait_until(FOR_LOCK, 0);
	processes[current].locked = true;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	(void)lock;
	give_way();
	take_lock();
	return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
	(void)lock;
	processes[current].locked = false;
	give_way();
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *changed);
int __wrap_pthread_cond_broadcast(pthread_cond_t *changed)
{
	(void)changed;
	processes[current].changes++;
	return 0;
}

void condition_init(pthread_cond_t *changed)
{
	(void)changed;
}

void condition_wait(pthread_cond_t *changed, pthread_mutex_t *lock)
{
	(void)changed;
	(void)lock;
	processes[current].locked = false;
	tasks[running].changes = processes[current].changes;
	wait_until(FOR_CHANGE, simulated + LOOK_MS * 1e-3);
	take_lock();
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	double x = simulated + 1000;
	*t = (struct timespec){ .tv_sec = (time_t)x, .tv_nsec = (long)((x - (double)(time_t)x) * 1e9) };
	return 0;
}

/* Who is woken is so at once. */
bool look_again(double *until)
{
	(void)until;
	return false;
}

/* As in base.c, a process each. */
double lived(void)
{
	struct process *p = &processes[current];
	double t = simulated + 1000;
	if (p->asked > 0 && t - p->asked > 0.5)
		p->still += t - p->asked - 0.5;
	p->asked = t;
	return t - p->still;
}

int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	wait_until(FOR_TIME, simulated + (us < 4000 ? 4000 : us) * 1e-6);
	return 0;
}

#endif
