/* SPDX-License-Identifier: Apache-2.0
 * How far a command is, in a file: a line a minute. */
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <unistd.h>

#include "commands/train.h"
#include "files/file.h"
#include "progress.h"

/* What 10, 20 and 30 of 100 images leave in a file when the minute is over before the second and the third are told; free() it. */
static char *tell_three(const char *what)
{
	const char *path = scratch_path("errors");
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), standard = dup(STDERR_FILENO);
	struct error e = { 0 };
	struct progress p;
	size_t size;
	char *text;

	dup2(file, STDERR_FILENO);
	close(file);
	progress_begin(&p, what, 100);
	progress_tell(&p, 10);
	p.begin -= 100;
	p.next -= 100;
	progress_tell(&p, 20);
	progress_tell(&p, 21);
	p.begin -= 200;
	p.next -= 100;
	progress_tell(&p, 30);
	progress_end(&p);
	dup2(standard, STDERR_FILENO);
	close(standard);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	return text;
}

static void a_file_gets_a_line_a_minute(void **state)
{
	(void)state;
	char *text = tell_three("chexnet prepare");

	assert_string_equal(text, "chexnet prepare: 20 of 100 images, 6:40 left\nchexnet prepare: 30 of 100 images, 11:40 left\n");
	free(text);
}

static void nobody_asked_for_is_silent(void **state)
{
	(void)state;
	char *text = tell_three(NULL);

	assert_string_equal(text, "");
	free(text);
}

/* Told after a step and before its validation: those of the steps from that one on which --eval-every divides, and the last step's. */
static void validations_to_come_are_counted(void **state)
{
	(void)state;
	for (uint64_t steps = 1; steps < 20; steps++)
		for (int every = 1; every < 25; every++)
			for (uint64_t step = 1; step <= steps; step++) {
				const struct train_conf conf = { .eval_every = every };
				struct train t = { .conf = &conf, .schedule.steps = steps, .at.step = step, .validates = 1 };
				uint64_t n = 0;

				for (uint64_t i = step; i <= steps; i++)
					n += i % (uint64_t)every == 0 || i == steps;
				assert_int_equal(train_validations_left(&t), n);
				t.validates = 0;
				assert_int_equal(train_validations_left(&t), 0);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_file_gets_a_line_a_minute), cmocka_unit_test(nobody_asked_for_is_silent),
					    cmocka_unit_test(validations_to_come_are_counted) };

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
