/* SPDX-License-Identifier: Apache-2.0 */
#include "files/crc32c.h"

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
/* The instruction takes three cycles and a new one can start every cycle, so three stretches of STRETCH bytes are summed at once
 * and joined: jump[k][b] is what STRETCH zero bytes make of a CRC whose byte k is b. */
enum { STRETCH = 1024 };
static uint32_t jump[4][256];
static pthread_once_t jump_once = PTHREAD_ONCE_INIT;

static void make_jump(void)
{
	uint32_t of_bit[32];

	pthread_once(&once, make_table);
	for (int bit = 0; bit < 32; bit++) {
		uint32_t crc = 1u << bit;
		for (int i = 0; i < STRETCH; i++)
			crc = table[0][crc & 255] ^ crc >> 8;
		of_bit[bit] = crc;
	}
	for (int k = 0; k < 4; k++)
		for (int b = 0; b < 256; b++)
			for (int bit = 0; bit < 8; bit++)
				jump[k][b] ^= b >> bit & 1 ? of_bit[8 * k + bit] : 0;
}

static uint32_t jump_over(uint64_t crc)
{
	return jump[0][crc & 255] ^ jump[1][crc >> 8 & 255] ^ jump[2][crc >> 16 & 255] ^ jump[3][crc >> 24 & 255];
}

static uint64_t load8(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t size)
{
	const uint8_t *p = data;
	uint64_t c = ~crc;

	if (size >= 3 * STRETCH)
		pthread_once(&jump_once, make_jump);
	for (; size >= 3 * STRETCH; size -= 3 * STRETCH, p += 2 * STRETCH) {
		uint64_t second = 0, third = 0;
		for (int i = 0; i < STRETCH; i += 8, p += 8) {
			c = _mm_crc32_u64(c, load8(p));
			second = _mm_crc32_u64(second, load8(p + STRETCH));
			third = _mm_crc32_u64(third, load8(p + 2 * STRETCH));
		}
		c = jump_over(jump_over(c) ^ second) ^ third;
	}
	for (; size >= 8; size -= 8, p += 8)
		c = _mm_crc32_u64(c, load8(p));
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
