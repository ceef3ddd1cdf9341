/* SPDX-License-Identifier: Apache-2.0
 * The fingerprint of an image: the same everywhere, and another one for any other image. */
#include "data/pixel_hash.h"
#include "data/random.h"
#include "test.h"

enum { SIZE = 5000 };
static uint8_t pixels[SIZE];

static int set_up(void **state)
{
	struct stream s = stream_open(3, 0);
	(void)state;
	for (int i = 0; i < SIZE; i++)
		pixels[i] = (uint8_t)stream_bits(&s);
	return 0;
}

static void logs_of_other_machines_can_be_compared(void **state)
{
	(void)state;
	/* written down from the portable loop (gcc -U__SSE2__) */
	assert_true(hash_pixels(NULL, pixels, SIZE) == UINT64_C(0xa98e0d57395a9075));
	assert_true(hash_pixels(NULL, pixels, 77) == UINT64_C(0x506b33fe9c4bc53b));
}

static void copying_on_the_way_changes_nothing(void **state)
{
	(void)state;
	static uint8_t copy[SIZE + 1];
	for (size_t size = 0; size < SIZE; size += 1 + size / 3) {
		memset(copy, 0xEE, sizeof copy);
		assert_true(hash_pixels(copy, pixels, size) == hash_pixels(NULL, pixels, size));
		assert_memory_equal(copy, pixels, size);
		assert_int_equal(copy[size], 0xEE);
	}
}

static void any_changed_bit_moved_piece_or_length_is_seen(void **state)
{
	(void)state;
	uint64_t whole = hash_pixels(NULL, pixels, SIZE);
	static uint8_t moved[SIZE], zeros[SIZE];
	for (int i = 0; i < SIZE; i++)
		for (int bit = 0; bit < 8; bit++) {
			pixels[i] ^= (uint8_t)(1 << bit);
			assert_true(hash_pixels(NULL, pixels, SIZE) != whole);
			pixels[i] ^= (uint8_t)(1 << bit);
		}
	for (size_t piece = 4; piece <= 2048; piece *= 2) { /* two neighbours trade places */
		memcpy(moved, pixels, SIZE);
		memcpy(moved, pixels + piece, piece);
		memcpy(moved + piece, pixels, piece);
		assert_true(hash_pixels(NULL, moved, SIZE) != whole);
	}
	assert_true(hash_pixels(NULL, pixels, SIZE - 1) != whole);
	for (size_t size = 1; size < 200; size++) /* black images of every size */
		assert_true(hash_pixels(NULL, zeros, size) != hash_pixels(NULL, zeros, size - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logs_of_other_machines_can_be_compared),
		cmocka_unit_test(copying_on_the_way_changes_nothing),
		cmocka_unit_test(any_changed_bit_moved_piece_or_length_is_seen),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
