/* SPDX-License-Identifier: Apache-2.0
 * File names are bytes; JSON and HTML are UTF-8. */
#ifndef TRAINER_UTF8_H
#define TRAINER_UTF8_H

/* Every byte of a text that is no part of well-formed UTF-8 (RFC 3629) becomes a question mark. Returns the text, which may be NULL. */
char *utf8_mend(char *text);

#endif
