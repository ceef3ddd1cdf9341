/* SPDX-License-Identifier: Apache-2.0
 * The software GPU's warp: its registers, and what is on its way for it. Inside the machine only. */
#ifndef TESTS_PTX_WARP_H
#define TESTS_PTX_WARP_H

#include <array>
#include <cstring>
#include <unordered_map>

#include "memory.h"
#include "number.h"
#include "ptx.h"

namespace ptx {

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

extern uint32_t settled; /* of the launch that runs */

/* Tells it with its place in the source, and ends the program. */
[[noreturn]] void fault(const warp &w, const instruction &i, int lane, const char *what);

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

/* ---- memory (access.cpp) ---- */

void check_alignment(const warp &w, const instruction &i, int lane, uint64_t address, size_t bytes);
/* One request of a warp, for the profile. base: a row of addresses. */
void count_request(const uint64_t *base, int64_t offset, uint32_t lanes, enum space space, size_t bytes);
void load(warp &w, const instruction &i, uint32_t lanes);
void store(warp &w, const instruction &i, uint32_t lanes);
void copy_async(warp &w, const instruction &i, uint32_t lanes);
void copies_commit(warp &w, const instruction &i, uint32_t lanes);
void copies_wait(warp &w, const instruction &i, uint32_t lanes);
void hand_over(warp &w, const instruction &i, uint32_t lanes);

/* ---- what a warp, and what four warps do together (products.cpp) ---- */

template <bool idx> void shuffle(warp &w, const instruction &i, uint32_t lanes);
template <bool transposed> void load_matrices(warp &w, const instruction &i, uint32_t lanes);
template <class T> void multiply_add(warp &w, const instruction &i, uint32_t lanes);
template <class T> void group_multiply(warp &w, const instruction &i, uint32_t lanes);
void group_commit(warp &w, const instruction &i, uint32_t lanes);
void group_fence(warp &w, const instruction &i, uint32_t lanes);
void group_wait(warp &w, const instruction &i, uint32_t lanes);
/* Faults where registers that a product reads are no longer what they were. */
void check_left(warp &w, const instruction &i, const product &p);

}

#endif
