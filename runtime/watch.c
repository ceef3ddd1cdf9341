/* SPDX-License-Identifier: Apache-2.0
 * The watching thread: reads every control link, sends signs of life, and notices what stays away. */
#include "backend.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_LOST_PEER 70 /* EX_SOFTWARE of sysexits.h */
#define UNREAD_BEATS 100 /* a Unix socket takes some 270 */

/* ---- one link ------------------------------------------------------------------------------------- */

static int file_message(struct peer *p)
{
	struct message *message = calloc(1, sizeof *message), **end = &p->inbox;
	if (!message)
		return -1;
	message->header = p->in.header;
	message->fd = p->in.fd;
	message->data = wire_next(&p->in);
	while (*end)
		end = &(*end)->next;
	*end = message;
	return 0;
}

/* Of two that accuse each other one is enough to lose: the others believe the one that they hear first, and the two have lost each other. */
static void heed_fault(struct mesh *m, int from)
{
	struct fault_notice n;
	struct peer *p = &m->peer[from];
	memcpy(&n, p->in.payload, sizeof n);
	n.text[sizeof n.text - 1] = 0;
	int rank = n.rank >= 0 && n.rank < m->size ? n.rank : -1;
	int reporter = n.reporter >= 0 && n.reporter < m->size ? n.reporter : 0;
	bool me = rank == m->rank, final = me && (n.cause == CAUSE_CLOSED || n.cause == CAUSE_DISMISSED); /* who says that goes on in any case */
	if (!n.status && !atomic_load(&m->failed))
		fault_locked(m, HVD_EPEER, from, CAUSE_CUT, -1, NULL);
	if (!n.status || (!me && p->fate != ALIVE))
		return;
	if (me && !final && (reporter == from || p->fate != ALIVE)) {
		m->accused = true;
		p->fate = p->fate == ALIVE ? UNHEARD : p->fate;
	} else if (me) {
		m->given_up = true;
	}
	fault_locked(m, n.status < 0 ? n.status : HVD_EPEER, rank, n.cause <= CAUSE_VANISHED ? n.cause : CAUSE_NONE, reporter, n.text);
}

static int handle(struct mesh *m, int from)
{
	struct peer *p = &m->peer[from];
	switch (p->member && !p->garbled ? p->in.header.kind : 0) { /* who is none is not listened to */
	case WIRE_DATA:
		if (file_message(p))
			return -1;
		pthread_cond_broadcast(&m->changed);
		return 0;
	case WIRE_BEAT:
		memcpy(&p->doing, p->in.payload, sizeof p->doing);
		break;
	case WIRE_FAULT:
		heed_fault(m, from);
		break;
	case WIRE_BYE:
		p->left = true;
		pthread_cond_broadcast(&m->changed);
		break;
	}
	wire_skip(&p->in);
	return 0;
}

static bool well_formed(const struct wire_header *h)
{
	return h->kind == WIRE_BEAT ? h->bytes == sizeof(struct activity) : h->kind != WIRE_FAULT || h->bytes == sizeof(struct fault_notice);
}

/* Returns -1 when the link is at its end; errno 0: the other end was closed. */
static int read_link(struct mesh *m, int from)
{
	struct peer *p = &m->peer[from];
	for (;;) {
		int whole = wire_read(&p->in, p->fd);
		if (whole < 0 && errno != EPROTO)
			return -1;
		p->heard = lived();
		if (!whole)
			return 0;
		if (whole < 0 || !well_formed(&p->in.header)) { /* the rank itself may be well, and hears of it */
			fault_locked(m, HVD_EPEER, from, CAUSE_GARBLED, -1, NULL);
			p->garbled = true;
		}
		if (whole > 0 && handle(m, from))
			return -1;
	}
}

/* A link may end between two that live, and both go on. Where they may, a process is known to be gone when nobody listens there any more, now or in a
 * moment; one that ends later may have gone on before. What ends a knock may have ended only that, as what ended the link did. */
static void end_of_link(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	int error = errno;
	bool late = p->knocking && lived() - p->knocking > MOMENT;
	if (!p->knocking)
		p->broke = error;
	else
		getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof error });
	bool knocks = m->owner && m->links.listener[0] >= 0 && !late && p->member && !p->left && p->fate == ALIVE && (!error || error == ECONNRESET);
	if (error == ENOMEM) /* before the link ends, which the other rank would take for a death */
		fault_locked(m, HVD_ESYS, -1, CAUSE_NONE, -1, "has no memory for what others tell it");
	close_fd(&p->fd);
	if (knocks) {
		p->knocking = p->knocking ? p->knocking : lived();
		p->out.begin = p->out.end = 0;
		p->fd = links_connect(&m->links, &m->cards[rank]);
		error = errno;
	}
	bool unreachable = error && error != ECONNRESET && error != ECONNREFUSED; /* a link that timed out says nothing of the process */
	if (p->fd >= 0)
		return;
	if (!p->left)
		fault_locked(m, HVD_EPEER, rank, late ? CAUSE_CUT : unreachable ? CAUSE_SILENT : CAUSE_CLOSED, -1, NULL);
	else
		p->fate = DEAD;
	pthread_cond_broadcast(&m->changed);
}

/* ---- the thread ----------------------------------------------------------------------------------- */

/* Not so many that they fill a link whose other end stands still: the word that it is given up must find room there. */
static void beat(struct mesh *m, double t, double interval)
{
	struct activity mine = own_activity(m);
	for (int i = 0; i < m->size; i++)
		if (m->peer[i].out.begin == m->peer[i].out.end && t - m->peer[i].heard < UNREAD_BEATS * interval)
			peer_post(&m->peer[i], &(struct wire_header){ .kind = WIRE_BEAT, .bytes = sizeof mine }, &mine);
}

