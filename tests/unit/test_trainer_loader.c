/* SPDX-License-Identifier: Apache-2.0
 * The loader: the same ids and pixels in every step for any number of ranks and threads, nothing lost, no hang. */
#include <time.h>

#include "data/hash.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/source.h"
#include "data/synth.h"
#include "test.h"

enum { SIDE = 32, MICRO = 4, GLOBAL = 32, STEPS = 12 };

static struct dataset *data;

static int set_up(void **state)
{
	struct synth_conf c = SYNTH_BUILTIN;
	struct error e = { 0 };
	(void)state;
	c.images = 150;
	c.size = SIDE;
	return dataset_open_synthetic(&data, &c, "train", &e);
}

static int tear_down(void **state)
{
	(void)state;
	dataset_close(data);
	return 0;
}

static struct loader_conf training(int rank, int ranks, int threads, uint64_t start)
{
	return (struct loader_conf){ .dataset = data, .seed = 5, .start = start, .batch = MICRO, .micros = GLOBAL / MICRO / ranks, .rank = rank,
				     .ranks = ranks, .image_size = 28, .hash = 1, .threads = threads, .depth = 3 };
}

static struct loader *open_loader(const struct loader_conf *conf)
{
	struct loader *l;
	struct error e = { 0 };
	if (loader_open(&l, conf, &e))
		fail_msg("%s", e.text);
	return l;
}

static struct loader_batch next(struct loader *l)
{
	struct loader_batch b;
	struct error e = { 0 };
	if (loader_next(l, &b, NULL, &e) != 1)
		fail_msg("no batch: %s", e.text);
	return b;
}

/* hash [STEPS][GLOBAL / MICRO]: what all ranks together see from `start` on. */
static void trace(int ranks, int threads, uint64_t start, uint64_t hash[STEPS][GLOBAL / MICRO])
{
	int micros = GLOBAL / MICRO / ranks;
	for (int rank = 0; rank < ranks; rank++) {
		struct loader_conf conf = training(rank, ranks, threads, start);
		struct loader *l = open_loader(&conf);
		for (int step = 0; step < STEPS; step++)
			for (int micro = 0; micro < micros; micro++) {
				struct loader_batch b = next(l);
				assert_int_equal(b.batch.count, MICRO);
				assert_int_equal(b.position, start + (uint64_t)step * GLOBAL + (uint64_t)((rank * micros + micro) * MICRO));
				hash[step][rank * micros + micro] = b.hash;
				loader_release(l, b.slot);
			}
		loader_close(l);
	}
}

static void ranks_and_threads_do_not_change_what_a_step_sees(void **state)
{
	(void)state;
	uint64_t one[STEPS][GLOBAL / MICRO], other[STEPS][GLOBAL / MICRO];
	trace(1, 1, 0, one);
	for (int ranks = 1; ranks <= 8; ranks *= 2)
		for (int threads = 1; threads <= 16; threads += threads < 4 ? 1 : 4) {
			trace(ranks, threads, 0, other);
			assert_memory_equal(one, other, sizeof one);
		}
}

static void a_skipped_sample_is_noticed(void **state)
{
	(void)state;
	uint64_t one[STEPS][GLOBAL / MICRO], other[STEPS][GLOBAL / MICRO];
	trace(1, 2, 0, one);
	trace(1, 2, 1, other); /* the first sample is left out */
	for (int step = 0; step < STEPS; step++)
		for (int m = 0; m < GLOBAL / MICRO; m++)
			assert_true(one[step][m] != other[step][m]);
}

static void labels_pixels_and_windows_are_all_in_the_hash(void **state)
{
	(void)state;
	uint64_t one[STEPS][GLOBAL / MICRO], other[STEPS][GLOBAL / MICRO];
	uint64_t sample = order_sample(5, dataset_count(data), 0);
	trace(1, 2, 0, one);
	data->samples[sample].labels ^= 1;
	trace(1, 2, 0, other);
	data->samples[sample].labels ^= 1;
	assert_true(one[0][0] != other[0][0]);
	assert_true(one[0][1] == other[0][1]);

	struct loader_conf conf = training(0, 1, 2, 0);
	conf.image_size = 0; /* no augmentation */
	struct loader *l = open_loader(&conf);
	struct loader_batch b = next(l);
	assert_null(b.batch.augment);
	assert_true(b.hash != one[0][0]);
	loader_release(l, b.slot);
	loader_close(l);
}

