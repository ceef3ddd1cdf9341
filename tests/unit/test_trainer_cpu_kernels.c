/* SPDX-License-Identifier: Apache-2.0
 * The tables of kernels against each other, on pixels and channels that fill no vector: what AVX2 and AVX-512 compute is the same to the bit, so
 * that ranks on both stay one model, and plain C differs by rounding. Nothing is written that is not part of a result. */
#include <math.h>

#include "engine/cpu/cpu.h"
#include "test.h"

enum { PIXELS = 7, WIDE = 14, STRIDE = 72, PLANE = WIDE * WIDE * LANES, ROOM = 1 << 15, N_OUT = 6 };

static const int channel_counts[] = { 1, 7, 8, 9, 16, 19, 33, 48, 65 };

/* What a kernel writes to, filled with what nobody computes. */
struct result {
	float out[N_OUT][ROOM];
};

static float input[3][ROOM], bn_values[4][STRIDE + LANES];
static uint16_t narrow[2][ROOM];
static uint8_t taps[ROOM];
static uint64_t noise_state;

static float noise(void)
{
	noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(noise_state >> 40) / 0x1p23 - 0.8);
}

static int make_input(void **state)
{
	(void)state;
	noise_state = 7;
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < ROOM; i++)
			input[k][i] = noise();
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < ROOM; i++) {
			uint32_t bits;
			memcpy(&bits, &input[k][i], sizeof bits);
			narrow[k][i] = (uint16_t)(bits >> 16);
		}
	for (int i = 0; i < ROOM; i++)
		taps[i] = (uint8_t)((i * 7 + i / 11) % 10 == 9 ? 255 : (i * 7 + i / 11) % 10);
	for (int k = 0; k < 4; k++)
		for (int i = 0; i < STRIDE + LANES; i++)
			bn_values[k][i] = noise();
	return 0;
}

/* Each operation on one table, its results in r. `s` is how activations are stored; x and y are two of them. */
struct call {
	const struct cpu_kernels *k;
	enum storage s;
	const void *x, *y;
	int channels, variant;
	struct bn_vectors bn;
	struct result *r;
};

static void call_multiply(const struct call *c)
{
	static const ptrdiff_t tap[9] = { 0, 16, 32, 3 * 16, 4 * 16, 5 * 16, 6 * 16, 7 * 16, 8 * 16 };
	for (int rows = 1; rows <= TILE_ROWS; rows++)
		c->k->multiply(rows, c->variant & 1 ? PANEL : LANES, c->variant & 2 ? 9 : 1, tap, (c->channels + LANES - 1) / LANES, PLANE / 2, input[0], input[1],
		               c->r->out[0] + rows * TILE_ROWS * STRIDE, STRIDE);
}

static void call_outer(const struct call *c)
{
	for (int i = 0; i < LANES * STRIDE; i++)
		c->r->out[0][i] = input[2][i];
	c->k->outer(c->channels, c->variant & 1 ? PANEL : LANES, input[0], input[1], LANES, PLANE, c->r->out[0], STRIDE);
}

static void call_pack(const struct call *c) { c->k->pack(PIXELS, c->channels, input[0], STRIDE, c->r->out[0], PLANE); }

static void call_updates(const struct call *c)
{
	const struct adam_step step = { .beta1 = 0.9f, .beta2 = 0.999f, .decay = 1e-5f, .rate = 1.1e-4f, .correction = 3.3f, .epsilon = 1e-8f };
	size_t count = (size_t)round_up(c->channels, LANES);
	for (size_t i = 0; i < count; i++) {
		c->r->out[0][i] = c->r->out[1][i] = input[1][i];
		c->r->out[2][i] = c->r->out[3][i] = input[2][i] * input[2][i];
		c->r->out[4][i] = input[2][i];
	}
	c->k->adam(count, input[0], c->r->out[0], c->r->out[2], c->r->out[3], &step);
	c->k->sgd(count, input[0], c->r->out[1], c->r->out[4], 0.01f, 0.9f, 1e-3f);
}

static void call_pack_bn(const struct call *c) { c->k->at[c->s].pack_bn(PIXELS + 3, c->channels, c->x, STRIDE, &c->bn, c->r->out[0], PLANE); }

static void call_pack_bn_pool(const struct call *c)
{
	c->k->at[c->s].pack_bn_pool(PIXELS, c->channels, c->x, STRIDE, WIDE * STRIDE, &c->bn, c->r->out[0], PLANE);
}

