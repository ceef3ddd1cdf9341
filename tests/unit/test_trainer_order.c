/* SPDX-License-Identifier: Apache-2.0
 * The order of samples: a permutation every epoch, the same everywhere, for ever. */
#include "data/order.h"
#include "data/random.h"
#include "test.h"

static void philox_gives_the_published_numbers(void **state)
{
	(void)state;
	/* Random123's known answers */
	uint32_t out[4];
	philox(0, 0, 0, out);
	assert_memory_equal(out, ((uint32_t[]){ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 }), 16);
	philox(~0ull, ~0ull, ~0ull, out);
	assert_memory_equal(out, ((uint32_t[]){ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd }), 16);
	philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, out);
	assert_memory_equal(out, ((uint32_t[]){ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 }), 16);
}

static void every_epoch_has_every_sample_once(void **state)
{
	(void)state;
	static const uint64_t sizes[] = { 1, 2, 3, 5, 7, 16, 17, 63, 64, 65, 1000, 86524, 112120 };
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		uint64_t n = sizes[k];
		uint8_t *seen = malloc(n);
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			memset(seen, 0, n);
			for (uint64_t p = 0; p < n; p++) {
				uint64_t sample = order_sample(42, n, epoch * n + p);
				assert_true(sample < n);
				assert_false(seen[sample]);
				seen[sample] = 1;
			}
		}
		free(seen);
	}
}

static size_t same_places(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b)
{
	enum { N = 10000 };
	size_t same = 0;
	for (uint64_t p = 0; p < N; p++)
		same += order_sample(seed_a, N, epoch_a * N + p) == order_sample(seed_b, N, epoch_b * N + p);
	return same;
}

static void epochs_and_seeds_have_orders_of_their_own(void **state)
{
	(void)state;
	/* two random permutations agree in one place on average; more than ten has probability 1e-8 */
	assert_true(same_places(1, 0, 1, 1) <= 10);
	assert_true(same_places(1, 0, 2, 0) <= 10);
	assert_true(same_places(1, 1, 2, 0) <= 10);
	assert_int_equal(same_places(1, 7, 1, 7), 10000);
}

static void neighbours_are_scattered(void **state)
{
	(void)state;
	/* images of one patient are neighbours in NIH's order; a batch of 64 should hold as many pairs of them as chance makes */
	enum { N = 86524, BATCH = 64 };
	size_t pairs = 0, batches = N / BATCH;
	for (size_t b = 0; b < batches; b++)
		for (int i = 0; i < BATCH; i++)
			for (int j = 0; j < i; j++)
				pairs += order_sample(3, N, b * BATCH + i) / 4 == order_sample(3, N, b * BATCH + j) / 4;
	double expected = batches * (BATCH * (BATCH - 1) / 2) * 3.0 / (N - 1);
	assert_true(pairs < expected + 6 * 10 && pairs + 6 * 10 > expected); /* Poisson, about 94 */
}

static void the_order_of_old_checkpoints_stays(void **state)
{
	(void)state;
	/* resuming relies on this for ever: these numbers were written down when the order was made */
	static const uint64_t first[] = { 56820, 99492, 72175, 57169, 2070, 13934, 109722, 65579 };
	for (uint64_t p = 0; p < sizeof first / sizeof first[0]; p++)
		assert_int_equal(order_sample(1, 112120, p), first[p]);
	/* an eighth epoch, and a number of samples whose bits are even */
	static const uint64_t eighth[] = { 111875, 49387, 75601, 65164, 82787 }, fourth[] = { 22, 446, 684, 909, 456 };
	for (uint64_t p = 0; p < sizeof eighth / sizeof eighth[0]; p++) {
		assert_int_equal(order_sample(1, 112120, 7 * 112120 + p), eighth[p]);
		assert_int_equal(order_sample(1, 1000, 3 * 1000 + p), fourth[p]);
	}
	struct augment a = order_augment(1, 2, 3, 33);
	assert_int_equal(a.x, 7);
	assert_int_equal(a.y, 1);
	assert_int_equal(a.flip, 1);
}

static void windows_cover_their_range_evenly(void **state)
{
	(void)state;
	enum { RANGE = 33, DRAWS = 33000 };
	int x[RANGE] = { 0 }, y[RANGE] = { 0 }, flips = 0;
	for (uint64_t sample = 0; sample < DRAWS; sample++) {
		struct augment a = order_augment(9, 4, sample, RANGE);
		assert_in_range(a.x, 0, RANGE - 1);
		assert_in_range(a.y, 0, RANGE - 1);
		assert_true(a.flip <= 1);
		x[a.x]++, y[a.y]++, flips += a.flip;
	}
	for (int i = 0; i < RANGE; i++) { /* 1000 each, standard deviation 31 */
		assert_in_range(x[i], 800, 1200);
		assert_in_range(y[i], 800, 1200);
	}
	assert_in_range(flips, DRAWS / 2 - 550, DRAWS / 2 + 550);
	for (uint64_t sample = 0; sample < 8; sample++)
		for (int range = -1; range <= 1; range++) { /* no room to move in */
			struct augment none = order_augment(9, 4, sample, range);
			assert_int_equal(none.x, 0);
			assert_int_equal(none.y, 0);
		}
}

static void a_step_is_the_same_set_for_any_split_over_ranks(void **state)
{
	(void)state;
	enum { GLOBAL = 64, MICRO = 8 };
	for (int ranks = 1; ranks <= 8; ranks *= 2) {
		int micros = GLOBAL / MICRO / ranks;
		uint64_t expected = 1000;
		for (int rank = 0; rank < ranks; rank++)
			for (int micro = 0; micro < micros; micro++, expected += MICRO)
				assert_int_equal(order_micro(1000, rank, micros, micro, MICRO), expected);
		assert_int_equal(expected, 1000 + GLOBAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_gives_the_published_numbers),
		cmocka_unit_test(every_epoch_has_every_sample_once),
		cmocka_unit_test(epochs_and_seeds_have_orders_of_their_own),
		cmocka_unit_test(neighbours_are_scattered),
		cmocka_unit_test(the_order_of_old_checkpoints_stays),
		cmocka_unit_test(windows_cover_their_range_evenly),
		cmocka_unit_test(a_step_is_the_same_set_for_any_split_over_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
