/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

long long cgroup_number(const char *directory, const char *name)
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

/* "cpu,memory" has "memory". */
static int has_word(char *list, const char *word)
{
	char *rest = list;

	for (char *w; (w = strsep(&rest, ","));)
		if (strcmp(w, word) == 0)
			return 1;
	return 0;
}

void cgroup_each(const char *controller, void (*use)(void *arg, const char *directory, enum cgroup_version v), void *arg)
{
	char line[PATH_MAX - 64], root[64], directory[PATH_MAX];
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f)) { /* ID:CONTROLLERS:PATH, of version 2 without controllers */
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path || path[1] != '/')
			continue;
		*controllers++ = *path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		const enum cgroup_version v = *controllers ? CGROUP_V1 : CGROUP_V2;

		if (v == CGROUP_V1 && !has_word(controllers, controller))
			continue;
		snprintf(root, sizeof root, "/sys/fs/cgroup%s%s", v == CGROUP_V1 ? "/" : "", v == CGROUP_V1 ? controller : "");
		snprintf(directory, sizeof directory, "%s%s", root, path);
		for (;; *strrchr(directory, '/') = '\0') {
			use(arg, directory, v);
			if (strlen(directory) <= strlen(root))
				break;
		}
	}
	if (f)
		fclose(f);
}

/* The least so far; cpus 0: none. */
struct quota {
	double cpus;
	uint64_t group;
};

static void take_quota(void *arg, const char *directory, enum cgroup_version v)
{
	char path[PATH_MAX + 64];
	long long quota = -1, period = -1;
	struct quota *least = arg;
	struct stat st;

	if (v == CGROUP_V1) {
		quota = cgroup_number(directory, "cpu.cfs_quota_us");
		period = cgroup_number(directory, "cpu.cfs_period_us");
	} else {
		snprintf(path, sizeof path, "%s/cpu.max", directory);
		FILE *f = fopen(path, "r");
		if (f && fscanf(f, "%lld %lld", &quota, &period) != 2)
			quota = -1;
		if (f)
			fclose(f);
	}
	if (quota > 0 && period > 0 && (least->cpus == 0 || (double)quota / (double)period < least->cpus))
		*least = (struct quota){ (double)quota / (double)period, stat(directory, &st) == 0 ? st.st_ino : 0 };
}

double cgroup_cpus(uint64_t *group)
{
	struct quota least = { 0 };

	cgroup_each("cpu", take_quota, &least);
	*group = least.group;
	return least.cpus;
}
