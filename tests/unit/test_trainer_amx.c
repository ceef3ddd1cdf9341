/* SPDX-License-Identifier: Apache-2.0
 * AMX: emulated tiles against what Intel's manual says of them, then every kernel against fp64, on emulated tiles and as the object
 * code for the processor's. The latter runs on any processor with AVX512_BF16: see amx_trap.h. */
#include <float.h>
#include <math.h>

#include "engine/cpu/amx.h"
#include "engine/cpu/amx_tiles.h"
#include "test.h"
#if defined __x86_64__
#include "amx_trap.h"
#endif

static uint64_t noise_state = 3;

static float noise(void) /* uniform from -1 to 1 */
{
	noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
	return (float)(noise_state >> 40) / 0x1p23f - 1;
}

/* Zeroed; freed by its user. */
static void *room(size_t bytes)
{
	bytes = (bytes + 63) / 64 * 64;
	void *p = aligned_alloc(64, bytes);
	assert_non_null(p);
	return memset(p, 0, bytes);
}

static float widen(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint16_t upper(float x) /* of a number that is bf16 */
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	assert_int_equal(bits & 0xffff, 0);
	return (uint16_t)(bits >> 16);
}

/* ---- tiles ---- */

static void configure(int rows, int pairs, int columns)
{
	struct amx_config config = { .palette = 1 };
	config.rows[0] = config.rows[1] = (uint8_t)rows;
	config.rows[2] = (uint8_t)pairs;
	config.row_bytes[0] = config.row_bytes[2] = (uint16_t)(4 * columns);
	config.row_bytes[1] = (uint16_t)(4 * pairs);
	amx_configure(&config);
}

/* One sum c + a[0] b[0] + a[1] b[1] + ... of tiles of one row and column. */
static float dot(float c, int pairs, const float *a, const float *b)
{
	uint16_t x[32], y[32];
	for (int i = 0; i < 2 * pairs; i++) {
		x[i] = upper(a[i]);
		y[i] = upper(b[i]);
	}
	configure(1, pairs, 1);
	amx_load(0, &c, 64);
	amx_load(1, x, 64);
	amx_load(2, y, 4);
	amx_dot_bf16(0, 1, 2);
	amx_store(0, &c, 64);
	amx_release();
	return c;
}

#define DOT(c, pairs, ...) dot(c, pairs, ((const float[2][2 * (pairs)]){ __VA_ARGS__ })[0], ((const float[2][2 * (pairs)]){ __VA_ARGS__ })[1])

static void a_dot_product_is_the_manual_s(void **state)
{
	(void)state;
	assert_true(DOT(10, 2, { 1, 2, 3, 4 }, { 5, 6, 7, 8 }) == 10 + 5 + 12 + 21 + 32);
	/* Even and odd lanes have sums of their own, which meet before they meet c: 2^24 + 1 + 1 one by one would stay 2^24. */
	assert_true(DOT(0x1p24f, 1, { 1, 1 }, { 1, 1 }) == 0x1p24f + 2);
	assert_true(DOT(0, 2, { 0x1p24f, 1, 0, 1 }, { 1, 1, 0, 1 }) == 0x1p24f + 2);
	/* Each product is added by itself and rounded: 2^24 + 1 is 2^24, to even. */
	assert_true(DOT(0, 3, { 0x1p24f, 0, 1, 0, 1, 0 }, { 1, 0, 1, 0, 1, 0 }) == 0x1p24f);
	assert_true(DOT(0x1.000002p24f, 1, { 1, 0 }, { 1, 0 }) == 0x1.000004p24f);
	/* A product is not rounded before it is added: (1 + 2^-7)² - 1 = 2^-6 + 2^-14. */
	assert_true(DOT(0, 2, { -1, 0, 1 + 0x1p-7f, 0 }, { 1, 0, 1 + 0x1p-7f, 0 }) == 0x1p-6f + 0x1p-14f);
	/* 2^-140, no fp32 number without denormals, is gone before the next product comes; as part of a sum it counts. */
	assert_true(DOT(0, 2, { 0x1p-70f, 0, 0x1p-70f, 0 }, { 0x1p-70f, 0, 0x1p-70f, 0 }) == 0);
	assert_true(DOT(0, 2, { 0x1p-126f, 0, 0x1p-70f, 0 }, { 1, 0, 0x1p-70f, 0 }) == 0x1p-126f + 0x1p-140f);
	/* Denormals in: of a, of b, of c. */
	assert_true(DOT(0, 1, { 0x1p-130f, 0 }, { 0x1p100f, 0 }) == 0);
	assert_true(DOT(0, 1, { 0x1p100f, 0 }, { 0x1p-130f, 0 }) == 0);
	assert_true(DOT(0x1p-130f, 1, { 0, 0 }, { 0, 0 }) == 0);
	assert_true(DOT(-0x1p-126f, 1, { 0x1.8p-126f, 0 }, { 1, 0 }) == 0);
	assert_true(isinf(DOT(0, 1, { 0x1p127f, 0 }, { 2, 0 })));
	assert_true(isnan(DOT(0, 1, { INFINITY, 0 }, { 0, 0 })));
}