/* Row by row: who it is, every pixel, which labels are known, and how the engine is to cut and turn the image. */
static void the_hash_is_of_all_that_the_engine_is_given(void **state)
{
	struct loader_conf conf = training(0, 1, 2, 0);
	int turned = 0, unknown = 0;

	(void)state;
	for (size_t i = 0; i < dataset_count(data); i++)
		data->samples[i].known ^= (uint32_t)(i % 3 == 0);
	struct loader *l = open_loader(&conf);
	for (int k = 0; k < 8; k++) {
		struct loader_batch b = next(l);
		uint64_t expected = 0;

		for (int row = 0; row < MICRO; row++) {
			const struct sample *s = &data->samples[b.sample[row]];
			const struct augment *a = &b.batch.augment[row];
			uint64_t h = hash_u64(hash_bytes(0, s->id, strlen(s->id)), hash_bytes(0, b.batch.pixels + row * SIDE * SIDE, SIDE * SIDE));

			h = hash_u64(h, (uint64_t)b.batch.labels[row] << 32 | b.batch.known[row]);
			expected = hash_u64(expected, hash_u64(h, (uint64_t)a->x << 32 | (uint64_t)a->y << 16 | a->flip));
			turned += a->flip;
			unknown += b.batch.known[row] != data->samples[0].known;
		}
		assert_true(b.hash == expected);
		loader_release(l, b.slot);
	}
	loader_close(l);
	assert_true(turned > 5 && unknown > 5);
	for (size_t i = 0; i < dataset_count(data); i++)
		data->samples[i].known ^= (uint32_t)(i % 3 == 0);
}

static void resuming_anywhere_goes_on_with_the_same_stream(void **state)
{
	(void)state;
	uint64_t one[STEPS][GLOBAL / MICRO], other[STEPS][GLOBAL / MICRO];
	trace(1, 2, 0, one);
	for (int from = 1; from < STEPS; from += 5) { /* on another number of ranks; the epoch of about 110 images ends within */
		trace(from % 2 ? 8 : 2, 3, (uint64_t)from * GLOBAL, other);
		assert_memory_equal(one[from], other[0], sizeof one[0] * (size_t)(STEPS - from));
	}
}

static void an_epoch_holds_every_image_once(void **state)
{
	(void)state;
	size_t n = dataset_count(data), total = 3 * n;
	int *seen = calloc(n, sizeof *seen);
	struct loader_conf conf = training(0, 1, 3, 0);
	struct loader *l = open_loader(&conf);
	struct dataset_scratch *scratch = dataset_scratch(data);
	struct error e = { 0 };
	uint8_t pixels[SIDE * SIDE];
	for (size_t read = 0; read < total;) {
		struct loader_batch b = next(l);
		for (int i = 0; i < b.batch.count && read < total; i++, read++) {
			const struct sample *s = &dataset_samples(data)[b.sample[i]];
			assert_int_equal(dataset_read(data, b.sample[i], scratch, pixels, &e), 0);
			assert_memory_equal(b.batch.pixels + i * SIDE * SIDE, pixels, sizeof pixels);
			assert_int_equal(seen[b.sample[i]]++, read / n);
			assert_int_equal(b.batch.labels[i], s->labels);
			assert_int_equal(b.batch.known[i], s->known);
			struct augment expected = order_augment(5, read / n, b.sample[i], SIDE - 28 + 1), given = b.batch.augment[i];
			assert_true(given.x == expected.x && given.y == expected.y && given.flip == expected.flip);
		}
		loader_release(l, b.slot);
	}
	dataset_scratch_free(scratch);
	loader_close(l);
	free(seen);
}

static void evaluation_reads_every_image_exactly_once_over_all_ranks(void **state)
{
	(void)state;
	size_t n = dataset_count(data);
	for (int ranks = 1; ranks <= 7; ranks += 2) {
		int *seen = calloc(n, sizeof *seen);
		for (int rank = 0; rank < ranks; rank++) {
			struct loader_conf conf = training(0, 1, 3, 0);
			conf.ranks = ranks, conf.rank = rank, conf.micros = 1, conf.evaluate = 1;
			struct loader *l = open_loader(&conf);
			struct loader_batch b;
			struct error e = { 0 };
			uint64_t k = 0;
			int rc;
			while ((rc = loader_next(l, &b, NULL, &e)) == 1) {
				assert_int_equal(b.position, k);
				assert_null(b.batch.augment);
				for (int i = 0; i < b.batch.count; i++, k++) {
					assert_int_equal(b.sample[i], (uint64_t)rank + k * (uint64_t)ranks);
					seen[b.sample[i]]++;
				}
				loader_release(l, b.slot);
			}
			assert_int_equal(rc, 0);
			assert_int_equal(loader_next(l, &b, NULL, &e), 0); /* and stays at the end */
			loader_close(l);
		}
		for (size_t i = 0; i < n; i++)
			assert_int_equal(seen[i], 1);
		free(seen);
	}
}

/* More ranks than images: some have nothing to do. */
static void a_rank_without_images_ends_at_once(void **state)
{
	(void)state;
	struct loader_conf conf = training(0, 1, 2, 0);
	struct loader_batch b;
	struct error e = { 0 };
	conf.evaluate = 1, conf.micros = 1, conf.ranks = 1000, conf.rank = 999;
	struct loader *l = open_loader(&conf);
	assert_int_equal(loader_next(l, &b, NULL, &e), 0);
	loader_close(l);
}

