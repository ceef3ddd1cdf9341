/* SPDX-License-Identifier: Apache-2.0
 * What is known of every byte of the device's memory, and of a block's shared memory. */
#ifndef TESTS_PTX_MEMORY_H
#define TESTS_PTX_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace ptx {

struct counts;

/* Who touches memory, and when: a step begins with the block, which is step 1, and with each of its barriers; with one of a warpgroup for its threads alone. */
struct moment {
	uint32_t launch, block;
	uint16_t thread, step;
};

enum { GROUP = 128 /* threads */ };
/* The step that began with the block or its last barrier of all threads: warpgroups are ordered before it, and not since. */
extern uint16_t common_step;

/* NULL, or what is wrong; `p` is not touched then. The text stays until the next call. */
/* tally: where each sector is counted once a launch, or NULL. */
extern counts *tally;
const char *memory_may_read(const void *p, size_t bytes, const moment &now, bool is_volatile);
const char *memory_may_write(void *p, const void *data, size_t bytes, const moment &now, bool is_volatile);
/* Of a thread that has not waited for the kernels before its own, or reads past the caches that hear of their writes: of these, those up to launch `settled` are there. how: it reads so. */
const char *memory_may_read_early(const void *p, size_t bytes, const moment &now, uint32_t settled, const char *how);

/* A block's shared memory. */
void shared_begin(size_t bytes);
uint8_t *shared_bytes();
const char *shared_may_read(uint64_t address, size_t bytes, const moment &now);
const char *shared_may_write(uint64_t address, size_t bytes, const moment &now);
/* An asynchronous copy is on its way there: nobody may touch these bytes until it has landed, which is a write of `now`. */
const char *shared_copy_begins(uint64_t address, size_t bytes, const moment &now);
void shared_copy_lands(uint64_t address, const void *from, size_t bytes, const moment &now);
/* wgmma reads these bytes by itself, from now on until it has ended: nobody may write them. They were written before a barrier, by threads that handed over
 * (fence.proxy.async) between the two. */
const char *shared_product_begins(uint64_t address, size_t bytes, const moment &now);
void shared_product_ends(uint64_t address, size_t bytes);
void shared_handed_over(const moment &now);

}

#endif
