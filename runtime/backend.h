/* SPDX-License-Identifier: Apache-2.0
 * What a back end is: memory that the ranks share, and a way to run one collective. Arguments are checked by the caller. */
#ifndef HVD_RUNTIME_BACKEND_H
#define HVD_RUNTIME_BACKEND_H

#include "reduce.h"
#include "world.h"

struct op {
	enum op_kind kind;
	int bucket;      /* of a plan; -1: none */
	uint32_t step;   /* of the plan */
	const void *in;
	void *out;       /* broadcast: in and out */
	size_t n;        /* elements; of one block where there is one a rank */
	const size_t *blocks; /* allgather of unequal blocks: [size] elements */
	enum hvd_type type;
	enum hvd_op op;  /* allreduce, reduce-scatter */
	int root;        /* broadcast */
	bool narrow;     /* allreduce of f32: travels as bf16, rounded at every rank */
};

struct backend {
	const char *name;
	int (*open)(struct hvd *h);
	void (*close)(struct hvd *h); /* may be NULL */
	void *(*alloc)(struct hvd *h, size_t bytes);
	void (*free)(struct hvd *h, void *p);
	int (*copy)(struct hvd *h, void *to, const void *from, size_t bytes); /* NULL: all memory is the host's */
	bool (*on_device)(struct hvd *h, const void *p);
	int (*run)(struct hvd *h, const struct op *op);
	/* Where not NULL, buckets are ordered by the device instead of the communication thread: one bucket; all of a step. */
	int (*post)(struct hvd *h, const struct op *op);
	int (*join)(struct hvd *h);
	double (*exposed)(struct hvd *h); /* seconds that the device waited in the last join that it is through with */
	/* A rank is lost and the stop word says so (in the watching thread, so it does not wait; may be NULL): whatever runs on a device must end. */
	void (*stop)(struct hvd *h);
	void (*look)(struct hvd *h); /* the same thread, at every sign of life; may be NULL */
	/* h->mesh is a new one, of the survivors. After a failure it can be tried again. */
	int (*recover)(struct hvd *h);
};

extern const struct backend backend_single, backend_cpu, backend_nccl;

/* NCCL's version if a GPU, its driver and NCCL are there, and in `gpu` that GPU's PCI address, "": not known; otherwise 0, and `why` says what is not. */
int nccl_usable(char why[WHY_BYTES], char gpu[16]);

/* Collective: takes NCCL when every rank has a GPU and a driver, stays with host memory when none has. */
int choose_backend(struct hvd *h);

#endif
