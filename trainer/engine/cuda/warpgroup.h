/* SPDX-License-Identifier: Apache-2.0
 * Tensor cores that read shared memory by themselves (wgmma, sm_90a): a warpgroup, four warps in a row, multiplies 64 rows at a time, and its
 * threads do other work meanwhile.
 *
 * A product is begun by group_multiply_add(), with others closed to a group by group_commit(), and done after group_wait(). Until then nobody may
 * touch its sums, nor write the matrices that it reads. What threads wrote to these is there for it after async_fence() by those who wrote, then
 * a barrier. What copy_async() brought is there after copies_wait() and a barrier, as in CUTLASS's kernels that are fed so: PTX asks for the fence there, too, but its machine code
 * (MEMBAR) waits for all that the thread has asked for, the newest copies as well, and then none is on its way while a tile is multiplied. For tests, tests/cuda/shim.h does the
 * same on the CPU. */
#ifndef CUDA_WARPGROUP_H
#define CUDA_WARPGROUP_H

#include "column_sums.h"
#include "device.h"
#include "tile.h"

enum { WARPGROUP = 128 /* threads */, PANEL = 64 /* columns of a tile whose layout wgmma knows: rows of 128 bytes, its 128-byte swizzle */ };

/* Matrices in tiles of PANEL columns, whose first row lies at a multiple of 1,024 bytes. Which way they are read is the product's business:
 * along a row (columns are k, rows m or n) or, `across`, against it (rows are k, columns m or n). `panel_bytes` from one panel to the next, where
 * more than PANEL columns are read across. */
HD uint64_t matrix_words(uint32_t shared_address, int panel_bytes)
{
	const uint64_t eight_rows = 8 * 2 * PANEL;
	return (uint64_t)(shared_address >> 4 & 0x3fff) | (uint64_t)(panel_bytes >> 4) << 16 | eight_rows >> 4 << 32 | 1ull << 62;
}

/* Without a swizzle: lines of eight elements, 16 bytes, eight of them in a row; a matrix may begin at any of these. Along a row (a line is eight k of one m or n)
 * `k_bytes` from there to the next eight k and `mn_bytes` to the next eight m or n; across (a line is eight m or n of one k) the same. */
HD uint64_t plain_words(uint32_t shared_address, int k_bytes, int mn_bytes)
{
	return (uint64_t)(shared_address >> 4 & 0x3fff) | (uint64_t)(k_bytes >> 4) << 16 | (uint64_t)(mn_bytes >> 4) << 32;
}

/* The matrix that begins so many times 16 bytes after this one. */
HD uint64_t further(uint64_t matrix, int lines)
{
	return (matrix & ~(uint64_t)0xffffffff) | ((uint32_t)matrix + (uint32_t)lines);
}

/* Of 32 columns of a product a thread has 2 q, 2 q + 1 of each eight (q: lane % 4). Where they are to be channels 8 q … 8 q + 7, which are 16 bytes in memory,
 * column 8 j + 2 q + e is channel 8 q + 2 j + e, and the columns of the right matrix lie in that order. */
HD int column_channel(int column)
{
	return (column & ~31) + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
}

/* A block's part of dbeta and dgamma, of `width` channels from `first` on, from put_column_sums()' sums of d and of d times what was normalized. A thread
 * has one channel or none; its mean and rstd are asked for when it is made. */
template <int width, int row_warps, int threads> struct norm_sums {
	static_assert(width <= threads, "a thread has one channel at most");
	int channel;
	float mean, rstd;

	template <class P> DEVICE norm_sums(const P &p, int first)
	{
		const int i = (int)threadIdx.x;
		channel = i < width && first + column_channel(i) < p.c_in ? first + column_channel(i) : -1;
		mean = channel >= 0 ? p.mean[channel] : 0;
		rstd = channel >= 0 ? p.rstd[channel] : 0;
	}
	template <class P> DEVICE void write(const P &p, const float *sums, int part) const
	{
		if (channel < 0)
			return;
		const float d = column_sum<width, row_warps>(sums, (int)threadIdx.x), d_y = column_sum<width, row_warps>(sums, width + (int)threadIdx.x);
		p.partial_sums[(size_t)part * 2 * p.c_in + channel] = d;
		p.partial_sums[((size_t)part * 2 + 1) * p.c_in + channel] = rstd * fmaf(-mean, d, d_y);
	}
};

