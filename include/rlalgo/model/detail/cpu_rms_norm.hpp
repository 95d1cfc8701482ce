// Root-mean-square normalisation on the CPU (operations.hpp has the formula): x [R, H], w [H], r [R].
//
// Stretches of rows are divided among threads. ∂w is summed in row order within a stretch, then over the stretches in order, which
// follow from R and H: it does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/detail/lane_rows.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

inline constexpr std::int64_t lanes = 16;

// Rows of a width that are worth a thread.
[[nodiscard]] inline std::int64_t stretch_of(std::int64_t width) {
  constexpr std::int64_t elements = 32768;
  return std::max<std::int64_t>(1, elements / width);
}

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

[[nodiscard]] inline RmsNormOutput rms_norm(const Tensor& x, const Tensor& weight, const NormSpec& norm) {
  const std::int64_t width = weight.size(0), rows = x.numel() / width;
  RmsNormOutput out{tensor::empty_like(x), tensor::empty({rows}, x.options().dtype(accumulator_type(x.scalar_type())))};
  dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* const all = x.const_data_ptr<T>();
    const T* const w = weight.const_data_ptr<T>();
    T* const out_rows = out.value.mutable_data_ptr<T>();
    A* const scale = out.scale.mutable_data_ptr<A>();
    const auto row = [&](std::int64_t r) {
      const T* const from = all + r * width;
      T* const to = out_rows + r * width;
      const auto scale_of = [&](A squares) {
        return A(1) / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(norm.epsilon));
      };
#if defined(__x86_64__)
      if constexpr (sizeof(T) <= sizeof(float)) {
        if (has_lane_rows<T>()) {
          scale[r] = scale_of(lane_rows::sum_of_squares(from, width));
          if (norm.unit_offset) return lane_rows::normalise<true, true>(from, w, scale[r], to, width);
          if (norm.rounded_once) return lane_rows::normalise<false, true>(from, w, scale[r], to, width);
          return lane_rows::normalise<false, false>(from, w, scale[r], to, width);
        }
      }
#endif
      const A s = scale_of(lane_sum<A>(width, [&](std::int64_t j) {
        const A v = static_cast<A>(from[j]);
        return v * v;
      }));
      scale[r] = s;
      for (std::int64_t j = 0; j < width; ++j) {
        const A unit = static_cast<A>(from[j]) * s;
        const A factor = static_cast<A>(w[j]) + (norm.unit_offset ? A(1) : A(0));
        to[j] = norm.once() ? static_cast<T>(unit * factor) : static_cast<T>(static_cast<T>(unit) * w[j]);
      }
    };
    tensor::on_stretches(rows, stretch_of(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) row(r);
    });
  });
  return out;
}

// Returns ∂x, added to `grad_x` when that is defined (the residual branch); adds ∂w to `grad_weight` [H] when defined.
[[nodiscard]] inline Tensor rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                              const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                              Tensor grad_weight) {
  const std::int64_t width = weight.size(0), rows = x.numel() / width;
  const bool add = grad_x.defined();
  if (!add) grad_x = tensor::empty_like(x);
  dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* const w = weight.const_data_ptr<T>();
    const T* const grads = grad_y.const_data_ptr<T>();
    const T* const all = x.const_data_ptr<T>();
    const A* const scales = scale.const_data_ptr<A>();
    T* const out_rows = grad_x.mutable_data_ptr<T>();
    const std::int64_t stretch = stretch_of(width), stretches = (rows + stretch - 1) / stretch;
    std::vector<A> sums(grad_weight.defined() ? static_cast<std::size_t>(stretches * width) : 0);
    const A offset = norm.unit_offset ? A(1) : A(0);
    const auto one = [&](std::int64_t r, A* sum) {
      const T* const g = grads + r * width;
      const T* const from = all + r * width;
      T* const to = out_rows + r * width;
      const A s = scales[r];
      const auto pull_of = [&](A dot) { return dot * s * s * s / static_cast<A>(width); };
#if defined(__x86_64__)
      if constexpr (sizeof(T) <= sizeof(float)) {
        if (has_lane_rows<T>()) {
          if (norm.unit_offset)
            return lane_rows::pull_back<true>(w, g, from, s, pull_of(lane_rows::weighted_dot<true>(w, g, from, width)),
                                              add, to, sum, width);
          return lane_rows::pull_back<false>(w, g, from, s, pull_of(lane_rows::weighted_dot<false>(w, g, from, width)),
                                             add, to, sum, width);
        }
      }
#endif
      const A pull = pull_of(lane_sum<A>(width, [&](std::int64_t j) {
        return (offset + static_cast<A>(w[j])) * static_cast<A>(g[j]) * static_cast<A>(from[j]);
      }));
      for (std::int64_t j = 0; j < width; ++j) {
        const A change = (offset + static_cast<A>(w[j])) * static_cast<A>(g[j]) * s - static_cast<A>(from[j]) * pull;
        to[j] = static_cast<T>(add ? static_cast<A>(to[j]) + change : change);
      }
      if (sum != nullptr)
        for (std::int64_t j = 0; j < width; ++j) sum[j] += static_cast<A>(g[j]) * static_cast<A>(from[j]) * s;
    };
    tensor::on_stretches(rows, stretch, [&](std::int64_t begin, std::int64_t end) {
      A* const sum = sums.empty() ? nullptr : sums.data() + begin / stretch * width;
      for (std::int64_t r = begin; r < end; ++r) one(r, sum);
    });
    if (grad_weight.defined()) {
      T* const d = grad_weight.mutable_data_ptr<T>();
      for (std::int64_t j = 0; j < width; ++j) {
        A sum = 0;
        for (std::int64_t i = 0; i < stretches; ++i) sum += sums[static_cast<std::size_t>(i * width + j)];
        d[j] = static_cast<T>(static_cast<A>(d[j]) + sum);
      }
    }
  });
  return grad_x;
}

}  // namespace rlalgo::model::detail
