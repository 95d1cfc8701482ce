// The set of kernels that RLALGO_CPU names; empty where it names none.
#pragma once

#include <cstdlib>
#include <string_view>

namespace rlalgo::tensor::detail {

[[nodiscard]] inline std::string_view forced_kernels() {
  const char* const set = std::getenv("RLALGO_CPU");
  return set == nullptr ? "" : set;
}

}  // namespace rlalgo::tensor::detail