/* Eight channels of a row of such a matrix: a word in each of four chunks. */
DEVICE void put_channels(unsigned char *panel, int row, int chunk, const vector16 &channels)
{
	UNROLL for (int j = 0; j < 4; j++)
		*(uint32_t *)(tile<PANEL>::chunk(panel, row, chunk / 4 * 4 + j) + chunk % 4 * 4) = channels.word[j];
}

/* A panel for threads that read it in two ways: a warp's lanes have one chunk of 32 rows, or four chunks of eight. wgmma does not know this one. */
DEVICE unsigned char *x_chunk(unsigned char *panel, int row, int chunk)
{
	const int turn = (row & 1) << 2 | (row >> 1 & 3);
	return panel + row * 128 + ((chunk ^ turn) << 4);
}

#ifdef __CUDACC__

/* Elsewhere a kernel's wgmma is left out, and nobody launches it: device_has_warpgroups(). */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAVE_WARPGROUPS true
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HAVE_WARPGROUPS false
#define WGMMA_ASM(...)
#endif

struct warpgroups_probe {
	int *have;
};

KERNEL warpgroups_probe_kernel(const warpgroups_probe p)
{
	begin_kernel();
	*p.have = HAVE_WARPGROUPS;
}

/* Is what runs here compiled for sm_90a? Asked of the code, not of the device: one of sm_90 also runs what was compiled for others (CUDA_ARCHS without
 * 90a, or PTX that the driver compiles: CUDA_FORCE_PTX_JIT). */
static inline bool device_has_warpgroups()
{
	warpgroups_probe p = {};
	int have = 0;
	if (device_alloc((void **)&p.have, sizeof have))
		return false;
	if (launch(warpgroups_probe_kernel, 1, 1, 0, nullptr, p) || device_download(&have, p.have, sizeof have, nullptr) || device_wait(nullptr))
		have = 0;
	device_free(p.have);
	return have;
}

/* A barrier for this thread's warpgroup alone. */
DEVICE void sync_warpgroup()
{
	asm volatile("bar.sync %0, %1;" :: "r"(1 + threadIdx.x / WARPGROUP), "n"((int)WARPGROUP) : "memory");
}

DEVICE uint64_t group_matrix(const void *start, int panel_bytes = 0)
{
	return matrix_words((uint32_t)__cvta_generic_to_shared(start), panel_bytes);
}

DEVICE uint64_t group_plain(const void *start, int k_bytes, int mn_bytes)
{
	return plain_words((uint32_t)__cvta_generic_to_shared(start), k_bytes, mn_bytes);
}

