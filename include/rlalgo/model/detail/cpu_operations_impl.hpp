// Definitions of cpu_operations.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/cpu_operations.hpp>
#include <rlalgo/model/detail/cpu_attention.hpp>
#include <rlalgo/model/detail/cpu_rms_norm.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/detail/dropout_words.hpp>
#include <rlalgo/model/detail/gated.hpp>
#include <rlalgo/model/detail/lane_rows.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>
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

namespace detail {

// For what has no loop of its own here.
[[nodiscard]] inline const AtenOperations& by_aten() {
  static const AtenOperations operations;
  return operations;
}

}  // namespace detail

RLALGO_INLINE RmsNormOutput CpuOperations::rms_norm(const Tensor& x, const Tensor& weight, const NormSpec& norm) const {
  if (norm.centred) return detail::by_aten().rms_norm(x, weight, norm);
  return detail::rms_norm(x, weight, norm);
}

RLALGO_INLINE Tensor CpuOperations::rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                      const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                      Tensor grad_weight) const {
  if (norm.centred)
    return detail::by_aten().rms_norm_backward(grad_y, x, weight, norm, scale, std::move(grad_x),
                                               std::move(grad_weight));
  return detail::rms_norm_backward(grad_y, x, weight, norm, scale, std::move(grad_x), std::move(grad_weight));
}

RLALGO_INLINE void CpuOperations::rotate(Tensor& x, const RopeTable& table, Rotation rotation) const {
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1);
  if (tokens == 0) return;
  const std::int64_t width = x.size(-1), heads = x.numel() / (tokens * width);
  detail::dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = detail::Accumulator<T>;
    T* const data = x.mutable_data_ptr<T>();
    const float* const cosines = table.cosine.const_data_ptr<float>();
    const float* const sines = table.sine.const_data_ptr<float>();
    const A sign = rotation == Rotation::forward ? A(1) : A(-1);
    const auto rotate_pair = [&](T& low, T& high, float c, float s) {
      const A a = static_cast<A>(low), b = static_cast<A>(high), cosine = static_cast<A>(c),
              sine = sign * static_cast<A>(s);
      low = static_cast<T>(a * cosine - b * sine);
      high = static_cast<T>(b * cosine + a * sine);
    };
    const auto rotate_head = [&](T* low, const float* c, const float* s) {
      if (table.interleaved) {
        for (std::int64_t i = 0; i < half; ++i) rotate_pair(low[2 * i], low[2 * i + 1], c[i], s[i]);
        return;
      }
      T* const high = low + half;
#if defined(__x86_64__)
      if constexpr (sizeof(T) <= sizeof(float)) {
        if (detail::has_lane_rows<T>()) return detail::lane_rows::rotate(low, high, c, s, sign, half);
      }
#endif
      for (std::int64_t i = 0; i < half; ++i) rotate_pair(low[i], high[i], c[i], s[i]);
    };
    tensor::on_stretches(tokens, detail::stretch_of(heads * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          rotate_head(data + (t * heads + h) * width, cosines + t * half, sines + t * half);
    });
  });
}

namespace detail {

// f(T{}, begin, count) for stretches of n elements of a type T that has sixteen lanes here; else false.
template <class F>
bool on_lanes(at::ScalarType type, std::int64_t n, const F& f) {
  if (!cpu::has_lanes() || (type != at::kFloat && type != at::kBFloat16)) return false;
  tensor::on_stretches(n, stretch_of(1), [&](std::int64_t begin, std::int64_t end) {
    type == at::kFloat ? f(float{}, begin, end - begin) : f(c10::BFloat16{}, begin, end - begin);
  });
  return true;
}

}  // namespace detail

RLALGO_INLINE void CpuOperations::gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) const {
#if defined(__x86_64__)
  const auto stretch = [&]<class T>(T, std::int64_t begin, std::int64_t count) {
    const T *const g = gate.const_data_ptr<T>() + begin, *const u = up.const_data_ptr<T>() + begin;
    T* const to = out.mutable_data_ptr<T>() + begin;
    act == Activation::silu ? detail::lane_rows::gated<detail::lane_rows::Silu>(g, u, to, count)
                            : detail::lane_rows::gated<detail::lane_rows::GeluTanh>(g, u, to, count);
  };
  if (detail::on_lanes(gate.scalar_type(), gate.numel(), stretch)) return;
#endif
  detail::gated(act, gate, up, out);
}

RLALGO_INLINE void CpuOperations::gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                                 const Tensor& up) const {
#if defined(__x86_64__)
  const auto stretch = [&]<class T>(T, std::int64_t begin, std::int64_t count) {
    const T* const from = grad.const_data_ptr<T>() + begin;
    T *const g = gate.mutable_data_ptr<T>() + begin, *const u = up.mutable_data_ptr<T>() + begin;
    act == Activation::silu ? detail::lane_rows::gated_backward<detail::lane_rows::Silu>(from, g, u, count)
                            : detail::lane_rows::gated_backward<detail::lane_rows::GeluTanh>(from, g, u, count);
  };
  if (detail::on_lanes(gate.scalar_type(), gate.numel(), stretch)) return;
#endif
  detail::gated_backward(act, grad, gate, up);
}

namespace detail {

// ATen's blocked attention knows no cap of scores; AtenOperations compute it piece by piece where we have no kernels.
[[nodiscard]] inline bool lacks_cap(const Tensor& q, const AttentionLayout& layout) {
  return layout.cap > 0.0 && !tensor::has_attention(q.scalar_type());
}

[[nodiscard]] inline AttentionLayout laid_out(const AttentionLayout& layout) {
  AttentionLayout out = by_aten().lay_out(layout.plan, at::kCPU);
  out.scale = layout.scale;
  out.cap = layout.cap;
  return out;
}

}  // namespace detail

RLALGO_INLINE AttentionOutput CpuOperations::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                       const AttentionLayout& layout) const {
  if (detail::lacks_cap(q, layout)) return detail::by_aten().attention(q, k, v, detail::laid_out(layout));
  return detail::attention_forward(q, k, v, layout);
}

RLALGO_INLINE AttentionGradient CpuOperations::attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                  const Tensor& v, const AttentionOutput& out,
                                                                  const AttentionLayout& layout) const {
  if (detail::lacks_cap(q, layout))
    return detail::by_aten().attention_backward(grad, q, k, v, out, detail::laid_out(layout));
  return detail::attention_backward(grad, q, k, v, out, layout);
}

RLALGO_INLINE void CpuOperations::attend_further(const Tensor& q, const Tensor& k, const Tensor& v,
                                                 const AttentionLayout& layout, AttentionOutput& out) const {
  if (detail::lacks_cap(q, layout)) return detail::by_aten().attend_further(q, k, v, detail::laid_out(layout), out);
  detail::merge_cross_pieces(q, k, v, layout, out);
}

RLALGO_INLINE void CpuOperations::attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                          const Tensor& v, const AttentionOutput& out,
                                                          const AttentionLayout& layout, AttentionGradient& sum) const {
  if (detail::lacks_cap(q, layout))
    return detail::by_aten().attend_further_backward(grad, q, k, v, out, detail::laid_out(layout), sum);
  detail::add_cross_gradients(grad, q, k, v, out, layout, sum);
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
