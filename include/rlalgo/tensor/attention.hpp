// Softmax attention over pieces of queries and keys, forward and backward, by kernels of our own: blocks of scores are made, weighted
// and used while they lie in cache (Dao et al., arXiv 2205.14135), by the tiles with which products.hpp multiplies.
//
//   o_t = Σ_{j seen by t} softmax_j(c·q_t·k_j) v_j,   ℓ_t = log Σ_j exp(c·q_t·k_j),   c = 1/√D unless the operands say otherwise
//   with a cap C the scores c·q_t·k_j become C·tanh(c·q_t·k_j/C) first, and s_tj is multiplied by the slope of that
//   with p_tj = exp(c·q_t·k_j − ℓ_t) and s_tj = c·p_tj (∂o_t·v_j − ∂o_t·o_t)
//   ∂q_t = Σ_j s_tj k_j,   ∂k_j = Σ_t s_tj q_t,   ∂v_j = Σ_t p_tj ∂o_t
//
// Head h of n reads key and value head h / (n/kv). Scores, sums and gradients are float32 until they are stored; in bfloat16 the
// operands of a product, p and s too, are bfloat16. What a query gets depends on its own pieces and their order alone, neither on
// the other queries nor on the number of threads.
// Shapes: q, o and their gradients [T, n, D]; k, v and theirs [T', kv, D]; ℓ [T, n] float32. All contiguous, on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

// Queries that see keys: rows of q and of k. Query i and key j of the piece, counted from their first ones:
struct AttentionPiece {
  enum class Sees { all, causal, after };  // all; j ≤ i; j > i + offset
  std::int64_t query_begin, query_end, key_begin, key_end;
  Sees sees = Sees::all;
  std::int64_t offset = 0;
};

// Whether there are kernels for this type here: bfloat16 where products.hpp has them, float32 with sixteen lanes.
[[nodiscard]] bool has_attention(at::ScalarType type);

struct AttentionOperands {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  double scale = 0.0;  // c; 0 = 1/√D
  double cap = 0.0;    // C; 0 = none
};

// Writes o and ℓ of the queries of all pieces. With `further` both already hold what other keys gave, and these are merged into them.
void attend(const AttentionOperands& in, const std::vector<AttentionPiece>& pieces, bool further, const Tensor& value,
            const Tensor& log_sum);

// Writes the gradients of the queries and keys of all pieces; with `further` adds to them. `value` and `log_sum`: of all keys that a
// query sees.
void attend_backward(const Tensor& grad, const AttentionOperands& in, const Tensor& value, const Tensor& log_sum,
                     const std::vector<AttentionPiece>& pieces, bool further, const AttentionOperands& gradients);

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/attention_impl.hpp>
#endif
