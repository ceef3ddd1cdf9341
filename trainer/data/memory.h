/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take. */
#ifndef DATA_MEMORY_H
#define DATA_MEMORY_H

#include <stddef.h>

/* Bytes: what the machine has available (MemAvailable), or less where a cgroup around this process sets a limit,
 * or RLIMIT_AS leaves less; pages of files, which the kernel gives up when asked, are there to be taken. `promised` bytes are taken off:
 * allocated, here or by others of this job on the machine, and not written yet, so that the kernel still counts them as free.
 * 0: cannot be told; 1: nothing is left. */
size_t memory_available(size_t promised);

#endif
