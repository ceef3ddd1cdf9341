/* SPDX-License-Identifier: Apache-2.0
 *
 * libhvd: collectives for a job step, without mpirun.
 *
 * A program started by `srun --hvd` calls hvd_init() and is a rank of a world that has the size of the
 * step. PMIx is used only to find the other ranks and is finalised before hvd_init() returns; from then
 * on the ranks talk over an authenticated mesh of their own (Unix sockets in a node, TCP between nodes), and reduce over
 * shared memory and TCP (CPU back end) or NCCL.
 *
 * Every call returns 0 (or a request number >= 0) on success and a negative HVD_E… on failure;
 * hvd_error() then says which rank, which call and for how long. No call blocks for ever: a rank that
 * died or stopped is named within the deadline. One thread uses a handle at a time.
 */
#ifndef HVD_H
#define HVD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

enum hvd_status {
	HVD_OK = 0,
	HVD_EINVAL = -1,    /* an argument is wrong */
	HVD_EBOOT = -2,     /* the world could not be formed (no PMIx, a rank is missing, versions differ) */
	HVD_EPEER = -3,     /* a rank died, left without hvd_close(), or passed the deadline */
	HVD_ESYS = -4,      /* a system call failed */
	HVD_EMISMATCH = -5, /* ranks disagree (calls, plan, sizes, back end) */
	HVD_EBACKEND = -6   /* NCCL or CUDA failed */
};

enum hvd_type { HVD_F32, HVD_F64, HVD_F16, HVD_BF16, HVD_I32, HVD_I64, HVD_U8, HVD_U64 };
enum hvd_op { HVD_SUM, HVD_AVG, HVD_MIN, HVD_MAX };

struct hvd;      /* a rank's end of the world */
struct hvd_plan; /* gradients cut into buckets, agreed by all ranks */

struct hvd_world {
	int rank, size;             /* 0 <= rank < size */
	int local_rank, local_size; /* among the ranks of this node */
	int node, nodes;            /* nodes are numbered in the order of their lowest rank */
	unsigned epoch;             /* grows each time survivors go on without a dead rank */
	const char *backend;        /* "single", "cpu" or "nccl" */
};

/* What hvd_init() takes; hvd_conf_default() fills it from HVD_* in the environment, some of which srun --hvd sets. Strings are read until hvd_close(). */
struct hvd_conf {
	size_t size;              /* sizeof(struct hvd_conf) */
	const char *backend;      /* HVD_BACKEND: "auto" (default), "cpu", "nccl" */
	const char *interface;    /* HVD_IFACE: network interface of the mesh; NULL: the first that is up and not loopback */
	const char *trace;        /* HVD_TRACE: directory for trace records; NULL: none */
	double deadline;          /* HVD_DEADLINE, seconds until a silent rank counts as lost; default 60 */
	int on_death;             /* HVD_ON_DEATH: 0 abort (default), 1 continue */
	int wire;                 /* HVD_WIRE: HVD_F32 (default), or HVD_BF16: gradients of a plan travel as bf16 (CPU back end) */
	const char *plan;         /* HVD_PLAN: file of the first plan's cut into buckets: taken if it is there, written if not (other plans and sub-worlds do neither); NULL: none */
	int sync;                 /* HVD_SYNC: 1: wait for the device after every collective, to find which one fails */
	void *stream;             /* cudaStream_t that collectives on device memory are ordered with; NULL: one of libhvd's, see hvd_stream() */
	/* on_death abort: called once, from the watching thread, with the line that names the lost rank, before the device is told to stop. NULL: the line
	 * goes to stderr and the process ends at once with _exit(70), whatever its other threads are doing. Calls that fail of the loss wait
	 * for it, 6 s longer than a deadline at most, and on a sub-world up to 3 s more. */
	void (*on_lost)(void *arg, const char *line);
	void *on_lost_arg;
};

/* The defaults and what the environment says. Returns HVD_EINVAL with the reason in `why` (256 bytes) for an unusable value. */
HVD_API int hvd_conf_default(struct hvd_conf *conf, char why[256]);

/* Forms the world; collective. A process that is not in a job step is a world of one. Once a world is closed, another can be formed, by the
 * same process or by the next program of the step. On failure *h is
 * still valid for hvd_error() and hvd_close(). conf NULL: hvd_conf_default(). Of standard input, output and error, those that are closed lead to
 * /dev/null from then on. */
HVD_API int hvd_init(struct hvd **h, const struct hvd_conf *conf);

/* Says goodbye to the other ranks and frees everything; collective unless a rank is lost. h may be NULL. Before, plans are closed
 * and memory of hvd_alloc() is freed. */
HVD_API int hvd_close(struct hvd *h);

