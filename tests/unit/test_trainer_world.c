/* SPDX-License-Identifier: Apache-2.0
 * What ranks say when some of them fail, and a rank that loses another; where a rank runs, on a node with more CPUs than a cpu_set_t has; and NCCL where libhvd finds it. */
#include "scratch.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "learn/model.h"
#include "learn/world.h"

enum { NODE_CPUS = 2048 };

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);

/* As the kernel answers there; the task may use the upper half. */
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	(void)pid;
	if (8 * size < NODE_CPUS) {
		errno = EINVAL;
		return -1;
	}
	CPU_ZERO_S(size, set);
	for (int c = NODE_CPUS / 2; c < NODE_CPUS; c++)
		CPU_SET_S(c, size, set);
	return 0;
}

static double quota;
double __wrap_cgroup_cpus(uint64_t *group);

double __wrap_cgroup_cpus(uint64_t *group)
{
	*group = 1;
	return quota;
}

static void a_rank_has_the_threads_of_its_cpus(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct world w;
	char text[64];

	assert_int_equal(world_alone(&w, "test", &e), 0);
	assert_int_equal(w.places->threads, NODE_CPUS / 2);
	cpu_list(w.places->cpus, text, sizeof text);
	assert_string_equal(text, "1024-2047");
	world_close(&w);
	for (int i = 0; i < 4; i++) {
		quota = (double[]){ 5000, 6.5, 0.5, 0 }[i];
		assert_int_equal(world_alone(&w, "test", &e), 0);
		assert_int_equal(w.places->threads, ((int[]){ NODE_CPUS / 2, 6, 1, NODE_CPUS / 2 })[i]);
		world_close(&w);
	}
}

static void what_the_step_gave_holds(void **state)
{
	(void)state;
	struct error e = { 0 };
	struct world w;

	setenv("HVD_THREADS", "2000", 1);
	assert_int_equal(world_alone(&w, "test", &e), 0);
	assert_int_equal(w.places->threads, 2000);
	world_close(&w);
}

static void images_are_decoded_on_cpus_that_do_not_compute(void **state)
{
	(void)state;
	static const struct {
		int threads, beside_cpus, beside_gpu;
	} cases[] = { { 1, 1, 1 }, { 7, 1, 7 }, { 15, 2, 15 }, { 72, 10, 16 } };

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct place places[] = { { .threads = 99 }, { .threads = cases[i].threads } };
		struct hvd_world at = { .rank = 1, .size = 2 };
		struct world w = { .at = &at, .places = places };

		assert_int_equal(model_decode_threads(&(struct model){ .world = &w, .kind = ENGINE_CPU }), cases[i].beside_cpus);
		assert_int_equal(model_decode_threads(&(struct model){ .world = &w, .kind = ENGINE_CUDA }), cases[i].beside_gpu);
	}
}

/* A driver that shows a GPU, and no libraries but those of Python's wheels. */
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *library, const char *name);
static char opened[FILE_PATH];

void *__wrap_dlopen(const char *name, int flags)
{
	(void)flags;
	dlerror(); /* what LLVM's OpenMP failed to open is not this one's */
	if (strstr(name, "/site-packages/"))
		snprintf(opened, sizeof opened, "%s", name);
	return !strcmp(name, "libcuda.so.1") || strstr(name, "/site-packages/") ? opened : NULL;
}

static int init(unsigned flags)
{
	return (int)flags;
}

static int count(int *devices)
{
	*devices = 1;
	return 0;
}

void *__wrap_dlsym(void *library, const char *name)
{
	(void)library;
	return !strcmp(name, "cuInit") ? (void *)(uintptr_t)init : (void *)(uintptr_t)count;
}

static void nccl_of_a_wheel_is_loaded_before_libhvd_looks_for_it(void **state)
{
	(void)state;
	static const char *const folders[] = { "lib", "lib/python3.99", "lib/python3.99/site-packages", "lib/python3.99/site-packages/nvidia",
					       "lib/python3.99/site-packages/nvidia/nccl", "lib/python3.99/site-packages/nvidia/nccl/lib" };
	struct error e = { 0 };
	struct world w;

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		assert_int_equal(mkdir(scratch_path("%s", folders[i]), 0777), 0);
	scratch_write(scratch_path("%s/libnccl.so.2", folders[5]), "", 0);
	setenv("VIRTUAL_ENV", scratch_path("."), 1);
	setenv("HVD_BACKEND", "cpu", 1);
	assert_int_equal(world_open(&w, "test", 0, &e), 0);
	world_close(&w);
	assert_string_equal(opened, "");
	unsetenv("HVD_BACKEND");
	assert_int_equal(world_open(&w, "test", 0, &e), 0);
	world_close(&w);
	assert_non_null(strstr(opened, "/nvidia/nccl/lib/libnccl.so.2"));
}

