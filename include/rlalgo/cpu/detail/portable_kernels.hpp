// The kernels in plain C++, for any machine.
#pragma once

#include <rlalgo/cpu/detail/instruction_set.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/detail/portable_int8.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/widen.hpp>

namespace rlalgo::cpu::portable {

namespace eight = portable;
inline constexpr int most_heads = 1, most_rows = 2;

}  // namespace rlalgo::cpu::portable

#define RLALGO_CPU_SET portable
#define RLALGO_CPU_LANES 8
#define RLALGO_CPU_FUSED 0
#include <rlalgo/cpu/detail/plain_registers.hpp>

#include <rlalgo/cpu/detail/kernels_body.hpp>
#undef RLALGO_CPU_FUSED
#undef RLALGO_CPU_LANES
#undef RLALGO_CPU_SET

namespace rlalgo::cpu::portable {

inline constexpr Kernels kernels = table("portable", linear_int8);

}  // namespace rlalgo::cpu::portable
