/* SPDX-License-Identifier: Apache-2.0
 * Built for AVX-512 whatever the compiler's default is; cpu_kernels_best() decides whether it runs. */
#if defined __x86_64__
#include <immintrin.h>

#include "engine/cpu/target.h"
#ifndef __clang__ /* whose attribute has no word for the width */
#pragma GCC target("prefer-vector-width=512")
#endif
TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma")
#include "engine/cpu/vec_avx512.h"
#else
#include "engine/cpu/vec_portable.h"
#endif
#define ISA avx512
#define ISA_NAME "AVX-512"
#include "engine/cpu/kernels_table.inc"
#if defined __x86_64__
TARGET_END
#endif

const struct cpu_kernels *cpu_kernels_best(void)
{
#if defined __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		return &cpu_kernels_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &cpu_kernels_avx2;
#elif defined __aarch64__
	return &cpu_kernels_neon;
#endif
	return &cpu_kernels_portable;
}
