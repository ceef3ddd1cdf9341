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

/* A line like "MemAvailable:  123 kB" of a file, in bytes; 0: there is none. */
static long long kib_in(const char *path, const char *format)
{
	char line[256];
	long long kib = 0;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, format, &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

/* What the machine has, or what `ulimit -v` leaves of the address space. */
static long long machine_available(void)
{
	long long available = kib_in("/proc/meminfo", "MemAvailable: %lld kB"), left;
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return available;
	left = (long long)limit.rlim_cur - kib_in("/proc/self/status", "VmSize: %lld kB");
	return left < available ? (left > 1 ? left : 1) : available;
}

/* A limit of any group from `path` up to `root` holds: what it leaves, where that is less. */
static long long least_left(const char *root, const char *path, const char *limit_name, const char *used_name, long long least)
{
	char directory[PATH_MAX];

	snprintf(directory, sizeof directory, "%s%s", root, path);
	for (;;) {
		long long limit = number_in(directory, limit_name), used = number_in(directory, used_name);

		if (limit >= 0 && limit - used < least)
			least = limit > used ? limit - used : 0;
		if (strlen(directory) <= strlen(root))
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

size_t memory_available(void)
{
	char line[PATH_MAX - 64];
	long long least = machine_available();
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f)) { /* ID:CONTROLLERS:PATH, of version 2 without controllers */
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path || path[1] != '/')
			continue;
		*controllers++ = *path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (*controllers == '\0')
			least = least_left("/sys/fs/cgroup", path, "memory.max", "memory.current", least);
		else if (has_word(controllers, "memory"))
			least = least_left("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", least);
	}
	if (f)
		fclose(f);
	return (size_t)least;
}
