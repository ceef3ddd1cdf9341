/* SPDX-License-Identifier: Apache-2.0
 * Traces: of one world after another, and what hvd-trace makes of them. */
#include "tests/unit/runtime_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

/* As on the tmpfs of older kernels: whoever lets signals in hears of one before it is done. */
int __wrap_posix_fallocate(int fd, off_t offset, off_t length);
int __real_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length)
{
	sigset_t now;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, SIGPROF) && sigismember(&now, SIGALRM) ? __real_posix_fallocate(fd, offset, length) : EINTR;
}

/* directory: of the traces; NULL: none are written. */
static struct hvd *open_traced(const char *directory)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.trace = directory;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	return h;
}

/* Rank 0 comes last to the second world: the card that the others find is that of the first. */
static void form_two(void *arg)
{
	struct hvd *h = open_traced(arg);
	check_sum(h, (1 << hvd_world(h)->size) - 1);
	hvd_mark(h, "first", hvd_mark(h, NULL, 0));
	works(h, hvd_close(h));
	if (meeting_rank == 0)
		usleep(100000);
	h = open_traced(arg);
	check_sum(h, (1 << hvd_world(h)->size) - 1);
	hvd_mark(h, "second", hvd_mark(h, NULL, 0));
	works(h, hvd_close(h));
}

static void one_world_can_follow_another(void **state)
{
	(void)state;
	run_ranks("aabb", form_two, NULL);
}

/* The first name that the program gave to a time in this file; the file goes. */
static void expect_mark(const char *folder, const char *file, const char *name)
{
	char path[1200];
	struct trace_file *t = malloc(sizeof *t);
	snprintf(path, sizeof path, "%s/%s", folder, file);
	FILE *f = fopen(path, "r");
	if (!f)
		fail_msg("there is no %s", path);
	assert_true(t && fread(t, sizeof *t, 1, f) == 1);
	fclose(f);
	assert_string_equal(t->name[0], name);
	free(t);
	unlink(path);
}

static void a_second_world_leaves_the_first_ones_trace_alone(void **state)
{
	(void)state;
	char folder[1024];
	unsetenv("SLURM_JOB_ID");
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	run_ranks("ab", form_two, folder);
	expect_mark(folder, "local.0-rank00000.hvdtrace", "first");
	expect_mark(folder, "local.0.2-rank00000.hvdtrace", "second");
	expect_mark(folder, "local.0.2-rank00001.hvdtrace", "second");
	run_ranks("ab", form_two, folder); /* rank 1's first is still there: on all ranks the numbers go on after it */
	expect_mark(folder, "local.0-rank00001.hvdtrace", "first");
	expect_mark(folder, "local.0.2-rank00000.hvdtrace", "first");
	expect_mark(folder, "local.0.2-rank00001.hvdtrace", "first");
	expect_mark(folder, "local.0.3-rank00000.hvdtrace", "second");
	expect_mark(folder, "local.0.3-rank00001.hvdtrace", "second");
	/* a link to nothing has a name, too */
	char link[1100];
	snprintf(link, sizeof link, "%s/local.0-rank00000.hvdtrace", folder);
	assert_int_equal(symlink("nothing", link), 0);
	run_ranks("a", form_two, folder);
	expect_mark(folder, "local.0.2-rank00000.hvdtrace", "first");
	expect_mark(folder, "local.0.3-rank00000.hvdtrace", "second");
	assert_int_equal(unlink(link) || rmdir(folder), 0);
}

/* Writes a number over four bytes of a file, runs hvd-trace on both, and expects it to refuse them with these words. */
static void expect_refused(const char *folder, const char *other, const char *damaged, size_t at, uint32_t number, const char *says)
{
	char text[3000], path[1200];
	snprintf(path, sizeof path, "%s/%s", folder, damaged);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &number, sizeof number, (off_t)at), sizeof number);
	close(fd);
	snprintf(text, sizeof text, "${BUILD:-build}/hvd-trace %s/%s %s 2>&1", folder, other, path);
	FILE *f = popen(text, "r");
	text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
	assert_int_equal(WEXITSTATUS(pclose(f)), 65);
	if (!strstr(text, says))
		fail_msg("%s", text);
}