static void call_finish(const struct call *c)
{
	struct moments m = { c->r->out[1], c->r->out[2], c->r->out[3] };
	for (int k = 1; !(c->variant & 1) && k < 4; k++)
		memcpy(c->r->out[k], input[k - 1], (size_t)c->channels * sizeof(float));
	c->k->at[c->s].finish(PIXELS, c->channels, input[0], STRIDE, c->r->out[0], STRIDE, c->variant & 2 ? NULL : &m, c->variant & 1);
}

static void call_bn_backward(const struct call *c)
{
	struct grads to = { c->r->out[0], c->variant & 1 ? STRIDE : LANES, c->variant & 1 ? LANES : PLANE };
	for (int p = 0; p < PIXELS; p++)
		for (int i = 0; i < c->channels; i++)
			to.data[i / LANES * to.plane + p * to.stride + i % LANES] = input[2][p * STRIDE + i];
	if (!(c->variant & 1)) /* packed: channels up to a multiple of 16 are read and written */
		for (int p = 0; p < PIXELS; p++)
			for (int i = c->channels; i < round_up(c->channels, LANES); i++)
				to.data[i / LANES * to.plane + p * to.stride + i % LANES] = 0;
	memcpy(c->r->out[1], input[1], (size_t)c->channels * sizeof(float));
	memcpy(c->r->out[2], input[2], (size_t)c->channels * sizeof(float));
	c->k->at[c->s].bn_backward(PIXELS, c->channels, input[1], STRIDE, c->x, STRIDE, &c->bn, c->variant & 2 ? bn_values[0] : NULL, c->variant >> 1 & 1, to,
	                           c->r->out[1], c->r->out[2], c->variant & 1 ? c->r->out[3] : NULL, PLANE);
}

static void call_bn_backward_pool(const struct call *c)
{
	memcpy(c->r->out[1], input[1], (size_t)c->channels * sizeof(float));
	memcpy(c->r->out[2], input[2], (size_t)c->channels * sizeof(float));
	c->k->at[c->s].bn_backward_pool(PIXELS, c->channels, input[1], STRIDE, c->x, STRIDE, WIDE * STRIDE, &c->bn, bn_values[0], c->r->out[0], STRIDE, WIDE * STRIDE,
	                                c->r->out[1], c->r->out[2], c->r->out[3], PLANE);
}

static void call_correct(const struct call *c)
{
	struct grads from = { input[1], STRIDE, LANES }, to = { c->r->out[0], c->variant & 1 ? STRIDE : LANES, c->variant & 1 ? LANES : PLANE };
	c->k->at[c->s].correct(PIXELS, c->channels, from, c->x, STRIDE, bn_values[0], bn_values[1], bn_values[2], to);
}

static void call_bn_sums(const struct call *c)
{
	memcpy(c->r->out[1], input[1], (size_t)c->channels * sizeof(float));
	memcpy(c->r->out[2], input[2], (size_t)c->channels * sizeof(float));
	c->k->at[c->s].bn_sums(PIXELS, c->channels, input[1], STRIDE, c->x, STRIDE, &c->bn, c->r->out[1], c->r->out[2]);
}

static void call_join(const struct call *c)
{
	struct bn_vectors other = { bn_values[2], bn_values[3], bn_values[0], bn_values[1], NULL };
	c->k->at[c->s].join(PIXELS, c->channels, c->x, STRIDE, &c->bn, c->y, STRIDE, &other, c->r->out[0], STRIDE);
}

static void call_average(const struct call *c) { c->k->at[c->s].average(PIXELS * PIXELS, c->channels, c->x, STRIDE, &c->bn, c->r->out[0]); }

static void call_maxpool(const struct call *c)
{
	for (int row = 0; row < 2; row++)
		c->k->at[c->s].maxpool(WIDE + c->variant % 2, row * 3, c->channels, c->x, STRIDE, &c->bn, c->r->out[row], STRIDE, (uint8_t *)c->r->out[2 + row]);
}

static void call_unpool(const struct call *c)
{
	memcpy(c->r->out[1], input[1], (size_t)c->channels * sizeof(float));
	memcpy(c->r->out[2], input[2], (size_t)c->channels * sizeof(float));
	c->k->at[c->s].unpool(WIDE + c->variant % 2, 3, c->channels, input[1], STRIDE, taps, c->x, STRIDE, &c->bn, c->r->out[0], STRIDE, c->r->out[1], c->r->out[2]);
}

static void call_load(const struct call *c) { c->k->at[c->s].load((size_t)c->channels, c->x, c->r->out[0]); }

static void call_add(const struct call *c)
{
	memcpy(c->r->out[0], c->y, (size_t)c->channels * storage_size(c->s));
	c->k->at[c->s].add((size_t)c->channels, c->x, c->r->out[0]);
}

