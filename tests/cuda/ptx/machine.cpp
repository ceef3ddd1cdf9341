/* SPDX-License-Identifier: Apache-2.0
 * Carrying PTX out: blocks one after the other in random order, a block's warps in turns of random length, a warp's lanes together
 * as long as they go the same way. */
#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <unordered_map>

#include "memory.h"
#include "number.h"
#include "profile.h"
#include "ptx.h"
#include "wgmma.h"

namespace ptx {

struct limits machine;
uint64_t machine_launches, machine_instructions;

typedef uint64_t lanes64[WARP];
typedef std::array<uint32_t, WARP> lanes32;

/* An asynchronous copy on its way. */
struct coming {
	uint64_t to;
	uint8_t data[16];
	int lane, group;
};

/* Lanes that are elsewhere than the warp at the moment. */
struct group {
	int at;
	uint32_t lanes;
};

enum { BARRIERS = 16 /* of a block */ };

/* A warp's 16 rows of a product of its warpgroup: what their sums will be, and what is read for them until then. */
struct product {
	const std::vector<int> *rows;
	std::vector<lanes32> sums;
	std::vector<uint64_t> reads; /* addresses of 16 bytes */
	int group;
	const int *registers;        /* the rows of its left matrix, or NULL */
	uint32_t left[4][WARP];      /* what was there */
};

struct warp {
	const kernel *k;
	const uint8_t *params;
	unsigned first_thread, block;
	uint16_t step;         /* from 1 on: the next with each barrier */
	int at;                /* the next instruction of … */
	uint32_t lanes, alive; /* … these, of all that have not ended */
	uint32_t waited;       /* for the kernels before */
	int waits;             /* at this barrier, 0: the block's; or -1 */
	unsigned waits_with;   /* so many threads, at another */
	std::vector<group> elsewhere;
	std::vector<lanes64> rows;
	std::vector<uint32_t> predicates;
	std::vector<uint8_t> local; /* [WARP][local_bytes] */
	std::vector<coming> copies;
	int groups[WARP];
	std::vector<product> products;
	int product_groups;
	bool may_multiply; /* wgmma.fence since sums were waited for */
	std::unordered_map<int, std::array<uint64_t, WARP>> fenced; /* rows that products after it use, as they were */

	uint64_t *row(int r)
	{
		return rows[(size_t)r];
	}
	moment now(int lane) const
	{
		return { (uint32_t)machine_launches, block, (uint16_t)(first_thread + (unsigned)lane), step };
	}
};

namespace {

uint32_t settled; /* of the launch that runs */
uint64_t random_state = 88172645463325252ull;

uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 32) * n >> 32);
}

[[noreturn]] void fault(const warp &w, const instruction &i, int lane, const char *what)
{
	int status;
	char *name = abi::__cxa_demangle(w.k->name.c_str(), nullptr, nullptr, &status);
	auto file = w.k->files->find(i.file);
	fprintf(stderr, "%s: block %u thread %u: %s\n  at %s:%d: %s\n", name ? name : w.k->name.c_str(), w.block, w.first_thread + (unsigned)lane, what,
	        file == w.k->files->end() ? "?" : file->second.c_str(), i.line, i.text);
	abort();
}

/* ---- values ---- */

template <class T> T value(uint64_t bits)
{
	T x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

template <class T> uint64_t bits(T x)
{
	uint64_t b = 0;
	memcpy(&b, &x, sizeof x);
	return b;
}

/* f(lane) of these lanes: mostly all, a loop that the compiler makes vectors of. */
template <class F> inline void each(uint32_t lanes, F f)
{
	if (lanes == 0xffffffff) {
		for (int l = 0; l < WARP; l++)
			f(l);
		return;
	}
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1)
			f(l);
}

template <class D, class T, class F> void unary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]))); });
}

template <class D, class T, class F> void binary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]), value<T>(b[l]))); });
}

template <class D, class T, class F> void ternary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]), *c = w.row(i.row[3]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]), value<T>(b[l]), value<T>(c[l]))); });
}

void keep_predicate(warp &w, int p, uint32_t lanes, uint32_t value)
{
	uint32_t &old = w.predicates[(size_t)p];
	old = (old & ~lanes) | (value & lanes);
}

template <class T, class F> void compare(warp &w, const instruction &i, uint32_t lanes, F f)
{
	const uint64_t *a = w.row(i.row[0]), *b = w.row(i.row[1]);
	uint32_t p = 0;
	each(lanes, [&](int l) { p |= (uint32_t)(f(value<T>(a[l]), value<T>(b[l])) ? 1 : 0) << l; });
	keep_predicate(w, i.predicate[0], lanes, p);
}

template <class T> T divided(T a, T b)
{
	return b == 0 || (b == (T)-1 && (T)-1 < 0) ? (b ? (T)(0 - (uint64_t)a) : (T)-1) : (T)(a / b);
}

template <class T> T remainder_of(T a, T b)
{
	return b == 0 || (b == (T)-1 && (T)-1 < 0) ? (b ? 0 : a) : (T)(a % b);
}

template <class T> T shifted_left(T a, uint32_t n)
{
	return n >= 8 * sizeof(T) ? 0 : (T)(a << n);
}

template <class T> T shifted_right(T a, uint32_t n)
{
	return n >= 8 * sizeof(T) ? (T)(a < 0 ? -1 : 0) : (T)(a >> n);
}

template <class T, class F> void shift(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *n = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = bits<T>(f(value<T>(a[l]), (uint32_t)n[l])); });
}

float fused(float a, float b, float c, int mode)
{
	volatile float x = a, y = b, z = c;
	fesetround(mode);
	volatile float r = fmaf(x, y, z);
	fesetround(FE_TONEAREST);
	return r;
}

float saturated(float x)
{
	return x > 1 ? 1 : x > 0 ? x : 0; /* NaN: 0 */
}

