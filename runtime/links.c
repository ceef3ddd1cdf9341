/* SPDX-License-Identifier: Apache-2.0
 * Forming links: all connections, both ways, in one poll loop.
 *
 * The handshake has four frames of fixed size. Nothing that a stranger sends is used for more than a comparison:
 *   connector  HELLO    magic, from, to, nonce C, MAC(secret, 0 HELLO)
 *   acceptor   REPLY    nonce S, MAC(secret, 1 HELLO S)
 *   connector  PROOF             MAC(secret, 2 HELLO S)
 *   acceptor   WELCOME           MAC(secret, 3 HELLO S)
 *
 * No clock tells strangers from ranks, which may be slow: whoever connects and has not said HELLO gives way to the next one when places are
 * out, and who has, to the next one that says the same. So neither a crowd nor an old HELLO can keep the ranks from being heard. */
#include "links.h"

#include "hvd.h"
#include "siphash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define STRANGERS_MAX 64
#define RTO_MAX_MS 44 /* TCP_RTO_MAX_MS of newer headers */

struct hello {
	char magic[8];
	uint32_t from, to;
	uint8_t nonce[16];
};

enum frame { HELLO, REPLY, PROOF, WELCOME, DONE };
enum { ALARM = 3, FIXED }; /* places in poll(): the listeners, then these, then handshakes */

#define MAC_BYTES 16 /* the last ones of each */

static const size_t frame_bytes[] = { [HELLO] = sizeof(struct hello) + MAC_BYTES, [REPLY] = 32, [PROOF] = 16, [WELCOME] = 16 };

struct shake {
	int fd, polled; /* polled: its place in poll() */
	bool outgoing, connecting;
	struct link *link; /* NULL: accepted, not yet known whose */
	enum frame frame;
	size_t moved; /* bytes of this frame */
	uint8_t bytes[sizeof(struct hello) + MAC_BYTES];
	struct hello hello;
	uint8_t nonce[16];
	double since, retry; /* retry: when to connect again, fd -1 until then */
};

struct former {
	struct links *l;
	int open; /* links still to be formed */
	const struct card *cards;
	struct shake *shake; /* [links + STRANGERS_MAX], the outgoing ones first */
	int shakes;
	char *why;
};

static void authenticate(const struct former *f, const struct shake *s, uint8_t mac[MAC_BYTES])
{
	struct {
		uint64_t frame;
		struct hello hello;
		uint8_t nonce[16];
	} text = { .frame = s->frame, .hello = s->hello };
	memcpy(text.nonce, s->nonce, sizeof text.nonce);
	siphash128(f->l->secret, &text, sizeof text, mac);
}

static uint8_t *mac_of(struct shake *s)
{
	return s->bytes + frame_bytes[s->frame] - MAC_BYTES;
}

static bool sending(const struct shake *s)
{
	return s->outgoing == (s->frame == HELLO || s->frame == PROOF);
}

/* Begins a frame; fills it if this side sends it. */
static int prepare(const struct former *f, struct shake *s)
{
	s->moved = 0;
	if (!sending(s))
		return 0;
	if (s->frame == HELLO) {
		s->hello = (struct hello){ .from = (uint32_t)f->l->rank, .to = (uint32_t)s->link->rank };
		memcpy(s->hello.magic, CARD_MAGIC, sizeof s->hello.magic);
		if (getrandom(s->hello.nonce, 16, 0) != 16)
			return -1;
		memcpy(s->bytes, &s->hello, sizeof s->hello);
	}
	if (s->frame == REPLY && getrandom(s->nonce, 16, 0) != 16)
		return -1;
	if (s->frame == REPLY)
		memcpy(s->bytes, s->nonce, 16);
	authenticate(f, s, mac_of(s));
	return 0;
}

/* The link that an accepted connection says it is; NULL: this rank expects no such link. */
static struct link *expected(const struct former *f, const struct hello *h)
{
	if (memcmp(h->magic, CARD_MAGIC, sizeof h->magic) || h->to != (uint32_t)f->l->rank)
		return NULL;
	for (int i = 0; i < f->l->links; i++) {
		struct link *k = &f->l->link[i];
		if (k->rank > f->l->rank && k->fd < 0 && (uint32_t)k->rank == h->from)
			return k;
	}
	return NULL;
}

