/* SPDX-License-Identifier: Apache-2.0
 * The message authentication code against published vectors, and the parser of control messages against any bytes. */
#include "tests/unit/test.h"

#include "runtime/siphash.h"
#include "runtime/wire.h"

#include <time.h>

static void siphash_gives_the_reference_vectors(void **state)
{
	(void)state;
	/* vectors_sip128 of the reference implementation: key 00…0f, input 00…(n-1); n = 0, 1, 15, 40 checked with OpenSSL too */
	static const struct {
		size_t n;
		const char *hex;
	} vectors[] = {
		{ 0, "a3817f04ba25a8e66df67214c7550293" },
		{ 1, "da87c1d86b99af44347659119b22fc45" },
		{ 15, "5493e99933b0a8117e08ec0f97cfc3d9" },
		{ 40, "df6a301e95c95dad97ae0cc8c6913bd8" },
	};
	uint8_t key[16], in[64], out[16];
	for (int i = 0; i < 16; i++)
		key[i] = (uint8_t)i;
	for (int i = 0; i < 64; i++)
		in[i] = (uint8_t)i;
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		char hex[33];
		siphash128(key, in, vectors[v].n, out);
		for (int i = 0; i < 16; i++)
			snprintf(hex + 2 * i, 3, "%02x", out[i]);
		assert_string_equal(hex, vectors[v].hex);
	}
}

/* Feeds bytes in cuts of any size; returns the number of complete messages, or -1 if the bytes were refused. */
static int feed(const uint8_t *bytes, size_t n, unsigned *random, size_t *payload_bytes)
{
	struct wire_reader r = { 0 };
	int messages = 0;
	*payload_bytes = 0;
	for (size_t at = 0; at < n;) {
		size_t cut = 1 + (size_t)rand_r(random) % (n - at);
		/* its own allocation: a byte read beyond it is found by AddressSanitizer */
		uint8_t *piece = malloc(cut);
		memcpy(piece, bytes + at, cut);
		for (size_t used = 0; used < cut;) {
			bool complete;
			long k = wire_take(&r, piece + used, cut - used, &complete);
			if (k < 0) {
				free(piece);
				free(r.payload);
				return -1;
			}
			used += (size_t)k;
			if (complete) {
				*payload_bytes += r.header.bytes;
				messages++;
				if (messages % 2)
					free(wire_next(&r));
				else
					wire_skip(&r);
			}
		}
		free(piece);
		at += cut;
	}
	free(r.payload);
	return messages;
}

static void messages_survive_any_cut(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int round = 0; round < 300; round++) {
		uint8_t stream[8192];
		size_t n = 0, payloads = 0, got;
		int sent = 0;
		while (n < 4000) {
			struct wire_header h = { .kind = 1 + (uint32_t)rand_r(&random) % 4, .bytes = (uint32_t)rand_r(&random) % 600 };
			memcpy(stream + n, &h, sizeof h);
			memset(stream + n + sizeof h, sent, h.bytes);
			n += sizeof h + h.bytes;
			payloads += h.bytes;
			sent++;
		}
		assert_int_equal(feed(stream, n, &random, &got), sent);
		assert_int_equal(got, payloads);
	}
}

static void garbage_is_refused_or_waits_for_more(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	size_t got;
	int refused = 0;
	printf("# seed %u\n", seed);
	for (int round = 0; round < 3000; round++) {
		uint8_t bytes[256];
		size_t n = 1 + (size_t)rand_r(&random) % sizeof bytes;
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)(round % 2 ? rand_r(&random) : rand_r(&random) % 5);
		refused += feed(bytes, n, &random, &got) < 0;
	}
	assert_true(refused > 1000);
	struct wire_header huge = { .kind = WIRE_DATA, .bytes = WIRE_PAYLOAD_MAX + 1 };
	assert_int_equal(feed((const uint8_t *)&huge, sizeof huge, &random, &got), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash_gives_the_reference_vectors),
		cmocka_unit_test(messages_survive_any_cut),
		cmocka_unit_test(garbage_is_refused_or_waits_for_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
