/* SPDX-License-Identifier: Apache-2.0
 * Collectives on host memory: shared memory within a team, the chain between teams.
 *
 * Memory of hvd_alloc() is reduced where it is. Other buffers pass through a window of shared memory, piece by piece. */
#include "backend.h"

#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW (1u << 20)   /* bytes of a rank's window */
#define SMALL (64u << 10)   /* bytes up to which one lane is enough */
#define LANES_MAX 4
#define TAG_REGION 0x40000000u

struct cpu {
	struct team *teams, team; /* [count] of the world, in rank order; this rank's */
	int count, mine;
	int lanes; /* chains side by side; lane l is served by rank l of every team */
	struct chain chain;
	struct doorway door;
	struct region *window, *regions; /* regions: of hvd_alloc() */
	uint8_t **local;                 /* [team.count] scratch */
	uint32_t serial;
};

/* ---- the world's shape ---------------------------------------------------------------------------- */

static int find_teams(const struct mesh *m, struct team *teams)
{
	int count = 0;
	for (int r = 0; r < m->members; r++) {
		if (r && !strcmp(m->peer[m->member[r]].host, m->peer[m->member[r - 1]].host))
			teams[count - 1].count++;
		else
			teams[count++] = (struct team){ .first = r, .count = 1 };
	}
	return count;
}

static int lanes_of(const struct team *teams, int count)
{
	int lanes = LANES_MAX;
	for (int i = 0; i < count; i++)
		lanes = teams[i].count < lanes ? teams[i].count : lanes;
	return lanes;
}

static int team_of(const struct team *teams, int rank)
{
	int i = 0;
	while (rank >= teams[i].first + teams[i].count)
		i++;
	return i;
}

void cpu_data_links(struct data_links *d, const struct mesh *m)
{
	struct team *teams = calloc((size_t)m->size, sizeof *teams);
	if (!teams)
		return; /* cpu_open() reports it */
	int count = find_teams(m, teams), s = team_of(teams, m->me), lane = m->me - teams[s].first;
	if (lane < lanes_of(teams, count)) {
		if (s > 0)
			d->link[d->count++] = (struct link){ m->member[teams[s - 1].first + lane], CHANNEL_DATA, true, -1 };
		if (s + 1 < count)
			d->link[d->count++] = (struct link){ m->member[teams[s + 1].first + lane], CHANNEL_DATA, false, -1 };
	}
	free(teams);
}

static void cpu_close(struct hvd *h)
{
	struct cpu *c = h->state;
	if (!c)
		return;
	while (c->regions) {
		struct region *next = c->regions->next;
		region_close(c->regions);
		c->regions = next;
	}
	if (c->window)
		region_close(c->window);
	if (c->door.pages)
		region_close(c->door.pages);
	chain_close(&c->chain);
	free(c->local);
	free(c->teams);
	free(c);
	h->state = NULL;
}

static int cpu_open(struct hvd *h)
{
	struct mesh *m = h->mesh;
	struct cpu *c = calloc(1, sizeof *c);
	struct team *teams = calloc((size_t)m->size, sizeof *teams);
	h->state = c;
	if (!c || !teams) {
		free(teams);
		return fail(h, HVD_ESYS, "no memory for %d ranks", m->size);
	}
	c->teams = teams;
	c->count = find_teams(m, teams);
	c->lanes = lanes_of(teams, c->count);
	c->mine = team_of(teams, m->me);
	c->team = teams[c->mine];
	c->team.me = m->me - c->team.first;
	c->serial = m->rounds << 12; /* tags of before the last death do not come again */
	c->door = (struct doorway){ .mesh = m, .team = &c->team };
	c->local = calloc((size_t)c->team.count, sizeof *c->local);
	int status = c->local ? 0 : fail(h, HVD_ESYS, "no memory for %d ranks", c->team.count);
	if (!status)
		status = chain_open(&c->chain, m, &h->data);
	if (!status)
		status = region_open(&c->door.pages, m, &c->team, TAG_REGION | c->serial++, sizeof(struct page));
	if (!status)
		status = region_open(&c->window, m, &c->team, TAG_REGION | c->serial++, WINDOW);
	return status;
}

