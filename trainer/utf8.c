/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <stdio.h>
#include <string.h>

/* The second byte's limits leave out overlong forms, surrogates and what is beyond U+10FFFF. */
size_t utf8_character(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
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

int utf8_valid(const char *text)
{
	for (size_t n; *text; text += n)
		if (!(n = utf8_character(text)))
			return 0;
	return 1;
}

char *utf8_mend(char *text)
{
	for (char *p = text; p && *p;) {
		size_t n = utf8_character(p);

		if (!n)
			*p = '?';
		p += n ? n : 1;
	}
	return text;
}

size_t utf8_append(char *text, size_t size, size_t used, const char *more)
{
	static const char cut[] = "…";
	size_t end = size - sizeof cut;

	if (used >= size)
		return used + strlen(more);
	used += (size_t)snprintf(text + used, size - used, "%s", more);
	if (used < size)
		return used;
	while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
		end--;
	memcpy(text + end, cut, sizeof cut);
	return used;
}

size_t utf8_append_word(char *text, size_t size, size_t used, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
	const char *c = word;

	while (*c && ((unsigned char)*c >= 0x80 || strchr(plain, *c)))
		c++;
	if (*word && !*c)
		return utf8_append(text, size, used, word);
	used = utf8_append(text, size, used, "'");
	for (c = word; *c; c++)
		used = utf8_append(text, size, used, *c == '\'' ? "'\\''" : (const char[]){ *c, '\0' });
	return utf8_append(text, size, used, "'");
}

size_t utf8_append_words(char *text, size_t size, size_t used, int n, char *const words[])
{
	for (int i = 0; i < n; i++) {
		used = utf8_append(text, size, used, " ");
		used = utf8_append_word(text, size, used, words[i]);
	}
	return used;
}
