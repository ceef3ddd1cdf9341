/* SPDX-License-Identifier: Apache-2.0
 * Sub-worlds: some ranks of a world as a world of their own, with its own mesh; they find each other over the parent's. */
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int split_publish(struct boot *b, const void *card, size_t bytes, __attribute__((unused)) char *why)
{
	struct hvd *child = b->state, *h = child->parent;
	for (int i = 1; i < b->size; i++)
		mesh_send(h->mesh, child->of_parent[i], child->invitation, card, bytes, -1);
	return 0;
}

/* A rank that cannot do its part may have no links there, so it says so over the parent's mesh. */
static int split_over(struct boot *b, char *why)
{
	const struct hvd *child = b->state;
	struct mesh *m = child->parent->mesh;
	if (atomic_load(&m->failed))
		return refuse(why, HVD_EPEER, "%s", m->fault);
	return mesh_heard(m, child->excuse, why, WHY_BYTES) ? HVD_EBOOT : 0;
}

static int split_lookup(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	struct hvd *child = b->state, *h = child->parent;
	int over = 0;
	while (!over && lived() < until && !mesh_heard(h->mesh, child->invitation, card, bytes)) {
		usleep(200);
		over = split_over(b, why);
	}
	int status = over ? over : mesh_receive(h->mesh, child->of_parent[0], child->invitation, card, bytes, NULL, until);
	return status && !over ? refuse(why, HVD_EBOOT, "hvd_split: %s", h->mesh->fault) : status;
}

static void split_host_of(struct boot *b, int rank, char host[HOST_BYTES])
{
	const struct hvd *child = b->state;
	snprintf(host, HOST_BYTES, "%s", child->parent->mesh->peer[child->of_parent[rank]].host);
}

/* child->of_parent, and what the sub-world's ranks look like from here. */
static void gather_members(struct hvd *child, struct boot *b, const int32_t *colors)
{
	const struct hvd *h = child->parent;
	const char *host = hvd_host(h, h->world.rank);
	b->nodes = 1;
	for (int r = 0; r < h->world.size; r++) {
		if (colors[r] != colors[h->world.rank])
			continue;
		if (strcmp(hvd_host(h, r), host))
			b->nodes = 2; /* or more */
		b->rank += r < h->world.rank;
		child->of_parent[b->size++] = h->mesh->member[r];
	}
	snprintf(b->host, sizeof b->host, "%s", host);
}

/* Of a split that failed: if a death is behind it, the world above hears of it, maybe a moment later, and can be recovered. Nobody waits for that with the sub-world
 * open, or for so long that it is lost itself. */
static int give_up(struct hvd *h, struct hvd *child, int status, const int32_t *colors, uint64_t excuse)
{
	struct mesh *m = h->mesh;
	const int rank = h->world.rank, fault = child && child->parent ? atomic_load(&child->mesh->failed) : 0;
	const bool lost = fault == HVD_EPEER;
	bool heard = false;
	char why[WHY_BYTES] = "";
	fail(h, status, "hvd_split: %s", hvd_error(child));
	snprintf(why, sizeof why, "rank %d on %.63s cannot do its part: %.290s", rank, hvd_host(h, rank), hvd_error(child));
	for (int r = 0; r < h->world.size && status == HVD_ESYS; r++)
		if (r != rank && colors[r] == colors[rank])
			mesh_send(m, m->member[r], excuse, why, sizeof why, -1);
	if (lost && child->mesh->cause != CAUSE_CLOSED) /* by a rank that gave up, maybe: its death would close the link above, too */
		split_fault(child);
	hvd_close(child);
	for (double until = lived() + (m->deadline / 2 < PATIENCE ? m->deadline / 2 : PATIENCE); (lost || (status == HVD_EBOOT && fault != HVD_ESYS)) && !m->failed && !heard && lived() < until; usleep(1000))
		heard = mesh_heard(m, excuse, why, sizeof why);
	if (heard)
		fail(h, status, "hvd_split: %s", why);
	return m->failed ? explain(h, m->failed) : status == HVD_EPEER ? HVD_EBOOT : status;
}

/* The colors of nodes and of local ranks lie below the others: -2, -4, … and -3, -5, …. Returns - HVD_SPLIT_…, 0: by color. */
static int way_of(int32_t color)
{
	return color >= 0 ? 0 : color == HVD_SPLIT_NONE ? -HVD_SPLIT_NONE : -HVD_SPLIT_NODE + (color & 1);
}

/* On all ranks alike: the first that splits in another way than those before it. */
static int check_ways(struct hvd *h, const int32_t *colors)
{
	static const char *const words[] = { "by color", [-HVD_SPLIT_NODE] = "by node", [-HVD_SPLIT_ACROSS] = "across nodes" };
	int first = 0;
	for (int r = 0; r < h->world.size; r++) {
		const int way = way_of(colors[r]), before = way_of(colors[first]);
		if (before == -HVD_SPLIT_NONE)
			first = r;
		else if (way != -HVD_SPLIT_NONE && way != before)
			return fail(h, HVD_EMISMATCH, "hvd_split: rank %d on %.63s splits %s, rank %d %s", r, hvd_host(h, r), words[way], first, words[before]);
	}
	return 0;
}

int hvd_split(struct hvd *h, int color, struct hvd **out)
{
	*out = NULL;
	if (color < HVD_SPLIT_ACROSS)
		return fail(h, HVD_EINVAL, "hvd_split: no such color: %d", color);
	int32_t mine = color == HVD_SPLIT_NODE ? color - 2 * h->world.node : color == HVD_SPLIT_ACROSS ? color - 2 * h->world.local_rank : color;
	struct hvd_conf conf = h->conf;
	conf.backend = h->backend == &backend_nccl ? "nccl" : "cpu";
	conf.trace = NULL;
	int status = queue_drain(h);
	mesh_doing(h->mesh, DOING_SPLIT, 0);
	int32_t *colors = status ? NULL : gathered(h, &mine, sizeof mine, &status);
	uint64_t invitation = mesh_tag(h->mesh), excuse = mesh_tag(h->mesh);
	if (!status) /* what a split that failed has left */
		mesh_drop_older(h->mesh, invitation);
	if (!status)
		status = check_ways(h, colors);
	if (!status && mine != HVD_SPLIT_NONE) {
		struct boot boot = { .publish = split_publish, .lookup = split_lookup, .host_of = split_host_of, .over = split_over };
		status = handle_new(out, &conf);
		struct hvd *child = *out;
		if (!status && !(child->of_parent = calloc((size_t)h->world.size, sizeof(int))))
			status = fail(child, HVD_ESYS, "no memory for %d ranks", h->world.size);
		if (!status) {
			child->parent = h;
			child->invitation = invitation;
			child->excuse = excuse;
			h->children++;
			boot.state = child;
			gather_members(child, &boot, colors);
			status = handle_form(child, &boot);
		}
		if (status) {
			status = give_up(h, child, status, colors, excuse);
			*out = NULL;
		}
	}
	mesh_doing(h->mesh, DOING_COMPUTE, 0);
	free(colors);
	return status;
}
