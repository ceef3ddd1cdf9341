/* SPDX-License-Identifier: Apache-2.0
 * A simulation's descriptors and links (simulation.h): what the mesh sends, receives and polls, and how its links are formed. */
#ifndef TEST_SIMULATION_LINKS_H
#define TEST_SIMULATION_LINKS_H

#include "tests/unit/simulation_tasks.h"

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

/* What poll() is called where gcc 11 makes checks of it. */
int __wrap___poll_chk(struct pollfd *p, nfds_t n, int ms, size_t bytes);
int __wrap___poll_chk(struct pollfd *p, nfds_t n, int ms, size_t bytes)
{
	(void)bytes;
	return __wrap_poll(p, n, ms);
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
	if (!room || (n > room && !s->number)) /* of a control link: all or nothing */
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
	return 0;
}

int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	struct descriptor *d = of(fd);
	return !d || command != F_GETOWN || d->kind == KNOCKING ? 0 : 1000 + d->stream->rank[!d->end];
}

/* ---- forming links ---------------------------------------------------------------------------------- */

int links_listen(struct links *l, const char *host, const char *interface, bool tcp, char *why)
{
	(void)interface;
	(void)tcp;
	(void)why;
	l->listener[0] = 0;
	memcpy(l->card.magic, CARD_MAGIC, sizeof l->card.magic);
	snprintf(l->card.host, sizeof l->card.host, "%s", host);
	snprintf(l->card.unix_name, sizeof l->card.unix_name, "%d", l->rank);
	processes[l->rank].listens = true;
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
	stop_listening(current);
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

static struct stream *stream_between(int a, int b, unsigned number)
{
	int low = a < b ? a : b, high = a < b ? b : a, i = 0;
	while (i < streams_there && (streams[i].rank[0] != low || streams[i].rank[1] != high || streams[i].number != number))
		i++;
	if (i == LINKS_MAX)
		abort();
	if (i == streams_there) {
		uint8_t *bytes[2] = { streams[i].bytes[0], streams[i].bytes[1] };
		streams[i] = (struct stream){ .rank = { low, high }, .number = number };
		for (int end = 0; end < 2; end++)
			streams[i].bytes[end] = bytes[end] ? bytes[end] : malloc(LINK_BYTES);
		streams_there++;
	}
	return &streams[i];
}

/* Who gives up closes what the other end may have taken for formed. */
/* Nothing is forked. */
void forks_let_go(struct mesh *m)
{
	(void)m;
}

void forks_forget(const struct mesh *m)
{
	(void)m;
}

int links_form(struct links *l, struct link *link, int n, const struct card *cards, double until, char *why)
{
	int open = n, status = 0;
	(void)cards;
	why[0] = 0;
	for (; open; wait_until(FOR_TIME, simulated + share() * 0.005)) {
		if (lived() > until || events(l->alarm, POLLIN))
			status = HVD_EBOOT;
		open = 0;
		for (int i = 0; i < n; i++) {
			int end = l->rank > link[i].rank;
			struct stream *s = stream_between(l->rank, link[i].rank, l->told ? 1 + processes[l->rank].m.rounds : 0);
			if (status && link[i].fd < 0)
				s->closed[end] = true;
			s->wanted[end] |= !status;
			if (!status && link[i].fd < 0 && s->wanted[!end]) {
				link[i].fd = new_descriptor(LINKED);
				of(link[i].fd)->stream = s;
				of(link[i].fd)->end = end;
			} else if (!status && link[i].fd < 0 && link[i].rank < l->rank && !processes[link[i].rank].listens) {
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

#endif