/* ---- three ranks, two of them on one node ------------------------------------------------------------ */

enum { RANKS = 3 };

static const struct place *others; /* [RANKS], of which what is set differs from the first; NULL: nothing is played */

const struct hvd_world *__real_hvd_world(const struct hvd *h);
const struct hvd_world *__wrap_hvd_world(const struct hvd *h);

const struct hvd_world *__wrap_hvd_world(const struct hvd *h)
{
	static const struct hvd_world three = { .size = RANKS, .local_size = 2, .nodes = 2, .backend = "cpu" };

	return others ? &three : __real_hvd_world(h);
}

static void gather(const void *in, void *out, size_t n)
{
	struct place *places = out;

	memset(out, 0, RANKS * (n == sizeof *places ? n : 8));
	for (int r = 0; n == sizeof *places && r < RANKS; r++) {
		memcpy(&places[r], in, n);
		snprintf(places[r].host, sizeof places[r].host, "%s", r < 2 ? "n1" : "n2");
		places[r].quota_group += others[r].quota_group;
	}
}

static void ranks_divide_a_quota_that_they_share(void **state)
{
	(void)state;
	static const struct place same[RANKS], own[RANKS] = { { .quota_group = 0 }, { .quota_group = 1 }, { .quota_group = 2 } };

	quota = 6;
	for (int i = 0; i < 2; i++) { /* of one group, or of a container each */
		struct error e = { 0 };
		struct world w;

		others = i ? own : same;
		setenv("HVD_BACKEND", "cpu", 1);
		assert_int_equal(world_open(&w, "test", 0, &e), 0);
		assert_int_equal(w.places[0].threads, i ? 6 : 3);
		world_close(&w);
	}
	unsetenv("HVD_BACKEND");
	others = NULL;
	quota = 0;
}

/* ---- agreement on errors ---------------------------------------------------------------------------- */

int __real_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
const char *__wrap_hvd_host(const struct hvd *h, int rank);

static int rank_that_agrees = -1; /* of RANKS; -1: nothing is played */
static uint64_t words[RANKS];     /* what each has brought */

int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	if (others) {
		gather(in, out, n);
		return 0;
	}
	if (rank_that_agrees < 0)
		return __real_hvd_allgather(h, in, out, n, type);
	assert_true(n == 1 && type == HVD_U64);
	memcpy(&words[rank_that_agrees], in, sizeof words[0]);
	memcpy(out, words, sizeof words);
	return 0;
}

const char *__wrap_hvd_host(const struct hvd *h, int rank)
{
	static const char *const hosts[RANKS] = { "n1", "n1", "n2" };

	(void)h;
	return hosts[rank];
}

/* Each rank in turn, after a round in which its word has come to the others. told: what all of them print. */
static void agree(const struct error own[RANKS], int codes[RANKS], char *told, char texts[RANKS][256])
{
	const char *path = scratch_path("told");
	size_t size;
	char *text;
	struct error none = { 0 };
	int standard_error = dup(STDERR_FILENO);

	for (int round = 0; round < 2; round++) {
		assert_non_null(freopen(path, "w", stderr));
		for (int r = 0; r < RANKS; r++) {
			struct hvd_world at = { .rank = r, .size = RANKS };
			uint64_t gathered[RANKS];
			struct world w = { .at = &at, .command = "train", .words = gathered };
			struct error e = own[r];

			rank_that_agrees = r;
			codes[r] = world_agree(&w, &e);
			assert_int_equal(w.told, codes[r] != 0);
			snprintf(texts[r], 256, "%.255s", e.text);
		}
	}
	rank_that_agrees = -1;
	fflush(stderr);
	dup2(standard_error, STDERR_FILENO);
	close(standard_error);
	assert_int_equal(file_read(&text, &size, path, &none), 0);
	snprintf(told, 512, "%s", text);
	free(text);
}

