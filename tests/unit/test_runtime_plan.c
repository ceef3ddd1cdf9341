/* SPDX-License-Identifier: Apache-2.0
 * Gradient buckets: the mean is that of a serial program whatever the cut, and ranks must declare the same. */
#include "tests/unit/runtime_world.h"

#include <sys/stat.h>

enum { TENSORS = 30 };

static float gradient(int rank, int step, size_t i)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(rank * 31 + step + 1) * 0x9e3779b9u;
	x ^= x >> 14;
	return (float)(x & 0xffffff) / 65536.0f - 100;
}

static struct hvd_conf settings; /* beside quick_conf() */

static struct hvd *open_world(void)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.plan = settings.plan;
	conf.wire = settings.wire;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	return h;
}

/* Prime sizes: nothing is aligned. */
static int declare(struct hvd_tensor *t, char names[][16])
{
	static const size_t sizes[] = { 7, 10007, 3, 1009, 40009, 13, 5003 };
	int floats = 0;
	for (int i = 0; i < TENSORS; i++) {
		snprintf(names[i], 16, i == TENSORS - 1 ? "statistics" : "t%d", i);
		t[i] = (struct hvd_tensor){ names[i], sizes[i % 7] };
		floats += (int)sizes[i % 7];
	}
	return floats;
}

static void train(void *arg)
{
	const size_t *bucket_bytes = arg;
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	int floats = declare(t, names);
	struct hvd *h = open_world();
	struct hvd_plan *p;
	int rank = hvd_world(h)->rank, size = hvd_world(h)->size;
	works(h, hvd_plan_open(h, &p, t, TENSORS, *bucket_bytes));
	float *slab = hvd_plan_slab(p);
	const int steps = *bucket_bytes > 1 ? 4 : 9; /* enough of them for a cut by measurement, if that is asked for */
	for (int step = 0; step < steps; step++) {
		size_t at = 0;
		for (int i = 0; i < TENSORS; i++) {
			for (size_t k = 0; k < t[i].count; k++)
				slab[at + k] = gradient(rank, step, at + k);
			at += t[i].count;
			works(h, hvd_plan_ready(p, i));
		}
		works(h, hvd_plan_finish(p));
		for (int i = 0; i < floats; i++) {
			float want = gradient(0, step, (size_t)i);
			for (int r = 1; r < size; r++)
				want += gradient(r, step, (size_t)i);
			want /= (float)size;
			must(!memcmp(&slab[i], &want, 4));
		}
		float check = (float)rank; /* other collectives between the steps */
		works(h, hvd_allreduce(h, &check, &check, 1, HVD_F32, HVD_MAX));
		must(check == (float)(size - 1));
	}
	must(*bucket_bytes != 1 || hvd_plan_buckets(p) == TENSORS);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void means_do_not_depend_on_cut_or_layout(void **state)
{
	(void)state;
	static const char *const layouts[] = { "aaaa", "aabb", "abab", "abc" };
	static const size_t cuts[] = { 1, 20000, 300000, 1u << 30, 0 };
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 5; k++)
			run_ranks(layouts[i], train, (void *)(uintptr_t)&cuts[k]);
}

/* Rank 2 says something else; every rank learns who, and where it begins. */
static void disagree(void *arg)
{
	const char *how = arg;
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	declare(t, names);
	struct hvd *h = open_world();
	struct hvd_plan *p;
	int n = TENSORS;
	size_t bucket_bytes = 4096;
	if (meeting_rank == 2 && !strcmp(how, "count"))
		t[17].count++;
	if (meeting_rank == 2 && !strcmp(how, "name"))
		t[17].name = "other";
	if (meeting_rank == 2 && !strcmp(how, "fewer"))
		n = 17;
	if (meeting_rank == 2 && !strcmp(how, "buckets"))
		bucket_bytes = 8192;
	if (!strcmp(how, "one only")) { /* which is no matter of measurements */
		n = meeting_rank == 2 ? 1 : TENSORS;
		bucket_bytes = 0;
	}
	if (!strcmp(how, "buckets of its own")) /* the same size, once to stay and once until there are measurements */
		bucket_bytes = meeting_rank == 2 ? 2 << 20 : 0;
	must(hvd_plan_open(h, &p, t, n, bucket_bytes) == HVD_EMISMATCH);
	must(!p && strstr(hvd_error(h), "rank 2 on node-b"));
	must(!!strstr(hvd_error(h), "from number 17 on") == (!strcmp(how, "count") || !strcmp(how, "name") || !strcmp(how, "fewer")));
	must(strcmp(how, "one only") || strstr(hvd_error(h), "from number 1 on"));
	must(strcmp(how, "buckets") || strstr(hvd_error(h), "asks for buckets of 8192 bytes, rank 0 for buckets of 4096 bytes"));
	must(strcmp(how, "buckets of its own") || strstr(hvd_error(h), "asks for buckets of 2097152 bytes, rank 0 for buckets by measurement"));
	works(h, hvd_barrier(h)); /* the world itself is as good as before */
	works(h, hvd_close(h));
}

