// Attention over a token tree on the CPU: ATen's blocked kernel (Dao et al., arXiv 2205.14135, which never holds a
// score matrix) computes the pieces of the plan, and they are merged.
//
// With partial results (o_a, ℓ_a), (o_b, ℓ_b), ℓ the log-sum-exp of the scores,
//   ℓ = log(e^{ℓ_a} + e^{ℓ_b}),   o = e^{ℓ_a − ℓ} o_a + e^{ℓ_b − ℓ} o_b.
// The backward pass of each piece with the merged o and ℓ is exactly that piece's share of the gradient.
//
// Shapes: q [T, n, D], k and v [T, kv, D], contiguous; o [T, n, D]; ℓ [T, n] in float (double for double).
// Dtypes: float32, float64, bfloat16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/attention.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

struct HeadShape {
  std::int64_t heads, kv_heads, width;
  [[nodiscard]] std::int64_t group() const { return heads / kv_heads; }
};

[[nodiscard]] inline HeadShape head_shape(const Tensor& q, const Tensor& k) {
  return {q.size(1), k.size(1), q.size(2)};
}

// Tokens [begin, begin + count) of x [T, heads, D] as [kv, group, count, D]; keys and values repeat over the group with
// stride 0.
[[nodiscard]] inline Tensor heads_view(const Tensor& x, const HeadShape& s, std::int64_t begin, std::int64_t count) {
  const std::int64_t row = x.size(1) * s.width;
  const bool keys = x.size(1) == s.kv_heads;
  const std::int64_t step = keys ? s.width : s.group() * s.width;
  return x.as_strided({s.kv_heads, s.group(), count, s.width}, {step, keys ? 0 : s.width, row, 1},
                      x.storage_offset() + begin * row);
}

// ℓ [T, n] in the same arrangement, [kv, group, count].
[[nodiscard]] inline Tensor log_sum_view(const Tensor& x, const HeadShape& s, std::int64_t begin, std::int64_t count) {
  return x.as_strided({s.kv_heads, s.group(), count}, {s.group(), 1, s.heads}, x.storage_offset() + begin * s.heads);
}

// 0 where query i of a masked piece sees key j, else −∞; undefined for a piece without mask.
[[nodiscard]] inline std::optional<Tensor> window_mask(const AttentionPlan::Cross& piece, const Tensor& like) {
  if (!piece.masked) return std::nullopt;
  const std::int64_t queries = piece.query_end - piece.query_begin, keys = piece.key_end - piece.key_begin;
  Tensor mask = tensor::empty({queries, keys}, like.options());
  dispatch_floating(like.scalar_type(), [&]<class T>(T) {
    T* to = mask.mutable_data_ptr<T>();
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        *to++ = j > i + piece.offset ? T(0) : static_cast<T>(-std::numeric_limits<float>::infinity());
  });
  return mask;
}

enum class Padding { repeat_last, zero };

// The segments of a padded piece as [B·kv, group, L, D], copied. The padding repeats the last token: a padded query
// then has the finite scores of a real one, and no real query sees a padded key.
[[nodiscard]] inline Tensor gather_padded(const Tensor& x, const HeadShape& s, const AttentionPlan::Own& own,
                                          Padding padding) {
  const std::int64_t heads = x.size(1), width = x.size(2), length = own.length;
  const auto batch = static_cast<std::int64_t>(own.begins.size());
  const Tensor out = tensor::empty({batch, heads, length, width}, x.options());
  const std::size_t bytes = static_cast<std::size_t>(width) * x.element_size();
  const char* from = static_cast<const char*>(x.const_data_ptr());
  char* to = static_cast<char*>(out.mutable_data_ptr());
  for (std::size_t b = 0; b < own.begins.size(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t l = 0; l < length; ++l, to += bytes) {
        const bool real = l < own.sizes[b];
        if (real || padding == Padding::repeat_last) {
          const std::int64_t token = own.begins[b] + (real ? l : own.sizes[b] - 1);
          std::memcpy(to, from + static_cast<std::size_t>(token * heads + h) * bytes, bytes);
        } else {
          std::memset(to, 0, bytes);  // zero in every floating type
        }
      }
    }
  }
  const bool keys = heads == s.kv_heads;
  return out.as_strided({batch * s.kv_heads, s.group(), length, width},
                        {(keys ? 1 : s.group()) * length * width, keys ? 0 : length * width, width, 1});
}

