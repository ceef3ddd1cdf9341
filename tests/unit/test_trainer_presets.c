/* SPDX-License-Identifier: Apache-2.0
 * Presets of chexnet train: they say what they should, and what the user types wins. */
#include "tests/unit/test.h"

#include "commands/commands.h"
#include "commands/train.h"

static struct train_conf parsed(int argc, char **argv)
{
	struct train_conf conf = { 0 };
	struct error e = { 0 };
	char **words = train_presets(&argc, argv, &e);

	assert_non_null(words);
	if (options_parse(&command_train, argc, words, &conf, NULL, &e) != 0)
		fail_msg("%s", e.text);
	free(words);
	return conf;
}
#define PARSED(...) parsed((int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)), (char *[]){ __VA_ARGS__ })

static void each_preset_is_made_of_options_that_exist(void **state)
{
	(void)state;
	struct train_conf paper = PARSED("train", "--preset=chexnet2017"), dell = PARSED("train", "--preset", "dell2019"), zech = PARSED("train", "--preset=zech2022");

	assert_true(paper.rate == 1e-3 && paper.batch == 16 && paper.decay == DECAY_PLATEAU && paper.optimizer == OPTIMIZER_ADAM);
	assert_true(paper.scaling == SCALING_NONE && paper.warmup_epochs == 0 && paper.weight_decay == 0);
	assert_true(dell.batch == 64 && dell.network.image_size == 256 && dell.warmup_epochs == 5 && dell.scaling == SCALING_NONE);
	assert_true(dell.rate == 1e-3 && dell.decay == DECAY_CONSTANT && dell.optimizer == OPTIMIZER_ADAM && dell.epochs == 10 && dell.weight_decay == 0);
	assert_true(zech.optimizer == OPTIMIZER_SGD && zech.rate == 0.01 && zech.weight_decay == 1e-4 && zech.patience == 3);
	assert_true(zech.momentum == 0.9 && zech.batch == 16 && zech.scaling == SCALING_NONE && zech.warmup_epochs == 0 && zech.decay == DECAY_PLATEAU);
}

static void of_several_presets_the_last_counts_and_behind_two_dashes_none(void **state)
{
	(void)state;
	struct train_conf last = PARSED("train", "--preset=dell2019", "--preset", "zech2022"), none = PARSED("train");

	assert_int_equal(last.batch, 16);
	assert_int_equal(last.network.image_size, none.network.image_size);
	char *argv[] = { "train", "--", "--preset=dell2018" };
	int argc = 3;
	struct error e = { 0 };
	char **words = train_presets(&argc, argv, &e);

	assert_non_null(words);
	assert_int_equal(argc, 3);
	free(words);
}

static void what_is_typed_wins_wherever_it_stands(void **state)
{
	(void)state;
	struct train_conf before = PARSED("train", "--batch=8", "--preset=dell2019"), after = PARSED("train", "--preset=dell2019", "--batch=8");

	assert_int_equal(before.batch, 8);
	assert_int_equal(after.batch, 8);
	assert_int_equal(after.network.image_size, 256);
}

static void an_unknown_preset_is_refused(void **state)
{
	(void)state;
	char *argv[] = { "train", "--preset=dell2018" };
	int argc = 2;
	struct error e = { 0 };

	assert_null(train_presets(&argc, argv, &e));
	assert_int_equal(e.code, EXIT_USAGE);
	assert_string_equal(e.text, "--preset=dell2018: did you mean dell2019?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_preset_is_made_of_options_that_exist),
		cmocka_unit_test(of_several_presets_the_last_counts_and_behind_two_dashes_none),
		cmocka_unit_test(what_is_typed_wins_wherever_it_stands),
		cmocka_unit_test(an_unknown_preset_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
