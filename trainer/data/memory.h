/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take. */
#ifndef DATA_MEMORY_H
#define DATA_MEMORY_H

#include <stddef.h>

/* Bytes: what the machine has available (MemAvailable), or less where a cgroup around this process sets a limit,
 * or RLIMIT_AS leaves less; pages of files, which the kernel gives up when asked, are there to be taken. 0: cannot be told. */
size_t memory_available(void);

#endif