/* Not while the world is being formed: rank 0 gives no sign of life before all have come, and every wait has its own end. */
static void look_for_silence(struct mesh *m, double t)
{
	if (atomic_load(&m->what) == DOING_START)
		return;
	for (int i = 0; i < m->size; i++) {
		const struct peer *p = &m->peer[i];
		double patience = !p->knocking ? m->deadline : i > m->rank ? 2 * MOMENT : 3 * MOMENT; /* of two that are well, the lower one says it */
		if (p->fd >= 0 && !p->left && t - (p->knocking ? p->knocking : p->heard) > patience)
			fault_locked(m, HVD_EPEER, i, p->knocking ? CAUSE_CUT : CAUSE_SILENT, -1, NULL);
	}
}

/* The default end of a process that lost a rank: one line, whatever the other threads are in, and exit. */
static void end_process(struct mesh *m)
{
	char line[sizeof m->fault + 8];
	int n = snprintf(line, sizeof line, "hvd: %s\n", m->fault);
	if (m->owner->conf.on_lost) {
		line[n - 1] = 0;
		m->owner->conf.on_lost(m->owner->conf.on_lost_arg, line);
		return;
	}
	struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
	if (poll(&out, 1, (int)(PATIENCE * 1e3)) == 1) /* else nobody reads it */
		n = (int)write(STDERR_FILENO, line, (size_t)n);
	_exit(EXIT_LOST_PEER);
}

/* Often enough for the deadline, and to know what a rank was doing when it died; rarely enough for large worlds. */
static double beat_interval(const struct mesh *m)
{
	double interval = 0.02 * m->size < 0.2 ? 0.2 : 0.02 * m->size;
	return interval < m->deadline / 8 ? interval : m->deadline / 8;
}

/* p[size + 1]: every link, and what wakes this thread. */
static void list_links(struct mesh *m, struct pollfd *p)
{
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++) {
		const struct peer *q = &m->peer[i];
		p[i] = (struct pollfd){ .fd = q->fd, .events = q->out.begin < q->out.end ? POLLIN | POLLOUT : POLLIN };
	}
	pthread_mutex_unlock(&m->lock);
	p[m->size] = (struct pollfd){ .fd = m->wake, .events = POLLIN };
}

/* A program may allow itself fewer files than there are links, with which poll() does nothing: all are tried, none of which waits. */
static void look_without_poll(struct pollfd *p, int n)
{
	usleep(1000);
	for (int i = 0; i < n; i++)
		p[i].revents = p[i].events;
}

/* As soon as there is a fault. */
static void tell_owner(struct hvd *h)
{
	if (h->parent)
		split_fault(h);
	__atomic_store_n(h->stop, 1, __ATOMIC_SEQ_CST);
	if (h->backend->stop)
		h->backend->stop(h);
}

static void *watch(void *arg)
{
	struct mesh *m = arg;
	struct pollfd *p = m->polled;
	const int n = m->size + 1;
	double interval = beat_interval(m), next_beat = 0;
	bool ended = false, stop = false;
	while (!stop) {
		eventfd_t count;
		double t = lived(), pause = (next_beat - t) * 1e3;
		list_links(m, p);
		if (poll(p, (nfds_t)n, pause < 0 ? 0 : pause < LOOK_MS ? (int)pause + 1 : LOOK_MS) < 0 && errno != EINTR)
			look_without_poll(p, n);
		pthread_mutex_lock(&m->lock);
		note_standstill(m); /* before anything is read */
		if (p[m->size].revents)
			eventfd_read(m->wake, &count);
		for (int i = 0; i < m->size; i++) {
			struct peer *q = &m->peer[i];
			if (q->fd < 0 || q->fd != p[i].fd)
				continue;
			if (p[i].revents & POLLOUT)
				peer_flush(q);
			if ((p[i].revents & (POLLIN | POLLHUP | POLLERR)) && (q->knocking || read_link(m, i)))
				end_of_link(m, i);
		}
		look_for_silence(m, t); /* as it was before the links were read: a thread that was held up since then blames nobody */
		bool due = t >= next_beat;
		if (due) {
			beat(m, t, interval);
			next_beat = t + interval;
		}
		struct hvd *h = m->owner;
		bool fault = m->failed && !m->told && h, lost = m->failed == HVD_EPEER && m->armed && !ended;
		ended |= lost;
		stop = m->stop;
		pthread_mutex_unlock(&m->lock);
		if (lost) /* first: what ends collectives on a device may wait for the program */
			end_process(m);
		if (fault) {
			tell_owner(h);
			m->told = true;
		}
		if (due && h && h->backend->look)
			h->backend->look(h);
	}
	return NULL;
}

int watch_start(struct mesh *m)
{
	m->watching = !thread_start(&m->watcher, watch, m);
	return m->watching ? 0 : HVD_ESYS;
}

bool watch_told(struct mesh *m)
{
	double until = lived() + m->deadline + 2 * PATIENCE; /* so long split_fault() may take */
	for (; m->watching && m->owner && atomic_load(&m->failed) && !m->told; usleep(1000))
		if (lived() > until)
			return false;
	return true;
}

void watch_stop(struct mesh *m)
{
	if (!m->watching)
		return;
	pthread_mutex_lock(&m->lock);
	m->stop = true;
	pthread_mutex_unlock(&m->lock);
	eventfd_write(m->wake, 1);
	pthread_join(m->watcher, NULL);
	m->watching = false;
}
