/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE = 16384 /* three paths and what is said of them */ };

static int continues(char byte)
{
	return ((unsigned char)byte & 0xC0) == 0x80;
}

/* A long path loses its middle, and not the reason behind it. */
static void shorten(char *text, size_t room, const char *whole)
{
	static const char gap[] = "…";
	size_t length = strlen(whole), head = length < room ? length : room / 2, tail;

	while (head > 0 && head < length && continues(whole[head]))
		head--;
	memcpy(text, whole, head);
	text[head] = '\0';
	if (head == length)
		return;
	tail = length - (room - head - sizeof gap);
	while (continues(whole[tail]))
		tail++;
	strcat(strcat(text, gap), whole + tail);
}

char *controls_mend(char *text)
{
	for (unsigned char *p = (unsigned char *)text; p && *p; p++)
		if (*p < ' ' || *p == 0x7F)
			*p = '?';
		else if (p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0) /* C1 in UTF-8 */
			p[0] = p[1] = '?';
	return text;
}

int fail(struct error *e, enum exit_code code, const char *format, ...)
{
	if (e->code)
		return -e->code;
	e->code = code;
	char whole[WHOLE];
	va_list args;
	va_start(args, format);
	vsnprintf(whole, sizeof whole, format, args);
	va_end(args);
	shorten(e->text, sizeof e->text, whole);
	controls_mend(e->text);
	return -(int)code;
}
