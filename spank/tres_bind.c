/* SPDX-License-Identifier: Apache-2.0 */
#include "tres_bind.h"

#include <stdio.h>
#include <string.h>

static const char gpu[] = "gres/gpu:", verbose[] = "verbose,";

static bool begins(const char *text, const char *word)
{
	return !strncmp(text, word, strlen(word));
}

bool tres_binds_gpus(const char *text)
{
	for (; *text; text += *text == '+') {
		if (begins(text, gpu)) {
			text += strlen(gpu);
			text += begins(text, verbose) ? strlen(verbose) : 0;
			return !begins(text, "per_task") && !begins(text, "none:socket");
		}
		text += strcspn(text, "+");
	}
	return false;
}

char *tres_bind_no_gpus(const char *text, char *buf, size_t size)
{
	int used = snprintf(buf, size, "%snone", gpu);

	for (; *text; text += *text == '+') {
		int n = (int)strcspn(text, "+");
		if (n && used < (int)size && !begins(text, gpu))
			used += snprintf(buf + used, size - (size_t)used, "+%.*s", n, text);
		text += n;
	}
	return used < (int)size ? buf : NULL;
}
