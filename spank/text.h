/* SPDX-License-Identifier: Apache-2.0
 * A line that is put together piece by piece and never grows past its buffer. */
#ifndef SPANK_TEXT_H
#define SPANK_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct text {
	char *buf;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static inline void text_add(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(t->buf + t->used, t->size - t->used, format, args);
	va_end(args);
	if (n > 0)
		t->used = t->used + (size_t)n < t->size ? t->used + (size_t)n : t->size - 1;
}

#endif