/* Each step takes 100 ms; rank 1's gradients are ready 5 ms after rank 0's, and the mean is there 1 ms later. */
static void write_trace(const char *folder, uint32_t rank, int64_t ahead)
{
	char path[1200];
	struct trace_file *t = calloc(1, sizeof *t);
	assert_non_null(t);
	*t = (struct trace_file){ .magic = TRACE_MAGIC, .host = "a", .rank = rank, .size = 2, .written = 60 };
	for (uint32_t i = 0; i < 20; i++) {
		const uint64_t begin = (uint64_t)(ahead + 100000000 * (i + 1) + 5000000 * rank), end = (uint64_t)(ahead + 100000000 * (i + 1) + 6000000);
		t->record[3 * i] = (struct trace_record){ begin, begin, i, 0, TRACE_READY, 4 };
		t->record[3 * i + 1] = (struct trace_record){ begin, end, i, 0, TRACE_BUCKET, 4 };
		t->record[3 * i + 2] = (struct trace_record){ begin, end, i, 0, TRACE_WAIT, 4 };
	}
	snprintf(path, sizeof path, "%s/1.0-rank%05u.hvdtrace", folder, rank);
	FILE *f = fopen(path, "w");
	assert_true(f && fwrite(t, sizeof *t, 1, f) == 1 && !fclose(f));
	free(t);
}

static void clocks_that_have_drifted_blame_nobody(void **state)
{
	static const int64_t ahead[] = { 0, 50000000, -50000000 };
	(void)state;
	char folder[1024], text[3000];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	for (int i = 0; i < 3; i++) {
		for (uint32_t rank = 0; rank < 2; rank++)
			write_trace(folder, rank, rank ? ahead[i] : 0);
		snprintf(text, sizeof text, "${BUILD:-build}/hvd-trace %s", folder);
		FILE *f = popen(text, "r");
		text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
		assert_int_equal(pclose(f), 0);
		if (!strstr(text, "last to be ready: rank 1 on a, in 19 of 19 steps, 5.00 ms after the others"))
			fail_msg("%s", text);
	}
	snprintf(text, sizeof text, "rm -r %s", folder);
	assert_int_equal(system(text), 0);
}

static void expect_output(const char *command, const char *folder, int status, const char *says)
{
	char text[3000];
	snprintf(text, sizeof text, command, folder, folder);
	FILE *f = popen(text, "r");
	text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
	assert_int_equal(WEXITSTATUS(pclose(f)), status);
	if (!strstr(text, says))
		fail_msg("%s", text);
}

/* Of each step of both ranks: so many ms of input, and 15 of validation and checkpoint. */
static void add_marks(const char *folder, uint64_t input)
{
	for (int rank = 0; rank < 2; rank++) {
		char path[1100];
		snprintf(path, sizeof path, "%s/1.0-rank%05d.hvdtrace", folder, rank);
		const int fd = open(path, O_RDWR);
		struct trace_file *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(t, MAP_FAILED);
		close(fd);
		memcpy(t->name, (const char[][TRACE_NAME_BYTES]){ "input", "validation", "checkpoint" }, sizeof t->name[0] * 3);
		for (uint32_t i = 0; i < 20; i++) {
			const uint64_t at = 100000000 * (uint64_t)i + 20000000;
			t->record[60 + 3 * i] = (struct trace_record){ at, at + 1000000 * input, i, 0, TRACE_MARK, 0 };
			t->record[61 + 3 * i] = (struct trace_record){ at - 11000000, at - 1000000, i, 1, TRACE_MARK, 0 };
			t->record[62 + 3 * i] = (struct trace_record){ at - 1000000, at + 4000000, i, 2, TRACE_MARK, 0 };
		}
		t->written = 120;
		munmap(t, sizeof *t);
	}
}

