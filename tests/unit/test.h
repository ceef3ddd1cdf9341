/* SPDX-License-Identifier: Apache-2.0
 * What every unit test includes: cmocka, and a skip that says why. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef fail /* trainer/error.h has a function of that name; tests say fail_msg() */
#undef fail_msg
#define fail_msg(...) \
	do { \
		print_error(__VA_ARGS__); \
		print_error("\n"); \
		_fail(__FILE__, __LINE__); \
	} while (0)

/* The runner prints the reason; a skip without one is not possible. */
#define skip_because(...) \
	do { \
		printf("# SKIP "); \
		printf(__VA_ARGS__); \
		printf("\n"); \
		fflush(stdout); \
		_skip(__FILE__, __LINE__); \
	} while (0)
#undef skip

/* A name for mkstemp() and mkdtemp(), where generated files live. */
static inline char *temporary_name(char *path, size_t size)
{
	snprintf(path, size, "%s/tests/test-XXXXXX", getenv("BUILD") ? getenv("BUILD") : "build");
	return path;
}

/* In double precision, and NAN is near nothing: cmocka's assert_float_equal() rounds its arguments to float first. */
#define assert_close(a, b, tolerance) \
	do { \
		double a_ = (a), b_ = (b), difference_ = a_ > b_ ? a_ - b_ : b_ - a_; \
		if (a_ != b_ && !(difference_ <= (tolerance))) \
			fail_msg("%s = %.17g, not %.17g: differs by %g, more than %g", #a, a_, b_, difference_, (double)(tolerance)); \
	} while (0)

#undef assert_in_range /* cmocka 2 warns of it, and older ones do not know its successors */
#define assert_in_range(value, minimum, maximum) \
	do { \
		intmax_t value_ = (intmax_t)(value), minimum_ = (intmax_t)(minimum), maximum_ = (intmax_t)(maximum); \
		if (value_ < minimum_ || value_ > maximum_) \
			fail_msg("%s = %jd, not %jd to %jd", #value, value_, minimum_, maximum_); \
	} while (0)

/* Shared material, beside the checkout: $SHARED or ../shared; NULL where it is not there. */
static inline const char *shared_dir(void)
{
	const char *dir = getenv("SHARED");
	if (!dir)
		dir = "../shared";
	char probe[4096];
	snprintf(probe, sizeof probe, "%s/topologies/README.md", dir);
	FILE *f = fopen(probe, "r");
	if (!f)
		return NULL;
	fclose(f);
	return dir;
}

#endif
