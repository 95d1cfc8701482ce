// Definitions of decoder_pass.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/decoder_pass.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

RLALGO_INLINE DecoderPass::DecoderPass(DecoderConfig config, DecoderWeights weights, std::vector<Tensor> frequencies,
                                       Settings settings)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      frequencies_(std::move(frequencies)),
      settings_(std::move(settings)) {
  std::int64_t passed = 0;
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    first_expert_.push_back(passed);
    if (config_.spec(i).experts.count > 0) passed += config_.spec(i).experts.chosen;
  }
  if (settings_.replay != nullptr && settings_.replay->width() != passed)
    core::raise("model", 45,
                {.what = "rows have experts of another model",
                 .found = std::to_string(settings_.replay->width()) + " for each token",
                 .expected = std::to_string(passed),
                 .remedy = "replay what this model's engine noted"});
}

RLALGO_INLINE std::vector<Tensor> DecoderPass::forward(const TokenTree& tree, std::vector<std::int64_t> depths,
                                                       const Tensor& rows) {
  depths_ = std::move(depths);
  return run(tree, nullptr, rows);
}

RLALGO_INLINE std::vector<Tensor> DecoderPass::forward(const SharedTree& tree, std::vector<std::int64_t> depths,
                                                       const Tensor& rows) {
  depths_ = std::move(depths);
  rows_ = tree.part.rows;
  source_rows_ = tree.part.source_rows;
  return run(tree.part.tree, &tree, rows);
}

RLALGO_INLINE void DecoderPass::lay_out(AttentionKind kind, const TokenTree& tree, const SharedTree* shared,
                                        tensor::HostBlock& block) {
  const at::Device device = weights_.embedding.device();
  const Operations& ops = *settings_.operations;
  const auto [window, scale, cap] = kind;
  if (layouts_.contains(kind)) return;
  if (shared == nullptr) {
    AttentionLayout& layout = layouts_.emplace(kind, ops.lay_out(plan_attention(tree, window), at::kCPU)).first->second;
    for (Tensor& index : layout.tensors) index = block.add(index);
    layout.scale = scale;
    layout.cap = cap;
    return;
  }
  layouts_.emplace(kind, AttentionLayout());
  rings_.emplace(kind, RingAttention(shared->ring, ops, plan_attention(*shared->whole, window), shared->split, device,
                                     scale, cap));
}

RLALGO_INLINE std::vector<Tensor> DecoderPass::run(const TokenTree& tree, const SharedTree* shared,
                                                   const Tensor& rows) {
  const Operations& ops = *settings_.operations;
  const at::Device device = weights_.embedding.device();
  tensor::HostBlock own(weights_.embedding.options());
  tensor::HostBlock& block = settings_.block != nullptr ? *settings_.block : own;
  settings_.block = nullptr;  // it does not live as long as this
  const Tensor ids = block.add(tree.ids);
  if (shared != nullptr && settings_.dropout.operations != nullptr && !device.is_cpu()) {
    rows_there_ = block.add(rows_);
    source_rows_there_ = block.add(source_rows_);
  }
  std::vector<RopeAngles> angles;
  for (const Tensor& inverse : frequencies_) angles.push_back(rope_angles(inverse, tree.positions, block));
  for (std::int64_t i = 0; i < deepest(); ++i) {
    lay_out(kind(i), tree, shared, block);
    if (const DeltaSpec& delta = config_.spec(i).delta; delta.present() && !delta_) {
      delta_ = lay_out_delta(tree, delta.kernel, at::kCPU);
      visit_indices(*delta_, [&](Tensor& index) { index = block.add(index); });
    }
  }
  block.send();
  ropes_.clear();
  for (std::size_t i = 0; i < angles.size(); ++i) ropes_.push_back(rope_table(angles[i], config_.ropes[i]));
  std::vector<Tensor> states;
  auto wanted = depths_.begin();
  const auto tap = [&](std::int64_t depth, const Tensor& x) {
    if (wanted == depths_.end() || *wanted != depth) return;
    states.push_back(x);
    ++wanted;
  };
  if (settings_.gate) {
    settings_.gate->begin({LayerGate::Phase::forward, deepest(), settings_.graph,
                           settings_.graph && settings_.checkpointed, settings_.seat});
    number_ = settings_.gate->number();
  }
  Tensor x = ops.rows(weights_.embedding, ids);
  if (config_.embedding_scale != 1.0) x.mul_(embedding_scale(config_, x.scalar_type()));
  tap(0, x);
  for (std::int64_t i = 0; i < deepest(); ++i) {
    LayerTape* tape = settings_.graph ? &tapes_.emplace_back() : nullptr;
    const Tensor chosen = i + 1 == config_.layers ? rows : Tensor();
    if (settings_.graph && settings_.checkpointed) {
      if (!inputs_) inputs_.emplace(settings_.checkpoints, device);
      inputs_->push(x);
      tape->rows = chosen;
      tape = nullptr;
    }
    const GateScope scope(settings_.gate.get(),
                          {i, LayerGate::Phase::forward, i + 1 < deepest() ? i + 1 : std::int64_t{-1}});
    x = layer_forward(context(i), layer(i), x, chosen, tape);
    if (i + 1 < config_.layers) tap(i + 1, x);
  }
  if (deepest() == config_.layers) {
    const RmsNormOutput normed = ops.rms_norm(x, weights_.final_norm, config_.norm);
    if (settings_.graph) {
      last_ = x;
      scale_ = normed.scale;
    }
    tap(config_.layers, normed.value);
  }
  if (settings_.graph) ids_ = ids;
  if (settings_.load) settings_.load->complete();
  if (settings_.replay) settings_.replay->complete();
  return states;
}

