/* SPDX-License-Identifier: Apache-2.0 */
#include "data/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The first number of a file; -1: there is none ("max", or no such file). */
static long long number_in(const char *directory, const char *name)
{
	char path[PATH_MAX + 64];
	long long value = -1;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *f = fopen(path, "r");
	if (!f)
		return -1;
	if (fscanf(f, "%lld", &value) != 1)
		value = -1;
	fclose(f);
	return value;
}

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

/* The files of a version of cgroups, and the lines of its memory.stat that tell the pages of files, of all groups below. */
struct version {
	const char *root, *limit, *used, *files[2];
};

static const struct version version_1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
					  { "total_inactive_file %lld", "total_active_file %lld" } };
static const struct version version_2 = { "/sys/fs/cgroup", "memory.max", "memory.current", { "inactive_file %lld", "active_file %lld" } };

/* What a group has in use and keeps. Pages of files count as used, and go when memory is asked for: after a preparation of ten gigabytes in the
 * same job they fill any limit. */
static long long held_in(const char *directory, const struct version *v)
{
	char stat[PATH_MAX + 64];
	long long used = number_in(directory, v->used);

	snprintf(stat, sizeof stat, "%s/memory.stat", directory);
	used -= line_in(stat, v->files[0]) + line_in(stat, v->files[1]);
	return used > 0 ? used : 0;
}

/* A limit of any group from `path` up to the root holds: what it leaves, where that is less. */
static long long least_left(const struct version *v, const char *path, long long least)
{
	char directory[PATH_MAX];

	snprintf(directory, sizeof directory, "%s%s", v->root, path);
	for (;;) {
		long long limit = number_in(directory, v->limit), held = limit >= 0 ? held_in(directory, v) : 0;

		if (limit >= 0 && limit - held < least)
			least = limit - held;
		if (strlen(directory) <= strlen(v->root))
			return least;
		*strrchr(directory, '/') = '\0';
	}
}

/* "cpu,memory" has "memory". */
static int has_word(char *list, const char *word)
{
	char *rest = list;

	for (char *w; (w = strsep(&rest, ","));)
		if (strcmp(w, word) == 0)
			return 1;
	return 0;
}

size_t memory_available(size_t promised, int processes)
{
	char line[PATH_MAX - 64];
	long long machine = 1024 * line_in("/proc/meminfo", "MemAvailable: %lld kB"), least = machine, space = address_space_left();
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f)) { /* ID:CONTROLLERS:PATH, of version 2 without controllers */
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path || path[1] != '/')
			continue;
		*controllers++ = *path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (*controllers == '\0')
			least = least_left(&version_2, path, least);
		else if (has_word(controllers, "memory"))
			least = least_left(&version_1, path, least);
	}
	if (f)
		fclose(f);
	if (!machine)
		return 0;
	least = least / processes - (promised < LLONG_MAX / 2 ? (long long)promised : LLONG_MAX / 2);
	if (space < least)
		least = space;
	return least > 1 ? (size_t)least : 1;
}
