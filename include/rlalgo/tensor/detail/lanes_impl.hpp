// Definitions of lanes.hpp.
#pragma once

#include <string_view>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/detail/forced_kernels.hpp>
#include <rlalgo/tensor/lanes.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE bool has_lanes() {
#if defined(__x86_64__)
  static const bool found = [] {
    const std::string_view name = detail::forced_kernels();
    return name != "portable" && name != "avx2" && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }();
  return found;
#else
  return false;
#endif
}

}  // namespace rlalgo::tensor
