/* SPDX-License-Identifier: Apache-2.0
 * What the software GPU's warps do together: shuffles, matrices, and products of one warp and of four. */
#include <algorithm>
#include <cmath>

#include "profile.h"
#include "warp.h"
#include "wgmma.h"

namespace ptx {

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
namespace {

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

namespace {

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

template void shuffle<false>(warp &, const instruction &, uint32_t);
template void shuffle<true>(warp &, const instruction &, uint32_t);
template void load_matrices<false>(warp &, const instruction &, uint32_t);
template void load_matrices<true>(warp &, const instruction &, uint32_t);
template void multiply_add<bf16>(warp &, const instruction &, uint32_t);
template void multiply_add<fp16>(warp &, const instruction &, uint32_t);
template void group_multiply<bf16>(warp &, const instruction &, uint32_t);
template void group_multiply<fp16>(warp &, const instruction &, uint32_t);

}
