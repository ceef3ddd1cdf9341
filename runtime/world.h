/* SPDX-License-Identifier: Apache-2.0
 * What the files of libhvd share: the handle, and how a failure is recorded. */
#ifndef HVD_RUNTIME_WORLD_H
#define HVD_RUNTIME_WORLD_H

#include "hvd.h"

#include "mesh.h"
#include "trace.h"

#include <stdbool.h>
#include <time.h>

struct backend;

struct hvd {
	struct hvd_world world;
	struct hvd_conf conf;
	char error[512];
	const struct backend *backend;
	void *state;  /* of the back end for host memory */
	void *device; /* of the NCCL back end */
	struct mesh *mesh;         /* without peers in a world of one */
	struct data_links data;    /* what the CPU back end's chain runs over */
	struct queue *queue;       /* collectives that a thread runs while the program computes */
	char host[HOST_BYTES];     /* this rank's node */
	struct trace_file *trace;  /* NULL: none */
	uint32_t step;             /* of the plan, for the trace */
};

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Records the line that hvd_error() returns; returns `status`. */
int fail(struct hvd *h, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* world.rank, size, local and node numbers, from the mesh. */
void describe_world(struct hvd *h);
void arm(struct hvd *h);
/* hvd_init() with another way to find the ranks. */
int hvd_init_from(struct hvd **h, const struct hvd_conf *conf, int (*find)(struct boot *, char *why));

size_t type_size(enum hvd_type type);
const char *type_name(enum hvd_type type);

#endif
