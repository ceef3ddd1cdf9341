/* SPDX-License-Identifier: Apache-2.0 */
#include "tres_bind.h"

#include <stdio.h>
#include <string.h>

static const char gpu[] = "gres/gpu:";
enum { GPU = sizeof gpu - 1 };

static bool begins(const char *text, size_t length, const char *word)
{
	return length >= strlen(word) && !strncmp(text, word, strlen(word));
}

bool tres_binds_gpus(const char *text)
{
	for (; *text; text += *text == '+') {
		size_t n = strcspn(text, "+");
		if (begins(text, n, gpu)) {
			const char *how = text + GPU;
			size_t length = n - GPU;
			if (begins(how, length, "verbose,")) {
				how += 8;
				length -= 8;
			}
			return !begins(how, length, "per_task") && !begins(how, length, "none:socket");
		}
		text += n;
	}
	return false;
}

char *tres_bind_no_gpus(const char *text, char *buf, size_t size)
{
	int used = snprintf(buf, size, "%snone", gpu);

	for (; *text; text += *text == '+') {
		int n = (int)strcspn(text, "+");
		if (n && used < (int)size && !begins(text, (size_t)n, gpu))
			used += snprintf(buf + used, size - (size_t)used, "+%.*s", n, text);
		text += n;
	}
	return used < (int)size ? buf : NULL;
}
