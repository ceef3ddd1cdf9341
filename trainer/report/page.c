/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and a NUL; 0: none. */
static int grow(struct page *p, size_t more)
{
	if (p->failed)
		return 0;
	if (p->room - p->size <= more) {
		size_t room = (p->size + more) * 2 + 4096;
		char *text = realloc(p->text, room);

		if (!text) {
			p->failed = 1;
			return 0;
		}
		p->text = text;
		p->room = room;
	}
	return 1;
}

static void put(struct page *p, const char *text, size_t size)
{
	if (!grow(p, size))
		return;
	memcpy(p->text + p->size, text, size);
	p->size += size;
	p->text[p->size] = '\0';
}

void page_put(struct page *p, const char *format, ...)
{
	va_list args, again;

	va_start(args, format);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, format, args);

	va_end(args);
	if (n >= 0 && grow(p, (size_t)n)) {
		vsnprintf(p->text + p->size, (size_t)n + 1, format, again);
		p->size += (size_t)n;
	}
	va_end(again);
}

void page_text(struct page *p, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			put(p, "&amp;", 5);
			break;
		case '<':
			put(p, "&lt;", 4);
			break;
		case '>':
			put(p, "&gt;", 4);
			break;
		case '"':
			put(p, "&quot;", 6);
			break;
		case '\'':
			put(p, "&#39;", 5);
			break;
		default:
			put(p, (unsigned char)*text < ' ' || *text == 0x7f ? " " : text, 1);
		}
	}
}

void page_count(struct page *p, size_t n)
{
	char digits[32];
	int length = snprintf(digits, sizeof digits, "%zu", n);

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			put(p, ",", 1);
		put(p, &digits[i], 1);
	}
}

void page_rate(struct page *p, double rate)
{
	if (rate >= 100 && rate < 1e15)
		page_count(p, (size_t)(rate + 0.5));
	else
		page_put(p, "%.1f", rate);
}

/* Base64 (RFC 4648). */
void page_data(struct page *p, const char *type, const void *data, size_t size)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *byte = data;

	page_put(p, "data:%s;base64,", type);
	for (size_t i = 0; i < size; i += 3) {
		uint32_t v = (uint32_t)byte[i] << 16 | (i + 1 < size ? (uint32_t)byte[i + 1] << 8 : 0) | (i + 2 < size ? byte[i + 2] : 0);
		char four[4] = { letters[v >> 18], letters[v >> 12 & 63], i + 1 < size ? letters[v >> 6 & 63] : '=', i + 2 < size ? letters[v & 63] : '=' };

		put(p, four, 4);
	}
}