static void the_shares_of_a_step_are_told(void **state)
{
	(void)state;
	char folder[1024];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	write_trace(folder, 0, 0);
	write_trace(folder, 1, 0);
	add_marks(folder, 20);
	expect_output("${BUILD:-build}/hvd-trace %s", folder, 0,
		      "2 ranks, 19 steps, 85.00 ms a step\n"
		      "  computing                     61.50 ms  72.4 %\n"
		      "  input                         20.00 ms  23.5 %\n"
		      "  waiting for late ranks         2.50 ms   2.9 %\n"
		      "  communication not hidden       1.00 ms   1.2 %\n"
		      "all-reduces take 3.50 ms a step, with the waiting for each other\n"
		      "validations and checkpoints, not counted above: 15.00 ms a step\n"
		      "most often last to be ready: rank 1 on a, in 19 of 19 steps, 5.00 ms after the others\n"
		      "bottleneck: computing\n");
	add_marks(folder, 41);
	expect_output("${BUILD:-build}/hvd-trace %s", folder, 0, "bottleneck: input\n");
	expect_output("rm -r %s", folder, 0, "");
}

static void a_timeline_has_the_waits_of_every_bucket(void **state)
{
	(void)state;
	char folder[1024], path[1100];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	write_trace(folder, 0, 0);
	snprintf(path, sizeof path, "%s/1.0-rank00000.hvdtrace", folder);
	const int fd = open(path, O_RDWR);
	struct trace_file *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(t, MAP_FAILED);
	close(fd);
	for (int i = 0; i < 60; i++) {
		t->record[i].index = t->record[i].kind == TRACE_WAIT ? 0 : 5000;
		t->record[i].begin += t->record[i].kind == TRACE_BUCKET ? 2000 : 0;
	}
	for (uint32_t i = 0; i < 2; i++)
		t->record[60 + i] = (struct trace_record){ 100000000, 200000000, 0, OP_BROADCAST + i * (unsigned)OP_KINDS, TRACE_COLLECTIVE, 4 };
	t->written = 62;
	expect_output("${BUILD:-build}/hvd-trace -o /dev/stdout %s 2>&1 | grep waits", folder, 0, "bucket 5000 waits");
	expect_output("${BUILD:-build}/hvd-trace -o /dev/stdout %s 2>&1 | grep -o '[0-9],\"name\":\"BROADCAST\"'", folder, 0, "0,\"name\":\"BROADCAST\"\n1,\"name\":\"BROADCAST\"\n");
	/* into one file with the summary, and behind it, as into a pipe */
	expect_output("f=%s/both; ${BUILD:-build}/hvd-trace -o /dev/stdout %s >$f 2>/dev/null && head -n 1 $f && grep -c QUEUE $f", folder, 0, "1 rank, 19 steps, 100.00 ms a step\n20\n");
	/* where a machine has ended, a page may not have been written: its records are of no step */
	for (int i = 0; i < 62; i++)
		t->record[i].step += 4000000000;
	t->record[0] = (struct trace_record){ 0 };
	expect_output("${BUILD:-build}/hvd-trace %s", folder, 0, "1 rank, 19 steps, 100.00 ms a step\n");
	/* of a damaged trace, too, each is in the thread that is named */
	for (int i = 0; i < 60; i++)
		t->record[i].index += t->record[i].index ? INT32_MAX - 5000 : 0;
	munmap(t, sizeof *t);
	expect_output("${BUILD:-build}/hvd-trace -o /dev/stdout %s | grep -c '2147483649,\"name\":\"QUEUE\"'", folder, 0, "19\n");
	for (int i = 0; i < 2 && !access("/dev/full", F_OK); i++) /* help that is lost is told */
		expect_output(i ? "${BUILD:-build}/hvd-bench --version 2>&1 >/dev/full" : "${BUILD:-build}/hvd-trace --help 2>&1 >/dev/full", folder, 70, "what was printed is not complete: No space left on device");
	expect_output("rm -r %s", folder, 0, "");
}

