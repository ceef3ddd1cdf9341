/* SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The first row whose words are all in the name counts: special forms stand before the usual one. */
static const struct {
	const char *word, *also;
	int bandwidth;
} models[] = {
	{ "K80", NULL, 240 }, { "P100", "12GB", 549 }, { "P100", NULL, 732 }, { "P40", NULL, 346 }, { "P4", NULL, 192 },
	{ "V100S", NULL, 1134 }, { "V100", NULL, 900 }, { "T4", NULL, 320 },
	{ "A100", "80GB", 2039 }, { "A100", NULL, 1555 }, { "A800", NULL, 2039 }, { "A30", NULL, 933 }, { "A40", NULL, 696 },
	{ "A10G", NULL, 600 }, { "A10", NULL, 600 }, { "A16", NULL, 200 }, { "A2", NULL, 200 },
	{ "L4", NULL, 300 }, { "L40", NULL, 864 }, { "L40S", NULL, 864 },
	{ "H100", "PCIe", 2039 }, { "H100", "NVL", 3938 }, { "H100", NULL, 3350 }, { "H800", NULL, 3350 }, { "H20", NULL, 4000 }, { "H200", NULL, 4800 },
	{ "GH200", "480GB", 4000 }, { "GH200", NULL, 4900 },
	{ "B200", NULL, 8000 }, { "GB200", NULL, 8000 }, { "B300", NULL, 8000 }, { "GB300", NULL, 8000 }, { "GB10", NULL, 273 },
};

/* A whole word of the name: "L4" is not in "L40S". */
static bool has_word(const char *name, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = name; *p;) {
		size_t len = 0;
		while (isalnum((unsigned char)p[len]))
			len++;
		if (len == n && !strncasecmp(p, word, n))
			return true;
		p += len ? len : 1;
	}
	return false;
}

int model_bandwidth(const char *model)
{
	for (size_t i = 0; i < sizeof models / sizeof *models; i++)
		if (has_word(model, models[i].word) && (!models[i].also || has_word(model, models[i].also)))
			return models[i].bandwidth;
	return 0;
}
