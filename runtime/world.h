/* SPDX-License-Identifier: Apache-2.0
 * What the files of libhvd share: the handle, and how a failure is recorded. */
#ifndef HVD_RUNTIME_WORLD_H
#define HVD_RUNTIME_WORLD_H

#include "hvd.h"

#include "mesh.h"
#include "trace.h"

#include <stdbool.h>
#include <time.h>

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
};

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* now(), less the time that this process stood still (SIGSTOP, scontrol suspend). Every deadline is told in it: a wait that this process slept
 * through says nothing about the others, who may just have awoken too. Whoever waits asks at least every LOOK_MS. */
double lived(void);
#define LOOK_MS 200

void condition_init(pthread_cond_t *c);
/* Waits for the condition, and no longer than LOOK_MS. */
void condition_wait(pthread_cond_t *c, pthread_mutex_t *lock);

/* Whether to look again at what should come soon, before sleeping: on a core that is idle until then it takes tens of µs to be woken. Only for so long, and only while
 * nobody else wants the core: if the late rank runs on it, whoever sleeps is woken sooner. *until: 0 at first. */
bool look_again(double *until);

/* A thread to which no signal is delivered: they are for the program's own. Returns 0 or an error number. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* The file is that long; reserve: and its disk has room for it. Returns 0 or an error number: beyond the limit of ulimit -f EFBIG, and no signal. */
int file_extend(int fd, size_t bytes, bool reserve);

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
void arm(struct hvd *h);
/* In the watching thread, as soon as there is a fault. */
void fault_noticed(struct hvd *h);

/* What a program filled in may be wrong: `why` says what. */
int conf_check(const struct hvd_conf *conf, char why[256]);

/* hvd_init(), in two halves: a world of one with these settings, then the world that `boot` finds. */
int handle_new(struct hvd **h, const struct hvd_conf *conf);
int handle_form(struct hvd *h, struct boot *boot);
/* Both, with any way to find the ranks. */
int hvd_init_from(struct hvd **h, const struct hvd_conf *conf, int (*find)(struct boot *, char *why));

/* In the watching thread of a sub-world: its lost rank is one of the parent's too. */
void split_fault(struct hvd *h);

size_t type_size(enum hvd_type type);
const char *type_name(enum hvd_type type);

#endif
