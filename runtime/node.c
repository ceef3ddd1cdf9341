/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include "world.h"

#include <errno.h>
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
	for (;;) {
		int fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 && errno == EINVAL)
			return NULL; /* node_close() */
		if (fd < 0) {
			usleep(1000);
			continue;
		}
		pthread_mutex_lock(&n->lock);
		if (same_user(fd) && send(fd, n->card, n->bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			errno = 0; /* it has gone, and asks again */
		pthread_mutex_unlock(&n->lock);
		close(fd);
	}
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

/* Returns a connected socket, or -1; errno ECONNREFUSED, EAGAIN: try again. */
static int reach(const struct node *n)
{
	struct sockaddr_un a;
	socklen_t size = unix_address(n->name, &a);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = fd < 0 || connect(fd, (void *)&a, size) ? errno : same_user(fd) ? 0 : EPERM;
	if (error && fd >= 0)
		close(fd);
	errno = error;
	return error ? -1 : fd;
}

bool node_ask(const struct node *n, void *card, size_t bytes, double until)
{
	uint8_t answer[CARD_BYTES_MAX];
	useconds_t pause = 200;
	double t;
	while ((t = lived()) < until) {
		int fd = reach(n);
		if (fd < 0 && errno != ECONNREFUSED && errno != EAGAIN)
			return false;
		if (fd >= 0) {
			struct pollfd p = { .fd = fd, .events = POLLIN };
			poll(&p, 1, (int)((until - t) * 1e3) + 1);
			ssize_t got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
			close(fd);
			if (got > 0 && (size_t)got != bytes)
				return false;
			if (got > 0) {
				memcpy(card, answer, bytes);
				return true;
			}
		}
		usleep(pause);
		pause = pause < 5000 ? 2 * pause : pause;
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
	n->listener = -1;
	n->serving = false;
}
