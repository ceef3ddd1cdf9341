/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/vec_portable.h"
#define ISA portable
#define ISA_NAME "plain C"
#include "engine/cpu/kernels_table.inc"
