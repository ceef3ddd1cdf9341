/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SLOTS 8            /* chunks in the ring */

/* Bytes that may be on their way there and back, a link. Without a limit megabytes pile up in socket buffers, out of the caches, and
 * acknowledgements wait behind data: 32 MiB by 4 ranks on two nodes of one machine took 54 to 57 ms, with 256 KiB 23 to 24, with 512 KiB 51 to 52
 * (medians of three runs of 9 rounds, twice, 2 cores). Sums come back by whole chunks, so less than one would wait for ever. */
#define IN_FLIGHT (256u << 10)
_Static_assert(IN_FLIGHT >= CHAIN_PIECE, "the first chunk must get through");

/* One direction of one link during one collective. */
struct stream {
	int fd, rank; /* rank: at the other end */
	bool sends, used, blocked; /* blocked: there was something to move, but not with this socket, yet */
	struct stamp stamp;           /* goes first */
	size_t stamped, moved, total; /* bytes */
};

struct reduction {
	struct chain *chain;
	const struct stamp *stamp;
	const struct arithmetic *math;
	uint8_t *const *part;
	int parts, mine, divisor;
	size_t place;            /* bytes of a part before these elements */
	size_t n, chunk, chunks; /* elements; elements of a chunk; number of chunks */
	size_t window;           /* elements that the first segment may have on their way */
	size_t summed;           /* chunks that hold this segment's ranks */
	size_t copied;           /* bytes of the result that every part of this segment has */
	size_t done;             /* bytes moved and chunks summed, to see that something goes on */
	struct stream up_in, down_in, up_out, down_out;
};

int chain_open(struct chain *c, struct mesh *m, const struct link *link, int links, int segments)
{
	*c = (struct chain){ .mesh = m, .prev.fd = -1, .next.fd = -1, .links = segments - 1 };
	for (int i = 0; i < links; i++)
		*(link[i].rank < m->rank ? &c->prev : &c->next) = link[i];
	if (!links)
		return 0;
	c->ring = malloc((size_t)CHAIN_PIECE * SLOTS);
	return c->ring ? 0 : mesh_fault(m, HVD_ESYS, "has no memory for sums between nodes");
}

void chain_close(struct chain *c)
{
	close_fd(&c->prev.fd);
	close_fd(&c->next.fd);
	free(c->ring);
	c->ring = NULL;
}

static struct stream stream(const struct link *k, bool sends, size_t total, const struct stamp *stamp)
{
	return (struct stream){ .fd = k->fd, .rank = k->rank, .sends = sends, .used = k->fd >= 0, .total = total, .stamp = *stamp };
}

static bool through(const struct stream *s)
{
	return !s->used || (s->stamped == sizeof s->stamp && s->moved == s->total);
}

int calls_differ(struct mesh *m, const struct stamp *a, const struct stamp *b, int rank)
{
	const char *more = ", in another place of hvd_alloc()'s memory, or not in it";
	char calls[2][64];
	for (int i = 0; i < 2; i++) {
		const struct stamp *s = i ? b : a;
		snprintf(calls[i], sizeof calls[i], s->kind == OP_BARRIER ? "%s" : "%s of %llu %s", op_name(s->kind), (unsigned long long)s->n, type_name((enum hvd_type)(s->type % 8)));
	}
	if (a->kind != b->kind || a->n != b->n || a->type != b->type)
		more = "";
	else if (a->root != b->root)
		more = a->kind == OP_ALLGATHER ? ", with blocks of other sizes" : ", with another root";
	else if (a->op != b->op)
		more = ", with another operation";
	return mesh_fault(m, HVD_EMISMATCH, "calls %s, rank %d calls %s%s", calls[0], rank, calls[1], more);
}

/* Moves what the socket takes or has; the other end's stamp must be the same. Returns 0 or a fault. */
static int move(struct reduction *r, struct stream *s, void *data, size_t bytes)
{
	struct iovec v[2];
	struct msghdr message = { .msg_iov = v };
	size_t left = sizeof s->stamp - s->stamped;
	if (left)
		v[message.msg_iovlen++] = (struct iovec){ (uint8_t *)&s->stamp + s->stamped, left };
	if (bytes)
		v[message.msg_iovlen++] = (struct iovec){ data, bytes };
	s->blocked = false;
	if (!s->used || !message.msg_iovlen)
		return 0;
	ssize_t n = s->sends ? sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(s->fd, &message, MSG_DONTWAIT);
	s->blocked = n < 0 && (errno == EAGAIN || errno == EINTR);
	if (n <= 0)
		return s->blocked ? 0 : mesh_cut(r->chain->mesh, s->rank);
	size_t of_stamp = (size_t)n < left ? (size_t)n : left;
	s->stamped += of_stamp;
	s->moved += (size_t)n - of_stamp;
	r->done += (size_t)n;
	bool other = of_stamp && s->stamped == sizeof s->stamp && memcmp(&s->stamp, r->stamp, sizeof s->stamp);
	return other ? calls_differ(r->chain->mesh, r->stamp, &s->stamp, s->rank) : 0;
}

/* Sleeps until a socket can go on. Who comes before may wait for results of what comes after: it is late only if nothing is owed from there. */
static int idle(const struct reduction *r, const struct stream *const s[4], double since)
{
	struct chain *c = r->chain;
	struct pollfd p[5];
	for (int i = 0; i < 4; i++)
		p[i] = (struct pollfd){ .fd = s[i]->blocked ? s[i]->fd : -1, .events = s[i]->sends ? POLLOUT : POLLIN };
	p[4] = (struct pollfd){ .fd = c->mesh->alarm, .events = POLLIN };
	poll(p, 5, 100);
	int failed = atomic_load(&c->mesh->failed);
	if (failed)
		return failed;
	bool owed = !through(&r->down_in) && (through(&r->up_in) || r->summed * r->chunk * r->math->size > r->down_in.moved);
	if (lived() - since > c->mesh->deadline)
		return mesh_late(c->mesh, owed ? c->next.rank : c->prev.rank);
	return 0;
}

