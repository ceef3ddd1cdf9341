/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints side by side in a directory: which is the latest, which go, and what is set aside. */
#include "tests/unit/checkpoint_files.h"

#include <errno.h>

int __real_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);
int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);

static int flags_fail_with; /* errno of a rename with flags; 0: they are known */

int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	errno = flags_fail_with;
	return flags_fail_with ? -1 : __real_renameat2(from_directory, from, to_directory, to, flags);
}

static void the_latest_checkpoint_is_found_and_old_ones_go(void **state)
{
	(void)state;
	char name[600], found[600];
	struct error e = { 0 };

	assert_int_equal(checkpoint_latest(found, sizeof found, directory, &e), 0);
	for (uint64_t step = 5; step <= 100000005; step += 20000000) {
		checkpoint_path(name, sizeof name, directory, step);
		fclose(fopen(name, "w"));
	}
	/* names that are no checkpoint's: never the latest, and never removed or set aside */
	static const char *const others[] = { "checkpoint-99999999999.safetensors.partial", "checkpoint-x99999999.safetensors", "checkpoint-+99999999999.safetensors",
					      "checkpoint- 99999999999.safetensors", "checkpoint-.safetensors", "left-course99999999999.safetensors" };
	enum { OTHERS = sizeof others / sizeof others[0] };

	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof name, "%s/%s", directory, others[i]);
		fclose(fopen(name, "w"));
	}
	assert_int_equal(checkpoint_latest(found, sizeof found, directory, &e), 1);
	checkpoint_path(name, sizeof name, directory, 100000005);
	assert_string_equal(found, name);
	uint64_t step = 100000005;

	assert_int_equal(checkpoint_below(found, sizeof found, directory, &step, &e), 1);
	assert_int_equal(step, 80000005);
	checkpoint_path(name, sizeof name, directory, step);
	assert_string_equal(found, name);
	step = 5;
	assert_int_equal(checkpoint_below(found, sizeof found, directory, &step, &e), 0);
	checkpoint_prune(directory, 1, 40000005); /* of a run that went back behind the later ones */
	assert_int_equal(files_in_directory(), 4 + OTHERS);
	checkpoint_path(name, sizeof name, directory, 40000005);
	assert_int_equal(access(name, F_OK), 0);
	checkpoint_prune(directory, 2, 100000005);
	assert_int_equal(files_in_directory(), 2 + OTHERS);
	checkpoint_path(name, sizeof name, directory, 80000005);
	assert_int_equal(access(name, F_OK), 0);
	struct checkpoint_left left;

	assert_int_equal(checkpoint_take_over(directory, &left, &e), 0);
	assert_int_equal(left.checkpoints + left.best + left.why.code, 0);
	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof name, "%s/%s", directory, others[i]);
		assert_int_equal(access(name, F_OK), 0);
	}
	assert_int_equal(checkpoint_latest(found, sizeof found, "no/such/directory", &e), 0);
	checkpoint_prune("no/such/directory", 1, 0);
	assert_int_equal(e.code, 0);
	assert_int_equal(checkpoint_take_over("no/such/directory", &left, &e), -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "no/such/directory: No such file"));
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_latest(found, sizeof found, path, &e), 0); /* not there either */
	fclose(fopen(path, "w"));
	assert_int_equal(checkpoint_latest(found, sizeof found, path, &e), -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, ": Not a directory"));
}