static void a_rank_that_declares_something_else_is_named(void **state)
{
	(void)state;
	run_ranks("aabb", disagree, (void *)(uintptr_t) "count");
	run_ranks("aabb", disagree, (void *)(uintptr_t) "name");
	run_ranks("aabb", disagree, (void *)(uintptr_t) "fewer");
	run_ranks("aabb", disagree, (void *)(uintptr_t) "buckets");
	run_ranks("aabb", disagree, (void *)(uintptr_t) "buckets of its own");
	run_ranks("aabb", disagree, (void *)(uintptr_t) "one only");
}

/* After a death rank 1 is another process, on another node. */
static void disagree_later(void *arg)
{
	struct hvd_conf conf = quick_conf();
	struct hvd_tensor t = { "a", 100 };
	struct hvd *h;
	struct hvd_plan *p;
	(void)arg;
	conf.on_death = 1;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	if (meeting_rank == 1)
		raise(SIGKILL);
	while (!stop_word(h))
		usleep(1000);
	works(h, hvd_recover(h));
	t.count += (size_t)hvd_world(h)->rank;
	must(hvd_plan_open(h, &p, &t, 1, 4096) == HVD_EMISMATCH);
	must(strstr(hvd_error(h), "rank 1 on node-c declares other gradients"));
	works(h, hvd_close(h));
}

static void who_differs_after_a_death_is_named_with_its_node(void **state)
{
	int status[RANKS_MAX];
	(void)state;
	spawn_ranks("abc", disagree_later, NULL, status);
	meeting_over();
	assert_int_equal(status[0], 0);
	assert_int_equal(status[2], 0);
}

/* In buckets of 4 KiB. */
static struct hvd *open_plan(struct hvd_plan **p)
{
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	declare(t, names);
	struct hvd *h = open_world();
	works(h, hvd_plan_open(h, p, t, TENSORS, 4096));
	return h;
}

static void all_ready(struct hvd *h, struct hvd_plan *p)
{
	for (int i = 0; i < TENSORS; i++)
		works(h, hvd_plan_ready(p, i));
}

/* Once more than there are gradients, and an end in the middle of a step, while rank 1 is late: its part still comes, and finds memory. */
static void misuse(void *arg)
{
	struct hvd_plan *p;
	struct hvd *h = open_plan(&p);
	(void)arg;
	all_ready(h, p);
	must(hvd_plan_ready(p, TENSORS) == HVD_EINVAL && strstr(hvd_error(h), "gradient 30 out of order"));
	works(h, hvd_plan_finish(p));
	struct hvd_plan *none = p;
	must(hvd_plan_open(h, &none, NULL, 0, 0) == HVD_EINVAL && !none && strstr(hvd_error(h), "no tensors"));
	works(h, hvd_barrier(h));
	if (meeting_rank == 1)
		usleep(200000);
	all_ready(h, p);
	hvd_plan_close(p);
	works(h, hvd_barrier(h));
	works(h, hvd_close(h));
}

static void a_plan_misused_or_closed_too_early_does_no_harm(void **state)
{
	(void)state;
	run_ranks("aab", misuse, NULL);
}

