/* SPDX-License-Identifier: Apache-2.0
 * Shuffle windows: an order that depends on seed and files alone, exact resumption, and storage that sees large reads in a row
 * only. The storage is paced: every read waits for its latency and its bytes, and is written down. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "data/loader.h"
#include "data/order.h"
#include "data/random.h"
#include "data/source.h"
#include "data/window.h"
#include "small_data.h"

enum { SIDE = 32, SHARDS = 9, MICRO = 4, GLOBAL = 16, SEED = 5 };

/* ---- paced storage ----------------------------------------------------------------------------------- */

ssize_t __real_pread(int fd, void *buffer, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t n, off_t offset);
ssize_t __wrap___pread_chk(int fd, void *buffer, size_t n, off_t offset, size_t room);

static const double LATENCY = 2e-3, BYTES_PER_S = 50e6;

struct request {
	char path[256];
	off_t offset;
	ssize_t size;
};

static struct {
	pthread_mutex_t lock;
	struct request log[4096];
	int n;
	double seconds; /* that the storage was busy */
	int shard_read[SHARDS]; /* how often the file has been read to its end */
} storage = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int shard_number(const char *path)
{
	const char *name = strrchr(path, '/');
	int shard;
	return name && sscanf(name, "/train-%d-of-", &shard) == 1 ? shard : -1;
}

ssize_t __wrap_pread(int fd, void *buffer, size_t n, off_t offset)
{
	char link[64];
	struct request r = { .offset = offset };
	struct stat st;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, r.path, sizeof r.path - 1);
	r.size = __real_pread(fd, buffer, n, offset);
	double seconds = LATENCY + (double)(r.size > 0 ? r.size : 0) / BYTES_PER_S;
	nanosleep(&(struct timespec){ .tv_nsec = (long)(seconds * 1e9) }, NULL);
	pthread_mutex_lock(&storage.lock);
	storage.seconds += seconds;
	if (length > 0 && storage.n < 4096)
		storage.log[storage.n++] = r;
	if (shard_number(r.path) >= 0 && fstat(fd, &st) == 0 && offset + r.size == st.st_size)
		storage.shard_read[shard_number(r.path)]++;
	pthread_mutex_unlock(&storage.lock);
	return r.size;
}

ssize_t __wrap___pread_chk(int fd, void *buffer, size_t n, off_t offset, size_t room)
{
	assert_true(n <= room);
	return __wrap_pread(fd, buffer, n, offset);
}

static void forget_requests(void)
{
	pthread_mutex_lock(&storage.lock);
	storage.n = 0;
	storage.seconds = 0;
	memset(storage.shard_read, 0, sizeof storage.shard_read);
	pthread_mutex_unlock(&storage.lock);
}

/* ---- data -------------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
	return small_data(state, SIDE, SHARDS);
}

static struct dataset *open_train(const char *directory)
{
	struct dataset *d;
	struct error e = { 0 };
	if (dataset_open(&d, directory, "train", &e))
		fail_msg("%s", e.text);
	return d;
}

/* A data set of no pixels with shards of these sizes. */
struct empty {
	struct dataset d;
	uint64_t first[300];
};

static int fetch_nothing(const struct dataset *d, size_t shard, struct error *e)
{
	(void)d, (void)shard, (void)e;
	return 0;
}

static void make_empty(struct empty *x, const int *sizes, int n)
{
	memset(x, 0, sizeof *x);
	for (int i = 0; i < n; i++)
		x->first[i + 1] = x->first[i] + (uint64_t)sizes[i];
	x->d = (struct dataset){ .shard_first = x->first, .shards = (size_t)n, .count = x->first[n], .fetch = fetch_nothing };
}

static struct windows *open_windows(const struct dataset *d, uint64_t seed, int files)
{
	struct windows *w;
	struct error e = { 0 };
	if (windows_open(&w, d, seed, files, 0, &e))
		fail_msg("%s", e.text);
	return w;
}

/* ---- order ------------------------------------------------------------------------------------------- */

static const int uneven[] = { 7, 1, 12, 5, 30, 2, 2, 9, 16, 3, 11 };
enum { UNEVEN = sizeof uneven / sizeof *uneven };

