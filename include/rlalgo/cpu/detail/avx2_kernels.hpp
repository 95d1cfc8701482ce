// The kernels with AVX2 and FMA.
#pragma once

#if defined(__x86_64__)

#include <rlalgo/cpu/detail/avx2_int8.hpp>
#include <rlalgo/cpu/detail/avx2_registers.hpp>
#include <rlalgo/cpu/detail/instruction_set.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx2 {

namespace eight = avx2;
// Three heads by a page are twelve sums, and so are three rows of x by four of W: what hides the latency of the multiply-add.
inline constexpr int most_heads = 3, most_rows = 3;

}  // namespace rlalgo::cpu::avx2

#define RLALGO_CPU_SET avx2
RLALGO_CPU_BEGIN("avx2,fma")
#include <rlalgo/cpu/detail/kernels_body.hpp>
RLALGO_CPU_END
#undef RLALGO_CPU_SET

namespace rlalgo::cpu::avx2 {

inline constexpr Kernels kernels = table("avx2", linear_int8);

[[nodiscard]] inline bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace rlalgo::cpu::avx2

#endif
