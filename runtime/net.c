/* SPDX-License-Identifier: Apache-2.0
 * Which addresses a rank listens on. */
#include "links.h"

#include "hvd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static bool usable(const struct ifaddrs *i, bool loopback)
{
	return i->ifa_addr && (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING) && !(i->ifa_flags & IFF_LOOPBACK) == !loopback &&
	       (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

/* The first interface that is up and is no loopback; loopback if there is no other. */
static const char *first_interface(const struct ifaddrs *all)
{
	for (int loopback = 0; loopback < 2; loopback++)
		for (const struct ifaddrs *i = all; i; i = i->ifa_next)
			if (usable(i, loopback))
				return i->ifa_name;
	return NULL;
}

/* The interface's IPv4 and IPv6 address, a global one before a link-local one. */
static int addresses_of(const struct ifaddrs *all, const char *name, union any_address found[2])
{
	int count = 0;
	memset(found, 0, 2 * sizeof *found);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || strcmp(i->ifa_name, name))
			continue;
		if (i->ifa_addr->sa_family == AF_INET && !found[0].any.sa_family) {
			memcpy(&found[0].v4, i->ifa_addr, sizeof found[0].v4);
			count++;
		} else if (i->ifa_addr->sa_family == AF_INET6) {
			const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
			bool first = !found[1].any.sa_family;
			if (first || (IN6_IS_ADDR_LINKLOCAL(&found[1].v6.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))) {
				found[1].v6 = *v6;
				count += first;
			}
		}
	}
	return count;
}

static int no_interface(const struct ifaddrs *all, const char *host, const char *name, char *why)
{
	int n = snprintf(why, WHY_BYTES, "%s: interface %s (HVD_IFACE) has no address; interfaces with one:", host, name);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct ifaddrs *seen = all; /* with another address */
		while (seen != i && !((usable(seen, false) || usable(seen, true)) && !strcmp(seen->ifa_name, i->ifa_name)))
			seen = seen->ifa_next;
		if ((usable(i, false) || usable(i, true)) && seen == i && n < WHY_BYTES)
			n += snprintf(why + n, (size_t)(WHY_BYTES - n), " %s", i->ifa_name);
	}
	return HVD_EBOOT;
}

static int listen_tcp(union any_address *a, struct address *out)
{
	bool v4 = a->any.sa_family == AF_INET;
	socklen_t size = v4 ? sizeof a->v4 : sizeof a->v6;
	int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, &a->any, size) || listen(fd, 4096) || getsockname(fd, &a->any, &size)) {
		close(fd);
		return -1;
	}
	out->family = a->any.sa_family;
	if (v4) {
		out->port = a->v4.sin_port;
		memcpy(out->ip, &a->v4.sin_addr, 4);
	} else {
		out->port = a->v6.sin6_port;
		memcpy(out->ip, &a->v6.sin6_addr, 16);
	}
	return fd;
}

static int listen_on_interface(struct links *l, const char *host, const char *name, char *why)
{
	struct ifaddrs *all;
	union any_address found[2];
	int status = 0;
	if (getifaddrs(&all)) {
		snprintf(why, WHY_BYTES, "%s: cannot list network interfaces: %s", host, strerror(errno));
		return HVD_ESYS;
	}
	if (!name)
		name = first_interface(all);
	if (!name || !addresses_of(all, name, found)) {
		status = no_interface(all, host, name ? name : "(any)", why);
		goto out;
	}
	l->scope = if_nametoindex(name);
	for (int i = 0; i < 2; i++)
		if (found[i].any.sa_family)
			l->listener[1 + i] = listen_tcp(&found[i], &l->card.address[i]);
	if (l->listener[1] < 0 && l->listener[2] < 0) {
		snprintf(why, WHY_BYTES, "%s: cannot listen on interface %s: %s", host, name, strerror(errno));
		status = HVD_ESYS;
	}
out:
	freeifaddrs(all);
	return status;
}

/* An abstract name: nothing to remove, whatever happens to this process. */
static int listen_unix(struct links *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	uint64_t random;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return -1;
	int n = snprintf(l->card.unix_name, sizeof l->card.unix_name, "hvd-%016llx", (unsigned long long)random);
	memcpy(a.sun_path + 1, l->card.unix_name, (size_t)n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && (bind(fd, (void *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) || listen(fd, 4096))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int links_listen(struct links *l, int rank, const char *host, const char *interface, bool tcp, char *why)
{
	*l = (struct links){ .rank = rank, .listener = { -1, -1, -1 }, .alarm = -1 };
	memcpy(l->card.magic, CARD_MAGIC, sizeof l->card.magic);
	snprintf(l->card.version, sizeof l->card.version, "%s", HVD_VERSION);
	snprintf(l->card.host, sizeof l->card.host, "%s", host);
	l->listener[0] = listen_unix(l);
	if (l->listener[0] < 0) {
		snprintf(why, WHY_BYTES, "%s: cannot listen on a Unix socket: %s", host, strerror(errno));
		return HVD_ESYS;
	}
	int status = tcp ? listen_on_interface(l, host, interface, why) : 0;
	if (status)
		links_close(l);
	return status;
}

void links_close(struct links *l)
{
	for (int i = 0; i < 3; i++) {
		if (l->listener[i] >= 0)
			close(l->listener[i]);
		l->listener[i] = -1;
	}
}
