/* SPDX-License-Identifier: Apache-2.0
 * What the files of the decoder for gray baseline JPEG share: jpeg_headers.c, jpeg_blocks.c, jpeg_lanes.c,
 * jpeg_transform.c, jpeg_gray.c. */
#ifndef IMAGE_JPEG_GRAY_H
#define IMAGE_JPEG_GRAY_H

#include "image/decode.h"

enum { LOOK = 13, SIDE = 8, BLOCK = 64, CODE_BITS = 16, DC_BITS = 11 /* lossless and 12-bit JPEG have more */ };
/* Where k goes at an end-of-block, so that it can be told from coefficients that run past the block. */
enum { ENDED = 128, AFTER = ENDED + BLOCK };
/* Bytes behind coded data that may be read: what is read between two looks at how far it went is what was left of a 64-bit word, a block of
 * nothing but the longest codes with the longest values, and another word. */
enum { LONGEST_BLOCK = CODE_BITS + DC_BITS + (BLOCK - 1) * (CODE_BITS + 15), BEYOND = 8 + LONGEST_BLOCK / 8 + 1 + 8 };

/* What jpeg_lanes() looks up: bits of a code, of the value behind it, advance of k, bits in all. */
enum { LANE_LOOK = 10, LANE_BITS = 25 /* of a 32-bit word that are there, whatever bit of its first byte comes next */ };
#define LANE_ENTRY(code, value, advance, all) ((uint32_t)(code) | (uint32_t)(value) << 8 | (uint32_t)(advance) << 16 | (uint32_t)(all) << 24)

struct huffman {
	/* by the next LOOK bits: value << 16 | advance of k << 8 | bits taken; 0: they do not hold a whole coefficient */
	int32_t whole[1 << LOOK];
	uint16_t symbol[1 << LOOK]; /* symbol << 8 | bits of its code; 0: a longer code */
	int first[CODE_BITS + 1], at[CODE_BITS + 1]; /* of each length: lowest code, place of its symbol */
	uint32_t lane[1 << LANE_LOOK]; /* by the next LANE_LOOK bits, see LANE_ENTRY; 0: a longer code */
	uint8_t definition[CODE_BITS + 256]; /* as in the file; what the rest was made from */
	int made, is_ac;
};

struct gray_tables {
	struct huffman code[2][2];      /* [AC][identifier], kept from image to image: most have the same */
	uint8_t natural[AFTER + BLOCK]; /* zigzag order to places in a block; past the block everything lands on the place behind it */

};

struct frame {
	int width, height, restart; /* restart: blocks between markers, 0: none */
	uint16_t quant[4][BLOCK];   /* in zigzag order */
	int has_quant[4], has_code[2][2], component, which_quant, dc, ac;
	const uint8_t *scan, *end;
};

/* Makes what no file can change. */
void jpeg_make_tables(struct gray_tables *t);

/* 1: *f is filled, f->scan is the first byte of coded data; 0: not plain and sound. */
int jpeg_read_headers(struct frame *f, struct gray_tables *t, const uint8_t *file, size_t size);

/* `bits` of a coefficient of that size as a number (T.81, F.2.2.1). */
static inline int jpeg_extend(int bits, int size)
{
	return size && bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

/* Coded blocks one after the other, between two markers. */
struct lane {
	const uint8_t *data; /* BEYOND zeros behind it */
	size_t size, used;   /* bytes; bits decoded so far */
	int last;            /* DC of the last block */
};

/* Decodes the next n[i] blocks of one or two lanes, at the same time: out[i] [n[i] + 1][BLOCK] is zero before and holds coefficients
 * in natural order behind it, not yet multiplied by the quantiser. 0: unsound. */
int jpeg_blocks(const struct gray_tables *t, const struct frame *f, struct lane *lanes, int n_lanes, const int *n, int16_t *const *out);

/* Coded data between two markers. */
struct stretch {
	uint32_t begin, end; /* bytes of lanes.data */
	int first, blocks;   /* of the picture */
};

enum { LANES = 16, LANE_SLACK = 3 /* blocks behind a lane's own that an end-of-block writes zeros into */ };

struct lanes {
	const uint8_t *data; /* BEYOND bytes behind the last stretch may be read */
	const struct stretch *stretch;
	int n, room;     /* stretches; the most blocks that one has */
	int16_t *blocks; /* [LANES][room + LANE_SLACK][BLOCK] */
	/* What becomes of a stretch's coefficients, [blocks + LANE_SLACK][BLOCK], as out of jpeg_blocks(); 0: unsound. */
	int (*finish)(void *argument, const struct stretch *s, int16_t *blocks);
	void *argument;
	/* While it runs, of each lane: place and end are indices into `blocks`, bit and limit of `data`. */
	const struct stretch *of[LANES];
	uint32_t bit[LANES], limit[LANES], entry[LANES], window[LANES];
	int32_t place[LANES], end[LANES];
	int next; /* stretch that no lane has had */
};

/* Whether the processor has AVX-512. */
int jpeg_has_avx512(void);

/* Decodes all stretches and calls finish() for each, in any order. 0: unsound. */
int jpeg_lanes(struct lanes *l, const struct huffman *dc, const struct huffman *ac);

/* Inverse transform of pairs of blocks, or of four at a time; needs AVX2. */
struct transform {
	_Alignas(32) int16_t quant[BLOCK], limit[BLOCK]; /* in natural order; limit: of what may be multiplied by quant */
	int wide;   /* use AVX-512 */
	int beyond; /* a number that is out of range was met: what came out is not what libjpeg-turbo gives */
};

void jpeg_transform_init(struct transform *t, const uint16_t quant[BLOCK], const uint8_t *natural, int wide);

/* blocks [n][BLOCK] to pixels at [8][stride], 16-byte rows for each pair; n is even. */
void jpeg_transform(struct transform *t, const int16_t *blocks, int n, uint8_t *pixels, size_t stride);

#endif
