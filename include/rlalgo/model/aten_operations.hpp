// The decoder's operations from ATen operators alone: they run on every device that ATen knows, the meta device
// included, and no memory is touched here.
//
// Attention is computed piece by piece (attention_plan.hpp), a block of queries at a time, so that no more than
// `score_elements` scores exist at once; pieces are merged by their log-sum-exp as on the CPU. Index tensors are
// made on the host and moved; masks of dropout are made where the input is.
//
// Shapes and dtypes: those of operations.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

class AtenOperations : public Operations {
 public:
  // Scores of one block of queries, over all its heads; 2²⁴ are 64 MB in float32.
  static constexpr std::int64_t score_elements = std::int64_t{1} << 24U;

  explicit AtenOperations(std::int64_t elements = score_elements) : elements_(elements) {}

  [[nodiscard]] Tensor rows(const Tensor& x, const Tensor& index) const override { return select(x, index); }

  RLALGO_INLINE void add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const override;

  [[nodiscard]] RLALGO_INLINE RmsNormOutput rms_norm(const Tensor& x, const Tensor& weight,
                                                     const NormSpec& norm) const override;

  [[nodiscard]] RLALGO_INLINE Tensor rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                       const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                       Tensor grad_weight) const override;

  RLALGO_INLINE void rotate(Tensor& x, const RopeTable& table, Rotation rotation) const override;

  RLALGO_INLINE void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) const override;
  RLALGO_INLINE void gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                    const Tensor& up) const override;

  // Of every padded piece: the tokens of its places [B·L], the places that are no padding, and their tokens.
  [[nodiscard]] RLALGO_INLINE AttentionLayout lay_out(AttentionPlan plan, at::Device device) const override;

  [[nodiscard]] RLALGO_INLINE AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const AttentionLayout& layout) const override;

  [[nodiscard]] RLALGO_INLINE AttentionGradient attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const AttentionOutput& out,
                                                                   const AttentionLayout& layout) const override;

  RLALGO_INLINE void attend_further(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionLayout& layout,
                                    AttentionOutput& out) const override;

  RLALGO_INLINE void attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOutput& out, const AttentionLayout& layout,
                                             AttentionGradient& sum) const override;

  [[nodiscard]] RLALGO_INLINE Tensor dropout(const Tensor& x, const DropoutMask& mask) const override;

 private:
  // Tokens of x: a run [begin, begin + count), or, of a padded piece, those of `padded`.
  struct Tokens {
    std::int64_t begin = 0, count = 0;
    Tensor padded = {}, places = {}, real = {};
  };
  struct Piece {
    Tokens queries, keys;
    std::int64_t batch = 1;
    bool causal = false;  // query i sees keys 0 … i
    bool masked = false;  // query i sees keys j > i + offset
    std::int64_t offset = 0;
    bool merge = false;
    double scale = 0.0;  // of scores; 0 = 1/√D
    double cap = 0.0;    // of scores; 0 = none
  };

  template <class F>
  static void visit(const AttentionLayout& layout, F&& f) {
    std::size_t next = 0;
    for (const auto& own : layout.plan.own) {
      const auto batch = static_cast<std::int64_t>(own.begins.size());
      Tokens tokens{own.begins[0], own.length};
      if (batch > 1) {
        tokens = {0, 0, layout.tensors[next], layout.tensors[next + 1], layout.tensors[next + 2]};
        next += 3;
      }
      f(Piece{
          .queries = tokens, .keys = tokens, .batch = batch, .causal = true, .scale = layout.scale, .cap = layout.cap});
    }
    for (const auto& c : layout.plan.cross)
      f(Piece{.queries = {c.query_begin, c.query_end - c.query_begin},
              .keys = {c.key_begin, c.key_end - c.key_begin},
              .masked = c.masked,
              .offset = c.offset,
              .merge = true,
              .scale = layout.scale,
              .cap = layout.cap});
  }

  [[nodiscard]] static Tensor select(const Tensor& x, const Tensor& index);

  // x [T, …] → [B, L, …].
  [[nodiscard]] static Tensor gather(const Tensor& x, const Tokens& tokens, std::int64_t batch);
  // The same of a piece's queries, with zeros where the padding is.
  [[nodiscard]] static Tensor gather_zero(const Tensor& x, const Piece& piece);
  // Rows of y [B·L, …] to their tokens.
  static void scatter(Tensor& x, const Tokens& tokens, const Tensor& y);
  // Padded places have zero gradients as queries, and no query sees them as keys.
  static void add(Tensor& x, const Tokens& tokens, const Tensor& y);

  // x [B, L, n, D] → [B·kv, g·L, D], where g = n/kv; row g·L of the middle is query L of head g of the group.
  [[nodiscard]] static Tensor grouped(const Tensor& x, std::int64_t kv);
  // And back: [B, L, n, D].
  [[nodiscard]] static Tensor ungrouped(const Tensor& x, std::int64_t batch, std::int64_t heads, std::int64_t length);

  // Scores [B·kv, g·M, K] of M queries from `first` on over the first K keys; −∞ where a query does not see a key. `slope`, where it
  // is asked for, gets that of the cap, 1 − (s/C)².
  [[nodiscard]] static Tensor scores_of(const Piece& piece, const Tensor& q, const Tensor& k, std::int64_t first,
                                        std::int64_t queries, double scale, Tensor* slope = nullptr);

  // f(first, count, keys): blocks of queries, and how many keys they can see.
  template <class F>
  void blocks(const Piece& piece, std::int64_t batch_heads, std::int64_t queries, std::int64_t keys, F&& f) const {
    const std::int64_t step = std::max<std::int64_t>(1, elements_ / std::max<std::int64_t>(1, batch_heads * keys));
    for (std::int64_t first = 0; first < queries; first += step) {
      const std::int64_t count = std::min(step, queries - first);
      f(first, count, piece.causal ? std::min(keys, first + count) : keys);
    }
  }

  // Writes a piece's result to its queries, or merges it into what is there.
  void attend(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v, AttentionOutput& out) const;
  // Adds a piece's share of the gradient; `along`: ∂o·o of each query and head.
  void add_gradient(const Piece& piece, const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& log_sum, const Tensor& along, AttentionGradient& sum) const;

  // q [B, L, n, D], k and v [B, K, kv, D] → value [B, L, n, D], log_sum [B, L, n].
  [[nodiscard]] AttentionOutput piece_forward(const Piece& piece, const Tensor& q, const Tensor& k,
                                              const Tensor& v) const;

  // P = exp(S − ℓ):  ∂V = Pᵀ ∂o,  ∂S = P ∘ (∂o Vᵀ − ∂o·o),  ∂Q = c ∂S K,  ∂K = c ∂Sᵀ Q. With the merged o and ℓ this
  // is exactly the piece's share.
  [[nodiscard]] AttentionGradient piece_backward(const Piece& piece, const Tensor& grad, const Tensor& q,
                                                 const Tensor& k, const Tensor& v, const Tensor& log_sum,
                                                 const Tensor& along) const;

  [[nodiscard]] static Tensor flat(const Tensor& x, const Tensor& weight) { return x.reshape({-1, weight.size(0)}); }

  std::int64_t elements_;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/aten_operations_impl.hpp>
#endif
