// Runs a generic function with the C++ type that a floating tensor holds.
#pragma once

#include <type_traits>
#include <utility>

#include <c10/util/BFloat16.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

// Sums and transcendental functions run in float, in double for double.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

[[nodiscard]] inline at::ScalarType accumulator_type(at::ScalarType type) {
  return type == at::ScalarType::Double ? at::ScalarType::Double : at::ScalarType::Float;
}

// f(T{}) with T = float, double or c10::BFloat16. Raises model.15 for another type.
template <class F>
decltype(auto) dispatch_floating(at::ScalarType type, F&& f) {
  switch (type) {
    case at::ScalarType::Float:
      return std::forward<F>(f)(float{});
    case at::ScalarType::Double:
      return std::forward<F>(f)(double{});
    case at::ScalarType::BFloat16:
      return std::forward<F>(f)(c10::BFloat16{});
    default:
      core::raise("model", 15,
                  {.what = "the decoder cannot compute in this dtype",
                   .found = c10::toString(type),
                   .expected = "float32, float64 or bfloat16"});
  }
}

}  // namespace rlalgo::model::detail
