/* SPDX-License-Identifier: Apache-2.0
 * Sockets between ranks, formed by a mutual proof of the world's secret. Ranks of one node talk over Unix
 * sockets, others over TCP on the chosen interface. Only while links are being formed anything is taken from a listener. */
#ifndef HVD_RUNTIME_LINKS_H
#define HVD_RUNTIME_LINKS_H

#include "boot.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>
#include <unistd.h>

union any_address {
	struct sockaddr any;
	struct sockaddr_un un;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* What a rank tells the others about itself. */
struct card {
	char magic[8]; /* CARD_MAGIC: protocol version and byte order */
	char version[24];
	char host[HOST_BYTES];
	char unix_name[24];
	struct sockaddr_in v4; /* family 0: none */
	struct sockaddr_in6 v6;
};

struct link {
	int rank; /* at the other end; the higher one connects, the lower one accepts */
	int fd;   /* -1 until formed */
};

struct links {
	int rank;
	uint8_t secret[16];
	struct card card; /* this rank's */
	unsigned scope;   /* interface index, for link-local IPv6 */
	int listener[3];  /* Unix, IPv4, IPv6; -1: none */
	int alarm;        /* readable: give up; -1: none */
	int again;        /* milliseconds after which TCP tries again at the latest: each time it waits twice as long, and sleeps on when the network is back */
	struct boot *boot; /* asked whether to give up; NULL: nobody is */
	pthread_mutex_t *lock; /* held while a descriptor comes into being, goes or changes hands: a process that is forked then knows which it has */
	struct link *link; /* [links] being formed, or not yet taken over by whoever asked for them */
	int links;
	struct former *former; /* at work on them; NULL: none */
	bool told;        /* about a stranger */
	bool refused;     /* a link was not formed because nobody listens there */
};

/* *fd is -1 afterwards, and may be before. */
static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A socket that listens there, or -1; *address then has the port, too. type: of the socket. */
int listen_at(void *address, socklen_t size, int type);
/* An abstract name: nothing to remove, whatever happens to the process. Returns the address's size. */
socklen_t unix_address(const char *name, struct sockaddr_un *a);

/* l->rank and l->lock are set, which is held; no listener is open yet. */
int links_listen(struct links *l, const char *host, const char *interface, bool tcp, char *why);
/* Forms links, none of which has a descriptor yet. Returns 0, or HVD_EBOOT with the reason in `why`: a rank cannot be reached, time is up (then
 * `why` is empty, if packets reach all, and the missing links have fd -1), or the alarm went off (likewise). Or what boot->over() says. cards: [rank].
 * A process that is forked closes them, until the caller sets l->links to 0. */
int links_form(struct links *l, struct link *link, int n, const struct card *cards, double until, char *why);
void links_close(struct links *l);
/* In a process that was forked: closes the listeners, and all that is being formed. */
void links_let_go(struct links *l);
/* Begins to connect to whom that card is of. Returns a socket, or -1 with errno. */
int links_connect(const struct links *l, const struct card *c);

#define CARD_MAGIC "hvd4\1\2\3\4"

#endif
