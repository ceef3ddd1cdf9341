/* SPDX-License-Identifier: Apache-2.0
 * Baseline JPEG of one component (ITU-T T.81), the kind that prepared sets hold: a third more images a second than
 * libjpeg-turbo 2.1 decodes, because one look-up gives run, value and length of most coefficients. The inverse DCT is that of
 * Loeffler, Ligtenberg and Moschytz (ICASSP 1989) with 13-bit constants, whose rounding libjpeg's "islow" made the standard
 * one: the pixels are the same to the bit.
 *
 * Whatever is not plain and sound is left to libjpeg-turbo, which also finds the words for what is wrong with it. */
#include <stdlib.h>
#include <string.h>

#include "data/decode.h"

#if !defined(__SSE2__)

int decode_jpeg_gray(struct decoder *d, const uint8_t *file, size_t size, struct image *image)
{
	(void)d, (void)file, (void)size, (void)image;
	return 0;
}

#else
#include <emmintrin.h>

enum { LOOK = 11, SIDE = 8, BLOCK = 64, CODE_BITS = 16 };
/* Where k goes at an end-of-block, so that it can be told from coefficients that run past the block. */
enum { ENDED = 128, AFTER = ENDED + BLOCK };
/* A block cannot take more bytes than this: 64 codes of 16 bits with 15 more each. */
enum { BLOCK_BYTES = 256, BEYOND = BLOCK_BYTES + 16 };
/* Coefficients of real pictures stay below 2048 and what the first pass makes of them far below 16384; beyond that
 * libjpeg-turbo's 16-bit sums of two would wrap. */
enum { COEFFICIENT_LIMIT = 4096, FIRST_PASS_LIMIT = 16384 };

struct huffman {
	uint8_t definition[CODE_BITS + 256]; /* as in the file; what the rest was made from */
	/* by the next LOOK bits: value << 16 | advance of k << 8 | bits taken; 0: they do not hold a whole coefficient */
	int32_t whole[1 << LOOK];
	uint16_t symbol[1 << LOOK]; /* symbol << 8 | bits of its code; 0: a longer code */
	int first[CODE_BITS + 1], at[CODE_BITS + 1]; /* of each length: lowest code, place of its symbol */
	int made;
};

struct gray_tables {
	struct huffman code[2][2];         /* [AC][identifier], kept from image to image: most have the same */
	uint8_t natural[AFTER + BLOCK];    /* zigzag order to places in a block; past the block everything lands on a spare place */
};

struct frame {
	int width, height, restart; /* restart: blocks between markers, 0: none */
	uint16_t quant[4][BLOCK];   /* in zigzag order */
	int has_quant[4], has_code[2][2], component, which_quant, dc, ac;
	const uint8_t *scan, *end;
};

