/* SPDX-License-Identifier: Apache-2.0
 * Texts out of bytes that need not be any, in a room that may be too small, and for a shell. */
#include "tests/unit/test.h"

#include <string.h>

#include "utf8.h"

static void bytes_that_are_no_utf_8_become_question_marks(void **state)
{
	static const char *const cases[][2] = {
		{ "plain", "plain" },
		{ "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\xAB\x81 \xED\x9F\xBF \xF4\x8F\xBF\xBF", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\xAB\x81 \xED\x9F\xBF \xF4\x8F\xBF\xBF" },
		{ "b\xE4" "d", "b?d" },                      /* Latin-1 */
		{ "\xC3\"", "?\"" },                        /* cut short: what follows stays */
		{ "\xE2\x82", "??" },
		{ "\xF0\x9F\xAB", "???" },
		{ "\x80\xBF", "??" },                       /* nothing that they continue */
		{ "\xC0\xAF \xE0\x80\xAF \xF0\x80\x80\xAF", "?? ??? ????" }, /* overlong */
		{ "\xED\xA0\x80", "???" },                  /* a surrogate */
		{ "\xF4\x90\x80\x80 \xF5 \xFE \xFF", "???? ? ? ?" },
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		strcpy(text, cases[i][0]);
		assert_ptr_equal(utf8_mend(text), text);
		assert_string_equal(text, cases[i][1]);
	}
	assert_null(utf8_mend(NULL));
}

static void what_is_cut_ends_with_a_mark_and_no_half_character(void **state)
{
	char text[16];

	(void)state;
	assert_int_equal(utf8_append(text, 16, 0, "fifteen "), 8);
	assert_int_equal(utf8_append(text, 16, 8, "bytes: "), 15);
	assert_string_equal(text, "fifteen bytes: ");
	assert_int_equal(utf8_append(text, 16, 15, ""), 15);
	assert_string_equal(text, "fifteen bytes: ");
	assert_int_equal(utf8_append(text, 16, 15, "!"), 16);
	assert_string_equal(text, "fifteen byte…");
	assert_int_equal(utf8_append(text, 16, 16, "more"), 20);
	assert_string_equal(text, "fifteen byte…");
	assert_int_equal(utf8_append(text, 16, 0, "0123456789€€€"), 19);
	assert_string_equal(text, "0123456789…");
}

static void a_command_can_be_given_to_a_shell_as_it_stands(void **state)
{
	static const char *const words[] = { "--output=run1", "/data/NIH-256_v2.0", "Brüche", "--mask=Mass,Hernia", "", "run 1", "--data=it's $HOME", "a;b", "*", "~/x", "Edema|Mass" };
	char text[256];
	size_t used = utf8_append_words(text, sizeof text, 0, sizeof words / sizeof words[0], (char *const *)words);

	(void)state;
	assert_int_equal(used, strlen(text));
	assert_string_equal(text, " --output=run1 /data/NIH-256_v2.0 Brüche --mask=Mass,Hernia '' 'run 1' '--data=it'\\''s $HOME' 'a;b' '*' '~/x' 'Edema|Mass'");
	used = utf8_append_word(text, 8, 0, "twelve bytes");
	assert_int_equal(used, 14);
	assert_string_equal(text, "'twe…");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_that_are_no_utf_8_become_question_marks),
		cmocka_unit_test(what_is_cut_ends_with_a_mark_and_no_half_character),
		cmocka_unit_test(a_command_can_be_given_to_a_shell_as_it_stands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
