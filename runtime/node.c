/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include "links.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool same_user(int fd)
{
	struct ucred who;
	socklen_t size = sizeof who;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) && who.uid == geteuid();
}

void node_listen(struct node *n)
{
	struct sockaddr_un a;
	n->listener = listen_at(&a, unix_address(n->name, &a), SOCK_SEQPACKET);
}

static void *serve(void *arg)
{
	struct node *n = arg;
	for (int fd; (fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(fd)) { /* until node_close() */
		pthread_mutex_lock(&n->lock);
		if (same_user(fd))
			send(fd, n->card, n->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		pthread_mutex_unlock(&n->lock);
	}
	return NULL;
}

void node_serve(struct node *n, const void *card, size_t bytes)
{
	if (n->listener < 0 || bytes > sizeof n->card)
		return;
	pthread_mutex_lock(&n->lock);
	memcpy(n->card, card, bytes);
	n->bytes = bytes;
	pthread_mutex_unlock(&n->lock);
	if (!n->serving)
		n->serving = !thread_start(&n->server, serve, n);
}

/* Returns a connected socket, or -1. */
static int reach(const struct node *n)
{
	struct sockaddr_un a;
	socklen_t size = unix_address(n->name, &a);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && (connect(fd, (void *)&a, size) || !same_user(fd)))
		close_fd(&fd);
	return fd;
}

bool node_ask(const struct node *n, void *card, size_t bytes, double until)
{
	for (useconds_t pause = 100; lived() < until; usleep(pause += pause < 5000 ? pause : 0)) {
		struct pollfd p = { .fd = reach(n), .events = POLLIN };
		if (p.fd < 0)
			continue;
		poll(&p, 1, LOOK_MS);
		ssize_t got = recv(p.fd, card, bytes, MSG_DONTWAIT | MSG_TRUNC);
		close(p.fd);
		if (got == (ssize_t)bytes)
			return true;
	}
	return false;
}

void node_close(struct node *n)
{
	if (n->listener < 0)
		return;
	shutdown(n->listener, SHUT_RDWR); /* ends accept4() */
	if (n->serving)
		pthread_join(n->server, NULL);
	close(n->listener);
}