[[nodiscard]] inline Tensor gather_padded_log_sum(const Tensor& x, const HeadShape& s, const AttentionPlan::Own& own) {
  const auto batch = static_cast<std::int64_t>(own.begins.size());
  // [T, n] gathered as one value per head, [B, n, L, 1].
  const HeadShape each{s.heads, s.heads, 1};
  return gather_padded(x.unsqueeze(2), each, own, Padding::repeat_last)
      .view({batch * s.kv_heads, s.group(), own.length});
}

// The token rows of a piece: entry b of its batch holds `sizes[b]` tokens from `begins[b]`.
struct PieceRows {
  std::vector<std::int64_t> begins, sizes;
};

// Writes a piece's result [B·kv, group, L, D] to rows of `out`; with `merge`, into what is there by log-sum-exp.
inline void store_piece(const Tensor& value, const Tensor& log_sum, const HeadShape& s, const PieceRows& rows,
                        bool merge, AttentionOutput& out) {
  dispatch_floating(out.value.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* from = value.const_data_ptr<T>();
    const A* from_sum = log_sum.const_data_ptr<A>();
    T* to = out.value.mutable_data_ptr<T>();
    A* to_sum = out.log_sum.mutable_data_ptr<A>();
    const std::int64_t vb = value.stride(0), vg = value.stride(1), vl = value.stride(2);
    const std::int64_t lb = log_sum.stride(0), lg = log_sum.stride(1), ll = log_sum.stride(2);
    for (std::size_t b = 0; b < rows.begins.size(); ++b) {
      for (std::int64_t l = 0; l < rows.sizes[b]; ++l) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const std::int64_t batch = static_cast<std::int64_t>(b) * s.kv_heads + h / s.group(), g = h % s.group();
          const T* source = from + batch * vb + g * vg + l * vl;
          const A source_sum = from_sum[batch * lb + g * lg + l * ll];
          const std::int64_t row = (rows.begins[b] + l) * s.heads + h;
          T* target = to + row * s.width;
          if (!merge) {
            std::copy(source, source + s.width, target);
            to_sum[row] = source_sum;
            continue;
          }
          const A top = std::max(source_sum, to_sum[row]);
          const A theirs = std::exp(source_sum - top), ours = std::exp(to_sum[row] - top), total = theirs + ours;
          const A a = theirs / total, c = ours / total;
          for (std::int64_t i = 0; i < s.width; ++i)
            target[i] = static_cast<T>(a * static_cast<A>(source[i]) + c * static_cast<A>(target[i]));
          to_sum[row] = top + std::log(total);
        }
      }
    }
  });
}

// Adds a piece's gradient [B·kv, group, L, D] to rows of `out` [T, heads, D]; keys and values sum over the group.
inline void add_piece(const Tensor& gradient, const HeadShape& s, const PieceRows& rows, bool add, Tensor& out) {
  const std::int64_t heads = out.size(1);
  const std::int64_t group = s.group(), per_head = heads == s.kv_heads ? group : 1;
  dispatch_floating(out.scalar_type(), [&]<class T>(T) {
    using A = Accumulator<T>;
    const T* from = gradient.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    const std::int64_t gb = gradient.stride(0), gg = gradient.stride(1), gl = gradient.stride(2);
    for (std::size_t b = 0; b < rows.begins.size(); ++b) {
      for (std::int64_t l = 0; l < rows.sizes[b]; ++l) {
        T* target = to + (rows.begins[b] + l) * heads * s.width;
        for (std::int64_t h = 0; h < heads; ++h, target += s.width) {
          const std::int64_t batch = static_cast<std::int64_t>(b) * s.kv_heads + (per_head == 1 ? h / group : h);
          const T* source = from + batch * gb + (per_head == 1 ? h % group : 0) * gg + l * gl;
          for (std::int64_t r = 0; r < per_head; ++r, source += gg) {
            if (add || r > 0) {
              for (std::int64_t i = 0; i < s.width; ++i)
                target[i] = static_cast<T>(static_cast<A>(target[i]) + static_cast<A>(source[i]));
            } else {
              std::copy(source, source + s.width, target);
            }
          }
        }
      }
    }
  });
}

