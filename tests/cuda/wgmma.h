/* SPDX-License-Identifier: Apache-2.0
 * The matrices of wgmma in shared memory, after the PTX manual ("Asynchronous warpgroup-level matrix shared memory layout"): what the shim and the
 * machine in software know of them. Only what the engine uses: 16-bit elements, the 128-byte swizzle or none. */
#ifndef TESTS_WGMMA_H
#define TESTS_WGMMA_H

#include <cstdint>

struct wgmma_matrix {
	uint64_t words;
	bool across; /* m or n runs along a row, k against it */

	uint64_t start() const
	{
		return (words & 0x3fff) << 4;
	}
	uint64_t leading() const
	{
		return (words >> 16 & 0x3fff) << 4;
	}
	uint64_t stride() const
	{
		return (words >> 32 & 0x3fff) << 4;
	}
	bool plain() const
	{
		return words >> 62 == 0;
	}
	/* NULL, or what is wrong with it. */
	const char *wrong() const
	{
		if (plain())
			return words >> 49 || !leading() || !stride() ? "wgmma: a matrix without swizzle has an offset, or no distance from eight to the next" : nullptr;
		if (words >> 62 != 1)
			return "wgmma: neither the 128-byte swizzle nor none";
		if (words >> 49 & 7 || start() & (across ? 0x3ff : 0x380))
			return "wgmma: the matrix does not begin with a pattern of its swizzle, at a multiple of 1024 bytes";
		if (!across && (start() & 0x7f) > 128 - 32)
			return "wgmma: 16 columns from there on leave the row of 128 bytes";
		return nullptr;
	}
	/* Byte address of an element. */
	uint64_t element(int mn, int k) const
	{
		const uint64_t m = (uint64_t)mn, c = (uint64_t)k;
		if (plain())
			return start() + m / 8 * stride() + c / 8 * leading() + (across ? c % 8 * 16 + m % 8 * 2 : m % 8 * 16 + c % 8 * 2);
		const uint64_t at = start() + (across ? m / 64 * leading() + m % 64 * 2 + c % 8 * 128 + c / 8 * stride() : m / 8 * stride() + m % 8 * 128 + c * 2);
		return at ^ (at >> 7 & 7) << 4;
	}
};

/* Row and column of a thread's sum 4 i + j, in a product of 64 rows. */
inline int wgmma_row(int thread, int j)
{
	return thread / 32 * 16 + thread % 32 / 4 + j % 4 / 2 * 8;
}

inline int wgmma_column(int thread, int i, int j)
{
	return i * 8 + 2 * (thread % 4) + j % 2;
}

#endif