/* Rank 1 is late with everything; the others' backward pass must not notice. */
static void never_waits(void *arg)
{
	struct hvd_plan *p;
	struct hvd *h = open_plan(&p);
	(void)arg;
	works(h, hvd_barrier(h));
	if (meeting_rank == 1)
		usleep(500000);
	double begin = now();
	all_ready(h, p);
	double ready = now() - begin;
	must(meeting_rank == 1 || ready < 0.25);
	works(h, hvd_plan_finish(p));
	must(meeting_rank == 1 || hvd_plan_exposed(p) > 0.2);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void ready_never_waits_for_other_ranks(void **state)
{
	(void)state;
	run_ranks("aab", never_waits, NULL);
}

/* Three passes a step: the slab adds up, and only the third communicates. */
static void accumulate(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 5000 }, { "b", 5000 } };
	struct hvd *h = open_world();
	struct hvd_plan *p;
	(void)arg;
	works(h, hvd_plan_open(h, &p, t, 2, 1));
	float *slab = hvd_plan_slab(p);
	must(hvd_plan_accumulate(p, 0) == HVD_EINVAL);
	works(h, hvd_plan_accumulate(p, 3));
	for (int step = 0; step < 3; step++) {
		memset(slab, 0, 10000 * sizeof *slab);
		for (int pass = 0; pass < 3; pass++) {
			for (int i = 0; i < 2; i++) {
				for (int k = 0; k < 5000; k++)
					slab[i * 5000 + k] += (float)(meeting_rank + pass);
				works(h, hvd_plan_ready(p, i));
			}
			must(hvd_plan_accumulate(p, 2) == HVD_EINVAL); /* in the middle of a pass … */
			works(h, hvd_plan_finish(p));
			must(pass == 2 || hvd_plan_accumulate(p, 2) == HVD_EINVAL); /* … or of a step */
			must(pass == 2 || slab[7] == (float)(pass ? 2 * meeting_rank + 1 : meeting_rank));
		}
		must(slab[0] == 6 && slab[9999] == 6); /* mean of 3, 6 and 9 */
	}
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void gradients_of_several_passes_are_averaged_once(void **state)
{
	(void)state;
	run_ranks("aab", accumulate, NULL);
}

/* Rank 1 asks for other passes than the rest; later it dies in the middle of a step. */
static void accumulate_in_changing_worlds(void *arg)
{
	static const struct hvd_tensor t[] = { { "a", 500 }, { "b", 500 } };
	struct hvd_conf conf = quick_conf();
	struct hvd *h;
	struct hvd_plan *p;
	(void)arg;
	conf.on_death = 1;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_plan_open(h, &p, t, 2, 1));
	must(hvd_plan_accumulate(p, meeting_rank == 1 ? 2 : 3) == HVD_EMISMATCH);
	must(strstr(hvd_error(h), "rank 1 on node-a takes 2 passes a step, rank 0 takes 3"));
	works(h, hvd_plan_ready(p, 0)); /* it is still one pass a step: this one is all-reduced */
	works(h, hvd_plan_ready(p, 1));
	works(h, hvd_plan_finish(p));
	works(h, hvd_plan_accumulate(p, 3));
	float sum = 1;
	long request = hvd_start_allreduce(h, &sum, &sum, 1, HVD_F32, HVD_SUM);
	for (int pass = 0; pass < 2; pass++) {
		works(h, pass ? hvd_plan_finish(p) : 0);
		works(h, hvd_plan_ready(p, 0));
		works(h, hvd_plan_ready(p, 1));
	}
	go_on_without_rank_1(h);
	must(hvd_plan_finish(p) == HVD_EINVAL); /* the step that was begun is no more, … */
	works(h, hvd_plan_accumulate(p, 2));
	must(hvd_wait(h, request) == HVD_EINVAL && strstr(hvd_error(h), "no such request")); /* … and nor are requests */
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void all_ranks_accumulate_alike_also_after_a_death(void **state)
{
	(void)state;
	run_ranks_but(1, "aab", accumulate_in_changing_worlds, NULL);
}

/* ---- the plan file -------------------------------------------------------------------------------- */

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
	run_ranks("ab", refuse_the_file, (void *)(uintptr_t) "not a regular file: name another");
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

/* ---- bf16 on the wire ----------------------------------------------------------------------------- */

