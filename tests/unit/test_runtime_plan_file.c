/* SPDX-License-Identifier: Apache-2.0
 * The file that HVD_PLAN names: which cuts are written there, who takes them from it, and what is refused. */
#include "tests/unit/plan_world.h"

#include <sys/stat.h>

static void follow_the_file(void *arg)
{
	const int *steps = arg;
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	declare(t, names);
	struct hvd *h = open_world();
	struct hvd_plan *p;
	works(h, hvd_plan_open(h, &p, t, TENSORS, 0));
	if (!*steps)
		meeting->note[meeting_rank] = hvd_plan_buckets(p);
	for (int step = 0; step < *steps; step++) {
		for (int i = 0; i < TENSORS; i++)
			works(h, hvd_plan_ready(p, i));
		works(h, hvd_plan_finish(p));
	}
	must(*steps || hvd_plan_buckets(p) == 2);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void refuse_the_file(void *arg)
{
	const char *because = arg;
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	declare(t, names);
	if (!strcmp(because, "other gradients"))
		t[3].count++;
	struct hvd *h = open_world();
	struct hvd_plan *p;
	must(hvd_plan_open(h, &p, t, TENSORS, 0) == HVD_EMISMATCH);
	must(!p && strstr(hvd_error(h), meeting_rank ? "rank 0 says why" : because));
	works(h, hvd_close(h));
}

static void a_cut_is_written_down_and_taken_from_the_file(void **state)
{
	(void)state;
	static char path[1024]; /* settings keep it, even after a failure */
	char text[4096], first[128];
	int steps = 8, buckets = 0;
	int fd = mkstemp(temporary_name(path, sizeof path));
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	settings.plan = path;
	run_ranks("aabb", follow_the_file, &steps); /* measures, and writes */
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(first, sizeof first, f));
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	assert_int_equal(sscanf(strstr(first, "hash"), "hash %*x, %d", &buckets), 1);
	char *measured = strstr(text, "29\nmeasured by 4 ranks: step ");
	assert_true(buckets >= 1 && measured && (measured == text || measured[-1] == '\n'));
	for (n = 0; *measured; measured++)
		n += *measured == '\n';
	assert_int_equal(n, TENSORS + 2);

	f = fopen(path, "w"); /* another cut, by hand */
	*strstr(first, " gradients, ") = 0;
	fprintf(f, "%s gradients, %.22s 2 buckets; the last gradient of each\n4\n29\n", first, first + strlen(first) + 12);
	fclose(f);
	steps = 0;
	run_ranks("aabb", follow_the_file, &steps);
	steps = 8; /* it stays, though the steps are measured ones */
	run_ranks("abc", follow_the_file, &steps);
	static const size_t by_measurement = 0;
	run_ranks("aabb", train, (void *)(uintptr_t)&by_measurement); /* all ranks have that cut */
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "other gradients");
	assert_int_equal(truncate(path, 60), 0);
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "damaged one: name another file, or remove it if it is an old plan");
	unlink(path);
}

static void what_is_no_file_is_no_plan_and_nobody_waits_for_it(void **state)
{
	(void)state;
	static char path[1024];
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	assert_int_equal(mkfifo(path, 0600), 0);
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "not a regular file, nor a link to one: name another");
	unlink(path);
	assert_int_equal(symlink("nowhere/plan", path), 0); /* a link that the plan would take the place of */
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "not a regular file, nor a link to one: name another");
	unlink(path);
	settings.plan = "/dev/null";
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "/dev/null: not a regular file");
	settings.plan = "/";
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "/: not a regular file");
	settings.plan = "/proc/nobody/plan"; /* nor is a place where none can be written, which is told before a cut is worked out for it */
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "cannot write /proc/nobody/plan: No such file");
}