/* Shapes other than 16 x 64: what lies outside them is not read, and is zero where a row is written. */
static void a_tile_has_its_configured_shape(void **state)
{
	(void)state;
	uint16_t a[5][6], b[3][2 * 7];
	float c[16][16], expected;
	for (int i = 0; i < 5 * 6; i++)
		a[i / 6][i % 6] = upper((float)(i % 11 - 5));
	for (int i = 0; i < 3 * 14; i++)
		b[i / 14][i % 14] = upper((float)(i % 13 - 6));
	for (int i = 0; i < 256; i++)
		c[i / 16][i % 16] = 1000 + (float)i;
	configure(5, 3, 7);
	amx_load(0, c, sizeof c[0]);
	amx_load(1, a, sizeof a[0]);
	amx_load(2, b, sizeof b[0]);
	amx_dot_bf16(0, 1, 2);
	amx_store(0, c, sizeof c[0]);
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < 16; n++) {
			expected = 1000 + (float)(16 * m + n);
			for (int k = 0; k < 6 && m < 5 && n < 7; k++)
				expected += widen(a[m][k]) * widen(b[k / 2][2 * n + k % 2]);
			assert_true(c[m][n] == expected);
		}
	amx_zero(0);
	amx_store(0, c, sizeof c[0]);
	assert_true(c[4][6] == 0 && c[4][7] != 0 && c[5][0] != 0);
	amx_release();
}

/* ---- kernels ---- */

/* Each test of a kernel finds its table in *state; what the processor cannot run at all is skipped. */
static const struct cpu_amx *tested;

static int set_up(void **state)
{
	tested = *state;
	return 0;
}

static void need_table(void)
{
#if defined __x86_64__
	const char *why;
	if (tested == &cpu_amx_emulated || cpu_amx_best(&why))
		return;
	if (__builtin_cpu_supports("avx512bf16")) {
		trap_amx(); /* here, as cmocka takes the signal when a test begins */
		return;
	}
#endif
	if (tested != &cpu_amx_emulated)
		skip_because("the object code for AMX needs AVX512_BF16");
}

/* bf16 of x in fp64: to nearest even by the definition. */
static double rounded(double x)
{
	if (fabs(x) < FLT_MIN)
		return 0;
	int exponent;
	frexp(x, &exponent);
	return ldexp(nearbyint(ldexp(x, 8 - exponent)), exponent - 8);
}

/* Packed [blocks][pixels][16] of `channels`, zeros behind them. */
static float *packed_noise(int blocks, int pixels, int channels)
{
	float *x = room((size_t)blocks * (size_t)pixels * LANES * sizeof *x);
	for (int k = 0; k < blocks; k++)
		for (int p = 0; p < pixels; p++)
			for (int i = 0; i < LANES; i++)
				x[(k * pixels + p) * LANES + i] = k * LANES + i < channels ? noise() : 0;
	return x;
}

/* A copy with every value rounded to bf16. */
static float *rounded_copy(const float *x, int count)
{
	float *y = room((size_t)count * sizeof *y);
	for (int i = 0; i < count; i++)
		y[i] = (float)rounded(x[i]);
	return y;
}

static double packed_at(const float *x, int pixels, int p, int channel)
{
	return x[(channel / LANES * pixels + p) * LANES + channel % LANES];
}

static const int channel_counts[] = { 3, 16, 31, 33, 48, 130 };