static bool acceptable(const struct former *f, struct shake *s)
{
	uint8_t want[MAC_BYTES], differ = 0;
	if (s->frame == HELLO)
		memcpy(&s->hello, s->bytes, sizeof s->hello);
	if (s->frame == REPLY)
		memcpy(s->nonce, s->bytes, 16);
	authenticate(f, s, want);
	for (int i = 0; i < MAC_BYTES; i++) /* takes as long whatever differs */
		differ |= want[i] ^ mac_of(s)[i];
	if (!differ && s->frame == HELLO) /* a stranger stands for no link, not even until it is dropped */
		s->link = expected(f, &s->hello);
	return !differ && s->link;
}

static void tell_of_stranger(struct links *l, int fd)
{
	union any_address a = { .any.sa_family = AF_UNSPEC };
	socklen_t size = sizeof a;
	char text[96] = "a local process";
	if (l->told)
		return;
	l->told = true;
	if (!getpeername(fd, &a.any, &size) && a.any.sa_family != AF_UNIX)
		getnameinfo(&a.any, size, text, sizeof text, NULL, 0, NI_NUMERICHOST);
	fprintf(stderr, "hvd: rank %d on %s: ignored a connection from %s that is no rank of this job (further ones are not reported)\n",
		l->rank, l->card.host, text);
}

static void drop(struct former *f, struct shake *s)
{
	if (!s->outgoing && s->moved) /* a rank that hears of a death goes without a word */
		tell_of_stranger(f->l, s->fd);
	pthread_mutex_lock(f->l->lock);
	close_fd(&s->fd);
	pthread_mutex_unlock(f->l->lock);
	s->retry = lived() + 0.05;
}

/* Of two accepted connections that say to be of the same rank the older one goes: a rank connects anew only when it has lost that. */
static void supersede(struct former *f, const struct shake *s)
{
	for (int i = 0; i < f->shakes; i++) {
		struct shake *older = &f->shake[i];
		if (older != s && older->fd >= 0 && older->link == s->link) /* which no outgoing one has */
			drop(f, older);
	}
}

/* Moves frames until the socket has no more to give or take. Returns 0, or -1: drop it. */
static int advance(struct former *f, struct shake *s)
{
	while (s->frame != DONE) {
		size_t left = frame_bytes[s->frame] - s->moved;
		ssize_t n = sending(s) ? send(s->fd, s->bytes + s->moved, left, MSG_NOSIGNAL) : recv(s->fd, s->bytes + s->moved, left, 0);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		if (n == 0)
			return -1;
		s->moved += (size_t)n;
		if ((size_t)n < left)
			continue;
		if (!sending(s) && !acceptable(f, s))
			return -1;
		if (!s->outgoing && s->frame == HELLO)
			supersede(f, s);
		s->frame++;
		if (s->frame != DONE && prepare(f, s))
			return -1;
	}
	struct ucred who = { .pid = 0 }; /* not known of another node's */
	setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)); /* means nothing to a Unix socket */
	setsockopt(s->fd, IPPROTO_TCP, RTO_MAX_MS, &f->l->again, sizeof f->l->again); /* nor to Linux before 6.15 */
	getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){ sizeof who });
	fcntl(s->fd, F_SETOWN, who.pid); /* forgotten when that process ends, though a child of it has the socket, too: its number may then be another's */
	pthread_mutex_lock(f->l->lock);
	s->link->fd = s->fd;
	s->fd = -1;
	pthread_mutex_unlock(f->l->lock);
	f->open--;
	return 0;
}

static bool same_host(const struct links *l, const struct card *c)
{
	return !strncmp(c->host, l->card.host, sizeof c->host);
}

/* IPv4 where both have it. Who listens nowhere has only to say so. */
static bool by_v4(const struct links *l, const struct card *c)
{
	return c->v4.sin_family && (l->listener[1] >= 0 || l->listener[2] < 0);
}

int links_connect(const struct links *l, const struct card *c)
{
	union any_address a;
	socklen_t size;
	if (same_host(l, c)) {
		size = unix_address(c->unix_name, &a.un);
	} else if (by_v4(l, c)) {
		a.v4 = c->v4;
		size = sizeof a.v4;
	} else {
		a.v6 = c->v6;
		a.v6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&a.v6.sin6_addr) ? l->scope : 0;
		size = sizeof a.v6;
	}
	int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, &a.any, size) && errno != EINPROGRESS)
		close_fd(&fd); /* leaves errno alone */
	return fd;
}

