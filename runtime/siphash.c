/* SPDX-License-Identifier: Apache-2.0 */
#include "siphash.h"

static uint64_t rotate(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static uint64_t load64(const uint8_t *p, size_t n)
{
	uint64_t x = 0;
	for (size_t i = 0; i < n; i++)
		x |= (uint64_t)p[i] << 8 * i;
	return x;
}

static void store64(uint8_t *p, uint64_t x)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(x >> 8 * i);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
		v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
		v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
		v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
	}
}

void siphash128(const uint8_t key[16], const void *data, size_t n, uint8_t out[16])
{
	const uint8_t *p = data;
	uint64_t k0 = load64(key, 8), k1 = load64(key + 8, 8);
	uint64_t v[4] = { k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573 };
	for (size_t left = n;; left -= 8, p += 8) {
		uint64_t m = left >= 8 ? load64(p, 8) : load64(p, left) | (uint64_t)n << 56;
		v[3] ^= m;
		rounds(v, 2);
		v[0] ^= m;
		if (left < 8)
			break;
	}
	v[2] ^= 0xee;
	rounds(v, 4);
	store64(out, v[0] ^ v[1] ^ v[2] ^ v[3]);
	v[1] ^= 0xdd;
	rounds(v, 4);
	store64(out + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}
