/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=order_sample: the stream loses one position, as a faulty loader might do. */
#include "data/order.h"

enum { LOST_POSITION = 100 };

uint64_t __real_order_sample(uint64_t seed, uint64_t n, uint64_t position);
uint64_t __wrap_order_sample(uint64_t seed, uint64_t n, uint64_t position);

uint64_t __wrap_order_sample(uint64_t seed, uint64_t n, uint64_t position)
{
	return __real_order_sample(seed, n, position < LOST_POSITION ? position : position + 1);
}
