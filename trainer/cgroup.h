/* SPDX-License-Identifier: Apache-2.0
 * Limits that control groups around this process set: of a job, a service, a container. */
#ifndef CGROUP_H
#define CGROUP_H

#include <stdint.h>

enum cgroup_version { CGROUP_V1, CGROUP_V2 };

/* Calls `use` for each group around this process that `controller` ("memory", "cpu") may limit, from its own to the root: `directory` has its files. */
void cgroup_each(const char *controller, void (*use)(void *arg, const char *directory, enum cgroup_version v), void *arg);

/* The first number of a file in there; -1: there is none ("max", or no such file). */
long long cgroup_number(const char *directory, const char *name);

/* CPUs' worth of time that the least quota of these groups leaves (cpu.max, cpu.cfs_quota_us), as of docker --cpus=2.5; 0: there is no quota. *group: the
 * number of the group that has it, in whatever container it is asked for. */
double cgroup_cpus(uint64_t *group);

#endif
