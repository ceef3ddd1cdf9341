/* SPDX-License-Identifier: Apache-2.0
 * What the files of libhvd share: the handle, and how a failure is recorded. */
#ifndef HVD_RUNTIME_WORLD_H
#define HVD_RUNTIME_WORLD_H

#include "hvd.h"

#include "mesh.h"
#include "trace.h"

#define ERROR_BYTES 512

struct backend;

struct hvd {
	struct hvd_world world;
	struct hvd_conf conf;
	char error[ERROR_BYTES];
	const struct backend *backend;
	void *state;  /* of the back end for host memory */
	void *device; /* of the NCCL back end */
	struct mesh *mesh;
	struct queue *queue;       /* collectives that a thread runs while the program computes */
	struct trace_file *trace;  /* NULL: none */
	_Atomic uint32_t step;     /* of the plan, for the trace */
	uint64_t planned;          /* hash of the first plan, whose cut conf.plan holds; 0: none yet */
	void *stream; /* hvd_stream() */
	uint32_t *stop, stop_word; /* stop: what kernels read, in memory that the device sees too */
	uint64_t staged;           /* bytes that collectives copied because they lay outside of hvd_alloc() */
	struct hvd *parent;        /* of which this is a sub-world; NULL: none */
	int *of_parent;            /* [size] numbers in the parent's mesh */
	uint64_t invitation, excuse; /* tags in the parent's mesh: of the message that brings this sub-world together, of a rank's that cannot come */
	_Atomic int children; /* open sub-worlds */
	pid_t process;        /* whose rank this is, and no other's that it forks */
};

/* [ERROR_BYTES], where this thread records a failure: the communication thread's is the program's once it asks for the request. NULL: the handle's line. */
extern _Thread_local char *error_line;

/* Records the line that hvd_error() returns; returns `status`. */
int fail(struct hvd *h, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Of a call that returned `status`: where the mesh has a fault, that is the line. Returns `status`. */
int explain(struct hvd *h, int status);

/* Of a collective step that returned `status`: for what this rank alone lacks (HVD_ESYS) the others would wait, so it is a fault. Returns the status. */
int tell_lack(struct hvd *h, int status);

/* What every rank of the world gives: [size][bytes], the caller's. NULL: *status says why, and the line is recorded. Collective. */
void *gathered(struct hvd *h, const void *mine, size_t bytes, int *status);

/* world.rank, size, local and node numbers, from the mesh. */
void describe_world(struct hvd *h);
/* From now on a lost rank is what conf.on_death says. */
void arm(struct hvd *h);

/* What a program filled in may be wrong: `why` says what. */
int conf_check(const struct hvd_conf *conf, char why[256]);

/* hvd_init(), in two halves: a world of one with these settings, then the world that `boot` finds. */
int handle_new(struct hvd **h, const struct hvd_conf *conf);
int handle_form(struct hvd *h, struct boot *boot);
/* Both, with any way to find the ranks. */
int hvd_init_from(struct hvd **h, const struct hvd_conf *conf, int (*find)(struct boot *, char *why));

/* The lost rank of this sub-world is one of the parent's too. */
void split_fault(struct hvd *h);

#endif
