/* SPDX-License-Identifier: Apache-2.0
 * Collectives on host memory: shared memory within a team, the chain between teams.
 *
 * Memory of hvd_alloc() is reduced where it is. Other buffers pass through a window of shared memory, piece by piece. */
#include "backend.h"

#include "siphash.h"
#include "team.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW (1u << 20)   /* bytes of a rank's window, of two by turns, … */
#define BEFORE 4096u        /* … which lie behind its page */
#define SMALL (64u << 10)   /* bytes up to which one lane is enough */
#define TINY 4096u          /* bytes up to which every rank of the only team makes the whole sum by itself */

struct cpu {
	struct team team; /* this rank's, of `count` */
	int count;
	int lanes; /* chains side by side; lane l is served by rank l of every team */
	struct chain chain;
	struct region *window, *regions; /* regions: of hvd_alloc() */
	unsigned turn;                   /* of the windows */
	struct stamp call;               /* that is being run; its pieces have their own size */
};

/* ---- the world's shape ---------------------------------------------------------------------------- */

/* Ranks from `first` on that are on one node. */
static int run_from(const struct mesh *m, int first)
{
	int n = 1;
	while (first + n < m->members && !strcmp(m->peer[m->member[first + n]].host, m->peer[m->member[first]].host))
		n++;
	return n;
}

/* Returns how many links this rank serves: to the ranks of the same lane in the team before and in the one after. */
static int find_teams(struct cpu *c, const struct mesh *m, struct link link[2])
{
	int before = -1, after = -1, n = 0;
	c->count = 0;
	c->lanes = LANES_MAX;
	for (int first = 0, k; first < m->members; first += k) {
		k = run_from(m, first);
		c->count++;
		c->lanes = k < c->lanes ? k : c->lanes;
		if (first + k <= m->me)
			before = first;
		else if (first <= m->me)
			c->team = (struct team){ .first = first, .count = k, .me = m->me - first };
		else if (after < 0)
			after = first;
	}
	if (c->team.me < c->lanes && before >= 0)
		link[n++] = (struct link){ m->member[before + c->team.me], -1 };
	if (c->team.me < c->lanes && after >= 0)
		link[n++] = (struct link){ m->member[after + c->team.me], -1 };
	return n;
}

/* All but the memory of hvd_alloc(). */
static void leave_mesh(struct cpu *c)
{
	if (c->window)
		region_close(c->window);
	c->window = NULL;
	chain_close(&c->chain);
}

static int enter_mesh(struct hvd *h, struct cpu *c)
{
	struct mesh *m = h->mesh;
	struct link link[2];
	const int links = find_teams(c, m, link);
	int status = mesh_link(m, link, links, h->error);
	if (!status)
		status = chain_open(&c->chain, m, link, links, c->count);
	if (!status)
		status = region_open(&c->window, m, &c->team, BEFORE + 2 * WINDOW);
	c->turn = 0;
	return status;
}

static int cpu_open(struct hvd *h)
{
	struct cpu *c = h->state = calloc(1, sizeof *c);
	if (!c)
		return fail(h, HVD_ESYS, "no memory for %d ranks", h->mesh->size);
	c->chain = (struct chain){ .prev.fd = -1, .next.fd = -1 };
	return enter_mesh(h, c);
}

/* A rank of this node was given up, and may be alive. */
static bool given_up_here(struct mesh *m)
{
	bool any = false;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		any |= m->peer[i].fate == UNHEARD && !strcmp(m->peer[i].host, m->peer[m->rank].host);
	pthread_mutex_unlock(&m->lock);
	return any;
}

/* Memory of hvd_alloc() in a new world, newest first. A death around hvd_alloc() or hvd_free() may leave some ranks with a region that others have
 * not, on this node or another: it becomes memory of each rank alone. */
