/* SPDX-License-Identifier: Apache-2.0
 * A text that grows: pages are written into it piece by piece, and memory is asked about once at the end. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stddef.h>

struct page {
	char *text; /* NUL-terminated; free() it */
	size_t size, room;
	int failed; /* no memory: text is incomplete */
};

void page_put(struct page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With &, <, > and quotation marks as HTML writes them; control characters become spaces. */
void page_text(struct page *p, const char *text);
/* "25,596" */
void page_count(struct page *p, size_t n);
/* A measured rate: one digit behind the point below 100, none above. */
void page_rate(struct page *p, double rate);
/* A file's bytes as a data: address. */
void page_data(struct page *p, const char *type, const void *data, size_t size);

#endif
