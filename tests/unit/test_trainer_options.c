/* SPDX-License-Identifier: Apache-2.0
 * Option tables: what a user can type, and what is said when it is wrong. */
#include "tests/unit/test.h"

#include <time.h>

#include "options.h"

static const char *const precisions[] = { "fp32", "tf32", "bf16", NULL };

struct conf {
	int flip, verbose, batch, threads, resamples, precision, seed_typed;
	uint64_t seed, images;
	double rate;
	const char *data;
	struct option_ints blocks;
};

static const struct option options[] = {
	OPTION_GROUP("Network"),
	OPTION(INT, struct conf, batch, "batch", "N", "16", "images in a micro-batch", .min = 1, .max = 4096),
	OPTION(INT, struct conf, threads, "threads", "N|auto", "2", "threads that compute", .min = 1, .max = 8, .zero = "auto"),
	OPTION(INT, struct conf, resamples, "resamples", "N", "1000", "100 or more; 0: none", .min = 100, .max = 1000, .or_0 = 1),
	OPTION(INTS, struct conf, blocks, "blocks", "N,N,…", "6,12,24,16", "dense layers in each block", .min = 1, .max = 64),
	OPTION(CHOICE, struct conf, precision, "precision", "P", "fp32", "arithmetic", .choices = precisions),
	OPTION_GROUP("Training"),
	OPTION(REAL, struct conf, rate, "learning-rate", "RATE", "1e-4", "of Adam", .min = 0, .max = 10),
	OPTION(U64, struct conf, seed, "seed", "N", "1", "of everything random", .typed = offsetof(struct conf, seed_typed)),
	OPTION(U64, struct conf, images, "images", "N", "12000", "how many", .min = 1, .max = 1e8),
	OPTION(FLAG, struct conf, flip, "flip", NULL, "yes", "mirror half of the images"),
	OPTION(FLAG, struct conf, verbose, "verbose", NULL, NULL, "say more"),
	OPTION(STRING, struct conf, data, "data", "DIR", NULL, "prepared data set"),
	OPTIONS_END
};

static const struct command command = {
	.name = "train", .operands = "IMAGE…", .max_operands = 3, .summary = "train a network", .options = options,
};

enum { MAX_WORDS = 12 };

struct reading {
	struct conf conf;
	struct error error;
	int rc, n;
	char *argv[MAX_WORDS];
};

/* Reads "train" followed by the given words. */
static struct reading read_words(const char *const *words)
{
	struct reading r = { .argv = { "train" } };
	int argc = 1;

	for (; *words; words++)
		r.argv[argc++] = (char *)*words;
	r.rc = options_parse(&command, argc, r.argv, &r.conf, &r.n, &r.error);
	return r;
}
#define READ(...) read_words((const char *const[]){ __VA_ARGS__, NULL })

static void without_options_the_defaults_hold(void **state)
{
	(void)state;
	struct reading r = read_words((const char *const[]){ NULL });

	assert_int_equal(r.rc, 0);
	assert_int_equal(r.conf.batch, 16);
	assert_int_equal(r.conf.blocks.n, 4);
	assert_int_equal(r.conf.blocks.value[2], 24);
	assert_int_equal(r.conf.precision, 0);
	assert_true(r.conf.rate == 1e-4);
	assert_int_equal(r.conf.seed, 1);
	assert_int_equal(r.conf.flip, 1);
	assert_int_equal(r.conf.verbose, 0);
	assert_null(r.conf.data);
}

static void both_spellings_of_a_value_are_read(void **state)
{
	(void)state;
	struct reading r = READ("--batch=8", "--learning-rate", "0.5", "--data", "--odd", "--blocks=2,2", "--precision=bf16", "--seed=18446744073709551615");

	assert_int_equal(r.rc, 0);
	assert_int_equal(r.conf.batch, 8);
	assert_true(r.conf.rate == 0.5);
	assert_string_equal(r.conf.data, "--odd");
	assert_int_equal(r.conf.blocks.n, 2);
	assert_int_equal(r.conf.precision, 2);
	assert_true(r.conf.seed == UINT64_MAX);
}

static void what_was_typed_is_told_from_the_default(void **state)
{
	(void)state;
	struct reading r = read_words((const char *const[]){ NULL });

	assert_false(r.conf.seed_typed);
	assert_false(READ("--batch=2").conf.seed_typed);
	assert_true(READ("--seed=7").conf.seed_typed);
	assert_int_equal(READ("--seed", "1").conf.seed_typed, 1);
	assert_int_equal(READ("--seed=7", "--seed", "1").conf.seed_typed, 2);
}

