// Definitions of attention.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/attention_rows.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/products.hpp>
#include <rlalgo/tensor/attention.hpp>
#include <rlalgo/tensor/detail/bfloat16_kernel.hpp>
#include <rlalgo/tensor/detail/block_products.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE bool has_attention(at::ScalarType type) {
  return type == at::kFloat ? cpu::has_lanes() : type == at::kBFloat16 && detail::has_bfloat16_kernel();
}

#if defined(__x86_64__)

namespace detail {

namespace rows = cpu::lanes::rows;

struct RowSpan {
  std::int64_t begin, end;
  [[nodiscard]] bool meets(const RowSpan& other) const { return begin < other.end && other.begin < end; }
  [[nodiscard]] RowSpan joined(const RowSpan& other) const {
    return {std::min(begin, other.begin), std::max(end, other.end)};
  }
};

// Pieces that share queries or keys with each other, and with no other component.
struct AttentionComponent {
  RowSpan queries, keys;
  std::vector<AttentionPiece> pieces;  // of a query: in the caller's order
};

inline std::vector<AttentionComponent> components_of(const std::vector<AttentionPiece>& pieces) {
  std::vector<AttentionComponent> out;
  for (const AttentionPiece& piece : pieces) {
    AttentionComponent all{{piece.query_begin, piece.query_end}, {piece.key_begin, piece.key_end}, {piece}};
    for (auto it = out.begin(); it != out.end();) {
      if (!it->queries.meets(all.queries) && !it->keys.meets(all.keys)) {
        ++it;
        continue;
      }
      all.queries = all.queries.joined(it->queries);
      all.keys = all.keys.joined(it->keys);
      it->pieces.insert(it->pieces.end(), all.pieces.begin(), all.pieces.end());
      all.pieces = std::move(it->pieces);
      out.erase(it);
      it = out.begin();  // what has grown may meet those it did not
    }
    out.push_back(std::move(all));
  }
  return out;
}

// One head of x [T, heads, D].
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  [[nodiscard]] T* row(std::int64_t t) const { return data + t * stride; }
};

template <class T>
HeadRows<const T> head_of(const Tensor& x, std::int64_t head) {
  return {static_cast<const T*>(x.const_data_ptr()) + head * x.size(2), x.size(1) * x.size(2)};
}
template <class T>
HeadRows<T> mutable_head_of(const Tensor& x, std::int64_t head) {
  return {static_cast<T*>(x.mutable_data_ptr()) + head * x.size(2), x.size(1) * x.size(2)};
}

inline constexpr std::int64_t block_keys = 128, most_block_queries = 64;

// Which keys of a block of `keys` from number `from` on queries of a piece see.
struct SeenKeys {
  const AttentionPiece& piece;
  std::int64_t from, keys;

  [[nodiscard]] RowSpan queries() const {  // that see any
    const std::int64_t all = piece.query_end - piece.query_begin;
    if (piece.sees == AttentionPiece::Sees::causal) return {from, all};
    if (piece.sees == AttentionPiece::Sees::after) return {0, std::min(all, from + keys - 1 - piece.offset)};
    return {0, all};
  }
  [[nodiscard]] RowSpan of(std::int64_t query) const {
    if (piece.sees == AttentionPiece::Sees::causal) return {0, std::min(keys, query - from + 1)};
    if (piece.sees == AttentionPiece::Sees::after)
      return {std::clamp<std::int64_t>(query + piece.offset + 1 - from, 0, keys), keys};
    return {0, keys};
  }
};

template <class Kernel>
struct AttentionBlocks : BlockProducts<Kernel> {
  using Products = BlockProducts<Kernel>;
  using Number = typename Products::Number;
  using Right = typename Products::Right;
  static constexpr std::int64_t block_queries = most_block_queries / Products::height * Products::height;

  // What a thread needs for one block.
  struct Scratch {
    cpu::tiles::Room left, keys, keys_by_row, values, queries, grads, state, query_sums;
    alignas(64) std::array<float, most_block_queries * block_keys> scores, pulls;
    alignas(64) std::array<Number, most_block_queries * block_keys> weights, changes;
    std::vector<rows::Running> running;
    std::vector<float> along;
  };
  static Scratch& scratch() {
    thread_local const auto out = std::make_unique<Scratch>();  // not in the thread's own, small memory
    return *out;
  }
};