/* stored: the first result has the type of activations. */
static const struct operation {
	const char *name;
	void (*call)(const struct call *c);
	int stored;
} operations[] = {
	{ "multiply", call_multiply, 0 },       { "outer", call_outer, 0 },
	{ "pack", call_pack, 0 },               { "adam and sgd", call_updates, 0 },
	{ "pack_bn", call_pack_bn, 0 },         { "pack_bn_pool", call_pack_bn_pool, 0 },
	{ "finish", call_finish, 1 },           { "bn_backward", call_bn_backward, 0 },
	{ "bn_backward_pool", call_bn_backward_pool, 0 },
	{ "correct", call_correct, 0 },         { "bn_sums", call_bn_sums, 0 },
	{ "join", call_join, 1 },               { "average", call_average, 0 },
	{ "maxpool", call_maxpool, 0 },         { "unpool", call_unpool, 0 },
	{ "load", call_load, 0 },               { "add", call_add, 1 },
};
enum { N_OPERATIONS = sizeof operations / sizeof operations[0] };

static void run(const struct operation *o, const struct cpu_kernels *k, enum storage s, int channels, int variant, struct result *r)
{
	const struct call call = { k, s, s == STORE_FP32 ? (const void *)input[0] : narrow[0], s == STORE_FP32 ? (const void *)input[1] : narrow[1], channels, variant,
		                   { bn_values[0], bn_values[1], bn_values[2], bn_values[3], bn_values[0] }, r };
	memset(r, 0x5a, sizeof *r);
	o->call(&call);
}

static void check_equal(const struct operation *o, const char *what, const struct result *a, const struct result *b)
{
	for (int k = 0; k < N_OUT; k++)
		for (int i = 0; i < ROOM; i++)
			if (memcmp(&a->out[k][i], &b->out[k][i], sizeof(float)) != 0)
				fail_msg("%s, %s: result %d, value %d: %.9g and %.9g", o->name, what, k, i, (double)a->out[k][i], (double)b->out[k][i]);
}

/* One of the two bf16 numbers in the bits of a float. */
static float half_of(float pair, int upper)
{
	uint32_t bits;
	memcpy(&bits, &pair, sizeof bits);
	bits = upper ? bits & 0xffff0000u : bits << 16;
	memcpy(&pair, &bits, sizeof pair);
	return pair;
}

static int near(float x, float y, float limit)
{
	return memcmp(&x, &y, sizeof x) == 0 || fabsf(x - y) <= limit * fmaxf(1, fabsf(y));
}

/* A few roundings of fp32 apart at most, or one of bf16. */
static void check_near(const struct operation *o, const char *what, enum storage s, const struct result *a, const struct result *b)
{
	for (int k = 0; k < N_OUT; k++)
		for (int i = 0; i < ROOM; i++) {
			float x = a->out[k][i], y = b->out[k][i];
			int ok = o->stored && !k && s == STORE_BF16 ? near(half_of(x, 0), half_of(y, 0), 8e-3f) && near(half_of(x, 1), half_of(y, 1), 8e-3f) : near(x, y, 2e-5f);
			if (!ok)
				fail_msg("%s, %s: result %d, value %d: %.9g and %.9g", o->name, what, k, i, (double)x, (double)y);
		}
}

static int tables(const struct cpu_kernels *found[2])
{
	int n = 0;
#if defined __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		found[n++] = &cpu_kernels_avx2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		found[n++] = &cpu_kernels_avx512;
#elif defined __aarch64__
	found[n++] = &cpu_kernels_neon;
#endif
	return n;
}

static void vectors_compute_what_plain_c_does(void **state)
{
	(void)state;
	static struct result plain, vectors[2];
	const struct cpu_kernels *table[2];
	int n = tables(table);
	if (n == 0)
		skip_because("this processor has no other kernels than those in plain C");
	for (int o = 0; o < N_OPERATIONS; o++)
		for (enum storage s = 0; s < N_STORAGE; s++)
			for (size_t c = 0; c < sizeof channel_counts / sizeof channel_counts[0]; c++)
				for (int variant = 0; variant < 4; variant++) {
					char what[64];
					run(&operations[o], &cpu_kernels_portable, s, channel_counts[c], variant, &plain);
					for (int k = 0; k < n; k++) {
						snprintf(what, sizeof what, "%s, %s, %d channels, variant %d", table[k]->name, s == STORE_FP32 ? "fp32" : "bf16", channel_counts[c], variant);
						run(&operations[o], table[k], s, channel_counts[c], variant, &vectors[k]);
						check_near(&operations[o], what, s, &vectors[k], &plain);
					}
					if (n > 1)
						check_equal(&operations[o], what, &vectors[0], &vectors[1]);
				}
	if (n < 2)
		printf("# left out: equal bits of AVX2 and AVX-512: the processor has %s alone\n", table[0]->name);
}

