/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFERENCE_FP64_H
#define REFERENCE_FP64_H

#include "engine/backend.h"

#define REAL double
#define NAME(name) reference_##name##_fp64
#include "engine/reference/ops.h"
int NAME(open)(struct engine **engine, const struct engine_conf *conf, struct error *e);
#ifndef REFERENCE_KEEP_NAMES
#undef REAL
#undef NAME
#endif

#endif
