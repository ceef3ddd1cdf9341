/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool plausible(const struct wire_header *h)
{
	return h->kind >= WIRE_DATA && h->kind <= WIRE_BYE && h->bytes <= WIRE_PAYLOAD_MAX;
}

/* A descriptor comes with the first byte of its message, which is the first of what is read there. */
static ssize_t receive(struct wire_reader *r, int from, void *bytes, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { bytes, n };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	ssize_t got = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		if (r->fd >= 0)
			close(r->fd);
		memcpy(&r->fd, CMSG_DATA(c), sizeof r->fd);
	}
	return got;
}

static bool make_room(struct wire_reader *r)
{
	if (r->header.bytes <= r->room)
		return true;
	free(r->payload);
	r->payload = malloc(r->header.bytes);
	r->room = r->payload ? r->header.bytes : 0;
	return r->payload;
}

int wire_read(struct wire_reader *r, int from)
{
	const size_t head = sizeof r->header;
	while (r->have < head || r->have < head + r->header.bytes) {
		bool heads = r->have < head;
		ssize_t n = heads ? receive(r, from, (uint8_t *)&r->header + r->have, head - r->have)
				  : receive(r, from, r->payload + (r->have - head), head + r->header.bytes - r->have);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		errno = 0;
		if (!n)
			return -1;
		r->have += (size_t)n;
		if (heads && r->have == head && !plausible(&r->header)) {
			r->have = 0;
			errno = EPROTO;
			return -1;
		}
		if (heads && r->have == head && !make_room(r))
			return -1;
	}
	return 1;
}

uint8_t *wire_next(struct wire_reader *r)
{
	uint8_t *payload = r->payload;
	*r = (struct wire_reader){ .fd = -1 };
	return payload;
}

void wire_skip(struct wire_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->have = 0;
}

void wire_free(struct wire_reader *r)
{
	wire_skip(r);
	free(wire_next(r));
}
