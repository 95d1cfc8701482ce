// The kernel table for this CPU, chosen at the first use.
#pragma once

#include <rlalgo/inference/detail/avx2_kernels.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/portable_kernels.hpp>

namespace rlalgo::inference::detail {

[[nodiscard]] inline const Kernels& best_kernels() {
#if defined(__x86_64__)
  static const bool avx2 = avx2::supported();
  if (avx2) return avx2::kernels;
#endif
  return portable::kernels;
}

}  // namespace rlalgo::inference::detail
