/* SPDX-License-Identifier: Apache-2.0
 * File names are bytes; JSON and HTML are UTF-8. */
#ifndef TRAINER_UTF8_H
#define TRAINER_UTF8_H

#include <stddef.h>

/* Bytes of the character that a text begins with, 0 where its first byte begins none that is well-formed UTF-8 (RFC 3629). */
size_t utf8_character(const char *text);
/* Whether a text is of nothing else. */
int utf8_valid(const char *text);

/* Every byte of a text that is no part of well-formed UTF-8 (RFC 3629) becomes a question mark. Returns the text, which may be NULL. */
char *utf8_mend(char *text);

/* Appends to a text of `used` bytes with `size` bytes of room, at least four. Where that is too little the text ends with "…", and nothing more is
 * appended to it. Returns how many bytes it would have. */
size_t utf8_append(char *text, size_t size, size_t used, const char *more);
/* The same with a word as a shell takes it: in single quotes where it holds a space, or whatever else a shell does not take as it stands. */
size_t utf8_append_word(char *text, size_t size, size_t used, const char *word);
/* The same with n words, a space before each. */
size_t utf8_append_words(char *text, size_t size, size_t used, int n, char *const words[]);

#endif
