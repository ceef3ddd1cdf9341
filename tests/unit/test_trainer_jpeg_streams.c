/* SPDX-License-Identifier: Apache-2.0
 * Gray JPEGs that no encoder makes: any Huffman tables, coefficients of any size, runs beyond a block, damage. What the fast way takes has
 * libjpeg-turbo's pixels without a warning of it.
 *
 *   TEST_FUZZ_SECONDS=600  how long; 1 s unless told
 *   TEST_SEED=N            other files */
#include <time.h>

#include "data/random.h"
#include "image/decode.h"
#include "test.h"

enum { MOST = 1 << 18 };

static struct stream rng;
static uint8_t file[MOST];
static size_t length;

static unsigned any(unsigned below)
{
	return stream_bits(&rng) % below;
}

static void put(unsigned byte)
{
	if (length < MOST)
		file[length++] = (uint8_t)byte;
}

static void put_segment(unsigned marker, const uint8_t *data, size_t size)
{
	put(0xFF);
	put(marker);
	put((unsigned)(size + 2) >> 8);
	put((unsigned)(size + 2));
	for (size_t i = 0; i < size; i++)
		put(data[i]);
}

/* Coded data, bit by bit. */
static unsigned byte_under_way, bits_of_it;

static void put_bits(unsigned value, int n)
{
	while (n-- > 0) {
		byte_under_way = byte_under_way << 1 | (value >> n & 1);
		if (++bits_of_it < 8)
			continue;
		put(byte_under_way);
		if (byte_under_way == 0xFF)
			put(0);
		byte_under_way = bits_of_it = 0;
	}
}

struct code {
	int n;
	uint8_t count[16], symbol[256];
	unsigned bits[256];
	int length[256];
};

static void put_symbol(const struct code *c, int i)
{
	put_bits(c->bits[i], c->length[i]);
}

/* Of up to `want` symbols, most of them of up to `most` bits; now and then with a code of all ones, which is none. */
static void make_code(struct code *c, int want, int is_ac, unsigned most)
{
	unsigned room = 1, next = 0;
	uint8_t used[256] = { 0 };

	*c = (struct code){ 0 };
	for (int l = 0; l < 16; l++, next <<= 1) {
		room *= 2;
		unsigned free = room && any(50) ? room - 1 : room, here = l == 15 ? free : any(4) ? 0 : any(free + 1);
		here = here < (unsigned)(want - c->n) ? here : (unsigned)(want - c->n);
		c->count[l] = (uint8_t)here;
		room = room - here < 1 << 16 ? room - here : 1 << 16;
		for (; here; here--, c->n++) {
			unsigned symbol;
			do
				symbol = is_ac ? any(256) : any(40) ? any(12) : any(17);
			while (used[symbol] || (is_ac && any(2000) && ((symbol & 15) > most || (!(symbol & 15) && symbol != 0 && symbol != 0xF0))));
			used[symbol] = 1;
			c->symbol[c->n] = (uint8_t)symbol;
			c->bits[c->n] = next++;
			c->length[c->n] = l + 1;
		}
	}
}

static void put_code(const struct code *c, uint8_t class)
{
	uint8_t table[17 + 256] = { class };

	memcpy(table + 1, c->count, 16);
	memcpy(table + 17, c->symbol, 256);
	put_segment(0xC4, table, 17 + (size_t)c->n);
}

/* The last: the sum of the differences, which real pictures keep small. */
static void put_block(const struct code *dc, const struct code *ac, int *last, int sparse)
{
	int i = (int)any((unsigned)dc->n), size = dc->symbol[i] & 15, end = -1;
	unsigned value = any(1u << size);
	int difference = size && !(value >> (size - 1)) ? (int)value - (1 << size) + 1 : (int)value;

	if (abs(*last + difference) > 1000 && any(64)) {
		value ^= (1u << size) - 1;
		difference = -difference;
	}
	*last += difference;
	put_symbol(dc, i);
	put_bits(value, size);
	for (int k = 0; k < ac->n; k++)
		end = ac->symbol[k] == 0 ? k : end;
	for (int k = 0; k < 63;) {
		i = sparse && end >= 0 && any(3) == 0 ? end : (int)any((unsigned)ac->n);
		for (int try = 0; try < ac->n && ac->symbol[i] && k + (ac->symbol[i] >> 4) + 1 > 63 && any(5000); try++)
			i = (i + 1) % ac->n;
		put_symbol(ac, i);
		put_bits(stream_bits(&rng), ac->symbol[i] & 15);
		if (!ac->symbol[i])
			break;
		k += (ac->symbol[i] >> 4) + 1;
	}
}

