/* SPDX-License-Identifier: Apache-2.0
 * The watching thread: reads every control link, sends signs of life, and says which rank is lost. */
#include "backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_LOST_PEER 70 /* EX_SOFTWARE of sysexits.h */
#define OUTBOX_MAX (64u << 20)
#define UNREAD_BEATS 100 /* a Unix socket takes some 270 */

struct fault_notice {
	int32_t status, rank; /* status 0: asks who it is for to give its sender up */
	uint32_t cause;
	int32_t reporter; /* who noticed it; the notice may come through others */
	char text[WHY_BYTES];
};

static void end_silent_locked(struct mesh *m, int rank);

/* ---- words ---------------------------------------------------------------------------------------- */

const char *op_name(unsigned kind)
{
	static const char *const names[] = { "an all-reduce", "a broadcast", "an all-gather", "a reduce-scatter", "an all-to-all", "a barrier" };
	return kind < sizeof names / sizeof names[0] ? names[kind] : "an unknown collective";
}

/* "in hvd_split" */
static void name_activity(uint32_t what, uint32_t index, char text[48])
{
	static const char *const words[] = { "starting", "in hvd_recover", "computing", "in hvd_plan_open", "in hvd_alloc", "in hvd_split",
					     "in hvd_plan_accumulate" };
	if (what == DOING_BUCKET)
		snprintf(text, 48, "all-reducing bucket %u", index);
	else
		snprintf(text, 48, "%s%s", what < DOING_BUCKET ? "" : "in ", what < DOING_BUCKET ? words[what] : op_name(what - DOING_OP));
}

struct activity own_activity(struct mesh *m)
{
	return (struct activity){
		.what = atomic_load(&m->what),
		.index = atomic_load(&m->index),
		.sequence = atomic_load(&m->sequence),
		.seconds = lived() - atomic_load(&m->since),
	};
}

static const char *const reasons[] = {
	[CAUSE_NONE] = "",
	[CAUSE_CLOSED] = "it died, or ended without hvd_close()",
	[CAUSE_SILENT] = "no sign of life (stopped, or its node is gone)",
	[CAUSE_LATE] = "alive, but it did not come along within the deadline",
	[CAUSE_LEFT] = "it called hvd_close() while others wait for it",
	[CAUSE_GARBLED] = "what it sent is no message of libhvd's (damaged on the way, or in its memory)",
	[CAUSE_CUT] = "alive, but a link with it broke",
	[CAUSE_UNABLE] = "it cannot go on",
	[CAUSE_DISMISSED] = "they go on without it",
	[CAUSE_VANISHED] = "it died, or ended without hvd_close(), while others stood still",
};

/* "rank 3 on n2" */
static void name_rank(const struct mesh *m, int rank, char text[96])
{
	const char *host = m->peer[rank].host;
	snprintf(text, 96, "rank %d%s%.63s", rank, *host ? " on " : "", host);
}

static void compose(struct mesh *m, int rank, enum cause cause, int reporter, const char *text)
{
	char who[96], whom[96], here[48], there[48], said[64] = "";
	struct activity mine = own_activity(m);
	name_activity(mine.what, mine.index, here);
	name_rank(m, rank < 0 && reporter >= 0 ? reporter : m->rank, who);
	if (reporter >= 0)
		snprintf(said, sizeof said, " (says rank %d)", reporter);
	if (rank < 0) {
		snprintf(m->fault, sizeof m->fault, "%s %s", who, text);
	} else if (rank == m->rank) {
		snprintf(m->fault, sizeof m->fault, "%s was given up by the others%s: %s; it was %s for %.2f s", who, said, reasons[cause], here, mine.seconds);
	} else {
		struct peer *p = &m->peer[rank];
		char heard[112] = "never heard of";
		name_rank(m, rank, whom);
		name_activity(p->doing.what, p->doing.index, there);
		if (p->heard > 0) /* there was a link to it */
			snprintf(heard, sizeof heard, "heard of %.1f s ago, %s for %.2f s", lived() - p->heard, there, p->doing.seconds);
		snprintf(m->fault, sizeof m->fault, "%s lost %s%s: %s; %s; rank %d was %s for %.2f s", who, whom, said, reasons[cause], heard, m->rank, here,
			 mine.seconds);
	}
}

/* ---- faults --------------------------------------------------------------------------------------- */

static void note_standstill(struct mesh *m)
{
	double t = lived(), still = now() - t;
	if (still - m->still > MOMENT / 2)
		m->awoke = t;
	m->still = still;
}

/* This process stood still for a moment, less than a deadline ago: a link that broke may be one that the other end has given up. Who goes on without this
 * rank says so before its link ends, but not on one that broke. */
static bool just_awoke(struct mesh *m)
{
	note_standstill(m);
	return lived() - m->awoke < m->deadline;
}