/* ---- sum up the chain, result down ---------------------------------------------------------------- */

static size_t chunk_elements(const struct reduction *r, size_t k)
{
	return k + 1 < r->chunks ? r->chunk : r->n - k * r->chunk;
}

/* Of the running sums, the first segment sends no more than the window; the others pass on what comes. */
static bool may_send(const struct reduction *r)
{
	return r->up_in.used || r->up_out.moved / r->math->running - r->down_in.moved / r->math->size < r->window;
}

static void sum_chunk(struct reduction *r, uint8_t *running, bool first)
{
	size_t n = chunk_elements(r, r->summed), at = r->place + r->summed * r->chunk * r->math->size;
	for (int i = 0; i < r->parts; i++)
		(first && i == 0 ? r->math->load : r->math->fold)(running, r->part[i] + at, n);
}

static void store_chunk(struct reduction *r, const uint8_t *running)
{
	size_t n = chunk_elements(r, r->summed), at = r->place + r->summed * r->chunk * r->math->size;
	r->math->store(r->part[0] + at, running, n, r->divisor);
	for (int i = 1; i < r->parts; i++)
		memcpy(r->part[i] + at, r->part[0] + at, n * r->math->size);
}

/* One round over everything that can move. Returns 0 or a fault. */
static int reduce_round(struct reduction *r)
{
	const size_t bytes = r->chunk * r->math->running;
	uint8_t *ring = r->chain->ring, *mine = r->part[r->mine] + r->place;
	size_t oldest = r->up_out.used ? r->up_out.moved / bytes : r->summed; /* chunk whose slot is still needed */

	size_t k = r->up_in.moved / bytes;
	bool room = k < r->chunks && k - oldest < SLOTS;
	int status = move(r, &r->up_in, ring + k % SLOTS * bytes + r->up_in.moved % bytes,
			  room ? chunk_elements(r, k) * r->math->running - r->up_in.moved % bytes : 0);
	if (status)
		return status;

	bool arrived = !r->up_in.used || r->up_in.moved >= r->summed * bytes + (r->summed < r->chunks ? chunk_elements(r, r->summed) : 0) * r->math->running;
	if (r->summed < r->chunks && arrived && r->summed - oldest < SLOTS) {
		uint8_t *running = ring + r->summed % SLOTS * bytes;
		sum_chunk(r, running, !r->up_in.used);
		if (!r->up_out.used)
			store_chunk(r, running);
		r->summed++;
		r->done++;
	}

	if (!r->up_in.used || r->up_in.stamped == sizeof *r->stamp) {
		size_t sent = r->up_out.moved / bytes;
		size_t ready = sent < r->summed && may_send(r) ? chunk_elements(r, sent) * r->math->running - r->up_out.moved % bytes : 0;
		status = move(r, &r->up_out, ring + sent % SLOTS * bytes + r->up_out.moved % bytes, ready);
	}
	if (!status)
		status = move(r, &r->down_in, mine + r->down_in.moved, r->down_in.total - r->down_in.moved);
	for (int i = 0; r->down_in.moved > r->copied && i < r->parts; i++)
		if (i != r->mine)
			memcpy(r->part[i] + r->place + r->copied, mine + r->copied, r->down_in.moved - r->copied);
	r->copied = r->down_in.moved;

	const struct stream *source = r->down_in.used ? &r->down_in : &r->up_in;
	size_t whole = r->summed < r->chunks ? r->summed * r->chunk : r->n;
	size_t final = r->down_in.used ? r->down_in.moved : whole * r->math->size;
	if (!status && source->stamped == sizeof *r->stamp)
		status = move(r, &r->down_out, mine + r->down_out.moved, final - r->down_out.moved);
	return status;
}

int chain_reduce(struct chain *c, const struct stamp *stamp, const struct op *op, uint8_t *const *part, int parts, int mine, size_t place, size_t n, int divisor)
{
	const struct arithmetic *a = arithmetic(op->type, op->op, op->narrow);
	size_t chunk = CHAIN_PIECE / a->running;
	struct reduction r = {
		.chain = c, .stamp = stamp, .math = a, .part = part, .parts = parts, .mine = mine, .divisor = divisor, .place = place,
		.n = n, .chunk = chunk, .chunks = (n + chunk - 1) / chunk, .window = (size_t)c->links * IN_FLIGHT / a->running,
		.up_in = stream(&c->prev, false, n * a->running, stamp),
		.up_out = stream(&c->next, true, n * a->running, stamp),
		.down_in = stream(&c->next, false, n * a->size, stamp),
		.down_out = stream(&c->prev, true, n * a->size, stamp),
	};
	const struct stream *all[4] = { &r.up_in, &r.down_in, &r.up_out, &r.down_out };
	for (double since = lived(), until = 0;;) {
		size_t before = r.done;
		int status = reduce_round(&r);
		if (status || (through(all[0]) && through(all[1]) && through(all[2]) && through(all[3])))
			return status;
		if (r.done > before) {
			since = lived();
			until = 0;
		} else if (!look_again(&until) && (status = idle(&r, all, since))) {
			return status;
		}
	}
}
