/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/audit.h"

#include <stdarg.h>
#include <stdio.h>

void audit_say(struct audit *a, enum audit_kind kind, int problem, size_t count, const char *format, ...)
{
	struct audit_item *item = &a->items[a->n_items < AUDIT_ITEMS ? a->n_items++ : AUDIT_ITEMS - 1];
	va_list args;

	*item = (struct audit_item){ .kind = kind, .problem = problem, .count = count };
	va_start(args, format);
	vsnprintf(item->text, sizeof item->text, format, args);
	va_end(args);
	controls_mend(item->text); /* in the names of others' images */
	a->problems += problem;
}
