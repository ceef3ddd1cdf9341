/* SPDX-License-Identifier: Apache-2.0
 * For every 64-bit ARM processor. */
#if defined __aarch64__
#include "engine/cpu/vec_neon.h"
#define ISA neon
#define ISA_NAME "NEON"
#include "engine/cpu/kernels_table.inc"
#endif
