/* SPDX-License-Identifier: Apache-2.0
 * A world of ranks that train by a plan, for the tests of buckets and of the plan file. */
#ifndef TESTS_PLAN_WORLD_H
#define TESTS_PLAN_WORLD_H

#include "tests/unit/runtime_world.h"

enum { TENSORS = 30 };

static inline float gradient(int rank, int step, size_t i)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(rank * 31 + step + 1) * 0x9e3779b9u;
	x ^= x >> 14;
	return (float)(x & 0xffffff) / 65536.0f - 100;
}

static struct hvd_conf settings; /* beside quick_conf() */

static inline struct hvd *open_world(void)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.plan = settings.plan;
	conf.wire = settings.wire;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	return h;
}

/* Prime sizes: nothing is aligned. */
static inline int declare(struct hvd_tensor *t, char names[][16])
{
	static const size_t sizes[] = { 7, 10007, 3, 1009, 40009, 13, 5003 };
	int floats = 0;
	for (int i = 0; i < TENSORS; i++) {
		snprintf(names[i], 16, i == TENSORS - 1 ? "statistics" : "t%d", i);
		t[i] = (struct hvd_tensor){ names[i], sizes[i % 7] };
		floats += (int)sizes[i % 7];
	}
	return floats;
}

static inline void train(void *arg)
{
	const size_t *bucket_bytes = arg;
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	int floats = declare(t, names);
	struct hvd *h = open_world();
	struct hvd_plan *p;
	int rank = hvd_world(h)->rank, size = hvd_world(h)->size;
	works(h, hvd_plan_open(h, &p, t, TENSORS, *bucket_bytes));
	float *slab = hvd_plan_slab(p);
	const int steps = *bucket_bytes > 1 ? 4 : 9; /* enough of them for a cut by measurement, if that is asked for */
	for (int step = 0; step < steps; step++) {
		size_t at = 0;
		for (int i = 0; i < TENSORS; i++) {
			for (size_t k = 0; k < t[i].count; k++)
				slab[at + k] = gradient(rank, step, at + k);
			at += t[i].count;
			works(h, hvd_plan_ready(p, i));
		}
		works(h, hvd_plan_finish(p));
		for (int i = 0; i < floats; i++) {
			float want = gradient(0, step, (size_t)i);
			for (int r = 1; r < size; r++)
				want += gradient(r, step, (size_t)i);
			want /= (float)size;
			must(!memcmp(&slab[i], &want, 4));
		}
		float check = (float)rank; /* other collectives between the steps */
		works(h, hvd_allreduce(h, &check, &check, 1, HVD_F32, HVD_MAX));
		must(check == (float)(size - 1));
	}
	must(*bucket_bytes != 1 || hvd_plan_buckets(p) == TENSORS);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

/* Also after a test that failed: its path is gone then, and the next one's plan would be written to whatever lies there. */
static inline int forget_settings(void **state)
{
	(void)state;
	settings = (struct hvd_conf){ 0 };
	return 0;
}

#endif