HVD_API const struct hvd_world *hvd_world(const struct hvd *h);

/* Node name (as PMIx knows it) of a rank; owned by h. NULL: there is no such rank. */
HVD_API const char *hvd_host(const struct hvd *h, int rank);

/* One line about the last failure on this handle: rank, host, call, time. Never NULL. Who is lost, and whose collectives differ, is called by
 * the number of the start, also after hvd_recover(); hvd_lost() and lines about plans have those of the world as it is now. */
HVD_API const char *hvd_error(const struct hvd *h);

/* The lost rank that this one noticed first, after HVD_EPEER, or -1. */
HVD_API int hvd_lost(const struct hvd *h);

/* After HVD_EPEER, with on_death continue: the survivors agree on who is left and become a smaller world, with new ranks
 * and a higher epoch. Collective among them. Memory of hvd_alloc() and plans stay, as this rank left them: ranks may
 * be one step apart, so the caller takes parameters and optimiser state from the rank that got furthest, all of them or (where
 * that rank is lost meanwhile) none, and repeats the step that failed. What another rank has freed, or did not get, is memory like any other.
 * Requests of before are none any more (HVD_EINVAL). HVD_EBOOT: this rank was given up by the others, or too few are left to be sure that
 * nobody else goes on. Where this rank alone cannot recover, as with HVD_EBACKEND, the others go on without it. Steps that are to survive a death
 * need `srun --kill-on-bad-exit=0 --no-kill`, which --hvd=on_death=continue sets. */
HVD_API int hvd_recover(struct hvd *h);

/* The cudaStream_t that collectives on device memory are ordered with: conf.stream, or the one that libhvd made. The program computes on
 * it. NULL where collectives are on host memory only. It may be captured: buckets become part of the graph. NCCL ends no communicator before the
 * last graph that holds its collectives: destroy them before hvd_close() and hvd_recover(). */
HVD_API void *hvd_stream(const struct hvd *h);

/* A word that becomes 1 when a rank is lost, before collectives on the device are broken off, and 0 again in hvd_recover(): a kernel
 * that writes weights reads it first and, if it is set, does nothing. Host memory that the device can read. No graph that holds collectives is
 * launched while it is set: they would never end. */
HVD_API const uint32_t *hvd_stop_word(const struct hvd *h);

/* Sub-worlds: ranks that give the same color (0 or more) become a world of their own, in the order of their ranks. Collective.
 * HVD_SPLIT_NODE: the ranks of each node; HVD_SPLIT_ACROSS: those with the same local rank; HVD_SPLIT_NONE: in none, *out is NULL.
 * All ranks split by color, all by node, or all across nodes (HVD_EMISMATCH). Every call works on it but hvd_recover(): after a death close it, recover the world it came from, and split that again.
 * Where one of its ranks cannot do its part, a sub-world fails on all at once, with the line that says which and why, and none is lost.
 * A rank that dies in hvd_split() or in the sub-world is lost to this world (HVD_EPEER); one that only closes the sub-world early is not, and there
 * is nothing to recover. A world is closed after its sub-worlds (HVD_EINVAL). */
enum { HVD_SPLIT_NONE = -1, HVD_SPLIT_NODE = -2, HVD_SPLIT_ACROSS = -3 };
HVD_API int hvd_split(struct hvd *h, int color, struct hvd **out);

/* Memory that collectives use without a copy: shared with the node's ranks, or, where hvd_stream() is not NULL, the device's, registered with NCCL.
 * Zeroed, 64-byte aligned. Collective: all ranks allocate the same sizes in the same order. hvd_free() waits until
 * the device is through with what hvd_stream() and buckets hold, or keeps it until hvd_close() where it cannot wait. */
HVD_API void *hvd_alloc(struct hvd *h, size_t bytes);
HVD_API void hvd_free(struct hvd *h, void *p);
/* Copies between that memory and the program's own, whichever of both is the device's, after all that hvd_stream() holds, and waits for it. */
HVD_API int hvd_copy(struct hvd *h, void *to, const void *from, size_t bytes);

/* Collectives over n elements; in and out may be equal (in device memory: of hvd_allreduce() only), do not overlap otherwise, and are both in host memory or both in the
 * device's. A NaN of any rank is the least and the most on host memory. Where hvd_allreduce() has in == out in memory of hvd_alloc(), it has so on all ranks, at the same place. HVD_AVG is of floating-point numbers. Sums run in rank order, so equal inputs give equal
 * bits on every rank, every run and every back end of the CPU. Under "nccl", device memory is ordered with conf.stream
 * (the call returns before the device is through), and host memory goes through the CPU. */