static int share_regions(struct hvd *h, struct cpu *c)
{
	struct mesh *m = h->mesh;
	struct region *r = c->regions;
	for (;;) {
		uint64_t mine = r ? r->tag : 0, newest = 0;
		int have = 0, status; /* have: ranks */
		uint64_t *tags = gathered(h, &mine, sizeof mine, &status);
		for (int w = 0; !status && w < m->members; w++)
			newest = tags[w] > newest ? tags[w] : newest;
		for (int w = 0; !status && w < m->members; w++)
			have += tags[w] == newest;
		free(tags);
		if (status || !newest)
			return status;
		if (have == m->members)
			status = region_share(r, m, &c->team);
		else if (mine == newest)
			region_keep(r);
		if (status)
			return status;
		r = mine == newest ? r->next : r;
	}
}

/* In a new mesh: links and windows are new, memory of hvd_alloc() stays. After a failure it can be tried again. */
static int cpu_recover(struct hvd *h)
{
	struct cpu *c = h->state;
	leave_mesh(c);
	int status = enter_mesh(h, c);
	for (struct region *r = c->regions; !status && r && given_up_here(h->mesh); r = r->next)
		status = region_renew(r, h->mesh);
	return status ? status : share_regions(h, c);
}

static void *cpu_alloc(struct hvd *h, size_t bytes)
{
	struct cpu *c = h->state;
	struct region *r;
	if (atomic_load(&h->mesh->failed) || region_open(&r, h->mesh, &c->team, bytes))
		return NULL; /* also where nobody shares it: the others may be at another call */
	r->next = c->regions;
	c->regions = r;
	return r->part[c->team.me];
}

static void cpu_free(struct hvd *h, void *p)
{
	struct cpu *c = h->state;
	struct region **at = &c->regions, *r;
	while ((r = *at) && r->part[r->team.me] != p)
		at = &r->next;
	if (r) {
		*at = r->next;
		region_close(r);
	}
}

static void cpu_close(struct hvd *h)
{
	struct cpu *c = h->state;
	if (!c)
		return;
	while (c->regions)
		cpu_free(h, c->regions->part[c->regions->team.me]);
	leave_mesh(c);
	free(c);
}

/* ---- pieces --------------------------------------------------------------------------------------- */

/* Slice i of k of n elements, cut at multiples of 64 elements. */
static size_t slice(size_t n, int i, int k)
{
	return i == k ? n : n / 64 * (size_t)i / (size_t)k * 64;
}

/* n elements that lie `place` bytes into each part. */
static void reduce_in_team(const struct cpu *c, uint8_t *const *part, size_t place, size_t n, const struct op *op)
{
	const struct arithmetic *a = arithmetic(op->type, op->op, op->narrow);
	double running[512]; /* 4 KiB: stays in the first-level cache, with as much of every part */
	size_t block = sizeof running / a->running;
	size_t begin = slice(n, c->team.me, c->team.count), end = slice(n, c->team.me + 1, c->team.count);
	for (size_t i = begin; i < end; i += block) {
		size_t k = end - i < block ? end - i : block, at = place + i * a->size;
		for (int r = 0; r < c->team.count; r++)
			(r ? a->fold : a->load)(running, part[r] + at, k);
		a->store(part[0] + at, running, k, op->op == HVD_AVG ? c->team.count : 1);
		for (int r = 1; r < c->team.count; r++)
			memcpy(part[r] + at, part[0] + at, k * a->size);
	}
}

/* All ranks of the team are at the n elements that lie `place` bytes into region r. */
static int enter_piece(struct hvd *h, struct cpu *c, const struct region *r, size_t place, size_t n, const struct op *op, struct stamp *stamp)
{
	*stamp = c->call;
	stamp->piece = n;
	stamp->region = r->tag;
	stamp->place = place;
	stamp->bucket = (uint64_t)(int64_t)op->bucket;
	return team_enter(h->mesh, c->window, stamp);
}

/* The sum of n elements at that place in the window, TINY bytes at most: nobody waits for the others to have it, as the next piece lies in the other window. */
static int reduce_alone(struct hvd *h, struct cpu *c, size_t place, size_t n, const struct op *op, uint8_t *sum)
{
	const struct arithmetic *a = arithmetic(op->type, op->op, op->narrow);
	double running[TINY / 4]; /* of two bytes an element becomes four */
	struct stamp stamp;
	int status = enter_piece(h, c, c->window, place, n, op, &stamp);
	for (int r = 0; !status && r < c->team.count; r++)
		(r ? a->fold : a->load)(running, c->window->part[r] + place, n);
	if (!status)
		a->store(sum, running, n, op->op == HVD_AVG ? c->team.count : 1);
	return status;
}