/* In a new mesh: links and windows are new, memory of hvd_alloc() stays. After a failure it can be tried again. */
static int cpu_recover(struct hvd *h)
{
	struct cpu *old = h->state;
	struct region *regions = old->regions;
	old->regions = NULL;
	cpu_close(h);
	int status = cpu_open(h);
	struct cpu *c = h->state;
	if (!c)
		return status;
	c->regions = regions;
	for (struct region **at = &c->regions; !status && *at; at = &(*at)->next)
		status = region_share(at, h->mesh, &c->team, TAG_REGION | c->serial++);
	return status;
}

static void *cpu_alloc(struct hvd *h, size_t bytes)
{
	struct cpu *c = h->state;
	struct region *r;
	if (region_open(&r, h->mesh, &c->team, TAG_REGION | c->serial++, bytes))
		return NULL;
	r->next = c->regions;
	c->regions = r;
	return r->part[c->team.me];
}

static void cpu_free(struct hvd *h, void *p)
{
	struct cpu *c = h->state;
	for (struct region **at = &c->regions; *at; at = &(*at)->next) {
		struct region *r = *at;
		if (r->part[r->me] == p) {
			*at = r->next;
			region_close(r);
			return;
		}
	}
}

/* ---- pieces --------------------------------------------------------------------------------------- */

/* Slice i of k of n elements, cut at multiples of 64 elements. */
static size_t slice(size_t n, int i, int k)
{
	return i == k ? n : n / 64 * (size_t)i / (size_t)k * 64;
}

static int reduce_in_team(struct cpu *c, uint8_t *const *part, const struct op *op, size_t n)
{
	const struct arithmetic *a = arithmetic(op->type, op->op);
	double running[512]; /* 4 KiB: stays in the first-level cache, with as much of every part */
	size_t block = sizeof running / a->running;
	size_t begin = slice(n, c->team.me, c->team.count), end = slice(n, c->team.me + 1, c->team.count);
	for (size_t i = begin; i < end; i += block) {
		size_t k = end - i < block ? end - i : block;
		for (int r = 0; r < c->team.count; r++)
			(r ? a->fold : a->load)(running, part[r] + i * a->size, k);
		a->store(part[0] + i * a->size, running, k, op->op == HVD_AVG ? c->team.count : 1);
		for (int r = 1; r < c->team.count; r++)
			memcpy(part[r] + i * a->size, part[0] + i * a->size, k * a->size);
	}
	return 0;
}

static struct notice notice_of(struct cpu *c, const struct op *op, size_t n, size_t place)
{
	return (struct notice){
		.stamp = { .sequence = c->chain.sequence++, .n = n, .kind = op->kind, .type = op->type, .op = op->op, .root = (uint32_t)op->root },
		.place = place,
		.bucket = (uint64_t)(int64_t)op->bucket,
	};
}

/* All-reduces n elements that lie `place` bytes into region r, on every rank. */
static int reduce_piece(struct hvd *h, struct cpu *c, struct region *r, size_t place, size_t n, const struct op *op)
{
	struct notice notice = notice_of(c, op, n, place);
	int status = team_enter(&c->door, &notice);
	if (status)
		return status;
	size_t size = type_size(op->type), begin = 0;
	int lanes = n * size <= SMALL ? 1 : c->lanes, lane = c->team.me;
	if (c->count > 1 && lane < lanes)
		begin = slice(n, lane, lanes);
	for (int i = 0; i < c->team.count; i++)
		c->local[i] = r->part[i] + place + begin * size;
	if (c->count == 1)
		reduce_in_team(c, c->local, op, n);
	else if (lane < lanes)
		status = chain_reduce(&c->chain, &notice.stamp, c->local, c->team.count, lane, slice(n, lane + 1, lanes) - begin,
				      op->op == HVD_AVG ? h->world.size : 1);
	return status ? status : team_barrier(&c->door);
}