HVD_API int hvd_allreduce(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op);
HVD_API int hvd_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root);
/* out: [size][n], rank by rank. */
HVD_API int hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
/* Blocks of unequal size: n[size] elements, the same on every rank (host memory: compared); out: block after block. */
HVD_API int hvd_allgatherv(struct hvd *h, const void *in, void *out, const size_t *n, enum hvd_type type);
/* in: [size][n]; out: [n], this rank's block of the result. */
HVD_API int hvd_reduce_scatter(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op);
/* in, out: [size][n]; block i of rank j becomes block j of rank i. Host memory: every link carries all blocks. */
HVD_API int hvd_alltoall(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
HVD_API int hvd_barrier(struct hvd *h);

/* The same without waiting: they return a request number (>= 0) and run in the order of the calls; buffers belong to the
 * runtime until the request is through. hvd_test(): 1 if it is, else 0. HVD_EINVAL: a number that none returned. A failure of one is a failure of all after it. */
HVD_API long hvd_start_allreduce(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type, enum hvd_op op);
HVD_API long hvd_start_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root);
HVD_API long hvd_start_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
HVD_API int hvd_test(struct hvd *h, long request);
HVD_API int hvd_wait(struct hvd *h, long request);

/* ---- gradients ----------------------------------------------------------------------------------
 * Gradients are declared once, in the order in which the backward pass finishes them, and live in one
 * slab of fp32 that the runtime allocates; buckets are ranges of that slab. Per step: hvd_plan_ready()
 * for each gradient as it is written, hvd_plan_finish() before the update. Each bucket is averaged over
 * all ranks, in place, while the backward pass goes on. No message, copy or allocation is added. */
struct hvd_tensor {
	const char *name;
	size_t count; /* floats, padding included */
};

/* Collective. Ranks must declare the same tensors: otherwise HVD_EMISMATCH names the first rank that differs. HVD_ESYS: one lacks memory, as the line
 * of all says; no call on this world works after that. On failure *p is NULL, which of the calls below hvd_plan_close() alone takes.
 * bucket_bytes 0: buckets of 2 MiB, a last tensor named "statistics" alone; after seven steps, on the CPU, the cut that hides
 * most communication by the measured ready times and the measured cost of an all-reduce. It stays until hvd_recover(), after which it is
 * measured anew. A cut that was asked for, or measured before any rank was lost, goes to the file conf.plan, if there is one: a run that
 * finds it there takes it from the first step to the last. */
HVD_API int hvd_plan_open(struct hvd *h, struct hvd_plan **p, const struct hvd_tensor *tensors, int n, size_t bucket_bytes);
/* [sum of counts] floats, tensor after tensor; owned by the plan. */
HVD_API float *hvd_plan_slab(const struct hvd_plan *p);
/* Gradient i of this step is in the slab. Each i once a step, in ascending order. Never waits for other ranks, but with NCCL until the
 * bucket has begun, and for what hvd_start_…() began up to the last request on device memory, so that all ranks keep one order. */
HVD_API int hvd_plan_ready(struct hvd_plan *p, int i);
/* Waits until every bucket of this step holds the mean over all ranks. Where the cut is measured, the seventh call that communicates, counted
 * anew in a recovered world, is itself a collective: all ranks make it at the same place among their other calls. */
HVD_API int hvd_plan_finish(struct hvd_plan *p);
/* Gradient accumulation: from the next step on, only every k-th pass over ready and finish communicates; in the others the caller
 * adds to what is in the slab. The mean is over ranks, not over passes. Collective. */
HVD_API int hvd_plan_accumulate(struct hvd_plan *p, int k);
HVD_API int hvd_plan_buckets(const struct hvd_plan *p);
/* Seconds hvd_plan_finish() waited in the last step (communication that the backward pass did not hide). With NCCL: seconds that the device
 * waited, in the last step that it is through with, by hvd_plan_finish() or in a graph. */
HVD_API double hvd_plan_exposed(const struct hvd_plan *p);
HVD_API void hvd_plan_close(struct hvd_plan *p);

/* ---- trace ---------------------------------------------------------------------------------------
 * With conf.trace each rank records what it does in a file of its own, which hvd-trace merges. Steps are those of one plan: of two
 * that take turns, hvd-trace would take both for one. A span of the program's own
 * ends now and began at `since`, which an earlier call returned (a call with name NULL only returns the time):
 *     double t = hvd_mark(h, NULL, 0);
 *     … read images …      t = hvd_mark(h, "input", t);
 *     … forward pass …     t = hvd_mark(h, "forward", t);
 * A name of up to 31 bytes; 63 names. hvd-trace counts "input" as waiting for data, "validation" and "checkpoint" as no part of a step. */
HVD_API double hvd_mark(struct hvd *h, const char *name, double since);

#ifdef __cplusplus
}
#endif
#endif