static void flags_are_switched_on_and_off(void **state)
{
	(void)state;
	struct reading r = READ("--no-flip", "--verbose");

	assert_int_equal(r.rc, 0);
	assert_int_equal(r.conf.flip, 0);
	assert_int_equal(r.conf.verbose, 1);
	assert_int_equal(READ("--verbose", "--no-verbose").conf.verbose, 0);
}

static void operands_keep_their_order_among_options(void **state)
{
	(void)state;
	struct reading r = READ("a.png", "--batch", "2", "b.png", "--", "--flip");

	assert_int_equal(r.rc, 0);
	assert_int_equal(r.n, 3);
	assert_string_equal(r.argv[1], "a.png");
	assert_string_equal(r.argv[2], "b.png");
	assert_string_equal(r.argv[3], "--flip");
}

static void refused(struct reading r, const char *expected)
{
	assert_int_equal(r.rc, -EXIT_USAGE);
	assert_int_equal(r.error.code, EXIT_USAGE);
	assert_string_equal(r.error.text, expected);
}

static void a_misspelt_option_is_answered_with_the_nearest(void **state)
{
	(void)state;
	refused(READ("--bacth=3"), "unknown option --bacth; did you mean --batch?");
	refused(READ("--learnin_rate", "3"), "unknown option --learnin_rate; did you mean --learning-rate?");
	refused(READ("--prec=bf16"), "unknown option --prec; did you mean --precision?");
	refused(READ("--horse"), "unknown option --horse; chexnet train --help lists them");
	refused(READ("--no-batch"), "unknown option --no-batch; chexnet train --help lists them");
	refused(READ("--batch-size=3"), "unknown option --batch-size; did you mean --batch?");
	refused(READ("--learning-rates=3"), "unknown option --learning-rates; did you mean --learning-rate?");
	refused(READ("-b"), "unknown option -b; options have long names: chexnet train --help");
}

static void values_that_mean_nothing_are_refused(void **state)
{
	(void)state;
	refused(READ("--batch=many"), "--batch=many: must be a whole number");
	refused(READ("--batch=3x"), "--batch=3x: must be a whole number");
	refused(READ("--batch="), "--batch=: must be a whole number");
	refused(READ("--threads=some"), "--threads=some: must be a whole number, or auto");
	refused(READ("--batch"), "--batch needs a value: --batch=N");
	refused(READ("--data="), "--data: must not be empty");
	refused(READ("--no-flip=yes"), "--no-flip takes no value; --flip switches it on");
	refused(READ("--data", "--batch", "3"), "--data needs a value, and --batch is an option; --data=--batch if that is meant");
	refused(READ("--data", "--batch=3"), "--data needs a value, and --batch=3 is an option; --data=--batch=3 if that is meant");
	refused(READ("--data", "--no-flip"), "--data needs a value, and --no-flip is an option; --data=--no-flip if that is meant");
	refused(READ("--data", "--help"), "--data needs a value, and --help is an option; --data=--help if that is meant");
	assert_string_equal(READ("--data=--no-flip").conf.data, "--no-flip");
	refused(READ("--flip=yes"), "--flip takes no value; --no-flip switches it off");
	refused(READ("--seed=-1"), "--seed=-1: must be a whole number that is not negative");
	refused(READ("--seed="), "--seed=: must be a whole number that is not negative");
	refused(READ("--learning-rate=nan"), "--learning-rate=nan: must be a number");
	refused(READ("--learning-rate="), "--learning-rate=: must be a number");
	refused(READ("--precision=fp23"), "--precision=fp23: did you mean fp32? (known: fp32, tf32, bf16)");
	refused(READ("--blocks=2,,2"), "--blocks=2,,2: must be 1 to 8 whole numbers with commas between them");
	refused(READ("--blocks=1,2,3,4,5,6,7,8,9"), "--blocks=1,2,3,4,5,6,7,8,9: must be 1 to 8 whole numbers with commas between them");
	refused(READ(""), "an empty word, as from a variable that is not set; usage: chexnet train [--OPTION…] IMAGE…");
	refused(READ("a", "b", "c", ""), "an empty word, as from a variable that is not set; usage: chexnet train [--OPTION…] IMAGE…");
	refused(READ("a", "b", "c", "d"), "d: not expected here; usage: chexnet train [--OPTION…] IMAGE…");
}