template <class Kernel>
struct AttentionHead {
  using Blocks = AttentionBlocks<Kernel>;
  using Number = typename Blocks::Number;
  HeadRows<const Number> q, k, v;
  std::int64_t width;  // D
  rows::ScoreMap map;  // of scores

  // f(seen, first row of keys, first query, queries) for all blocks of a piece; `pack` before those of a block of keys.
  template <class P, class F>
  static void blocks(const AttentionPiece& piece, const P& pack, const F& f) {
    const std::int64_t all = piece.key_end - piece.key_begin;
    for (std::int64_t from = 0; from < all; from += block_keys) {
      const SeenKeys seen{piece, from, std::min(block_keys, all - from)};
      const RowSpan queries = seen.queries();
      if (queries.begin >= queries.end) continue;
      pack(piece.key_begin + from, seen.keys);
      for (std::int64_t query = queries.begin; query < queries.end; query += Blocks::block_queries)
        f(seen, query, std::min(Blocks::block_queries, queries.end - query));
    }
  }

  void forward(const AttentionComponent& part, bool further, const HeadRows<Number>& value,
               const HeadRows<float>& log_sum) const {
    [[maybe_unused]] const typename Kernel::Scope scope;
    auto& room = Blocks::scratch();
    const RowSpan span = part.queries;
    const std::int64_t count = span.end - span.begin;
    float* const sums = room.state.of(count * width);
    room.running.assign(static_cast<std::size_t>(count), {-std::numeric_limits<float>::infinity(), 0.0f});
    if (further)
      for (std::int64_t t = 0; t < count; ++t) {
        rows::take<Number>(value.row(span.begin + t), false, sums + t * width, width);
        room.running[static_cast<std::size_t>(t)] = {*log_sum.row(span.begin + t), 1.0f};
      }
    else
      std::fill_n(sums, count * width, 0.0f);
    typename Blocks::Right keys{}, values{};
    for (const AttentionPiece& piece : part.pieces)
      blocks(
          piece,
          [&](std::int64_t row, std::int64_t n) {
            keys = Blocks::pack_right(Blocks::strided(k.row(row), k.stride, 1), n, width, room.keys);
            values = Blocks::pack_right(Blocks::strided(v.row(row), 1, v.stride), width, n, room.values);
          },
          [&](const SeenKeys& seen, std::int64_t query, std::int64_t n) {
            const std::int64_t row = piece.query_begin + query, most = seen.of(query + n - 1).end;
            Blocks::multiply(Blocks::strided(q.row(row), q.stride, 1), n, keys, most, width, room.scores.data(),
                             block_keys, false, room.left);
            float* const to = sums + (row - span.begin) * width;
            for (std::int64_t i = 0; i < n; ++i) {
              const RowSpan own = seen.of(query + i);
              const auto weigh = map.cap > 0.0f ? rows::weigh<Number, true> : rows::weigh<Number, false>;
              const float change = weigh(room.scores.data() + i * block_keys, own.begin, own.end, most, map,
                                         room.running[static_cast<std::size_t>(row - span.begin + i)],
                                         room.weights.data() + i * block_keys);
              if (change != 1.0f) rows::multiply(to + i * width, change, width);
            }
            Blocks::multiply(Blocks::strided(room.weights.data(), block_keys, 1), n, values, width, most, to, width,
                             true, room.left);
          });
    for (std::int64_t t = 0; t < count; ++t) {
      const rows::Running& run = room.running[static_cast<std::size_t>(t)];
      if (run.sum == 0.0f) continue;  // in no piece
      rows::put<Number>(sums + t * width, 1.0f / run.sum, false, value.row(span.begin + t), width);
      *log_sum.row(span.begin + t) = run.top + std::log(run.sum);
    }
  }