/* What this thread wrote to shared memory before it is there for products that begin after the next barrier. Waits for this thread's copies. */
DEVICE void async_fence()
{
	WGMMA_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Where the compiler has to have them now: uses before do not move behind, nor the other way round. */
template <int n> DEVICE void in_registers(float (&sums)[n][4])
{
	UNROLL for (int i = 0; i < n; i++)
		UNROLL for (int j = 0; j < 4; j++)
			asm volatile("" : "+f"(sums[i][j]) :: "memory");
}

template <int m, int n> DEVICE void in_registers(float (&sums)[m][n][4])
{
	UNROLL for (int i = 0; i < m; i++)
		in_registers(sums[i]);
}

/* Before the first product that adds to sums which this thread has touched, or uses their registers. */
template <class A> DEVICE void group_fence(A &sums)
{
	in_registers(sums);
	WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Before a product that reads what this thread has written to these registers; others that add to the same sums may be on their way. */
template <int n> DEVICE void group_fence_read(uint32_t (&read)[n][4])
{
	UNROLL for (int i = 0; i < n; i++)
		UNROLL for (int j = 0; j < 4; j++)
			asm volatile("" : "+r"(read[i][j]) :: "memory");
	WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void group_commit()
{
	WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all groups but the newest `left` are done; `sums` are those of one that is. */
template <int left, class A> DEVICE void group_wait(A &sums)
{
	WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
	in_registers(sums);
}

#define SUMS(HOW, i) HOW(d[i][0]), HOW(d[i][1]), HOW(d[i][2]), HOW(d[i][3])
#define FOUR_SUMS(HOW, i) SUMS(HOW, i), SUMS(HOW, i + 1), SUMS(HOW, i + 2), SUMS(HOW, i + 3)
#define EIGHT_SUMS(HOW, i) FOUR_SUMS(HOW, i), FOUR_SUMS(HOW, i + 4)
#define WORDS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WORDS_32 WORDS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WORDS_48 WORDS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WORDS_64 WORDS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* What a product reads of registers stays in these until it has been waited for: the compiler does not know that it is still read, which this tells it
 * after the wait. */
template <int n> DEVICE void still_needed(const uint32_t (&held)[n][4])
{
	UNROLL for (int i = 0; i < n; i++)
		asm volatile("" :: "r"(held[i][0]), "r"(held[i][1]), "r"(held[i][2]), "r"(held[i][3]) : "memory");
}

#define PRODUCT_64(TYPE, ADD, HOW)                                                                                                     \
	WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" WORDS_32 "}, %32, %33, " ADD ", 1, 1, %34, %35;" \
	             : EIGHT_SUMS(HOW, 0) : "l"(a), "l"(b), "n"(a_across), "n"(b_across) : "memory")
#define PRODUCT_128(TYPE, ADD, HOW)                                                                                                    \
	WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" WORDS_64 "}, %64, %65, " ADD ", 1, 1, %66, %67;" \
	             : EIGHT_SUMS(HOW, 0), EIGHT_SUMS(HOW, 8) : "l"(a), "l"(b), "n"(a_across), "n"(b_across) : "memory")
#define PRODUCTS(TYPE, ADD, HOW)                  \
	do {                                      \
		if constexpr (n8 == 8)            \
			PRODUCT_64(TYPE, ADD, HOW); \
		else                              \
			PRODUCT_128(TYPE, ADD, HOW); \
	} while (0)

/* d[64][8 · n8] = or += a[64][16] b[16][8 · n8] over a warpgroup: warp w has rows 16 w … of d, in them 8 columns at a time the fragments of mma.m16n8k16. */
template <class T, bool a_across, bool b_across, int n8> DEVICE void group_multiply(float (&d)[n8][4], uint64_t a, uint64_t b)
{
	static_assert(n8 == 8 || n8 == 16, "64 or 128 columns");
	if constexpr (__is_same(T, bf16))
		PRODUCTS("bf16", "0", "=f");
	else
		PRODUCTS("f16", "0", "=f");
}

template <class T, bool a_across, bool b_across, int n8> DEVICE void group_multiply_add(float (&d)[n8][4], uint64_t a, uint64_t b)
{
	static_assert(n8 == 8 || n8 == 16, "64 or 128 columns");
	if constexpr (__is_same(T, bf16))
		PRODUCTS("bf16", "1", "+f");
	else
		PRODUCTS("f16", "1", "+f");
}

/* The same with a in registers, warp w's rows as fragments of mma.m16n8k16; they must stay as they are until it is done: see still_needed(). None may be
 * on its way where a loop goes back to its start: ptxas (13.0, 13.5) forgets there that registers are still read, and gives them to others. */
#define PRODUCT_32_OF(TYPE)                                                                                                            \
	WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE " {" WORDS_16 "}, {%16, %17, %18, %19}, %20, 1, 1, 1, %21;" \
	          : FOUR_SUMS("+f", 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_across) : "memory")
#define PRODUCT_96_OF(TYPE)                                                                                                            \
	WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {" WORDS_48 "}, {%48, %49, %50, %51}, %52, 1, 1, 1, %53;" \
	          : EIGHT_SUMS("+f", 0), FOUR_SUMS("+f", 8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_across) : "memory")
#define PRODUCT_128_OF(TYPE)                                                                                                           \
	WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" WORDS_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, %69;" \
	          : EIGHT_SUMS("+f", 0), EIGHT_SUMS("+f", 8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_across) : "memory")

template <class T, bool b_across, int n8> DEVICE void group_multiply_add(float (&d)[n8][4], const uint32_t (&a)[4], uint64_t b)
{
	static_assert(n8 == 4 || n8 == 12 || n8 == 16, "32, 96 or 128 columns");
	if constexpr (n8 == 4 && __is_same(T, bf16))
		PRODUCT_32_OF("bf16");
	else if constexpr (n8 == 4)
		PRODUCT_32_OF("f16");
	else if constexpr (n8 == 12 && __is_same(T, bf16))
		PRODUCT_96_OF("bf16");
	else if constexpr (n8 == 12)
		PRODUCT_96_OF("f16");
	else if constexpr (__is_same(T, bf16))
		PRODUCT_128_OF("bf16");
	else
		PRODUCT_128_OF("f16");
}

#undef PRODUCT_128_OF
#undef PRODUCT_96_OF
#undef PRODUCT_32_OF
#undef PRODUCTS
#undef PRODUCT_128
#undef PRODUCT_64
#undef WORDS_64
#undef WORDS_48
#undef WORDS_32
#undef WORDS_16
#undef EIGHT_SUMS
#undef FOUR_SUMS
#undef SUMS

#endif

#endif
