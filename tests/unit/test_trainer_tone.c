/* SPDX-License-Identifier: Apache-2.0
 * Grays that no chest X-ray has, at any size. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "image/tone.h"

/* A frame of one gray, a sixteenth of each side wide but for the lower edge, around another one, with a pixel that differs. */
static enum tone_kind kind_of(int side, int frame, int body)
{
	uint8_t *pixels = malloc((size_t)side * (size_t)side);
	const int margin = side / 16 + 1;

	for (int y = 0; y < side; y++)
		for (int x = 0; x < side; x++)
			pixels[y * side + x] = (uint8_t)(x < margin || x >= side - margin || y < margin ? frame : body);
	pixels[side * side / 2 + side / 2] ^= frame == body;
	struct tone t = tone_measure(pixels, side, side);

	assert_close(t.border, frame, 0.01);
	free(pixels);
	return tone_kind(&t);
}

static void negatives_and_empty_images_are_told_from_radiographs(void **state)
{
	static const struct {
		int frame, body;
		enum tone_kind kind;
	} cases[] = { { 10, 130, TONE_FINE },      { 245, 125, TONE_INVERTED }, { 112, 70, TONE_INVERTED }, { 226, 198, TONE_FINE },
		      { 3, 4, TONE_EMPTY },        { 252, 251, TONE_EMPTY },    { 20, 1, TONE_EMPTY },    { 120, 120, TONE_FINE },
		      { 0, 0, TONE_EMPTY } };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int side = 32; side <= 1024; side *= 2)
			if (kind_of(side, cases[i].frame, cases[i].body) != cases[i].kind)
				fail_msg("%d around %d, %d pixels a side: not %d", cases[i].frame, cases[i].body, side, (int)cases[i].kind);
}

static void one_gray_is_one_gray(void **state)
{
	static const uint8_t pixels[4] = { 77, 77, 77, 77 };
	struct tone t = tone_measure(pixels, 2, 2), lone = tone_measure(pixels, 1, 1);

	(void)state;
	assert_int_equal(tone_kind(&t), TONE_CONSTANT);
	assert_int_equal(tone_kind(&lone), TONE_CONSTANT);
	assert_true(t.mean == 77 && t.low == 77 && t.high == 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(negatives_and_empty_images_are_told_from_radiographs),
		cmocka_unit_test(one_gray_is_one_gray),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