RLALGO_INLINE void DecoderPass::backward(const std::vector<Tensor>& gradients) {
  if (std::exchange(used_, true)) {
    core::raise("model", 18,
                {.what = "backward ran twice through one forward pass of the decoder",
                 .remedy = "score the batch again, or add the losses before calling backward"});
  }
  const Operations& ops = *settings_.operations;
  const LayerGate::Pass pass{LayerGate::Phase::backward, deepest(),      true,
                             settings_.checkpointed,     settings_.seat, number_};
  if (settings_.gate) settings_.gate->begin(pass);
  std::size_t left = gradients.size();
  Tensor grad;
  const auto add_tap = [&](std::int64_t depth) {
    if (left == 0 || depths_[left - 1] != depth) return;
    --left;
    grad = grad.defined() ? grad.add_(gradients[left]) : gradients[left].clone();
  };
  if (deepest() == config_.layers) {
    grad = ops.rms_norm_backward(gradients[--left], last_, weights_.final_norm, config_.norm, scale_, {},
                                 gradient_buffer(weights_.final_norm));
    last_ = Tensor();
  }
  for (std::int64_t i = deepest(); i-- > 0;) {
    if (i + 1 < config_.layers) add_tap(i + 1);
    {
      const GateScope scope(settings_.gate.get(), {i, LayerGate::Phase::backward, i - 1});
      if (settings_.checkpointed) {
        const Tensor input = inputs_->pop(), rows = tapes_.back().rows;
        (void)layer_forward(context(i), layer(i), input, rows, &tapes_.back());
      }
      grad = layer_backward(context(i), layer(i), std::move(tapes_.back()), std::move(grad));
      tapes_.pop_back();
    }
    if (settings_.gate) settings_.gate->gradient_ready(i);
  }
  add_tap(0);
  if (Tensor gradient = gradient_buffer(weights_.embedding); gradient.defined()) {
    if (config_.embedding_scale != 1.0) grad.mul_(embedding_scale(config_, grad.scalar_type()));
    if (config_.padding_id >= 0) grad.masked_fill_(ids_.eq(config_.padding_id).unsqueeze(1), 0);  // [T, 1]
    ops.add_rows(gradient, ids_, grad);
  }
  if (settings_.gate) settings_.gate->end(pass);
}

RLALGO_INLINE LayerContext DecoderPass::context(std::int64_t i) const {
  const LayerSpec& spec = config_.spec(i);
  const auto ring = rings_.find(kind(i));
  LayerContext out{.config = config_,
                   .spec = spec,
                   .operations = *settings_.operations,
                   .layout = layouts_.at(kind(i)),
                   .rope = spec.rotary() ? &ropes_[static_cast<std::size_t>(spec.rope)] : nullptr,
                   .dropout = settings_.dropout};
  out.row_dropout = out.dropout;
  out.load = settings_.load.get();
  if (settings_.replay && spec.experts.count > 0) {
    out.replay = settings_.replay.get();
    out.noted = out.replay->of_layer(first_expert_[static_cast<std::size_t>(i)], spec.experts.chosen);
  }
  if (settings_.gate && spec.experts.count > 0) out.expert_place = {settings_.gate->experts(), i};
  out.delta = delta_ ? &*delta_ : nullptr;
  if (ring != rings_.end()) {
    out.ring = &ring->second;
    out.dropout.rows = &rows_;
    out.row_dropout.rows = &source_rows_;
    if (rows_there_.defined()) {
      out.dropout.rows_there = &rows_there_;
      out.row_dropout.rows_there = &source_rows_there_;
    }
  }
  return out;
}

}  // namespace rlalgo::model
