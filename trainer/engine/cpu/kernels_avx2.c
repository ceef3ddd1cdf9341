/* SPDX-License-Identifier: Apache-2.0
 * Built for AVX2 whatever the compiler's default is; cpu_kernels_best() decides whether it runs. */
#if defined __x86_64__
#include <immintrin.h>

#include "engine/cpu/target.h"
TARGET("avx2,fma")
#include "engine/cpu/vec_avx2.h"
#else
#include "engine/cpu/vec_portable.h"
#endif
#define ISA avx2
#define ISA_NAME "AVX2"
#include "engine/cpu/kernels_table.inc"
#if defined __x86_64__
TARGET_END
#endif