static int extend(int bits, int size)
{
	return size && bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

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

/* 0: the definition is no code. */
static int make_huffman(struct huffman *h, const uint8_t *counts, const uint8_t *symbols, int n, int is_ac)
{
	int code = 0, k = 0;

	if (h->made && memcmp(h->definition, counts, CODE_BITS) == 0 && memcmp(h->definition + CODE_BITS, symbols, (size_t)n) == 0)
		return 1;
	memset(h, 0, sizeof *h);
	memcpy(h->definition, counts, CODE_BITS);
	memcpy(h->definition + CODE_BITS, symbols, (size_t)n);
	for (int length = 1; length <= CODE_BITS; length++, code <<= 1) {
		h->first[length] = code;
		h->at[length] = k;
		for (int i = 0; i < counts[length - 1]; i++, code++, k++) {
			int run = is_ac ? symbols[k] >> 4 : 0, bits = is_ac ? symbols[k] & 15 : symbols[k], total = length + bits;
			if (code >= 1 << length || bits > 15 || (is_ac && !bits && run > 0 && run < 15))
				return 0;
			for (int low = 0; length <= LOOK && low < 1 << (LOOK - length); low++) {
				int look = code << (LOOK - length) | low;
				h->symbol[look] = (uint16_t)(symbols[k] << 8 | length);
				int advance = is_ac && symbols[k] == 0 ? ENDED : run + 1;
				int value = total <= LOOK ? extend(low >> (LOOK - total), bits) : 0;
				/* k moves before the value is stored; of 16 zeros the last one is stored */
				if (total <= LOOK)
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

/* 1: f->scan is the first byte of coded data. */
static int read_headers(struct frame *f, struct gray_tables *t, const uint8_t *file, size_t size)
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

/* Takes out the zeros behind 0xFF bytes up to the next marker; returns the number of bytes, and *p is at the marker. */
static size_t unstuff(const uint8_t **p, const uint8_t *end, uint8_t *out)
{
	uint8_t *begin = out;

	for (;;) {
		const uint8_t *ff = memchr(*p, 0xFF, (size_t)(end - *p));
		if (!ff || ff + 1 == end)
			ff = end;
		memcpy(out, *p, (size_t)(ff - *p));
		out += ff - *p;
		*p = ff;
		if (ff == end || ff[1] != 0)
			break;
		*out++ = 0xFF;
		*p += 2;
	}
	memset(out, 0, BEYOND);
	return (size_t)(out - begin);
}

/* ---- coefficients ------------------------------------------------------------------------------------ */

struct bits {
	const uint8_t *p;
	uint64_t next; /* the next bit is the highest one */
	int have;
};

/* At least 56 bits. */
static inline __attribute__((always_inline)) void refill(struct bits *b)
{
	uint64_t word;

	memcpy(&word, b->p, 8);
	b->next |= __builtin_bswap64(word) >> b->have;
	b->p += (63 - b->have) >> 3;
	b->have |= 56;
}

static inline __attribute__((always_inline)) int take(struct bits *b, int n)
{
	int value = n ? (int)(b->next >> (64 - n)) : 0;

	b->next <<= n;
	b->have -= n;
	return value;
}

/* A symbol whose code may have any length; -1: none has this code. */
static int any_symbol(const struct huffman *h, struct bits *b)
{
	int entry = h->symbol[b->next >> (64 - LOOK)];

	if (entry) {
		take(b, entry & 255);
		return entry >> 8;
	}
	for (int length = LOOK + 1; length <= CODE_BITS; length++) {
		int i = (int)(b->next >> (64 - length)) - h->first[length];
		if (i >= 0 && i < h->definition[length - 1]) {
			take(b, length);
			return h->definition[CODE_BITS + h->at[length] + i];
		}
	}
	return -1;
}

static inline __attribute__((always_inline)) void put(const struct gray_tables *t, const uint16_t *quant, int k, int value, int16_t *block,
						      unsigned *large)
{
	value *= quant[k & (BLOCK - 1)];
	*large |= (unsigned)(value + COEFFICIENT_LIMIT);
	block[t->natural[k]] = (int16_t)value;
}

/* Fills block, which is zero; *dc is the last block's. Returns 0 for anything unsound. `large` collects what is beyond
 * COEFFICIENT_LIMIT. */
static inline __attribute__((always_inline)) int read_block(struct bits *b, const struct gray_tables *t, const struct frame *f, int *last,
							    int16_t *block, unsigned *large)
{
	const struct huffman *ac = &t->code[1][f->ac];
	const uint16_t *quant = f->quant[f->which_quant];

	refill(b);
	int symbol = any_symbol(&t->code[0][f->dc], b), k = 0;
	if (symbol < 0 || symbol > 11)
		return 0;
	*last += extend(take(b, symbol), symbol);
	put(t, quant, 0, *last, block, large);
	while (k < BLOCK - 1) {
		int32_t entry = 1;
		refill(b);
		/* four of at most LOOK bits each: a test for too few bits at each would be a branch that nobody can predict */
		for (int i = 0; i < 4 && k < BLOCK - 1 && (entry = ac->whole[b->next >> (64 - LOOK)]) != 0; i++) {
			take(b, entry & 63);
			k += entry >> 8 & 255;
			put(t, quant, k, entry >> 16, block, large);
		}
		if (__builtin_expect(entry == 0, 0)) {
			refill(b);
			symbol = any_symbol(ac, b);
			if (symbol < 0)
				return 0;
			k += symbol ? (symbol >> 4) + 1 : ENDED;
			put(t, quant, k, extend(take(b, symbol & 15), symbol & 15), block, large);
		}
	}
	return k == BLOCK - 1 || k >= ENDED;
}

/* ---- inverse transform ------------------------------------------------------------------------------- */

enum { SCALE = 13, C0298 = 2446, C0390 = 3196, C0541 = 4433, C0765 = 6270, C0899 = 7373, C1175 = 9633, C1501 = 12299, C1847 = 15137,
       C1961 = 16069, C2053 = 16819, C2562 = 20995, C3072 = 25172 };

#define PAIR(a, b) _mm_set1_epi32((int)((unsigned)(uint16_t)(a) | (unsigned)(uint16_t)(b) << 16))

/* Four columns of one pass, in 32 bits: v01 … hold the input rows' pairs (row a, row b) side by side. */
static inline __attribute__((always_inline)) void four_columns(__m128i v04, __m128i v26, __m128i v13, __m128i v57, int shift, __m128i out[SIDE])
{
	__m128i round = _mm_set1_epi32(1 << (shift - 1));
	__m128i sum = _mm_add_epi32(_mm_madd_epi16(v04, PAIR(1 << SCALE, 1 << SCALE)), round);
	__m128i difference = _mm_add_epi32(_mm_madd_epi16(v04, PAIR(1 << SCALE, -(1 << SCALE))), round);
	__m128i low = _mm_madd_epi16(v26, PAIR(C0541, C0541 - C1847)), high = _mm_madd_epi16(v26, PAIR(C0541 + C0765, C0541));
	__m128i even[4] = { _mm_add_epi32(sum, high), _mm_add_epi32(difference, low), _mm_sub_epi32(difference, low), _mm_sub_epi32(sum, high) };
	__m128i odd[4] = {
		_mm_add_epi32(_mm_madd_epi16(v13, PAIR(C1501 - C0899 - C0390 + C1175, C1175)),
			      _mm_madd_epi16(v57, PAIR(C1175 - C0390, C1175 - C0899))),
		_mm_add_epi32(_mm_madd_epi16(v13, PAIR(C1175, C3072 - C2562 - C1961 + C1175)),
			      _mm_madd_epi16(v57, PAIR(C1175 - C2562, C1175 - C1961))),
		_mm_add_epi32(_mm_madd_epi16(v13, PAIR(C1175 - C0390, C1175 - C2562)),
			      _mm_madd_epi16(v57, PAIR(C2053 - C2562 - C0390 + C1175, C1175))),
		_mm_add_epi32(_mm_madd_epi16(v13, PAIR(C1175 - C0899, C1175 - C1961)),
			      _mm_madd_epi16(v57, PAIR(C1175, C0298 - C0899 - C1961 + C1175))),
	};
	for (int i = 0; i < 4; i++) {
		out[i] = _mm_srai_epi32(_mm_add_epi32(even[i], odd[i]), shift);
		out[7 - i] = _mm_srai_epi32(_mm_sub_epi32(even[i], odd[i]), shift);
	}
}

/* One pass over the columns of v [8] rows. */
static inline __attribute__((always_inline)) void pass(__m128i v[SIDE], int shift)
{
	__m128i left[SIDE], right[SIDE];

	four_columns(_mm_unpacklo_epi16(v[0], v[4]), _mm_unpacklo_epi16(v[2], v[6]), _mm_unpacklo_epi16(v[1], v[3]), _mm_unpacklo_epi16(v[5], v[7]),
		     shift, left);
	four_columns(_mm_unpackhi_epi16(v[0], v[4]), _mm_unpackhi_epi16(v[2], v[6]), _mm_unpackhi_epi16(v[1], v[3]), _mm_unpackhi_epi16(v[5], v[7]),
		     shift, right);
	for (int i = 0; i < SIDE; i++)
		v[i] = _mm_packs_epi32(left[i], right[i]);
}

static inline __attribute__((always_inline)) void transpose(__m128i v[SIDE])
{
	__m128i a[SIDE], b[SIDE];

	for (int i = 0; i < 4; i++) {
		a[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
		a[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
		b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		v[2 * i] = _mm_unpacklo_epi16(b[i], b[i + 4]);
		v[2 * i + 1] = _mm_unpackhi_epi16(b[i], b[i + 4]);
	}
}

/* The highest and lowest results of the first pass. */
struct extent {
	__m128i high, low;
};

static int beyond_limit(const struct extent *seen)
{
	_Alignas(16) int16_t high[SIDE], low[SIDE];
	int beyond = 0;

	_mm_store_si128((__m128i *)high, seen->high);
	_mm_store_si128((__m128i *)low, seen->low);
	for (int i = 0; i < SIDE; i++)
		beyond |= high[i] >= FIRST_PASS_LIMIT || low[i] <= -FIRST_PASS_LIMIT;
	return beyond;
}

/* block [8][8] to pixels [8][stride]. */
static inline __attribute__((always_inline)) void inverse_dct(const int16_t *block, uint8_t *out, size_t stride, struct extent *seen)
{
	__m128i v[SIDE];

	for (int i = 0; i < SIDE; i++)
		v[i] = _mm_load_si128((const __m128i *)block + i);
	pass(v, SCALE - 2);
	for (int i = 0; i < SIDE; i++) {
		seen->high = _mm_max_epi16(seen->high, v[i]);
		seen->low = _mm_min_epi16(seen->low, v[i]);
	}
	transpose(v);
	pass(v, SCALE + 2 + 3);
	transpose(v);
	for (int i = 0; i < SIDE; i++) {
		__m128i row = _mm_add_epi16(v[i], _mm_set1_epi16(128));
		_mm_storel_epi64((__m128i *)(out + (size_t)i * stride), _mm_packus_epi16(row, row));
	}
}

/* ---- picture ----------------------------------------------------------------------------------------- */

/* `n` blocks from number `first` on, out of `size` bytes at `data` with BEYOND zeros behind them. */
__attribute__((target_clones("arch=x86-64-v3", "default"))) static int read_blocks(const struct frame *f, const struct gray_tables *t,
										   const uint8_t *data, size_t size, int first, int n, uint8_t *pixels)
{
	struct bits b = { .p = data };
	_Alignas(16) int16_t block[BLOCK + SIDE];
	uint8_t edge[BLOCK];
	unsigned large = 0;
	struct extent seen = { _mm_setzero_si128(), _mm_setzero_si128() };
	int across = (f->width + SIDE - 1) / SIDE, last = 0;

	for (int i = first; i < first + n; i++) {
		size_t x = (size_t)(i % across) * SIDE, y = (size_t)(i / across) * SIDE, width = (size_t)f->width, height = (size_t)f->height;
		memset(block, 0, sizeof block);
		if (!read_block(&b, t, f, &last, block, &large) || large >= 2 * COEFFICIENT_LIMIT || b.p > data + size + 8)
			return 0;
		if (x + SIDE <= width && y + SIDE <= height) {
			inverse_dct(block, pixels + y * width + x, width, &seen);
			continue;
		}
		inverse_dct(block, edge, SIDE, &seen);
		for (size_t row = 0; row < SIDE && y + row < height; row++)
			memcpy(pixels + (y + row) * width + x, edge + row * SIDE, width - x < SIDE ? width - x : SIDE);
	}
	/* everything was used, but for the bits that fill the last byte */
	size_t used = 8 * (size_t)(b.p - data) - (size_t)b.have;
	return used <= 8 * size && 8 * size - used < 8 && !beyond_limit(&seen);
}

static int read_picture(struct decoder *d, const struct frame *f, const struct gray_tables *t)
{
	const uint8_t *p = f->scan;
	int blocks = ((f->width + SIDE - 1) / SIDE) * ((f->height + SIDE - 1) / SIDE), step = f->restart ? f->restart : blocks;

	for (int i = 0, segment = 0; i < blocks; i += step, segment++) {
		int n = blocks - i < step ? blocks - i : step;
		size_t size = unstuff(&p, f->end, d->packed.data);
		int marker = f->end - p < 2 ? -1 : p[1], wanted = i + n == blocks ? 0xD9 : 0xD0 + segment % 8;
		if (marker != wanted || !read_blocks(f, t, d->packed.data, size, i, n, d->gray.data))
			return 0;
		p += 2;
	}
	return 1;
}

int decode_jpeg_gray(struct decoder *d, const uint8_t *file, size_t size, struct image *image)
{
	struct frame f = { .width = 0 };
	struct error why = { 0 };

	if (!d->tables && (d->tables = calloc(1, sizeof *d->tables)))
		make_natural(d->tables->natural);
	if (!d->tables || !read_headers(&f, d->tables, file, size) || scratch_reserve(&d->packed, size + BEYOND, &why) ||
	    scratch_reserve(&d->gray, (size_t)f.width * (size_t)f.height, &why) || !read_picture(d, &f, d->tables))
		return 0;
	*image = (struct image){ f.width, f.height, d->gray.data };
	return 1;
}
#endif