static void an_error_is_said_once_with_the_ranks_that_it_is_of(void **state)
{
	static const struct {
		struct error own[RANKS];
		int code;
		const char *told, *others; /* others: what is left to those that have none of their own */
	} cases[] = {
		{ { { 0 } }, 0, "", "" },
		{ { { 65, "no a" }, { 65, "no a" }, { 65, "no a" } }, 65, "chexnet train: no a\n", NULL },
		{ { { 0 }, { 65, "no a" }, { 0 } }, 65, "chexnet train: rank 1 on n1: no a\n", "rank 1 on n1 failed, and its line on standard error says why" },
		{ { { 0 }, { 65, "no a" }, { 65, "no a" } }, 65, "chexnet train: rank 1 on n1: no a\n", "rank 1 on n1 failed, and its line on standard error says why" },
		{ { { 70, "no b" }, { 0 }, { 65, "no a" } }, 70, "chexnet train: rank 0 on n1: no b\nchexnet train: rank 2 on n2: no a\n",
		  "rank 0 on n1 failed, and its line on standard error says why" },
		{ { { 65, "no a" }, { 70, "no a" }, { 65, "no a" } }, 65, "chexnet train: rank 0 on n1: no a\nchexnet train: rank 1 on n1: no a\n", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int codes[RANKS];
		char told[512], texts[RANKS][256];

		memset(words, 0, sizeof words);
		agree(cases[i].own, codes, told, texts);
		assert_string_equal(told, cases[i].told);
		for (int r = 0; r < RANKS; r++) {
			assert_int_equal(codes[r], -cases[i].code);
			assert_string_equal(texts[r], cases[i].own[r].code ? cases[i].own[r].text : cases[i].others);
		}
	}
}

/* ---- a lost rank ------------------------------------------------------------------------------------- */

static struct hvd_conf conf;
static int log_fd = -1;
static atomic_int at_the_log; /* the watching thread */

int __real_hvd_init(struct hvd **h, const struct hvd_conf *c);
int __wrap_hvd_init(struct hvd **h, const struct hvd_conf *c);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);

int __wrap_hvd_init(struct hvd **h, const struct hvd_conf *c)
{
	conf = *c;
	return __real_hvd_init(h, c);
}

/* A log that takes its time. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (n == 1 && fds->fd == log_fd) {
		at_the_log = 1;
		usleep(300000);
	}
	return __real_poll(fds, n, timeout);
}

int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	(void)room;
	return __wrap_poll(fds, n, timeout);
}

static void *lose_a_rank(void *arg)
{
	conf.on_lost(conf.on_lost_arg, "lost rank 1");
	return arg;
}

static void close_a_log_that_is_told(int log)
{
	struct error e = { 0 };
	struct world w;
	const uint64_t step = 7;
	pthread_t watcher;

	if (!freopen("/dev/null", "w", stderr) || world_open(&w, "test", 0, &e))
		_exit(1);
	world_on_lost_log(log_fd = log, &step, "model");
	if (pthread_create(&watcher, NULL, lose_a_rank, NULL))
		_exit(1);
	while (!at_the_log)
		usleep(1000);
	world_on_lost_log(-1, NULL, NULL);
	close(log);
	_exit(1);
}

/* The exit code of a process, and what it writes to the log that it is given. */
static int told_by(void (*process)(int log), char text[4096])
{
	int ends[2], status;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (!pid)
		process(ends[1]);
	close(ends[1]);
	n = read(ends[0], text, 4095);
	text[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void a_log_is_not_closed_while_its_end_is_told(void **state)
{
	char text[4096];

	(void)state;
	assert_int_equal(told_by(close_a_log_that_is_told, text), EXIT_INTERNAL);
	assert_non_null(strstr(text, "\"code\":70,\"step\":7,\"reason\":\"lost rank 1\",\"output\":\"model\"}\n"));
}

static void read_what_was_cut(int log)
{
	struct error e = { 0 };
	struct mapped_file file;
	const uint64_t step = 8;

	signal(SIGBUS, SIG_DFL); /* whatever a sanitizer has put there */
	if (!freopen("/dev/null", "w", stderr) || file_map(&file, scratch_path("shard"), &e))
		_exit(1);
	world_on_lost_log(log, &step, "model");
	if (truncate(scratch_path("shard"), 0))
		_exit(1);
	volatile uint8_t byte = file.data[3];
	(void)byte;
	_exit(1);
}

static void a_log_gets_its_end_where_a_file_is_cut_while_it_is_read(void **state)
{
	char text[4096], wanted[4096];
	const char *path = scratch_path("shard");

	(void)state;
	scratch_write(path, "shard", 5);
	assert_int_equal(told_by(read_what_was_cut, text), EXIT_DATA);
	snprintf(wanted, sizeof wanted, "\"code\":65,\"step\":8,\"reason\":\"%.3000s: byte 3 cannot be read any more: the file was cut, or its storage failed\",\"output\":\"model\"}\n", path);
	assert_non_null(strstr(text, wanted));
}

int main(void)
{
	unsetenv("HVD_THREADS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_has_the_threads_of_its_cpus),
		cmocka_unit_test(ranks_divide_a_quota_that_they_share),
		cmocka_unit_test(what_the_step_gave_holds),
		cmocka_unit_test(images_are_decoded_on_cpus_that_do_not_compute),
		cmocka_unit_test_setup_teardown(an_error_is_said_once_with_the_ranks_that_it_is_of, scratch_make, scratch_remove),
		cmocka_unit_test(a_log_is_not_closed_while_its_end_is_told),
		cmocka_unit_test_setup_teardown(a_log_gets_its_end_where_a_file_is_cut_while_it_is_read, scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(nccl_of_a_wheel_is_loaded_before_libhvd_looks_for_it, scratch_make, scratch_remove),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
