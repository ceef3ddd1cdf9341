/* SPDX-License-Identifier: Apache-2.0
 * A prepared data set's manifest: it comes back as it was, and every value that cannot be is named (test_trainer_dataset: whole files). */
#include <math.h>

#include "data/manifest.h"
#include "scratch.h"

static const struct manifest example = {
	.size = 64, .encoding = ENCODING_JPEG, .policy = "chexnet", .seed = UINT64_C(0xfedcba9876543210), .source = "ChestX-ray14 2020", .source_hash = 7,
	.split = { { 100, 40, 3, 0, { 0 } }, { 10, 10, 1, 0, { 0 } }, { 0, 0, 0, 0, { 0 } } },
};

static void what_is_written_comes_back(void **state)
{
	(void)state;
	struct manifest m = example, back;
	struct error e = { 0 };
	m.split[SPLIT_VAL].has_oracle = 1;
	for (int f = 0; f < FINDINGS; f++)
		m.split[SPLIT_VAL].oracle[f] = f == 2 ? NAN : 0.5 + f / 64.0;
	assert_int_equal(manifest_write(&m, scratch, &e), 0);
	assert_int_equal(manifest_read(&back, scratch, &e), 0);
	assert_true(back.size == 64 && back.encoding == ENCODING_JPEG && back.seed == m.seed && back.source_hash == 7);
	assert_string_equal(back.policy, "chexnet");
	assert_string_equal(back.source, "ChestX-ray14 2020");
	for (int s = 0; s < SPLITS; s++) {
		const struct manifest_split *a = &m.split[s], *b = &back.split[s];
		assert_true(a->images == b->images && a->patients == b->patients && a->shards == b->shards && a->has_oracle == b->has_oracle);
	}
	for (int f = 0; f < FINDINGS; f++)
		assert_true(f == 2 ? isnan(back.split[SPLIT_VAL].oracle[f]) : back.split[SPLIT_VAL].oracle[f] == m.split[SPLIT_VAL].oracle[f]);
}

static void what_it_names_tells_a_terminal_nothing(void **state)
{
	struct manifest m = example;
	struct error e = { 0 };

	(void)state;
	strcpy(m.policy, "\x1b[31mmine\n");
	strcpy(m.source, "\x1b]0;title\a \xC2\x9B" "2J");
	assert_int_equal(manifest_write(&m, scratch, &e), 0);
	assert_int_equal(manifest_read(&m, scratch, &e), 0);
	assert_string_equal(m.policy, "?[31mmine?");
	assert_string_equal(m.source, "?]0;title? ??2J");
}

/* The first `from` becomes `to`. */
static void refused(const char *from, const char *to, const char *reason)
{
	struct manifest m;
	struct error e = { 0 };
	const char *path = scratch_path("manifest.json");
	char *text, changed[8192];
	size_t size;
	assert_int_equal(manifest_write(&example, scratch, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	char *at = strstr(text, from);
	assert_non_null(at);
	snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	scratch_write(path, changed, strlen(changed));
	assert_int_equal(manifest_read(&m, scratch, &e), -EXIT_DATA);
	if (!strstr(e.text, reason) || !strstr(e.text, "manifest.json"))
		fail_msg("with %s: \"%s\" does not say \"%s\"", to, e.text, reason);
	free(text);
}

static void values_that_cannot_be_are_named(void **state)
{
	(void)state;
	refused("\"version\":\t1", "\"version\":\t0", "\"version\" is not a whole number from 1");
	refused("\"version\":\t1", "\"version\":\t2", "format version 2; this program reads 1: prepare the data set anew");
	refused("\"image_size\":\t64", "\"image_size\":\t0", "\"image_size\" is not a whole number from 1 to");
	refused("\"image_size\":\t64", "\"image_size\":\t64.5", "\"image_size\" is not a whole number");
	refused("\"image_size\":\t64", "\"image_size\":\t1e9", "\"image_size\" is not a whole number");
	refused("\"jpeg\"", "\"gif\"", "no way of storing images is called \"gif\"");
	refused("\"jpeg\"", "7", "\"encoding\" is not a text");
	refused("\"chexnet\"", "\"a policy whose name is longer than it can be\"", "\"split_policy\" is not a text of less than 32 bytes");
	static const char *const no_seeds[] = { "", "-1", "0x1", " 1", "1g", "10000000000000000" }; /* the last one is 2⁶⁴ */
	for (size_t i = 0; i < sizeof no_seeds / sizeof no_seeds[0]; i++) {
		char seed[32];
		snprintf(seed, sizeof seed, "\"%s\"", no_seeds[i]);
		refused("\"fedcba9876543210\"", seed, "\"seed\" is not a hexadecimal number of 1 to 16 digits");
	}
	refused("\"0000000000000007\"", "\"000000000000000g\"", "\"source_hash\" is not a hexadecimal number");
	refused("\"Atelectasis\",", "", "13 findings, not 14");
	refused("\"Atelectasis\", \"Cardiomegaly\"", "\"Cardiomegaly\", \"Atelectasis\"", "finding 0 is \"Cardiomegaly\", not \"Atelectasis\"");
	refused("\"Pleural_Thickening\", \"Hernia\"", "\"Pleural_Thickening\", \"hernia\"", "finding 13 is \"hernia\", not \"Hernia\"");
	refused("\"images\":\t100", "\"images\":\t-1", "\"images\" is not a whole number");
	refused("\"patients\":\t40", "\"patients\":\t101", "\"patients\" is not a whole number from 0 to 100");
	refused("\"shards\":\t3", "\"shards\":\t0", "\"shards\" is not a whole number from 1");
	refused("\"shards\":\t3", "\"shards\":\t101", "\"shards\" is not a whole number from 1 to 100");
	refused("\"shards\":\t3", "\"shards\":\t3, \"oracle_auroc\": [0.5]", "\"oracle_auroc\" has not 14 values");
	static const char *const no_aurocs[] = { "1e999", "-0.5", "1.5", "\"0.5\"", "true" };
	for (size_t i = 0; i < sizeof no_aurocs / sizeof no_aurocs[0]; i++) {
		char list[160];
		snprintf(list, sizeof list, "\"shards\":\t3, \"oracle_auroc\": [0, null, %s, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", no_aurocs[i]);
		refused("\"shards\":\t3", list, "\"oracle_auroc\" of Effusion is no AUROC");
	}
}

static void files_have_the_names_that_everybody_uses(void **state)
{
	(void)state;
	char path[FILE_PATH];
	struct error e = { 0 };
	assert_int_equal(shard_path(path, "set", SPLIT_TRAIN, 7, 12, &e), 0);
	assert_string_equal(path, "set/train-00007-of-00012");
	assert_int_equal(packed_path(path, "set", SPLIT_TEST, &e), 0);
	assert_string_equal(path, "set/test.cxp");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_comes_back),
		cmocka_unit_test(what_it_names_tells_a_terminal_nothing),
		cmocka_unit_test(values_that_cannot_be_are_named),
		cmocka_unit_test(files_have_the_names_that_everybody_uses),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