int fault_locked(struct mesh *m, int status, int rank, enum cause cause, int reporter, const char *text)
{
	int before = atomic_load(&m->failed);
	if (rank >= 0 && (cause == CAUSE_CLOSED || cause == CAUSE_CUT || cause == CAUSE_LATE) && m->peer[rank].left)
		cause = CAUSE_LEFT; /* a data link ended after its goodbye */
	else if (cause == CAUSE_LATE && reporter < 0 && rank != m->rank && lived() - m->peer[rank].heard > m->deadline / 2)
		cause = CAUSE_SILENT;
	else if (cause == CAUSE_CLOSED && reporter < 0 && m->peer[rank].broke && m->owner && m->links.listener[0] >= 0 && just_awoke(m))
		cause = CAUSE_VANISHED;
	bool news = rank >= 0 && rank != m->rank && m->peer[rank].fate == ALIVE;
	if (news) {
		bool ended = cause == CAUSE_LEFT || cause == CAUSE_UNABLE || cause == CAUSE_CLOSED;
		m->peer[rank].fate = ended ? DEAD : UNHEARD;
		if (!ended && (m->peer[rank].knocking || m->peer[rank].fd < 0))
			m->parted = m->peer[rank].knocking ? m->peer[rank].knocking : lived();
		m->peer[rank].silent = cause == CAUSE_SILENT;
	}
	if (rank >= 0 && !m->peer[rank].member)
		return before ? before : HVD_EPEER; /* it is known, and the world goes on without it */
	if (before && !news)
		return before;
	if (!before) {
		m->lost = rank;
		m->cause = cause;
		compose(m, rank, cause, reporter, text);
	}
	struct fault_notice body = { status, rank, cause, reporter >= 0 ? reporter : m->rank, "" };
	if (status == HVD_ESYS && reporter < 0 && m->what == DOING_RECOVER) /* the others can go on without what this rank lacks */
		body = (struct fault_notice){ HVD_EPEER, m->rank, CAUSE_UNABLE, m->rank, "" };
	snprintf(body.text, sizeof body.text, "%s", text ? text : "");
	struct wire_header header = { .kind = WIRE_FAULT, .bytes = sizeof body };
	/* A further loss may be one that others form a world with: they hear of it, but not that rank, with which others may yet go on. */
	for (int i = 0; i < m->size && (rank != m->rank || reporter < 0); i++)
		if (!before || i != rank)
			peer_post(&m->peer[i], &header, &body);
	if (news && !before && m->armed) /* before the program hears of it, and ends */
		end_silent_locked(m, rank);
	status = before ? before : status;
	atomic_store(&m->failed, status);
	pthread_cond_broadcast(&m->changed);
	eventfd_write(m->alarm, 1);
	eventfd_write(m->wake, 1);
	return status;
}