// LibTorch's attention in bfloat16 asks oneDNN for a kernel once a block of every head, which costs short pieces more than their
// arithmetic: these are computed in float32 (the backward pass 2 to 5 times as fast below 200 tokens, as fast at 512; beyond that
// bfloat16 is ahead).
[[nodiscard]] inline bool widens(const Tensor& q, std::int64_t length) {
  return q.scalar_type() == at::kBFloat16 && length < 512;
}

[[nodiscard]] inline Tensor widened(const Tensor& x, bool wide) { return wide ? x.to(at::kFloat) : x; }

// What ATen takes for 1/√D where it is not given.
[[nodiscard]] inline std::optional<double> given_scale(const AttentionLayout& layout) {
  return layout.scale != 0.0 ? std::optional(layout.scale) : std::nullopt;
}

[[nodiscard]] inline std::vector<tensor::AttentionPiece> cross_pieces(const AttentionPlan& plan) {
  using Sees = tensor::AttentionPiece::Sees;
  std::vector<tensor::AttentionPiece> out;
  for (const auto& c : plan.cross)
    out.push_back({c.query_begin, c.query_end, c.key_begin, c.key_end, c.masked ? Sees::after : Sees::all, c.offset});
  return out;
}

[[nodiscard]] inline std::vector<tensor::AttentionPiece> all_pieces(const AttentionPlan& plan) {
  std::vector<tensor::AttentionPiece> out;
  for (const auto& own : plan.own)
    for (std::size_t b = 0; b < own.begins.size(); ++b) {
      const std::int64_t begin = own.begins[b], end = begin + own.sizes[b];
      out.push_back({begin, end, begin, end, tensor::AttentionPiece::Sees::causal});
    }
  for (const auto& cross : cross_pieces(plan)) out.push_back(cross);
  return out;
}

inline void merge_cross_pieces(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionLayout& layout,
                               AttentionOutput& out) {
  const AttentionPlan& plan = layout.plan;
  if (tensor::has_attention(q.scalar_type()))
    return tensor::attend({q, k, v, layout.scale, layout.cap}, cross_pieces(plan), true, out.value, out.log_sum);
  const HeadShape s = head_shape(q, k);
  for (const auto& c : plan.cross) {
    const std::int64_t queries = c.query_end - c.query_begin, keys = c.key_end - c.key_begin;
    const bool wide = widens(q, std::max(queries, keys));
    const Tensor own = widened(heads_view(q, s, c.query_begin, queries), wide);
    const auto [value, log_sum] = at::_ops::_scaled_dot_product_flash_attention_for_cpu::call(
        own, widened(heads_view(k, s, c.key_begin, keys), wide), widened(heads_view(v, s, c.key_begin, keys), wide),
        0.0, false, window_mask(c, own), given_scale(layout));
    store_piece(value.to(q.scalar_type()), log_sum, s, {{c.query_begin}, {queries}}, true, out);
  }
}

