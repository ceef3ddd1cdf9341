/* SPDX-License-Identifier: Apache-2.0
 * Gradient buckets: the mean is that of a serial program whatever the cut, and ranks must declare the same. */
#include "tests/unit/plan_world.h"

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
	must(strcmp(how, "buckets") || strstr(hvd_error(h), "asks for buckets of 8192 bytes, rank 0 of 4096 (0: by measurement)"));
	must(strcmp(how, "buckets of its own") || strstr(hvd_error(h), "asks for buckets of 2097152 bytes, rank 0 of 0 (0: by measurement)"));
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
	none = p;
	must(hvd_plan_open(h, &none, (struct hvd_tensor[]){ { "a", 1 }, { NULL, 1 } }, 2, 0) == HVD_EINVAL && !none && strstr(hvd_error(h), "tensor 1 has no name"));
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

/* In two buckets of a file, the second of a gradient and the statistics. */
static void train_with_the_cut_of_a_file(void *arg)
{
	struct hvd_tensor t[] = { { "a", 64 }, { "b", 64 }, { "statistics", 64 } };
	struct hvd *h = open_world();
	struct hvd_plan *p;
	const bool alone = arg;
	works(h, hvd_plan_open(h, &p, alone ? &t[2] : t, alone ? 1 : 3, alone || settings.wire == HVD_F32));
	float *slab = hvd_plan_slab(p);
	for (int i = 0; i < (alone ? 1 : 3); i++) {
		slab[64 * i] = 1 + 0x1p-10f;
		works(h, hvd_plan_ready(p, i));
	}
	works(h, hvd_plan_finish(p));
	must(settings.wire != HVD_BF16 || alone || (slab[0] == 1 && slab[64] == 1 && slab[128] == 1 + 0x1p-10f));
	must(!alone || slab[0] == 1 + 0x1p-10f);
	hvd_plan_close(p);
	works(h, hvd_close(h));
}

static void statistics_are_not_rounded_whatever_lies_beside_them(void **state)
{
	(void)state;
	char path[1024], first[200] = "";
	assert_true(close(mkstemp(temporary_name(path, sizeof path))) == 0 && unlink(path) == 0);
	settings.plan = path;
	run_ranks("aabb", train_with_the_cut_of_a_file, NULL);
	FILE *f = fopen(path, "r+");
	assert_true(f && fgets(first, sizeof first, f));
	char *buckets = strstr(first, "3 buckets");
	assert_non_null(buckets);
	*buckets = '2';
	rewind(f);
	assert_true(fprintf(f, "%s0\n2\n", first) > 0 && !ftruncate(fileno(f), ftell(f)) && !fclose(f));
	settings.wire = HVD_BF16;
	run_ranks("aabb", train_with_the_cut_of_a_file, NULL);
	assert_int_equal(unlink(path), 0);
	for (int i = 0; i < 2; i++) /* the second with the file that the first leaves */
		run_ranks("aabb", train_with_the_cut_of_a_file, path);
	assert_int_equal(unlink(path), 0);
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
		cmocka_unit_test(bf16_on_the_wire_is_near_and_the_same_on_all_ranks),
		cmocka_unit_test_teardown(statistics_are_not_rounded_whatever_lies_beside_them, forget_settings),
		cmocka_unit_test_teardown(what_is_rounded_on_the_wire_does_not_depend_on_the_cut, forget_settings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
