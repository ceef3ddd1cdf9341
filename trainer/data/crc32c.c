/* SPDX-License-Identifier: Apache-2.0 */
#include "data/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint32_t table[8][256]; /* slicing-by-8: table[k][b] = b followed by k zero bytes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
		table[0][b] = crc;
	}
	for (int k = 1; k < 8; k++)
		for (int b = 0; b < 256; b++)
			table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t size)
{
	const uint8_t *p = data;

	pthread_once(&once, make_table);
	crc = ~crc;
	for (; size >= 8; size -= 8, p += 8) {
		uint64_t v;
		memcpy(&v, p, 8);
		v ^= crc;
		crc = 0;
		for (int k = 0; k < 8; k++)
			crc ^= table[7 - k][v >> 8 * k & 255];
	}
	while (size--)
		crc = table[0][(crc ^ *p++) & 255] ^ crc >> 8;
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t size)
{
	const uint8_t *p = data;
	uint64_t c = ~crc, v;

	for (; size >= 8; size -= 8, p += 8) {
		memcpy(&v, p, 8);
		c = _mm_crc32_u64(c, v);
	}
	while (size--)
		c = _mm_crc32_u8((uint32_t)c, *p++);
	return ~(uint32_t)c;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
	return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, size) : crc32c_portable(crc, data, size);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
	return crc32c_portable(crc, data, size);
}
#endif
