// AVX-512: float32 weights by panels of rows (panel_product.hpp), bfloat16 ones widened; norms and attention as with AVX2, to the bit.
#pragma once

#if defined(__x86_64__)

#include <rlalgo/cpu/detail/avx2_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_registers.hpp>
#include <rlalgo/cpu/detail/instruction_set.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx512 {

namespace eight = avx2;
inline constexpr int most_heads = 4, most_rows = 6;

}  // namespace rlalgo::cpu::avx512

#define RLALGO_CPU_SET avx512
RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl")
#include <rlalgo/cpu/detail/kernels_body.hpp>
#include <rlalgo/cpu/detail/panel_product.hpp>
RLALGO_CPU_END
#undef RLALGO_CPU_SET

namespace rlalgo::cpu::avx512 {

inline constexpr Kernels kernels = [] {
  Kernels all = table("avx512", avx2::linear_int8);
  all.linear_f32 = linear_by_panels;
  // Sums in eight lanes, and loads of what eight lanes have just stored.
  all.rms_norm = avx2::rms_norm;
  all.add = avx2::add;
  all.rotate = avx2::rotate;
  // Panels of fewer rows are slower where a core multiplies two registers at a time.
  all.rows_apart_f32 = widest_panel;
  return all;
}();

[[nodiscard]] inline bool supported() {
  return avx2::supported() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace rlalgo::cpu::avx512

#endif