  // Writes ∂q, or adds to it; writes this head's part of ∂k and ∂v.
  void backward(const AttentionComponent& part, const HeadRows<const Number>& grad, const HeadRows<const Number>& value,
                const HeadRows<const float>& log_sum, bool further, const HeadRows<Number>& grad_q,
                const HeadRows<float>& grad_k, const HeadRows<float>& grad_v) const {
    [[maybe_unused]] const typename Kernel::Scope scope;
    auto& room = Blocks::scratch();
    const RowSpan span = part.queries;
    const std::int64_t count = span.end - span.begin;
    float* const sums = room.query_sums.of(count * width);
    room.along.resize(static_cast<std::size_t>(count));
    for (std::int64_t t = 0; t < count; ++t)
      room.along[static_cast<std::size_t>(t)] =
          rows::dot<Number>(grad.row(span.begin + t), value.row(span.begin + t), width);
    std::fill_n(sums, count * width, 0.0f);
    const std::int64_t key_count = part.keys.end - part.keys.begin;
    std::fill_n(grad_k.row(part.keys.begin), key_count * width, 0.0f);
    std::fill_n(grad_v.row(part.keys.begin), key_count * width, 0.0f);
    typename Blocks::Right keys{}, values{}, keys_by_row{};
    std::int64_t first = 0;  // row of keys
    for (const AttentionPiece& piece : part.pieces)
      blocks(
          piece,
          [&](std::int64_t row, std::int64_t n) {
            first = row;
            keys = Blocks::pack_right(Blocks::strided(k.row(row), k.stride, 1), n, width, room.keys);
            values = Blocks::pack_right(Blocks::strided(v.row(row), v.stride, 1), n, width, room.values);
            keys_by_row = Blocks::pack_right(Blocks::strided(k.row(row), 1, k.stride), width, n, room.keys_by_row);
          },
          [&](const SeenKeys& seen, std::int64_t query, std::int64_t n) {
            const std::int64_t row = piece.query_begin + query, most = seen.of(query + n - 1).end;
            Blocks::multiply(Blocks::strided(q.row(row), q.stride, 1), n, keys, most, width, room.scores.data(),
                             block_keys, false, room.left);
            Blocks::multiply(Blocks::strided(grad.row(row), grad.stride, 1), n, values, most, width, room.pulls.data(),
                             block_keys, false, room.left);
            for (std::int64_t i = 0; i < n; ++i) {
              const RowSpan own = seen.of(query + i);
              const auto differentiate =
                  map.cap > 0.0f ? rows::differentiate<Number, true> : rows::differentiate<Number, false>;
              differentiate(room.scores.data() + i * block_keys, room.pulls.data() + i * block_keys, own.begin, own.end,
                            most, map, *log_sum.row(row + i),
                            room.along[static_cast<std::size_t>(row - span.begin + i)],
                            room.weights.data() + i * block_keys, room.changes.data() + i * block_keys);
            }
            const auto queries = Blocks::pack_right(Blocks::strided(q.row(row), 1, q.stride), width, n, room.queries);
            const auto grads = Blocks::pack_right(Blocks::strided(grad.row(row), 1, grad.stride), width, n, room.grads);
            Blocks::multiply(Blocks::strided(room.weights.data(), 1, block_keys), most, grads, width, n,
                             grad_v.row(first), width, true, room.left);
            Blocks::multiply(Blocks::strided(room.changes.data(), 1, block_keys), most, queries, width, n,
                             grad_k.row(first), width, true, room.left);
            Blocks::multiply(Blocks::strided(room.changes.data(), block_keys, 1), n, keys_by_row, width, most,
                             sums + (row - span.begin) * width, width, true, room.left);
          });
    for (std::int64_t t = 0; t < count; ++t)
      rows::put<Number>(sums + t * width, 1.0f, further, grad_q.row(span.begin + t), width);
  }
};

template <class Kernel>
AttentionHead<Kernel> attention_head(const AttentionOperands& in, std::int64_t head) {
  using Number = typename AttentionHead<Kernel>::Number;
  const std::int64_t shared = head / (in.q.size(1) / in.k.size(1));
  return {head_of<Number>(in.q, head),
          head_of<Number>(in.k, shared),
          head_of<Number>(in.v, shared),
          in.q.size(2),
          {static_cast<float>(in.scale != 0.0 ? in.scale : 1.0 / std::sqrt(static_cast<double>(in.q.size(2)))),
           static_cast<float>(in.cap)}};
}

