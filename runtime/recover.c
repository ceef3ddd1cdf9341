/* SPDX-License-Identifier: Apache-2.0
 * Going on without the dead: the survivors agree on who is left, over the old mesh, and form a new one. */
#include "queue.h"

#include <stdlib.h>

/* fate[rank] of every rank, as this one sees it now. */
static void see(struct mesh *m, uint8_t *fate)
{
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		fate[i] = (uint8_t)(m->peer[i].left ? DEAD : m->peer[i].fate);
	pthread_mutex_unlock(&m->lock);
}

/* What another rank misses is missing here, too, and what it knows to be dead is. Returns whether both say the same. */
static bool merge(struct mesh *m, const uint8_t *fate, const uint8_t *theirs)
{
	bool same = true;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++) {
		same &= fate[i] == theirs[i];
		if (theirs[i] != ALIVE && m->peer[i].fate != DEAD)
			m->peer[i].fate = theirs[i] == DEAD ? DEAD : UNHEARD;
	}
	pthread_mutex_unlock(&m->lock);
	return same;
}

/* Rounds in which every rank tells all others whom it misses, until all have said the same. What becomes known in the last round, and may be so to
 * one rank only, is noticed while the new mesh is formed. theirs[size]: scratch. */
static void agree(struct mesh *m, uint8_t *fate, uint8_t *theirs)
{
	bool settled = false;
	while (!settled && !m->given_up) {
		uint64_t tag = (uint64_t)++m->rounds << 32; /* mesh_tag() counts from 1 */
		double until = lived() + m->deadline;
		settled = true;
		see(m, fate);
		for (int i = 0; i < m->size; i++)
			if (i != m->rank && fate[i] == ALIVE)
				mesh_send(m, i, tag, fate, (size_t)m->size, -1);
		for (int i = 0; i < m->size; i++)
			if (i != m->rank && fate[i] == ALIVE)
				settled &= mesh_receive_despite(m, i, tag, theirs, (size_t)m->size, until) && merge(m, fate, theirs);
	}
}

/* Nobody else may go on too: where ranks were given up that may be alive, the majority goes on, or the half with the lowest rank. A rank that one of
 * those accused counts the dead with them: they may have agreed to go on without it before they died. */
static bool may_go_on(const struct mesh *m, const uint8_t *fate)
{
	int count[2] = { 0, 0 }, lowest[2] = { m->size, m->size }; /* of the alive, and of the others */
	for (int i = m->size - 1; i >= 0; i--) {
		if (!m->peer[i].member || (fate[i] == DEAD && !m->accused))
			continue; /* settled in an earlier recovery, or by its end */
		count[fate[i] != ALIVE]++;
		lowest[fate[i] != ALIVE] = i;
	}
	return !count[1] || count[0] > count[1] || (count[0] == count[1] && lowest[0] < lowest[1]);
}

/* Members, links, windows and memory of the world that is left, on every rank or on none: the last step is a gathering, and
 * a rank that fails after it is a death in the new world. In the trace, steps go on after the furthest rank's, with a gap.
 * HVD_EPEER: another rank is lost. Other failures are this rank's own: the others, who wait for it, hear that they go on without it. */
static int rebuild(struct hvd *h, const uint8_t *fate)
{
	struct mesh *m = h->mesh;
	if (!mesh_shrink(m, fate))
		return HVD_EPEER;
	describe_world(h);
	int status = h->backend->recover(h);
	uint32_t *steps = status ? NULL : gathered(h, &h->step, sizeof h->step, &status);
	for (int w = 0; !status && w < m->members; w++)
		h->step = steps[w] >= h->step ? steps[w] + 1 : h->step;
	free(steps);
	int reason = !status ? 0 : status == HVD_EBOOT ? mesh_reason(m, -1) : atomic_load(&m->failed);
	if (status && !reason)
		mesh_lose(m, m->rank, CAUSE_UNABLE);
	return reason ? explain(h, reason) : status;
}

/* fate[2][size]: the second half is scratch. */
static int agree_on_survivors(struct hvd *h, uint8_t *fate)
{
	struct mesh *m = h->mesh;
	watch_told(m);
	agree(m, fate, fate + m->size);
	bool may = may_go_on(m, fate), left = m->given_up || (!may && m->lost == m->rank);
	return may && !left ? 0 : fail(h, HVD_EBOOT, "rank %d on %.63s stops: %s", m->rank, m->peer[m->rank].host, left ?
		"the others gave it up and go on without it" : "more ranks are out of reach than are left, and may be going on");
}

int hvd_recover(struct hvd *h)
{
	struct mesh *m = h->mesh;
	if (h->parent)
		return fail(h, HVD_EINVAL, "hvd_recover: a sub-world ends with its rank: close it, recover the world, and split that again");
	if (!h->conf.on_death)
		return fail(h, HVD_EINVAL, "hvd_recover: on_death is abort (srun --hvd=on_death=continue)");
	if (!mesh_reason(m, -1)) /* a sub-world may have heard first */
		return fail(h, HVD_EINVAL, "hvd_recover: no rank is lost");
	if (m->failed != HVD_EPEER)
		return fail(h, m->failed, "hvd_recover: no rank is lost: %s", m->fault);
	queue_drain(h);
	mesh_doing(m, DOING_RECOVER, 0);
	uint8_t *fate = calloc((size_t)m->size, 2);
	int status = fate ? HVD_EPEER : fail(h, HVD_ESYS, "hvd_recover: no memory");
	while (status == HVD_EPEER) {
		status = agree_on_survivors(h, fate);
		if (!status)
			status = rebuild(h, fate);
	}
	free(fate);
	if (status)
		return status;
	h->world.epoch = m->rounds;
	queue_reset(h);
	__atomic_store_n(h->stop, 0, __ATOMIC_SEQ_CST);
	if (atomic_load(&m->failed)) /* meanwhile */
		__atomic_store_n(h->stop, 1, __ATOMIC_SEQ_CST);
	arm(h);
	return 0;
}
