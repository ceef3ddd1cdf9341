/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "image/jpeg_gray.h"

static void make_natural(uint8_t natural[AFTER + BLOCK])
{
	int x = 0, y = 0;

	memset(natural, BLOCK, AFTER + BLOCK);
	for (int k = 0; k < BLOCK; k++) {
		natural[k] = (uint8_t)(y * SIDE + x);
		int up = (x + y) % 2 == 0;
		if (up ? x == SIDE - 1 : y != SIDE - 1 && x == 0)
			y++;
		else if (up ? y == 0 : y == SIDE - 1)
			x++;
		else
			x += up ? 1 : -1, y += up ? -1 : 1;
	}
}

void jpeg_make_tables(struct gray_tables *t)
{
	make_natural(t->natural);
}

/* An entry of huffman.lane; 0: too long for it, or unsound. */
static uint32_t lane_entry(int is_ac, int symbol, int length)
{
	int bits = symbol & 15;

	if (length + bits > LANE_BITS || (!is_ac && symbol > DC_BITS))
		return 0;
	return LANE_ENTRY(length, bits, is_ac ? symbol ? (symbol >> 4) + 1 : ENDED : 1, length + bits);
}

/* 0: the definition is no code. */
static int make_huffman(struct huffman *h, const uint8_t *counts, const uint8_t *symbols, int n, int is_ac)
{
	int code = 0, k = 0;

	if (h->made && memcmp(h->definition, counts, CODE_BITS) == 0 && memcmp(h->definition + CODE_BITS, symbols, (size_t)n) == 0)
		return 1;
	memset(h, 0, sizeof *h);
	h->is_ac = is_ac;
	memcpy(h->definition, counts, CODE_BITS);
	memcpy(h->definition + CODE_BITS, symbols, (size_t)n);
	for (int length = 1; length <= CODE_BITS; length++, code <<= 1) {
		h->first[length] = code;
		h->at[length] = k;
		for (int i = 0; i < counts[length - 1]; i++, code++, k++) {
			int run = is_ac ? symbols[k] >> 4 : 0, bits = is_ac ? symbols[k] & 15 : symbols[k], total = length + bits;
			if (code >= (1 << length) - 1 /* all ones is no code (T.81, C.2) */ || bits > 15 || (is_ac && !bits && run > 0 && run < 15))
				return 0;
			for (int low = 0; length <= LANE_LOOK && low < 1 << (LANE_LOOK - length); low++)
				h->lane[code << (LANE_LOOK - length) | low] = lane_entry(is_ac, symbols[k], length);
			for (int low = 0; length <= LOOK && low < 1 << (LOOK - length); low++) {
				int look = code << (LOOK - length) | low;
				h->symbol[look] = (uint16_t)(symbols[k] << 8 | length);
				int advance = is_ac ? symbols[k] ? run + 1 : ENDED : 0;
				int value = total <= LOOK ? jpeg_extend(low >> (LOOK - total), bits) : 0;
				/* k moves before the value is stored; of 16 zeros the last one is stored */
				if (total <= LOOK && (is_ac || bits <= DC_BITS))
					h->whole[look] = value * (1 << 16) + (advance << 8 | total);
			}
		}
	}
	return h->made = 1;
}

/* ---- headers ----------------------------------------------------------------------------------------- */

static int read_quant(struct frame *f, const uint8_t *p, const uint8_t *end)
{
	for (; p < end; p += 1 + BLOCK) {
		if (p[0] > 3 || end - p < 1 + BLOCK)
			return 0;
		for (int k = 0; k < BLOCK; k++)
			f->quant[p[0]][k] = p[1 + k];
		if (memchr(p + 1, 0, BLOCK))
			return 0;
		f->has_quant[p[0]] = 1;
	}
	return 1;
}

static int read_huffman(struct frame *f, struct gray_tables *t, const uint8_t *p, const uint8_t *end)
{
	while (p < end) {
		int n = 0, is_ac = p[0] >> 4;
		if (end - p < 1 + CODE_BITS || (p[0] & 15) > 1 || is_ac > 1)
			return 0;
		for (int i = 0; i < CODE_BITS; i++)
			n += p[1 + i];
		if (n > 256 || end - p < 1 + CODE_BITS + n ||
		    !make_huffman(&t->code[is_ac][p[0] & 1], p + 1, p + 1 + CODE_BITS, n, is_ac))
			return 0;
		f->has_code[is_ac][p[0] & 1] = 1;
		p += 1 + CODE_BITS + n;
	}
	return 1;
}

static int read_frame(struct frame *f, const uint8_t *p, size_t size)
{
	struct error why = { 0 };

	if (size != 9 || p[0] != 8 || p[5] != 1 || p[7] != 0x11 || f->width)
		return 0;
	f->height = p[1] << 8 | p[2];
	f->width = p[3] << 8 | p[4];
	f->component = p[6];
	f->which_quant = p[8];
	return check_size((uint64_t)f->width, (uint64_t)f->height, &why) == 0 && p[8] < 4;
}

static int read_scan(struct frame *f, const uint8_t *p, size_t size)
{
	static const uint8_t whole_spectrum[] = { 0, 63, 0 };

	if (size != 6 || p[0] != 1 || p[1] != f->component || memcmp(p + 3, whole_spectrum, 3) != 0 || !f->width || !f->has_quant[f->which_quant])
		return 0;
	f->dc = p[2] >> 4;
	f->ac = p[2] & 15;
	return f->dc < 2 && f->ac < 2 && f->has_code[0][f->dc] && f->has_code[1][f->ac];
}

int jpeg_read_headers(struct frame *f, struct gray_tables *t, const uint8_t *file, size_t size)
{
	const uint8_t *p = file + 2;

	if (size < 2 || file[0] != 0xFF || file[1] != 0xD8)
		return 0;
	f->end = file + size;
	while (f->end - p >= 4 && p[0] == 0xFF) {
		size_t length = (size_t)p[2] << 8 | p[3];
		int marker = p[1], ok = 1;
		if (length < 2 || (size_t)(f->end - p - 2) < length)
			return 0;
		const uint8_t *data = p + 4;
		p += 2 + length;
		length -= 2;
		if (marker == 0xDB)
			ok = read_quant(f, data, p);
		else if (marker == 0xC4)
			ok = read_huffman(f, t, data, p);
		else if (marker == 0xC0)
			ok = read_frame(f, data, length);
		else if (marker == 0xDD)
			ok = length == 2, f->restart = length == 2 ? data[0] << 8 | data[1] : 0;
		else if (marker == 0xDA) {
			f->scan = p;
			return read_scan(f, data, length);
		} else
			ok = (marker > 0xE0 && marker <= 0xEF) || marker == 0xFE || (marker == 0xE0 && length >= 14 && memcmp(data, "JFIF\0\1", 6) == 0);
		if (!ok)
			return 0;
	}
	return 0;
}