static void every_epoch_has_every_sample_once_and_windows_have_their_files_alone(void **state)
{
	(void)state;
	static struct empty x;
	make_empty(&x, uneven, UNEVEN);
	size_t n = x.d.count;
	for (int files = 1; files <= UNEVEN + 2; files++) {
		struct windows *w = open_windows(&x.d, SEED, files);
		struct window_cursor *c = window_cursor_new(w);
		uint64_t per_epoch = (uint64_t)(UNEVEN + files - 1) / (uint64_t)files, last = 0;
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			int seen[200] = { 0 }, window_of[UNEVEN];
			memset(window_of, -1, sizeof window_of);
			for (uint64_t p = 0; p < n; p++) {
				uint64_t window, index = window_sample(w, c, epoch * n + p, &window);
				assert_true(index < n && !seen[index]++);
				assert_true(window >= last && window / per_epoch == epoch);
				last = window;
				int shard = 0;
				while (x.first[shard + 1] <= index)
					shard++;
				assert_true(window_of[shard] == -1 || window_of[shard] == (int)window); /* a file is in one window */
				window_of[shard] = (int)window;
			}
			for (uint64_t k = epoch * per_epoch; k < (epoch + 1) * per_epoch; k++) {
				int held = 0;
				for (int s = 0; s < UNEVEN; s++)
					held += window_of[s] == (int)k;
				assert_in_range(held, 1, files);
			}
		}
		window_cursor_free(c);
		windows_close(w);
	}
}

static size_t same_places(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b)
{
	static struct empty x;
	int sizes[200];
	size_t same = 0;
	for (int i = 0; i < 200; i++)
		sizes[i] = 20;
	make_empty(&x, sizes, 200);
	struct windows *a = open_windows(&x.d, seed_a, 8), *b = open_windows(&x.d, seed_b, 8);
	struct window_cursor *ca = window_cursor_new(a), *cb = window_cursor_new(b);
	for (uint64_t p = 0; p < 4000; p++) {
		uint64_t window;
		same += window_sample(a, ca, epoch_a * 4000 + p, &window) == window_sample(b, cb, epoch_b * 4000 + p, &window);
	}
	window_cursor_free(ca);
	window_cursor_free(cb);
	windows_close(a);
	windows_close(b);
	return same;
}

static void epochs_and_seeds_have_orders_of_their_own(void **state)
{
	(void)state;
	/* random orders agree in one place on average; files that stay in their window make it a few more */
	assert_true(same_places(1, 0, 1, 1) <= 40);
	assert_true(same_places(1, 0, 2, 0) <= 40);
	assert_int_equal(same_places(1, 3, 1, 3), 4000);
}

/* Inside a window the images of its files are mixed: neighbours come from different files as often as chance has it. */
static void images_of_a_window_are_mixed(void **state)
{
	(void)state;
	static struct empty x;
	int sizes[64];
	size_t same_file = 0;
	for (int i = 0; i < 64; i++)
		sizes[i] = 100;
	make_empty(&x, sizes, 64);
	struct windows *w = open_windows(&x.d, SEED, 16);
	struct window_cursor *c = window_cursor_new(w);
	for (uint64_t p = 1; p < 6400; p++) {
		uint64_t window;
		same_file += window_sample(w, c, p, &window) / 100 == window_sample(w, c, p - 1, &window) / 100;
	}
	assert_in_range(same_file, 300, 500); /* a sixteenth is 400, standard deviation 19 */
	window_cursor_free(c);
	windows_close(w);
}

static void the_order_of_old_checkpoints_stays(void **state)
{
	(void)state;
	/* resuming relies on this for ever: these numbers were written down when the order was made */
	static const uint64_t first[] = { 8, 96, 54, 56, 5, 12 };
	static struct empty x;
	make_empty(&x, uneven, UNEVEN);
	struct windows *w = open_windows(&x.d, 1, 3);
	struct window_cursor *c = window_cursor_new(w);
	for (uint64_t p = 0; p < sizeof first / sizeof *first; p++) {
		uint64_t window, index = window_sample(w, c, 40 * p, &window);
		if (index != first[p])
			fail_msg("position %d: sample %d, not %d", (int)(40 * p), (int)index, (int)first[p]);
	}
	window_cursor_free(c);
	windows_close(w);
}