/* A data set that fails at some samples and takes its time at others. */
static size_t bad_sample = SIZE_MAX, other_bad_sample = SIZE_MAX, slow_sample = SIZE_MAX;
static uint8_t *kept;
static int (*good_read)(const struct dataset *, size_t, struct dataset_scratch *, uint8_t *, struct error *);

static int failing_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	if (index == slow_sample)
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	if (index == bad_sample || index == other_bad_sample)
		return fail(e, EXIT_DATA, "shard: record %zu at byte 0: planted", index);
	if (index % 7 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	return good_read(d, index, s, pixels, e);
}

static int fail_from_now_on(void **state)
{
	(void)state;
	good_read = data->read;
	data->read = failing_read;
	kept = data->kept;
	data->kept = NULL; /* every image is read anew */
	return 0;
}

static int fail_no_more(void **state)
{
	(void)state;
	data->read = good_read;
	data->kept = kept;
	bad_sample = other_bad_sample = slow_sample = SIZE_MAX;
	return 0;
}

/* Of several it is that of the first image, whichever thread is through first. */
static void an_error_is_told_at_its_own_batch(void **state)
{
	(void)state;
	char says[64];
	bad_sample = order_sample(5, dataset_count(data), 5 * MICRO + 2);
	slow_sample = other_bad_sample = order_sample(5, dataset_count(data), 5 * MICRO + 1);
	snprintf(says, sizeof says, "record %zu at byte 0: planted", other_bad_sample);
	for (int threads = 1; threads <= 8; threads *= 2) {
		struct loader_conf conf = training(0, 1, threads, 0);
		struct loader *l = open_loader(&conf);
		struct loader_batch b;
		struct error e = { 0 };
		for (int m = 0; m < 5; m++) {
			b = next(l);
			loader_release(l, b.slot);
		}
		assert_int_equal(loader_next(l, &b, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, says));
		loader_close(l);
	}
}

static void the_time_that_a_batch_is_waited_for_is_told(void **state)
{
	(void)state;
	slow_sample = order_sample(5, dataset_count(data), 0);
	struct loader_conf conf = training(0, 1, 1, 0);
	struct loader *l = open_loader(&conf);
	struct loader_batch b;
	struct error e = { 0 };
	double waited = -1;
	assert_int_equal(loader_next(l, &b, &waited, &e), 1);
	assert_true(waited > 0.001 && waited < 60);
	nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL); /* the next one is ready long since */
	assert_int_equal(loader_next(l, &b, &waited, &e), 1);
	assert_true(waited == 0);
	loader_close(l);
}

static void closing_early_never_hangs(void **state)
{
	(void)state;
	for (int taken = 0; taken <= 3; taken++)
		for (int threads = 1; threads <= 8; threads += 7) {
			struct loader_conf conf = training(0, 1, threads, 0);
			struct loader *l = open_loader(&conf);
			for (int i = 0; i < taken; i++)
				next(l); /* and keep the slot */
			loader_close(l);
		}
}

static void taking_more_than_the_ring_holds_is_an_error_not_a_hang(void **state)
{
	(void)state;
	struct loader_conf conf = training(0, 1, 2, 0);
	struct loader *l = open_loader(&conf);
	struct loader_batch b;
	struct error e = { 0 };
	for (int i = 0; i < conf.depth; i++)
		next(l);
	assert_int_equal(loader_next(l, &b, NULL, &e), -EXIT_INTERNAL);
	loader_close(l);
}

static void memory_is_bounded_and_told(void **state)
{
	(void)state;
	struct loader_conf conf = training(0, 1, 2, 0);
	struct loader *l = open_loader(&conf);
	size_t before = loader_memory(l);
	assert_true(before >= 3 * MICRO * SIDE * SIDE);
	assert_true(before < 6 * MICRO * SIDE * SIDE);
	for (int i = 0; i < 200; i++) {
		struct loader_batch b = next(l);
		loader_release(l, b.slot);
	}
	assert_int_equal(loader_memory(l), before);
	loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_and_threads_do_not_change_what_a_step_sees),
		cmocka_unit_test(a_skipped_sample_is_noticed),
		cmocka_unit_test(labels_pixels_and_windows_are_all_in_the_hash),
		cmocka_unit_test(the_hash_is_of_all_that_the_engine_is_given),
		cmocka_unit_test(resuming_anywhere_goes_on_with_the_same_stream),
		cmocka_unit_test(an_epoch_holds_every_image_once),
		cmocka_unit_test(evaluation_reads_every_image_exactly_once_over_all_ranks),
		cmocka_unit_test(a_rank_without_images_ends_at_once),
		cmocka_unit_test_setup_teardown(an_error_is_told_at_its_own_batch, fail_from_now_on, fail_no_more),
		cmocka_unit_test_setup_teardown(the_time_that_a_batch_is_waited_for_is_told, fail_from_now_on, fail_no_more),
		cmocka_unit_test_setup_teardown(closing_early_never_hangs, fail_from_now_on, fail_no_more),
		cmocka_unit_test(taking_more_than_the_ring_holds_is_an_error_not_a_hang),
		cmocka_unit_test(memory_is_bounded_and_told),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