/* Sums are kept for 512 channels at a time: more of them are what their slices are. */
static void maps_of_many_channels_are_done_like_their_slices(void **state)
{
	(void)state;
	enum { CHANNELS = 2 * 512 + 7, FEW = 3, SPACE = 1100 };
	static struct result whole, slices;
	const struct cpu_kernels *table[3] = { &cpu_kernels_portable };
	int n = 1 + tables(table + 1);
	ptrdiff_t plane = FEW * LANES;
	const float *factor = input[2] + 4 * SPACE;
	for (int k = 0; k < n; k++)
		for (enum storage s = 0; s < N_STORAGE; s++) {
			memcpy(whole.out[0], input[2], sizeof whole.out[0]);
			memset(whole.out[1], 0, 3 * sizeof whole.out[1]);
			memcpy(&slices, &whole, sizeof whole);
			for (int c = 0; c < CHANNELS; c += LANES) {
				int count = CHANNELS - c < LANES ? CHANNELS - c : LANES;
				float *bn = input[2] + c;
				const void *x = s == STORE_FP32 ? (const void *)(input[0] + c) : narrow[0] + c;
				table[k]->at[s].bn_backward(FEW, count, input[1] + c, CHANNELS, x, CHANNELS, &(struct bn_vectors){ bn, bn + SPACE, bn + 2 * SPACE, bn + 3 * SPACE, NULL },
				                            factor + c, 1, (struct grads){ slices.out[0] + c, CHANNELS, LANES }, slices.out[1] + c, slices.out[2] + c,
				                            slices.out[3] + c / LANES * plane, plane);
			}
			float *bn = input[2];
			table[k]->at[s].bn_backward(FEW, CHANNELS, input[1], CHANNELS, s == STORE_FP32 ? (const void *)input[0] : narrow[0], CHANNELS,
			                            &(struct bn_vectors){ bn, bn + SPACE, bn + 2 * SPACE, bn + 3 * SPACE, NULL }, factor, 1,
			                            (struct grads){ whole.out[0], CHANNELS, LANES }, whole.out[1], whole.out[2], whole.out[3], plane);
			check_equal(&(struct operation){ .name = "bn_backward" }, table[k]->name, &whole, &slices);
		}
}

/* Stored alone, so that nothing but the rounding can differ: half of these numbers lie between two of bf16. */
static void bf16_is_rounded_to_even(void **state)
{
	(void)state;
	static struct result plain, vectors;
	const struct cpu_kernels *table[2];
	int n = tables(table);
	if (n == 0)
		skip_because("this processor has no other kernels than those in plain C");
	for (uint32_t i = 0; i < PIXELS * STRIDE; i++) {
		uint32_t bits = (uint32_t)(0x3f80 + i) << 16 | (i % 4 < 2 ? 0x8000 : i * 97 & 0xffff);
		memcpy(&input[0][i], &bits, sizeof bits);
	}
	for (int o = 0; o < N_OPERATIONS; o++)
		if (operations[o].call == call_finish) {
			run(&operations[o], &cpu_kernels_portable, STORE_BF16, 65, 2, &plain);
			for (int k = 0; k < n; k++) {
				run(&operations[o], table[k], STORE_BF16, 65, 2, &vectors);
				check_equal(&operations[o], table[k]->name, &vectors, &plain);
			}
		}
	make_input(NULL);
}

/* The largest value of a window, and of all windows of a row, is NaN where one of its values is. */
static void a_value_that_is_not_a_number_stays_one(void **state)
{
	(void)state;
	static struct result r;
	const struct cpu_kernels *table[3] = { &cpu_kernels_portable };
	int n = 1 + tables(table + 1);
	float kept = input[0][0];
	input[0][0] = NAN;
	for (int k = 0; k < n; k++) {
		static const char *const names[] = { "pack_bn", "pack_bn_pool", "finish", "join", "average", "maxpool", "load", "add", "multiply", "outer" };
		for (int o = 0; o < N_OPERATIONS; o++)
			for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
				if (!strcmp(operations[o].name, names[i])) {
					run(&operations[o], table[k], STORE_FP32, 16, 1, &r);
					int seen = 0;
					for (int j = 0; j < ROOM; j++)
						seen |= isnan(r.out[0][j]);
					if (!seen)
						fail_msg("%s in %s: NaN became a number", names[i], table[k]->name);
				}
	}
	input[0][0] = kept;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_compute_what_plain_c_does),
		cmocka_unit_test(maps_of_many_channels_are_done_like_their_slices),
		cmocka_unit_test(bf16_is_rounded_to_even),
		cmocka_unit_test(a_value_that_is_not_a_number_stays_one),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, make_input, NULL);
}
