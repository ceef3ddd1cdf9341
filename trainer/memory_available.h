/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take. */
#ifndef MEMORY_AVAILABLE_H
#define MEMORY_AVAILABLE_H

#include <stddef.h>

/* Bytes for each of so many processes of a job on the machine: a share of what that has available (MemAvailable, but for NUMA nodes without CPUs,
 * such as those of coherent GPUs), or of less where a cgroup around this process sets a limit, or where Slurm says by a hard RLIMIT_RSS what the
 * step's processes have on this node, or what RLIMIT_AS, which each process has of its own, leaves; pages of files, which the kernel gives up when
 * asked, are there to be taken. `promised` bytes are taken off: each process has allocated and not written them yet, so that the kernel still counts
 * them as free. 0: cannot be told; 1: nothing is left. */
size_t memory_available(size_t promised, int processes);

#endif
