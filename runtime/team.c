/* SPDX-License-Identifier: Apache-2.0 */
#include "team.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 100 /* about 2 µs; more would steal the cores that the late rank needs */

static struct page *page(const struct region *pages, int i)
{
	return (struct page *)(void *)pages->part[i];
}

/* A rank (of the mesh) that has not entered the collective that this rank is in; -1: all have. */
static int behind(const struct mesh *m, const struct team *t, const struct region *pages)
{
	uint64_t mine = atomic_load(&page(pages, t->me)->sequence);
	for (int i = 0; i < t->count; i++)
		if (atomic_load(&page(pages, i)->sequence) < mine)
			return m->member[t->first + i];
	return -1;
}

static int check(struct mesh *m, int late, double since)
{
	int failed = atomic_load(&m->failed);
	if (failed)
		return failed;
	if (late < 0)
		return 0; /* all are in: whoever moves data, or the watcher, notices trouble */
	pthread_mutex_lock(&m->lock);
	bool left = m->peer[late].left;
	pthread_mutex_unlock(&m->lock);
	if (left)
		return mesh_lose(m, late, CAUSE_LEFT);
	return lived() - since > m->deadline ? mesh_late(m, late) : 0;
}

int team_barrier(struct mesh *m, const struct team *t, const struct region *pages)
{
	static const struct timespec slice = { .tv_nsec = 10000000 };
	struct page *p = page(pages, 0);
	if (t->count == 1)
		return 0;
	uint32_t generation = atomic_load(&p->generation);
	if (atomic_fetch_add(&p->arrived, 1) == (uint32_t)t->count - 1) {
		atomic_store(&p->arrived, 0);
		atomic_fetch_add(&p->generation, 1);
		if (atomic_load(&p->sleepers))
			syscall(SYS_futex, &p->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return 0;
	}
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&p->generation, memory_order_acquire) != generation)
			return 0;
#ifdef __x86_64__
		__builtin_ia32_pause();
#endif
	}
	int status = 0;
	double since = lived();
	atomic_fetch_add(&p->sleepers, 1);
	while (!status && atomic_load(&p->generation) == generation) {
		syscall(SYS_futex, &p->generation, FUTEX_WAIT, generation, &slice, NULL, 0);
		status = atomic_load(&p->generation) == generation ? check(m, behind(m, t, pages), since) : 0;
	}
	atomic_fetch_sub(&p->sleepers, 1);
	return status;
}

int team_enter(struct mesh *m, const struct team *t, const struct region *pages, const struct notice *notice)
{
	struct page *mine = page(pages, t->me);
	mine->notice = *notice;
	atomic_fetch_add(&mine->sequence, 1);
	int status = team_barrier(m, t, pages);
	for (int i = 0; !status && i < t->count; i++)
		if (memcmp(&page(pages, i)->notice, notice, sizeof *notice))
			status = calls_differ(m, &notice->stamp, &page(pages, i)->notice.stamp, m->member[t->first + i]);
	return status;
}
