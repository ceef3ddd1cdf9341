/* SPDX-License-Identifier: Apache-2.0
 * Huffman decoding. One look-up gives run, value and length of most coefficients; what is left is a chain from each look-up to the
 * next, seven cycles a link, in whose gaps a second lane is decoded: prepared files have a restart marker after each row of blocks. */
#include <string.h>

#include "image/jpeg_gray.h"

enum { ROUND = 4 }; /* look-ups between refills: ROUND * LOOK <= 57 bits */

struct state {
	uint64_t next; /* the next bit is the highest one; 57 of them at the beginning of a round */
	/* As in an entry of `whole`: bits taken since the refill, and k << 8; above that is nothing of use. */
	uint32_t sum;
	int16_t *block;
	int left; /* blocks, this one included; -1: what was met is unsound */
	const uint8_t *data;
	size_t used, limit; /* bits */
};

static inline __attribute__((always_inline)) uint64_t peek(const uint8_t *data, size_t bit)
{
	uint64_t word;

	memcpy(&word, data + (bit >> 3), 8);
	return __builtin_bswap64(word) << (bit & 7);
}

/* An entry as in `whole` for a coefficient of any length. What has no code runs past its block. */
static __attribute__((noinline)) int32_t long_entry(const struct huffman *h, uint64_t next)
{
	int symbol = -1, length = h->symbol[next >> (64 - LOOK)] & 255;

	if (length)
		symbol = h->symbol[next >> (64 - LOOK)] >> 8;
	for (int more = LOOK + 1; symbol < 0 && more <= CODE_BITS; more++) {
		int i = (int)(next >> (64 - more)) - h->first[more];
		if (i >= 0 && i < h->definition[more - 1]) {
			symbol = h->definition[CODE_BITS + h->at[more] + i];
			length = more;
		}
	}
	if (symbol < 0 || (!h->is_ac && symbol > DC_BITS))
		return BLOCK << 8;
	int bits = symbol & 15, advance = h->is_ac ? symbol ? (symbol >> 4) + 1 : ENDED : 0;
	int value = bits ? jpeg_extend((int)(next << length >> (64 - bits)), bits) : 0;
	return value * (1 << 16) + (advance << 8 | (length + bits));
}

static inline __attribute__((always_inline)) void refill(struct state *s)
{
	s->used += s->sum & 255;
	s->sum &= ~255u;
	s->next = peek(s->data, s->used);
}

/* Decodes one coefficient; returns whether it ends its block. */
static inline __attribute__((always_inline)) int step(struct state *s, const struct huffman *h, const uint8_t *natural)
{
	int32_t entry = h->whole[s->next >> (64 - LOOK)];

	if (__builtin_expect(entry == 0, 0)) {
		refill(s);
		entry = long_entry(h, s->next);
		s->sum += (uint32_t)entry;
		refill(s);
	} else {
		s->next <<= entry & 63;
		s->sum += (uint32_t)entry;
	}
	uint32_t k = s->sum >> 8 & 255;
	s->block[natural[k]] = (int16_t)(entry >> 16);
	return k >= BLOCK - 1;
}

/* The DC coefficient of a block, which was at its beginning. */
static inline __attribute__((always_inline)) int begin_block(struct state *s, const struct huffman *dc, const uint8_t *natural)
{
	s->sum &= 255;
	refill(s);
	if (step(s, dc, natural))
		s->left = -1;
	refill(s);
	return s->left > 0;
}

/* After the last coefficient of a block. 0: the lane is at its end, or unsound. */
static inline __attribute__((always_inline)) int next_block(struct state *s, const struct huffman *dc, const uint8_t *natural)
{
	uint32_t k = s->sum >> 8 & 255;

	s->left = (k == BLOCK - 1 || k >= ENDED) && s->used <= s->limit ? s->left - 1 : -1;
	if (s->left <= 0)
		return 0;
	s->block += BLOCK;
	return begin_block(s, dc, natural);
}

/* Both lanes until one is at its end. */
static inline __attribute__((always_inline)) void run_two(struct state *one, struct state *two, const struct huffman *dc, const struct huffman *ac,
							  const uint8_t *natural)
{
	struct state a = *one, b = *two;

	for (;;) {
		refill(&a);
		refill(&b);
		for (int i = 0; i < ROUND; i++) {
			if (step(&a, ac, natural) && !next_block(&a, dc, natural))
				goto end;
			if (step(&b, ac, natural) && !next_block(&b, dc, natural))
				goto end;
		}
	}
end:
	*one = a;
	*two = b;
}

static inline __attribute__((always_inline)) void run_one(struct state *s, const struct huffman *dc, const struct huffman *ac, const uint8_t *natural)
{
	struct state a = *s;

	for (;;) {
		refill(&a);
		for (int i = 0; i < ROUND; i++)
			if (step(&a, ac, natural) && !next_block(&a, dc, natural))
				goto end;
	}
end:
	*s = a;
}

static inline __attribute__((always_inline)) int decode(const struct gray_tables *t, const struct frame *f, struct lane *lanes, int n_lanes, const int *n, int16_t *const *out)
{
	const struct huffman *dc = &t->code[0][f->dc], *ac = &t->code[1][f->ac];
	struct state s[2] = { { 0 } };

	for (int i = 0; i < n_lanes; i++) {
		s[i] = (struct state){ .data = lanes[i].data, .used = lanes[i].used, .limit = 8 * lanes[i].size, .block = out[i], .left = n[i] };
		if (s[i].left)
			begin_block(&s[i], dc, t->natural);
	}
	if (s[0].left > 0 && s[1].left > 0)
		run_two(&s[0], &s[1], dc, ac, t->natural);
	for (int i = 0; i < n_lanes; i++) {
		if (s[i].left > 0)
			run_one(&s[i], dc, ac, t->natural);
		if (s[i].left)
			return 0;
		lanes[i].used = s[i].used + (s[i].sum & 255);
		for (int k = 0; k < n[i]; k++) {
			lanes[i].last += out[i][k * BLOCK];
			if (lanes[i].last != (int16_t)lanes[i].last)
				return 0;
			out[i][k * BLOCK] = (int16_t)lanes[i].last;
		}
	}
	return 1;
}

#ifdef __x86_64__
/* Shifts by a register's number of bits that leave flags alone, one instruction instead of three. */
__attribute__((target("bmi,bmi2"))) static int decode_bmi2(const struct gray_tables *t, const struct frame *f, struct lane *lanes, int n_lanes, const int *n, int16_t *const *out)
{
	return decode(t, f, lanes, n_lanes, n, out);
}
#endif

int jpeg_blocks(const struct gray_tables *t, const struct frame *f, struct lane *lanes, int n_lanes, const int *n, int16_t *const *out)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("bmi2"))
		return decode_bmi2(t, f, lanes, n_lanes, n, out);
#endif
	return decode(t, f, lanes, n_lanes, n, out);
}