/* A number is called one, however large it is. */
static void numbers_out_of_range_are_told_the_range(void **state)
{
	(void)state;
	refused(READ("--batch=0"), "--batch=0: must be between 1 and 4096");
	refused(READ("--batch=4294967297"), "--batch=4294967297: must be between 1 and 4096");
	refused(READ("--batch=99999999999999999999"), "--batch=99999999999999999999: must be between 1 and 4096");
	refused(READ("--batch=-99999999999999999999"), "--batch=-99999999999999999999: must be between 1 and 4096");
	refused(READ("--threads=9"), "--threads=9: must be between 1 and 8, or auto");
	refused(READ("--resamples=-1"), "--resamples=-1: must be 0, or between 100 and 1000");
	refused(READ("--resamples=1"), "--resamples=1: must be 0, or between 100 and 1000");
	refused(READ("--resamples=99"), "--resamples=99: must be 0, or between 100 and 1000");
	refused(READ("--blocks=2,65"), "--blocks=2,65: must be between 1 and 64");
	refused(READ("--blocks=2,99999999999999999999"), "--blocks=2,99999999999999999999: must be between 1 and 64");
	refused(READ("--learning-rate=10.1"), "--learning-rate=10.1: must be between 0 and 10");
	refused(READ("--learning-rate=1e999"), "--learning-rate=1e999: must be between 0 and 10");
	refused(READ("--images=100000001"), "--images=100000001: must be between 1 and 100000000");
	refused(READ("--seed=18446744073709551616"), "--seed=18446744073709551616: must be at most 18446744073709551615");
	assert_int_equal(READ("--batch=4096", "--learning-rate=10", "--images=100000000").rc, 0);
	assert_int_equal(READ("--threads=auto").conf.threads, 0);
	assert_int_equal(READ("--resamples=0").conf.resamples, 0);
	assert_int_equal(READ("--resamples=100").conf.resamples, 100);
}

static void a_name_is_near_by_letters_left_out_put_in_or_changed(void **state)
{
	static const char *const names[] = { "verbose", "data", "nih" };
	static const struct {
		const char *word, *near;
	} words[] = {
		{ "vxerboxse", "verbose" }, { "dxaxtxa", NULL }, { "erbse", "verbose" }, { "rbse", NULL }, { "verdoze", "verbose" },
		{ "vxerboxsx", "verbose" }, { "vxerboxxx", NULL }, /* a third of its letters, and more */
		{ "ve", "verbose" }, { "v", NULL }, { "nih-data", "nih" },
	};
	char longer[200] = "";

	(void)state;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		const char *near = nearest_name(words[i].word, strlen(words[i].word), names, 3);

		if (near != words[i].near && (!near || !words[i].near || strcmp(near, words[i].near) != 0))
			fail_msg("%s: %s", words[i].word, near ? near : "none");
	}
	memset(longer, 'v', sizeof longer - 1);
	assert_null(nearest_name(longer, strlen(longer), names, 3));
}

/* A damaged file can be one word. */
static void a_word_as_long_as_a_file_is_near_to_nothing_at_once(void **state)
{
	(void)state;
	enum { SIZE = 32 << 20 };
	static const char *const names[] = { "Cardiomegaly", "Consolidation", "Pleural_Thickening" };
	char *word = malloc(SIZE);
	assert_non_null(word);
	memset(word, 'C', SIZE);
	clock_t begin = clock();
	assert_null(nearest_name(word, SIZE, names, 3));
	assert_true(clock() - begin < CLOCKS_PER_SEC / 2);
	free(word);
}

static void the_operand_that_is_missing_is_named(void **state)
{
	static const struct command prepare = { .name = "prepare", .operands = "nih|tfrecord DIR OUT", .min_operands = 3, .max_operands = 3, .options = options };
	static const char *const missing[] = { "nih|tfrecord", "DIR", "OUT" };
	char *argv[] = { "prepare", "a", "b" };

	(void)state;
	for (int n = 0; n < 3; n++) {
		struct conf conf;
		struct error e = { 0 };
		char expected[128];

		assert_int_equal(options_parse(&prepare, 1 + n, argv, &conf, NULL, &e), -EXIT_USAGE);
		snprintf(expected, sizeof expected, "%s is missing; usage: chexnet prepare [--OPTION…] nih|tfrecord DIR OUT", missing[n]);
		assert_string_equal(e.text, expected);
	}
}

static void a_long_path_loses_its_middle_and_not_the_reason(void **state)
{
	char path[4096];

	(void)state;
	for (size_t length = 1000; length < 1100; length++) { /* of two-byte letters that are cut nowhere */
		struct error e = { 0 };

		for (size_t i = 0; i < length; i++)
			path[i] = i < length % 2 ? '/' : "é"[(i - length % 2) % 2];
		path[length] = '\0';
		fail(&e, EXIT_DATA, "%s: cannot be read: Permission denied", path);
		assert_non_null(strstr(e.text, "é: cannot be read: Permission denied"));
		assert_true(strlen(e.text) < sizeof e.text);
		assert_int_equal(strstr(e.text, "é…é") != NULL, length + 35 > 1023);
		assert_true(strstr(e.text, "…") || strlen(e.text) == length + 35);
	}
	struct error e = { 0 };
	memset(path, 0xA9, sizeof path - 1); /* no UTF-8 */
	path[sizeof path - 1] = '\0';
	fail(&e, EXIT_DATA, "%s", path);
	assert_true(strlen(e.text) < sizeof e.text);
}

