// What the bodies of kernels need that are compiled once for each instruction set, and how they are.
//
// A body (exponentials.hpp, row_kernels.hpp, page_attention.hpp, strip_tile.hpp, panel_product.hpp) is written over registers: `Floats`, `count` of them, and the operations that
// plain_registers.hpp describes. A set is a namespace that has registers and includes the bodies:
//
//   #define RLALGO_CPU_SET avx2                  the namespace
//   RLALGO_CPU_BEGIN("avx2,fma")                 functions up to RLALGO_CPU_END are compiled for these features
//   #include <rlalgo/cpu/detail/row_kernels.hpp>
//   RLALGO_CPU_END
//   #undef RLALGO_CPU_SET
//
// (A function of a set may be inlined only into one that has its features, so a template over a type of registers would not do.)
// A body includes nothing: what it includes would be compiled for those features as well. The header of a set does that before.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define RLALGO_CPU_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define RLALGO_CPU_BEGIN(features) \
  RLALGO_CPU_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define RLALGO_CPU_END RLALGO_CPU_PRAGMA(clang attribute pop)
#else
#define RLALGO_CPU_BEGIN(features)    \
  RLALGO_CPU_PRAGMA(GCC push_options) \
  RLALGO_CPU_PRAGMA(GCC target(features))
#define RLALGO_CPU_END RLALGO_CPU_PRAGMA(GCC pop_options)
#endif

// An operation on registers: what holds the sums of a kernel must not leave its registers to call it.
#define RLALGO_CPU_OPERATION [[gnu::always_inline]] inline
