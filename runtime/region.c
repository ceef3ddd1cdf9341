/* SPDX-License-Identifier: Apache-2.0 */
#include "region.h"

#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t *map(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

static int out_of_memory(struct mesh *m, size_t bytes)
{
	return mesh_fault(m, HVD_ESYS, "has no memory for a shared part of %zu bytes: %s", bytes, strerror(errno));
}

static int receive_part(struct region *r, struct mesh *m, const struct team *t, int i, uint64_t tag)
{
	const int from = m->member[t->first + i];
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
	if (fd >= 0)
		close(fd);
	return status;
}

/* This rank's part goes to the others of the team, theirs come. */
static int exchange(struct region *r, struct mesh *m, const struct team *t, uint64_t tag)
{
	uint64_t size = r->bytes;
	int status = 0;
	for (int i = 0; !status && i < t->count; i++)
		if (i != t->me)
			status = mesh_send(m, m->member[t->first + i], tag, &size, sizeof size, r->fd);
	for (int i = 0; !status && i < t->count; i++)
		if (i != t->me)
			status = receive_part(r, m, t, i, tag);
	return status;
}

int region_open(struct region **out, struct mesh *m, const struct team *t, uint64_t tag, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct region *r = calloc(1, sizeof *r + (size_t)m->size * sizeof r->part[0]);
	int status = 0;
	if (!r)
		return out_of_memory(m, bytes);
	r->tag = tag;
	r->shared = true;
	r->count = t->count;
	r->me = t->me;
	r->bytes = !bytes ? page : bytes > SIZE_MAX - page ? bytes : (bytes + page - 1) / page * page;
	r->fd = memfd_create("hvd", MFD_CLOEXEC);
	if (r->fd < 0 || ftruncate(r->fd, (off_t)r->bytes) || !(r->part[t->me] = map(r->fd, r->bytes)))
		status = out_of_memory(m, r->bytes);
	if (!status)
		status = exchange(r, m, t, tag);
	if (status) {
		region_close(r);
		return status;
	}
	*out = r;
	return 0;
}

static void unmap(struct region *r)
{
	for (int i = 0; i < r->count; i++)
		if (r->part[i])
			munmap(r->part[i], r->bytes);
}

void region_keep(struct region *r)
{
	uint8_t *mine = r->part[r->me];
	r->part[r->me] = NULL;
	unmap(r);
	memset(r->part, 0, (size_t)r->count * sizeof r->part[0]);
	r->shared = false;
	r->count = 1;
	r->me = 0;
	r->part[0] = mine;
}

int region_share(struct region *r, struct mesh *m, const struct team *t, uint64_t tag)
{
	uint8_t *mine = r->part[r->me];
	region_keep(r);
	r->part[0] = NULL;
	r->shared = true;
	r->count = t->count;
	r->me = t->me;
	r->part[r->me] = mine;
	return exchange(r, m, t, tag);
}

void region_close(struct region *r)
{
	unmap(r);
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}