/* The first operand is the high half. */
template <class T, bool relu> void convert_pair(warp &w, const instruction &i, uint32_t lanes)
{
	uint64_t *d = w.row(i.row[0]);
	auto half = [&](int from, int l) {
		const float x = value<float>(w.row(i.row[from])[l]);
		return (uint32_t)from_float<T>(relu && x <= 0 ? 0 : x).bits;
	};
	each(lanes, [=](int l) { d[l] = half(1, l) << 16 | half(2, l); });
}

/* ---- moves ---- */

/* mov d, a; mov {d0, d1}, a; mov d, {a0, a1} */
template <int width> void move(warp &w, const instruction &i, uint32_t lanes)
{
	const int half = width / 2;
	const uint64_t mask = half >= 64 ? ~0ull : (1ull << half) - 1;
	uint64_t *d = w.row(i.row[0]), *next = w.row(i.row[1]);
	const uint64_t *last = w.row(i.row[2]);
	if (i.count == 2)
		each(lanes, [=](int l) { d[l] = next[l]; });
	else if (i.unpacks)
		each(lanes, [=](int l) {
			const uint64_t a = last[l];
			d[l] = a & mask;
			next[l] = a >> half & mask;
		});
	else
		each(lanes, [=](int l) { d[l] = (next[l] & mask) | (last[l] & mask) << half; });
}

void select_row(warp &w, const instruction &i, uint32_t lanes)
{
	const uint32_t p = w.predicates[(size_t)i.predicate[0]];
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

void permute_bytes(warp &w, const instruction &i, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++) {
		const uint64_t both = (uint32_t)w.row(i.row[1])[l] | w.row(i.row[2])[l] << 32;
		uint32_t result = 0;
		for (int b = 0; b < 4; b++) {
			const unsigned choice = (unsigned)(w.row(i.row[3])[l] >> 4 * b & 15);
			uint32_t byte = (uint32_t)(both >> 8 * (choice & 7) & 255);
			if (choice & 8)
				byte = byte & 128 ? 255 : 0;
			result |= byte << 8 * b;
		}
		if (lanes >> l & 1)
			w.row(i.row[0])[l] = result;
	}
}

/* bfi.b32 d, a, b, first, bits: those bits of a in b's place. */
void insert_bits(warp &w, const instruction &i, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1) {
			const unsigned first = (unsigned)w.row(i.row[3])[l] & 255, bits = (unsigned)w.row(i.row[4])[l] & 255;
			const uint32_t mask = first > 31 ? 0 : (bits > 31 ? 0xffffffff : (1u << bits) - 1) << first;
			w.row(i.row[0])[l] = ((uint32_t)w.row(i.row[2])[l] & ~mask) | (first > 31 ? 0 : (uint32_t)w.row(i.row[1])[l] << first & mask);
		}
}

/* ---- memory ---- */

void check_alignment(const warp &w, const instruction &i, int lane, uint64_t address, size_t bytes)
{
	if (address % bytes)
		fault(w, i, lane, "the address is not a multiple of the bytes");
}

/* Before it has waited for the kernels in front of its own, a thread may read what they do not write; by ld.global.nc, for what no one writes while the kernel is there, after that no more. */
void check_order(const warp &w, const instruction &i, int lane, const uint8_t *p, size_t bytes, bool write)
{
	const bool waited = w.waited >> lane & 1;
	if (waited && !i.is_constant)
		return;
	const char *wrong = write ? "writes before griddepcontrol.wait" : memory_may_read_early(p, bytes, w.now(lane), settled, waited ? "by ld.global.nc" : "before griddepcontrol.wait");
	if (wrong)
		fault(w, i, lane, wrong);
}

/* Where a lane reads or, with data, writes. */
uint8_t *resolve(warp &w, const instruction &i, int lane, uint64_t address, const uint8_t *data)
{
	const bool write = data;
	const size_t bytes = (size_t)i.width * i.count;
	const char *wrong = nullptr;
	uint8_t *p = nullptr;
	check_alignment(w, i, lane, address, bytes);
	switch (i.space) {
	case space::GLOBAL:
		p = (uint8_t *)address;
		check_order(w, i, lane, p, bytes, write);
		wrong = write ? memory_may_write(p, data, bytes, w.now(lane), i.is_volatile) : memory_may_read(p, bytes, w.now(lane), i.is_volatile);
		break;
	case space::SHARED:
		address &= 0xffffffff;
		wrong = write ? shared_may_write(address, bytes, w.now(lane)) : shared_may_read(address, bytes, w.now(lane));
		p = shared_bytes() + address;
		break;
	case space::LOCAL:
		p = w.local.data() + (size_t)lane * w.k->local_bytes + address;
		wrong = address + bytes > w.k->local_bytes ? "outside the thread's local memory" : nullptr;
		break;
	case space::PARAM:
		p = const_cast<uint8_t *>(w.params) + address;
		wrong = write || address + bytes > w.k->param_bytes ? "outside the kernel's parameters" : nullptr;
		break;
	}
	if (wrong)
		fault(w, i, lane, wrong);
	return p;
}

/* One request of a warp, for the profile. base: a row of addresses. */
void count_request(const uint64_t *base, int64_t offset, uint32_t lanes, enum space space, size_t bytes)
{
	uint64_t addresses[WARP];
	int n = 0;
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1)
			addresses[n++] = base[l] + (uint64_t)offset;
	if (space == space::SHARED)
		count_shared(*tally, addresses, n, bytes);
	else if (space == space::GLOBAL)
		count_global(*tally, addresses, n, bytes);
}

/* Of a load or store; returns its addresses. */
const uint64_t *count_access(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = w.row(i.row[4]);
	if (tally)
		count_request(base, i.offset, lanes, i.space, (size_t)i.width * i.count);
	return base;
}

