/* SPDX-License-Identifier: Apache-2.0
 * Code between TARGET and TARGET_END is built for these instruction sets whatever the compiler's default is. Intrinsics' headers come before. */
#ifndef CPU_TARGET_H
#define CPU_TARGET_H

#define TARGET_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define TARGET(sets) TARGET_PRAGMA(clang attribute push(__attribute__((target(sets))), apply_to = function))
#define TARGET_END TARGET_PRAGMA(clang attribute pop)
#else
#define TARGET(sets) TARGET_PRAGMA(GCC target(sets))
#define TARGET_END
#endif

#endif
