/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/cpu/cpu.h"

enum { HUGE_PAGE = 2 << 20, GUARD = 256 /* bytes: the last vector of the last pixel may be read whole */ };

void *cpu_alloc(struct cpu_engine *e, size_t count, size_t size)
{
	void **list = reallocarray(e->allocations, (size_t)e->n_allocations + 1, sizeof *list);
	if (list)
		e->allocations = list;
	size_t bytes = count * size + GUARD;
	size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
	bytes = (bytes + align - 1) / align * align;
	void *p = list ? aligned_alloc(align, bytes) : NULL;
	if (!p) {
		fail(e->base.error, EXIT_INTERNAL, "no memory for the engine: %zu MB more after %zu MB; use a smaller batch", bytes >> 20,
		     e->base.memory >> 20);
		return NULL;
	}
	if (bytes >= HUGE_PAGE)
		madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0, bytes);
	e->allocations[e->n_allocations++] = p;
	e->base.memory += bytes;
	return p;
}

void cpu_free_all(struct cpu_engine *e)
{
	for (int i = 0; i < e->n_allocations; i++)
		free(e->allocations[i]);
	free(e->allocations);
}

void cpu_need_scratch(struct cpu_engine *e, size_t count)
{
	if (count > e->scratch_count)
		e->scratch_count = count;
}
