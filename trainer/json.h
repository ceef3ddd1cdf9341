/* SPDX-License-Identifier: Apache-2.0
 * cJSON goes on without what it finds no memory for: an object with a hole looks whole, a text that was not read looks wrong. Here its
 * memory is watched. */
#ifndef TRAINER_JSON_H
#define TRAINER_JSON_H

#include <stddef.h>

#include <cjson/cJSON.h>

#include "error.h"

/* Deletes an object and returns its text, in UTF-8 whatever names it holds, formatted or on one line; for cJSON_free(). NULL where memory
 * failed this thread for any part of it, since it was begun. */
char *json_finish(cJSON *object, int formatted);

/* What was to be part of the object under way found no memory elsewhere: json_finish() will say so. */
void json_lacks(void);

/* The same, printed on standard output. EXIT_INTERNAL without memory: then nothing is printed. */
int json_print(cJSON *object, int formatted, struct error *e);

/* errno of the last one that could not be written: of what is longer than the buffer nobody else hears it. 0: none */
int json_unprinted(void);

/* The same for the next object of an array that is printed as it grows, "[{…}, {…}", of which the end, "]", is the caller's to print: without it
 * no reader takes what is cut off for all. *printed: 0 before the first. */
int json_print_next(cJSON *object, int *printed, struct error *e);

/* What a text of `size` bytes says; whole: nothing follows it but a NUL, which counts. *end, which may be NULL: where it ends, or cannot be
 * understood. NULL with errno ENOMEM, or else EBADMSG. */
cJSON *json_parse(const char *text, size_t size, int whole, const char **end);

#endif