/* All-reduces n elements that lie `place` bytes into region r, on every rank. */
static int reduce_piece(struct hvd *h, struct cpu *c, const struct region *r, size_t place, size_t n, const struct op *op)
{
	struct stamp stamp;
	int status = enter_piece(h, c, r, place, n, op, &stamp);
	if (status)
		return status;
	const size_t size = type_size(op->type);
	const int lanes = n * size <= SMALL ? 1 : c->lanes, lane = c->team.me;
	if (c->count == 1) {
		reduce_in_team(c, r->part, place, n, op);
	} else if (lane < lanes) {
		size_t begin = slice(n, lane, lanes), end = slice(n, lane + 1, lanes);
		status = chain_reduce(&c->chain, &stamp, op, r->part, c->team.count, lane, place + begin * size, end - begin, op->op == HVD_AVG ? h->world.size : 1);
	}
	return status ? status : team_barrier(h->mesh, c->window);
}

static struct region *region_of(const struct cpu *c, const void *p, size_t bytes)
{
	for (struct region *r = c->regions; bytes && r; r = r->next) /* no bytes lie at the end of one region as well as at the beginning of the next */
		if (r->shared && (const uint8_t *)p >= r->part[c->team.me] && (const uint8_t *)p + bytes <= r->part[c->team.me] + r->bytes)
			return r;
	return NULL;
}

/* Place x of the whole, as a place in the piece of n that begins at `at`. */
static size_t clip(size_t x, size_t at, size_t n)
{
	return x < at ? 0 : x - at < n ? x - at : n;
}

/* What passes through the window: elements that are summed, or bytes that are gathered. */
struct passage {
	const uint8_t *own; /* this rank's, those from `begin` to `end` of `total`; of narrow ones all are its own */
	size_t begin, end, total;
	size_t row, first, keep; /* of every `row` of the result it keeps those from `first` on, `keep` of them; of narrow ones all */
};

/* A copy is a sum in which all ranks but one give zeros. */
static int through_window(struct hvd *h, struct cpu *c, const struct op *op, const struct passage *p)
{
	const bool sums = op->kind == OP_ALLREDUCE || op->kind == OP_REDUCE_SCATTER;
	const struct arithmetic *bf16 = arithmetic(HVD_BF16, HVD_SUM, 0);
	const size_t size = sums ? type_size(op->type) : 1, step = WINDOW / size;
	uint8_t *out = op->out, alone[TINY];
	struct op piece = *op;
	size_t at = 0;
	piece.type = op->narrow ? HVD_BF16 : sums ? op->type : HVD_U8;
	do {
		size_t n = p->total - at < step ? p->total - at : step, b = clip(p->begin, at, n), e = clip(p->end, at, n), place = BEFORE + c->turn++ % 2 * WINDOW;
		uint8_t *window = c->window->part[c->team.me] + place;
		memset(window, 0, b * size);
		if (op->narrow)
			bf16->store(window, p->own + at * size, n, 1);
		else if (e > b)
			memcpy(window + b * size, p->own + (at + b - p->begin) * size, (e - b) * size);
		memset(window + e * size, 0, (n - e) * size);
		const bool tiny = c->count == 1 && n * size <= TINY;
		const uint8_t *sum = tiny ? alone : window;
		int status = tiny ? reduce_alone(h, c, place, n, &piece, alone) : reduce_piece(h, c, c->window, place, n, &piece);
		if (status)
			return status;
		h->staged += (e - b) * size;
		for (size_t i = n ? at / p->row : 0; i * p->row < at + n; i++) {
			size_t from = i * p->row + p->first, k = clip(from, at, n), to = clip(from + p->keep, at, n);
			if (op->narrow)
				bf16->load(out + at * size, sum, n);
			else if (to > k)
				memcpy(out + (i * p->keep + (at + k - from)) * size, sum + k * size, (to - k) * size);
			h->staged += (to - k) * size;
		}
		at += n;
	} while (at < p->total);
	return 0;
}

