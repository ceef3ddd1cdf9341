/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "data/random.h"

enum { ROUNDS = 8 };

/* Salts keep the uses of one seed apart. */
static const uint64_t SALT_ORDER = 0x6F72646572, SALT_AUGMENT = 0x6175676D656E74;

/* A balanced Feistel network over 2 * half bits: a bijection whatever the round function. */
static uint64_t feistel(uint64_t value, int half, uint64_t key)
{
	uint64_t mask = ((uint64_t)1 << half) - 1, left = value >> half, right = value & mask;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t next = left ^ (mix64(right + mix64(key + (uint64_t)round)) & mask);
		left = right;
		right = next;
	}
	return left << half | right;
}

uint64_t order_sample(uint64_t seed, uint64_t n, uint64_t position)
{
	if (n <= 1)
		return 0;
	uint64_t epoch = position / n, value = position % n;
	uint64_t key = mix64(mix64(seed ^ SALT_ORDER) + epoch);
	int bits = 64 - __builtin_clzll(n - 1), half = (bits + 1) / 2;

	/* The domain is less than four times n: a walk along the cycle comes back below n after four steps or so. */
	do
		value = feistel(value, half, key);
	while (value >= n);
	return value;
}

struct augment order_augment(uint64_t seed, uint64_t epoch, uint64_t sample, int range)
{
	uint32_t r[4];

	philox(mix64(seed ^ SALT_AUGMENT), epoch, sample, r);
	if (range < 1)
		range = 1;
	return (struct augment){
		.x = (int16_t)((uint64_t)r[0] * (uint32_t)range >> 32),
		.y = (int16_t)((uint64_t)r[1] * (uint32_t)range >> 32),
		.flip = r[2] >> 31,
	};
}
