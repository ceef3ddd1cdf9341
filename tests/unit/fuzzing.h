/* SPDX-License-Identifier: Apache-2.0
 * Inputs with small damages for parsers, and files in memory to read them from. */
#ifndef TESTS_FUZZING_H
#define TESTS_FUZZING_H

#include <sys/mman.h>
#include <time.h>

#include "data/random.h"
#include "scratch.h"

struct input {
	uint8_t *data;
	size_t size;
};

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One to four small damages: flipped bits, odd bytes, cuts, repeats, large numbers. */
static struct input mutate(const struct input *from, struct stream *s)
{
	struct input m = { malloc(2 * from->size + 16), from->size };
	memcpy(m.data, from->data, from->size);
	for (uint32_t k = 1 + stream_bits(s) % 4; k && m.size; k--) {
		size_t at = stream_bits(s) % m.size, n = 1 + stream_bits(s) % 16;
		n = n > m.size - at ? m.size - at : n;
		switch (stream_bits(s) % 7) {
		case 0:
			m.data[at] ^= (uint8_t)(1 << stream_bits(s) % 8);
			break;
		case 1:
			m.data[at] = (uint8_t)stream_bits(s);
			break;
		case 2:
			m.size = at;
			break;
		case 3:
			memset(m.data + at, stream_bits(s) % 2 ? 0xFF : 0, n);
			break;
		case 4: /* a piece comes twice */
			if (m.size + n <= 2 * from->size) {
				memmove(m.data + at + n, m.data + at, m.size - at);
				m.size += n;
			}
			break;
		case 5: /* a piece goes */
			memmove(m.data + at, m.data + at + n, m.size - at - n);
			m.size -= n;
			break;
		case 6: /* another place's bytes */
			memmove(m.data + at, m.data + stream_bits(s) % (m.size - n + 1), n);
			break;
		}
	}
	m.data = realloc(m.data, m.size + 1); /* so that AddressSanitizer sees a read past the end */
	return m;
}

static void feed(const char *name, const struct input *seeds, int n, void (*parse)(const uint8_t *data, size_t size))
{
	const char *time = getenv("TEST_FUZZ_SECONDS"), *given = getenv("TEST_SEED");
	double end = seconds() + (time ? atof(time) : 0.4);
	uint64_t seed = given ? strtoull(given, NULL, 10) : 20260103;
	struct stream s = stream_open(seed, (uint64_t)(name[0] * 256 + name[1]));
	size_t rounds = 0;
	while (rounds % 16 || seconds() < end) {
		struct input m = mutate(&seeds[rounds++ % (size_t)n], &s);
		parse(m.data, m.size);
		free(m.data);
	}
	printf("# %s: seed %llu, %zu inputs\n", name, (unsigned long long)seed, rounds);
}

static void says_why(int rc, const struct error *e)
{
	if (rc < 0)
		assert_true(e->code == EXIT_DATA && strlen(e->text) > 5 && !strchr(e->text, '\n'));
}

/* The path of a file in memory with this content: disks are too slow for millions of inputs. */
static const char *memory_file(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		assert_true(fd >= 0);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, data, size, 0), size);
	return path;
}

#endif