/* ---- the loader -------------------------------------------------------------------------------------- */

static struct loader_conf training(const struct dataset *d, int rank, int ranks, int threads, uint64_t start)
{
	return (struct loader_conf){ .dataset = d, .seed = SEED, .start = start, .batch = MICRO, .micros = GLOBAL / MICRO / ranks, .rank = rank, .ranks = ranks,
				     .image_size = 28, .hash = 1, .window = 2, .threads = threads, .depth = 3 };
}

enum { STEPS = 40 }; /* about three epochs of 240 images */

static void trace(const struct dataset *d, int ranks, int threads, uint64_t start, uint64_t hash[STEPS][GLOBAL / MICRO])
{
	int micros = GLOBAL / MICRO / ranks;
	for (int rank = 0; rank < ranks; rank++) {
		struct loader_conf conf = training(d, rank, ranks, threads, start);
		struct loader *l;
		struct loader_batch b;
		struct error e = { 0 };
		assert_int_equal(loader_open(&l, &conf, &e), 0);
		for (int step = 0; step < STEPS; step++)
			for (int micro = 0; micro < micros; micro++) {
				if (loader_next(l, &b, NULL, &e) != 1)
					fail_msg("%s", e.text);
				hash[step][rank * micros + micro] = b.hash;
				loader_release(l, b.slot);
			}
		loader_close(l);
	}
}

static void ranks_threads_and_restarts_do_not_change_what_a_step_sees(void **state)
{
	(void)state;
	const char *directories[] = { prepared, packed };
	uint64_t one[STEPS][GLOBAL / MICRO], other[STEPS][GLOBAL / MICRO];
	for (int k = 0; k < 2; k++) {
		struct dataset *d = open_train(directories[k]);
		trace(d, 1, 1, 0, one);
		for (int ranks = 1; ranks <= 4; ranks *= 2) {
			trace(d, ranks, 3, 0, other);
			assert_memory_equal(one, other, sizeof one);
		}
		for (int from = 1; from < STEPS; from += 7) { /* in the middle of windows, on another number of ranks */
			trace(d, from % 2 ? 4 : 2, 2, (uint64_t)from * GLOBAL, other);
			assert_memory_equal(one[from], other[0], sizeof one[0] * (size_t)(STEPS - from));
		}
		dataset_close(d);
	}
	/* another window, another order */
	struct dataset *d = open_train(prepared);
	struct loader_conf conf = training(d, 0, 1, 1, 0);
	struct loader *l;
	struct loader_batch b;
	struct error e = { 0 };
	trace(d, 1, 1, 0, one);
	conf.window = 0;
	assert_int_equal(loader_open(&l, &conf, &e), 0);
	assert_int_equal(loader_next(l, &b, NULL, &e), 1);
	assert_true(b.hash != one[0][0]);
	loader_close(l);
	dataset_close(d);
}

/* ---- what the storage sees --------------------------------------------------------------------------- */

static int (*good_read)(const struct dataset *, size_t, struct dataset_scratch *, uint8_t *, struct error *);
static _Atomic int too_early;

/* An image may only be touched when its file has been read from its beginning to its end. */
static int watched_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	size_t shard = 0;
	while (d->shard_first[shard + 1] <= index)
		shard++;
	pthread_mutex_lock(&storage.lock);
	too_early += !storage.shard_read[shard];
	pthread_mutex_unlock(&storage.lock);
	return good_read(d, index, s, pixels, e);
}

/* `images` images through the loader. */
static void drain(const struct dataset *d, int threads, size_t images)
{
	struct loader_conf conf = training(d, 0, 1, threads, 0);
	struct loader *l;
	struct loader_batch b;
	struct error e = { 0 };
	assert_int_equal(loader_open(&l, &conf, &e), 0);
	for (size_t read = 0; read < images; read += MICRO) {
		if (loader_next(l, &b, NULL, &e) != 1)
			fail_msg("%s", e.text);
		loader_release(l, b.slot);
	}
	loader_close(l);
}

