/* SPDX-License-Identifier: Apache-2.0
 * Which GPUs, CPUs, memory and NIC each task of a node gets. A pure function: (struct node, struct request) →
 * struct plan. It knows no hwloc, no Slurm, no environment and does no I/O.
 *
 * Distance of a set of CPUs from a GPU: 0 a CPU of the GPU's NUMA node (and package) is in it,
 * 1 a CPU of its package, 2 neither.
 * The plan has the smallest total distance that is possible when every GPU carries the same number of tasks (±1). */
#ifndef SPANK_PLACEMENT_H
#define SPANK_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "cpulist.h"

enum {
	NODE_MAX_PACKAGES = 64,
	NODE_MAX_NUMA = 256,
	NODE_MAX_GPUS = 64,
	NODE_MAX_NICS = 64,
	NODE_MAX_BRIDGES = 8,  /* PCI bridges between a device and the CPU that are remembered */
	STEP_MAX_DEVICES = 512, /* GPUs of a step on one node; a GPU in MIG mode counts once per instance */
	TASK_MAX_DEVICES = 64,
};

/* One hardware thread. */
struct pu {
	int cpu;  /* the kernel's number */
	int core; /* index of its core in the node: package by package, as hwloc and Slurm count cores */
};

struct package {
	int id; /* the kernel's number */
	struct cpuset cpus;
};

struct numa_node {
	int id;             /* the kernel's number: what set_mempolicy wants */
	struct cpuset cpus; /* those it is the main memory of; empty for HBM, CXL and a GPU's own memory */
};

/* Where a PCI device sits. */
struct locality {
	char pci[16];       /* "0000:15:00.0" */
	uint64_t order;     /* domain, bus, device, function as one number: bus order */
	struct cpuset cpus; /* CPUs next to it; all CPUs where the machine does not say */
	int package;        /* index into node.packages, -1 unknown */
	int numa;           /* index into node.numa, -1 unknown */
	int bridges;        /* entries used in bridge[] */
	int bridge[NODE_MAX_BRIDGES]; /* numbers of the PCI bridges above it, the host bridge first */
};

struct gpu {
	struct locality at;
	char uuid[48];  /* "GPU-…"; empty: unknown */
	char model[48]; /* empty: unknown */
	int minor;      /* N of /dev/nvidiaN; -1 unknown */
	bool divided;   /* MIG instances are cut from it */
};

struct nic {
	struct locality at;
	char name[32]; /* "mlx5_0" */
	int port;      /* the first with a link; 0 where the system says that none has one, 1 where it says nothing */
};

struct node {
	int pus, cores, packages, numas, gpus, nics;
	struct pu pu[CPUSET_MAX]; /* [pus], ordered by core, then by hardware thread */
	struct package package[NODE_MAX_PACKAGES];
	struct numa_node numa[NODE_MAX_NUMA];
	struct gpu gpu[NODE_MAX_GPUS];
	struct nic nic[NODE_MAX_NICS];
	struct cpuset allowed; /* CPUs that the operating system lets anybody use */
};

enum policy { POLICY_SOCKET, POLICY_NUMA, POLICY_GPU, POLICY_NONE };
enum order { ORDER_SPREAD, ORDER_PACK, ORDER_INTERLEAVE };

struct request {
	int tasks;                      /* of this node, ≥ 1 */
	enum policy policy;
	enum order order;
	bool no_smt;                    /* one hardware thread of each core */
	bool share;                     /* more tasks than GPUs are allowed */
	int gpus_per_task;              /* ≥ 1 */
	int devices;                    /* GPUs of the step on this node */
	int device[STEP_MAX_DEVICES];   /* [devices] index into node.gpu; -1: a GPU of unknown place */
	const char *instance[STEP_MAX_DEVICES]; /* [devices] "MIG-…" where a part of a GPU is meant; NULL: a whole one. The caller's */
	struct cpuset allowed;          /* CPUs of the step */
	struct cpuset job;              /* CPUs of its whole job here, for advice only; empty: not known */
	bool cpus_by_task;              /* the job's CPUs came with tasks (-c), for advice only */
	const struct cpuset *fixed;     /* [tasks] masks that must stay as they are; NULL: the plan chooses */
	const struct cpuset *found;     /* [tasks] masks that POLICY_NONE leaves, and deals GPUs by; NULL: they are not known */
};

struct task_plan {
	int devices;                  /* entries used in device[] */
	int device[TASK_MAX_DEVICES]; /* indices into request.device */
	struct cpuset cpus;           /* its mask; empty with POLICY_NONE */
	struct cpuset numa;           /* NUMA nodes (kernel's numbers) whose memory is preferred */
	double cores;                 /* its share: one that k tasks may use counts 1/k */
	int threads;                  /* compute threads that this carries, ≥ 1 */
	int nic;                      /* index into node.nic, -1 none */
	int distance;                 /* of its CPUs from its farthest GPU; -1 without a GPU */
};

struct plan {
	int tasks;
	struct task_plan *task;       /* [tasks] by local rank */
	struct cpuset idle;           /* indices into request.device that no task uses */
	char refusal[256];            /* why there is no plan, with the numbers and the cure */
};

/* Fills *plan, which plan_free() releases. Returns 0; or -1 with plan.refusal set and no tasks.
 * The answer does not depend on the order of node.gpu, node.nic or request.device. */
int place_tasks(const struct node *node, const struct request *request, struct plan *plan);
void plan_free(struct plan *plan);

#endif