/* memcpy() of a number whose width is known only now. */
inline void copy_number(void *to, const void *from, unsigned width)
{
	switch (width) {
	case 1: memcpy(to, from, 1); break;
	case 2: memcpy(to, from, 2); break;
	case 4: memcpy(to, from, 4); break;
	default: memcpy(to, from, 8);
	}
}

void load(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = count_access(w, i, lanes);
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		const uint8_t *p = resolve(w, i, l, base[l] + (uint64_t)i.offset, nullptr);
		for (int e = 0; e < i.count; e++) {
			uint64_t x = 0;
			copy_number(&x, p + e * i.width, i.width);
			if (i.is_signed && i.width < 8 && x >> (8 * i.width - 1) & 1)
				x |= ~0ull << 8 * i.width;
			w.row(i.row[e])[l] = x;
		}
	}
}

void store(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = count_access(w, i, lanes);
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		uint8_t data[16];
		for (int e = 0; e < i.count; e++)
			copy_number(data + e * i.width, &w.row(i.row[e])[l], i.width);
		memcpy(resolve(w, i, l, base[l] + (uint64_t)i.offset, data), data, (size_t)i.width * i.count);
	}
}

/* cp.async.cg.shared.global [to], [from], 16, bytes: what was read lands at some moment until the wait. */
void copy_async(warp &w, const instruction &i, uint32_t lanes)
{
	if (tally) {
		uint32_t reading = 0;
		for (int l = 0; l < WARP; l++)
			reading |= (lanes >> l & 1 && (i.count < 4 || w.row(i.row[3])[l])) ? 1u << l : 0;
		count_request(w.row(i.row[0]), 0, lanes, space::SHARED, 16);
		count_request(w.row(i.row[1]), 0, reading, space::GLOBAL, 16);
	}
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		const uint64_t to = w.row(i.row[0])[l] & 0xffffffff, from = w.row(i.row[1])[l];
		const size_t size = w.row(i.row[2])[l], bytes = i.count > 3 ? w.row(i.row[3])[l] : size;
		coming c = { to, {}, l, w.groups[l] };
		check_alignment(w, i, l, to, size);
		check_alignment(w, i, l, from, size);
		const char *wrong = size != 16 || bytes > 16 || i.offset ? "a copy of 16 bytes has no offset, and 16 bytes" : nullptr;
		if (!wrong && bytes)
			check_order(w, i, l, (const uint8_t *)from, bytes, false);
		if (!wrong && bytes)
			wrong = memory_may_read((const void *)from, bytes, w.now(l), false);
		if (!wrong)
			wrong = shared_copy_begins(to, 16, w.now(l));
		if (wrong)
			fault(w, i, l, wrong);
		memcpy(c.data, (const void *)from, bytes);
		w.copies.push_back(c);
	}
}

void copies_commit(warp &w, const instruction &, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		w.groups[l] += lanes >> l & 1;
}

void copies_wait(warp &w, const instruction &i, uint32_t lanes)
{
	auto landed = [&](const coming &c) {
		if (!(lanes >> c.lane & 1) || c.group >= w.groups[c.lane] - i.offset)
			return false;
		shared_copy_lands(c.to, c.data, 16, w.now(c.lane));
		return true;
	};
	w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), landed), w.copies.end());
}

/* ---- what a warp does together ---- */

/* shfl.sync.bfly.b32 d|p, a, mask, 31, -1; idx: the lane itself. */
template <bool idx> void shuffle(warp &w, const instruction &i, uint32_t)
{
	lanes64 from;
	memcpy(from, w.row(i.row[1]), sizeof from);
	for (int l = 0; l < WARP; l++) {
		if (w.row(i.row[3])[l] != 31 || (uint32_t)w.row(i.row[4])[l] != 0xffffffff)
			fault(w, i, l, "a shuffle among other lanes than all");
		w.row(i.row[0])[l] = from[(idx ? 0 : l) ^ (int)(w.row(i.row[2])[l] & 31)];
	}
	w.predicates[(size_t)i.predicate[0]] = 0xffffffff;
}

/* ldmatrix.x4: lane 8i + r has the address of row r of matrix i. */
template <bool transposed> void load_matrices(warp &w, const instruction &i, uint32_t)
{
	uint16_t matrix[4][8][8];
	if (tally)
		count_request(w.row(i.row[4]), i.offset, 0xffffffff, space::SHARED, 16);
	for (int l = 0; l < WARP; l++) {
		const uint64_t address = (w.row(i.row[4])[l] + (uint64_t)i.offset) & 0xffffffff;
		check_alignment(w, i, l, address, 16);
		const char *wrong = shared_may_read(address, 16, w.now(l));
		if (wrong)
			fault(w, i, l, wrong);
		memcpy(matrix[l / 8][l % 8], shared_bytes() + address, 16);
	}
	for (int m = 0; m < 4; m++)
		for (int l = 0; l < WARP; l++) {
			const int r = l / 4, c = 2 * (l % 4);
			w.row(i.row[m])[l] = transposed ? (uint32_t)matrix[m][c][r] | (uint32_t)matrix[m][c + 1][r] << 16
			                                : (uint32_t)matrix[m][r][c] | (uint32_t)matrix[m][r][c + 1] << 16;
		}
}

/* to_float(), with fp16's from a table, as it takes long. */
inline float float_of(bf16 x)
{
	return to_float(x);
}

struct fp16_numbers {
	float of[1 << 16];

	fp16_numbers()
	{
		for (unsigned b = 0; b < 1 << 16; b++)
			of[b] = to_float(fp16{ (uint16_t)b });
	}
} const fp16_table;

inline float float_of(fp16 x)
{
	return fp16_table.of[x.bits];
}

