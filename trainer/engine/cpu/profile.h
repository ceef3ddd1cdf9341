/* SPDX-License-Identifier: Apache-2.0
 * Where a step's time goes, by kind of work. Off (and then free) unless a benchmark sets cpu_engine.profile. */
#ifndef CPU_PROFILE_H
#define CPU_PROFILE_H

#include <stdint.h>
#include <time.h>

enum work_class {
	WORK_FORWARD,     /* multiplications of convolutions: forward, */
	WORK_DATA,        /* data gradients, */
	WORK_WEIGHTS,     /* weight gradients */
	WORK_BN,          /* BN, ReLU, concatenation, sums of gradients: every pass over activations that is no multiplication */
	WORK_POOL,        /* maximum and mean pools, with the BN that is fused into them */
	WORK_REORDER,     /* weights and their gradients to and from the order of the multiplications */
	WORK_OTHER,       /* input, classifier, loss, optimiser */
	N_WORK
};

/* One thread's ticks; 64 bytes, so that no two threads write to one cache line. */
struct cpu_profile {
	uint64_t ticks[8];
};

_Static_assert(N_WORK <= 8, "a thread's ticks fill one cache line");

/* A clock that costs about 10 ns. Its unit is for the reader to find out: only shares are meant. */
static inline uint64_t cpu_ticks(void)
{
#if defined __x86_64__
	return __builtin_ia32_rdtsc();
#else
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* Starts a stretch of work. */
static inline uint64_t profile_start(const struct cpu_profile *profile)
{
	return profile ? cpu_ticks() : 0;
}

/* Ends a stretch that began at `since`, and starts the next. */
static inline uint64_t profile_add(struct cpu_profile *profile, int worker, enum work_class kind, uint64_t since)
{
	if (!profile)
		return 0;
	uint64_t t = cpu_ticks();
	profile[worker].ticks[kind] += t - since;
	return t;
}

/* The same for work of one thread while the others wait: it holds up all of them. */
static inline void profile_add_serial(struct cpu_profile *profile, int threads, enum work_class kind, uint64_t since)
{
	for (int i = 0; profile && i < threads; i++)
		profile_add(profile, i, kind, since);
}

#endif
