/* SPDX-License-Identifier: Apache-2.0
 * Processes that run the runtime's mesh on simulated links, in simulated time: one thread of this process carries them out in turns, which a seed draws. They
 * may stop wherever they take or give a lock, send, or wait. Seconds of deadlines take milliseconds, and a history can be seen again by its seed.
 * The linker puts these functions in the place of the system's (Makefile). */
#ifndef TEST_SIMULATION_H
#define TEST_SIMULATION_H

#include "runtime/queue.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <ucontext.h>

enum { RANKS_MAX = 5, TASKS_MAX = 2 * RANKS_MAX, LINKS_MAX = 256, LISTENERS_MAX = 512, FDS = 256, FIRST_FD = 100000, LINK_BYTES = 6 << 10, STACK_BYTES = 128 << 10 };

/* A stream between two ranks; end 0 is the lower one's. */
static struct stream {
	int rank[2], listener; /* listener: at which it was formed; 0: it is their control link */
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

static int ranks, tasks_there, running = -1, current, streams_there, listeners;
static bool listener_closed[LISTENERS_MAX];
static double simulated; /* seconds */
static ucontext_t scheduler;
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

static void wait_until(int why, double until)
{
	struct task *k = &tasks[running];
	k->waits = why;
	k->until = until;
	swapcontext(&k->context, &scheduler);
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
	k->run(k->arg);
	wait_until(OVER, 0);
}

static int task(int rank, void *(*run)(void *), void *arg)
{
	struct task *k = &tasks[tasks_there];
	char *stack = k->stack ? k->stack : malloc(STACK_BYTES);
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

/* As in threads.c, a process each. */
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

/* ---- descriptors ------------------------------------------------------------------------------------ */

static int new_descriptor(int kind)
{
	int i = 0;
	while (i < FDS && descriptors[i].kind != UNUSED)
		i++;
	if (i == FDS)
		abort();
	descriptors[i] = (struct descriptor){ .kind = kind, .owner = current };
	return FIRST_FD + i;
}

static struct descriptor *of(int fd)
{
	return fd >= FIRST_FD && fd < FIRST_FD + FDS && descriptors[fd - FIRST_FD].kind != UNUSED ? &descriptors[fd - FIRST_FD] : NULL;
}

int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
	(void)count;
	(void)flags;
	return new_descriptor(EVENT);
}

int __wrap_eventfd_write(int fd, eventfd_t value);
int __wrap_eventfd_write(int fd, eventfd_t value)
{
	of(fd)->count = value;
	return 0;
}

int __wrap_eventfd_read(int fd, eventfd_t *value);
int __wrap_eventfd_read(int fd, eventfd_t *value)
{
	*value = 1;
	of(fd)->count = false;
	return 0;
}

/* What was sent to an end that is closed unread breaks the link, as TCP does. */
static void end_descriptor(struct descriptor *d)
{
	if (d->kind == LINKED) {
		struct stream *s = d->stream;
		s->closed[d->end] = true;
		if (s->held[d->end] && !s->error[!d->end])
			s->error[!d->end] = ECONNRESET;
	}
	d->kind = UNUSED;
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
	give_way();
	if (of(fd))
		end_descriptor(of(fd));
	return 0;
}

int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
	struct descriptor *d = of(fd);
	(void)how;
	if (d && d->kind == LINKED)
		d->stream->shut[d->end] = true;
	return 0;
}

static bool at_end(const struct stream *s, int end)
{
	return s->closed[!end] || s->shut[!end];
}

static short events(int fd, short wanted)
{
	const struct descriptor *d = of(fd);
	if (!d)
		return fd < 0 ? 0 : POLLNVAL;
	if (d->kind == EVENT)
		return d->count ? POLLIN & wanted : 0;
	if (d->kind == KNOCKING)
		return d->error ? POLLERR | POLLHUP : 0;
	const struct stream *s = d->stream;
	bool readable = s->error[d->end] || s->held[d->end] || at_end(s, d->end);
	return (short)((readable ? wanted & POLLIN : 0) | (s->error[d->end] ? POLLERR : 0) | (s->held[!d->end] < LINK_BYTES / 2 ? wanted & POLLOUT : 0));
}