static void packed_maps_become_bf16(void **state)
{
	(void)state;
	need_table();
	for (size_t i = 0; i < sizeof channel_counts / sizeof channel_counts[0]; i++)
		for (int pixels = 1; pixels <= 40; pixels++) {
			int channels = channel_counts[i], blocks = round_up(channels, LANES) / LANES, stride = round_up(pixels, AMX_DEPTH) + AMX_DEPTH;
			float *x = packed_noise(blocks + (blocks & 1), pixels, channels), *narrow = packed_noise(blocks + (blocks & 1), pixels, channels);
			uint16_t *transposed = room((size_t)LANES * (size_t)stride * sizeof *transposed), *pairs = room((size_t)stride * LANES * sizeof *pairs);
			uint16_t *row = (void *)narrow;
			tested->narrow(pixels, blocks, x, pixels * LANES, narrow, pixels * LANES);
			for (int p = 0; p < pixels; p++)
				for (int c = 0; c < round_up(blocks, 2) * LANES; c++)
					assert_true(widen(row[(c / AMX_DEPTH * pixels + p) * AMX_DEPTH + c % AMX_DEPTH]) == rounded(packed_at(x, pixels, p, c)));
			for (int k = 0; k < blocks; k++) {
				memset(transposed, 0xff, (size_t)LANES * (size_t)stride * sizeof *transposed);
				memset(pairs, 0xff, (size_t)stride * LANES * sizeof *pairs);
				tested->transpose(pixels, x + k * pixels * LANES, transposed, stride);
				tested->pair(pixels, x + k * pixels * LANES, pairs);
				for (int c = 0; c < LANES; c++)
					for (int p = 0; p < stride; p++) {
						double expected = p < pixels ? rounded(packed_at(x, pixels, p, k * LANES + c)) : 0;
						assert_true(widen(transposed[c * stride + p]) == expected);
						if (p < round_up(pixels, AMX_DEPTH))
							assert_true(widen(pairs[p / 2 * 2 * LANES + 2 * c + p % 2]) == expected);
						else
							assert_int_equal(pairs[p / 2 * 2 * LANES + 2 * c + p % 2], 0xffff);
					}
			}
			/* In place: a block is read before what it becomes is written. */
			tested->narrow(pixels, blocks, x, pixels * LANES, x, pixels * LANES);
			assert_memory_equal(x, narrow, (size_t)(round_up(blocks, 2) / 2) * (size_t)pixels * LANES * sizeof *x);
			free(x);
			free(narrow);
			free(transposed);
			free(pairs);
		}
}

static void rounding_is_the_processor_s(void **state)
{
	(void)state;
	need_table();
	static const uint32_t from[] = { 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0xbf818000, 0x7f7fffff, 0x7f800000, 0x00000001, 0x80400000, 0x007fffff,
		                         0x00800000, 0x80000000, 0x7f800001, 0x7fc00000, 0xffffffff, 0x3f800000 };
	static const uint16_t to[] = { 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf82, 0x7f80, 0x7f80, 0, 0x8000, 0, 0x0080, 0x8000, 0x7fc0, 0x7fc0, 0xffff, 0x3f80 };
	float x[LANES], narrow[LANES];
	uint16_t pairs[AMX_DEPTH * LANES];
	memcpy(x, from, sizeof x);
	tested->narrow(1, 1, x, LANES, narrow, LANES);
	assert_memory_equal(narrow, to, sizeof to);
	tested->pair(1, x, pairs);
	for (int i = 0; i < LANES; i++)
		assert_int_equal(pairs[2 * i], to[i]);
}

/* What a sum of `count` products of bf16 operands may be off by: each operand rounds by 2^-8 at most, the sums by 2^-24 of the magnitudes
 * each time. */
static double bound(double magnitudes, int count)
{
	return magnitudes * (0x1.01p-7 + count * 0x1p-24) + FLT_MIN;
}

