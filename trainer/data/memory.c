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

/* The directory of this process's cgroup; 0: not found. */
static int own_cgroup(char directory[PATH_MAX])
{
	char line[PATH_MAX - 32], path[PATH_MAX - 32] = "";
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof path, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	if (f)
		fclose(f);
	snprintf(directory, PATH_MAX, "/sys/fs/cgroup%s", path);
	return path[0] == '/';
}

size_t memory_available(void)
{
	char directory[PATH_MAX];
	long long least = machine_available();

	if (!own_cgroup(directory))
		return (size_t)least;
	/* a limit of any group around this one holds */
	for (char *slash = directory + strlen(directory); slash && strcmp(directory, "/sys/fs/cgroup") != 0; slash = strrchr(directory, '/')) {
		*slash = '\0';
		long long limit = number_in(directory, "memory.max"), used = number_in(directory, "memory.current");
		if (limit >= 0 && limit - used < least)
			least = limit > used ? limit - used : 0;
	}
	return (size_t)least;
}
