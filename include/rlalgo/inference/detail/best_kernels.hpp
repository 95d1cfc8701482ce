// The kernel table for this CPU.
#pragma once

#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/portable_kernels.hpp>

namespace rlalgo::inference::detail {

[[nodiscard]] inline const Kernels& best_kernels() { return portable::kernels; }

}  // namespace rlalgo::inference::detail
