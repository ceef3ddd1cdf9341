/* SPDX-License-Identifier: Apache-2.0
 * A decoder for the tests of a file, and what they expect of files that it refuses. */
#ifndef TESTS_DECODING_H
#define TESTS_DECODING_H

#include "image/decode.h"
#include "scratch.h"

static struct decoder *decoder;

static int set_up(void **state)
{
	decoder = decoder_new();
	return scratch_make(state) || !decoder;
}

static int tear_down(void **state)
{
	decoder_free(decoder);
	return scratch_remove(state);
}

static void expect_refusal(const void *file, size_t size, const char *reason)
{
	struct image image;
	struct error e = { 0 };
	assert_int_equal(decode_image(decoder, file, size, &image, &e), -EXIT_DATA);
	if (!strstr(e.text, reason))
		fail_msg("\"%s\" does not say \"%s\"", e.text, reason);
}

#endif