static void check_multiply(int pixels, int channels, int taps, int width)
{
	static const ptrdiff_t shift[9] = { 0, 1, 2, 7, 8, 9, 14, 15, 16 };
	int blocks = round_up(channels, LANES) / LANES, deep = (blocks + 1) / 2, rows = round_up(pixels, AMX_ROWS), all = rows + 16, stride = PANEL + LANES;
	float *x = packed_noise(2 * deep, all, channels), *w = packed_noise(1, taps * channels, 16), *w2 = packed_noise(1, taps * channels, 16);
	float *narrow = packed_noise(deep, all, 0), *c = packed_noise(rows, stride / LANES, 0), *tiles = room((size_t)(taps * deep * width / LANES) * AMX_TILE * 2);
	float *xr = rounded_copy(x, 2 * deep * all * LANES), *wr = rounded_copy(w, taps * channels * LANES), *wr2 = rounded_copy(w2, taps * channels * LANES);
	ptrdiff_t tap[9];
	tested->narrow(all, blocks, x, all * LANES, narrow, all * LANES);
	for (int t = 0; t < taps; t++)
		tap[t] = shift[t] * LANES;
	for (int t = 0; t < taps; t++)
		for (int k = 0; k < deep; k++)
			for (int j = 0; j < width / LANES; j++) {
				int used = channels - k * AMX_DEPTH < AMX_DEPTH ? channels - k * AMX_DEPTH : AMX_DEPTH;
				tested->pair(used, (j ? w2 : w) + (t * channels + k * AMX_DEPTH) * LANES, (uint16_t *)tiles + ((t * deep + k) * width / LANES + j) * AMX_TILE);
			}
	for (int i = 0; i < rows * stride; i++)
		c[i] = 77;
	tested->begin();
	for (int from = 0; from < rows; from += 2 * AMX_ROWS)
		tested->multiply(rows - from > AMX_ROWS ? 2 * AMX_ROWS : AMX_ROWS, width, taps, tap, deep, all * LANES, narrow + from * LANES, tiles, c + from * stride, stride);
	tested->end();
	for (int p = 0; p < rows; p++) {
		for (int j = 0; j < width; j++) {
			double sum = 0, exact = 0, magnitudes = 0;
			for (int t = 0; t < taps; t++)
				for (int i = 0; i < channels; i++) {
					double a = packed_at(x, all, p + (int)shift[t], i), b = (j < LANES ? w : w2)[(t * channels + i) * LANES + j % LANES];
					sum += packed_at(xr, all, p + (int)shift[t], i) * (j < LANES ? wr : wr2)[(t * channels + i) * LANES + j % LANES];
					exact += a * b;
					magnitudes += fabs(a * b);
				}
			assert_true(fabs(c[p * stride + j] - exact) <= bound(magnitudes, taps * channels));
			assert_true(fabs(c[p * stride + j] - sum) <= magnitudes * taps * channels * 0x1p-24);
		}
		for (int j = width; j < stride; j++)
			assert_true(c[p * stride + j] == 77);
	}
	float *all_of_them[] = { x, w, w2, xr, wr, wr2, narrow, c, tiles };
	for (size_t i = 0; i < sizeof all_of_them / sizeof all_of_them[0]; i++)
		free(all_of_them[i]);
}

static void products_are_those_of_fp64(void **state)
{
	(void)state;
	need_table();
	for (size_t i = 0; i < sizeof channel_counts / sizeof channel_counts[0]; i++)
		for (int pixels = 1; pixels <= 40; pixels += 1 + pixels % 3)
			for (int taps = 1; taps <= 9; taps += 8)
				for (int width = LANES; width <= PANEL; width += LANES)
					check_multiply(pixels, channel_counts[i], taps, width);
}

static void check_outer(int pixels, int rows, int width, int shift)
{
	int all = pixels + shift, stride = round_up(all + AMX_DEPTH - 1, AMX_DEPTH), plane = round_up(pixels, AMX_DEPTH) * LANES, c_stride = PANEL + LANES;
	float *x = packed_noise(2, all, rows), *g = packed_noise(2, pixels, width), *c = packed_noise(PANEL, c_stride / LANES, LANES);
	float *xr = rounded_copy(x, 2 * all * LANES), *gr = rounded_copy(g, 2 * pixels * LANES), *before = room((size_t)PANEL * (size_t)c_stride * sizeof *c);
	uint16_t *a = room((size_t)(PANEL * stride) * sizeof *a), *b = room((size_t)(2 * plane) * sizeof *b);
	memcpy(before, c, (size_t)PANEL * (size_t)c_stride * sizeof *c);
	for (int k = 0; k < 2; k++) {
		tested->transpose(all, x + k * all * LANES, a + k * LANES * stride, stride);
		tested->pair(pixels, g + k * pixels * LANES, b + k * plane);
	}
	tested->begin();
	tested->outer(pixels, rows, width, a + shift, stride, b, plane, c, c_stride);
	tested->end();
	for (int i = 0; i < PANEL; i++)
		for (int j = 0; j < c_stride; j++) {
			double sum = before[i * c_stride + j], exact = sum, magnitudes = fabs(sum);
			for (int p = 0; p < pixels && i < rows && j < width; p++) {
				double u = packed_at(x, all, p + shift, i), v = packed_at(g, pixels, p, j);
				sum += packed_at(xr, all, p + shift, i) * packed_at(gr, pixels, p, j);
				exact += u * v;
				magnitudes += fabs(u * v);
			}
			assert_true(fabs(c[i * c_stride + j] - exact) <= bound(magnitudes, pixels + 1));
			assert_true(fabs(c[i * c_stride + j] - sum) <= magnitudes * (pixels + 1) * 0x1p-24);
		}
	free(x);
	free(g);
	free(c);
	free(before);
	free(xr);
	free(gr);
	free(a);
	free(b);
}

