// What the layers of a pass share, and what one keeps for its backward pass.
//
// LayerContext is made once per pass and window; layer_forward() fills a LayerTape and layer_backward() consumes it (decoder_layer.hpp).
#pragma once

#include <cstdint>
#include <utility>

#include <rlalgo/model/adapted_maps.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/raw_heads.hpp>
#include <rlalgo/model/ring_attention.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/model/router_load.hpp>
#include <rlalgo/model/router_replay.hpp>
#include <rlalgo/model/sinks.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// What a layer of one forward pass gets; `layout` is the one of its window. Where the tokens of the batch lie on several
// ranks, T are this rank's, and `ring` attends instead of `layout`.
struct LayerContext {
  const DecoderConfig& config;
  const LayerSpec& spec;
  const Operations& operations;
  const AttentionLayout& layout;
  const RopeTable* rope;  // not read where the layer rotates nothing
  DropoutDraw dropout = {};
  const RingAttention* ring = nullptr;
  DropoutDraw row_dropout = {};        // where only `rows` are wanted
  RouterLoad* load = nullptr;          // counts what routers do, and gives its gradient; then all rows are wanted
  Tensor noted = {};                   // [T, k] experts to pass again, or undefined
  RouterReplay* replay = nullptr;      // counts what that changes
  const DeltaLayout* delta = nullptr;  // of the tokens, where the layer has a gated delta rule
  const DeltaState* given = nullptr;   // what its runs begin with, and what is asked of it: an engine's pass
  DeltaState* after = nullptr;
  ExpertPlace expert_place = {};          // where the layer has experts
  const AdaptedLayer* adapted = nullptr;  // of the layer at hand; none of its maps where null

  // Null: the maps are multiplied without it.
  [[nodiscard]] const AdaptedMaps* adapted_maps(AdaptedMaps AdaptedLayer::*which) const {
    return adapted != nullptr && adapted->*which ? &(adapted->*which) : nullptr;
  }
  [[nodiscard]] LayerContext with(const AdaptedLayer& layer) const {
    LayerContext out = *this;
    out.adapted = &layer;
    return out;
  }

  // `sinks` may be undefined: there are none.
  [[nodiscard]] AttentionOutput attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sinks) const {
    AttentionOutput out = ring != nullptr ? ring->forward(q, k, v) : operations.attention(q, k, v, layout);
    return sinks.defined() ? with_sinks(out, sinks) : out;
  }
  void sink_backward(const Tensor& grad, const AttentionOutput& out, const Tensor& sinks) const {
    if (const Tensor gradient = gradient_buffer(sinks); gradient.defined())
      add_sink_gradient(gradient, grad, out, sinks);
  }
  [[nodiscard]] AttentionGradient attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const AttentionOutput& out, const Tensor& sinks) const {
    sink_backward(grad, out, sinks);
    return ring != nullptr ? ring->backward(grad, q, k, v, out)
                           : operations.attention_backward(grad, q, k, v, out, layout);
  }
  // Attention that takes q [T, n·D], k and v [T, kv·D] as the layer's maps give them, and what it takes; null: there is none.
  [[nodiscard]] std::pair<RawHeads, const RawHeadsAttention*> of_raw_heads(const LayerWeights& w, const Tensor& q,
                                                                           const Tensor& k, const Tensor& v) const {
    RawHeads raw{q, k, v, config.head_dim, w.q_norm, w.k_norm, config.norm, spec.rotary() ? rope : nullptr};
    const RawHeadsAttention* const takes = ring == nullptr ? operations.of_raw_heads(raw, layout) : nullptr;
    return {std::move(raw), takes};
  }
  // x itself where the layer has no such norm.
  [[nodiscard]] RmsNormOutput norm(const Tensor& x, const Tensor& weight) const {
    return weight.defined() ? operations.rms_norm(x, weight, config.norm) : RmsNormOutput{x, {}};
  }
  // ∂x, added to `residual` where that is defined.
  [[nodiscard]] Tensor norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& scale,
                                     Tensor residual = {}) const {
    if (weight.defined())
      return operations.rms_norm_backward(grad, x, weight, config.norm, scale, std::move(residual),
                                          gradient_buffer(weight));
    return residual.defined() ? residual.add_(grad) : grad;
  }
  // What a branch gets of ∂y where y = x + scale·norm(branch).
  [[nodiscard]] Tensor branch_backward(const Tensor& grad, const Tensor& branch, const Tensor& weight,
                                       const Tensor& scale) const {
    return norm_backward(spec.residual_scale == 1.0 ? grad : grad.mul(spec.residual_scale), branch, weight, scale);
  }
};

// What the backward pass of a layer needs. What is cheap to compute again is not kept: the two normalised inputs, which the
// gradients of the weights are products with, and act(gate) · up.
struct LayerTape {
  Tensor input, q, k,
      v;  // [T, H], [T, n, D], [T, kv, D] ×2 (q and k as the attention saw them); of raw heads [T, n·D], [T, kv·D] ×2
  Tensor raw_q, raw_k;  // before the norm per head
  bool raw = false;     // whether attention took raw heads
  Tensor input_scale, q_scale, k_scale, middle_scale;
  AttentionOutput attention;
  Tensor output_gate;       // [T, n·D], where the layer has one
  DeltaInputs delta;        // instead of q, k, v and attention, where the layer has a gated delta rule
  Tensor rows;              // [S] int64, or undefined: all
  Tensor attended, middle;  // [S, n·D], [S, H]
  Tensor gate, up;          // [S, I], [S, I]
  ExpertTape experts;       // instead of those two, where the layer has experts
  AdapterRanks ranks;       // where adapters are multiplied together
  // Of layers that normalise what a branch gives: that, and the scale of its rows.
  Tensor attention_branch, attention_branch_scale, mlp_branch, mlp_branch_scale;  // [S, H], [S], [S, H], [S]
};

}  // namespace rlalgo::model