static int unreachable(const struct former *f, const struct link *k, int error)
{
	const struct card *c = &f->cards[k->rank];
	f->l->refused = error == ECONNREFUSED || error == ECONNRESET; /* the listener may end when this connection has just come to it */
	char text[INET6_ADDRSTRLEN] = "its Unix socket";
	bool local = same_host(f->l, c), v4 = by_v4(f->l, c);
	if (!local)
		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? (const void *)&c->v4.sin_addr : &c->v6.sin6_addr, text, sizeof text);
	bool lack = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; /* on this side */
	return refuse(f->why, lack ? HVD_ESYS : HVD_EBOOT, "rank %d on %s cannot reach rank %d on %s at %s%s%.0d: %s%s", f->l->rank, f->l->card.host, k->rank, c->host,
		      text, local ? "" : " port ", local ? 0 : ntohs(v4 ? c->v4.sin_port : c->v6.sin6_port), strerror(error),
		      error == EMFILE ? " (ulimit -n)" : local || lack ? "" : " (a firewall between the nodes, or a wrong HVD_IFACE?)");
}

/* A link that is only being connected to: packets of it are lost on the way, or on the way back. */
static int too_late(const struct former *f)
{
	for (int i = 0; i < f->shakes; i++)
		if (f->shake[i].fd >= 0 && f->shake[i].connecting)
			return unreachable(f, f->shake[i].link, ETIMEDOUT);
	return HVD_EBOOT;
}

/* Starts or starts again an outgoing connection. */
static int reach(struct former *f, struct shake *s, double t)
{
	pthread_mutex_lock(f->l->lock);
	s->fd = links_connect(f->l, &f->cards[s->link->rank]);
	int error = errno;
	pthread_mutex_unlock(f->l->lock);
	if (s->fd < 0) {
		if (error != EAGAIN && error != EADDRNOTAVAIL)
			return unreachable(f, s->link, error);
		s->retry = t + 0.01; /* the other side's backlog is full */
		return 0;
	}
	s->connecting = true;
	s->frame = HELLO;
	memset(s->nonce, 0, sizeof s->nonce); /* that of an acceptor before */
	return prepare(f, s) ? refuse(f->why, HVD_ESYS, "no random numbers: %s", strerror(errno)) : 0;
}

/* The stranger who has been silent longest, or NULL. */
static struct shake *oldest_stranger(const struct former *f)
{
	struct shake *oldest = NULL;
	for (int i = 0; i < f->shakes; i++) {
		struct shake *s = &f->shake[i];
		if (!s->outgoing && s->fd >= 0 && s->frame == HELLO && (!oldest || s->since < oldest->since))
			oldest = s;
	}
	return oldest;
}

/* Where an accepted connection can go: a free place, or that of a stranger. There is one of both, as places are more than links, each of which has one at most. */
static struct shake *place(const struct former *f)
{
	for (int i = 0; i < f->shakes; i++)
		if (!f->shake[i].outgoing && f->shake[i].fd < 0)
			return &f->shake[i];
	return oldest_stranger(f);
}

static void send_away(struct former *f, struct shake *s)
{
	tell_of_stranger(f->l, s->fd);
	drop(f, s);
}

/* accept() takes a number for the file before it looks, and fails for want of one where nobody is there, too. */
static bool is_called(int listener)
{
	return poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 0) == 1;
}

/* Into that place, from which a stranger then goes. False: nobody came, with errno. */
static bool accept_into(struct former *f, struct shake *s, int listener)
{
	struct shake before = *s;
	pthread_mutex_lock(f->l->lock);
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), error = errno;
	if (fd >= 0)
		*s = (struct shake){ .fd = fd, .since = lived() };
	pthread_mutex_unlock(f->l->lock);
	if (fd >= 0 && before.fd >= 0)
		send_away(f, &before);
	errno = error;
	return fd >= 0;
}

