/* SPDX-License-Identifier: Apache-2.0
 * What a kernel's body may use beside plain C++: barriers, warp collectives, tensor cores and asynchronous copies.
 * nvcc turns these into PTX; for tests, tests/cuda/shim.h runs the same bodies on the CPU, lane by lane. */
#ifndef CUDA_LANE_H
#define CUDA_LANE_H

#include <cstddef>

#include "number.h"

#ifndef __CUDACC__
#include "shim.h"
#else

#define KERNEL static __global__ void
#define DEVICE __device__ __forceinline__
#define THREADS(threads, blocks_per_sm) __launch_bounds__(threads, blocks_per_sm)
#define UNROLL _Pragma("unroll")
#define UNROLL_FOUR _Pragma("unroll 4")
#define UNROLL_EIGHT _Pragma("unroll 8")
#define UNROLL_PAIR _Pragma("unroll 2") /* full unrolling would keep every address in a register */
/* Tensor cores with 16 × 8 × 16 products and asynchronous copies: the body of a kernel that needs them is left out before sm_80. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAVE_SM80 1
#endif
#define SERIAL _Pragma("unroll 1")

/* The block's dynamic shared memory, aligned as wgmma's swizzle wants it. */
DEVICE unsigned char *shared_memory()
{
	extern __shared__ __align__(1024) unsigned char bytes[];
	return bytes;
}

/* The first thing that a kernel does: where launches are early (device.h) the next kernel may take its places from now on, and this one, which
 * took them before the kernel in front of it was through, waits until that one's writes are there. Between the two halves a kernel may read what was there when its step
 * began: the weights' copy, which then does not keep it waiting (step.h's first kernel is not early, so no step begins before the update is through). */
DEVICE void begin_early_kernel()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEVICE void wait_for_writes()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void begin_kernel()
{
	begin_early_kernel();
	wait_for_writes();
}

DEVICE void sync_block()
{
	__syncthreads();
}

/* Value of the lane whose number differs in the bits of mask. */
DEVICE float shuffle_xor(float value, int mask)
{
	return __shfl_xor_sync(0xffffffffu, value, mask);
}

/* Value of lane `from`. */
DEVICE float shuffle_from(float value, int from)
{
	return __shfl_sync(0xffffffffu, value, from);
}

/* 1 / sqrt(value), to 2^-40 or so: much sooner than a root and a division in double. */
DEVICE double inverse_root(double value)
{
	float first;
	asm("rsqrt.approx.f32 %0, %1;" : "=f"(first) : "f"((float)value));
	return first * fma(-0.5 * value * first, (double)first, 1.5);
}

/* A value that is the same for all lanes, and known to be. */
DEVICE int one_for_warp(int value)
{
	return __shfl_sync(0xffffffffu, value, 0);
}

/* Four 8×8 matrices of 16-bit elements: lane 8i + r gives the address of row r (16 bytes) of matrix i and receives in
 * out[i] the pair at row lane / 4, columns 2 (lane % 4) and the next. */
DEVICE void load_matrices(uint32_t (&out)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
	             : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
	             : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

/* The same of the transposed matrices: out[i] is the pair at rows 2 (lane % 4) and the next, column lane / 4. */
DEVICE void load_matrices_transposed(uint32_t (&out)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
	             : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
	             : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

/* d[16][8] += a[16][16] b[16][8] over a warp, fragments as in PTX's mma.m16n8k16. */
template <class T> DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <> DEVICE void multiply_add<fp16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <> DEVICE void multiply_add<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes from device to shared memory; where !inside zeros, and nothing is read. There after copies_wait() and a barrier. */
DEVICE void copy_async(void *shared, const void *global, bool inside)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
	             :: "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(inside ? 16 : 0) : "memory");
}

/* Closes a group of this thread's copies. */
DEVICE void copies_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all of this thread's groups but the newest `left`. */
template <int left> DEVICE void copies_wait()
{
	asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory");
}

#endif

#endif