static void what_killed_trainings_left_half_written_goes_and_nothing_else(void **state)
{
	(void)state;
	static const char *const ours[] = { "checkpoint-00000050.safetensors.partial-0123abcd", "best.safetensors.partial-ffffffff",
					    "model.safetensors.partial-00000000", "checkpoint-123456789.safetensors.new-7.partial-09afbbbb", "best.safetensors.new.partial-09afbbbb",
					    "test.csv.partial-01234567" };
	static const char *const others[] = { "checkpoint-00000050.safetensors.partial", "checkpoint-00000050.safetensors.partial-backup",
					      "checkpoint-.safetensors.partial-0123abcd", "best.safetensors.partial-0123abcde", "model.safetensors.partial-0123abcg",
					      "thesis.partial-0123abcd", "test.csv.new.partial-0123abcd", "my-best.safetensors.partial-0123abcd", "checkpoint-00000050.safetensors" };
	enum { OURS = sizeof ours / sizeof ours[0], OTHERS = sizeof others / sizeof others[0] };
	char name[700], found[FILE_NAME];

	for (int i = 0; i < OURS + OTHERS; i++) {
		snprintf(name, sizeof name, "%s/%s", directory, i < OURS ? ours[i] : others[i - OURS]);
		fclose(fopen(name, "w"));
	}
	snprintf(name, sizeof name, "%s/best.safetensors.partial-00000000", directory);
	assert_int_equal(symlink(others[0], name), 0);
	assert_int_equal(checkpoint_sweep(directory, 0, found), OURS);
	assert_int_equal(files_in_directory(), OURS + OTHERS + 1);
	assert_int_equal(checkpoint_sweep(directory, 1, found), OURS);
	assert_non_null(strstr(found, ".partial-"));
	assert_int_equal(files_in_directory(), OTHERS + 1);
	for (int i = 0; i < OURS; i++) {
		snprintf(name, sizeof name, "%s/%s", directory, ours[i]);
		assert_int_equal(access(name, F_OK), -1);
	}
	assert_int_equal(checkpoint_sweep("no/such/directory", 1, found), 0);
}

/* The small net's checkpoint of a training that went back from step 9 to `after`. */
static void write_new(uint64_t step, uint64_t after)
{
	char name[FILE_PATH];
	struct net_plan plan;
	struct model_values v;
	struct checkpoint_notes notes = example;
	struct error e = { 0 };

	notes.step = step;
	make_small_net(&plan, 14);
	make_values(&v, &plan, 1);
	checkpoint_new_path(name, directory, step, after, &e);
	assert_int_equal(checkpoint_write(name, &plan, &v, &notes, &e), 0);
	model_values_free(&v);
	net_plan_free(&plan);
}

static off_t size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) ? -1 : st.st_size;
}

static void what_is_set_aside_replaces_nothing_on_any_file_system(void **state)
{
	(void)state;
	static const int refusals[] = { 0, EINVAL, ENOSYS, EOPNOTSUPP };
	enum { N = sizeof refusals / sizeof refusals[0] };
	char name[600], aside[700], new[FILE_PATH];
	struct checkpoint_left left;
	struct error e = { 0 };

	checkpoint_path(name, sizeof name, directory, 7);
	for (int i = 0; i < N; i++) {
		flags_fail_with = refusals[i];
		fclose(fopen(name, "w"));
		assert_int_equal(truncate(name, i), 0);
		write_new(7, 6);
		assert_int_equal(checkpoint_take_over(directory, &left, &e), 0);
		assert_int_equal(left.checkpoints, 1);
		assert_int_equal(left.after, 6);
		assert_true(size_of(name) > N);
	}
	assert_int_equal(files_in_directory(), N + 1);
	for (int i = 0; i < N; i++) {
		snprintf(aside, sizeof aside, i ? "%s.abandoned-%d" : "%s.abandoned", name, i + 1);
		assert_int_equal(size_of(aside), i);
	}
	/* one that cannot be set aside keeps its place, and what was to take it stays for the next try */
	assert_int_equal(truncate(name, 1), 0);
	write_new(7, 6);
	flags_fail_with = EIO;
	assert_int_equal(checkpoint_take_over(directory, &left, &e), -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, "checkpoint-00000007.safetensors: cannot be renamed: Input/output error"));
	assert_int_equal(size_of(name), 1);
	checkpoint_new_path(new, directory, 7, 6, &e);
	assert_true(size_of(new) > 1);
	flags_fail_with = 0;
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_take_over(directory, &left, &e), 0);
	assert_int_equal(size_of(new), -1);
	/* one in nobody's way only is said */
	checkpoint_path(name, sizeof name, directory, 9);
	fclose(fopen(name, "w"));
	write_new(6, 6);
	flags_fail_with = EIO;
	assert_int_equal(checkpoint_take_over(directory, &left, &e), 0);
	assert_int_equal(left.checkpoints, 0);
	assert_non_null(strstr(left.why.text, "checkpoint-0000000"));
	flags_fail_with = 0;
	checkpoint_path(name, sizeof name, directory, 6);
	assert_true(size_of(name) > N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(the_latest_checkpoint_is_found_and_old_ones_go, empty_directory),
		cmocka_unit_test_teardown(what_killed_trainings_left_half_written_goes_and_nothing_else, empty_directory),
		cmocka_unit_test_teardown(what_is_set_aside_replaces_nothing_on_any_file_system, empty_directory),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