static void cold_storage_sees_whole_files_in_a_row_and_no_image_before_its_file(void **state)
{
	(void)state;
	struct dataset *d = open_train(prepared);
	size_t n = dataset_count(d);
	good_read = d->read;
	d->read = watched_read;
	for (int threads = 1; threads <= 4; threads += 3) {
		forget_requests();
		too_early = 0;
		drain(d, threads, n);
		assert_int_equal(too_early, 0);
		/* front to back: a request begins where the one before ended, or at the beginning of a file */
		for (int i = 0; i < storage.n; i++) {
			const struct request *r = &storage.log[i], *before = r - 1;
			assert_true(shard_number(r->path) >= 0);
			if (r->offset)
				assert_true(i > 0 && strcmp(r->path, before->path) == 0 && r->offset == before->offset + before->size);
		}
		/* every file of the epoch once, and at most two windows of the next */
		int files = 0, most = 0;
		for (int s = 0; s < SHARDS; s++) {
			assert_true(storage.shard_read[s] >= 1);
			files += storage.shard_read[s];
			most = storage.shard_read[s] > most ? storage.shard_read[s] : most;
		}
		assert_in_range(files, SHARDS, SHARDS + 2 * 2);
		assert_true(most <= 2);
		/* record by record the same storage would be busy for n latencies */
		double alone = (double)n * LATENCY + (double)dataset_stored(d) / BYTES_PER_S;
		printf("# storage busy for %.3f s in %d requests; record by record %.3f s\n", storage.seconds, storage.n, alone);
		assert_true(storage.seconds < alone / 10);
	}
	d->read = good_read;
	dataset_close(d);
}

/* The reader is at most one window ahead of the images that are used: memory stays bounded. A training that goes on reads nothing of what it had. */
static void no_more_than_one_window_is_read_ahead(void **state)
{
	(void)state;
	struct dataset *d = open_train(prepared);
	for (uint64_t epoch = 0; epoch <= 5; epoch += 5) {
		struct loader_conf conf = training(d, 0, 1, 2, epoch * dataset_count(d));
		struct loader *l;
		struct loader_batch b;
		struct error e = { 0 };
		forget_requests();
		assert_int_equal(loader_open(&l, &conf, &e), 0);
		assert_int_equal(loader_next(l, &b, NULL, &e), 1); /* and no more: the ring of 12 images is inside the first window */
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
		int files = 0;
		pthread_mutex_lock(&storage.lock);
		for (int s = 0; s < SHARDS; s++)
			files += storage.shard_read[s];
		pthread_mutex_unlock(&storage.lock);
		assert_int_equal(files, 4);
		loader_close(l);
	}
	dataset_close(d);
}

static void images_that_are_kept_are_not_fetched_again(void **state)
{
	(void)state;
	struct dataset *d = open_train(prepared);
	size_t n = dataset_count(d);
	assert_int_equal(dataset_keep(d, SIZE_MAX), 1);
	drain(d, 2, n);
	forget_requests();
	drain(d, 2, 3 * n);
	assert_int_equal(storage.n, 0);
	dataset_close(d);
}

/* A packed file is read in pieces, here of 100 images and the rest: from a piece's first byte to its last, and nothing else. */
static void a_piece_of_a_packed_file_is_read_where_it_lies(void **state)
{
	(void)state;
	struct dataset *d = open_train(packed);
	const uint64_t count = dataset_count(d), pieces[] = { 0, 100, count }, bytes = SIDE * SIDE;
	struct error e = { 0 };
	struct stat st;
	char file[FILE_PATH + 32];
	assert_int_equal(d->shards, 1);
	uint64_t *whole = d->shard_first;
	d->shard_first = (uint64_t *)(uintptr_t)pieces;
	snprintf(file, sizeof file, "%s/train.cxp", packed);
	assert_int_equal(stat(file, &st), 0);
	for (size_t piece = 0; piece < 2; piece++) {
		uint64_t at = (uint64_t)st.st_size - (count - pieces[piece]) * bytes;
		forget_requests();
		assert_int_equal(dataset_fetch(d, piece, &e), 0);
		assert_true(storage.n > 0);
		for (int i = 0; i < storage.n; i++) {
			assert_non_null(strstr(storage.log[i].path, "/train.cxp"));
			assert_int_equal(storage.log[i].offset, at);
			at += (uint64_t)storage.log[i].size;
		}
		assert_int_equal(at, (uint64_t)st.st_size - (count - pieces[piece + 1]) * bytes);
	}
	d->shard_first = whole;
	dataset_close(d);
}