static struct region *region_of(const struct cpu *c, const void *p, size_t bytes)
{
	for (struct region *r = c->regions; r; r = r->next)
		if ((const uint8_t *)p >= r->part[c->team.me] && (const uint8_t *)p + bytes <= r->part[c->team.me] + r->bytes)
			return r;
	return NULL;
}

static int allreduce(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t size = type_size(op->type), step = WINDOW / size;
	struct region *r = op->in == op->out ? region_of(c, op->out, op->n * size) : NULL;
	if (r)
		return reduce_piece(h, c, r, (size_t)((const uint8_t *)op->out - r->part[c->team.me]), op->n, op);
	size_t at = 0;
	do {
		size_t n = op->n - at < step ? op->n - at : step;
		memcpy(c->window->part[c->team.me], (const uint8_t *)op->in + at * size, n * size);
		int status = reduce_piece(h, c, c->window, 0, n, op);
		if (status)
			return status;
		memcpy((uint8_t *)op->out + at * size, c->window->part[c->team.me], n * size);
		at += n;
	} while (at < op->n);
	return 0;
}

/* bytes of the root's window, to every rank's `out` */
static int broadcast_piece(struct cpu *c, const struct op *op, uint8_t *out, size_t bytes, int root_team)
{
	uint8_t *const *part = c->window->part;
	struct notice notice = notice_of(c, op, bytes, 0);
	int lanes = bytes <= SMALL ? 1 : c->lanes, lane = c->team.me;
	bool home = c->mine == root_team;
	int source = home ? op->root - c->team.first : lane;
	int status = team_enter(&c->door, &notice);
	if (!status && c->count > 1) {
		if (lane < lanes) {
			size_t b = slice(bytes, lane, lanes), e = slice(bytes, lane + 1, lanes);
			struct chain_way none = { { b, b }, { b, b } }, on = { { b, home ? b : e }, { b, e } };
			status = chain_move(&c->chain, &notice.stamp, part[source], c->mine >= root_team ? &on : &none,
					    c->mine <= root_team ? &on : &none);
		}
		if (!status)
			status = team_barrier(&c->door);
	}
	for (int i = 0; !status && i < (home ? 1 : lanes); i++) {
		size_t b = home ? 0 : slice(bytes, i, lanes), e = home ? bytes : slice(bytes, i + 1, lanes);
		memcpy(out + b, part[home ? source : i] + b, e - b);
	}
	return status ? status : team_barrier(&c->door);
}

static int broadcast(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t total = op->n * type_size(op->type);
	int root_team = team_of(c->teams, op->root);
	for (size_t at = 0; at < total; at += WINDOW) {
		size_t bytes = total - at < WINDOW ? total - at : WINDOW;
		uint8_t *out = (uint8_t *)op->out + at;
		if (h->world.rank == op->root)
			memcpy(c->window->part[c->team.me], out, bytes);
		int status = broadcast_piece(c, op, out, bytes, root_team);
		if (status)
			return status;
	}
	return 0;
}

/* One piece of the gathered array, and where the blocks of ranks begin in it. */
struct piece {
	size_t begin, end;    /* bytes of the whole array */
	size_t block, size;   /* bytes of a rank, or of an element where blocks are unequal */
	const size_t *blocks; /* elements of each rank; NULL: equal */
};

static size_t place_in(const struct piece *p, int rank)
{
	size_t at = p->blocks ? 0 : (size_t)rank * p->block;
	for (int r = 0; p->blocks && r < rank; r++)
		at += p->blocks[r] * p->size;
	return (at < p->begin ? p->begin : at > p->end ? p->end : at) - p->begin;
}

