// Root-mean-square normalisation on the CPU (operations.hpp has the formula): x [R, H], w [H], r [R].
//
// ∂w is summed in row order, so that it does not depend on the number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

inline constexpr std::int64_t lanes = 16;

// Σ f(j) over [0, n) with independent partial sums, which a compiler may keep in vector registers.
template <class A, class F>
A lane_sum(std::int64_t n, F&& f) {
  A partial[lanes] = {};
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) partial[l] += f(j + l);
  A total = 0;
  for (std::int64_t l = 0; l < lanes; ++l) total += partial[l];
  for (; j < n; ++j) total += f(j);
  return total;
}

[[nodiscard]] inline RmsNormOutput rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  const std::int64_t width = weight.size(0), rows = x.numel() / width;
  RmsNormOutput out{tensor::empty_like(x), tensor::empty({rows}, x.options().dtype(accumulator_type(x.scalar_type())))};
  dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* from = x.const_data_ptr<T>();
    const T* w = weight.const_data_ptr<T>();
    T* to = out.value.mutable_data_ptr<T>();
    A* scale = out.scale.mutable_data_ptr<A>();
    for (std::int64_t r = 0; r < rows; ++r, from += width, to += width) {
      const A squares = lane_sum<A>(width, [&](std::int64_t j) {
        const A v = static_cast<A>(from[j]);
        return v * v;
      });
      const A s = A(1) / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(epsilon));
      scale[r] = s;
      for (std::int64_t j = 0; j < width; ++j)
        to[j] = static_cast<T>(static_cast<T>(static_cast<A>(from[j]) * s) * w[j]);
    }
  });
  return out;
}

// Returns ∂x, added to `grad_x` when that is defined (the residual branch); adds ∂w to `grad_weight` [H] when defined.
[[nodiscard]] inline Tensor rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                              const Tensor& scale, Tensor grad_x, Tensor grad_weight) {
  const std::int64_t width = weight.size(0), rows = x.numel() / width;
  const bool add = grad_x.defined();
  if (!add) grad_x = tensor::empty_like(x);
  dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* g = grad_y.const_data_ptr<T>();
    const T* from = x.const_data_ptr<T>();
    const T* w = weight.const_data_ptr<T>();
    const A* r = scale.const_data_ptr<A>();
    T* to = grad_x.mutable_data_ptr<T>();
    std::vector<A> sum(grad_weight.defined() ? static_cast<std::size_t>(width) : 0);
    for (std::int64_t row = 0; row < rows; ++row, g += width, from += width, to += width) {
      const A s = r[row];
      const A dot = lane_sum<A>(
          width, [&](std::int64_t j) { return static_cast<A>(w[j]) * static_cast<A>(g[j]) * static_cast<A>(from[j]); });
      const A pull = dot * s * s * s / static_cast<A>(width);
      if (add) {
        for (std::int64_t j = 0; j < width; ++j)
          to[j] = static_cast<T>(static_cast<A>(to[j]) + static_cast<A>(w[j]) * static_cast<A>(g[j]) * s -
                                 static_cast<A>(from[j]) * pull);
      } else {
        for (std::int64_t j = 0; j < width; ++j)
          to[j] = static_cast<T>(static_cast<A>(w[j]) * static_cast<A>(g[j]) * s - static_cast<A>(from[j]) * pull);
      }
      if (!sum.empty()) {
        A* d = sum.data();
        for (std::int64_t j = 0; j < width; ++j) d[j] += static_cast<A>(g[j]) * static_cast<A>(from[j]) * s;
      }
    }
    if (grad_weight.defined()) {
      T* d = grad_weight.mutable_data_ptr<T>();
      for (std::int64_t j = 0; j < width; ++j)
        d[j] = static_cast<T>(static_cast<A>(d[j]) + sum[static_cast<std::size_t>(j)]);
    }
  });
  return grad_x;
}

}  // namespace rlalgo::model::detail
