/* SPDX-License-Identifier: Apache-2.0
 * The reference engine in fp32. */
#define REFERENCE_KEEP_NAMES
#include "engine/reference/fp32.h"

#include "engine/reference/ops.inc"
#include "engine/reference/network.inc"
