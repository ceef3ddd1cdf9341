/* SPDX-License-Identifier: Apache-2.0
 * Between ready and finish nothing is added to the sums themselves: no control message, no copy, no allocation. Each of the
 * three counters is shown to count, too. */
#include "tests/unit/runtime_world.h"

#include <sys/syscall.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which have their own malloc */

static _Atomic long allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	allocations++;
	return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
	allocations++;
	return __libc_realloc(p, bytes);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	allocations++;
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

struct counts {
	uint64_t messages, staged;
	long allocations;
};

static struct counts counts(const struct hvd *h)
{
	return (struct counts){ h->mesh->sent, h->staged, allocations };
}

static void step(struct hvd *h, struct hvd_plan *p, int tensors)
{
	for (int i = 0; i < tensors; i++)
		works(h, hvd_plan_ready(p, i));
	works(h, hvd_plan_finish(p));
}

/* A first sign of life from every rank is in: the buffers for it are there. */
static bool all_heard(struct hvd *h)
{
	bool all = true;
	pthread_mutex_lock(&h->mesh->lock);
	for (int r = 0; r < h->world.size; r++)
		all &= r == meeting_rank || h->mesh->peer[r].in.room > 0;
	pthread_mutex_unlock(&h->mesh->lock);
	return all;
}

static void count_steps(void *arg)
{
	enum { TENSORS = 12 };
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][8], own[64] = { 0 }, all[64 * RANKS_MAX];
	struct hvd *h;
	struct hvd_plan *p;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	for (int i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof names[i], "t%d", i);
		t[i] = (struct hvd_tensor){ names[i], 20011 };
	}
	works(h, hvd_plan_open(h, &p, t, TENSORS, 150000));
	int32_t waiting = 1; /* the first steps start the thread and fill the buffers */
	while (waiting) {
		step(h, p, TENSORS);
		waiting = !all_heard(h);
		works(h, hvd_allreduce(h, &waiting, &waiting, 1, HVD_I32, HVD_MAX));
	}
	struct counts before = counts(h);
	for (int i = 0; i < 20; i++)
		step(h, p, TENSORS);
	struct counts after = counts(h);
	works(h, hvd_barrier(h)); /* what follows sends messages to ranks that may still be counting */
	must(after.messages == before.messages);
	must(after.staged == before.staged);
	must(after.allocations == before.allocations);

	/* what would have been seen */
	works(h, mesh_gather(h->mesh, own, sizeof own, all));
	works(h, hvd_broadcast(h, own, sizeof own, HVD_U8, 0));
	works(h, hvd_allreduce(h, own, own, sizeof own, HVD_U8, HVD_MAX));
	void *something = hvd_alloc(h, 4096);
	must(something);
	struct counts with = counts(h);
	must(with.messages > after.messages);
	must(with.staged > after.staged);
	must(with.allocations > after.allocations);
	hvd_free(h, something);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void a_step_adds_no_message_no_copy_and_no_allocation(void **state)
{
	(void)state;
	run_ranks("aaaa", count_steps, NULL);
	run_ranks("aabb", count_steps, NULL);
	run_ranks("abc", count_steps, NULL);
}

#else

static void a_step_adds_no_message_no_copy_and_no_allocation(void **state)
{
	(void)state;
	skip_because("allocations are counted in the build without AddressSanitizer");
}

#endif

/* One message to each rank of the node, which carries the shared memory; two to rank 0 and back, with addresses and with what all must agree on;
 * one along each data link, from the first two ranks of the first node. */
static void count_messages_of_forming(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	const struct hvd_world *w = &h->world;
	must(h->mesh->sent == (uint64_t)(w->local_size - 1 + 2 * (meeting_rank ? 1 : w->size - 1) + (w->nodes > 1 && !w->node && w->local_rank < 2)));
	all_arrive();
	works(h, hvd_close(h));
}

static void a_world_is_formed_with_few_messages(void **state)
{
	(void)state;
	run_ranks("aaaa", count_messages_of_forming, NULL);
	run_ranks("aabbb", count_messages_of_forming, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_world_is_formed_with_few_messages),
		cmocka_unit_test(a_step_adds_no_message_no_copy_and_no_allocation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