/* mma.m16n8k16: d[16][8] = a[16][16] b[16][8] + c, with the fragments of the PTX manual. */
template <class T> void multiply_add(warp &w, const instruction &i, uint32_t)
{
	typedef float eight __attribute__((vector_size(32)));
	float a[16][16];
	eight b[16], c[16];
	if (tally)
		tally->products++;
	auto half = [](uint64_t pair, int h) { return float_of(T{ (uint16_t)(pair >> 16 * h) }); };
	for (int f = 0; f < 4; f++) { /* a0: rows r, a1: r + 8, a2 and a3: columns 8 on */
		const uint64_t *row = w.row(i.row[4 + f]);
		for (int l = 0; l < WARP; l++)
			for (int h = 0; h < 2; h++)
				a[l / 4 + 8 * (f & 1)][2 * (l % 4) + h + 8 * (f >> 1)] = half(row[l], h);
	}
	for (int f = 0; f < 2; f++) {
		const uint64_t *row = w.row(i.row[8 + f]);
		for (int l = 0; l < WARP; l++)
			for (int h = 0; h < 2; h++)
				b[2 * (l % 4) + h + 8 * f][l / 4] = half(row[l], h);
	}
	for (int f = 0; f < 4; f++) {
		const uint64_t *row = w.row(i.row[10 + f]);
		for (int l = 0; l < WARP; l++)
			c[l / 4 + 8 * (f >> 1)][2 * (l % 4) + (f & 1)] = value<float>(row[l]);
	}
	for (int r = 0; r < 16; r++)
		for (int k = 0; k < 16; k++)
			c[r] += a[r][k] * b[k]; /* a product of 16-bit numbers is exact in 32 */
	for (int f = 0; f < 4; f++) {
		uint64_t *row = w.row(i.row[f]);
		for (int l = 0; l < WARP; l++)
			row[l] = bits(c[l / 4 + 8 * (f >> 1)][2 * (l % 4) + (f & 1)]);
	}
}

/* ---- what four warps do together: each its 16 rows, in its own time ---- */

/* What wgmma reads of shared memory: 16 k by `count` rows or columns from `first` on, eight elements that lie side by side at a time. */
template <class T> void group_matrix(warp &w, const instruction &i, const wgmma_matrix &m, int first, int count, float *to, int next_mn, int next_k, std::vector<uint64_t> &reads)
{
	for (int mn = 0; mn < count; mn += m.across ? 8 : 1)
		for (int k = 0; k < 16; k += m.across ? 1 : 8) {
			const uint64_t at = m.element(first + mn, k);
			const char *wrong = shared_product_begins(at, 16, w.now(0));
			if (wrong)
				fault(w, i, 0, wrong);
			reads.push_back(at);
			T x[8];
			memcpy(x, shared_bytes() + at, sizeof x);
			for (int e = 0; e < 8; e++)
				to[mn * next_mn + k * next_k + e * (m.across ? next_mn : next_k)] = float_of(x[e]);
		}
}

void keep_fenced(warp &w, int row)
{
	std::copy_n(w.row(row), (int)WARP, w.fenced[row].begin());
}

/* wgmma.mma_async {sums}, a, b, add, 1, 1, a across, b across, or, with a in registers, {sums}, {a0, a1, a2, a3}, b, add, 1, 1, b across: sums are
 * there after the wait, and NaNs until then. */
template <class T> void group_multiply(warp &w, const instruction &i, uint32_t)
{
	const bool registers = i.count == 9;
	const int columns = (int)i.sums.size() / 4 * 8, first_row = (int)(w.first_thread / WARP % 4) * 16, right_row = registers ? 4 : 1;
	auto number = [&](int r) { return w.row(i.row[r])[0]; };
	const wgmma_matrix a = { number(0), !registers && number(5) == 1 }, b = { number(right_row), number(i.count - 1) == 1 };
	const bool add = number(right_row + 1);
	const char *wrong = !registers && a.wrong() ? a.wrong() : b.wrong();
	if (!wrong && i.count != 7 && i.count != 9)
		wrong = "wgmma: other operands than two matrices and five numbers, or registers, a matrix and four";
	if (!wrong && (number(right_row + 2) != 1 || number(right_row + 3) != 1))
		wrong = "wgmma: factors other than 1";
	if (!wrong && !w.may_multiply)
		wrong = "wgmma: no wgmma.fence since its sums' registers were last used";
	auto changed = [&](int r) {
		auto then = w.fenced.find(r);
		return then != w.fenced.end() && memcmp(then->second.data(), w.row(r), sizeof(lanes64));
	};
	if (!wrong && (std::any_of(i.sums.begin(), i.sums.end(), changed) || (registers && std::any_of(i.row, i.row + 4, changed))))
		wrong = "wgmma: registers that it uses were changed since wgmma.fence";
	if (!wrong && registers && std::any_of(i.row, i.row + 4, [&](int r) { return !w.fenced.count(r); }))
		wrong = "wgmma: no wgmma.fence since the registers that it reads were written";
	for (int l = 0; l < WARP && !wrong; l++)
		if ((!registers && w.row(i.row[0])[l] != a.words) || w.row(i.row[right_row])[l] != b.words)
			wrong = "wgmma: lanes name different matrices";
	if (wrong)
		fault(w, i, 0, wrong);
	product p = { &i.sums, std::vector<lanes32>(i.sums.size()), {}, w.product_groups, registers ? i.row : nullptr, {} };
	p.reads.reserve(2 * (16 + (size_t)columns));
	for (int r = 0; r < 4 && registers; r++)
		std::copy_n(w.row(i.row[r]), (int)WARP, p.left[r]);
	static float left[16][16], right[16][256], d[16][256];
	if (registers)
		for (int m = 0; m < 16; m++)
			for (int k = 0; k < 16; k++)
				left[m][k] = float_of(T{ (uint16_t)(w.row(i.row[m / 8 + k / 8 * 2])[m % 8 * 4 + k % 8 / 2] >> 16 * (k % 2)) });
	else
		group_matrix<T>(w, i, a, first_row, 16, left[0], 16, 1, p.reads);
	group_matrix<T>(w, i, b, 0, columns, right[0], 1, 256, p.reads);
	memset(d, 0, sizeof d);
	for (int m = 0; m < 16; m++)
		for (int k = 0; k < 16; k++)
			for (int n = 0; n < columns; n++)
				d[m][n] += left[m][k] * right[k][n];
	const product *before = nullptr; /* one on its way that has these sums */
	for (const product &other : w.products)
		if ((*other.rows)[0] == i.sums[0])
			before = &other;
	for (size_t s = 0; s < i.sums.size(); s++) {
		uint64_t *now = w.row(i.sums[s]);
		for (int l = 0; l < WARP; l++) {
			const float sum = before ? value<float>(before->sums[s][l]) : value<float>(now[l]);
			p.sums[s][l] = float_bits((add ? sum : 0) + d[wgmma_row(l, (int)s % 4)][wgmma_column(l, (int)s / 4, (int)s % 4)]);
			now[l] = float_bits(NAN);
		}
	}
	for (int r : i.sums)
		keep_fenced(w, r);
	w.products.push_back(std::move(p));
	if (tally) {
		tally->group_products += (uint64_t)columns / 8;
		const uint64_t wavefronts = (registers ? 0 : 4) + (uint64_t)columns / 16; /* a quarter of 64 rows of 32 bytes and of the columns' */
		tally->wavefronts += wavefronts;
		tally->least += wavefronts;
	}
}

