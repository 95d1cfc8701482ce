// Attention of sequences that lie one behind the other, each causal from its end: the one call in which a device attends to a whole batch.
//
//   of sequence b with L queries and M ≥ L keys query i sees the keys j ≤ i + M − L, with a window W of them the last W
//   o_i = Σ_j p_ij v_j,   p_ij = exp(c·q_i·k_j − ℓ_i),   ℓ_i = log Σ_j exp(c·q_i·k_j)
//   ∂v_j = Σ_i p_ij ∂o_i,   s_ij = p_ij (∂o_i·v_j − ∂o_i·o_i),   ∂q_i = c Σ_j s_ij k_j,   ∂k_j = c Σ_i s_ij q_i
//
// Query head h of n reads key head h / (n/kv). The gradient takes o and ℓ as they are given: of more keys than these it is their share.
// Shapes: q, o [T, n, D], k and v [K, kv, D], ℓ [n, T] float32, contiguous. Source: Dao, arXiv 2307.08691.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <rlalgo/tensor/tensor.hpp>

// Need the tensor type before them.
#include <ATen/ops/_flash_attention_backward_ops.h>
#include <ATen/ops/_flash_attention_forward_ops.h>

namespace rlalgo::tensor {

struct VarlenSequences {
  Tensor query_ends, key_ends;  // [B + 1] int32, 0 first
  std::int64_t longest_queries = 0, longest_keys = 0;
  double scale = 1.0;       // c
  std::int64_t window = 0;  // W; 0: none
};
struct VarlenOutput {
  Tensor value, log_sum;
};
struct VarlenGradient {
  Tensor q, k, v;
};

class VarlenAttention {
 public:
  VarlenAttention() = default;
  VarlenAttention(const VarlenAttention&) = delete;
  VarlenAttention& operator=(const VarlenAttention&) = delete;
  virtual ~VarlenAttention() = default;

  // Whether it computes with heads of q's width and dtype.
  [[nodiscard]] virtual bool takes(const Tensor& q) const = 0;
  [[nodiscard]] virtual VarlenOutput forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const VarlenSequences& sequences) const = 0;
  [[nodiscard]] virtual VarlenGradient backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                                const VarlenOutput& out, const VarlenSequences& sequences) const = 0;
};

// LibTorch's flash attention on a GPU: bfloat16 or float16, heads whose width is a multiple of 8 up to 256.
class FlashAttention final : public VarlenAttention {
 public:
  [[nodiscard]] bool takes(const Tensor& q) const override {
    const bool narrow = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
    return narrow && q.size(-1) % 8 == 0 && q.size(-1) <= 256;
  }
  [[nodiscard]] VarlenOutput forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const VarlenSequences& s) const override {
    const auto [left, right] = sides(s);
    const auto out = at::_ops::_flash_attention_forward::call(
        q, k, v, s.query_ends, s.key_ends, s.longest_queries, s.longest_keys, /*dropout_p=*/0.0, /*is_causal=*/true,
        /*return_debug_mask=*/false, s.scale, left, right, /*seqused_k=*/std::nullopt, /*alibi_slopes=*/std::nullopt);
    return {std::get<0>(out), std::get<1>(out)};
  }
  [[nodiscard]] VarlenGradient backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                        const VarlenOutput& out, const VarlenSequences& s) const override {
    const auto [left, right] = sides(s);
    const Tensor no_random = q.new_empty({0}, q.options().dtype(at::kLong));  // of dropout, which there is not
    const auto g = at::_ops::_flash_attention_backward::call(
        grad, q, k, v, out.value, out.log_sum, s.query_ends, s.key_ends, s.longest_queries, s.longest_keys,
        /*dropout_p=*/0.0, /*is_causal=*/true, no_random, no_random, s.scale, left, right);
    return {std::get<0>(g), std::get<1>(g), std::get<2>(g)};
  }

 private:
  using Side = std::optional<c10::SymInt>;
  [[nodiscard]] static std::tuple<Side, Side> sides(const VarlenSequences& s) {
    if (s.window == 0) return {std::nullopt, std::nullopt};
    return {Side(s.window - 1), Side(0)};
  }
};

}  // namespace rlalgo::tensor
