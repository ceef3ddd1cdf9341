/* SPDX-License-Identifier: Apache-2.0
 * Sets of small numbers (CPUs, cores, NUMA nodes) and their text form, "0-3,8,10-11". */
#ifndef SPANK_CPULIST_H
#define SPANK_CPULIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CPUSET_MAX = 4096, /* first number that does not fit; the kernel's own limit is 8192, machines have at most ~2000 */
	CPUSET_WORDS = CPUSET_MAX / 64,
	CPULIST_TEXT = 8192, /* room for the text of any set a machine has; longer ones end in "…" */
};

struct cpuset {
	uint64_t word[CPUSET_WORDS];
};

static inline void cpuset_add(struct cpuset *s, int n)
{
	s->word[n / 64] |= UINT64_C(1) << (n % 64);
}

static inline bool cpuset_has(const struct cpuset *s, int n)
{
	return n >= 0 && n < CPUSET_MAX && (s->word[n / 64] >> (n % 64) & 1);
}

/* a ∩ b */
struct cpuset cpuset_and(const struct cpuset *a, const struct cpuset *b);
/* a ∪ b */
struct cpuset cpuset_or(const struct cpuset *a, const struct cpuset *b);
int cpuset_count(const struct cpuset *s);
bool cpuset_empty(const struct cpuset *s);
bool cpuset_equal(const struct cpuset *a, const struct cpuset *b);
bool cpuset_intersects(const struct cpuset *a, const struct cpuset *b);
/* true if every member of a is in b */
bool cpuset_within(const struct cpuset *a, const struct cpuset *b);
/* The smallest member that is ≥ from; -1 when there is none. */
int cpuset_next(const struct cpuset *s, int from);

/* Reads "0-3,8" (spaces and a closing newline allowed, ranges may carry a stride "0-6:2" as the kernel prints them).
 * Returns 0, or -1 for anything else; the set is then empty. The empty text is the empty set. */
int cpulist_parse(const char *text, struct cpuset *out);

/* Writes the list form, always terminated; returns buf. */
char *cpulist_print(const struct cpuset *s, char *buf, size_t size);

#endif