void group_commit(warp &w, const instruction &, uint32_t)
{
	w.product_groups++;
}

void group_fence(warp &w, const instruction &i, uint32_t)
{
	w.may_multiply = true;
	w.fenced.clear();
	for (const instruction *next = &i + 1; next <= &w.k->code.back() && next->run != group_commit; next++)
		if (!next->sums.empty()) {
			for (int r : next->sums)
				keep_fenced(w, r);
			for (int r = 0; r < 4 && next->count == 9; r++)
				keep_fenced(w, next->row[r]);
		}
}

void check_left(warp &w, const instruction &i, const product &p)
{
	for (int r = 0; r < 4 && p.registers; r++)
		for (int l = 0; l < WARP; l++)
			if ((uint32_t)w.row(p.registers[r])[l] != p.left[r][l])
				fault(w, i, l, "wgmma: registers that a product reads were changed before it was waited for");
}

void group_wait(warp &w, const instruction &i, uint32_t)
{
	while (!w.products.empty() && w.products[0].group < w.product_groups - i.offset) {
		const product p = std::move(w.products[0]);
		w.products.erase(w.products.begin());
		for (uint64_t at : p.reads)
			shared_product_ends(at, 16);
		check_left(w, i, p);
		if (std::none_of(w.products.begin(), w.products.end(), [&](const product &later) { return (*later.rows)[0] == (*p.rows)[0]; }))
			for (size_t s = 0; s < p.rows->size(); s++)
				std::copy_n(p.sums[s].begin(), (int)WARP, w.row((*p.rows)[s]));
	}
	w.may_multiply = false;
}

void hand_over(warp &w, const instruction &, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1)
			shared_handed_over(w.now(l));
}

void wait_for_kernels(warp &w, const instruction &, uint32_t lanes)
{
	w.waited |= lanes;
}

void nothing(warp &, const instruction &, uint32_t)
{
}

/* ---- the table ---- */

struct entry {
	action run;
	enum flow flow;
};

#define DO(...) { [](warp &w, const instruction &i, uint32_t lanes) { __VA_ARGS__; }, flow::ON }
#define UNARY(NAME, D, T, EXPRESSION) { NAME, DO((unary<D, T>(w, i, lanes, [](T a) -> D { return EXPRESSION; }))) }
#define BINARY(NAME, T, EXPRESSION) { NAME, DO((binary<T, T>(w, i, lanes, [](T a, T b) -> T { return EXPRESSION; }))) }
#define TERNARY(NAME, T, EXPRESSION) { NAME, DO((ternary<T, T>(w, i, lanes, [](T a, T b, T c) -> T { return EXPRESSION; }))) }
#define COMPARE(NAME, T, EXPRESSION) { NAME, DO(compare<T>(w, i, lanes, [](T a, T b) -> bool { return EXPRESSION; })) }
#define SHIFT(NAME, T, FUNCTION) { NAME, DO(shift<T>(w, i, lanes, [](T a, uint32_t n) -> T { return FUNCTION(a, n); })) }
#define LOGIC(NAME, EXPRESSION) { NAME, DO(const uint32_t a = w.predicates[(size_t)i.predicate[1]], b = w.predicates[(size_t)i.predicate[2]]; (void)b; \
	keep_predicate(w, i.predicate[0], lanes, EXPRESSION)) }
#define INTEGERS(SUFFIX, T, U)                                                                                                      \
	BINARY("add." SUFFIX, T, (T)((U)a + (U)b)), BINARY("sub." SUFFIX, T, (T)((U)a - (U)b)), BINARY("mul.lo." SUFFIX, T, (T)((U)a * (U)b)), \
	TERNARY("mad.lo." SUFFIX, T, (T)((U)a * (U)b + (U)c)), BINARY("div." SUFFIX, T, divided<T>(a, b)), BINARY("rem." SUFFIX, T, remainder_of<T>(a, b)), \
	BINARY("min." SUFFIX, T, a < b ? a : b), BINARY("max." SUFFIX, T, a > b ? a : b), UNARY("neg." SUFFIX, T, T, (T)(0 - (U)a)), \
	SHIFT("shr." SUFFIX, T, shifted_right<T>), COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a != b), \
	COMPARE("setp.lt." SUFFIX, T, a < b), COMPARE("setp.le." SUFFIX, T, a <= b), COMPARE("setp.gt." SUFFIX, T, a > b), COMPARE("setp.ge." SUFFIX, T, a >= b)
