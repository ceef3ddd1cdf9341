/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_available.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "cgroup.h"

/* The number in a line like "MemAvailable:  123 kB" of a file; 0: there is none. */
static long long line_in(const char *path, const char *format)
{
	char line[256];
	long long value = 0;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, format, &value) == 1)
			break;
	if (f)
		fclose(f);
	return value;
}

/* What `ulimit -v` leaves of the address space, in which everything that was allocated has its place. */
static long long address_space_left(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return LLONG_MAX;
	return (long long)limit.rlim_cur - 1024 * line_in("/proc/self/status", "VmSize: %lld kB");
}

#define NODES "/sys/devices/system/node/"

/* Bytes that are free on a NUMA node, or hold pages of files, where it has no CPU. */
static long long beside_processors(long node)
{
	static const char *const lines[] = { "Node %*d MemFree: %lld kB", "Node %*d Active(file): %lld kB", "Node %*d Inactive(file): %lld kB" };
	char path[64];
	long long sum = 0;

	snprintf(path, sizeof path, NODES "node%ld/cpulist", node);
	FILE *f = fopen(path, "r");
	int first = f ? fgetc(f) : EOF;
	if (f)
		fclose(f);
	snprintf(path, sizeof path, NODES "node%ld/meminfo", node);
	for (size_t i = 0; first == '\n' && i < sizeof lines / sizeof lines[0]; i++)
		sum += 1024 * line_in(path, lines[i]);
	return sum;
}

/* What the kernel counts as available, but for memory on NUMA nodes without CPUs: on Grace that is the GPUs' own, which fills when the processors' is full. */
static long long machine_available(void)
{
	char list[512] = "";
	long long bytes = 1024 * line_in("/proc/meminfo", "MemAvailable: %lld kB");
	FILE *f = fopen(NODES "has_memory", "r");

	for (char *p = f ? fgets(list, sizeof list, f) : NULL; bytes && p && isdigit((unsigned char)*p); p += *p == ',') {
		long first = strtol(p, &p, 10), last = *p == '-' ? strtol(p + 1, &p, 10) : first;
		for (long node = first; node <= last; node++)
			bytes -= beside_processors(node);
	}
	if (f)
		fclose(f);
	return bytes;
}

/* What Slurm gives all of the step's processes on this node: their hard `ulimit -m`, which the kernel does not hold them to, and a slurmd with OverMemoryKill
 * does. Here each one's share, less what it has. */
static long long share_of_step(int processes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_RSS, &limit) || limit.rlim_max == RLIM_INFINITY)
		return LLONG_MAX;
	return (long long)limit.rlim_max / processes - 1024 * line_in("/proc/self/status", "VmRSS: %lld kB");
}

/* The files of a version of cgroups, and the lines of its memory.stat that tell the pages of files, of all groups below. */
static const struct files {
	const char *limit, *used, *files[2];
} files_of[] = {
	[CGROUP_V1] = { "memory.limit_in_bytes", "memory.usage_in_bytes", { "total_inactive_file %lld", "total_active_file %lld" } },
	[CGROUP_V2] = { "memory.max", "memory.current", { "inactive_file %lld", "active_file %lld" } },
};

/* What a group has in use and keeps. Pages of files count as used, and go when memory is asked for: after a preparation of ten gigabytes in the
 * same job they fill any limit. */
static long long held_in(const char *directory, const struct files *v)
{
	char stat[PATH_MAX + 64];
	long long used = cgroup_number(directory, v->used);

	snprintf(stat, sizeof stat, "%s/memory.stat", directory);
	used -= line_in(stat, v->files[0]) + line_in(stat, v->files[1]);
	return used > 0 ? used : 0;
}

/* A limit of any group holds: what it leaves, where that is less than *arg. */
static void take_least(void *arg, const char *directory, enum cgroup_version version)
{
	const struct files *v = &files_of[version];
	long long *least = arg, limit = cgroup_number(directory, v->limit), held = limit >= 0 ? held_in(directory, v) : 0;

	if (limit >= 0 && limit - held < *least)
		*least = limit - held;
}

size_t memory_available(size_t promised, int processes)
{
	long long machine = machine_available(), least = machine, share = share_of_step(processes), space = address_space_left();

	cgroup_each("memory", take_least, &least);
	if (!machine)
		return 0;
	least /= processes;
	if (share < least)
		least = share;
	least -= promised < LLONG_MAX / 2 ? (long long)promised : LLONG_MAX / 2;
	if (space < least)
		least = space;
	return least > 1 ? (size_t)least : 1;
}