static char *written_by(void (*write)(FILE *out))
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	write(f);
	fclose(f);
	return text;
}

static const struct command *const all[] = { &command, NULL };
static void write_help(FILE *out) { options_help(&command, out); }
static void write_man(FILE *out) { options_man_page(all, out); }
static void write_completion(FILE *out) { options_completion(all, out); }

static void every_text_names_every_option(void **state)
{
	(void)state;
	char *help = written_by(write_help), *man = written_by(write_man), *completion = written_by(write_completion);

	for (const struct option *o = options; o->help; o++) {
		char troff[64] = "";

		if (o->type == OPTION_HEADING)
			continue;
		assert_non_null(strstr(help, o->name));
		assert_non_null(strstr(help, o->help));
		assert_non_null(strstr(completion, o->name));
		for (const char *p = o->name; *p; p++)
			strcat(strcat(troff, *p == '-' ? "\\" : ""), (char[]){ *p, 0 });
		assert_non_null(strstr(man, troff));
	}
	assert_non_null(strstr(help, "(default 6,12,24,16)"));
	assert_non_null(strstr(help, "--[no-]flip"));
	assert_non_null(strstr(completion, "--no-flip "));
	assert_non_null(strstr(help, "fp32|tf32|bf16"));
	assert_non_null(strstr(man, "libhvd (3)")); /* ENVIRONMENT sends there */
	free(help);
	free(man);
	free(completion);
}

/* A command that shares another's table, but for two rows. */
static void a_command_has_its_own_rows_instead(void **state)
{
	(void)state;
	static const struct option instead[] = {
		OPTION(INT, struct conf, batch, "batch", "N", "4", "fewer", .min = 4, .max = 8),
		OPTION_DROPPED("seed"),
		OPTIONS_END
	};
	struct command other = command;
	other.instead = instead;
	const struct command *const list[] = { &other, NULL };
	struct conf conf = { 0 };
	struct error e = { 0 };
	char *help = NULL, *words[] = { "train", "--batch=3", "--seed=1" }, *without[] = { "train" }, *seed[] = { "train", "--seed=1" };
	size_t size;

	assert_int_equal(options_parse(&other, 1, without, &conf, NULL, &e), 0);
	assert_int_equal(conf.batch, 4);
	assert_int_equal(conf.seed, 0);
	assert_int_equal(options_parse(&other, 3, words, &conf, NULL, &e), -EXIT_USAGE);
	assert_string_equal(e.text, "--batch=3: must be between 4 and 8");
	e = (struct error){ 0 };
	assert_int_equal(options_parse(&other, 2, seed, &conf, NULL, &e), -EXIT_USAGE);
	assert_string_equal(e.text, "unknown option --seed; chexnet train --help lists them");
	FILE *f = open_memstream(&help, &size);
	assert_non_null(f);
	options_help(&other, f);
	options_man_page(list, f);
	options_completion(list, f);
	fclose(f);
	assert_non_null(strstr(help, "fewer (default 4)"));
	assert_null(strstr(help, "-seed"));
	assert_null(strstr(help, "default 16"));
	free(help);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_options_the_defaults_hold),
		cmocka_unit_test(both_spellings_of_a_value_are_read),
		cmocka_unit_test(what_was_typed_is_told_from_the_default),
		cmocka_unit_test(flags_are_switched_on_and_off),
		cmocka_unit_test(operands_keep_their_order_among_options),
		cmocka_unit_test(the_operand_that_is_missing_is_named),
		cmocka_unit_test(a_long_path_loses_its_middle_and_not_the_reason),
		cmocka_unit_test(a_misspelt_option_is_answered_with_the_nearest),
		cmocka_unit_test(values_that_mean_nothing_are_refused),
		cmocka_unit_test(numbers_out_of_range_are_told_the_range),
		cmocka_unit_test(a_name_is_near_by_letters_left_out_put_in_or_changed),
		cmocka_unit_test(a_word_as_long_as_a_file_is_near_to_nothing_at_once),
		cmocka_unit_test(every_text_names_every_option),
		cmocka_unit_test(a_command_has_its_own_rows_instead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
