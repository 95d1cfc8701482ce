// The experts that a generator chose, passed again: a rounding apart does not change which experts a token passes while it is trained on.
//
//   C = the noted experts of the token and layer, c_e = p_e, or p_e / Σ_C p where the weights are normalised
//
// with p the trainer's own (experts.hpp): only the choice is replayed, and gradients reach the router. Tokens without a note, the
// last of a row among them, pass the experts that their router chooses.
// Source: rollout routing replay (R3), Ma et al., arXiv 2510.11370; verl's `router_replay` (mode R3).
// Shapes: the notes of a tree [T, W], W the experts of a token in all layers with experts, one after the other.
// Metric: mismatch, of the replayed experts those that the router of the pass would not have chosen: count / all of them.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

class RouterReplay {
 public:
  RouterReplay(const TokenTree& tree, at::Device device) {
    std::vector<std::int64_t> flat;
    flat.reserve(tree.routed_experts.size());
    for (const std::uint16_t one : tree.routed_experts) flat.push_back(one == chosen_by_router ? -1 : one);
    notes_ = tensor::from_values(flat, at::TensorOptions().dtype(at::kLong).device(device)).view({tree.tokens(), -1});
  }

  [[nodiscard]] std::int64_t width() const { return notes_.size(1); }
  // [T, count] of a layer whose experts begin at column `first`; −1 = the router chooses.
  [[nodiscard]] Tensor of_layer(std::int64_t first, std::int64_t count) const { return notes_.narrow(1, first, count); }

  // Of one layer; not of a layer that is computed again.
  void add(const Routing& routing) {
    if (complete_ || !routing.replaced.defined()) return;
    const Tensor changed = routing.replaced.sum(at::kDouble), all = routing.noted.sum(at::kDouble);
    changed_ = changed_.defined() ? changed_.add_(changed) : changed;
    all_ = all_.defined() ? all_.add_(all) : all;
  }
  void complete() { complete_ = true; }

  // []; undefined where nothing was replayed.
  [[nodiscard]] Tensor mismatch() const { return all_.defined() ? changed_.div(all_.clamp_min(1.0)) : Tensor(); }

 private:
  Tensor notes_;  // [T, W] int64
  Tensor changed_, all_;
  bool complete_ = false;
};

}  // namespace rlalgo::model
