/* SPDX-License-Identifier: Apache-2.0
 * Keyed random numbers: a value depends on its key and counter only, never on what was drawn before or by which thread. */
#ifndef DATA_RANDOM_H
#define DATA_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). */
static inline void philox(uint64_t key, uint64_t high, uint64_t low, uint32_t out[4])
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
	uint32_t c[4] = { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32) };

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
		uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a };
		for (int i = 0; i < 4; i++)
			c[i] = next[i];
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	for (int i = 0; i < 4; i++)
		out[i] = c[i];
}

/* SplitMix64's finaliser: a bijection that scatters every bit. */
static inline uint64_t mix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
	return z ^ (z >> 31);
}

/* A short stream of its own under (key, name): for the parameters of one image or one patient. */
struct stream {
	uint64_t key, name, counter;
	uint32_t block[4];
	int used;
};

static inline struct stream stream_open(uint64_t key, uint64_t name)
{
	return (struct stream){ .key = key, .name = name, .used = 4 };
}

static inline uint32_t stream_bits(struct stream *s)
{
	if (s->used == 4) {
		philox(s->key, s->name, s->counter++, s->block);
		s->used = 0;
	}
	return s->block[s->used++];
}

/* Uniform in (0, 1). */
static inline double stream_uniform(struct stream *s)
{
	return (stream_bits(s) + 0.5) * 0x1p-32;
}

static inline double stream_normal(struct stream *s)
{
	double radius = sqrt(-2 * log(stream_uniform(s)));
	return radius * cos(6.283185307179586 * stream_uniform(s));
}

#endif