int __wrap_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
	int found = 0;
	tasks[running].polled = p;
	tasks[running].polls = n;
	wait_until(FOR_DESCRIPTORS, ms < 0 ? 1e9 : simulated + ms * 1e-3);
	for (nfds_t i = 0; i < n; i++) {
		p[i].revents = events(p[i].fd, p[i].events);
		found += p[i].revents != 0;
	}
	return found;
}

static ssize_t refuse_with(int error)
{
	errno = error;
	return -1;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	(void)flags;
	give_way();
	struct descriptor *d = of(fd);
	if (!d || d->kind != LINKED || d->stream->shut[d->end] || d->stream->closed[!d->end] || d->stream->error[d->end])
		return refuse_with(EPIPE);
	struct stream *s = d->stream;
	int to = !d->end;
	size_t n = 0, room = LINK_BYTES - s->held[to];
	for (size_t i = 0; i < message->msg_iovlen; i++)
		n += message->msg_iov[i].iov_len;
	if (!room || (n > room && !s->listener)) /* of a control link: all or nothing */
		return refuse_with(EAGAIN);
	n = n < room ? n : room;
	if (n > 1 && !below(32))
		n = 1 + (size_t)below((int)n - 1);
	for (size_t i = 0, left = n; left; i++) {
		size_t k = message->msg_iov[i].iov_len < left ? message->msg_iov[i].iov_len : left;
		memcpy(s->bytes[to] + s->held[to], message->msg_iov[i].iov_base, k);
		s->held[to] += k;
		left -= k;
	}
	return (ssize_t)n;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
	struct iovec part = { (void *)(uintptr_t)bytes, n };
	return __wrap_sendmsg(fd, &(struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 }, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
	(void)flags;
	struct descriptor *d = of(fd);
	message->msg_controllen = 0;
	if (!d || d->kind != LINKED)
		return refuse_with(EBADF);
	struct stream *s = d->stream;
	size_t n = 0, held = s->held[d->end];
	for (size_t i = 0; held && i < message->msg_iovlen; i++) {
		size_t k = message->msg_iov[i].iov_len < held ? message->msg_iov[i].iov_len : held;
		memcpy(message->msg_iov[i].iov_base, s->bytes[d->end] + n, k);
		n += k;
		held -= k;
	}
	if (n) {
		memmove(s->bytes[d->end], s->bytes[d->end] + n, held);
		s->held[d->end] = held;
		return (ssize_t)n;
	}
	int error = s->error[d->end];
	if (error) {
		s->error[d->end] = 0;
		s->closed[!d->end] = true;
		return refuse_with(error);
	}
	return at_end(s, d->end) ? 0 : refuse_with(EAGAIN);
}

int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
	struct descriptor *d = of(fd);
	(void)level;
	(void)size;
	if (!d)
		return -1;
	if (option == SO_ERROR)
		*(int *)value = d->kind == KNOCKING ? d->error : 0;
	else if (option == SO_PEERCRED)
		((struct ucred *)value)->pid = 1000 + (d->kind == KNOCKING ? d->target : d->stream->rank[!d->end]);
	return 0;
}

/* ---- forming links ---------------------------------------------------------------------------------- */

/* At home, with listener 0, or for data, with one of its own. */
static bool at_home(const struct links *l)
{
	return l == &processes[l->rank].m.links;
}

int links_listen(struct links *l, int rank, const char *host, const char *interface, bool tcp, char *why)
{
	(void)interface;
	(void)tcp;
	(void)why;
	*l = (struct links){ .rank = rank, .listener = { 0, -1, -1 } };
	l->scope = at_home(l) ? 0 : (unsigned)++listeners;
	if (listeners == LISTENERS_MAX)
		abort();
	memcpy(l->card.magic, CARD_MAGIC, sizeof l->card.magic);
	snprintf(l->card.host, sizeof l->card.host, "%s", host);
	snprintf(l->card.unix_name, sizeof l->card.unix_name, "%d.%u", rank, l->scope);
	processes[rank].listens = true;
	return 0;
}

static void stop_listening(int rank)
{
	processes[rank].listens = false;
	for (int i = 0; i < FDS; i++)
		if (descriptors[i].kind == KNOCKING && descriptors[i].target == rank)
			descriptors[i].error = ECONNRESET;
}