static int accept_from(struct former *f, int listener)
{
	for (int i = 0; i < STRANGERS_MAX && is_called(listener); i++) {
		struct shake *s = place(f), *stranger = oldest_stranger(f);
		if (!accept_into(f, s, listener)) {
			if (errno != EMFILE && errno != ENFILE)
				return 0;
			if (!stranger)
				return refuse(f->why, HVD_ESYS, "rank %d on %s may not open as many files as it has ranks to hear: raise its limit (ulimit -n)",
					      f->l->rank, f->l->card.host);
			send_away(f, stranger);
			continue;
		}
		if (prepare(f, s) || advance(f, s))
			drop(f, s);
	}
	return 0;
}

static int serve(struct former *f, struct shake *s)
{
	int error = 0;
	if (s->connecting)
		getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof error });
	if (error)
		return unreachable(f, s->link, error);
	s->connecting = false;
	if (advance(f, s))
		drop(f, s);
	return 0;
}

static int loop(struct former *f, struct pollfd *p, double until)
{
	while (f->open) {
		double t = lived();
		int over = f->l->boot ? f->l->boot->over(f->l->boot, f->why) : 0;
		if (over || t > until)
			return over ? over : too_late(f);
		int n = FIXED; /* poll() takes no more places than files may be open, used or not */
		for (int i = 0; i < f->shakes; i++) {
			struct shake *s = &f->shake[i];
			if (s->outgoing && s->link->fd < 0 && s->fd < 0 && t >= s->retry) {
				int status = reach(f, s, t);
				if (status)
					return status;
			}
			if (s->fd < 0)
				continue;
			s->polled = n;
			p[n++] = (struct pollfd){ .fd = s->fd, .events = s->connecting || sending(s) ? POLLOUT : POLLIN };
		}
		for (int i = 0; i < ALARM; i++)
			p[i] = (struct pollfd){ .fd = f->l->listener[i], .events = POLLIN };
		p[ALARM] = (struct pollfd){ .fd = f->l->alarm, .events = POLLIN };
		if (poll(p, (nfds_t)n, 50) < 0 && errno != EINTR)
			return refuse(f->why, HVD_ESYS, "rank %d on %s cannot wait for %d connections: %s", f->l->rank, f->l->card.host, n - FIXED, strerror(errno));
		if (p[ALARM].revents)
			return HVD_EBOOT;
		for (int i = 0; i < f->shakes; i++) {
			struct shake *s = &f->shake[i];
			int status = s->fd >= 0 && p[s->polled].revents ? serve(f, s) : 0;
			if (status)
				return status;
		}
		for (int i = 0; i < ALARM; i++) {
			int status = p[i].revents ? accept_from(f, f->l->listener[i]) : 0;
			if (status)
				return status;
		}
	}
	return 0;
}

void links_let_go(struct links *l)
{
	links_close(l);
	for (int i = 0; l->former && i < l->former->shakes; i++)
		close_fd(&l->former->shake[i].fd);
	for (int i = 0; i < l->links; i++)
		close_fd(&l->link[i].fd);
}

int links_form(struct links *l, struct link *link, int n, const struct card *cards, double until, char *why)
{
	struct former f = { .l = l, .open = n, .cards = cards, .shakes = n + STRANGERS_MAX, .why = why };
	why[0] = 0;
	f.shake = calloc((size_t)f.shakes, sizeof *f.shake);
	struct pollfd *p = calloc((size_t)f.shakes + FIXED, sizeof *p);
	int status = f.shake && p ? 0 : refuse(why, HVD_ESYS, "no memory for %d links", n);
	for (int i = 0; !status && i < f.shakes; i++) {
		f.shake[i].fd = -1;
		if (i < n && link[i].rank < l->rank) {
			f.shake[i].outgoing = true;
			f.shake[i].link = &link[i];
		}
	}
	pthread_mutex_lock(l->lock);
	l->link = link;
	l->links = n;
	l->former = status ? NULL : &f;
	pthread_mutex_unlock(l->lock);
	if (!status)
		status = loop(&f, p, until);
	for (int i = 0; f.shake && p && i < f.shakes; i++) {
		struct shake *s = &f.shake[i];
		if (s->fd >= 0 && !status && !advance(&f, s))
			tell_of_stranger(l, s->fd); /* all ranks are there */
		if (s->fd >= 0)
			drop(&f, s);
	}
	pthread_mutex_lock(l->lock);
	l->former = NULL;
	pthread_mutex_unlock(l->lock);
	free(f.shake);
	free(p);
	return status;
}

