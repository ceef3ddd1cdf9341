/* SPDX-License-Identifier: Apache-2.0
 * The pipelines that are run against each other: each gives the data set's own pixels, every rank its share, and the old
 * approach decodes for nothing what it gives away. */
#include <errno.h>
#include <pthread.h>

#include "data/sequence.h"
#include "small_data.h"

enum { SIDE = 32, BATCH = 8, SHARDS = 9 };

static struct dataset *data;

/* Which thread cannot be started, counted from 0; -1: all can. */
static int no_thread = -1;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	if (no_thread == 0)
		return EAGAIN;
	no_thread -= no_thread > 0;
	return __real_pthread_create(thread, attributes, start, argument);
}

static int set_up(void **state)
{
	struct error e = { 0 };

	if (small_data(state, SIDE, SHARDS) == 0 && dataset_open(&data, prepared, "train", &e) == 0)
		return 0;
	fprintf(stderr, "%s\n", e.text);
	return -1;
}

static int tear_down(void **state)
{
	dataset_close(data);
	return scratch_remove(state);
}

static struct sequence_conf of(enum sequence_kind kind, int rank, int ranks, int threads)
{
	return (struct sequence_conf){ .kind = kind, .directory = prepared, .rank = rank, .ranks = ranks, .threads = threads, .batch = BATCH, .seed = 3 };
}

static struct sequence *open_sequence(struct sequence_conf conf)
{
	struct sequence *s;
	struct error e = { 0 };
	if (sequence_open(&s, &conf, &e))
		fail_msg("%s", e.text);
	return s;
}

static struct sequence_batch next(struct sequence *s)
{
	struct sequence_batch b;
	struct error e = { 0 };
	if (sequence_next(s, &b, &e))
		fail_msg("%s", e.text);
	assert_int_equal(b.count, BATCH);
	return b;
}

static size_t index_of(const char *id)
{
	for (size_t i = 0; i < dataset_count(data); i++)
		if (strcmp(dataset_samples(data)[i].id, id) == 0)
			return i;
	fail_msg("no training image %s", id);
	return 0;
}

static void the_steps_are_eight_and_ten(void **state)
{
	(void)state;
	int n;
	for (int k = 0; k < SEQUENCES; k++) {
		const struct sequence_step *steps = sequence_steps((enum sequence_kind)k, &n);
		assert_int_equal(n, k == SEQUENCE_OLD ? 8 : 10);
		for (int i = 0; i < n; i++)
			assert_true(steps[i].name[0] && steps[i].what[0]);
	}
	assert_string_equal(sequence_steps(SEQUENCE_OLD, &n)[3].name, "shard"); /* after the decoding */
	assert_string_equal(sequence_steps(SEQUENCE_NEW, &n)[2].name, "shard"); /* before any reading */
}

static void pixels_are_those_of_the_data_set(void **state)
{
	(void)state;
	struct dataset_scratch *memory = dataset_scratch(data);
	uint8_t expected[SIDE * SIDE];
	struct error e = { 0 };
	for (int k = 0; k < SEQUENCES; k++)
		for (int threads = 1; threads <= 3; threads++) {
			struct sequence *s = open_sequence(of((enum sequence_kind)k, 1, 2, threads));
			for (int m = 0; m < 10; m++) {
				struct sequence_batch b = next(s);
				for (int i = 0; i < b.count; i++) {
					assert_int_equal(dataset_read(data, index_of(b.id[i]), memory, expected, &e), 0);
					assert_memory_equal(b.pixels + i * SIDE * SIDE, expected, sizeof expected);
				}
			}
			sequence_close(s);
		}
	dataset_scratch_free(memory);
}

/* Three epochs of one rank: how often each image came. */
static void count_images(struct sequence_conf conf, int *seen, size_t images)
{
	struct sequence *s = open_sequence(conf);
	for (size_t read = 0; read < images; read += BATCH) {
		struct sequence_batch b = next(s);
		for (int i = 0; i < b.count; i++)
			seen[index_of(b.id[i])]++;
	}
	sequence_close(s);
}

static void ranks_share_the_images_without_overlap(void **state)
{
	(void)state;
	size_t n = dataset_count(data);
	for (int k = SEQUENCE_OLD; k <= SEQUENCE_NEW; k++)
		for (int ranks = 1; ranks <= 4; ranks *= 2) {
			int *owner = calloc(n, sizeof *owner);
			for (int rank = 0; rank < ranks; rank++) {
				int *seen = calloc(n, sizeof *seen);
				count_images(of((enum sequence_kind)k, rank, ranks, 2), seen, 3 * n);
				for (size_t i = 0; i < n; i++)
					owner[i] += seen[i] > 0;
				free(seen);
			}
			for (size_t i = 0; i < n; i++)
				assert_int_equal(owner[i], 1); /* one rank's, and nobody's loss */
			free(owner);
		}
}

static void every_epoch_of_a_rival_has_every_image_once(void **state)
{
	(void)state;
	size_t n = dataset_count(data);
	for (int k = SEQUENCE_OLD; k <= SEQUENCE_NEW; k++) {
		int *seen = calloc(n, sizeof *seen);
		struct sequence *s = open_sequence(of((enum sequence_kind)k, 0, 1, 2));
		for (size_t read = 0; read < 3 * n;) {
			struct sequence_batch b = next(s);
			for (int i = 0; i < b.count && read < 3 * n; i++, read++)
				assert_int_equal(seen[index_of(b.id[i])]++, read / n);
		}
		sequence_close(s);
		free(seen);
	}
}