void links_close(struct links *l)
{
	l->listener[0] = -1;
	if (at_home(l))
		stop_listening(current);
	else
		listener_closed[l->scope] = true;
}

/* Between nodes the refusal comes a moment later, by SO_ERROR. */
int links_connect(const struct links *l, const struct card *c)
{
	int target = atoi(c->unix_name);
	give_way();
	if (!processes[target].listens && !strcmp(c->host, l->card.host))
		return (int)refuse_with(ECONNREFUSED);
	int fd = new_descriptor(KNOCKING);
	of(fd)->target = target;
	of(fd)->error = processes[target].listens ? 0 : ECONNREFUSED;
	return fd;
}

static struct stream *stream_between(int a, int b, int listener)
{
	int low = a < b ? a : b, high = a < b ? b : a, i = 0;
	while (i < streams_there && (streams[i].rank[0] != low || streams[i].rank[1] != high || streams[i].listener != listener))
		i++;
	if (i == LINKS_MAX)
		abort();
	if (i == streams_there) {
		uint8_t *bytes[2] = { streams[i].bytes[0], streams[i].bytes[1] };
		streams[i] = (struct stream){ .rank = { low, high }, .listener = listener };
		for (int end = 0; end < 2; end++)
			streams[i].bytes[end] = bytes[end] ? bytes[end] : malloc(LINK_BYTES);
		streams_there++;
	}
	return &streams[i];
}

/* Who gives up closes what the other end may have taken for formed. */
int links_form(struct links *l, struct link *link, int n, const struct card *cards, double until, char *why)
{
	int open = n, status = 0;
	why[0] = 0;
	for (; open; wait_until(FOR_TIME, simulated + share() * 0.005)) {
		if (lived() > until || events(l->alarm, POLLIN))
			status = HVD_EBOOT;
		open = 0;
		for (int i = 0; i < n; i++) {
			int listener = link[i].outgoing ? atoi(strchr(cards[link[i].rank].unix_name, '.') + 1) : (int)l->scope, end = l->rank > link[i].rank;
			struct stream *s = stream_between(l->rank, link[i].rank, listener);
			if (status && link[i].fd < 0)
				s->closed[end] = true;
			s->wanted[end] |= !status;
			if (!status && link[i].fd < 0 && s->wanted[!end]) {
				link[i].fd = new_descriptor(LINKED);
				of(link[i].fd)->stream = s;
				of(link[i].fd)->end = end;
			} else if (!status && link[i].fd < 0 && link[i].outgoing && listener_closed[listener]) {
				snprintf(why, WHY_BYTES, "nobody listens there");
				status = HVD_EBOOT;
			}
			open += link[i].fd < 0;
		}
		if (status)
			return status;
	}
	return 0;
}

/* ---- the rest of the runtime ---------------------------------------------------------------------------- */

int fail(struct hvd *h, int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(h->error, sizeof h->error, format, args);
	va_end(args);
	return status;
}

int refuse(char why[WHY_BYTES], int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, WHY_BYTES, format, args);
	va_end(args);
	return status;
}

int explain(struct hvd *h, int status)
{
	return status && atomic_load(&h->mesh->failed) ? fail(h, status, "%s", h->mesh->fault) : status;
}

void *gathered(struct hvd *h, const void *mine, size_t bytes, int *status)
{
	void *all = calloc((size_t)h->mesh->members, bytes);
	*status = explain(h, mesh_gather(h->mesh, mine, bytes, all));
	if (!*status)
		return all;
	free(all);
	return NULL;
}

void describe_world(struct hvd *h)
{
	h->world.rank = h->mesh->me;
	h->world.size = h->mesh->members;
}

void fault_noticed(struct hvd *h)
{
	*h->stop = 1;
}

void arm(struct hvd *h)
{
	mesh_doing(h->mesh, DOING_COMPUTE, 0);
	h->mesh->owner = h;
	atomic_store(&h->mesh->armed, !h->conf.on_death);
}

int queue_drain(struct hvd *h)
{
	(void)h;
	return 0;
}

void queue_reset(struct hvd *h)
{
	(void)h;
}

const char *type_name(enum hvd_type type)
{
	(void)type;
	return "f32";
}

const char *op_name(unsigned kind)
{
	(void)kind;
	return "an all-reduce";
}

