/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFERENCE_FP32_H
#define REFERENCE_FP32_H

#include "engine/backend.h"

#define REAL float
#define NAME(name) reference_##name##_fp32
#include "engine/reference/ops.h"
int NAME(open)(struct engine **engine, const struct engine_conf *conf, struct error *e);
#ifndef REFERENCE_KEEP_NAMES
#undef REAL
#undef NAME
#endif

#endif
