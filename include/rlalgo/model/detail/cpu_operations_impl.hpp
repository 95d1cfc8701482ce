// Definitions of cpu_operations.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/cpu_operations.hpp>
#include <rlalgo/model/detail/cpu_attention.hpp>
#include <rlalgo/model/detail/cpu_rms_norm.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/detail/dropout_words.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

RLALGO_INLINE void CpuOperations::add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const {
  detail::dispatch_floating(grad.scalar_type(), [&]<class T>(T) {
    const std::int64_t width = gradient.size(1), count = index.size(0);
    const auto* ids = index.const_data_ptr<std::int64_t>();
    const T* from = grad.const_data_ptr<T>();
    T* to = gradient.mutable_data_ptr<T>();
    for (std::int64_t n = 0; n < count; ++n, from += width) {
      T* row = to + ids[n] * width;
      for (std::int64_t i = 0; i < width; ++i) row[i] = static_cast<T>(row[i] + from[i]);
    }
  });
}

RLALGO_INLINE RmsNormOutput CpuOperations::rms_norm(const Tensor& x, const Tensor& weight, double epsilon) const {
  return detail::rms_norm(x, weight, epsilon);
}

RLALGO_INLINE Tensor CpuOperations::rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                      const Tensor& scale, Tensor grad_x, Tensor grad_weight) const {
  return detail::rms_norm_backward(grad_y, x, weight, scale, std::move(grad_x), std::move(grad_weight));
}

RLALGO_INLINE void CpuOperations::rotate(Tensor& x, const RopeTable& table, Rotation rotation) const {
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1);
  if (tokens == 0) return;
  const std::int64_t heads = x.numel() / (tokens * 2 * half);
  detail::dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = detail::Accumulator<T>;
    T* data = x.mutable_data_ptr<T>();
    const float* c = table.cosine.const_data_ptr<float>();
    const float* s = table.sine.const_data_ptr<float>();
    const A sign = rotation == Rotation::forward ? A(1) : A(-1);
    for (std::int64_t t = 0; t < tokens; ++t, c += half, s += half) {
      for (std::int64_t h = 0; h < heads; ++h, data += 2 * half) {
        for (std::int64_t i = 0; i < half; ++i) {
          const A low = static_cast<A>(data[i]), high = static_cast<A>(data[i + half]);
          const A cosine = static_cast<A>(c[i]), sine = sign * static_cast<A>(s[i]);
          data[i] = static_cast<T>(low * cosine - high * sine);
          data[i + half] = static_cast<T>(high * cosine + low * sine);
        }
      }
    }
  });
}

RLALGO_INLINE AttentionOutput CpuOperations::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                       const AttentionLayout& layout) const {
  return detail::attention_forward(q, k, v, layout.plan);
}

RLALGO_INLINE AttentionGradient CpuOperations::attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                  const Tensor& v, const AttentionOutput& out,
                                                                  const AttentionLayout& layout) const {
  return detail::attention_backward(grad, q, k, v, out, layout.plan);
}

RLALGO_INLINE void CpuOperations::attend_further(const Tensor& q, const Tensor& k, const Tensor& v,
                                                 const AttentionLayout& layout, AttentionOutput& out) const {
  detail::merge_cross_pieces(q, k, v, layout.plan, out);
}

RLALGO_INLINE void CpuOperations::attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                          const Tensor& v, const AttentionOutput& out,
                                                          const AttentionLayout& layout, AttentionGradient& sum) const {
  detail::add_cross_gradients(grad, q, k, v, out, layout.plan, sum);
}

RLALGO_INLINE Tensor CpuOperations::dropout(const Tensor& x, const DropoutMask& mask) const {
  const Tensor contiguous = x.contiguous();
  Tensor out = tensor::empty_like(contiguous);
  detail::dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    const T* from = contiguous.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    const auto keep = static_cast<detail::Accumulator<T>>(1.0 / (1.0 - mask.probability));
    detail::visit_dropout(mask, static_cast<std::uint64_t>(contiguous.numel()),
                          static_cast<std::uint64_t>(contiguous.size(-1)), [&](std::uint64_t i, bool dropped) {
                            to[i] =
                                dropped ? T(0) : static_cast<T>(static_cast<detail::Accumulator<T>>(from[i]) * keep);
                          });
  });
  return out;
}

}  // namespace rlalgo::model
