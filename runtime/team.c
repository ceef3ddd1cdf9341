/* SPDX-License-Identifier: Apache-2.0 */
#include "team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- memory ---------------------------------------------------------------------------------------- */

static uint8_t *map(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* NULL: errno says why. *fd: -1, or the caller's to close. */
static uint8_t *new_part(size_t bytes, int *fd)
{
	*fd = memfd_create("hvd", MFD_CLOEXEC);
	int error = *fd < 0 ? errno : file_extend(*fd, bytes, false);
	errno = error;
	return error ? NULL : map(*fd, bytes);
}

static int out_of_memory(struct mesh *m, size_t bytes)
{
	const char *limit = errno == EFBIG ? " (ulimit -f: shared memory counts as a file)" : errno == EMFILE ? " (ulimit -n)" : "";
	return mesh_fault(m, HVD_ESYS, "has no memory for a shared part of %zu bytes: %s%s", bytes, strerror(errno), limit);
}

static int receive_part(struct region *r, struct mesh *m, int i, uint64_t tag)
{
	const int from = m->member[r->team.first + i];
	uint64_t theirs;
	int fd = -1, status = mesh_receive(m, from, tag, &theirs, sizeof theirs, &fd, lived() + m->deadline);
	if (status)
		return status;
	if (theirs != r->bytes)
		status = mesh_fault(m, HVD_EMISMATCH, "allocates %zu shared bytes where rank %d allocates %llu", r->bytes, from, (unsigned long long)theirs);
	else if (fd < 0)
		status = mesh_fault(m, HVD_ESYS, "has no descriptor left for the shared memory of rank %d: too many files are open (ulimit -n)", from);
	else if (!(r->part[i] = map(fd, r->bytes)))
		status = out_of_memory(m, r->bytes);
	close_fd(&fd);
	return status;
}

/* This rank's part goes to the others of the team, theirs come. */
static int exchange(struct region *r, struct mesh *m, uint64_t tag)
{
	uint64_t size = r->bytes;
	int status = 0;
	for (int i = 0; !status && i < r->team.count; i++)
		if (i != r->team.me)
			status = mesh_send(m, m->member[r->team.first + i], tag, &size, sizeof size, r->fd);
	for (int i = 0; !status && i < r->team.count; i++)
		if (i != r->team.me)
			status = receive_part(r, m, i, tag);
	return status;
}

int region_open(struct region **out, struct mesh *m, const struct team *t, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct region *r = calloc(1, sizeof *r + (size_t)m->size * sizeof r->part[0]);
	if (!r)
		return out_of_memory(m, bytes);
	r->tag = mesh_tag(m);
	r->shared = true;
	r->team = *t;
	r->bytes = !bytes ? page : bytes > SIZE_MAX - page ? bytes : (bytes + page - 1) / page * page;
	r->part[t->me] = new_part(r->bytes, &r->fd);
	int status = r->part[t->me] ? exchange(r, m, r->tag) : out_of_memory(m, r->bytes);
	if (status)
		region_close(r);
	else
		*out = r;
	return status;
}

/* Of the other parts. */
static void let_go(struct region *r)
{
	for (int i = 0; i < r->team.count; i++)
		if (i != r->team.me && r->part[i]) {
			munmap(r->part[i], r->bytes);
			r->part[i] = NULL;
		}
}

void region_keep(struct region *r)
{
	let_go(r);
	r->shared = false;
}

int region_renew(struct region *r, struct mesh *m)
{
	int fd;
	uint8_t *old = r->part[r->team.me], *part = new_part(r->bytes, &fd);
	bool moved = part && mremap(memcpy(part, old, r->bytes), r->bytes, r->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old) == old;
	int status = moved ? 0 : out_of_memory(m, r->bytes), unused = moved ? r->fd : fd;
	if (part && !moved)
		munmap(part, r->bytes);
	close_fd(&unused);
	r->fd = moved ? fd : r->fd;
	return status;
}

int region_share(struct region *r, struct mesh *m, const struct team *t)
{
	uint8_t *mine = r->part[r->team.me];
	let_go(r);
	r->part[r->team.me] = NULL;
	r->shared = true;
	r->team = *t;
	r->part[t->me] = mine;
	return exchange(r, m, mesh_tag(m));
}

void region_close(struct region *r)
{
	let_go(r);
	if (r->part[r->team.me])
		munmap(r->part[r->team.me], r->bytes);
	close_fd(&r->fd);
	free(r);
}

/* ---- meeting --------------------------------------------------------------------------------------- */

static struct page *page(const struct region *pages, int i)
{
	return (struct page *)(void *)pages->part[i];
}

/* A rank (of the mesh) that has not entered the collective that this rank is in; -1: all have. */
static int behind(const struct mesh *m, const struct region *pages)
{
	uint64_t mine = atomic_load(&page(pages, pages->team.me)->sequence);
	for (int i = 0; i < pages->team.count; i++)
		if (atomic_load(&page(pages, i)->sequence) < mine)
			return m->member[pages->team.first + i];
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

int team_barrier(struct mesh *m, const struct region *pages)
{
	static const struct timespec slice = { .tv_nsec = 10000000 };
	struct page *p = page(pages, 0);
	uint32_t generation = atomic_load(&p->generation);
	if (atomic_fetch_add(&p->arrived, 1) == (uint32_t)pages->team.count - 1) {
		atomic_store(&p->arrived, 0);
		atomic_fetch_add(&p->generation, 1);
		if (atomic_load(&p->sleepers))
			syscall(SYS_futex, &p->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return 0;
	}
	for (double until = 0; look_again(&until);)
		if (atomic_load_explicit(&p->generation, memory_order_acquire) != generation)
			return 0;
	int status = 0;
	double since = lived();
	atomic_fetch_add(&p->sleepers, 1);
	while (!status && atomic_load(&p->generation) == generation) {
		syscall(SYS_futex, &p->generation, FUTEX_WAIT, generation, &slice, NULL, 0);
		status = atomic_load(&p->generation) == generation ? check(m, behind(m, pages), since) : 0;
	}
	atomic_fetch_sub(&p->sleepers, 1);
	return status;
}

int team_enter(struct mesh *m, const struct region *pages, const struct stamp *stamp)
{
	struct page *mine = page(pages, pages->team.me);
	const uint64_t turn = (atomic_load(&mine->sequence) + 1) % 2;
	mine->stamp[turn] = *stamp;
	atomic_fetch_add(&mine->sequence, 1);
	int status = team_barrier(m, pages);
	for (int i = 0; !status && i < pages->team.count; i++)
		if (memcmp(&page(pages, i)->stamp[turn], stamp, sizeof *stamp))
			status = calls_differ(m, stamp, &page(pages, i)->stamp[turn], m->member[pages->team.first + i]);
	return status;
}