#define BITS(SUFFIX, T)                                                                                                             \
	BINARY("and." SUFFIX, T, a & b), BINARY("or." SUFFIX, T, a | b), BINARY("xor." SUFFIX, T, a ^ b), UNARY("not." SUFFIX, T, T, (T)~a), \
	SHIFT("shl." SUFFIX, T, shifted_left<T>), COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a != b)
#define FLOATS(SUFFIX, T)                                                                                                           \
	BINARY("add." SUFFIX, T, a + b), BINARY("add.rn." SUFFIX, T, a + b), BINARY("sub." SUFFIX, T, a - b), BINARY("mul." SUFFIX, T, a * b), \
	BINARY("mul.rn." SUFFIX, T, a * b), BINARY("div.rn." SUFFIX, T, a / b), TERNARY("fma.rn." SUFFIX, T, std::fma(a, b, c)), \
	BINARY("max." SUFFIX, T, std::fmax(a, b)), BINARY("min." SUFFIX, T, std::fmin(a, b)), UNARY("neg." SUFFIX, T, T, -a), UNARY("abs." SUFFIX, T, T, std::fabs(a)), \
	UNARY("sqrt.rn." SUFFIX, T, T, std::sqrt(a)), UNARY("rcp.rn." SUFFIX, T, T, 1 / a), \
	COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a < b || a > b), COMPARE("setp.lt." SUFFIX, T, a < b), \
	COMPARE("setp.le." SUFFIX, T, a <= b), COMPARE("setp.gt." SUFFIX, T, a > b), COMPARE("setp.ge." SUFFIX, T, a >= b), \
	COMPARE("setp.equ." SUFFIX, T, !(a < b || a > b)), COMPARE("setp.neu." SUFFIX, T, a != b), COMPARE("setp.ltu." SUFFIX, T, !(a >= b)), \
	COMPARE("setp.leu." SUFFIX, T, !(a > b)), COMPARE("setp.gtu." SUFFIX, T, !(a <= b)), COMPARE("setp.geu." SUFFIX, T, !(a < b)), \
	COMPARE("setp.num." SUFFIX, T, a == a && b == b), COMPARE("setp.nan." SUFFIX, T, a != a || b != b)

/* Eight bits are lost, more than on a GPU: what a kernel makes of an approximation has to be exact all the same. */
float coarse(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	bits &= ~0xffu;
	memcpy(&value, &bits, sizeof value);
	return value;
}

