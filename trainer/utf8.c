/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <stddef.h>

/* Bytes of the well-formed sequence at p, 0 where there is none. The second byte's limits leave out overlong forms, surrogates and
 * what is beyond U+10FFFF. */
static size_t sequence(const unsigned char *p)
{
	unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80, high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;

	for (size_t i = 1; i < n; i++) {
		if (p[i] < low || p[i] > high)
			return 0;
		low = 0x80;
		high = 0xBF;
	}
	return n;
}

char *utf8_mend(char *text)
{
	for (unsigned char *p = (unsigned char *)text; p && *p;) {
		size_t n = sequence(p);

		if (!n)
			*p = '?';
		p += n ? n : 1;
	}
	return text;
}