static void a_file_that_goes_away_is_an_error_at_its_window_and_not_a_hang(void **state)
{
	(void)state;
	struct dataset *d = open_train(prepared);
	struct windows *w = open_windows(d, SEED, 2);
	struct window_cursor *c = window_cursor_new(w);
	uint64_t window, at = 0, shard = 0, index;
	char path[FILE_PATH], away[FILE_PATH];
	struct error e = { 0 };
	while (index = window_sample(w, c, at, &window), window < 3)
		at++;
	while (d->shard_first[shard + 1] <= index)
		shard++;
	window_cursor_free(c);
	windows_close(w);
	shard_path(path, prepared, SPLIT_TRAIN, (int)shard, SHARDS, &e);
	snprintf(away, sizeof away, "%s", scratch_path("away"));
	assert_int_equal(rename(path, away), 0);
	for (int threads = 1; threads <= 4; threads += 3) {
		struct loader_conf conf = training(d, 0, 1, threads, 0);
		struct loader *l;
		struct loader_batch b;
		uint64_t read = 0;
		e.code = 0;
		assert_int_equal(loader_open(&l, &conf, &e), 0);
		int rc;
		while ((rc = loader_next(l, &b, NULL, &e)) == 1) {
			read += MICRO;
			loader_release(l, b.slot);
		}
		assert_int_equal(rc, -EXIT_DATA);
		if (!strstr(e.text, path) || !strstr(e.text, "cannot be read: No such file"))
			fail_msg("%s", e.text);
		assert_int_equal(read, at / MICRO * MICRO); /* everything before its window was good */
		loader_close(l);
	}
	assert_int_equal(rename(away, path), 0);
	dataset_close(d);
}

static void closing_early_never_hangs(void **state)
{
	(void)state;
	struct dataset *d = open_train(prepared);
	for (int taken = 0; taken <= 3; taken++)
		for (int threads = 1; threads <= 8; threads += 7) {
			struct loader_conf conf = training(d, 0, 1, threads, 0);
			struct loader *l;
			struct loader_batch b;
			struct error e = { 0 };
			assert_int_equal(loader_open(&l, &conf, &e), 0);
			for (int i = 0; i < taken; i++)
				assert_int_equal(loader_next(l, &b, NULL, &e), 1);
			loader_close(l);
		}
	dataset_close(d);
}

static void images_in_memory_have_no_windows(void **state)
{
	(void)state;
	struct synth_conf synth = SYNTH_BUILTIN;
	struct dataset *d;
	struct loader *l;
	struct error e = { 0 };
	synth.images = 30;
	synth.size = SIDE;
	assert_int_equal(dataset_open_synthetic(&d, &synth, "train", &e), 0);
	struct loader_conf conf = training(d, 0, 1, 1, 0);
	assert_int_equal(loader_open(&l, &conf, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "--shuffle-window"));
	dataset_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_epoch_has_every_sample_once_and_windows_have_their_files_alone),
		cmocka_unit_test(epochs_and_seeds_have_orders_of_their_own),
		cmocka_unit_test(images_of_a_window_are_mixed),
		cmocka_unit_test(the_order_of_old_checkpoints_stays),
		cmocka_unit_test(ranks_threads_and_restarts_do_not_change_what_a_step_sees),
		cmocka_unit_test(cold_storage_sees_whole_files_in_a_row_and_no_image_before_its_file),
		cmocka_unit_test(no_more_than_one_window_is_read_ahead),
		cmocka_unit_test(images_that_are_kept_are_not_fetched_again),
		cmocka_unit_test(a_piece_of_a_packed_file_is_read_where_it_lies),
		cmocka_unit_test(a_file_that_goes_away_is_an_error_at_its_window_and_not_a_hang),
		cmocka_unit_test(closing_early_never_hangs),
		cmocka_unit_test(images_in_memory_have_no_windows),
	};
	return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