static void threads_do_not_change_what_comes(void **state)
{
	(void)state;
	for (int k = 0; k < SEQUENCES; k++) {
		struct sequence *a = open_sequence(of((enum sequence_kind)k, 1, 2, 1)), *b = open_sequence(of((enum sequence_kind)k, 1, 2, 4));
		for (int m = 0; m < 60; m++) {
			struct sequence_batch x = next(a), y = next(b);
			assert_memory_equal(x.id, y.id, sizeof(char[BATCH][SAMPLE_ID]));
			assert_memory_equal(x.pixels, y.pixels, BATCH * SIDE * SIDE);
		}
		sequence_close(a);
		sequence_close(b);
	}
}

static void the_old_approach_decodes_for_the_other_ranks_too(void **state)
{
	(void)state;
	enum { MANY = 400 };
	/* what may be decoded ahead of what is given: a buffer, the batches in between, a block */
	const uint64_t ahead = 500 + 10 * BATCH;
	for (int ranks = 1; ranks <= 4; ranks *= 2)
		for (int k = 0; k < SEQUENCES; k++) {
			struct sequence *s = open_sequence(of((enum sequence_kind)k, 0, ranks, 1));
			for (int m = 0; m < MANY; m++)
				next(s);
			uint64_t given = MANY * BATCH, decoded = sequence_decoded(s), times = k == SEQUENCE_OLD ? (uint64_t)ranks : 1;
			assert_in_range(decoded, (given - BATCH) * times, (given + ahead) * times);
			sequence_close(s);
		}
}

static void refused(struct sequence_conf conf, int code, const char *words)
{
	struct sequence *s;
	struct error e = { 0 };
	assert_int_equal(sequence_open(&s, &conf, &e), -code);
	assert_null(s);
	if (!strstr(e.text, words))
		fail_msg("\"%s\" does not say \"%s\"", e.text, words);
}

static void what_cannot_be_shared_is_refused(void **state)
{
	(void)state;
	struct sequence_conf conf = of(SEQUENCE_NEW, 0, SHARDS + 1, 1);
	refused(conf, EXIT_DATA, "9 files are dealt out to 10 ranks");
	conf = of(SEQUENCE_OLD, 0, 1, 1);
	conf.directory = packed;
	refused(conf, EXIT_USAGE, "is packed");
	conf.directory = "/nowhere";
	refused(conf, EXIT_DATA, "no such directory");
}

/* Old and new start 3 threads that decode beside the one that makes batches, which counts as the fourth; new has one that reads. */
static void a_thread_too_few_is_told(void **state)
{
	(void)state;
	static const int threads[SEQUENCES] = { 3 + 1, 3 + 1 + 1, 4 };
	struct sequence *s;
	struct error e = { 0 };
	for (int k = 0; k < SEQUENCES; k++) {
		for (int n = 0; n < threads[k]; n++) {
			no_thread = n;
			refused(of((enum sequence_kind)k, 0, 1, 4), EXIT_INTERNAL, "cannot be started: Resource temporarily unavailable");
		}
		no_thread = threads[k];
		assert_int_equal(sequence_open(&s, &(struct sequence_conf){ k, prepared, 0, 1, 4, BATCH, 3 }, &e), 0);
		sequence_close(s);
	}
	no_thread = -1;
}

static void a_flipped_bit_is_named(void **state)
{
	(void)state;
	char path[FILE_PATH];
	struct error e = { 0 };
	shard_path(path, prepared, SPLIT_TRAIN, 4, SHARDS, &e);
	FILE *f = fopen(path, "r+b");
	fseek(f, 2000, SEEK_SET);
	int byte = fgetc(f);
	for (int damaged = 1; damaged >= 0; damaged--) {
		fseek(f, 2000, SEEK_SET);
		fputc(damaged ? byte ^ 4 : byte, f);
		fflush(f);
		for (int k = 0; damaged && k < SEQUENCES; k++) {
			struct sequence *s;
			struct sequence_batch b;
			struct sequence_conf conf = of((enum sequence_kind)k, 0, 1, 2);
			struct error why = { 0 };
			int rc = sequence_open(&s, &conf, &why);
			for (int m = 0; !rc && m < 100; m++)
				rc = sequence_next(s, &b, &why);
			assert_int_equal(rc, -EXIT_DATA);
			if (!strstr(why.text, "train-00004-of-00009: record ") || !strstr(why.text, " at byte ") || !strstr(why.text, "CRC mismatch"))
				fail_msg("%s", why.text);
			sequence_close(s);
		}
	}
	fclose(f);
}

static void closing_early_never_hangs(void **state)
{
	(void)state;
	for (int k = 0; k < SEQUENCES; k++)
		for (int taken = 0; taken < 4; taken++) {
			struct sequence *s = open_sequence(of((enum sequence_kind)k, 0, 1, 3));
			for (int m = 0; m < taken; m++)
				next(s);
			sequence_close(s);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_steps_are_eight_and_ten),
		cmocka_unit_test(pixels_are_those_of_the_data_set),
		cmocka_unit_test(ranks_share_the_images_without_overlap),
		cmocka_unit_test(every_epoch_of_a_rival_has_every_image_once),
		cmocka_unit_test(threads_do_not_change_what_comes),
		cmocka_unit_test(the_old_approach_decodes_for_the_other_ranks_too),
		cmocka_unit_test(what_cannot_be_shared_is_refused),
		cmocka_unit_test(a_thread_too_few_is_told),
		cmocka_unit_test(a_flipped_bit_is_named),
		cmocka_unit_test(closing_early_never_hangs),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