static void traces_of_two_worlds_and_damaged_ones_are_refused(void **state)
{
	(void)state;
	const char *first = "local.0-rank00000.hvdtrace", *second = "local.0-rank00001.hvdtrace", *later = "local.0.2-rank00001.hvdtrace";
	const size_t step = offsetof(struct trace_file, record[0].step), rank = offsetof(struct trace_file, rank);
	char folder[1024], command[1100];
	unsetenv("SLURM_JOB_ID");
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	run_ranks("ab", form_two, folder);
	expect_refused(folder, first, later, rank, 1, "traces of several job steps: rank 0 of 2 is followed by another's rank 1 of 2");
	expect_refused(folder, first, first, rank, 0, "hvd-trace: the trace of rank 0 of 2 is named twice: name each file once");
	expect_refused(folder, first, second, rank, 2, "local.0-rank00001.hvdtrace: damaged: rank 2 of 2");
	expect_refused(folder, later, first, step, 4000000000, "local.0-rank00000.hvdtrace: damaged: rank 0 of 2, steps 0 to 4000000000");
	expect_refused(folder, later, later, rank + 12, 0x7fffffff, "local.0.2-rank00001.hvdtrace: damaged: rank 1 of 2"); /* its clock */
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

/* Anybody may have written it, where all write into one directory. */
static void a_host_with_escapes_does_not_reach_the_terminal(void **state)
{
	(void)state;
	char folder[1024], command[1100], escape[4] = "\033[m";
	uint32_t number;
	memcpy(&number, escape, sizeof number);
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	write_trace(folder, 0, 0);
	write_trace(folder, 1, 0);
	expect_refused(folder, "1.0-rank00000.hvdtrace", "1.0-rank00001.hvdtrace", offsetof(struct trace_file, host), number, "1.0-rank00001.hvdtrace: damaged: rank 1 of 2");
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

/* Nor is such a file the directory's newest step. */
static void a_file_whose_name_has_escapes_is_no_trace(void **state)
{
	(void)state;
	char folder[1024];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	write_trace(folder, 0, 0);
	write_trace(folder, 1, 0);
	expect_output("touch %s/\"$(printf '9.\\033[m')-rank00000.hvdtrace\" && ${BUILD:-build}/hvd-trace %s 2>&1", folder, 0, "2 ranks, 19 steps, 100.00 ms a step\n");
	expect_output("rm -r %s", folder, 0, "");
}

static void split_with_a_trace(void *arg)
{
	struct hvd *h = open_traced(arg), *part;
	h->step = 7;
	works(h, hvd_barrier(h)); /* beside a step, but in its time: hundreds of thousands of steps later a record of step 0 would look damaged */
	const struct trace_record *last = &h->trace->record[h->trace->written - 1];
	must(last->kind == TRACE_COLLECTIVE && last->index == OP_BARRIER && last->step == 7);
	float one = 1;
	works(h, hvd_wait(h, hvd_start_allreduce(h, &one, &one, 1, HVD_F32, HVD_SUM)));
	must(last[1].kind == TRACE_COLLECTIVE && last[1].index == OP_ALLREDUCE + OP_KINDS); /* of another thread than the marks that it overlaps */
	works(h, hvd_split(h, 0, &part));
	must(h->trace && !part->trace);
	works(part, hvd_close(part));
	works(h, hvd_close(h));
}

static void a_sub_world_leaves_no_trace(void **state)
{
	(void)state;
	run_ranks_in_folder("aab", split_with_a_trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_world_can_follow_another),
		cmocka_unit_test(a_second_world_leaves_the_first_ones_trace_alone),
		cmocka_unit_test(traces_of_two_worlds_and_damaged_ones_are_refused),
		cmocka_unit_test(a_host_with_escapes_does_not_reach_the_terminal),
		cmocka_unit_test(a_file_whose_name_has_escapes_is_no_trace),
		cmocka_unit_test(clocks_that_have_drifted_blame_nobody),
		cmocka_unit_test(the_shares_of_a_step_are_told),
		cmocka_unit_test(a_timeline_has_the_waits_of_every_bucket),
		cmocka_unit_test(a_sub_world_leaves_no_trace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
