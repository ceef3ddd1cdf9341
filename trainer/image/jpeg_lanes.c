/* SPDX-License-Identifier: Apache-2.0
 * Huffman decoding of sixteen stretches between restart markers at once, one in each lane of an AVX-512 vector. One after the other a
 * coefficient takes ten cycles, many of them for wrong guesses at where blocks end and which coefficients are long. Here no branch
 * depends on that. The files that `prepare` writes have a marker after each row of blocks. */
#include <string.h>

#include "image/jpeg_gray.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl")))

int jpeg_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}

/* What is at the front of a lane whose code is longer than a look: an entry without a code, and in *window the bits of its value. */
static uint32_t long_entry(const struct huffman *h, const uint8_t *data, uint32_t bit, uint32_t *window)
{
	uint64_t next;
	int length = 0, symbol = 0;

	memcpy(&next, data + (bit >> 3), 8);
	next = __builtin_bswap64(next) << (bit & 7);
	for (int more = 1; !length && more <= CODE_BITS; more++) {
		int i = (int)(next >> (64 - more)) - h->first[more];
		if (i >= 0 && i < h->definition[more - 1]) {
			symbol = h->definition[CODE_BITS + h->at[more] + i];
			length = more;
		}
	}
	*window = (uint32_t)(next << length >> 32);
	if (!length || (!h->is_ac && symbol > DC_BITS))
		return LANE_ENTRY(0, 0, BLOCK + 1, 1); /* k goes where it is unsound */
	int bits = symbol & 15;
	return LANE_ENTRY(0, bits, h->is_ac ? symbol ? (symbol >> 4) + 1 : ENDED : 1, length + bits);
}

/* Zigzag to natural order, in place. */
AVX512 static void to_natural_order(int16_t *blocks, int n)
{
	static const int16_t order[BLOCK] = {
		0,  1,  5,  6,	14, 15, 27, 28, 2,  4,	7,  13, 16, 26, 29, 42, 3,  8,	12, 17, 25, 30, 41, 43, 9,  11, 18, 24, 31, 40, 44, 53,
		10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63,
	};
	__m512i upper = _mm512_loadu_si512(order), lower = _mm512_loadu_si512(order + 32);

	for (int i = 0; i < n; i++, blocks += BLOCK) {
		__m512i a = _mm512_loadu_si512(blocks), b = _mm512_loadu_si512(blocks + 32);
		_mm512_storeu_si512(blocks, _mm512_permutex2var_epi16(a, upper, b));
		_mm512_storeu_si512(blocks + 32, _mm512_permutex2var_epi16(a, lower, b));
	}
}

/* Gives a free lane the next stretch; 0: there is none. */
static int begin_stretch(struct lanes *l, int lane)
{
	if (l->next == l->n)
		return 0;
	const struct stretch *s = l->of[lane] = &l->stretch[l->next++];
	int32_t first = lane * (l->room + LANE_SLACK) * BLOCK;
	l->bit[lane] = 8 * s->begin;
	l->limit[lane] = 8 * s->end;
	l->place[lane] = first;
	l->end[lane] = first + s->blocks * BLOCK;
	memset(l->blocks + first, 0, (size_t)(s->blocks + LANE_SLACK) * BLOCK * sizeof *l->blocks);
	return 1;
}

/* 0: unsound. */
static int end_stretch(const struct lanes *l, int lane)
{
	int16_t *blocks = l->blocks + (ptrdiff_t)lane * (l->room + LANE_SLACK) * BLOCK;
	int n = l->of[lane]->blocks, last = 0;

	if (l->limit[lane] - l->bit[lane] >= 8) /* everything was used, but for the bits that fill the last byte */
		return 0;
	for (int i = 0; i < n; i++) {
		last += blocks[i * BLOCK];
		if (last != (int16_t)last)
			return 0;
		blocks[i * BLOCK] = (int16_t)last;
	}
	to_natural_order(blocks, n);
	return l->finish(l->argument, l->of[lane], blocks);
}

/* Lanes at the ends of their stretches go on with others. Returns those that have none left, -1: unsound. */
static int go_on(struct lanes *l, unsigned done)
{
	int idle = 0;

	for (; done; done &= done - 1) {
		int lane = __builtin_ctz(done);
		if (!end_stretch(l, lane))
			return -1;
		if (!begin_stretch(l, lane))
			idle |= 1 << lane;
	}
	return idle;
}

/* k of the block's coefficient, -1 before its DC, and what else goes from one step to the next. */
struct lane_state {
	__m512i bit, limit, place, end, k;
};

INLINE void load_lanes(struct lane_state *s, const struct lanes *l)
{
	s->bit = _mm512_loadu_si512(l->bit);
	s->limit = _mm512_loadu_si512(l->limit);
	s->place = _mm512_loadu_si512(l->place);
	s->end = _mm512_loadu_si512(l->end);
}

