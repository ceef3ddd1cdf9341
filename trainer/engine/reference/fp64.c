/* SPDX-License-Identifier: Apache-2.0
 * The reference engine in fp64. */
#define REFERENCE_KEEP_NAMES
#include "engine/reference/fp64.h"

#include "engine/reference/ops.inc"
#include "engine/reference/network.inc"