static void narrow_train(void *arg)
{
	struct hvd_tensor t[TENSORS];
	char names[TENSORS][16];
	int floats = declare(t, names), differ = 0;
	struct hvd *h = open_world();
	struct hvd_plan *p;
	(void)arg;
	works(h, hvd_plan_open(h, &p, t, TENSORS, 100000));
	int size = hvd_world(h)->size;
	float *slab = hvd_plan_slab(p), *other = malloc((size_t)floats * sizeof *other);
	must(other);
	for (int i = 0; i < floats; i++)
		slab[i] = gradient(meeting_rank, 0, (size_t)i);
	for (int i = 0; i < TENSORS; i++)
		works(h, hvd_plan_ready(p, i));
	works(h, hvd_plan_finish(p));
	for (int i = 0; i < floats; i++) {
		float want = 0;
		for (int r = 0; r < size; r++)
			want += gradient(r, 0, (size_t)i);
		want /= (float)size;
		float error = slab[i] > want ? slab[i] - want : want - slab[i];
		bool statistics = (size_t)i >= (size_t)floats - t[TENSORS - 1].count;
		must(statistics ? error < 1e-4f : error < 200.0f / 128);
		differ += error > 1e-3f;
	}
	must(differ > floats / 2); /* it was rounded */
	memcpy(other, slab, (size_t)floats * sizeof *other);
	works(h, hvd_broadcast(h, other, (size_t)floats, HVD_F32, 1));
	must(!memcmp(other, slab, (size_t)floats * sizeof *other));
	free(other);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void bf16_on_the_wire_is_near_and_the_same_on_all_ranks(void **state)
{
	(void)state;
	settings.wire = HVD_BF16;
	run_ranks("aa", narrow_train, NULL);
	run_ranks("aabb", narrow_train, NULL);
	settings.wire = HVD_F32;
}

/* Of a gradient too fine for bf16, before and after the cut by measurement, to which a small model is one bucket. */
static void train_with_statistics(void *arg)
{
	struct hvd_tensor t[] = { { "gradient", 64 }, { "statistics", 64 } };
	struct hvd *h = open_world();
	struct hvd_plan *p;
	(void)arg;
	works(h, hvd_plan_open(h, &p, t, 2, 0));
	float *slab = hvd_plan_slab(p);
	for (int step = 0; step < 10; step++) {
		slab[0] = slab[64] = 1 + 0x1p-10f;
		works(h, hvd_plan_ready(p, 0));
		works(h, hvd_plan_ready(p, 1));
		works(h, hvd_plan_finish(p));
		must(slab[64] == 1 + 0x1p-10f && slab[0] == (settings.wire == HVD_BF16 ? 1 : slab[64]));
	}
	must(settings.wire != HVD_BF16 || hvd_plan_buckets(p) == 2);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void what_is_rounded_on_the_wire_does_not_depend_on_the_cut(void **state)
{
	(void)state;
	char path[1024];
	settings.wire = HVD_BF16;
	run_ranks("aabb", train_with_statistics, NULL);
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	for (int i = 0; i < 2; i++) { /* the cut of a run without it is taken from the file by one with it */
		settings.wire = i ? HVD_BF16 : HVD_F32;
		run_ranks("aabb", train_with_statistics, NULL);
	}
	assert_int_equal(unlink(path), 0);
}

/* Also after a test that failed: its path is gone then, and the next one's plan would be written to whatever lies there. */
static int forget_settings(void **state)
{
	(void)state;
	settings = (struct hvd_conf){ 0 };
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(means_do_not_depend_on_cut_or_layout),
		cmocka_unit_test(a_rank_that_declares_something_else_is_named),
		cmocka_unit_test(who_differs_after_a_death_is_named_with_its_node),
		cmocka_unit_test(a_plan_misused_or_closed_too_early_does_no_harm),
		cmocka_unit_test(ready_never_waits_for_other_ranks),
		cmocka_unit_test(gradients_of_several_passes_are_averaged_once),
		cmocka_unit_test(all_ranks_accumulate_alike_also_after_a_death),
		cmocka_unit_test_teardown(a_cut_is_written_down_and_taken_from_the_file, forget_settings),
		cmocka_unit_test_teardown(what_is_no_file_is_no_plan_and_nobody_waits_for_it, forget_settings),
		cmocka_unit_test_teardown(only_a_cut_that_was_measured_or_asked_for_is_written_down, forget_settings),
		cmocka_unit_test_teardown(a_world_that_lost_ranks_leaves_the_plan_file_alone, forget_settings),
		cmocka_unit_test_teardown(a_cut_for_another_number_of_ranks_is_told, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_is_the_first_plans, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_lies_where_the_program_began, forget_settings),
		cmocka_unit_test_teardown(a_plan_file_is_the_worlds_not_its_sub_worlds, forget_settings),
		cmocka_unit_test(bf16_on_the_wire_is_near_and_the_same_on_all_ranks),
		cmocka_unit_test_teardown(what_is_rounded_on_the_wire_does_not_depend_on_the_cut, forget_settings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