static void open_and_close(void *arg)
{
	const size_t *bucket_bytes = arg;
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	struct hvd *h = open_world();
	struct hvd_plan *p;
	works(h, hvd_plan_open(h, &p, t, 2, *bucket_bytes));
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

/* A world of one has nothing to measure. */
static void only_a_cut_that_was_measured_or_asked_for_is_written_down(void **state)
{
	(void)state;
	char path[1024];
	size_t none = 0, asked = 4000;
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	run_ranks("a", open_and_close, &none);
	assert_true(access(path, F_OK));
	run_ranks("a", open_and_close, &asked);
	assert_int_equal(unlink(path), 0);
}

/* *arg: the step in which rank 1 dies. The survivors go on until they have measured again. */
static void measure_beside_a_death(void *arg)
{
	enum { ENOUGH = 8 };
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	const int *dies = arg;
	struct hvd_conf conf = quick_conf();
	struct hvd *h;
	struct hvd_plan *p;
	conf.on_death = 1;
	conf.plan = settings.plan;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_plan_open(h, &p, t, 2, 0));
	for (int step = 0, after = 0; after < ENOUGH; step++) {
		if (step == *dies && meeting_rank == 1)
			raise(SIGKILL);
		if (hvd_plan_ready(p, 0) || hvd_plan_ready(p, 1) || hvd_plan_finish(p))
			works(h, hvd_recover(h));
		else
			after += hvd_world(h)->epoch > 0;
	}
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void die_in_step(int step)
{
	run_ranks_but(1, "aab", measure_beside_a_death, &step);
}

static void a_world_that_lost_ranks_leaves_the_plan_file_alone(void **state)
{
	(void)state;
	char path[1024], text[4096] = "";
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	die_in_step(3); /* before it is measured */
	assert_true(access(path, F_OK));
	die_in_step(9);
	FILE *f = fopen(path, "r");
	assert_true(f && fread(text, 1, sizeof text - 1, f) && !fclose(f));
	assert_non_null(strstr(text, "measured by 3 ranks"));
	assert_int_equal(unlink(path), 0);
}

/* What rank 0 says of the file while it opens a plan. */
static void say_whose_cut_it_is(void *arg)
{
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	struct hvd *h = open_world();
	struct hvd_plan *p;
	char text[2000] = "", want[2000];
	FILE *log = tmpfile();
	int kept = dup(2);
	(void)arg;
	must(log && kept >= 0 && dup2(fileno(log), 2) == 2);
	int status = hvd_plan_open(h, &p, t, 2, 0);
	must(dup2(kept, 2) == 2 && pread(fileno(log), text, sizeof text - 1, 0) >= 0);
	works(h, status);
	snprintf(want, sizeof want, "hvd: HVD_PLAN: %s holds the best cut for 3 ranks, which 2 now take\n", settings.plan);
	must(!strcmp(text, meeting_rank || hvd_world(h)->size == 3 ? "" : want));
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void a_cut_for_another_number_of_ranks_is_told(void **state)
{
	(void)state;
	char path[1024];
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	die_in_step(9); /* which three have measured */
	run_ranks("aab", say_whose_cut_it_is, NULL);
	run_ranks("ab", say_whose_cut_it_is, NULL);
	assert_int_equal(unlink(path), 0);
}

/* The second plan's gradients are others; the third's are the first's. */
static void open_three(void *arg)
{
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 }, { "c", 1000 } };
	struct hvd *h = open_world();
	struct hvd_plan *p[3];
	(void)arg;
	works(h, hvd_plan_open(h, &p[0], t, 3, 4000));
	works(h, hvd_plan_open(h, &p[1], t, 2, 8000));
	works(h, hvd_plan_open(h, &p[2], t, 3, 12000));
	must(hvd_plan_buckets(p[0]) == 3 && hvd_plan_buckets(p[1]) == 1 && hvd_plan_buckets(p[2]) == 3);
	for (int i = 0; i < 3; i++)
		hvd_plan_close(p[i]);
	works(h, hvd_close(h));
}

static void a_plan_file_is_the_first_plans(void **state)
{
	(void)state;
	char path[1024];
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	run_ranks("aab", open_three, NULL); /* writes the file */
	run_ranks("aab", open_three, NULL);
	assert_int_equal(unlink(path), 0);
}

/* In a folder, from which the program goes away before the cut is made. */
static void move_and_train(void *arg)
{
	const struct hvd_tensor t[] = { { "a", 1000 }, { "b", 1000 } };
	struct hvd_plan *p;
	must(!chdir(arg));
	char *folder = getcwd(NULL, 0);
	struct hvd *h = open_world();
	works(h, hvd_plan_open(h, &p, t, 2, 0));
	must(!chdir("/"));
	for (int step = 0; step < 8; step++) {
		works(h, hvd_plan_ready(p, 0));
		works(h, hvd_plan_ready(p, 1));
		works(h, hvd_plan_finish(p));
	}
	hvd_plan_close(p);
	must(!chdir(folder));
	free(folder);
	works(h, hvd_close(h));
	must(meeting_rank || !access("cut", R_OK));
}

static void a_plan_file_lies_where_the_program_began(void **state)
{
	(void)state;
	settings.plan = "cut";
	run_ranks_in_folder("ab", move_and_train);
}

/* Ranks 0 and 1, and 2 and 3, have gradients of their own. */
static void plan_in_sub_worlds(void *arg)
{
	const struct hvd_tensor t[] = { { meeting_rank < 2 ? "a" : "b", 1000 } };
	struct hvd *h = open_world(), *part;
	struct hvd_plan *p;
	char text[1000] = "", want[200];
	int said[2], kept = dup(2);
	(void)arg;
	works(h, hvd_split(h, meeting_rank / 2, &part));
	must(!pipe(said) && dup2(said[1], 2) == 2);
	int status = hvd_plan_open(part, &p, t, 1, 0);
	must(dup2(kept, 2) == 2 && !close(said[1]) && read(said[0], text, sizeof text - 1) >= 0);
	works(part, status);
	snprintf(want, sizeof want, "hvd: rank %d on %s: HVD_PLAN is the plan of the whole world: its sub-world of 2 ranks neither reads nor writes it\n",
		 meeting_rank, hvd_host(h, meeting_rank));
	must(!strcmp(text, meeting_rank % 2 ? "" : want));
	hvd_plan_close(p);
	works(part, hvd_close(part));
	must(access(settings.plan, F_OK));
	works(h, hvd_close(h));
}

static void a_plan_file_is_the_worlds_not_its_sub_worlds(void **state)
{
	(void)state;
	char path[1024];
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	run_ranks("aabb", plan_in_sub_worlds, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_cut_is_written_down_and_taken_from_the_file, forget_settings),
		cmocka_unit_test_teardown(what_is_no_file_is_no_plan_and_nobody_waits_for_it, forget_settings),
		cmocka_unit_test_teardown(only_a_cut_that_was_measured_or_asked_for_is_written_down, forget_settings),
		cmocka_unit_test_teardown(a_world_that_lost_ranks_leaves_the_plan_file_alone, forget_settings),
		cmocka_unit_test_teardown(a_cut_for_another_number_of_ranks_is_told, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_is_the_first_plans, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_lies_where_the_program_began, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_is_the_worlds_not_its_sub_worlds, forget_settings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
