/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int fail(struct error *e, enum exit_code code, const char *format, ...)
{
	if (e->code)
		return -e->code;
	e->code = code;
	va_list args;
	va_start(args, format);
	vsnprintf(e->text, sizeof e->text, format, args);
	va_end(args);
	/* messages quote input: a control character in it must not break the line, or the terminal */
	for (char *p = e->text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7F)
			*p = '?';
	return -(int)code;
}
