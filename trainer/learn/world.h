/* SPDX-License-Identifier: Apache-2.0
 * The trainer's end of libhvd: one world for a command, agreement on errors, and who sits where. */
#ifndef LEARN_WORLD_H
#define LEARN_WORLD_H

#include <stdio.h>

#include "error.h"
#include "hvd.h"

enum { PLACE_CPUS = 8192, PLACE_TEXT = 64 }; /* as many CPUs as a kernel can have: it gives no mask to who has room for less than its own */

/* Where a rank runs. */
struct place {
	char host[PLACE_TEXT];
	char gpu[PLACE_TEXT];             /* "MIG-…", else PCI id (HVD_GPU), else CUDA_VISIBLE_DEVICES, else "" */
	uint64_t cpus[PLACE_CPUS / 64];   /* affinity mask at start */
	double quota;                     /* CPUs' worth of time; 0: as much as there is */
	uint64_t quota_group;             /* the node's ranks that share it say the same */
	int32_t threads;                  /* its share of the mask: HVD_THREADS, or CPUs, and a quota, shared with the node's other ranks divided */
	int32_t driver;                   /* 1: a CUDA driver answers here and shows a GPU */
};

struct world {
	struct hvd *hvd;
	const struct hvd_world *at;
	const char *command; /* for messages */
	double deadline;     /* seconds until a rank that does not come along counts as lost */
	int continues;       /* on_death=continue: survivors of a lost rank go on */
	int told;            /* the error that ends this command has been printed, here or by another rank */
	struct place *places; /* [size] */
	uint64_t *words;      /* [size], for world_agree() */
};

/* Opens the world and gathers the places; collective. EXIT_INTERNAL also where OpenMP would not find its threads. on_cpu: the engine is one that computes on the CPU, GPU or not, so gradients are in host memory, which NCCL's back end
 * does not give. */
int world_open(struct world *w, const char *command, int on_cpu, struct error *e);
void world_close(struct world *w);

/* For a command that every task of a step does for itself: a world of this process, with no libhvd in it. Only `at`, `places` and `command` are set. */
int world_alone(struct world *w, const char *command, struct error *e);

/* The first `ranks` ranks of w as a world of their own; collective over w. In *part of a rank that is not in it `at` is NULL. Its places are
 * w's. Before w is closed, or another part is made: world_first_close(), also after a failure. */
int world_first(struct world *w, int ranks, struct world *part, struct error *e);
void world_first_close(struct world *w, struct world *part);

static inline int world_speaks(const struct world *w)
{
	return w->at->rank == 0;
}

/* Turns a failed hvd_ call into an error. */
int world_fail(const struct world *w, struct error *e);

/* Collective, after every phase in which a rank may fail alone: if any rank has an error, each failed rank prints its own
 * (the same line only once) and all return the lowest failed rank's code, negative, with *e set. 0: all are well. */
int world_agree(struct world *w, struct error *e);

/* After a failed call, collective among the survivors of a lost rank: 1 when on_death=continue and they are a world again (new
 * ranks, places gathered anew, *e cleared, `lost` says who was lost); 0 when the error stands. */
int world_recover(struct world *w, char lost[512], struct error *e);

/* Prints an error that no world_agree() has printed, and returns its exit code. */
int world_end(const struct world *w, const struct error *e);

/* For an error before there is a world, like an unknown option: one line where every rank has it, not one a rank; where some have, the others
 * end with them. on_cpu: as far as the options were read. Returns the exit code. */
int world_refuse(const char *command, int on_cpu, struct error *e);

/* Collective: 0 when `value` is the same on all ranks, else an error on all: "WHAT differs between ranks: CURE". */
int world_same(struct world *w, uint64_t value, const char *what, const char *cure, struct error *e);

/* Several values in one, for world_same(). */
uint64_t world_hash(uint64_t seed, const void *data, size_t bytes);

/* The table of ranks: host, GPU, CPUs, and the threads that each was given by --threads; 0: its share. */
void world_print_places(const struct world *w, int threads, FILE *out);

/* "0-3,8" */
void cpu_list(const uint64_t cpus[PLACE_CPUS / 64], char *text, size_t size);

/* Prepared for the moment when a rank is lost: the line goes to stderr after the end of a live progress line, and as an
 * "end" event like any other to the JSON log at `fd`, with what *step, which has to stay, is then; and the process ends with EXIT_INTERNAL.
 * So does the line of a page of a mapped file that is lost (files/file.h), with EXIT_DATA.
 * -1: to no log from now on. */
void world_on_lost_log(int fd, const uint64_t *step, const char *output);

#endif
