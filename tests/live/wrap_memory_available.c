/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=memory_available: a machine of $TEST_MEMORY bytes, whose kernel counts as free what was only allocated; 0: it does not say. */
#include "memory_available.h"

#include <stdlib.h>

size_t __wrap_memory_available(size_t promised, int processes);

size_t __wrap_memory_available(size_t promised, int processes)
{
	const size_t all = strtoull(getenv("TEST_MEMORY"), NULL, 10) / (size_t)processes;

	return promised < all ? all - promised : all > 0;
}