static void products_over_pixels_are_those_of_fp64(void **state)
{
	(void)state;
	need_table();
	for (int pixels = 1; pixels <= 40; pixels++)
		for (int rows = LANES; rows <= PANEL; rows += LANES)
			for (int width = LANES; width <= PANEL; width += LANES)
				for (int shift = 0; shift < 3; shift++)
					check_outer(pixels, rows, width, shift);
	check_outer(200, PANEL, PANEL, 5);
}

/* ---- which kernels ---- */

static void amx_is_left_alone_with_a_reason(void **state)
{
	(void)state;
	const char *why;
	assert_int_equal(cpu_amx_usable(&(struct amx_facts){ 1, 1, 1, 1 }, &why), 1);
	assert_null(why);
	assert_int_equal(cpu_amx_usable(&(struct amx_facts){ 0, 0, 0, 0 }, &why), 0);
	assert_null(why);
	assert_int_equal(cpu_amx_usable(&(struct amx_facts){ 1, 0, 0, 0 }, &why), 0);
	assert_non_null(strstr(why, "system"));
	assert_int_equal(cpu_amx_usable(&(struct amx_facts){ 1, 1, 0, 0 }, &why), 0);
	assert_non_null(strstr(why, "permission"));
	assert_int_equal(cpu_amx_usable(&(struct amx_facts){ 1, 1, 1, 0 }, &why), 0);
	assert_non_null(strstr(why, "wrong"));
}

static void wrong_sum(int rows, int width, int taps, const ptrdiff_t *tap, int blocks, ptrdiff_t plane, const float *a, const float *b, float *c, ptrdiff_t c_stride)
{
	cpu_amx_emulated.multiply(rows, width, taps, tap, blocks, plane, a, b, c, c_stride);
	c[17 * c_stride + 20] += 0.01f;
}

static void wrong_products_are_seen(void **state)
{
	(void)state;
	need_table();
	assert_int_equal(cpu_amx_agrees(tested), 1);
	struct cpu_amx wrong = cpu_amx_emulated;
	wrong.multiply = wrong_sum;
	assert_int_equal(cpu_amx_agrees(&wrong), 0);
}

/* What this machine says. With AMX, the kernels above ran on it; without, each instruction was seen by the trap. */
static void the_processor_s_instructions_are_there(void **state)
{
	(void)state;
	need_table();
	const char *why;
	const struct cpu_amx *amx = cpu_amx_best(&why);
	if (amx || why) {
		print_message("# this processor has AMX%s%s\n", why ? ", which is not used: " : "", why ? why : "");
		return;
	}
	print_message("# this processor has no AMX: its instructions were trapped and emulated\n");
#if defined __x86_64__
	static const char *const names[N_TRAPS] = { "ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", "tdpbf16ps" };
	for (int i = 0; i < N_TRAPS; i++) {
		print_message("# %s: %lu\n", names[i], atomic_load(&trapped[i]));
		assert_true(atomic_load(&trapped[i]) > 0);
	}
#endif
}

#if defined __x86_64__
#define PROCESSOR (void *)&cpu_amx_processor
#else
#define PROCESSOR NULL
#endif
#define ON_EMULATED(test) { #test "_on_emulated_tiles", test, set_up, NULL, (void *)&cpu_amx_emulated }
#define ON_PROCESSOR(test) { #test "_in_code_for_the_processor", test, set_up, NULL, PROCESSOR }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dot_product_is_the_manual_s),
		cmocka_unit_test(a_tile_has_its_configured_shape),
		cmocka_unit_test(amx_is_left_alone_with_a_reason),
		ON_EMULATED(rounding_is_the_processor_s),
		ON_EMULATED(packed_maps_become_bf16),
		ON_EMULATED(products_are_those_of_fp64),
		ON_EMULATED(products_over_pixels_are_those_of_fp64),
		ON_EMULATED(wrong_products_are_seen),
		ON_PROCESSOR(rounding_is_the_processor_s),
		ON_PROCESSOR(packed_maps_become_bf16),
		ON_PROCESSOR(products_are_those_of_fp64),
		ON_PROCESSOR(products_over_pixels_are_those_of_fp64),
		ON_PROCESSOR(wrong_products_are_seen),
		ON_PROCESSOR(the_processor_s_instructions_are_there),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