/* Looks up what is next in each lane: an entry, and the bits that it is about at the high end of a word. */
INLINE __m512i look_up(struct lanes *l, const struct lane_state *s, __mmask16 active, const struct huffman *dc, const struct huffman *ac, __m512i *window)
{
	const __m512i big_endian = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203), idle = _mm512_set1_epi32(1);
	__mmask16 first = _mm512_movepi32_mask(s->k);

	__m512i word = _mm512_mask_i32gather_epi32(idle, active, _mm512_srli_epi32(s->bit, 3), l->data, 1);
	*window = _mm512_sllv_epi32(_mm512_shuffle_epi8(word, big_endian), _mm512_and_si512(s->bit, _mm512_set1_epi32(7)));
	__m512i at = _mm512_srli_epi32(*window, 32 - LANE_LOOK);
	at = _mm512_mask_add_epi32(at, first, at, _mm512_set1_epi32((int)(dc->lane - ac->lane)));
	__m512i entry = _mm512_mask_i32gather_epi32(idle, active, at, ac->lane, 4);
	__mmask16 is_long = _mm512_testn_epi32_mask(entry, entry);
	if (__builtin_expect(is_long != 0, 0)) {
		_mm512_storeu_si512(l->entry, entry);
		_mm512_storeu_si512(l->window, *window);
		_mm512_storeu_si512(l->bit, s->bit);
		for (unsigned left = is_long; left; left &= left - 1) {
			int lane = __builtin_ctz(left);
			l->entry[lane] = long_entry(first >> lane & 1 ? dc : ac, l->data, l->bit[lane], &l->window[lane]);
		}
		entry = _mm512_loadu_si512(l->entry);
		*window = _mm512_loadu_si512(l->window);
	}
	return entry;
}

/* The values that entries stand for (jpeg_extend), in 16 bits with zeros above. */
INLINE __m512i values(__m512i entry, __m512i window)
{
	const __m512i second_byte = _mm512_set4_epi32((int)0x8080800D, (int)0x80808009, (int)0x80808005, (int)0x80808001), one = _mm512_set1_epi32(1);
	__m512i size = _mm512_shuffle_epi8(entry, second_byte), bits = _mm512_sllv_epi32(window, _mm512_and_si512(entry, _mm512_set1_epi32(31)));
	__m512i value = _mm512_srlv_epi32(bits, _mm512_sub_epi32(_mm512_set1_epi32(32), size));
	__mmask16 negative = _knot_mask16(_mm512_movepi32_mask(bits));

	value = _mm512_mask_add_epi32(value, negative, value, _mm512_sub_epi32(one, _mm512_sllv_epi32(one, size)));
	return _mm512_and_si512(value, _mm512_set1_epi32(0xFFFF));
}

AVX512 int jpeg_lanes(struct lanes *l, const struct huffman *dc, const struct huffman *ac)
{
	const __m512i third_byte = _mm512_set4_epi32((int)0x8080800E, (int)0x8080800A, (int)0x80808006, (int)0x80808002);
	const __m512i before = _mm512_set1_epi32(-1), block = _mm512_set1_epi32(BLOCK);
	__mmask16 active = 0;
	struct lane_state s = { .k = before };

	for (int lane = 0; lane < LANES; lane++)
		active |= (__mmask16)(begin_stretch(l, lane) << lane);
	load_lanes(&s, l);
	while (active) {
		__m512i window, entry = look_up(l, &s, active, dc, ac, &window), value = values(entry, window);
		s.k = _mm512_add_epi32(s.k, _mm512_shuffle_epi8(entry, third_byte));
		s.bit = _mm512_add_epi32(s.bit, _mm512_srli_epi32(entry, 24));
		/* the zero beside the value lands where nothing is yet: coefficients come in ascending order, and the next block after */
		_mm512_mask_i32scatter_epi32(l->blocks, active, _mm512_add_epi32(s.place, s.k), value, 2);
		__mmask16 ended = _mm512_mask_cmpgt_epi32_mask(active, s.k, _mm512_set1_epi32(BLOCK - 2));
		__mmask16 unsound = _mm512_mask_cmplt_epu32_mask(active, _mm512_sub_epi32(s.k, block), _mm512_set1_epi32(ENDED - BLOCK));
		unsound |= _mm512_mask_cmpgt_epu32_mask(active, s.bit, s.limit);
		s.k = _mm512_mask_mov_epi32(s.k, ended, before);
		s.place = _mm512_mask_add_epi32(s.place, ended, s.place, block);
		__mmask16 done = _mm512_mask_cmpeq_epi32_mask(active, s.place, s.end);
		if (__builtin_expect(unsound | done, 0)) {
			_mm512_storeu_si512(l->bit, s.bit);
			_mm512_storeu_si512(l->place, s.place);
			int idle = unsound ? -1 : go_on(l, done);
			if (idle < 0)
				return 0;
			active &= (__mmask16)~idle;
			load_lanes(&s, l);
		}
	}
	return 1;
}
#endif