static int allreduce(struct hvd *h, struct cpu *c, const struct op *op)
{
	const size_t bytes = op->n * type_size(op->type);
	const bool copied = op->bucket < 0 && c->count == 1 && bytes <= TINY; /* sooner than what is in place, for which ranks meet twice */
	struct region *r = op->in == op->out && !op->narrow && !copied ? region_of(c, op->out, bytes) : NULL;
	if (r)
		return reduce_piece(h, c, r, (size_t)((const uint8_t *)op->out - r->part[c->team.me]), op->n, op);
	return through_window(h, c, op, &(struct passage){ .own = op->in, .end = op->n, .total = op->n, .row = op->n, .keep = op->n });
}

static int allgather(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t size = type_size(op->type), begin = 0, end = 0, total = 0;
	uint64_t shape[2] = { 0 };
	for (int r = 0; r < h->world.size; r++) {
		begin = r == h->world.rank ? total : begin;
		total += (op->blocks ? op->blocks[r] : op->n) * size;
		end = r == h->world.rank ? total : end;
	}
	if (op->blocks)
		siphash128(h->mesh->links.secret, op->blocks, (size_t)h->world.size * sizeof *op->blocks, (uint8_t *)shape);
	c->call.root = shape[0];
	if (op->blocks && (size_t)h->world.size * op->blocks[0] * size != total)
		c->call.n = total / size;
	const void *own = op->in;
	if (op->in == op->out && end > begin) /* before other blocks come where it lies */
		own = memmove((uint8_t *)op->out + begin, op->in, end - begin);
	return through_window(h, c, op, &(struct passage){ own, begin, end, total, .row = total, .keep = total });
}

/* An all-gather, of which each rank keeps what is for it. */
static int alltoall(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t size = (size_t)h->world.size, rank = (size_t)h->world.rank, block = op->n * type_size(op->type), row = block * size;
	uint8_t *own = op->in == op->out ? malloc(row + 1) : NULL; /* blocks come where it lies */
	if (op->in == op->out && !own)
		return mesh_fault(h->mesh, HVD_ESYS, "has no memory for an all-to-all of %zu bytes in place", row);
	if (own && row)
		memcpy(own, op->in, row);
	int status = through_window(h, c, op, &(struct passage){ own ? own : op->in, rank * row, (rank + 1) * row, size * row, row, rank * block, block });
	free(own);
	return status;
}

static int cpu_run(struct hvd *h, const struct op *op)
{
	const size_t ranks = (size_t)h->world.size, bytes = op->n * type_size(op->type);
	struct cpu *c = h->state;
	c->call = (struct stamp){ .n = op->blocks ? op->blocks[0] : op->n, .kind = op->kind, .type = op->type, .op = op->op, .root = (uint64_t)op->root,
				  .narrow = op->narrow };
	switch (op->kind) {
	case OP_ALLREDUCE:
		return allreduce(h, c, op);
	case OP_BROADCAST:
		return through_window(h, c, op, &(struct passage){ op->in, 0, h->world.rank == op->root ? bytes : 0, bytes, .row = bytes, .keep = bytes });
	case OP_ALLGATHER:
		return allgather(h, c, op);
	case OP_REDUCE_SCATTER:
		return through_window(h, c, op, &(struct passage){ op->in, 0, op->n * ranks, op->n * ranks, op->n * ranks, op->n * (size_t)h->world.rank, op->n });
	case OP_ALLTOALL:
		return alltoall(h, c, op);
	case OP_BARRIER:
		return c->count == 1 ? team_enter(h->mesh, c->window, &c->call) : reduce_piece(h, c, c->window, BEFORE, 0, op);
	}
	return HVD_EINVAL;
}

const struct backend backend_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.run = cpu_run,
	.recover = cpu_recover,
};