template <class Kernel>
void attend(const AttentionOperands& in, const std::vector<AttentionPiece>& pieces, bool further, const Tensor& value,
            const Tensor& log_sum) {
  using Number = typename AttentionHead<Kernel>::Number;
  const auto parts = components_of(pieces);
  const std::int64_t heads = in.q.size(1);
  on_threads(static_cast<std::int64_t>(parts.size()) * heads, [&](std::int64_t i) {
    const std::int64_t head = i % heads;
    attention_head<Kernel>(in, head).forward(parts[static_cast<std::size_t>(i / heads)], further,
                                             mutable_head_of<Number>(value, head),
                                             {log_sum.mutable_data_ptr<float>() + head, heads});
  });
}

template <class Kernel>
void attend_backward(const Tensor& grad, const AttentionOperands& in, const Tensor& value, const Tensor& log_sum,
                     const std::vector<AttentionPiece>& pieces, bool further, const AttentionOperands& gradients) {
  using Number = typename AttentionHead<Kernel>::Number;
  const auto parts = components_of(pieces);
  const std::int64_t heads = in.q.size(1), shared = in.k.size(1), group = heads / shared, keys = in.k.size(0),
                     width = in.q.size(2);
  const Tensor grad_k = empty({heads, keys, width}, in.q.options().dtype(at::kFloat)),
               grad_v = grad_k.new_empty({heads, keys, width});
  const auto of_head = [&](const Tensor& x, std::int64_t head) {
    return HeadRows<float>{x.mutable_data_ptr<float>() + head * keys * width, width};
  };
  on_threads(static_cast<std::int64_t>(parts.size()) * heads, [&](std::int64_t i) {
    const std::int64_t head = i % heads;
    attention_head<Kernel>(in, head).backward(
        parts[static_cast<std::size_t>(i / heads)], head_of<Number>(grad, head), head_of<Number>(value, head),
        {log_sum.const_data_ptr<float>() + head, heads}, further, mutable_head_of<Number>(gradients.q, head),
        of_head(grad_k, head), of_head(grad_v, head));
  });
  // Heads of a group in order.
  on_threads(static_cast<std::int64_t>(parts.size()) * shared, [&](std::int64_t i) {
    const RowSpan span = parts[static_cast<std::size_t>(i / shared)].keys;
    const std::int64_t head = i % shared;
    for (const auto& [sum, to] : {std::pair(&grad_k, &gradients.k), std::pair(&grad_v, &gradients.v)}) {
      const HeadRows<float> first = of_head(*sum, head * group);
      const HeadRows<Number> out = mutable_head_of<Number>(*to, head);
      for (std::int64_t t = span.begin; t < span.end; ++t) {
        for (std::int64_t g = 1; g < group; ++g)
          rows::take<float>(first.row(t) + g * keys * width, true, first.row(t), width);
        rows::put<Number>(first.row(t), 1.0f, further, out.row(t), width);
      }
    }
  });
}

// f(kernel) with the kernel for a type.
template <class F>
void with_attention_kernel(at::ScalarType type, const F& f) {
  if (type == at::kFloat) return f(cpu::avx512::Float32());
  with_bfloat16_kernel(f);
}

}  // namespace detail

RLALGO_INLINE void attend(const AttentionOperands& in, const std::vector<AttentionPiece>& pieces, bool further,
                          const Tensor& value, const Tensor& log_sum) {
  detail::with_attention_kernel(
      in.q.scalar_type(), [&]<class Kernel>(Kernel) { detail::attend<Kernel>(in, pieces, further, value, log_sum); });
}

RLALGO_INLINE void attend_backward(const Tensor& grad, const AttentionOperands& in, const Tensor& value,
                                   const Tensor& log_sum, const std::vector<AttentionPiece>& pieces, bool further,
                                   const AttentionOperands& gradients) {
  detail::with_attention_kernel(in.q.scalar_type(), [&]<class Kernel>(Kernel) {
    detail::attend_backward<Kernel>(grad, in, value, log_sum, pieces, further, gradients);
  });
}

#else

RLALGO_INLINE void attend(const AttentionOperands&, const std::vector<AttentionPiece>&, bool, const Tensor&,
                          const Tensor&) {}
RLALGO_INLINE void attend_backward(const Tensor&, const AttentionOperands&, const Tensor&, const Tensor&,
                                   const std::vector<AttentionPiece>&, bool, const AttentionOperands&) {}

#endif

}  // namespace rlalgo::tensor