/* ---- what happens to processes ---------------------------------------------------------------------------- */

static void end_process_of(int rank)
{
	struct process *p = &processes[rank];
	bool listener_first = below(8);
	if (p->dead)
		return;
	p->dead = true;
	p->frozen = false;
	p->closings = 0;
	if (listener_first)
		p->closing[p->closings++] = -1;
	for (int i = 0; i < FDS; i++)
		if (descriptors[i].kind != UNUSED && descriptors[i].owner == rank)
			p->closing[p->closings++] = i;
	if (!listener_first)
		p->closing[p->closings++] = -1;
	p->next_close = simulated + share() * 0.002 + (below(16) ? 0 : share() * 0.5);
}

int __wrap_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal)
{
	(void)signal;
	end_process_of(pid - 1000);
	return 0;
}

/* The system closes what dead processes had open. */
static void close_for_the_dead(void)
{
	for (int r = 0; r < ranks; r++) {
		struct process *p = &processes[r];
		while (p->dead && p->closings && simulated >= p->next_close) {
			int i = p->closing[0];
			memmove(p->closing, p->closing + 1, sizeof p->closing[0] * (size_t)--p->closings);
			if (i < 0)
				stop_listening(r);
			else if (descriptors[i].kind != UNUSED && descriptors[i].owner == r)
				end_descriptor(&descriptors[i]);
			if (!below(3))
				p->next_close = simulated + share() * 0.001 + (below(40) ? 0 : share() * 0.3);
		}
	}
}

static bool can_run(const struct task *k)
{
	const struct process *p = &processes[k->rank];
	if (p->dead || p->frozen)
		return false;
	switch (k->waits) {
	case READY:
		return true;
	case FOR_LOCK:
		return !p->locked;
	case FOR_CHANGE:
		return p->changes != k->changes || simulated >= k->until;
	case FOR_TIME:
		return simulated >= k->until;
	case FOR_WATCHER:
		return tasks[p->watcher].waits == OVER;
	case FOR_DESCRIPTORS:
		for (nfds_t i = 0; i < k->polls; i++)
			if (events(k->polled[i].fd, k->polled[i].events))
				return true;
		return simulated >= k->until;
	case OVER:
		break;
	}
	return false;
}

/* To the next moment at which something happens. False: nothing ever will. */
static bool let_time_pass(void)
{
	double next = 1e9;
	for (int i = 0; i < tasks_there; i++) {
		const struct task *k = &tasks[i];
		bool timed = k->waits == FOR_CHANGE || k->waits == FOR_TIME || k->waits == FOR_DESCRIPTORS;
		if (timed && !processes[k->rank].dead && !processes[k->rank].frozen && k->until < next)
			next = k->until;
	}
	for (int r = 0; r < ranks; r++) {
		const struct process *p = &processes[r];
		if (p->dead && p->closings && p->next_close < next)
			next = p->next_close;
		if (p->frozen && p->thaws < next)
			next = p->thaws;
	}
	if (next >= 1e9)
		return false;
	simulated = next > simulated ? next : simulated;
	for (int r = 0; r < ranks; r++)
		processes[r].frozen &= simulated < processes[r].thaws;
	return true;
}

/* One task goes on until it waits, or time passes. False: all is over. */
static bool one_step(void)
{
	int ready[TASKS_MAX], n = 0;
	close_for_the_dead();
	for (int i = 0; i < tasks_there; i++)
		if (can_run(&tasks[i]))
			ready[n++] = i;
	if (!n)
		return let_time_pass();
	running = ready[below(n)];
	current = tasks[running].rank;
	swapcontext(&scheduler, &tasks[running].context);
	running = -1;
	return true;
}

/* Processes that have done nothing yet. */
static void begin_simulation(int count, uint64_t seed)
{
	ranks = count;
	dice = (seed + 1) * 0x9E3779B97F4A7C15;
	dice ^= dice >> 29;
	for (int i = 0; i < 10; i++)
		draw();
	simulated = 0;
	tasks_there = streams_there = listeners = 0;
	memset(listener_closed, 0, sizeof listener_closed);
	memset(descriptors, 0, sizeof descriptors);
	memset(processes, 0, sizeof processes);
}

#endif
