// The bodies of cpu/detail over registers in plain C++, with the lanes of AVX2 and of AVX-512: their tiles, edges and bits on any machine.
#pragma once

#include <rlalgo/cpu/detail/instruction_set.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/detail/portable_int8.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/logit_rows.hpp>
#include <rlalgo/cpu/widen.hpp>

namespace rlalgo::cpu::plain8 {
namespace eight = plain8;
inline constexpr int most_heads = 3, most_rows = 3;
}  // namespace rlalgo::cpu::plain8

namespace rlalgo::cpu::plain16 {
namespace eight = plain8;
inline constexpr int most_heads = 4, most_rows = 6;
}  // namespace rlalgo::cpu::plain16

#define RLALGO_CPU_FUSED 1

#define RLALGO_CPU_SET plain8
#define RLALGO_CPU_LANES 8
#include <rlalgo/cpu/detail/plain_registers.hpp>

#include <rlalgo/cpu/detail/kernels_body.hpp>
#undef RLALGO_CPU_LANES
#undef RLALGO_CPU_SET

#define RLALGO_CPU_SET plain16
#define RLALGO_CPU_LANES 16
#include <rlalgo/cpu/detail/plain_registers.hpp>

#include <rlalgo/cpu/detail/kernels_body.hpp>

#include <rlalgo/cpu/detail/attention_rows_body.hpp>
#include <rlalgo/cpu/detail/logit_rows_body.hpp>
#include <rlalgo/cpu/detail/panel_product.hpp>
#undef RLALGO_CPU_LANES
#undef RLALGO_CPU_SET

#undef RLALGO_CPU_FUSED

namespace rlalgo::cpu {

extern const Kernels plain8_kernels, plain16_kernels;  // of plain_sets.cpp

}  // namespace rlalgo::cpu
