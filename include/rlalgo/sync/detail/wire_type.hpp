// The type that a tensor has on its way to a server: its own where that is a float of 16 bits, else float32.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace rlalgo::sync::detail {

inline at::ScalarType wire_type(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? type : at::kFloat;
}

// As PyTorch calls it, without "torch.".
inline std::string type_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

}  // namespace rlalgo::sync::detail