int mesh_fault(struct mesh *m, int status, const char *format, ...)
{
	char text[WHY_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	pthread_mutex_lock(&m->lock);
	status = fault_locked(m, status, -1, CAUSE_NONE, -1, text);
	pthread_mutex_unlock(&m->lock);
	return status;
}

int mesh_lose(struct mesh *m, int rank, enum cause cause)
{
	pthread_mutex_lock(&m->lock);
	if (rank == m->rank)
		m->given_up = true;
	int status = fault_locked(m, HVD_EPEER, rank, cause, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	return status;
}

int mesh_reason(struct mesh *m, int rank)
{
	bool left = false;
	for (double until = lived() + PATIENCE; !atomic_load(&m->failed) && !left && lived() < until; usleep(1000)) {
		pthread_mutex_lock(&m->lock);
		left = rank >= 0 && m->peer[rank].left;
		pthread_mutex_unlock(&m->lock);
	}
	return atomic_load(&m->failed);
}

int mesh_cut(struct mesh *m, int rank)
{
	struct fault_notice question = { 0, rank, CAUSE_CUT, m->rank, "" };
	int failed = mesh_reason(m, rank);
	pthread_mutex_lock(&m->lock);
	bool asks = !failed && rank < m->rank;
	if (asks)
		peer_post(&m->peer[rank], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof question }, &question);
	pthread_mutex_unlock(&m->lock);
	failed = asks ? mesh_reason(m, rank) : failed;
	return failed ? failed : mesh_lose(m, rank, CAUSE_CUT);
}

int mesh_differ(struct mesh *m, int rank, uint32_t what)
{
	char here[48], there[48];
	name_activity(atomic_load(&m->what), 0, here);
	name_activity(what, 0, there);
	return mesh_fault(m, HVD_EMISMATCH, "is %s where rank %d is %s", here, rank, there);
}

/* As far as this rank, and in another call. */
static bool elsewhere(const struct activity *theirs, const struct activity *mine)
{
	return theirs->sequence == mine->sequence && theirs->what != mine->what && theirs->what > DOING_COMPUTE && mine->what > DOING_COMPUTE;
}

int mesh_late(struct mesh *m, int suspect)
{
	const struct activity mine = own_activity(m);
	uint64_t least = mine.sequence;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++) {
		struct peer *p = &m->peer[i];
		bool other = suspect >= 0 && least == mine.sequence && !elsewhere(&m->peer[suspect].doing, &mine) && elsewhere(&p->doing, &mine); /* for which the suspect waits, too */
		if (i != m->rank && p->member && (p->fate == ALIVE || p->left) && (p->doing.sequence < least || other))
			least = m->peer[suspect = i].doing.sequence;
	}
	const struct activity theirs = suspect < 0 ? mine : m->peer[suspect].doing;
	bool differs = elsewhere(&theirs, &mine);
	int failed = atomic_load(&m->failed), status = failed ? failed : suspect < 0 || differs ? 1 : fault_locked(m, HVD_EPEER, suspect, CAUSE_LATE, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	return differs && !failed ? mesh_differ(m, suspect, theirs.what) : status;
}

/* ---- one link ------------------------------------------------------------------------------------- */

void peer_flush(struct peer *p)
{
	while (p->fd >= 0 && p->out.begin < p->out.end) {
		ssize_t n = send(p->fd, p->out.bytes + p->out.begin, p->out.end - p->out.begin, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return; /* full: the watcher goes on; broken: reading tells */
		p->out.begin += (size_t)n;
	}
	p->out.begin = p->out.end = 0;
	if (p->fd >= 0 && !p->member)
		shutdown(p->fd, SHUT_WR); /* it has been told all */
}

bool peer_post(struct peer *p, const struct wire_header *header, const void *data)
{
	size_t more = sizeof *header + header->bytes;
	if (p->fd < 0 || p->knocking || !p->member)
		return true; /* it is, or will be, known to be out of reach */
	if (p->out.end + more > p->out.room) {
		size_t room = p->out.end + more + 4096;
		uint8_t *bytes = room <= OUTBOX_MAX ? realloc(p->out.bytes, room) : NULL;
		if (!bytes)
			return false;
		p->out.bytes = bytes;
		p->out.room = room;
	}
	memcpy(p->out.bytes + p->out.end, header, sizeof *header);
	if (header->bytes)
		memcpy(p->out.bytes + p->out.end + sizeof *header, data, header->bytes);
	p->out.end += more;
	peer_flush(p);
	return true;
}

/* A rank that may be alive is told that the others go on without it; it is no longer listened to. Where it stands still its link may be
 * full, so the watcher keeps that until all is said. */
void dismiss_locked(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	struct fault_notice body = { HVD_EPEER, rank, CAUSE_DISMISSED, m->rank, "" };
	peer_post(p, &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof body }, &body);
	end_silent_locked(m, rank);
	p->member = false;
	peer_flush(p);
}

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
	static const char no_memory[] = "has no memory for what others tell it";
	struct peer *p = &m->peer[rank];
	int error = errno;
	bool late = p->knocking && lived() - p->knocking > MOMENT;
	if (!p->knocking)
		p->broke = error;
	else
		getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof error });
	bool knocks = m->owner && m->links.listener[0] >= 0 && !late && p->member && !p->left && p->fate == ALIVE && (!error || error == ECONNRESET);
	if (error == ENOMEM) /* before the link ends, which the other rank would take for a death */
		fault_locked(m, HVD_ESYS, -1, CAUSE_NONE, -1, no_memory);
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
	if (error == ENOMEM)
		fault_locked(m, HVD_ESYS, -1, CAUSE_NONE, -1, no_memory);
	else if (!p->left)
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
	struct wire_header header = { .kind = WIRE_BEAT, .bytes = sizeof mine };
	for (int i = 0; i < m->size; i++)
		if (m->peer[i].out.begin == m->peer[i].out.end && t - m->peer[i].heard < UNREAD_BEATS * interval)
			peer_post(&m->peer[i], &header, &mine);
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

/* A rank that stands still (SIGSTOP, a debugger) would keep the job step for ever: a rank of its node ends it, and where there is none, the
 * first survivor has Slurm end the step. */
static void end_silent_locked(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"), name[64];
	bool alone = true, first = true;
	if (!p->silent)
		return; /* it hears that it was given up */
	if (p->fd >= 0 && !strcmp(p->host, m->peer[m->rank].host)) {
		pid_t process = fcntl(p->fd, F_GETOWN);
		if (process > 0)
			kill(process, SIGKILL);
		return;
	}
	for (int i = 0; i < m->size; i++) {
		alone &= i == rank || m->peer[i].fate != ALIVE || strcmp(p->host, m->peer[i].host);
		first &= i >= m->rank || m->peer[i].fate != ALIVE;
	}
	if (!alone || !first || !m->armed || !job || !step)
		return;
	snprintf(name, sizeof name, "%s.%s", job, step);
	char *const command[] = { "scancel", "--signal=KILL", name, NULL };
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t child;
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawnp(&child, command[0], NULL, &attributes, command, environ); /* without scancel the step lasts until its time limit */
	posix_spawnattr_destroy(&attributes);
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

void split_fault(struct hvd *h)
{
	struct mesh *m = h->mesh, *above = h->parent->mesh;
	int lost = m->lost;
	if (lost >= 0 && m->cause == CAUSE_CLOSED)
		mesh_cut(above, h->of_parent[lost]);
	else if (lost >= 0 && m->cause != CAUSE_LEFT) /* who closed the sub-world is alive */
		mesh_lose(above, h->of_parent[lost], m->cause);
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