const std::unordered_map<std::string, entry> &table()
{
	static const std::unordered_map<std::string, entry> entries = {
		INTEGERS("s16", int16_t, uint16_t), INTEGERS("u16", uint16_t, uint16_t), INTEGERS("s32", int32_t, uint32_t),
		INTEGERS("u32", uint32_t, uint32_t), INTEGERS("s64", int64_t, uint64_t), INTEGERS("u64", uint64_t, uint64_t),
		BITS("b16", uint16_t), BITS("b32", uint32_t), BITS("b64", uint64_t), FLOATS("f32", float), FLOATS("f64", double),
		LOGIC("and.pred", a & b), LOGIC("or.pred", a | b), LOGIC("xor.pred", a ^ b), LOGIC("not.pred", ~a), LOGIC("mov.pred", a),
		{ "mul.wide.s32", DO((binary<int64_t, int32_t>(w, i, lanes, [](int32_t a, int32_t b) { return (int64_t)a * b; }))) },
		{ "mul.wide.u32", DO((binary<uint64_t, uint32_t>(w, i, lanes, [](uint32_t a, uint32_t b) { return (uint64_t)a * b; }))) },
		{ "mul.wide.s16", DO((binary<int32_t, int16_t>(w, i, lanes, [](int16_t a, int16_t b) { return (int32_t)a * b; }))) },
		{ "mul.wide.u16", DO((binary<uint32_t, uint16_t>(w, i, lanes, [](uint16_t a, uint16_t b) { return (uint32_t)a * b; }))) },
		BINARY("mul.hi.s32", int32_t, (int32_t)((int64_t)a * b >> 32)), BINARY("mul.hi.u32", uint32_t, (uint32_t)((uint64_t)a * b >> 32)),
		BINARY("mul.hi.s64", int64_t, (int64_t)((__int128)a * b >> 64)), BINARY("mul.hi.u64", uint64_t, (uint64_t)((unsigned __int128)a * b >> 64)),
		TERNARY("fma.rm.f32", float, fused(a, b, c, FE_DOWNWARD)), BINARY("add.rz.f32", float, fused(a, 1, b, FE_TOWARDZERO)),
		UNARY("rsqrt.approx.f32", float, float, coarse(1 / std::sqrt(a))), UNARY("ex2.approx.ftz.f32", float, float, std::exp2(a)), UNARY("rcp.approx.ftz.f64", double, double, 1 / a),
		UNARY("cvt.s64.s32", int64_t, int32_t, a), UNARY("cvt.u64.u32", uint64_t, uint32_t, a), UNARY("cvt.u32.u64", uint32_t, uint64_t, (uint32_t)a),
		UNARY("cvt.u32.u16", uint32_t, uint16_t, a), UNARY("cvt.u16.u32", uint16_t, uint32_t, (uint16_t)a), UNARY("cvt.s32.s16", int32_t, int16_t, a),
		UNARY("cvt.u64.u16", uint64_t, uint16_t, a), UNARY("cvt.s64.s16", int64_t, int16_t, a), UNARY("cvt.u16.u64", uint16_t, uint64_t, (uint16_t)a),
		UNARY("cvt.s32.s8", int32_t, int8_t, a), UNARY("cvt.u32.u8", uint32_t, uint8_t, a), UNARY("cvt.u16.u8", uint16_t, uint8_t, a), UNARY("cvt.s16.s8", int16_t, int8_t, a),
		UNARY("cvt.rn.f32.s32", float, int32_t, (float)a), UNARY("cvt.rn.f32.u32", float, uint32_t, (float)a), UNARY("cvt.rn.f32.s64", float, int64_t, (float)a),
		UNARY("cvt.rn.f32.u64", float, uint64_t, (float)a), UNARY("cvt.rn.f32.u16", float, uint16_t, (float)a), UNARY("cvt.rn.f32.s16", float, int16_t, (float)a),
		UNARY("cvt.rn.f64.s32", double, int32_t, a), UNARY("cvt.rn.f64.u32", double, uint32_t, a), UNARY("cvt.rn.f64.u64", double, uint64_t, (double)a), UNARY("cvt.rn.f64.s64", double, int64_t, (double)a),
		UNARY("cvt.f64.f32", double, float, a), UNARY("cvt.rn.f32.f64", float, double, (float)a), UNARY("cvt.rzi.f64.f64", double, double, std::trunc(a)),
		UNARY("cvt.rzi.s32.f32", int32_t, float, (int32_t)a), UNARY("cvt.rzi.s32.f64", int32_t, double, (int32_t)a), UNARY("cvt.sat.f32.f32", float, float, saturated(a)),
		UNARY("cvt.f32.f16", float, fp16, to_float(a)), UNARY("cvt.rn.f16.f32", fp16, float, from_float<fp16>(a)), UNARY("cvt.rn.bf16.f32", bf16, float, from_float<bf16>(a)),
		{ "cvt.rn.bf16x2.f32", { convert_pair<bf16, false>, flow::ON } }, { "cvt.rn.f16x2.f32", { convert_pair<fp16, false>, flow::ON } },
		{ "cvt.rn.relu.bf16x2.f32", { convert_pair<bf16, true>, flow::ON } }, { "cvt.rn.relu.f16x2.f32", { convert_pair<fp16, true>, flow::ON } },
		{ "prmt.b32", { permute_bytes, flow::ON } }, { "bfi.b32", { insert_bits, flow::ON } },
		{ "cvta.to.global.u64", { move<64>, flow::ON } },
		{ "cp.async.cg.shared.global", { copy_async, flow::ON } },
		{ "cp.async.commit_group", { copies_commit, flow::ON } },
		{ "cp.async.wait_group", { copies_wait, flow::ON } },
		{ "shfl.sync.bfly.b32", { shuffle<false>, flow::TOGETHER } }, { "shfl.sync.idx.b32", { shuffle<true>, flow::TOGETHER } },
		{ "ldmatrix.sync.aligned.m8n8.x4.shared.b16", { load_matrices<false>, flow::TOGETHER } },
		{ "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", { load_matrices<true>, flow::TOGETHER } },
		{ "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", { multiply_add<bf16>, flow::TOGETHER } },
		{ "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", { multiply_add<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.fence.sync.aligned", { group_fence, flow::TOGETHER } },
		{ "wgmma.commit_group.sync.aligned", { group_commit, flow::TOGETHER } },
		{ "wgmma.wait_group.sync.aligned", { group_wait, flow::TOGETHER } },
		{ "fence.proxy.async.shared::cta", { hand_over, flow::ON } },
		{ "griddepcontrol.launch_dependents", { nothing, flow::ON } }, { "griddepcontrol.wait", { wait_for_kernels, flow::ON } },
		{ "bar.sync", { nothing, flow::BARRIER } },
		{ "bra", { nothing, flow::BRANCH } }, { "bra.uni", { nothing, flow::BRANCH } },
		{ "ret", { nothing, flow::EXIT } }, { "exit", { nothing, flow::EXIT } },
	};
	return entries;
}

}

action find_action(const std::string &opcode, enum flow *flow)
{
	const std::string word = opcode.substr(0, opcode.find('.')), suffix = opcode.substr(opcode.rfind('.') + 1);
	*flow = flow::ON;
	if (word == "ld")
		return load;
	if (word == "st")
		return store;
	if (word == "selp")
		return select_row;
	auto found = table().find(opcode);
	if (found != table().end()) {
		*flow = found->second.flow;
		return found->second.run;
	}
	if (word == "mov")
		return suffix.substr(1) == "64" ? move<64> : suffix.substr(1) == "32" ? move<32> : move<16>;
	return nullptr;
}

namespace {

/* ---- a warp ---- */

/* The lanes that are least far go on; those that meet go on together. */
void choose(warp &w)
{
	if (w.lanes)
		w.elsewhere.push_back({ w.at, w.lanes });
	w.lanes = 0;
	if (w.elsewhere.empty())
		return;
	w.at = std::min_element(w.elsewhere.begin(), w.elsewhere.end(), [](const group &a, const group &b) { return a.at < b.at; })->at;
	auto joins = [&](const group &g) {
		w.lanes |= g.at == w.at ? g.lanes : 0;
		return g.at == w.at;
	};
	w.elsewhere.erase(std::remove_if(w.elsewhere.begin(), w.elsewhere.end(), joins), w.elsewhere.end());
}

void branch(warp &w, const instruction &i, uint32_t taken)
{
	const uint32_t stay = w.lanes & ~taken;
	for (const product &p : w.products)
		if (taken && i.target <= w.at && p.registers) {
			check_left(w, i, p);
			fault(w, i, __builtin_ctz(taken), "wgmma: a loop goes back to its start before a product that reads registers was waited for: ptxas may give them to others there");
		}
	if (stay && taken)
		w.elsewhere.push_back({ w.at + 1, stay });
	w.lanes = taken ? taken : stay;
	w.at = taken ? i.target : w.at + 1;
}

/* Up to `turns` instructions. */
void advance(warp &w, uint32_t turns)
{
	while (turns-- && w.alive && w.waits < 0) {
		if (!w.elsewhere.empty() || !w.lanes)
			choose(w);
		const instruction &i = w.k->code.at((size_t)w.at);
		uint32_t lanes = w.lanes;
		if (i.guard >= 0)
			lanes &= i.guard_not ? ~w.predicates[(size_t)i.guard] : w.predicates[(size_t)i.guard];
		machine_instructions += !i.is_move;
		switch (i.flow) {
		case flow::ON:
			if (lanes)
				i.run(w, i, lanes);
			w.at++;
			break;
		case flow::TOGETHER:
			if (lanes != 0xffffffff)
				fault(w, i, __builtin_ctz(~lanes), "not all lanes of the warp come here together");
			i.run(w, i, lanes);
			w.at++;
			break;
		case flow::BARRIER:
			if (lanes != w.alive)
				fault(w, i, __builtin_ctz(w.alive & ~lanes), "not all threads of the warp come to this barrier together");
			w.waits = (int)w.row(i.row[0])[__builtin_ctz(lanes)];
			if (w.waits >= BARRIERS)
				fault(w, i, __builtin_ctz(lanes), "comes to a barrier that a block does not have");
			w.waits_with = w.waits ? (unsigned)w.row(i.row[1])[__builtin_ctz(lanes)] : 0;
			w.at++;
			break;
		case flow::BRANCH:
			branch(w, i, lanes);
			break;
		case flow::EXIT:
			if (lanes & ~w.waited)
				fault(w, i, __builtin_ctz(lanes & ~w.waited), "ends and has not waited (griddepcontrol.wait) for the kernels before, which the one after it takes for done");
			w.alive &= ~lanes;
			w.lanes &= ~lanes;
			if (w.lanes)
				w.at++;
			break;
		}
	}
}

struct grid {
	const kernel &k;
	const launch &how;
	const uint8_t *params;
};

void prepare(warp &w, const grid &g, unsigned block, unsigned first)
{
	const unsigned count = std::min(g.how.threads - first, (unsigned)WARP);
	w.k = &g.k;
	w.params = g.params;
	w.block = block;
	w.first_thread = first;
	w.step = 1;
	w.at = 0;
	w.alive = w.lanes = count == WARP ? 0xffffffff : (1u << count) - 1;
	w.waited = g.how.early ? 0 : 0xffffffff;
	w.waits = -1;
	w.elsewhere.clear();
	w.copies.clear();
	memset(w.groups, 0, sizeof w.groups);
	w.products.clear();
	w.product_groups = 0;
	w.may_multiply = false;
	if (w.rows.size() != (size_t)g.k.rows)
		w.rows = std::vector<lanes64>((size_t)g.k.rows);
	w.predicates.assign((size_t)g.k.predicates, 0);
	w.local.assign(WARP * g.k.local_bytes, 0xff);
	for (const auto &n : g.k.numbers)
		std::fill_n(w.row(n.first), (int)WARP, n.second);
	for (const auto &s : g.k.specials)
		for (unsigned l = 0; l < WARP; l++)
			w.row(s.first)[l] = s.second == special::TID_X ? first + l : s.second == special::NTID_X ? g.how.threads : s.second == special::CTAID_X ? block : g.how.blocks;
}

/* Warps that have come to a barrier go on: in a new step, which is that of all if it was the block's. */
void meet(const std::vector<warp *> &warps, bool all)
{
	uint16_t step = 0;
	for (const warp *w : warps)
		step = std::max(step, w->step);
	for (warp *w : warps) {
		w->waits = -1;
		w->step = (uint16_t)(step + 1);
	}
	if (all)
		common_step = (uint16_t)(step + 1);
}

void run_block(const grid &g, unsigned block, std::vector<warp> &warps)
{
	common_step = 1;
	for (size_t i = 0; i < warps.size(); i++)
		prepare(warps[i], g, block, (unsigned)i * WARP);
	for (;;) {
		std::vector<warp *> ready, waiting[BARRIERS];
		size_t alive = 0;
		for (warp &w : warps) {
			alive += w.alive != 0;
			if (w.alive && w.waits < 0)
				ready.push_back(&w);
			else if (w.alive)
				waiting[w.waits].push_back(&w);
		}
		if (!alive)
			break;
		bool met = false;
		for (int id = 0; id < BARRIERS; id++) /* those that have ended are not waited for at the block's, as on a GPU */
			if (!waiting[id].empty() && (id ? waiting[id].size() * WARP >= waiting[id][0]->waits_with : waiting[id].size() == alive)) {
				meet(waiting[id], id == 0);
				met = true;
			}
		if (!met && ready.empty()) {
			const warp &w = **std::find_if(std::begin(waiting), std::end(waiting), [](const std::vector<warp *> &at) { return !at.empty(); })->begin();
			fault(w, w.k->code[(size_t)w.at - 1], 0, "waits at a barrier to which the others do not come");
		}
		if (!met)
			advance(*ready[random_below((uint32_t)ready.size())], 1 + random_below(400));
	}
	for (warp &w : warps)
		if (!w.copies.empty())
			fault(w, g.k.code.back(), w.copies[0].lane, "ends with copies on their way");
	for (warp &w : warps)
		if (!w.products.empty())
			fault(w, g.k.code.back(), 0, "ends with a product of its warpgroup that nobody waited for");
}

}

void run(const kernel &k, const launch &how, const void *params)
{
	const grid g = { k, how, (const uint8_t *)params };
	std::vector<warp> warps((how.threads + WARP - 1) / WARP);
	std::vector<unsigned> order(how.blocks);
	machine_launches++;
	settled = how.settled;
	tally = profile_of(k.name);
	const uint64_t before = machine_instructions;
	for (unsigned i = 0; i < how.blocks; i++) {
		const unsigned j = random_below(i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	for (unsigned block : order) {
		shared_begin(how.shared_bytes);
		run_block(g, block, warps);
	}
	if (tally) {
		tally->launches++;
		tally->blocks += how.blocks;
		tally->instructions += machine_instructions - before;
	}
}

}