static void make_file(void)
{
	static struct code dc, ac;
	int width = 1 + (int)any(70), height = 1 + (int)any(90), across = (width + 7) / 8, blocks = across * ((height + 7) / 8);
	int restart = (int[]){ 0, across, across, 1 + (int)any(40) }[any(4)], last = 0, sparse = any(2) != 0;
	uint8_t quant[65] = { 0 };

	for (unsigned i = 1, kind = any(3); i < 65; i++)
		quant[i] = (uint8_t)(kind == 0 ? 1 + i / 4 : kind == 1 ? 1 : 1 + any(255));
	do
		make_code(&dc, 1 + (int)any(12), 0, 11);
	while (!dc.n);
	do
		make_code(&ac, 1 + (int)any(60), 1, any(3) ? 4 : 10); /* 16 runs of 4 sizes are 64 */
	while (!ac.n);
	length = byte_under_way = bits_of_it = 0;
	put(0xFF);
	put(0xD8);
	put_segment(0xDB, quant, sizeof quant);
	put_segment(0xC0, (uint8_t[]){ 8, 0, (uint8_t)height, 0, (uint8_t)width, 1, 1, 0x11, 0 }, 9);
	put_code(&dc, 0);
	put_code(&ac, 0x10);
	if (restart)
		put_segment(0xDD, (uint8_t[]){ 0, (uint8_t)restart }, 2);
	put_segment(0xDA, (uint8_t[]){ 1, 1, 0, 0, 63, 0 }, 6);
	for (int b = 0; b < blocks; b++) {
		if (restart && b && b % restart == 0) {
			put_bits(0x7F, (int)(8 - bits_of_it) % 8);
			put(0xFF);
			put(0xD0 + (unsigned)(b / restart - 1) % 8);
			last = 0;
		}
		put_block(&dc, &ac, &last, sparse);
	}
	put_bits(0x7F, (int)(8 - bits_of_it) % 8);
	put(0xFF);
	put(0xD9);
	if (any(4) == 0)
		file[any((unsigned)length)] = (uint8_t)any(256);
}

static void what_the_fast_way_takes_has_the_pixels_that_libjpeg_turbo_gives(void **state)
{
	(void)state;
	static uint8_t expected[1 << 22];
	const char *time_given = getenv("TEST_FUZZ_SECONDS"), *seed_given = getenv("TEST_SEED");
	uint64_t seed = seed_given ? strtoull(seed_given, NULL, 10) : 20261130;
	struct decoder *d = decoder_new();
	tjhandle reference = tjInitDecompress();
	time_t end = time(NULL) + (time_given ? atoi(time_given) : 1);
	int files = 0, taken = 0;
	rng = stream_open(seed, 1);
	for (; files < 2000 || time(NULL) < end; files++) {
		make_file();
		uint8_t *copy = memcpy(malloc(length), file, length); /* so that AddressSanitizer sees a read past the end */
		for (int narrow = 0; narrow < 2; narrow++) {
			struct image image;
			int w, h, sub, space;
			d->narrow = narrow;
			if (!decode_jpeg_gray(d, copy, length, &image))
				continue;
			taken++;
			if (tjDecompressHeader3(reference, copy, length, &w, &h, &sub, &space) ||
			    (assert_true(w == image.width && h == image.height && (size_t)w * (size_t)h <= sizeof expected), 0) ||
			    tjDecompress2(reference, copy, length, expected, w, 0, h, TJPF_GRAY, TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING))
				fail_msg("seed %llu, file %d: taken, but libjpeg-turbo says %s", (unsigned long long)seed, files, tjGetErrorStr2(reference));
			if (memcmp(image.pixels, expected, (size_t)w * (size_t)h) != 0)
				fail_msg("seed %llu, file %d: other pixels than libjpeg-turbo's", (unsigned long long)seed, files);
		}
		free(copy);
	}
	printf("# seed %llu: %d files, taken %d times\n", (unsigned long long)seed, files, taken);
#if defined __x86_64__
	if (__builtin_cpu_supports("avx2"))
		assert_true(taken > files / 5);
#endif
	tjDestroy(reference);
	decoder_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_the_fast_way_takes_has_the_pixels_that_libjpeg_turbo_gives) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
