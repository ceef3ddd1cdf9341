/* SPDX-License-Identifier: Apache-2.0
 * A fast 64-bit fingerprint of bytes, the same on every machine (little-endian reads). Not for adversaries: it tells
 * whether two ranks, runs or files hold the same data. */
#ifndef DATA_HASH_H
#define DATA_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/random.h"

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Four independent multiply chains keep the multiplier busy. */
static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t size)
{
	static const uint64_t secret[4] = { 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93 };
	const uint8_t *p = data;
	uint64_t lane[4], word[8], tail[2];

	for (int i = 0; i < 4; i++)
		lane[i] = mix64(seed + secret[i]);
	size_t left = size;
	for (; left >= 64; left -= 64, p += 64) {
		memcpy(word, p, 64);
		for (int i = 0; i < 4; i++)
			lane[i] = hash_fold(word[2 * i] ^ secret[i], word[2 * i + 1] ^ lane[i]);
	}
	uint64_t h = mix64(lane[0] ^ mix64(lane[1] ^ mix64(lane[2] ^ mix64(lane[3] ^ size))));
	while (left) {
		size_t n = left < 16 ? left : 16;
		tail[0] = tail[1] = 0;
		memcpy(tail, p, n);
		h = hash_fold(tail[0] ^ secret[0] ^ n, tail[1] ^ mix64(h));
		left -= n;
		p += n;
	}
	return mix64(h);
}

static inline uint64_t hash_u64(uint64_t seed, uint64_t value)
{
	return mix64(seed ^ mix64(value));
}

#endif