/* A rank's block is in its own window, at its place in the piece. */
static int gather_piece(struct cpu *c, const struct op *op, const struct piece *p, uint8_t *out)
{
	uint8_t *const *part = c->window->part;
	struct notice notice = notice_of(c, op, p->end - p->begin, p->begin);
	int first = c->team.first, status = team_enter(&c->door, &notice);
	if (status)
		return status;
	if (c->count > 1) {
		/* the team's first rank gathers for all */
		for (int i = 1; c->team.me == 0 && i < c->team.count; i++) {
			size_t b = place_in(p, first + i);
			memcpy(part[0] + b, part[i] + b, place_in(p, first + i + 1) - b);
		}
		size_t b = place_in(p, first), e = place_in(p, first + c->team.count), all = p->end - p->begin;
		struct chain_way up = { { 0, b }, { 0, e } }, down = { { e, all }, { b, all } };
		if (c->team.me == 0)
			status = chain_move(&c->chain, &notice.stamp, part[0], &up, &down);
		if (!status)
			status = team_barrier(&c->door);
		if (status)
			return status;
		memcpy(out, part[0], all);
	} else {
		for (int i = 0; i < c->team.count; i++) {
			size_t b = place_in(p, i);
			memcpy(out + b, part[i] + b, place_in(p, i + 1) - b);
		}
	}
	return team_barrier(&c->door);
}

static int allgather(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t size = type_size(op->type);
	struct piece whole = { .end = SIZE_MAX, .block = op->n * size, .size = size, .blocks = op->blocks };
	size_t total = place_in(&whole, h->world.size), own = place_in(&whole, h->world.rank);
	for (size_t at = 0; at < total; at += WINDOW) {
		struct piece p = whole;
		p.begin = at;
		p.end = total - at < WINDOW ? total : at + WINDOW;
		size_t b = place_in(&p, h->world.rank), e = place_in(&p, h->world.rank + 1);
		if (e > b)
			memcpy(c->window->part[c->team.me] + b, (const uint8_t *)op->in + (at + b - own), e - b);
		int status = gather_piece(c, op, &p, (uint8_t *)op->out + at);
		if (status)
			return status;
	}
	return 0;
}

/* An all-reduce, of which each rank keeps its block. */
static int reduce_scatter(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t size = type_size(op->type), step = WINDOW / size, total = op->n * (size_t)h->world.size;
	struct piece own = { .block = op->n };
	for (size_t at = 0; at < total; at += step) {
		uint8_t *window = c->window->part[c->team.me];
		own.begin = at;
		own.end = total - at < step ? total : at + step;
		memcpy(window, (const uint8_t *)op->in + at * size, (own.end - at) * size);
		int status = reduce_piece(h, c, c->window, 0, own.end - at, op);
		if (status)
			return status;
		size_t b = place_in(&own, h->world.rank), e = place_in(&own, h->world.rank + 1);
		if (e > b)
			memcpy((uint8_t *)op->out + (at + b - (size_t)h->world.rank * op->n) * size, window + b * size, (e - b) * size);
	}
	return 0;
}

/* An all-gather, of which each rank keeps what is for it. */
static int alltoall(struct hvd *h, struct cpu *c, const struct op *op)
{
	size_t block = op->n * type_size(op->type), row = block * (size_t)h->world.size;
	uint8_t *all = malloc(row * (size_t)h->world.size + 1);
	struct op gather = *op;
	if (!all)
		return fail(h, HVD_ESYS, "hvd_alltoall: no memory for %zu bytes", row * (size_t)h->world.size);
	gather.out = all;
	gather.n = op->n * (size_t)h->world.size;
	int status = allgather(h, c, &gather);
	for (int r = 0; !status && r < h->world.size; r++)
		memcpy((uint8_t *)op->out + (size_t)r * block, all + (size_t)r * row + (size_t)h->world.rank * block, block);
	free(all);
	return status;
}

static int cpu_run(struct hvd *h, const struct op *op)
{
	struct cpu *c = h->state;
	switch (op->kind) {
	case OP_ALLREDUCE:
		return allreduce(h, c, op);
	case OP_BROADCAST:
		return broadcast(h, c, op);
	case OP_ALLGATHER:
		return allgather(h, c, op);
	case OP_REDUCE_SCATTER:
		return reduce_scatter(h, c, op);
	case OP_ALLTOALL:
		return alltoall(h, c, op);
	case OP_BARRIER:
		return reduce_piece(h, c, c->window, 0, 0, op);
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
