// Attention over tokens that lie on several ranks: keys and values go around a ring, and every rank merges what its queries
// see of them.
//
//   forward    o, ℓ ← attention over the own keys; for each pass i = 1 … C − 1, with the keys and values of rank r − i:
//              ℓ' = log(e^ℓ + e^{ℓ_i}),   o ← e^{ℓ − ℓ'} o + e^{ℓ_i − ℓ'} o_i
//   backward   keys and values go around once more; their gradients follow a step behind, each rank adding its share, and
//              are home after C passes
//
// Source: Liu, Zaharia, Abbeel, Ring Attention, arXiv 2310.01889 (online softmax: Milakov & Gimelshein, arXiv 1805.02867).
// What a rank holds beside its own tokens: keys and values of two other ranks (those it computes with and those under way), in
// the backward pass their gradients, too. A pass is begun before what is here is computed with.
// Shapes: q [T', n, D], k and v [T', kv, D] of this rank's tokens; T' differs between ranks and may be 0.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/context_ring.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/operations.hpp>

namespace rlalgo::model {

class RingAttention {
 public:
  // `plan`: that of the whole tree, whose tokens are shared as `split` says; `scale`, `cap`: those of AttentionLayout.
  RingAttention(std::shared_ptr<ContextRing> ring, const Operations& operations, const AttentionPlan& plan,
                const std::vector<TokenSpans>& split, at::Device device, double scale = 0.0, double cap = 0.0);

  [[nodiscard]] AttentionOutput forward(const Tensor& q, const Tensor& k, const Tensor& v) const;
  [[nodiscard]] AttentionGradient backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const AttentionOutput& out) const;

 private:
  // Keys and values that are here after so many passes, in one tensor [2, T'', kv, D].
  [[nodiscard]] Tensor room(int passes, const Tensor& like) const;

  std::shared_ptr<ContextRing> ring_;
  const Operations* operations_;
  std::vector<AttentionLayout> layouts_;  // by passes: this rank's queries over the keys that are here
  std::vector<std::int64_t> keys_;        // by passes
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/ring_attention_impl.hpp>
#endif