inline void add_cross_gradients(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                const AttentionOutput& out, const AttentionLayout& layout, AttentionGradient& sum) {
  const AttentionPlan& plan = layout.plan;
  if (tensor::has_attention(q.scalar_type()))
    return tensor::attend_backward(grad, {q, k, v, layout.scale, layout.cap}, out.value, out.log_sum,
                                   cross_pieces(plan), true, {sum.q, sum.k, sum.v});
  const HeadShape s = head_shape(q, k);
  for (const auto& c : plan.cross) {
    const std::int64_t queries = c.query_end - c.query_begin, keys = c.key_end - c.key_begin;
    const bool wide = widens(q, std::max(queries, keys));
    const auto of_queries = [&](const Tensor& x) { return widened(heads_view(x, s, c.query_begin, queries), wide); };
    const auto of_keys = [&](const Tensor& x) { return widened(heads_view(x, s, c.key_begin, keys), wide); };
    const Tensor own = of_queries(q);
    const auto [gq, gk, gv] = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward::call(
        of_queries(grad), own, of_keys(k), of_keys(v), of_queries(out.value),
        log_sum_view(out.log_sum, s, c.query_begin, queries), 0.0, false, window_mask(c, own), given_scale(layout));
    add_piece(gq.to(q.scalar_type()), s, {{c.query_begin}, {queries}}, true, sum.q);
    add_piece(gk.to(q.scalar_type()), s, {{c.key_begin}, {keys}}, true, sum.k);
    add_piece(gv.to(q.scalar_type()), s, {{c.key_begin}, {keys}}, true, sum.v);
  }
}

[[nodiscard]] inline AttentionOutput attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                       const AttentionLayout& layout) {
  const AttentionPlan& plan = layout.plan;
  const HeadShape s = head_shape(q, k);
  AttentionOutput out{tensor::empty_like(q),
                      tensor::empty({plan.tokens, s.heads}, q.options().dtype(accumulator_type(q.scalar_type())))};
  if (tensor::has_attention(q.scalar_type())) {
    tensor::attend({q, k, v, layout.scale, layout.cap}, all_pieces(plan), false, out.value, out.log_sum);
    return out;
  }
  for (const auto& own : plan.own) {
    const bool one = own.begins.size() == 1, wide = widens(q, own.length);
    const auto arrange = [&](const Tensor& x) {
      return widened(one ? heads_view(x, s, own.begins[0], own.length) : gather_padded(x, s, own, Padding::repeat_last),
                     wide);
    };
    const auto [value, log_sum] = at::_ops::_scaled_dot_product_flash_attention_for_cpu::call(
        arrange(q), arrange(k), arrange(v), 0.0, true, {}, given_scale(layout));
    store_piece(value.to(q.scalar_type()), log_sum, s, {own.begins, own.sizes}, false, out);
  }
  merge_cross_pieces(q, k, v, layout, out);
  return out;
}

[[nodiscard]] inline AttentionGradient attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                          const Tensor& v, const AttentionOutput& out,
                                                          const AttentionLayout& layout) {
  const AttentionPlan& plan = layout.plan;
  const HeadShape s = head_shape(q, k);
  AttentionGradient result{tensor::empty_like(q), tensor::empty_like(k), tensor::empty_like(v)};
  if (tensor::has_attention(q.scalar_type())) {
    tensor::attend_backward(grad, {q, k, v, layout.scale, layout.cap}, out.value, out.log_sum, all_pieces(plan), false,
                            {result.q, result.k, result.v});
    return result;
  }
  for (const auto& own : plan.own) {
    const bool one = own.begins.size() == 1, wide = widens(q, own.length);
    const auto arrange = [&](const Tensor& x, Padding padding = Padding::repeat_last) {
      return widened(one ? heads_view(x, s, own.begins[0], own.length) : gather_padded(x, s, own, padding), wide);
    };
    const auto [gq, gk, gv] = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward::call(
        arrange(grad, Padding::zero), arrange(q), arrange(k), arrange(v), arrange(out.value),
        one ? log_sum_view(out.log_sum, s, own.begins[0], own.length) : gather_padded_log_sum(out.log_sum, s, own), 0.0,
        true, {}, given_scale(layout));
    const PieceRows rows{own.begins, own.sizes};
    add_piece(gq.to(q.scalar_type()), s, rows, false, result.q);
    add_piece(gk.to(q.scalar_type()), s, rows, false, result.k);
    add_piece(gv.to(q.scalar_type()), s, rows, false, result.v);
  }
  add_cross_gradients(grad, q, k, v, out, layout, result);
  return result;
}

}  // namespace rlalgo::model::detail
