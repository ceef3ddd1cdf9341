/* SPDX-License-Identifier: Apache-2.0
 * Eight sums of 64 bits; each word adds the product of its halves, keyed, to its own sum and itself to its neighbour's, so that
 * no bit is lost where a half is zero (the accumulation of XXH3: Yann Collet, github.com/Cyan4973/xxHash). Chains of 64-bit
 * multiplications, as in hash_bytes(), need 1.6 times as long as copying the pixels does. */
#include "data/pixel_hash.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "data/hash.h"

enum { STRIPE = 64, WORDS = STRIPE / 8, STRIPES_A_BLOCK = 16 };
static const uint64_t KEY_STEP = 0x9E3779B97F4A7C15;

struct sums {
	_Alignas(16) uint64_t sum[WORDS], key[WORDS];
};

/* `stripes` times 64 bytes. The keys move on with every stripe, so that the order of stripes counts. */
static inline __attribute__((always_inline)) void accumulate(struct sums *s, uint8_t *copy, const uint8_t *p, size_t stripes)
{
#if defined(__SSE2__)
	const __m128i next = _mm_set1_epi64x((long long)KEY_STEP);
	__m128i sum[WORDS / 2], key[WORDS / 2];
	memcpy(sum, s->sum, sizeof sum);
	memcpy(key, s->key, sizeof key);
	for (; stripes; stripes--, p += STRIPE)
		for (int i = 0; i < WORDS / 2; i++) {
			__m128i word = _mm_loadu_si128((const __m128i *)p + i), keyed = _mm_xor_si128(word, key[i]);
			if (copy) {
				_mm_storeu_si128((__m128i *)copy, word);
				copy += sizeof word;
			}
			sum[i] = _mm_add_epi64(sum[i], _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32)));
			sum[i] = _mm_add_epi64(sum[i], _mm_shuffle_epi32(word, _MM_SHUFFLE(1, 0, 3, 2)));
			key[i] = _mm_add_epi64(key[i], next);
		}
	memcpy(s->sum, sum, sizeof sum);
	memcpy(s->key, key, sizeof key);
#else
	for (; stripes; stripes--, p += STRIPE) {
		uint64_t word[WORDS];
		memcpy(word, p, STRIPE);
		if (copy) {
			memcpy(copy, word, STRIPE);
			copy += STRIPE;
		}
		for (int i = 0; i < WORDS; i++) {
			uint64_t keyed = word[i] ^ s->key[i];
			s->sum[i] += (uint64_t)(uint32_t)keyed * (keyed >> 32);
			s->sum[i ^ 1] += word[i];
			s->key[i] += KEY_STEP;
		}
	}
#endif
}

/* Brings the high bits down, where the next products are. */
static void scramble(struct sums *s)
{
	for (int i = 0; i < WORDS; i++)
		s->sum[i] = (s->sum[i] ^ s->sum[i] >> 47 ^ s->key[i]) * 0x9E3779B1;
}

static inline __attribute__((always_inline)) uint64_t hash(uint8_t *copy, const uint8_t *p, size_t size)
{
	struct sums s;
	uint8_t last[STRIPE] = { 0 };
	size_t left = size;

	for (int i = 0; i < WORDS; i++) {
		s.key[i] = mix64((uint64_t)i + 1);
		s.sum[i] = mix64(s.key[i]);
	}
	while (left >= STRIPE) {
		size_t stripes = left / STRIPE < STRIPES_A_BLOCK ? left / STRIPE : STRIPES_A_BLOCK, bytes = stripes * STRIPE;
		accumulate(&s, copy, p, stripes);
		scramble(&s);
		copy = copy ? copy + bytes : NULL;
		p += bytes;
		left -= bytes;
	}
	if (left) {
		memcpy(last, p, left);
		accumulate(&s, NULL, last, 1);
		if (copy)
			memcpy(copy, last, left);
	}
	uint64_t h = hash_u64(0, size);
	for (int i = 0; i < WORDS; i++)
		h = hash_u64(h, s.sum[i]);
	return h;
}

uint64_t hash_pixels(void *copy, const void *pixels, size_t size)
{
	return copy ? hash(copy, pixels, size) : hash(NULL, pixels, size);
}
