/* SPDX-License-Identifier: Apache-2.0
 * Which addresses a rank listens on. */
#include "links.h"

#include "hvd.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static bool usable(const struct ifaddrs *i)
{
	return i->ifa_addr && (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING) &&
	       (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

/* The first interface that is up and is no loopback; loopback if there is no other. */
static const char *first_interface(const struct ifaddrs *all)
{
	for (int loopback = 0; loopback < 2; loopback++)
		for (const struct ifaddrs *i = all; i; i = i->ifa_next)
			if (usable(i) && !(i->ifa_flags & IFF_LOOPBACK) == !loopback)
				return i->ifa_name;
	return NULL;
}

/* The interface's IPv4 and IPv6 address, a global one before a link-local one. */
static bool find_addresses(const struct ifaddrs *all, const char *name, struct card *c)
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
		if (!i->ifa_addr || strcmp(i->ifa_name, name))
			continue;
		if (i->ifa_addr->sa_family == AF_INET && !c->v4.sin_family)
			memcpy(&c->v4, i->ifa_addr, sizeof c->v4);
		else if (i->ifa_addr->sa_family == AF_INET6 && (!c->v6.sin6_family || (IN6_IS_ADDR_LINKLOCAL(&c->v6.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))))
			c->v6 = *v6;
	}
	return c->v4.sin_family || c->v6.sin6_family;
}

static int no_interface(const struct ifaddrs *all, const char *host, const char *name, char *why)
{
	int n = snprintf(why, WHY_BYTES, "%s: interface %s (HVD_IFACE) has no address; interfaces with one:", host, name);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct ifaddrs *seen = all; /* with another address */
		while (seen != i && !(usable(seen) && !strcmp(seen->ifa_name, i->ifa_name)))
			seen = seen->ifa_next;
		if (usable(i) && seen == i && n < WHY_BYTES)
			n += snprintf(why + n, (size_t)(WHY_BYTES - n), " %s", i->ifa_name);
	}
	return HVD_EBOOT;
}

int listen_at(void *address, socklen_t size, int type)
{
	struct sockaddr *a = address;
	int fd = socket(a->sa_family, type | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (bind(fd, a, size) || listen(fd, 4096) || getsockname(fd, a, &size)))
		close_fd(&fd);
	return fd;
}

socklen_t unix_address(const char *name, struct sockaddr_un *a)
{
	size_t length = strnlen(name, sizeof a->sun_path - 1);
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path + 1, name, length);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int listen_on_interface(struct links *l, const char *name, char *why)
{
	struct ifaddrs *all;
	struct card *c = &l->card;
	int status = 0;
	if (getifaddrs(&all))
		return refuse(why, HVD_ESYS, "%s: cannot list network interfaces: %s", c->host, strerror(errno));
	if (!name)
		name = first_interface(all);
	if (!name)
		status = refuse(why, HVD_EBOOT, "%s: no network interface is up: is this a container without the host's network?", c->host);
	else if (!find_addresses(all, name, c))
		status = no_interface(all, c->host, name, why);
	else
		l->scope = if_nametoindex(name);
	if (c->v4.sin_family && (l->listener[1] = listen_at(&c->v4, sizeof c->v4, SOCK_STREAM | SOCK_NONBLOCK)) < 0)
		c->v4.sin_family = 0;
	if (c->v6.sin6_family && (l->listener[2] = listen_at(&c->v6, sizeof c->v6, SOCK_STREAM | SOCK_NONBLOCK)) < 0)
		c->v6.sin6_family = 0;
	if (!status && l->listener[1] < 0 && l->listener[2] < 0)
		status = refuse(why, HVD_ESYS, "%s: cannot listen on interface %s: %s", c->host, name, strerror(errno));
	freeifaddrs(all);
	return status;
}

static int listen_unix(struct links *l)
{
	struct sockaddr_un a;
	uint64_t random;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return -1;
	snprintf(l->card.unix_name, sizeof l->card.unix_name, "hvd-%016llx", (unsigned long long)random);
	return listen_at(&a, unix_address(l->card.unix_name, &a), SOCK_STREAM | SOCK_NONBLOCK);
}

int links_listen(struct links *l, const char *host, const char *interface, bool tcp, char *why)
{
	memcpy(l->card.magic, CARD_MAGIC, sizeof l->card.magic);
	snprintf(l->card.version, sizeof l->card.version, "%s", HVD_VERSION);
	snprintf(l->card.host, sizeof l->card.host, "%s", host);
	l->listener[0] = listen_unix(l);
	if (l->listener[0] < 0)
		return refuse(why, HVD_ESYS, "%s: cannot listen on a Unix socket: %s", host, strerror(errno));
	int status = tcp ? listen_on_interface(l, interface, why) : 0;
	if (status)
		links_close(l);
	return status;
}

void links_close(struct links *l)
{
	for (int i = 0; i < 3; i++)
		close_fd(&l->listener[i]);
}
